"""The text of Office Open XML and OpenDocument: Word, PowerPoint and their like."""

import posixpath
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from jarvis_agent.core.notes import Note
from jarvis_agent.media.archives import Archive, unpacked
from jarvis_agent.media.symbols import PRIVATE, symbol

_ORDER = "header|document|footnotes|endnotes|footer"
_PART = re.compile(rf"word/({_ORDER})([0-9]*)\.xml|ppt/slides/slide([0-9]+)\.xml|content\.xml")
_LINK = re.compile(rb'((?:charts/chart|diagrams/data|notesSlides/notesSlide)[0-9]+\.xml)"')
"""The parts of Office files that hold text, and their charts, drawn lists and notes of the speaker."""
_RULES = ("word/styles.xml", "word/numbering.xml")
_REMARKS = re.compile(r"word/comments\.xml|ppt/comments/.+\.xml")
_REMARK = re.compile(rb"<(?:w:comment|p:cm|p188:cm|office:annotation)\b(?!-)")
_LEFT_OUT = (
    "embedded objects, such as formulas of old versions, which are left out: {number}",
    "comments on the text, which are left out: {number}",
)

_OFFICE_NAMES = ("{http://schemas.", "{http://purl.oclc.org/ooxml", "{urn:schemas-microsoft-com")
"""Namespaces of Office Open XML, which has text in "t" and "v" alone."""

_HIDDEN = {"moveFrom", "Fallback", "tracked-changes", "annotation", "note-citation", "desc"}
_HIDDEN |= {"rt", "meta", "settings", "automatic-styles", "styles", "master-styles", "binary-data"}
_HIDDEN |= {"index-title-template", "index-entry-span"}  # how to write a table of contents
_GAPS = {"s": " ", "tab": " ", "ptab": " ", "br": "\n", "cr": "\n", "line-break": "\n", "noBreakHyphen": "-"}
_APART = {"txbxContent", "note", "text-box", "custom-shape"}
"""What may stand within a paragraph, and is read after it."""
_PAGE = re.compile(r"\s*(?:PAGE|NUMPAGES|SECTIONPAGES)\b")
_CELLS = {"tc", "table-cell", "covered-table-cell"}
_FORMULAS = re.compile("f|nary|d|rad|func|acc|bar|mr?|eqArr|s(?:Sub|Sup|SubSup|Pre)|lim(?:Low|Upp)")
_SIGNS = {"den": "/", "sub": "_", "sup": "^", "lim": "_", "limUpp/lim": "^"}
_SIGNS |= dict.fromkeys(("nary/e", "func/e", "sPre/e"), " ")
"""What stands before a part of a formula."""
_RAISED = str.maketrans("0123456789n+-−–", "⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ⁺⁻⁻⁻")
_LOWERED = str.maketrans("0123456789n+-−–", "₀₁₂₃₄₅₆₇₈₉ₙ₊₋₋₋")

