"""Masking: each file and quoted text of a request becomes one character, which no rule cuts through.

masked = mask_entities('Translate "Hi. How are you?" and describe cat.jpg', files)
masked.text         # 'Translate \\ue000 and describe \\ue001'
masked.marks        # {'\\ue000': Entity("text", "Hi. How are you?"), '\\ue001': Entity("image", "cat.jpg")}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePath

from jarvis_agent.core.tasks.spec import MEDIA, Modality
from jarvis_agent.core.types import Resource
from jarvis_agent.planning.offline.pasted_text import Span, above, below
from jarvis_agent.planning.offline.patterns import START, Patterns, word

_RE = Patterns("masking")

FIRST_MARK, LAST_MARK = "\ue000", "\uf8ff"
MARK = f"[{FIRST_MARK}-{LAST_MARK}]"
"""Pattern of a mark: a character of Unicode's private use area."""

_PAIRS = word("masking.PAIRS")
_QUOTES = re.compile(_PAIRS)
MOST_APOSTROPHES = 2000
"""In a text of more of them they are no quotation marks: each might end at any of those after it."""
MOST_FIELDS, MOST_SEARCHED, MOST_NAMES = 100, 10_000_000, 1000
"""Texts after colons, letters that are searched for their ends, and spellings of files that are looked for;
more would take time without end."""
_WORD_BEFORE, _WORD_AFTER = re.compile(r"[\w/\\]", re.ASCII), re.compile(r"\.?\w", re.ASCII)
_LONGEST_SENTENCE = 1000
_ROLES = {
    "question": "question",
    "query": "question",
    "context": "context",
    "passage": "context",
} | dict.fromkeys(("label", "labels", "categories", "classes", "thing", "object", "item"), "labels")


_MOST_LETTERS = 600
"""What is longer than that without a line break gets one: after a sentence, else between words."""

MOST_READ = 10_000
"""The most letters of a text that are read: half of them from its beginning, half from its end."""

_BLANKS = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r"\n[ \n]+")
_LONG = re.compile(rf"[^\n]{{{_MOST_LETTERS + 1},}}")
_PIECE = re.compile(
    rf"[^\n]{{1,{_MOST_LETTERS}}}(?:(?<=[.!?;])(?=\s)|(?<=[。！？；])|$)"
    rf"|[^\n]{{{_MOST_LETTERS // 2},{_MOST_LETTERS}}}(?=[\s,，、])"
    rf"|[^\n]{{{_MOST_LETTERS}}}"
)
_TORN_LAST, _TORN_FIRST = re.compile(r"\s\S{0,50}\Z"), re.compile(r"\A\S{0,50}\s")
"""The word that a cut went through. What is longer is no word: Chinese may be thousands of letters without a
blank."""


@dataclass(frozen=True, slots=True)
class Entity:
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
class MaskedText:
    """A text with marks, and what they stand for.

    Attributes:
        whole: the text with marks, before the middle of an overlong one was left out.
    """

    text: str
    marks: dict[str, Entity] = field(default_factory=dict)
    whole: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the middle of an overlong text is left out."""
        return len(self.whole) > MOST_READ

    @property
    def notes(self) -> list[str]:
        """What a plan says of what is left out."""
        if not self.is_cut:
            return []
        return [
            f"the request is long: only the first and the last {MOST_READ // 2:,} of its {len(self.whole):,} "
            "letters are read; put what is to be worked on in quotation marks, or in a file"
        ]

    def take(self, text: str) -> None:
        """Let this be the text; of an overlong one only the beginning and the end are read."""
        self.whole = text
        self.text = bounded(ends(text))

    def add(self, mark: Entity) -> str:
        """A new mark's character; the value itself if there are no characters left."""
        if len(self.marks) > ord(LAST_MARK) - ord(FIRST_MARK):
            return mark.value
        character = chr(ord(FIRST_MARK) + len(self.marks))
        self.marks[character] = mark
        return character

    def within(self, text: str) -> list[Entity]:
        """What the marks in a piece of the text stand for, in its order."""
        return [self.marks[character] for character in text if character in self.marks]

    def restored(self, text: str) -> str:
        """A piece of the text with the values in place of the marks."""
        return "".join(self.marks[c].value if c in self.marks else c for c in text)


def mask_entities(request: str, files: Iterable[Resource]) -> MaskedText:
    """Put every quoted text and every file name of a request as a mark.

    What follows a colon after words such as "the following text" counts as quoted too, and so do texts that
    `pasted` finds.
    """
    text = re.sub(MARK, " ", without_references(request))
    masked = MaskedText(text)
    names = dict(islice(_names(files), MOST_NAMES))
    text = _mark_span(text, below(text), masked)
    quotes = _RE.APOSTROPHES if text.count("'") <= MOST_APOSTROPHES else _QUOTES
    text = quotes.sub(lambda match: _quoted(match, names, masked), text)
    text = _mark_files(text, names, masked)
    text = _RE.AFTER_COLON.sub(lambda match: _after_colon(match, masked), _mark_fields(text, masked))
    if not names and not masked.marks:
        text = _mark_span(text, above(text), masked)
    masked.take(single_spaced(text))
    return masked


