"""Files and quoted texts of a request, each put as one character, so that splitting can not cut through them.

marked = mark('Translate "Hi. How are you?" and describe cat.jpg', files)
marked.text         # 'Translate \\ue000 and describe \\ue001'
marked.marks        # {'\\ue000': Mark("text", "Hi. How are you?"), '\\ue001': Mark("image", "cat.jpg")}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

from jarvis_agent.tools.spec import MEDIA, Modality
from jarvis_agent.types import Resource

FIRST_MARK, LAST_MARK = "\ue000", "\uf8ff"
MARK = f"[{FIRST_MARK}-{LAST_MARK}]"
"""Pattern of a mark: a character of Unicode's private use area."""

_QUOTES = re.compile(
    r"\"(?P<a>[^\"]+)\"|“(?P<b>[^”]+)”|「(?P<c>[^」]+)」|『(?P<d>[^』]+)』|«(?P<e>[^»]+)»|`(?P<f>[^`\n]+)`"
    r"|‘(?P<g>[^\n]+?)’(?!\w)|(?<!\w)'(?P<h>[^\n]+?)'(?!\w)"
)
_FIELD = re.compile(
    r"(?P<label>\b(?:questions?|query|context|labels?|categories|classes|things|objects|items|prompt|following|text|sentences?|paragraph|"
    r"passage|article|message|review|comment|tweet|words?|story|poem|line|quote|phrase|email|note|document|"
    r"translate|summari[sz]e|say|speak|read|aloud|speech|french|german|spanish|chinese|english)\b"
    r"[^:.!?\n]{0,40}):[ \t]*\n*"
    r"(?P<value>(?:[^\n]|\n(?!\s*\n))+)",
    re.IGNORECASE,
)
_ROLES = {
    "question": "question",
    "query": "question",
    "context": "context",
    "passage": "context",
} | dict.fromkeys(("label", "labels", "categories", "classes", "thing", "object", "item"), "labels")
_NEXT_FIELD = re.compile(
    r"[\s,;]+(?:and\s+)?(?:the\s+)?(?:question|query|context|labels?|categories|prompt|text)\s*:",
    re.IGNORECASE,
)
_NEXT_STEP = re.compile(
    r"(?<=[.!?\"”])\s+(?=(?:and |then|also|next|after|finally|please|now)\b)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Mark:
    """What a mark stands for.

    Attributes:
        kind: a file's kind; "text" for quoted text.
        value: the file's name as the plan must spell it, or the text.
        is_file: whether it is a file.
        role: what the request calls a quoted text ("question", "context", "labels"), or "".
    """

    kind: Modality
    value: str
    is_file: bool = False
    role: str = ""

    def fits(self, kind: Modality) -> bool:
        """Whether it can stand in an argument of this kind. What a URL without an ending holds is open."""
        if self.kind == "file":
            return "://" in self.value and kind in MEDIA
        return self.kind == kind or (kind == "text" and self.kind in ("table", "data"))


@dataclass(slots=True)
class Marked:
    """A text with marks, and what they stand for."""

    text: str
    marks: dict[str, Mark] = field(default_factory=dict)

    def add(self, mark: Mark) -> str:
        """A new mark's character; the value itself if there are no characters left."""
        if len(self.marks) > ord(LAST_MARK) - ord(FIRST_MARK):
            return mark.value
        character = chr(ord(FIRST_MARK) + len(self.marks))
        self.marks[character] = mark
        return character

    def within(self, text: str) -> list[Mark]:
        """What the marks in a piece of the text stand for, in its order."""
        return [self.marks[character] for character in text if character in self.marks]

    def restored(self, text: str) -> str:
        """A piece of the text with the values in place of the marks."""
        return "".join(self.marks[c].value if c in self.marks else c for c in text)


def mark(request: str, files: Iterable[Resource]) -> Marked:
    """Put every quoted text and every file name of a request as a mark.

    What follows a colon after words such as "the following text" counts as quoted too.
    """
    text = re.sub(MARK, " ", without_references(request))
    marked = Marked(text)
    names = dict(_names(files))
    text = _QUOTES.sub(lambda match: _quoted(match, names, marked), text)
    marked.text = _mark_fields(_mark_files(text, names, marked), marked)
    return marked


def without_references(text: str) -> str:
    """A text that somebody wrote, with nothing in it that would be taken for a reference."""
    return re.sub(r"<resource>(?=-\d)", "resource", text)


def spelling(file: Resource) -> str:
    """How a plan names a file."""
    return file.name or str(file.path)


def _names(files: Iterable[Resource]) -> Iterator[tuple[str, Resource]]:
    """Spellings by which the request may name each file; a word that merely looks like a name is none."""
    for file in files:
        is_real = file.path is not None or "://" in file.name or file.kind in MEDIA - {"file"}
        if is_real:
            yield spelling(file), file
            yield PurePath(spelling(file)).name, file


def _quoted(match: re.Match[str], names: dict[str, Resource], marked: Marked) -> str:
    inner = next(group for group in match.groups() if group is not None).strip()
    if inner in names:
        return f"{inner} "
    return marked.add(Mark("text", inner)) if inner else match.group()


def _mark_files(text: str, names: dict[str, Resource], marked: Marked) -> str:
    known: dict[str, str] = {}
    for name in sorted(names, key=len, reverse=True):
        file = names[name]
        before = r"(?<![\w/\\])" if name[0].isalnum() else ""
        pattern = rf"{before}{re.escape(name)}(?!\.?\w)"
        if not re.search(pattern, text, re.ASCII):
            continue
        value = spelling(file)
        character = known.get(value) or marked.add(Mark(file.kind, value, is_file=True))
        known[value] = character
        text = re.sub(pattern, lambda _, c=character: c, text, flags=re.ASCII)  # type: ignore[misc]
    return text


def _mark_fields(text: str, marked: Marked) -> str:
    """`Summarize this text: …` and `Question: …`: what stands after the colon becomes a mark."""
    start = 0
    while match := _FIELD.search(text, start):
        value = match["value"]
        for stop in (_NEXT_FIELD, _NEXT_STEP):
            if cut := stop.search(value):
                value = value[: cut.start()]
        start = match.end("label") + 1
        if not value.strip() or re.search(MARK, value):
            continue
        word = match["label"].split()[0].lower().rstrip("s")
        role = _ROLES.get(word) or _ROLES.get(match["label"].split()[-1].lower(), "")
        begin = match.start("value")
        rest = text[begin + len(value) :]
        if _NEXT_FIELD.match(rest):
            rest = f" {rest.lstrip(' ,;')}"
        text = f"{text[:begin]}{marked.add(Mark('text', value.strip(), role=role))}{rest}"
        start = begin + 1
    return text
