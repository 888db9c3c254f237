"""Documents as text: PDF, DOCX, HTML and EPUB files, in every task that takes a text."""

import json
import time
import tracemalloc
import zipfile
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pdf_files import write_pdf
from PIL import Image

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.request import Request
from jarvis_agent.core.types import Resource
from jarvis_agent.media import archives, documents
from jarvis_agent.media.detect import DOCX, EPUB, HTML, PDF, detect_media_type
from jarvis_agent.media.documents import load_text
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.planning.inputs import FileNames, PlanRequest
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate, first_candidate
from jarvis_agent.tools import hf_tools

WORDS = "Revenue grew by 12 percent."
PAGE = f"""<!-- a page --><!DOCTYPE html>
<html><head><title>Report</title><script>alert(1)</script></head><body>
<h1>Quarter</h1><p>{WORDS}</p><p>Costs fell.</p><img src="http://127.0.0.1:9/x.png"></body></html>"""
CONTAINER = '<container><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'
PACKAGE = """<package><manifest><item id="b" href="b.xhtml"/><item id="a" href="text/a%20b.xhtml"/>
<item id="n" href="n.xhtml" properties="nav"/></manifest>
<spine><itemref idref="n"/><itemref idref="a"/><itemref idref="b"/></spine></package>"""
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def archive(path: Path, members: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def docx(path: Path, *paragraphs: str, before: str = "") -> Path:
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    text = f'{before}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    return archive(path, {"docProps/x.xml": "<x/>" * 9000, "word/document.xml": text})


def epub(path: Path, **changed: Any) -> Path:
    members = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OPS/book.opf": PACKAGE,
        "OPS/b.xhtml": "<html><head><title>b</title></head><p>The end.</p></html>",
        "OPS/n.xhtml": "<html><nav><h1>Contents</h1></nav></html>",
        "OPS/text/a b.xhtml": f"<html><p>{WORDS}</p></html>",
    }
    return archive(path, {**members, **changed})


def page(path: Path, text: str = PAGE, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding=encoding)
    return path


def documents_in(folder: Path) -> dict[Path, str]:
    """A file of each type under a name that does not tell it, and its media type."""
    return {
        write_pdf(folder / "a.bin", WORDS, "Costs fell."): PDF,
        docx(folder / "b.bin", WORDS, "Costs fell."): DOCX,
        page(folder / "c.bin"): HTML,
        epub(folder / "e.bin"): EPUB,
    }


def test_the_type_comes_from_the_content_and_the_text_from_the_pages_in_order(tmp_path: Path) -> None:
    for path, mime in documents_in(tmp_path).items():
        assert detect_media_type(path) == ("text", mime)
        text = load_text(path)[0]
        assert WORDS in text, path
        assert text.index(WORDS) < text.index("The end" if mime == EPUB else "Costs fell"), path
        assert "alert" not in text
    assert load_text(tmp_path / "e.bin")[0] == f"{WORDS}\nThe end.", "neither titles nor contents"
    latin = page(tmp_path / "l.html", '<html><meta charset="latin-1"><p>caf\xe9</p>', "latin-1")
    assert load_text(latin)[0] == "café"
    note = page(tmp_path / "n.txt", "\ufeffplain", "utf-8")
    assert load_text(note)[0] == "plain"
    note.write_bytes(b"old\rMac\r\nand Windows")
    assert load_text(note)[0] == "old\nMac\nand Windows"


def encrypted(path: Path) -> Path:
    from pypdf import PdfWriter

    writer = PdfWriter(write_pdf(path, WORDS))
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(path)
    return path


def test_an_unreadable_document_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    broken = write_pdf(tmp_path / "broken.pdf", WORDS)
    broken.write_bytes(broken.read_bytes()[:40])
    old = tmp_path / "old.doc"
    old.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600))
    truncated = epub(tmp_path / "truncated.epub")
    truncated.write_bytes(truncated.read_bytes()[:-60])
    nested = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
    entities = f'<!DOCTYPE x [<!ENTITY e0 "{"ha" * 50}">{nested}]>'
    cases = {
        encrypted(tmp_path / "locked.pdf"): "is encrypted; give a copy without a password",
        broken: "cannot be read as a PDF file",
        write_pdf(tmp_path / "scan.pdf", ""): "holds no text; if its pages are scans",
        page(tmp_path / "empty.html", "<html>"): "holds no text$",
        old: "save it as DOCX without a password",
        docx(tmp_path / "expansion.docx", "&e9;", before=entities): "cannot be read as a Word document",
        archive(tmp_path / "odd.docx", {"word/document.xml": "<x/>"}, zipfile.ZIP_BZIP2): "unusual way",
        truncated: "cannot be read as",
        epub(tmp_path / "protected.epub", **{"META-INF/rights.xml": "<x/>"}): "without copy protection",
        epub(
            tmp_path / "incomplete.epub", **{"OPS/book.opf": "<spine><itemref idref='x'/></spine>"}
        ): "as an e-book",
        archive(tmp_path / "x.zip", {"x": "y"}): "cannot be read as text",
    }
    for path, message in cases.items():
        with pytest.raises(InputError, match=message):
            load_text(path)


def test_archives_and_texts_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_CHARS", 1000)
    monkeypatch.setattr(archives, "MAX_MARKUP", 20_000)
    assert all(WORDS in load_text(path)[0] for path in documents_in(tmp_path))
    bomb = "<p>" + " " * 30_000 + "</p>"
    unpacked, shorter = "unpacks to more than 20,000 bytes", "more than 1,000 characters; give a part of it"
    cases = {
        docx(tmp_path / "bomb.docx", bomb): unpacked,
        epub(tmp_path / "bomb.epub", **{"OPS/b.xhtml": bomb}): unpacked,
        page(tmp_path / "bomb.html", f"<html>{bomb}"): "more than 20,000 bytes of HTML",
        write_pdf(tmp_path / "long.pdf", *["words " * 30] * 10): shorter,
        docx(tmp_path / "long.docx", "x" * 1001): shorter,
        page(tmp_path / "long.html", f"<html>{'x' * 1001}"): shorter,
        page(tmp_path / "long.txt", "x" * 1001): shorter,
    }
    for path, message in cases.items():
        with pytest.raises(InputError, match=message):
            load_text(path)
    slides = {f"ppt/slides/slide{n}.xml": f"<p><t>{'x' * 300}</t>{' ' * 15_000}</p>" for n in range(3)}
    shown = archive(tmp_path / "long.pptx", {"ppt/presentation.xml": "<x/>", **slides})
    assert len(load_text(shown)[0]) > 900, "the limit is that of one part"
    monkeypatch.setattr(archives, "MAX_UNPACKED", 40_000)
    with pytest.raises(InputError, match="unpacks to more than 40,000 bytes"):
        load_text(shown)
    many = archive(
        tmp_path / "many.docx", {f"word/{n:0200}": "" for n in range(100)} | {"word/document.xml": "x"}
    )
    monkeypatch.setattr(archives, "_MAX_READ", 20_000)
    with pytest.raises(InputError, match="a part of more than 20,000 bytes"):
        load_text(many)
    forged = docx(tmp_path / "forged.docx", "a" * 50_000)
    content = forged.read_bytes()
    size = next(i.file_size for i in zipfile.ZipFile(forged).infolist() if i.filename.startswith("word"))
    forged.write_bytes(content.replace(size.to_bytes(4, "little"), (9).to_bytes(4, "little")))
    with pytest.raises(InputError, match="cannot be read as a Word document"):
        load_text(forged)