_CIRCLED = "".join(map(chr, (*range(0x2460, 0x2474), *range(0x3251, 0x3260), *range(0x32B1, 0x32C0))))
_ROMAN = ["", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"]  # with other letters also tens and more


def read_office(path: Path, notes: list[str]) -> Iterator[str]:
    """The text of Office Open XML and OpenDocument; slides and parts of pages in their order."""
    with Archive(path) as file, zipfile.ZipFile(file) as archive:
        members = {*archive.namelist()}
        parts = [*filter(None, map(_PART.fullmatch, members))]
        parts.sort(key=lambda part: (_ORDER.find(part[1] or ""), int(part[2] or part[3] or 0)))
        lists = ["{}/_rels/{}.rels".format(*posixpath.split(part[0])) for part in parts]
        listed, names = dict(unpacked(path, archive, members.intersection(lists))), [*_RULES]
        for part, links in zip(parts, lists, strict=True):
            root, linked = part[0].partition("/")[0], _LINK.findall(listed.get(links, b""))
            names += [part[0], *(f"{root}/{link.decode()}" for link in linked)]
        names += filter(_REMARKS.fullmatch, members)
        reader, remarks = _Reader(), 0
        for name, content in unpacked(path, archive, filter(members.__contains__, names)):
            remarks += len(_REMARK.findall(content))
            try:
                if not _REMARKS.fullmatch(name):
                    yield reader.text_of(content, name)
            except ElementTree.ParseError:
                if _PART.fullmatch(name):
                    raise
                notes.append(Note("{name} in the document is damaged, and was left out", name=name))
        counts = zip(_LEFT_OUT, (reader.objects, remarks), strict=True)
        notes += [Note(form, number=number) for form, number in counts if number]


def text_of_xml(content: bytes) -> str:
    """The text of a flat OpenDocument file. Raises xml.etree.ElementTree.ParseError."""
    return _Reader().text_of(content)


class _Reader:
    """The visible text of the parts of a document, with a line for each paragraph."""

    def __init__(self) -> None:
        self.objects = 0
        self._numbering, self._is_mixed, self._cells = _Numbering(), False, list[str]()
        self._apart: list[str] | None = None
        self._fields = list[str]()
        self._bullets = dict[int, tuple[dict[str, str], int]]()

    def text_of(self, content: bytes, name: str = "") -> str:
        """The text of a part; one with styles or rules of lists has none, and serves those after it."""
        # Expat limits how far entities expand, and reads no external ones.
        root = ElementTree.fromstring(content)  # noqa: S314
        self._is_mixed = not root.tag.startswith(_OFFICE_NAMES)
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
            for key, value in element.items():
                element.set(key.rpartition("}")[2], value)
        return self._numbering.learn(root) if name in _RULES else self._read(root)

    def _read(self, element: Element) -> str:
        pieces, is_open = list[str](), False
        for child in element:
            is_seen = child.tag not in _HIDDEN and child.get("type") != "slidenum"
            if is_seen and (text := self._read_child(child)):
                pieces += [" "] * (is_open and text[0].isalnum()) + [text]
                is_open = text[-1].isalnum() and bool(_FORMULAS.fullmatch(child.tag))
            pieces.append((self._is_mixed and child.tail) or "")
        return "".join(pieces)

    def _read_child(self, child: Element) -> str:
        name, own = child.tag, ((self._is_mixed or child.tag in ("t", "v")) and child.text) or ""
        self.objects += name in ("OLEObject", "oleObj", "object-ole") or (name == "object" and self._is_mixed)
        if name in ("tr", "table-row"):
            return self._read_row(child)
        if _FORMULAS.fullmatch(name) and (name != "m" or child.find("mr") is not None):
            return self._read_formula(child)
        if name == "sym" and "char" in child.attrib:
            return symbol(chr(int(child.attrib["char"], 16) & 0xFF | 0xF000), [child.get("font", "")])
        if name in ("p", "h") or (name in _APART and self._apart is not None):
            return self._read_paragraph(child, own)
        if name == "txBody":
            self._bullets.clear()
        elif name == "fldChar" and child.get("fldCharType") == "begin":
            self._fields.append("")
        elif name == "fldChar" and child.get("fldCharType") == "end":
            del self._fields[-1:]
        elif name == "instrText" and self._fields:
            self._fields[-1] += child.text or ""
        elif name == "form":
            values = (each.get(key) for each in child.iter() for key in ("label", "current-value"))
            own = "\n".join([*filter(None, values), ""])
        is_page = any(map(_PAGE.match, [child.get("instr", ""), *self._fields]))
        text = _GAPS.get(name) or own + self._read(child) + "\0" * is_page
        if name == "r" and PRIVATE.search(text):
            # The font for symbols is the last one of a run.
            fonts = [font for part in child.iterfind("rPr//") for font in part.attrib.values()][::-1]
            text = PRIVATE.sub(lambda match: symbol(match[0], [*fonts, "Symbol"]), text)
        if name == "r" and re.fullmatch(r"[-+−–\s0-9n]+", text):
            shift = _value(child, "rPr/vertAlign") or _value(child, "rPr", "baseline").strip("0%")
            is_plain = shift in ("", "baseline")
            text = text.translate({} if is_plain else _LOWERED if shift.startswith(("sub", "-")) else _RAISED)
        self._cells += [text] * (name in _CELLS)
        return text + ("\n" if name == "v" else "")

    def _read_paragraph(self, element: Element, own: str) -> str:
        outside, self._apart = self._apart, [] if element.tag in ("p", "h") else None
        self._fields.clear()
        label = self._numbering.label(element) if element.tag == "p" else ""
        text = own + self._read(element)
        inside, self._apart = self._apart or [], outside
        if "\0" in text:  # it has the number of a page, and may have nothing else
            text = text.replace("\0", "") if re.search(r"[^\W\d_]", text) else ""
        if element.tag not in ("p", "h") and outside is not None:
            outside.append(text)
            return ""
        return (label or (self._bullet(element) if text.strip() else "")) + text + "\n" + "".join(inside)

    def _bullet(self, paragraph: Element) -> str:
        """The number of a paragraph on a slide."""
        rule, level = paragraph.find("pPr/buAutoNum"), int(_value(paragraph, "pPr", "lvl") or 0)
        self._bullets = {at: state for at, state in self._bullets.items() if at < level + (rule is not None)}
        if rule is None:
            return ""
        last, count = self._bullets.get(level, ({}, 0))
        count = count + 1 if last == rule.attrib else int(rule.get("startAt", 1))
        self._bullets[level] = rule.attrib, count
        kind = rule.get("type", "")
        mark = ")" if "Paren" in kind else "." * ("Period" in kind)
        return f"{'(' * ('Both' in kind)}{_number(count, kind)}{mark} "

    def _read_row(self, row: Element) -> str:
        outside, self._cells = self._cells, []
        text = self._read(row)
        cells, self._cells = self._cells, outside
        lines = [[*filter(str.strip, cell.splitlines())] for cell in cells]
        # The lines of code, of long texts and of a table within a cell are kept.
        is_long = any(len(cell) > 1 and re.search(r".{101}| \| ", " ".join(cell)) for cell in lines)
        is_row = len(cells) > 1 and any(lines) and not is_long
        return " | ".join(map(" ".join, lines)) + "\n" if is_row else text

    def _read_formula(self, formula: Element) -> str:
        name, settings = formula.tag, formula.find(f"{formula.tag}Pr")
        chosen = {} if settings is None else {each.tag: each.get("val", "") for each in settings}
        signs = _SIGNS | {"den": "¦"} if chosen.get("type") == "noBar" else _SIGNS
        inner = [part for part in formula if part is not settings]
        read = self._read_formula if name == "m" else self._read
        parts = [(part.tag, read(part).strip()) for part in inner]
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


class _Numbering:
    """The labels of the paragraphs that Word numbers by rules."""

    def __init__(self) -> None:
        self._parts = dict[tuple[str, str], Element]()
        self._counts, self._begun = defaultdict[str, dict[str, int]](dict), set[tuple[str, str]]()

    def learn(self, root: Element) -> str:
        """Take styles or rules from a part, which has no text."""
        for element in root:
            names = [element.get(key) for key in ("styleId", "numId", "abstractNumId")]
            self._parts[element.tag, next(filter(None, names), "")] = element
            self._parts["link", _value(element, "styleLink")] = element
        return ""

    def label(self, paragraph: Element) -> str:
        """The label of the next paragraph, with a blank; "" if it has none."""
        holder, style = paragraph, _value(paragraph, "pPr/pStyle")
        for _ in range(20):
            number = _value(holder, "pPr/numPr/numId")
            if number or ("style", style) not in self._parts:
                break
            holder = self._parts["style", style]
            style = _value(holder, "basedOn")
        chosen = self._parts.get(("num", number))
        rules = self._parts.get(("abstractNum", name := _value(chosen, "abstractNumId")))
        rules = self._parts.get(("link", _value(rules, "numStyleLink") or "-"), rules)
        stated = [] if chosen is None or rules is None else [*rules.iter("lvl"), *chosen.iter("lvl")]
        levels = {level.get("ilvl"): level for level in stated}
        depth = _value(holder, "pPr/numPr/ilvl") or "0"
        if (level := levels.get(depth)) is None:
            return ""
        counts, begun = self._counts[name], (number, depth) in self._begun
        self._begun.add((number, depth))
        start = _value(chosen, f"lvlOverride[@ilvl='{depth}']/startOverride")
        is_first = depth not in counts or (start and not begun)
        counts[depth] = int(start or _value(level, "start") or 1) if is_first else counts[depth] + 1
        self._counts[name] = counts = {at: count for at, count in counts.items() if at <= depth}

        def numbered(match: re.Match[str]) -> str:
            above = levels.get(at := str(int(match[1]) - 1))
            form = "" if level.find("isLgl") is not None else _value(above, "numFmt")
            return _number(counts.get(at) or int(_value(above, "start") or 1), form)

        text = _value(level, "lvlText").strip()
        if _value(level, "numFmt") == "bullet" or len(text) < 2:  # "o", whatever is counted
            return ""
        return re.sub("%([1-9])", numbered, text) + " " * (_value(level, "suff") != "nothing")


def _value(element: Element | None, path: str, name: str = "val") -> str:
    """An attribute of what is at a path in an element, or ""."""
    found = None if element is None else element.find(path)
    return "" if found is None else found.get(name, "")


def _number(value: int, form: str) -> str:
    """A number as Word or PowerPoint writes it in a format; in an unknown one it has decimal digits."""
    text = str(value) if form != "none" else ""
    if not text or not 0 < value < 4000:
        return text
    if "ircle" in form or form == "ideographTraditional":
        return (_CIRCLED if "ircle" in form else "甲乙丙丁戊己庚辛壬癸")[value - 1 : value] or text
    if re.search("etter|alpha", form):
        text = chr(97 + (value - 1) % 26) * -(-value // 26)
    elif "oman" in form:
        signs = zip(f"{value:04}", ("m??", "cdm", "xlc", "ivx"), strict=True)
        text = "".join(_ROMAN[int(digit)].translate(str.maketrans("ivx", to)) for digit, to in signs)
    elif re.search("chinese|taiwanese|japanese|ideographD|ea1", form):
        units = zip(f"{value:04}", ("千", "百", "十", ""), strict=True)
        text = "".join("零一二三四五六七八九"[int(digit)] + unit * (digit != "0") for digit, unit in units)
        text = re.sub("^一十", "十", re.sub("零+", "零", text).strip("零"))
    return text.upper() if re.search("upper|Uc", form) else text
