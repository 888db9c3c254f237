"""The text of Office Open XML and OpenDocument: Word, PowerPoint and their like."""

import posixpath
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from jarvis_agent.core.concurrency import check_cancelled
from jarvis_agent.core.notes import Note
from jarvis_agent.media.archives import Archive, unpacked
from jarvis_agent.media.symbols import PRIVATE, symbol

_ORDER = "header|document|footnotes|endnotes|footer"
_PART = re.compile(rf"word/({_ORDER})([0-9]*)\.xml|ppt/slides/slide([0-9]+)\.xml|content\.xml")
_LINK = re.compile(rb'((?:charts/chart|diagrams/data|notesSlides/notesSlide)[0-9]+\.xml)"')
"""The parts of Office files that hold text, and their charts, drawn lists and notes of the speaker."""
_RULES = ("word/styles.xml", "word/numbering.xml")
_COMMENTS = re.compile(r"word/comments\.xml|ppt/comments/.+\.xml")
_COMMENT = re.compile(rb"<(?:w:comment|p:cm|p188:cm|office:annotation)\b(?!-)")

_OFFICE_NAMES = ("{http://schemas.", "{http://purl.oclc.org/ooxml")
"""Namespaces of Office Open XML, which has text in "t" and "v" alone."""

_HIDDEN = {"moveFrom", "Fallback", "tracked-changes", "annotation", "note-citation", "desc", "rt", "meta"}
_HIDDEN |= {"settings", "automatic-styles", "styles", "master-styles", "binary-data"}
_HIDDEN |= {"index-title-template", "index-entry-span"}  # how to write a table of contents
_GAPS = {"s": " ", "tab": " ", "ptab": " ", "br": "\n", "cr": "\n", "line-break": "\n", "noBreakHyphen": "-"}
_APART = {"txbxContent", "note", "text-box", "custom-shape"}
"""What may stand within a paragraph, and is read after it."""
_BOX = re.compile("\x01([^\x01\x02]*)\x02")
_CELL_END = "\x03"
"""Marks in a text while it is read; XML has no such characters."""
_OBJECTS = {"OLEObject", "oleObj", "object-ole"}
_PAGE = re.compile(r"[\s=]*(?:PAGE|NUMPAGES|SECTIONPAGES)\b", re.IGNORECASE)
_CELLS = {"tc", "table-cell", "covered-table-cell"}
_FORMULAS = re.compile("f|nary|d|rad|func|acc|bar|mr?|eqArr|s(?:Sub|Sup|SubSup|Pre)|lim(?:Low|Upp)")
_SIGNS = {"den": "/", "sub": "_", "sup": "^", "lim": "_", "limUpp/lim": "^"}
_SIGNS |= dict.fromkeys(("nary/e", "func/e", "sPre/e"), " ")
"""What stands before a part of a formula."""
_RAISED = str.maketrans("0123456789n+-−–", "⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ⁺⁻⁻⁻")
_LOWERED = str.maketrans("0123456789n+-−–", "₀₁₂₃₄₅₆₇₈₉ₙ₊₋₋₋")