async def test_the_access_policy_applies_to_documents(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "report.pdf", WORDS)
    store = ResourceStore(Settings(output_dir=tmp_path / "out"))
    assert await store.text_of(str(path)) == str(path), "a plan cannot open this file"
    await store.grant(str(path))
    for name in (str(path), "report.pdf"):
        assert await store.text_of(name) == WORDS
    assert await store.text_of("read report.pdf") == f"read {WORDS}"
    assert await store.text_of(Resource(kind="text", path=path)) == WORDS
    assert (await store.resolve(str(path), "image")).to_pil().width == 1275, "8.5 inches in 150 dpi"
    roots = ResourceStore(Settings(output_dir=tmp_path / "out", allowed_dirs=(tmp_path,)))
    assert await roots.text_of(str(path)) == WORDS


async def test_a_plan_may_name_pages_of_a_document(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "report.pdf", *(f"This is page {number}." for number in range(1, 6)))
    (tmp_path / "notes.txt").write_text("notes")
    store = ResourceStore(Settings(output_dir=tmp_path / "out"))
    names = FileNames.of(PlanRequest("", (await store.grant(str(path)),), has_all_files=True), store.settings)
    for name, text in {
        "report.pdf#page=2": "This is page 2.",
        "Report.pdf#page=2-3": "This is page 2.\nThis is page 3.",
        f"`{path}#page=5`": "This is page 5.",
    }.items():
        assert await store.text_of(names.find(name, "text")) == text
    assert await store.text_of("report.pdf#page=2") == "This is page 2.", "the same file again"
    assert (await store.resolve("report.pdf#page=4", "image")).to_pil().width == 1275
    await store.grant(str(tmp_path / "notes.txt"))
    assert await store.text_of("see chapter#page=2") == "see chapter#page=2"
    for name, problem in (("report.pdf#page=6", "has 5 pages"), ("notes.txt#page=1", "only pages of a PDF")):
        with pytest.raises(InputError, match=problem):
            await store.text_of(name)


async def test_a_url_may_name_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = write_pdf(tmp_path / "report.pdf", "This is page 1.", "This is page 2.")

    async def fetch(url: str, target: Path, settings: Settings) -> Path:
        assert url == "https://example.org/report.pdf"
        target.write_bytes(report.read_bytes())  # noqa: ASYNC240
        return target

    monkeypatch.setattr("jarvis_agent.media.store.fetch", fetch)
    store = ResourceStore(Settings(output_dir=tmp_path / "out"))
    url = "https://example.org/report.pdf#page=2"
    files, _, _ = await store.open(Request(input=f"Summarize {url}"))
    assert [file.name for file in files] == [url]
    assert await store.text_of(url) == "This is page 2."


EXPERTS = {
    "summarization": {"summary_text": "It grew."},
    "text-to-speech": {"audio": [0.0] * 160, "sampling_rate": 16_000},
}
PLAN = [
    {"task": "summarization", "id": 0, "dep": [-1], "args": {"text": "report.pdf"}},
    {"task": "text-to-speech", "id": 1, "dep": [0], "args": {"text": "<resource>-0"}},
]