def without_references(text: str) -> str:
    """A text that somebody wrote, with nothing in it that would be taken for a reference."""
    return re.sub(r"<resource>(?=-\d)", "resource", text)


def spelling(file: Resource) -> str:
    """How a plan names a file."""
    return file.name or str(file.path)


def _names(files: Iterable[Resource]) -> Iterator[tuple[str, Resource]]:
    """The spellings of each file; a word that only looks like a file name is skipped."""
    for file in files:
        is_real = file.path is not None or "://" in file.name or file.kind in MEDIA - {"file"}
        if is_real:
            yield spelling(file), file
            yield PurePath(spelling(file)).name, file


def _quoted(match: re.Match[str], names: dict[str, Resource], masked: MaskedText) -> str:
    inner = next(group for group in match.groups() if group is not None).strip()
    if inner in names:
        return f"{inner} "
    return masked.add(Entity("text", inner)) if inner else match.group()


def _mark_files(text: str, names: dict[str, Resource], masked: MaskedText) -> str:
    known: dict[str, str] = {}
    for name in sorted(filter(None, names), key=len, reverse=True):
        file = names[name]
        around = _around(name, text)
        if len(around) == 1:
            continue
        value = spelling(file)
        character = known.get(value) or masked.add(Entity(file.kind, value, is_file=True))
        known[value] = character
        text = character.join(around)
    return text


def _around(name: str, text: str) -> list[str]:
    """The pieces of a text between the places where a name stands by itself; the whole where it does not."""
    pieces: list[str] = []
    start, place = 0, text.find(name)
    while place >= 0:
        end = place + len(name)
        is_begun_before = name[0].isalnum() and place > 0 and _WORD_BEFORE.match(text, place - 1)
        if is_begun_before or _WORD_AFTER.match(text, end):
            place = text.find(name, place + 1)
            continue
        pieces.append(text[start:place])
        start, place = end, text.find(name, end)
    return [*pieces, text[start:]]


def _mark_span(text: str, span: Span | None, masked: MaskedText) -> str:
    """A text with a mark in place of what was pasted into it; as it is where that holds marks itself."""
    value = text[span.start : span.end] if span else ""
    if span is None or re.search(MARK, value):
        return text
    character = masked.add(Entity("text", value.strip()))
    return f"{text[: span.start]}{character}{text[span.end :]}"


def _mark_fields(text: str, masked: MaskedText) -> str:
    """`Summarize this text: …` and `Question: …`: what stands after the colon becomes a mark."""
    start = 0
    for _ in range(min(MOST_FIELDS, MOST_SEARCHED // (len(text) + 1))):
        match = _RE.FIELD.search(text, start)
        if match is None:
            break
        value = match["value"]
        for stop in (_RE.NEXT_FIELD, _RE.NEXT_STEP):
            if cut := stop.search(value):
                value = value[: cut.start()]
        start = match.end("label") + 1
        word = match["label"].split()[0].lower().rstrip("s")
        role = _ROLES.get(word) or _ROLES.get(match["label"].split()[-1].lower(), "")
        is_step = role == "labels" and START.match(value)
        if (
            not value.strip()
            or re.search(MARK, value)
            or is_step
            or (not role and _leads_to_order(text, match, value))
        ):
            continue
        begin = match.start("value")
        rest = text[begin + len(value) :]
        if _RE.NEXT_FIELD.match(rest):
            rest = f" {rest.lstrip(' ,;')}"
        text = f"{text[:begin]}{masked.add(Entity('text', value.strip(), role=role))}{rest}"
        start = begin + 1
    return text


def _leads_to_order(text: str, match: re.Match[str], value: str) -> bool:
    """Whether what stands before a colon asks for nothing, and what stands after it does."""
    end = match.end("label")
    sentence = re.split(r"[.!?;\n]\s", text[max(0, end - _LONGEST_SENTENCE) : end])[-1]
    return bool(_RE.ORDERS.match(value)) and not START.match(sentence)


def _after_colon(match: re.Match[str], masked: MaskedText) -> str:
    """`Who is named here: Marta left Oslo.`: after a clause that asks for something, a text to work on."""
    asks, value = match["asks"], match["value"]
    is_order = _RE.ORDERS.match(value) is not None
    if re.search(MARK, asks + value) or is_order or not START.match(asks.strip()) or len(value.split()) < 3:
        return match.group()
    return f"{match['label']}{asks}: {masked.add(Entity('text', value.strip()))}"


def bounded(text: str) -> str:
    """A text with line breaks in its overlong lines."""
    return _LONG.sub(lambda line: "\n".join(_PIECE.findall(line.group())), text)


def single_spaced(text: str) -> str:
    """A text with single blanks and line breaks."""
    return _BREAKS.sub("\n", _BLANKS.sub(" ", text))


def ends(text: str) -> str:
    """A text as it is; of one of more than `MOST_READ` letters the beginning and the end, in whole words."""
    if len(text) <= MOST_READ:
        return text
    half = MOST_READ // 2
    return "\n".join((_TORN_LAST.sub("", text[:half]), _TORN_FIRST.sub("", text[-half:])))