_LIST = ("pPr/numPr/numId", "pPr/numPr/ilvl")
_MAX_LABEL = 60  # characters
_CIRCLED = "".join(map(chr, (*range(0x2460, 0x2474), *range(0x3251, 0x3260), *range(0x32B1, 0x32C0))))
_ROMAN = ["", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"]  # with other letters also tens and more


def read_office(path: Path, notes: list[str]) -> Iterator[str]:
    """The text of Office Open XML and OpenDocument; slides and parts of pages in their order."""
    with Archive(path) as file, zipfile.ZipFile(file) as archive:
        members = {*archive.namelist()}
        parts = [*filter(None, map(_PART.fullmatch, members))]
        parts.sort(key=lambda part: (_ORDER.find(part[1] or ""), _integer(part[2] or part[3] or "")))
        lists = ["{}/_rels/{}.rels".format(*posixpath.split(part[0])) for part in parts]
        names, linked = [*_RULES], dict[str, dict[str, None]]()
        for name, content in unpacked(path, archive, members.intersection(lists)):
            targets = (f"{name.partition('/')[0]}/{link[1].decode()}" for link in _LINK.finditer(content))
            linked[name] = dict.fromkeys(filter(members.__contains__, targets))
        for part, links in zip(parts, lists, strict=True):
            names += [part[0], *linked.get(links, ())]
        names += filter(_COMMENTS.fullmatch, members)
        reader, present = _Reader(), filter(members.__contains__, names)
        for name, content in unpacked(path, archive, present, _PART.fullmatch):
            try:
                yield reader.text_of(content, name)
            except (ElementTree.ParseError, LookupError, ValueError, RecursionError):
                if _PART.fullmatch(name):
                    raise
                notes.append(Note("{name} in the document is damaged, and was left out", name=name))
        notes += reader.notes()


def read_flat(content: bytes, notes: list[str]) -> str:
    """The text of a flat OpenDocument file. Raises xml.etree.ElementTree.ParseError."""
    reader = _Reader()
    text = reader.text_of(content)
    notes += reader.notes()
    return text


class _Reader:
    """The visible text of the parts of a document, with a line for each paragraph."""

    def __init__(self) -> None:
        self._objects = self._comments = 0
        self._numbering, self._is_mixed = _Numbering(), False
        self._bullets = dict[int, tuple[dict[str, str], int]]()

    def text_of(self, content: bytes, name: str = "") -> str:
        """The text of a part; one with styles or rules of lists has none, and serves those after it."""
        # Expat limits how far entities expand, and reads no external ones.
        root = ElementTree.fromstring(content)  # noqa: S314
        self._is_mixed = not root.tag.startswith(_OFFICE_NAMES)
        self._comments += sum(1 for _ in _COMMENT.finditer(content))
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
            if stated := element.items():  # what has none takes less memory
                element.attrib = {key.rpartition("}")[2]: value for key, value in stated}
        _mark_page_numbers(root)
        if name in _RULES:
            self._numbering.learn(root)
        is_text = name not in _RULES and not _COMMENTS.fullmatch(name)
        return re.sub("[\x01-\x05]", "", self._read(root)) if is_text else ""

    def notes(self) -> list[str]:
        """What the parts have beside their text."""
        counts = {
            "embedded objects, such as formulas of old versions, which are left out: {number}": self._objects,
            "comments on the text, which are left out: {number}": self._comments,
        }
        return [Note(form, number=number) for form, number in counts.items() if number]

    def _read(self, element: Element) -> str:
        check_cancelled()
        pieces, is_open = list[str](), False
        for child in element:
            name = child.tag
            is_hidden = name in _HIDDEN or name.endswith("Pr") or child.get("type") == "slidenum"
            if not is_hidden and (text := self._read_child(child)):
                pieces += [" "] * (is_open and text[0].isalnum()) + [text]
                is_open = text[-1].isalnum() and bool(_FORMULAS.fullmatch(name))
            pieces += [child.tail or ""] * self._is_mixed
        return "".join(pieces)

    def _read_child(self, child: Element) -> str:
        name, own = child.tag, ((self._is_mixed or child.tag in ("t", "v")) and child.text) or ""
        self._objects += name in _OBJECTS or (name == "object" and self._is_mixed)
        if name in ("tr", "table-row"):
            return self._read_row(child)
        if _FORMULAS.fullmatch(name) and (name != "m" or child.find("mr") is not None):
            return self._read_formula(child)
        if name == "sym" and "char" in child.attrib:
            return _sign(child.attrib["char"], child.get("font", ""))
        if name in ("p", "h"):
            return self._read_paragraph(child, own)
        if name == "txBody":
            self._bullets.clear()
        elif self._is_mixed and (child.get("label") or child.get("current-value")):  # of a form
            values = child.get("label"), child.get("current-value") if child.find("p") is None else None
            own = "\n".join([*filter(None, values), own])
        text = _GAPS.get(name) or own + self._read(child)
        # The text of runs within a run is not searched again.
        if name == "r" and len([*islice(child.iter("r"), 2)]) == 1:
            return _of_run(child, text)
        if name in _APART:
            return f"\x01{text}\x02"
        if name in _CELLS:
            return text + _CELL_END * min(_integer(_value(child, "tcPr/gridSpan")) or 1, 63)  # of Word
        return text + "\n" * (name == "v")

    def _read_paragraph(self, paragraph: Element, own: str) -> str:
        label = "" if paragraph.find("pPr") is None else self._numbering.label(paragraph)
        text = own + self._read(paragraph)
        boxes, text = _BOX.findall(text), _BOX.sub("", text)
        if "\x04" in text and not re.search(r"[^\W_]", re.sub("\x04[^\x05]*\x05", "", text)):
            text = ""
        return (label or (self._bullet(paragraph) if text.strip() else "")) + text + "\n" + "".join(boxes)

    def _bullet(self, paragraph: Element) -> str:
        """The number of a paragraph on a slide."""
        rule, level = paragraph.find("pPr/buAutoNum"), min(_integer(_value(paragraph, "pPr", "lvl")), 8)
        self._bullets = {at: state for at, state in self._bullets.items() if at < level + (rule is not None)}
        if rule is None:
            return ""
        last, count = self._bullets.get(level, ({}, 0))
        count = count + 1 if last == rule.attrib else _integer(rule.get("startAt", ""), 1)
        self._bullets[level] = rule.attrib, count
        kind = rule.get("type", "")
        mark = ")" if "Paren" in kind else "." * ("Period" in kind)
        return f"{'(' * ('Both' in kind)}{_number(count, kind)}{mark} "

    def _read_row(self, row: Element) -> str:
        *cells, after = self._read(row).split(_CELL_END)
        # The lines of code, of long texts and of a table within a cell are kept.
        is_huge = any(len(cell) > 1_000 and "\n" in cell.strip() for cell in cells)
        lines = [[*filter(str.strip, cell.splitlines())] for cell in cells if not is_huge]
        is_long = any(len(cell) > 1 and re.search(r".{101}| \| ", " ".join(cell)) for cell in lines)
        is_row = any(cells[1:]) and any(lines) and not is_long
        # Merged cells would end a row of a form in many bars.
        last = max((at for at, line in enumerate(lines, 1) if line), default=0)
        return " | ".join(map(" ".join, lines[:last])) + "\n" if is_row else "".join([*cells, after])

    def _read_formula(self, formula: Element) -> str:
        name, settings = formula.tag, formula.find(f"{formula.tag}Pr")
        chosen = {} if settings is None else {each.tag: each.get("val", "")[:9] for each in settings}
        signs = _SIGNS | {"den": "¦"} if chosen.get("type") == "noBar" else _SIGNS
        read = self._read_formula if name == "m" else self._read
        parts = [(part.tag, read(part).strip()) for part in formula if part is not settings]
        if name in ("d", "m", "mr", "eqArr"):
            between = {"d": chosen.get("sepChr", "|"), "mr": ", "}.get(name, "; ")
            text = between.join(text for _, text in parts)
            return f"{chosen.get('begChr', '(')}{text}{chosen.get('endChr', ')')}" if name == "d" else text
        mark = chosen.get("chr", {"nary": "∫", "rad": "√", "acc": "\u0302"}.get(name, ""))
        pieces = [mark] * (name in ("nary", "rad"))
        for part, text in parts:
            is_apart = part not in ("e", "fName") or name == "rad"
            shown = f"({text})" if is_apart and len(text) > 1 and not text.isdecimal() else text
            sign = signs.get(f"{name}/{part}", signs.get(part, ""))
            pieces += [f"[{text}]" if part == "deg" else sign + shown] * bool(text)
        return "".join(pieces) + mark * (name == "acc")


def _of_run(run: Element, text: str) -> str:
    """The text of a run with the symbols of its font, and its numbers raised or lowered."""
    if PRIVATE.search(text):
        # The font for symbols is the last one of a run.
        fonts = [font for part in run.iterfind("rPr//") for font in part.attrib.values()][:-40:-1]
        signs = filter(PRIVATE.match, {*text})
        text = text.translate({ord(sign): symbol(sign, [*fonts, "Symbol"]) for sign in signs})
    if not re.fullmatch(r"[-+−–\s0-9n]+", text):
        return text
    shift = _value(run, "rPr/vertAlign") or _value(run, "rPr[@baseline]", "baseline").strip("0%")
    if shift.startswith(("sub", "-")):
        return text.translate(_LOWERED)
    return text if shift in ("", "baseline") else text.translate(_RAISED)


def _mark_page_numbers(root: Element) -> None:
    """Mark what fields show of the numbers of pages; a paragraph with nothing else is left out."""
    fields = ["text"]  # the instructions of open fields
    for element in root.iter():
        if element.tag == "p":
            fields = ["text"]
        elif element.get("fldCharType") == "begin":
            fields.append("")
        elif element.get("fldCharType") == "end":
            fields[-2:] = ["".join(fields[-2:])[:40]]
        elif element.tag == "instrText":  # one of several parts
            fields[-1], element.tag, element.text = (fields[-1] + (element.text or ""))[:40], "t", ""
        if element.tag in ("t", "fldSimple") and _PAGE.match(element.get("instr", fields[-1])):
            for text in islice(element.iter("t"), 9):
                text.text = f"\x04{text.text or ''}\x05"


def _sign(code: str, font: str) -> str:
    """What a hexadecimal code shows in a font; those of fonts of symbols may be meant from U+F000 on."""
    number = int(code, 16) if re.fullmatch("[0-9A-Fa-f]{1,4}", code) else 0
    shown = symbol(chr(number if number > 0xFF else 0xF000 + number), [font])
    return shown if shown.isprintable() else "�"


class _Numbering:
    """The labels of the paragraphs that Word numbers by rules."""

    def __init__(self) -> None:
        self._styles = dict[tuple[str, str], list[str]]()
        # Of numbers to lists, and of lists to those of styles.
        self._links = defaultdict[tuple[str, str], str](str)
        self._levels = defaultdict[tuple[str, str], dict[int, dict[str, str]]](dict)
        self._counts, self._begun = defaultdict[str, dict[int, int]](dict), set[tuple[str, int]]()

    def learn(self, root: Element) -> None:
        """Take styles or rules of lists from a part."""
        for element in root:
            names = [element.get(key) for key in ("styleId", "numId", "abstractNumId")]
            key, levels = (element.tag, next(filter(None, names), "")), dict[int, dict[str, str]]()
            for level in element.iterfind(".//*[@ilvl]"):
                stated = levels.setdefault(min(_integer(level.get("ilvl", ""), 9), 9), {})
                stated |= {each.tag: each.get("val", "") for each in level}
            self._styles[key] = [_value(element, path) for path in (*_LIST, "basedOn")]
            self._links[key] = _value(element, "abstractNumId") or _value(element, "numStyleLink")
            self._levels[key] = self._levels["link", _value(element, "styleLink") or "-"] = levels

    def label(self, paragraph: Element) -> str:
        """The label of the next paragraph, with a blank; "" if it has none."""
        own_number, at, style = (_value(paragraph, path) for path in (*_LIST, "pPr/pStyle"))
        number, places = own_number, [("", at)]
        for _ in range(20):
            if ("style", style) not in self._styles:
                break
            base_number, at, base = self._styles["style", style]
            places.append((style, at))
            number, style = number or base_number, base
        name, own = self._links["num", number], self._levels["num", number]
        rules = self._levels["link", self._links["abstractNum", name]] or self._levels["abstractNum", name]

        def level_at(depth: int) -> dict[str, str]:
            return own[depth] if "lvl" in own.get(depth, {}) else rules.get(depth, {})

        # The levels of a list state their styles; what a style states of its level counts less.
        styles = {} if own_number else {level_at(each).get("pStyle"): str(each) for each in rules | own}
        depth = _integer(next(filter(None, (styles.get(style) or at for style, at in places)), ""))
        if depth > 8 or not (level := level_at(depth)):
            return ""
        counts, begun = self._counts[name], (number, depth) in self._begun
        self._begun.add((number, depth))
        start = own.get(depth, {}).get("startOverride", "")
        is_first = depth not in counts or (start and not begun)
        counts[depth] = _integer(start or level.get("start", ""), 1) if is_first else counts[depth] + 1
        for each in [*counts]:
            if depth < each and depth < _integer(level_at(each).get("lvlRestart", ""), each):
                del counts[each]

        def numbered(match: re.Match[str]) -> str:
            above = level_at(each := int(match[1]) - 1)
            form = "" if "isLgl" in level else above.get("numFmt", "")
            return _number(counts.get(each) or _integer(above.get("start", ""), 1), form)

        text = level.get("lvlText", "").strip()[:_MAX_LABEL]
        if level.get("numFmt") == "bullet" or len(text) < 2:  # "o", whatever is counted
            return ""
        return re.sub("%([1-9])", numbered, text)[:_MAX_LABEL] + " " * (level.get("suff") != "nothing")


def _integer(text: str, default: int = 0) -> int:
    """A number of at most six digits; the default in place of anything else."""
    return int(text) if re.fullmatch("[0-9]{1,6}", text) else default


def _value(element: Element, path: str, name: str = "val") -> str:
    """An attribute of what is at a path in an element, or ""."""
    found = element.find(path)
    return "" if found is None else found.get(name, "")


def _number(value: int, form: str) -> str:
    """A number as Word or PowerPoint writes it in a format; in an unknown one it has decimal digits."""
    text = "" if form == "none" else f"{value:02}" if form == "decimalZero" else str(value)
    if not 0 < value < 4000:
        return text
    if "ircle" in form or form == "ideographTraditional":
        return (_CIRCLED if "ircle" in form else "甲乙丙丁戊己庚辛壬癸")[value - 1 : value] or text
    if re.search("etter|alpha", form):
        text = chr(97 + (value - 1) % 26) * -(-value // 26)
    elif "oman" in form:
        signs = zip(f"{value:04}", ("m??", "cdm", "xlc", "ivx"), strict=True)
        text = "".join(_ROMAN[int(digit)].translate(str.maketrans("ivx", to)) for digit, to in signs)
    elif "Digital" in form and "korean" not in form:
        text = text.translate(str.maketrans("0123456789", "〇一二三四五六七八九"))
    elif re.search("chinese|taiwanese|japanese|ea1", form):
        units = zip(f"{value:04}", ("千", "百", "十", ""), strict=True)
        text = "".join("零一二三四五六七八九"[int(digit)] + unit * (digit != "0") for digit, unit in units)
        text = re.sub("^一十", "十", re.sub("零+", "零", text).strip("零"))
    return text.upper() if re.search("upper|Uc", form) else text