@pytest.mark.parametrize("planner", ["llm", "offline"])
def test_a_run_and_a_single_tool_read_documents(
    planner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_pdf(Path("report.pdf"), WORDS, "Costs fell.")
    source, backend = FakeSource(map(fake_candidate, EXPERTS)), FakeBackend(EXPERTS)
    script = {"plan": json.dumps(PLAN), "select": first_candidate, "respond": "Done."}
    llm = ScriptedLLM(script) if planner == "llm" else None
    with JarvisAgent(model=llm, sources=[source], backends=[backend]) as agent:
        run = agent.invoke("Summarize report.pdf and read it aloud")
    assert json.loads(run.plan.to_json()) == PLAN
    assert [result.status for result in run.results] == ["ok", "ok"], [result.error for result in run.results]
    assert [call.inputs["text"] for call in backend.calls] == [f"{WORDS}\nCosts fell.", "It grew."]
    (tool,) = hf_tools(tasks=["summarization"], sources=[source], backends=[backend])
    assert tool.invoke({"text": "report.pdf"}).startswith("It grew.")
    assert backend.calls[-1].inputs["text"] == f"{WORDS}\nCosts fell."


def test_office_files_have_their_notes_slides_and_no_deleted_words(tmp_path: Path) -> None:
    run = "<w:p><w:r><w:t>{}</w:t></w:r></w:p>"
    moved = f"<w:moveFrom>{run.format('gone')}</w:moveFrom>"
    body = run.format("Revenue") + f"<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>{moved}</w:p>"
    box = "<w:p>{}<w:r><w:t>text{}</w:t></w:r></w:p>".format("<w:tab/>", " box")
    parts = {
        name: f'<w:x xmlns:w="{WORD}">{text}</w:x>'
        for name, text in {
            "word/document2.xml": body + box,
            "word/footnotes.xml": run.format("A footnote."),
            "word/header1.xml": run.format("A header"),
        }.items()
    }
    assert load_text(archive(tmp_path / "a.docx", parts)) == ("A header\nRevenue\ntext box\nA footnote.", [])
    slide = '<a:x xmlns:a="urn:a"><a:p><a:r><a:t>slide {}</a:t></a:r></a:p></a:x>'
    slides = {f"ppt/slides/slide{number}.xml": slide.format(number) for number in (10, 2, 1)}
    shown = archive(tmp_path / "a.pptx", {"ppt/presentation.xml": "<x/>", **slides})
    assert load_text(shown)[0] == "slide 1\nslide 2\nslide 10"
    for kind in ("text", "presentation"):
        mime = f"application/vnd.oasis.opendocument.{kind}"
        text = '<o xmlns:t="urn:t"><t:h>Title</t:h><t:p>two<t:s/>words<t:line-break/>more</t:p></o>'
        made = archive(tmp_path / kind, {"mimetype": mime, "content.xml": text}, zipfile.ZIP_STORED)
        assert detect_media_type(made) == ("text", mime)
        assert load_text(made)[0] == "Title\ntwo words\nmore"
    packed_again = archive(tmp_path / "again.odt", {"content.xml": text, "mimetype": mime})
    assert load_text(packed_again)[0] == "Title\ntwo words\nmore"


def test_office_files_have_charts_drawn_lists_and_speaker_notes_but_no_measures(tmp_path: Path) -> None:
    def part(text: str) -> str:
        return f'<x xmlns="http://schemas.openxmlformats.org/x">\n{text}</x>'

    def links(*targets: str) -> str:
        return "<x>{}</x>".format("".join(f'<Relationship Target="{target}"/>' for target in targets))

    words = "<p><r><t>{}</t></r>\n<r><t>{}</t></r></p>"
    floating = "<positionH><posOffset>914400</posOffset></positionH><pctWidth>0</pctWidth><align>top</align>"
    deleted = '<delText>gone</delText><instrText>PAGE</instrText><delInstrText>LINK "a"</delInstrText>'
    chart = "<chart><f>Sheet1!$A$2</f><pt><v>North</v></pt><pt><v>4.5</v></pt></chart>"
    footer = "<p><r><t>Left</t></r><r><ptab/><t>Right</t></r></p>"
    members = {
        "word/footer1.xml": part(footer),
        "word/document.xml": part(f"{floating}{words.format('Net ', 'sales')}{deleted}"),
        "word/_rels/document.xml.rels": links("charts/chart1.xml", "styles.xml"),
        "word/charts/chart1.xml": part(chart),
        "word/styles.xml": part(words.format("no", "text")),
    }
    assert load_text(archive(tmp_path / "a.docx", members)) == (
        "Net sales\nNorth\n4.5\nLeft Right",
        [],
    )
    note = "word/charts/chart1.xml in the document is damaged, and was left out"
    for content in ("<chart>", "<x>" * 900 + "</x>" * 900):
        damaged = archive(tmp_path / "b.docx", members | {"word/charts/chart1.xml": content})
        assert load_text(damaged) == ("Net sales\nLeft Right", [note])
    table = f"<tableStyleId>{{5C22544A-7EE6-4342-B048-85BDC9FD1C3A}}</tableStyleId>{words.format('A', 'B')}"
    moves = "<timing><attrName>style.visibility</attrName></timing>"
    number = '<fld type="slidenum"><t>1</t></fld>'
    slides = {
        "ppt/presentation.xml": part(""),
        "ppt/slides/slide1.xml": part(table + moves),
        "ppt/slides/slide2.xml": part(words.format("End", ".")),
        "ppt/slides/_rels/slide1.xml.rels": links(
            "../notesSlides/notesSlide7.xml", "/ppt/diagrams/data3.xml", "../charts/chart9.xml"
        ),
        "ppt/notesSlides/notesSlide7.xml": part(words.format("Say ", "this") + number),
        "ppt/diagrams/data3.xml": part(words.format("Step ", "one")),
    }
    assert load_text(archive(tmp_path / "a.pptx", slides)) == ("AB\nSay this\nStep one\nEnd.", [])


def test_numbers_of_lists_and_headings_stand_before_the_text(tmp_path: Path) -> None:
    def level(depth: int, form: str, text: str, more: str = "") -> str:
        return f'<w:lvl w:ilvl="{depth}"><w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/>{more}</w:lvl>'

    def part(name: str, text: str) -> str:
        return f'<w:{name} xmlns:w="{WORD}">{text}</w:{name}>'

    numbered = '<w:pPr><w:numPr>{}<w:numId w:val="{}"/></w:numPr></w:pPr>'

    def line(number: str, depth: int = 0, text: str = "x", style: str = "") -> str:
        form = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>'
        form = form if style else numbered.format(f'<w:ilvl w:val="{depth}"/>', number)
        return f"<w:p>{form}<w:r><w:t>{text}</w:t></w:r></w:p>"

    rules = {
        "1": level(0, "chineseCounting", "%1、", '<w:suff w:val="nothing"/>')
        + level(1, "decimal", "%1.%2", '<w:isLgl/><w:start w:val="3"/>')
        + level(2, "lowerLetter", "%3)"),
        "2": level(0, "upperRoman", "%1."),
        "3": level(0, "decimalEnclosedCircle", "%1"),
        "4": level(0, "lowerLetter", "o") + level(1, "none", "§§"),
        "5": level(0, "bullet", "--"),
        "6": level(0, "decimalZero", "%1" + "." * 9_000, '<w:start w:val="a"/>')
        + level(1, "ideographDigital", "%2、", '<w:lvlRestart w:val="0"/><w:start w:val="10"/>'),
        "8": level(0, "decimal", "%1:", '<w:pStyle w:val="H1"/>')
        + level(1, "decimal", "%1.%2", '<w:pStyle w:val="H2"/>'),
    }
    lists = "".join(
        f'<w:abstractNum w:abstractNumId="{name}">{levels}</w:abstractNum>'
        f'<w:num w:numId="{name}"><w:abstractNumId w:val="{name}"/></w:num>'
        for name, levels in rules.items()
    )
    restarted = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="9"/></w:lvlOverride>'
    lists += f'<w:num w:numId="7"><w:abstractNumId w:val="2"/>{restarted}</w:num>'
    styles = f'<w:style w:styleId="base">{numbered.format("", "3")}</w:style>'
    styles += '<w:style w:styleId="item"><w:basedOn w:val="base"/></w:style>'
    styles += f'<w:style w:styleId="top">{numbered.format("", "6")}</w:style>'
    styles += '<w:style w:styleId="sub"><w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr></w:pPr>'
    styles += '<w:basedOn w:val="top"/></w:style>'
    linked = (("H1", "H1"), ("H2", "H1"), ("H3", "H2"))
    for name, base in linked:
        form = numbered.format('<w:ilvl w:val="2"/>' * (name == "H2"), "8") * (name != "H3")
        styles += f'<w:style w:styleId="{name}"><w:basedOn w:val="{base}"/>{form}</w:style>'
    body = [
        line("1"),
        line("1", 1),
        line("1", 1),
        line("1", 2),
        line("1"),
        line("1", 1),
        line("2"),
        line("7"),
    ]
    body += [line("7"), line("", style="item"), line("", style="item"), line("4"), line("4", 1)]
    body += [line("5"), line("0"), *(line("", style=style) for style in ("top", "sub", "top", "sub"))]
    body += [line("", style=style) for style in ("H1", "H2", "H3", "H1")] + [line("8", style="")]
    members = {
        "word/document.xml": part("document", "".join(body)),
        "word/numbering.xml": part("numbering", lists),
        "word/styles.xml": part("styles", styles),
    }
    expected = "一、x 1.3_x 1.4_x a)_x 二、x 2.3_x I._x IX._x X._x ①_x ②_x x §§_x x x "
    expected += "01{0}_x 一〇、_x 02{0}_x 一一、_x 1:_x 1.1_x 1.2_x 2:_x 3:_x".format("." * 58)
    assert load_text(archive(tmp_path / "a.docx", members))[0].replace(" ", "_").split() == expected.split()


def test_numbered_lines_of_slides_have_their_numbers(tmp_path: Path) -> None:
    def line(text: str, kind: str = "", level: Any = 0) -> str:
        rule = f'<buAutoNum type="{kind}" startAt="1.0"/>' if kind else ""
        return f'<p><pPr lvl="{level}">{rule}</pPr><r><t>{text}</t></r></p>'

    body = [line("x", "arabicPeriod"), line("x", "alphaLcParenBoth", 1), line("x", "alphaLcParenBoth", 1)]
    body += [line("", "arabicPeriod"), line("x", "arabicPeriod"), line("x"), line("x", "romanUcParenR")]
    body += ["</txBody><txBody>", line("x", "romanUcParenR"), line("x", "arabicPeriod", "x")]
    body += [line("x", "romanUcParenR", "9" * 5_000), line("x", "romanUcParenR", 8)]
    slide = f'<s xmlns="http://schemas.openxmlformats.org/x"><txBody>{"".join(body)}</txBody></s>'
    members = {"ppt/presentation.xml": "<x/>", "ppt/slides/slide1.xml": slide}
    assert load_text(archive(tmp_path / "a.pptx", members))[0].splitlines() == [
        "1. x",
        "(a) x",
        "(b) x",
        "2. x",
        "x",
        "I) x",
        "I) x",
        "1. x",
        "I) x",
        "I) x",
    ]


def test_symbols_are_what_their_font_shows(tmp_path: Path) -> None:
    def run(text: str, font: str = "") -> str:
        fonts = f'<w:rPr><w:rFonts w:ascii="{font}"/></w:rPr>' if font else ""
        return f"<w:r>{fonts}<w:t>{text}</w:t></w:r>"

    signs = '<w:sym w:font="Symbol" w:char="F044"/><w:sym w:font="Wingdings" w:char="F081"/>'
    signs += '<w:sym w:font="Wingdings 2" w:char="0052"/><w:sym w:font="Webdings" w:char="F061"/>'
    signs += '<w:sym w:font="MS Gothic" w:char="2610"/><w:sym w:font="Symbol" w:char="zz"/>'
    signs += '<w:sym w:font="Symbol" w:char="F01F"/><w:sym w:font="Symbol" w:char="D800"/>'
    runs = [run("\uf0b9", "Symbol"), run("\uf0e0", "Wingdings"), run("\uf070")]
    body = f"<w:r>{signs}</w:r>{''.join(runs)}"
    members = {"word/document.xml": f'<w:document xmlns:w="{WORD}"><w:p>{body}</w:p></w:document>'}
    assert load_text(archive(tmp_path / "a.docx", members))[0] == "Δ①☑�☐���≠→π"


def test_cells_of_a_row_stay_in_their_columns(tmp_path: Path) -> None:
    def row(*cells: str) -> str:
        return "<tr>{}</tr>".format("".join(f"<tc>{cell}</tc>" for cell in cells))

    def line(text: str) -> str:
        return f"<p><r><t>{text}</t></r></p>"

    inner = f"<tbl>{row(line('x'), line('y'))}</tbl>"
    body = row(line("a"), "<p/>", line("c")) + row("<p/>", "<p/>") + row(line("one")) + row(inner, line("z"))
    body += row(line("1") + line("2"), line("3")) + row(line("if x:") + line("y" * 99), line("code"))
    body += row(inner + inner, line("z"))
    body += "".join(row(f'<tcPr><gridSpan val="{count}"/></tcPr>{line("m")}', line("z")) for count in (0, 3))
    body += row(f'<tcPr><gridSpan val="2"/></tcPr>{line("title")}') + row(
        line("a"), line("b"), "<p/>", "<p/>"
    )
    members = {"word/document.xml": f'<d xmlns="{WORD}"><tbl>{body}</tbl></d>'}
    text = load_text(archive(tmp_path / "a.docx", members))[0]
    assert text.splitlines() == [
        *("a | | c", "one", "x | y | z", "1 2 | 3"),
        *("if x:", "y" * 99, "code", "x | y", "x | y", "z", "m | z", "m | | | z", "title", "a | b"),
    ]


def test_numbers_of_pages_are_no_text(tmp_path: Path) -> None:
    def run(text: str) -> str:
        return f"<r><t>{text}</t></r>"

    begin, end = (f'<r><fldChar fldCharType="{kind}"/></r>' for kind in ("begin", "end"))
    number = f"{begin}<r><instrText> Pa</instrText><instrText>ge </instrText></r>{run('7')}{end}"
    listed = f"{begin}<r><instrText>PAGEREF a</instrText></r>{run('12')}{end}"
    lines = [f"{run('- ')}{number}{run(' -')}", f'<fldSimple instr="NUMPAGES">{run("9")}</fldSimple>']
    lines += [f"{run('Page ')}{number}", f"{begin}<r><instrText>PAGE</instrText></r>", listed, run("8")]
    lines += [
        f"{run('2024-0017 / ')}{number}",
        f"{run('100 ')}{lines[1]}",
        number.replace(run("7"), run("ii")),
    ]
    code = "<r><instrText>{}</instrText></r>"
    lines += [f"{begin}{code.format('= ')}{number}{code.format('- 1')}{run('6')}{end}"]
    lines += [f"{begin}{code.format('IF ')}{number}{run('5')}{end}", f"{begin}{code.format('PAGE')}{end}-"]
    body = "".join(f"<p>{line}</p>" for line in lines)
    body += f"<tbl><tr><tc><p>{run('A')}</p></tc><tc><p>{run('5')}</p></tc></tr></tbl>"
    members = {"word/document.xml": f'<d xmlns="{WORD}">{body}</d>'}
    assert load_text(archive(tmp_path / "a.docx", members))[0].splitlines() == [
        *("Page 7", "12", "8", "2024-0017 / 7", "100 9", "75", "A | 5"),
    ]


def test_notes_and_boxes_stand_after_their_paragraph_and_forms_are_read(tmp_path: Path) -> None:
    box = "<txbxContent><p><r><t>box</t></r></p></txbxContent>"
    body = f"<p><r><t>Some </t></r><r>{box}</r><r><t>text</t></r></p>"
    members = {"word/document.xml": f'<d xmlns="{WORD}">{body}</d>'}
    assert load_text(archive(tmp_path / "a.docx", members))[0] == "Some text\nbox"
    note = "<note><note-citation>1</note-citation><note-body><p>A note</p></note-body></note>"
    form = '<form><text current-value="Ada"/><fixed-text label="Name"/></form>'
    form += '<form><form><textarea current-value="Long"><p>Long</p></textarea></form></form>'
    comment = "<office:annotation><p>Why?</p></office:annotation>"
    text = f'<d xmlns:office="urn:o">{form}<p>Some {note}text{comment}</p><object-ole/></d>'
    (tmp_path / "a.fodt").write_text(text)
    assert load_text(tmp_path / "a.fodt") == (
        "Ada\nName\nLong\nSome text\nA note",
        [
            "embedded objects, such as formulas of old versions, which are left out: 1",
            "comments on the text, which are left out: 1",
        ],
    )
    model = "<table-of-content-source><index-title-template>Contents</index-title-template>"
    model += "<index-entry-span>/</index-entry-span></table-of-content-source>"
    (tmp_path / "a.fodt").write_text(f"<d>{model}<p>Contents</p></d>")
    assert load_text(tmp_path / "a.fodt")[0] == "Contents"


def test_raised_and_lowered_numbers_stay_apart(tmp_path: Path) -> None:
    def word(text: str, place: str) -> str:
        return f'<r><rPr><vertAlign val="{place}"/></rPr><t>{text}</t></r>'

    def shown(text: str, baseline: str) -> str:
        return f'<r><rPr><nor/></rPr><rPr baseline="{baseline}"/><t>{text}</t></r>'

    for raised, lowered, plain in (
        (
            partial(word, place="superscript"),
            partial(word, place="subscript"),
            partial(word, place="baseline"),
        ),
        (partial(shown, baseline="30000"), partial(shown, baseline="-25%"), partial(shown, baseline="0")),
    ):
        runs = plain("10"), raised("-5"), plain(" 32"), lowered("10"), plain(" 2"), raised("n"), raised("+1")
        line = f"<p>{''.join(runs)}{plain(' 1')}{raised('st')}</p>"
        members = {"word/document.xml": f'<d xmlns="{WORD}">{line}</d>'}
        assert load_text(archive(tmp_path / "a.docx", members))[0] == "10⁻⁵ 32₁₀ 2ⁿ⁺¹ 1st"


def test_comments_and_embedded_objects_are_counted(tmp_path: Path) -> None:
    names = f'xmlns:w="{WORD}" xmlns:o="urn:schemas-microsoft-com:office:office"'
    embedded = "<w:object><o:OLEObject ><o:LockedField>false</o:LockedField></o:OLEObject></w:object>"
    text = f"<w:p><w:t>Let</w:t>{embedded}</w:p>"
    remark = '<w:comment w:id="1"><w:t>Why?</w:t></w:comment>'
    members = {
        "word/document.xml": f"<w:x {names}>{text}</w:x>",
        "word/comments.xml": f"<w:comments {names}>{remark}</w:comments>",
    }
    assert load_text(archive(tmp_path / "a.docx", members)) == (
        "Let",
        [
            "embedded objects, such as formulas of old versions, which are left out: 1",
            "comments on the text, which are left out: 1",
        ],
    )


def test_formulas_are_written_in_a_line(tmp_path: Path) -> None:
    def part(name: str, *inner: str) -> str:
        return f"<m:{name}>{''.join(inner)}</m:{name}>"

    def given(name: str, **values: str) -> str:
        return part(name, *(f'<m:{key} m:val="{value}"/>' for key, value in values.items()))

    def text(name: str, words: str) -> str:
        return part(name, part("r", part("t", words)))

    limits = (given("naryPr", chr="∑"), text("sub", "k=0"), text("sup", "n"))
    cases = {
        part("f", text("num", "1"), text("den", "4")): "1/4",
        part("f", text("num", "a+b"), text("den", "10")): "(a+b)/10",
        part("f", given("fPr", type="noBar"), text("num", "n"), text("den", "k")): "n¦k",
        part("sSubSup", text("e", "x"), text("sub", "i"), text("sup", "-1")): "x_i^(-1)",
        part("nary", *limits, text("e", "k")): "∑_(k=0)^n k",
        part("nary", text("sub", ""), text("sup", ""), text("e", "x")): "∫ x",
        part("d", text("e", "x"), text("e", "y")): "(x|y)",
        part("d", given("dPr", begChr="[", sepChr=",", endChr=""), text("e", "x"), text("e", "y")): "[x,y",
        part("rad", text("deg", ""), text("e", "ab")): "√(ab)",
        part("rad", text("deg", "3"), text("e", "2")): "√[3]2",
        part("acc", text("e", "x")): "x\u0302",
        part("sPre", text("sub", "6"), text("sup", "12"), text("e", "C")): "_6^12 C",
        part("sSub", text("e", "I"), text("sub", "S")) + text("r", "R"): "I_S R",
        part("f", text("num", "9"), text("den", "2")) + text("r", "=n"): "9/2=n",
        f"<a:m>{part('oMath', part('f', text('num', 'V'), text('den', 'R')))}</a:m>": "V/R",
        f"<a:m>{part('oMathPara', part('oMath', part('rad', text('e', '2'))))}</a:m>": "√2",
        part(
            "func", part("fName", part("limLow", text("e", "lim"), text("lim", "n"))), text("e", "n")
        ): "lim_n n",
        part(
            "m", part("mr", text("e", "1"), text("e", "0")), part("mr", text("e", "0"), text("e", "1"))
        ): "1, 0; 0, 1",
    }
    names = f'xmlns:w="{WORD}" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    names += ' xmlns:a="http://schemas.microsoft.com/office/drawing/2010/main"'
    lines = "".join(f"<w:p>{formula}</w:p>" for formula in cases)
    members = {"word/document.xml": f"<w:document {names}>{lines}</w:document>"}
    text_of, notes = load_text(archive(tmp_path / "a.docx", members))
    assert (text_of.splitlines(), notes) == ([*cases.values()], [])


def test_markup_and_time_codes_are_no_text(tmp_path: Path) -> None:
    cases = {
        "b.rtf": (r"{\pard One\par}{\pard Two\par}", "One\nTwo"),
        "c.rtf": (r"{\pard One\par}}{\pard Two\par}", "One\nTwo"),
        "d.rtf": (
            r"{\rtf1 Only {\deleted 500 }{\b\v secret }700 \\v.{\footnote \pard No tax.}}",
            "Only 700 \\v.\nNo tax.",
        ),
        "e.rtf": (
            r"{\rtf1 One \v two \v0 three.\par{\b\v four \v0 five}\par Six \deleted seven \{\v 8\}}",
            "One two three.\nfour five\nSix seven {8}",
        ),
        "a.rtf": (r"{\rtf1\ansi Hello \b from\b0  a caf\'e9.}", "Hello from a café."),
        "a.md": ("# Title\n\n*Two* [words](http://x.org) `code`\n\n- item\n", "Title\nTwo words code\nitem"),
        "b.md": ("<p>Kept</p>\n\n- one\n  ```\n  x = 1\n  ```\n\n![badge](b.svg)\n", "Kept\none\nx = 1"),
        "e.md": ("Read\nthis:\n\n2. Two\n3. Three\n", "Read this:\n2. Two\n3. Three"),
        "a.srt": (SUBTITLES, SPOKEN),
        "a.txt": (SUBTITLES.replace("\n", "\r\n"), SPOKEN),
        "c.md": ("Hi<br>there, ~~old~~ new[^1].\n\n[^1]: A note.\n", "Hi\nthere, old new[^1].\n1: A note."),
        "d.md": ("<table><tr><td>name</td><td>H<sub>2</sub>O</td></tr></table>\n", "name H2O"),
        "a.html": (
            "<html><p><b>AN</b>NUAL</p><p>Report</p><table><tr><td>1</td><td>2</td></tr>"
            "<tr><th><p>a</p></th><td><p>b</p><p>c</p></td><td><table><tr><td>d</td></tr></table></td></tr>",
            "ANNUAL\nReport\n1 2\na b\nc\nd",
        ),
        "c.html": (
            "<html><ol start=3><li><p>Three<li>Four<ul><li>dot</ul><li value=9>Nine<li><img></ol>"
            "Click <input type=submit value=Send>or<input value=x>not",
            "3. Three\n4. Four\ndot\n9. Nine\nClick Send or not",
        ),
        "a.vtt": ("WEBVTT\n\n00:01.000 --> 00:02.500\n<v.loud Ann>Hi <i>you</i>\n", "Ann: Hi you"),
        "c.vtt": ("WEBVTT\n1\n00:01.000 --> 00:02.500\nHi\n\nNOTEBOOKS\n", "Hi\nNOTEBOOKS"),
        "d.srt": ("1\n00:00:01,000 --> 00:00:02,500\nHi\n\nSTYLE matters\n", "Hi\nSTYLE matters"),
        "b.vtt": (f"WEBVTT\nKind: captions\n\nSTYLE\n::cue {{}}\n\nNOTE a\nb\n\n{SUBTITLES}", SPOKEN),
        "d.vtt": (f"WEBVTT\n\nSTYLE\n::cue {{\n\n}}\n\nRegion: id=a\n\n{SUBTITLES}", SPOKEN),
        "a.ass": (SUB_STATION, "Hello, there\nGeneral"),
        "a.lrc": ("[ti:Song]\n[00:12.00]One\n[00:20.00][00:40.00]Two\n", "One\nTwo"),
        "a.sbv": ("0:00:01.000,0:00:02.500\nOne\n\n0:00:03.000,0:00:04.500\n2\n", "One\n2"),
        "e.srt": (
            f"1\n{TIMES}\n1,000 of {{them}}\n\n2\n{TIMES}\n[Ann] C:\\new\n",
            "1,000 of {them}\n[Ann] C:\\new",
        ),
        "a.sub": ("{1}{1}23.976\n{0}{25}One|two|three\n{50}{75}{y:i}Four\n", "One\ntwo\nthree\nFour"),
        "a.smi": (
            "<SAMI><STYLE>P {}</STYLE><SYNC Start=1><P>One<br>two\n<SYNC Start=2><P>Three",
            "One\ntwo\nThree",
        ),
        "a.ttml": ('<?xml version="1.0"?><tt><p begin="00:00:01.000">One<br/>two</p></tt>', "One\ntwo"),
        "a.fodt": ("<d><meta><a>Writer</a></meta><body><h>Title</h><p>Hi</p></body></d>", "Title\nHi"),
        "a.fb2": ("<?xml ?><FictionBook><p>H<emphasis>i</emphasis><binary>iV</binary></FictionBook>", "Hi"),
    }
    for name, (content, text) in cases.items():
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
        assert "\n".join(filter(None, load_text(tmp_path / name)[0].splitlines())) == text, name
    code = page(tmp_path / "b.html", "<html><h1>A\ntitle</h1>Text<pre>\nif x:\n\n    y()\n</pre>End")
    assert load_text(code)[0] == "A title\nText\nif x:\n\n    y()\nEnd"
    assert load_text(tmp_path / "a.srt", with_markup=True)[0] == SUBTITLES.strip()
    (tmp_path / "a.ps").write_text("%!PS-Adobe-3.0\n/Helvetica findfont\n")
    assert detect_media_type(tmp_path / "a.ps")[0] == "file", "its source is not spoken"


def test_the_text_of_a_message_is_its_head_and_its_body(tmp_path: Path) -> None:
    message = EmailMessage()
    message["Subject"] = "Café on Friday"
    message["To"], message["From"] = "bob@example.org, Eve <eve@example.org>", "Zoé <zoe@example.org>"
    message.set_content("Let us meet at the café.")
    message.add_alternative("<p>Let us meet</p>", subtype="html")
    message.add_attachment(b"%PDF-", maintype="application", subtype="pdf", filename="menu.pdf")
    (tmp_path / "a.eml").write_bytes(bytes(message))
    text, notes = load_text(tmp_path / "a.eml")
    head = "Café on Friday\nFrom: Zoé <zoe@example.org>\nTo: bob@example.org, Eve <eve@example.org>"
    assert text == f"{head}\nLet us meet at the café."
    assert notes == ["attached files were left out: menu.pdf"]

    page = EmailMessage()
    page["Subject"] = "A page"
    page["From"], page["Date"] = "<Saved by Blink>", "Mon, 1 Jan 2024 12:00:00 -0000"
    page.set_content("<style>p {}</style><p>Hello</p>", subtype="html")
    page.add_related(b"\x89PNG", maintype="image", subtype="png", cid="<a>")
    page.add_related(b"PK\x03\x04\xff\xfe", maintype="text", subtype="xml", cid="<b>")  # as Word does
    page.add_related(b"p {}", maintype="text", subtype="css", cid="<c>")
    (tmp_path / "a.mhtml").write_bytes(bytes(page))
    assert load_text(tmp_path / "a.mhtml") == ("A page\nHello", [])


@pytest.mark.parametrize("kind", ["plain", "html"])
@pytest.mark.parametrize("stated", ["", "; charset=unknown-8bit", '; charset="windows-1252"'])
def test_a_message_may_state_no_encoding_or_a_wrong_one(kind: str, stated: str, tmp_path: Path) -> None:
    head = f"Subject: Hi\nContent-Type: text/{kind}{stated}\nContent-Transfer-Encoding: 8bit\n\n".encode()
    body = "Grüße aus Köln. Bis nächsten Freitag, schöne Tage!".encode("windows-1252")
    (tmp_path / "a.eml").write_bytes(head + body)
    assert load_text(tmp_path / "a.eml")[0] == "Hi\n" + body.decode("windows-1252")
    text = head.replace(b"windows-1252", b"utf-8").decode() + "Grüße"
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le"):
        (tmp_path / "b.eml").write_text(text, encoding=encoding)
        assert load_text(tmp_path / "b.eml")[0] == "Hi\nGrüße", encoding


def test_a_long_list_of_addresses_and_blanks_in_a_cue_are_read_at_once(tmp_path: Path) -> None:
    many = ", ".join(f"<reader{number}@example.org>" for number in range(200_000))
    (tmp_path / "a.eml").write_text(f"From: <ada@example.org>\nTo: {many}\n\nHello\n")
    first, to, *_, last = load_text(tmp_path / "a.eml")[0].splitlines()
    assert (first, last) == ("From: <ada@example.org>", "Hello")
    assert to.startswith("To: <reader0@example.org>")
    assert to.endswith(" …")
    (tmp_path / "a.vtt").write_text(f"WEBVTT\n\n00:01.000 --> 00:02.500\n<v{' ' * 200_000}\nHi\n")
    assert load_text(tmp_path / "a.vtt")[0].endswith("Hi")
    head = "From: a@x.org\nContent-Type: text/plain" + "; a=b" * 60_000
    (tmp_path / "a.eml").write_text(f"{head}\n\nHi")
    assert load_text(tmp_path / "a.eml")[0].endswith("Hi")


def test_all_texts_of_a_message_are_read_and_its_other_parts_named(tmp_path: Path) -> None:
    forwarded = EmailMessage()
    forwarded["Subject"], forwarded["From"] = "Lunch", "ann@example.org"
    forwarded.set_content("At noon?")
    message = EmailMessage()
    message["Subject"] = "Fwd: Lunch"
    message.set_content("See below.")
    message.add_attachment(forwarded)
    footer = EmailMessage()
    footer.set_content("A footer")
    message.attach(footer)
    message.add_attachment(b"{}", maintype="application", subtype="json")
    (tmp_path / "a.eml").write_bytes(bytes(message))
    text, notes = load_text(tmp_path / "a.eml")
    lines = ["Fwd: Lunch", "See below.", "Lunch", "From: ann@example.org", "At noon?", "A footer"]
    assert [*filter(None, text.splitlines())] == lines
    assert notes == ["attached files were left out: application/json"]
    (tmp_path / "b.eml").write_text("FROM: a b@\nContent-Type: multipart/mixed\n\nNo parts.\n")
    assert load_text(tmp_path / "b.eml") == ("From: a b@\nNo parts.", [])


def test_the_head_of_a_message_is_as_it_was_written_and_reports_are_read(tmp_path: Path) -> None:
    head = "From: nsb (Nathaniel)\nDate: Wed, 20 Sep 1995 00:19:00 (EDT) -0400"
    (tmp_path / "a.eml").write_text(f"{head}\n\nHi")
    assert load_text(tmp_path / "a.eml")[0] == f"{head}\nHi"
    for kind in ("delivery-status", "disposition-notification"):
        fields = 'Final-Recipient: rfc822; bob@example.org\nReply-To: "" <@>,;:<<\nMessage-ID: <[x'
        fields += "\nDiagnostic-Code: 550\nThere is no such account.\nStatus: 5.1.1"
        report = f"--b\nContent-Type: message/{kind}\n\nReporting-MTA: dns; x\n{fields}\n"
        content = f"Subject: Failed\nContent-Type: multipart/report; boundary=b\n\n{report}--b--\n"
        (tmp_path / "a.eml").write_text(content)
        assert load_text(tmp_path / "a.eml") == (f"Failed\nReporting-MTA: dns; x\n{fields}", [])


SPOKEN = "Hello there.\nGeneral Kenobi."
TIMES = "00:00:01,000 --> 00:00:02,500"
SUB_STATION = (
    "[Script Info]\nTitle: x\n\n[Events]\nFormat: Layer, Start, End, Style, Name, L, R, V, Effect, Text\n"
    "Comment: 0,0:00:00.00,0:00:01.00,Default,,0,0,0,,Unspoken\n"
    "Dialogue: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,{\\i1}Hello{\\i0},\\hthere\\NGeneral\n"
    "Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,{\\an7\\p1}m 0 0 l 9 0{\\p0}\n"
)
SUBTITLES = (
    "1\n00:00:01,000 --> 00:00:02,500\nHello there.\n\n"
    "2\n00:00:03,000 --> 00:00:04,000\n<i>General</i> Kenobi.\n"
)


FORM = b"""%PDF-1.7
1 0 obj<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[6 0 R]/DR<</Font<</F1 5 0 R>>>>>>>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Annots[6 0 R 7 0 R]
/Resources<</Font<</F1 5 0 R>>>>>>endobj
4 0 obj<</Length 36>>stream
BT /F1 12 Tf 20 150 Td (Name:) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
6 0 obj<</Type/Annot/Subtype/Widget/FT/Tx/T(name)/V(Ada)/Rect[150 140 290 165]/F 4/DA(/F1 12 Tf)>>endobj
7 0 obj<</Type/Annot/Subtype/FreeText/Rect[20 40 200 60]/F 4/AP<</N 8 0 R>>>>endobj
8 0 obj<</Subtype/Form/BBox[0 0 180 20]/Resources<</Font<</F1 5 0 R>>>>/Length 34>>stream
BT /F1 12 Tf 2 5 Td (A note) Tj ET
endstream endobj
trailer<</Root 1 0 R>>"""
"""A page with a filled-in field, of which a program left the drawing to readers, and a typed note."""


def test_what_is_filled_in_and_noted_on_a_page_is_read_and_shown(tmp_path: Path) -> None:
    (tmp_path / "form.pdf").write_bytes(FORM)
    assert load_text(tmp_path / "form.pdf")[0].split() == ["Name:", "Ada", "A", "note"]
    documents.render_pages(tmp_path / "form.pdf", tmp_path / "page.tiff", 1_000_000)
    page = Image.open(tmp_path / "page.tiff").convert("L")
    scale = page.height / 200
    field, note = ((150, 35, 290, 60), (20, 140, 200, 160))
    for box in (field, note):
        darkest, _ = page.crop(tuple(round(side * scale) for side in box)).getextrema()
        assert darkest < 100  # type: ignore[operator]


NAMED = b"""%PDF-1.7
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1/MediaBox[0 0 300 200]>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/Contents 4 0 R
/Resources<</Font<</F1 5 0 R/F2 7 0 R/F3 9 0 R>>>>>>endobj
4 0 obj<</Length 345>>stream
BT /F1 12 Tf 20 TL 20 180 Td (infor-) Tj T* (mation of AEC-) Tj T* (Q100 and C-) Tj T* (code) Tj ET
BT /F1 12 Tf 20 60 Td (signi[cance = ^) Tj ET BT /F1 12 Tf 20 40 Td (a Z \\\\ ]) Tj ET
BT /F2 12 Tf 20 20 Td (b) Tj ET BT /F3 12 Tf 20 5 Td (6) Tj /F1 12 Tf (= c) Tj /F3 12 Tf (1) Tj ET
BT /F1 12 Tf 500 5 Td (later) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 6 0 R>>endobj
6 0 obj<</Length 195>>stream
begincmap 1 begincodespacerange <00> <ff> endcodespacerange
5 beginbfchar <5e> <06440627> <5a> <f8f1> <5c> <e061> <5b> <001c> <5d> <d83dde00> endbfchar endcmap
endstream endobj
7 0 obj<</Type/Font/Subtype/TrueType/BaseFont/ABCDEF+SymbolMT/FirstChar 98/LastChar 98/Widths[500]
/ToUnicode 8 0 R>>endobj
8 0 obj<</Length 104>>stream
begincmap 1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfchar <62> <f062> endbfchar endcmap
endstream endobj
9 0 obj<</Type/Font/Subtype/Type1/BaseFont/ABCDEF+CMSY10/FirstChar 54/LastChar 54/Widths[500]>>endobj
trailer<</Root 1 0 R>>"""
"""A page whose font names a glyph لا, one ﬁ as TeX does, two as private characters and one as 😀."""


def test_hyphens_ligatures_and_unknown_characters_of_a_page(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(NAMED)
    text, notes = load_text(tmp_path / "a.pdf")
    words = "information of AEC-Q100 and C-code significance = لا a ⎧ \ue061 😀 β ≠ c∞"
    assert " ".join(text.split()) == words
    assert notes == ["characters that the file does not name: 1"]
    # In Unicode a stroke is after its sign.
    (tmp_path / "a.pdf").write_bytes(
        NAMED.replace(b"CMSY10", b"Others").replace(b"<06440627>", b"<003d0338>")
    )
    assert "significance = =\u0338 a ⎧" in " ".join(load_text(tmp_path / "a.pdf")[0].split())


def test_pages_without_text_and_damaged_pages_are_named(tmp_path: Path) -> None:
    content = write_pdf(tmp_path / "a.pdf", WORDS, "Costs fell.").read_bytes()
    scan(tmp_path / "mixed.pdf", WORDS, "Costs fell.")
    text, notes = load_text(tmp_path / "mixed.pdf")
    assert text == f"{WORDS}\nCosts fell."
    assert notes == ["left out of 3 pages: 3 (without text, as in a scan)"]
    (tmp_path / "junk.pdf").write_bytes(b"\r\n\r\n" + content)
    assert detect_media_type(tmp_path / "junk.pdf") == ("text", PDF)
    assert WORDS in load_text(tmp_path / "junk.pdf")[0]
    (tmp_path / "hurt.pdf").write_bytes(content.replace(b"8 0 obj\r\n<<", b"8 0 obj\r\n[["))
    left_out = documents.render_pages(tmp_path / "hurt.pdf", tmp_path / "pages.tif", 10_000_000)
    assert left_out == ["left out of 2 pages: 2 (damaged)"]
    with pytest.raises(InputError, match="more than 1,000 pixels"):
        documents.render_pages(tmp_path / "hurt.pdf", tmp_path / "pages.tif", 1_000)
    assert load_text(tmp_path / "hurt.pdf") == (WORDS, ["left out of 2 pages: 2 (damaged)"])


def test_damaged_parts_beside_the_text_are_left_out(tmp_path: Path) -> None:
    names = ["word/comments.xml", "word/numbering.xml", "word/styles.xml"]
    file = docx(tmp_path / "a.docx", WORDS)
    with zipfile.ZipFile(file, "a") as parts:
        for name, method in zip(
            names, (zipfile.ZIP_BZIP2, zipfile.ZIP_STORED, zipfile.ZIP_STORED), strict=True
        ):
            parts.writestr(name, f"<x>{name}</x>", method)
    file.write_bytes(file.read_bytes().replace(b"<x>word/styles", b"<x>word/stylez"))
    file.write_bytes(file.read_bytes().replace(b"<x>word/num", b"<x>word/nun"))
    notes = [f"{name} in the document is damaged, and was left out" for name in sorted(names)]
    assert (load_text(file)[0], sorted(load_text(file)[1])) == (WORDS, notes)
    coded = docx(tmp_path / "b.docx", WORDS)
    with zipfile.ZipFile(coded, "a") as parts:
        for name, encoding in zip(names, ("utf-7", "foo-bar", "idna"), strict=True):
            parts.writestr(name, f'<?xml version="1.0" encoding="{encoding}"?><x/>')
    assert (load_text(coded)[0], sorted(load_text(coded)[1])) == (WORDS, notes)


def test_huge_lists_and_fields_of_a_document_are_read_at_once(tmp_path: Path) -> None:
    begin = '<fldChar fldCharType="begin"/><instrText>IF </instrText>' * 20_000
    listed = '<p><pPr><numPr><ilvl val="0"/><numId val="1"/></numPr></pPr></p>' * 10_000
    levels = "".join(f'<lvl ilvl="{at}"><lvlText val="%1."/></lvl>' for at in range(20_000))
    lists = f'<abstractNum abstractNumId="1">{levels}</abstractNum>'
    lists += '<num numId="1"><abstractNumId val="1"/></num>'
    members = {
        "word/document.xml": f'<d xmlns="{WORD}"><p>{begin}<t>End</t></p>{listed}</d>',
        "word/numbering.xml": f'<d xmlns="{WORD}">{lists}</d>',
    }
    lines = load_text(archive(tmp_path / "a.docx", members))[0].splitlines()
    assert (lines[0], len(lines), lines[-1]) == ("End", 10_001, "10000.")
    nested = "<tbl><tr><tc>{}</tc></tr></tbl>"
    deep = nested.split("{}")[0] * 2_000 + nested.split("{}")[1] * 2_000
    members["word/document.xml"] = f'<d xmlns="{WORD}">{deep}</d>'
    with pytest.raises(InputError, match="cannot be read as a Word document"):
        load_text(archive(tmp_path / "b.docx", members))


@pytest.mark.parametrize(
    ("body", "end"),
    [
        (f'<p><r><sym char="F062" font="{"a" * 200_000}"/><t>.</t></r></p>', "�."),
        ("<p><r><rPr>" + '<rFonts ascii="A"/>' * 40 + "</rPr><t>" + "\uf062" * 300_000 + "</t></r></p>", "β"),
        (f"<p>{'<r>' * 300}<t>{'7 ' * 500_000}.</t>{'</r>' * 300}</p>", "7 ."),
        (
            "<tbl><tr><tc>" * 100 + "<p><t>" + "7\n" * 1_500_000 + "</t></p>" + "</tc><tc/></tr></tbl>" * 100,
            "7",
        ),
        ("<p/>" * 300_000 + "<p><r><t>End</t></r></p>", "End"),
    ],
    ids=["font", "fonts", "runs", "tables", "paragraphs"],
)
def test_nested_and_repeated_parts_of_a_document_are_read_at_once(
    body: str, end: str, tmp_path: Path
) -> None:
    members = {"word/document.xml": f'<d xmlns="{WORD}">{body}</d>'}
    file, started = archive(tmp_path / "a.docx", members), time.process_time()
    assert load_text(file)[0].endswith(end)
    assert time.process_time() - started < 4


def test_links_of_a_slide_take_little_memory(tmp_path: Path) -> None:
    words = '<x xmlns="http://schemas.openxmlformats.org/x"><p><r><t>{}</t></r></p></x>'
    members = {"ppt/presentation.xml": "<x/>", "ppt/slides/slide1.xml": words.format("One")}
    links = 'charts/chart1.xml"' * 100_000
    members |= {"ppt/slides/_rels/slide1.xml.rels": links, "ppt/charts/chart1.xml": words.format("Two")}
    file = archive(tmp_path / "a.pptx", members)
    load_text(file)  # it imports
    tracemalloc.start()
    try:
        assert load_text(file)[0] == "One\nTwo"
        assert tracemalloc.get_traced_memory()[1] < 6 * len(links)
    finally:
        tracemalloc.stop()


def test_tags_that_never_end_are_left_out_at_once(tmp_path: Path) -> None:
    endless = page(tmp_path / "a.html", f"<html><p>{WORDS}</p> More." + "<a " * 100_000)
    assert load_text(endless) == (f"{WORDS}\nMore.", [])


def scan(path: Path, *pages: str) -> Path:
    """A PDF file with these pages, and one that is a picture."""
    from pypdfium2 import PdfBitmap, PdfDocument, PdfImage, PdfMatrix

    document = PdfDocument(write_pdf(path, *pages)) if pages else PdfDocument.new()
    page = document.new_page(100, 100)
    picture = PdfImage.new(document)
    picture.set_bitmap(PdfBitmap.from_pil(Image.new("RGB", (8, 8), "red")))
    picture.set_matrix(PdfMatrix().scale(50, 50))
    page.insert_obj(picture)
    page.gen_content()
    document.save(path)
    return path


@pytest.mark.parametrize(
    ("traits", "text", "spoken", "note"),
    [
        (("ocr",), WORDS, f"{WORDS}\nas read", "scanned pages were read: 2"),
        (("ocr",), "", "as read", "scanned pages were read: 1"),
        (("caption",), WORDS, WORDS, "left out of 2 pages: 2 (without text, as in a scan)"),
    ],
)
def test_scanned_pages_are_read_where_something_reads_them(
    traits: tuple[str, ...],
    text: str,
    spoken: str,
    note: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    scan(Path("scan.pdf"), *filter(None, [text]))
    reader = fake_candidate("image-to-text").model_copy(update={"traits": traits})
    source = FakeSource([reader, fake_candidate("text-to-speech")])
    backend = FakeBackend({**EXPERTS, "image-to-text": {"generated_text": "as read"}})
    plan = json.dumps([{**PLAN[1], "id": 0, "dep": [-1], "args": {"text": "scan.pdf"}}])
    llm = ScriptedLLM({"plan": plan, "select": first_candidate, "respond": "Done."})
    with JarvisAgent(model=llm, sources=[source], backends=[backend]) as agent:
        (result,) = agent.invoke("Read scan.pdf aloud").results
    assert (result.status, result.notes) == ("ok", [note])
    assert backend.calls[-1].inputs["text"] == spoken
    assert not list(tmp_path.rglob("page-*.tiff"))


def test_nested_html_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MARKUP", 300_000)
    content = "<div>" * 40_000 + WORDS
    file = page(tmp_path / "a.html", content)
    load_text(page(tmp_path / "b.html", WORDS))  # it imports
    tracemalloc.start()
    try:
        assert load_text(file) == load_text(tmp_path / "b.html")
        assert tracemalloc.get_traced_memory()[1] < 20 * len(content)
    finally:
        tracemalloc.stop()
