"""Masking: each file and quoted text of a request becomes one character, so that no rule cuts through it.

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
from jarvis_agent.planning.offline.pasted_text import above, below
from jarvis_agent.planning.offline.patterns import START, Patterns, word

_RE = Patterns("masking")

FIRST_MARK, LAST_MARK = "\ue000", "\uf8ff"
MARK = f"[{FIRST_MARK}-{LAST_MARK}]"
"""Pattern of a mark: a character of Unicode's private use area."""
MAX_READ = 10_000
"""Characters of a text that are read: half of them from its beginning, half from its end."""
MAX_SEARCHED = 10_000_000
"""Characters that are searched for fields, all searches together."""

_MAX_APOSTROPHES, _MAX_FIELDS, _MAX_NAMES = 2000, 100, 1000
"""Bounds on the time of masking. In a text with more apostrophes these are not quotation marks."""
_MAX_SENTENCE, _MAX_LINE = 1000, 600
_QUOTES = re.compile(word("masking.PAIRS"))
_ROLES = {
    **dict.fromkeys(("question", "query"), "question"),
    **dict.fromkeys(("context", "passage"), "context"),
    **dict.fromkeys(("label", "labels", "categories", "classes", "thing", "object", "item"), "labels"),
}
_LONG_LINE = re.compile(rf"[^\n]{{{_MAX_LINE + 1},}}")
_LINE_PIECE = re.compile(
    rf"[^\n]{{1,{_MAX_LINE}}}(?:(?<=[.!?;])(?=\s)|(?<=[。！？；])|$)"
    rf"|[^\n]{{{_MAX_LINE // 2},{_MAX_LINE}}}(?=[\s,，、])"
    rf"|[^\n]{{{_MAX_LINE}}}"
)
"""A line ends after a sentence, else between words, else anywhere."""
_CUT_LAST_WORD, _CUT_FIRST_WORD = re.compile(r"\s\S{0,50}\Z"), re.compile(r"\A\S{0,50}\s")


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
        """Whether it can be an argument of this kind. A URL without an extension may be any file."""
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
        return len(self.whole) > MAX_READ

    @property
    def notes(self) -> list[str]:
        """A note on what is left out, if anything is."""
        if not self.is_cut:
            return []
        return [
            f"the request is long: only the first and the last {MAX_READ // 2:,} of its {len(self.whole):,} "
            "characters are read; put what is to be worked on in quotation marks, or in a file"
        ]

    def take(self, text: str) -> None:
        """Set the text. Only the beginning and the end of an overlong one are read."""
        self.whole = text
        if self.is_cut:
            half = MAX_READ // 2
            text = f"{_CUT_LAST_WORD.sub('', text[:half])}\n{_CUT_FIRST_WORD.sub('', text[-half:])}"
        self.text = _LONG_LINE.sub(lambda line: "\n".join(_LINE_PIECE.findall(line.group())), text)

    def add(self, mark: Entity) -> str:
        """A new mark's character; the value itself if no characters are left."""
        if len(self.marks) > ord(LAST_MARK) - ord(FIRST_MARK):
            return mark.value
        character = chr(ord(FIRST_MARK) + len(self.marks))
        self.marks[character] = mark
        return character

    def within(self, text: str) -> list[Entity]:
        """What the marks in a piece of the text stand for, in order."""
        return [self.marks[character] for character in text if character in self.marks]

    def restored(self, text: str) -> str:
        """A piece of the text with the values in place of the marks."""
        return "".join(self.marks[c].value if c in self.marks else c for c in text)


