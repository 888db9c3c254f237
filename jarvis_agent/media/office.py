"""The text of Office Open XML and OpenDocument: Word, PowerPoint and their like."""

import posixpath
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from jarvis_agent.core.notes import Note
from jarvis_agent.media.archives import Archive, unpacked

_ORDER = "header|document|footnotes|endnotes|footer"
_PART = re.compile(rf"word/({_ORDER})([0-9]*)\.xml|ppt/slides/slide([0-9]+)\.xml|content\.xml")
_LINK = re.compile(rb'((?:charts/chart|diagrams/data|notesSlides/notesSlide)[0-9]+\.xml)"')
"""The parts of Office files that hold text, and their charts, drawn lists and notes of the speaker."""
_REMARKS = re.compile(r"word/comments\.xml|ppt/comments/.+\.xml")
_REMARK = re.compile(rb"<(?:w:comment|p:cm|p188:cm|office:annotation)\b(?!-)")
_OBJECT = re.compile(rb"<(?:m:oMath|[op]:OLEObject|p:oleObj|draw:object(?:-ole)?)[ >]")
_LEFT_OUT = (
    "formulas and embedded objects, which are incomplete or left out: {number}",
    "comments on the text, which are left out: {number}",
)

_OFFICE_NAMES = ("{http://schemas.", "{http://purl.oclc.org/ooxml", "{urn:schemas-microsoft-com")
"""Namespaces of Office Open XML, which has text in "t" and "v" alone."""

_HIDDEN = {"moveFrom", "Fallback", "tracked-changes", "annotation", "note-citation"}
_HIDDEN |= {"rt", "meta", "settings", "automatic-styles", "styles", "master-styles", "binary-data"}
_GAPS = {"s": " ", "tab": " ", "ptab": " ", "br": "\n", "cr": "\n", "line-break": "\n", "noBreakHyphen": "-"}


def read_office(path: Path, notes: list[str]) -> Iterator[str]:
    """The text of Office Open XML and OpenDocument; slides and parts of pages in their order."""
    with Archive(path) as file, zipfile.ZipFile(file) as archive:
        members = {*archive.namelist()}
        parts = [*filter(None, map(_PART.fullmatch, members))]
        parts.sort(key=lambda part: (_ORDER.find(part[1] or ""), int(part[2] or part[3] or 0)))
        lists = ["{}/_rels/{}.rels".format(*posixpath.split(part[0])) for part in parts]
        listed, names = dict(unpacked(path, archive, members.intersection(lists))), list[str]()
        for part, links in zip(parts, lists, strict=True):
            root, linked = part[0].partition("/")[0], _LINK.findall(listed.get(links, b""))
            names += [part[0], *(f"{root}/{link.decode()}" for link in linked)]
        names += filter(_REMARKS.fullmatch, members)
        counts = Counter[str]()
        for name, content in unpacked(path, archive, filter(members.__contains__, names)):
            counts[_LEFT_OUT[0]] += len(_OBJECT.findall(content))
            counts[_LEFT_OUT[1]] += len(_REMARK.findall(content))
            try:
                if not _REMARKS.fullmatch(name):
                    yield text_of_xml(content)
            except ElementTree.ParseError:
                if _PART.fullmatch(name):
                    raise
                notes.append(Note("{name} in the document is damaged, and was left out", name=name))
        notes += [Note(form, number=number) for form, number in counts.items() if number]


def text_of_xml(content: bytes) -> str:
    """The visible text, with a line for each paragraph. Raises xml.etree.ElementTree.ParseError."""
    pieces: list[str] = []
    # Expat limits how far entities expand, and reads no external ones.
    _collect(ElementTree.fromstring(content), pieces)  # noqa: S314
    return "".join(pieces)


def _collect(element: ElementTree.Element, pieces: list[str]) -> None:
    for child in element:
        space, _, name = child.tag.rpartition("}")
        is_mixed = not space.startswith(_OFFICE_NAMES)
        if name not in _HIDDEN and child.get("type") != "slidenum":
            pieces.append(_GAPS.get(name) or ((is_mixed or name in ("t", "v")) and child.text) or "")
            _collect(child, pieces)
            pieces.append("\n" if name in ("p", "h", "v") else "")
        pieces.append((is_mixed and child.tail) or "")