def mask_entities(request: str, files: Iterable[Resource]) -> MaskedText:
    """Replace each file name and quoted text of a request by a mark.

    Text after a colon ("the following text: …") and pasted text count as quoted.
    """
    text = re.sub(MARK, " ", without_references(request))
    masked = MaskedText(text)
    names = dict(islice(_names(files), _MAX_NAMES))
    text = _mark_pasted(text, below(text), masked)
    quotes = _RE.APOSTROPHES if text.count("'") <= _MAX_APOSTROPHES else _QUOTES
    text = quotes.sub(lambda match: _quoted(match, names, masked), text)
    text = _mark_files(text, names, masked)
    text = _RE.AFTER_COLON.sub(lambda match: _after_colon(match, masked), _mark_fields(text, masked))
    if not names and not masked.marks:
        text = _mark_pasted(text, above(text), masked)
    masked.take(re.sub(r"\n[ \n]+", "\n", re.sub(r"[^\S\n]+", " ", text)))
    return masked


def without_references(text: str) -> str:
    """A text of the user or of a model, without anything that would be read as a reference."""
    return re.sub(r"<resource>(?=-\d)", "resource", text)


def spelling(file: Resource) -> str:
    """How a plan names a file."""
    return file.name or str(file.path)


def _names(files: Iterable[Resource]) -> Iterator[tuple[str, Resource]]:
    """The spellings of each file; a word that only looks like a file name is skipped."""
    for file in files:
        if file.path is not None or "://" in file.name or file.kind in MEDIA - {"file"}:
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
        if name not in text:
            continue
        start = r"(?<![\w/\\])" if name[0].isalnum() else ""
        found = re.compile(rf"{start}{re.escape(name)}(?!\.?\w)", re.ASCII)
        if found.search(text):
            value = spelling(names[name])
            if value not in known:
                known[value] = masked.add(Entity(names[name].kind, value, is_file=True))
            text = found.sub(known[value].replace("\\", r"\\"), text)
    return text


def _mark_pasted(text: str, pasted: slice | None, masked: MaskedText) -> str:
    """Replace a pasted text by a mark, unless it holds marks itself."""
    if pasted is None or re.search(MARK, text[pasted]):
        return text
    return f"{text[: pasted.start]}{masked.add(Entity('text', text[pasted].strip()))}{text[pasted.stop :]}"


def _mark_fields(text: str, masked: MaskedText) -> str:
    """Replace what follows the colon of `Summarize this text: …` or `Question: …` by a mark."""
    start = 0
    for _ in range(min(_MAX_FIELDS, MAX_SEARCHED // (len(text) + 1))):
        match = _RE.FIELD.search(text, start)
        if match is None:
            break
        start = match.end("label") + 1
        value = match["value"]
        for stop in (_RE.NEXT_FIELD, _RE.NEXT_STEP):
            if cut := stop.search(value):
                value = value[: cut.start()]
        words = match["label"].lower().split()
        role = _ROLES.get(words[0].rstrip("s")) or _ROLES.get(words[-1], "")
        is_order = START.match(value) if role == "labels" else not role and _leads_to_order(match, value)
        if not value.strip() or re.search(MARK, value) or is_order:
            continue
        begin = match.start("value")
        rest = text[begin + len(value) :]
        if _RE.NEXT_FIELD.match(rest):
            rest = f" {rest.lstrip(' ,;')}"
        text = f"{text[:begin]}{masked.add(Entity('text', value.strip(), role=role))}{rest}"
        start = begin + 1
    return text


def _leads_to_order(match: re.Match[str], value: str) -> bool:
    """Whether an order follows a colon, and the sentence before the colon is none."""
    end = match.end("label")
    sentence = re.split(r"[.!?;\n]\s", match.string[max(0, end - _MAX_SENTENCE) : end])[-1]
    return bool(_RE.ORDERS.match(value)) and not START.match(sentence)


def _after_colon(match: re.Match[str], masked: MaskedText) -> str:
    """`Who is named here: Marta left Oslo.`: after a clause that asks for something, a text to work on."""
    asks, value = match["asks"], match["value"]
    is_order = _RE.ORDERS.match(value) is not None
    if re.search(MARK, asks + value) or is_order or not START.match(asks.strip()) or len(value.split()) < 3:
        return match.group()
    return f"{match['label']}{asks}: {masked.add(Entity('text', value.strip()))}"
