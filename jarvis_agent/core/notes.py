"""Notes: sentences for users that are values, with what they were made from.

    note = Note("the encoding {name} was assumed", name="cp1252")
    note                        # "the encoding cp1252 was assumed"
    note.template               # what is said, for programs: "the encoding {name} was assumed"
    note.write(CHINESE)         # "假定文字编码是 cp1252"

A note also has what only the owner of this machine may see: the words of a library, which may name a path,
and advice that names settings and commands. `public` is the note without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    SerializationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapSerializer,
    WrapValidator,
)

from jarvis_agent.core.text import map_texts

HELPS = "{reason}. What helps: {advice}"
"""What joins a note and its advice."""

PUBLIC = {"notes": "public"}
"""Context of a serialisation for clients of a server."""
STORED = {"notes": "stored"}
"""Context of a serialisation that keeps templates and values; without one, JSON has the sentences."""

ModelT = TypeVar("ModelT", bound=BaseModel)


class Note(str):
    """An English sentence and its parts.

    Attributes:
        template: the sentence, with names in braces for its values; the key of its translations.
        values: numbers, texts, notes, and lists of them, by name.
        detail: the words of a library, which follow a colon.
        advice: what the owner of this machine can do, also about the notes among the values.
    """

    template: str
    values: Mapping[str, Any]
    detail: str
    advice: tuple[str, ...]

    def __new__(
        cls, template: str, /, *, detail: str = "", advice: str | Iterable[str] = (), **values: Any
    ) -> Self:
        """Without `values`, the template is the sentence, whatever braces it has."""
        fields = {name: _value(value) for name, value in values.items()}
        own = (advice,) if isinstance(advice, str) else advice
        advice = tuple(dict.fromkeys((*_advice_in([*fields.values()]), *own)))
        note = super().__new__(cls, _sentence({}, template, fields, detail, advice))
        note.template, note.values, note.detail, note.advice = template, fields, detail, advice
        return note

    @classmethod
    def of(cls, text: str) -> Note:
        """A text as a note, if it is none."""
        return text if isinstance(text, Note) else cls(text)

    @property
    def message(self) -> Note:
        """The note without its advice."""
        return _without_advice(self, detail=True)

    @property
    def public(self) -> Note:
        """The note as clients of a server may see it, without details and advice."""
        return _without_advice(self, detail=False)

    def write(self, words: Mapping[str, str]) -> str:
        """The sentence by the templates of another language; what they lack stays English."""
        return _sentence(words, self.template, self.values, self.detail, self.advice)


def limit_of(setting: str) -> Note:
    """The advice after a limit was reached: the setting with it."""
    return Note("{setting} sets this limit", setting=setting)


def template_of(text: str) -> str:
    """What a note says, whatever its values; another text as it is."""
    return Note.of(text).template


def as_public(model: ModelT) -> ModelT:
    """A model whose notes are those that clients may see."""
    return type(model).model_validate(model.model_dump(context=PUBLIC))


def _without_advice(note: Note, *, detail: bool) -> Note:
    """A note without its advice; `detail`: with the words of libraries."""

    def part(text: str) -> str:
        return _without_advice(text, detail=detail) if isinstance(text, Note) else text

    return Note(note.template, detail=note.detail if detail else "", **map_texts(note.values, part))


def _value(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_value(item) for item in value]
    return value if isinstance(value, str | int | float) else str(value)


def _advice_in(value: Any) -> Iterator[str]:
    if isinstance(value, Note):
        yield from value.advice
    elif isinstance(value, list):
        for item in value:
            yield from _advice_in(item)


def _sentence(
    words: Mapping[str, str], template: str, values: Mapping[str, Any], detail: str, advice: Sequence[str]
) -> str:
    text = words.get(template, template)
    if values:
        text = text.format_map({name: _written(value, words) for name, value in values.items()})
    if detail:
        text = f"{text}: {detail}"
    if advice:
        listed = _written(advice, words)
        text = words.get(HELPS, HELPS).format(reason=text.rstrip("."), advice=listed)
    return text


def _written(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, Note):  # whose advice stands at the end of the whole
        return _sentence(words, value.template, value.values, value.detail, ())
    if isinstance(value, str):
        return words.get(value, value)
    if isinstance(value, Sequence):
        return words.get("; ", "; ").join(_written(item, words) for item in value)
    return value


def _stored(value: Any) -> Any:
    """A value as JSON that `_loaded` reads."""
    if isinstance(value, Note):
        parts = {"template": value.template, "detail": value.detail, "advice": _stored(value.advice)}
        return {**parts, "values": {name: _stored(part) for name, part in value.values.items()}}
    return value if isinstance(value, str) or not isinstance(value, Sequence) else [*map(_stored, value)]


def _loaded(value: Any) -> Any:
    if isinstance(value, Mapping):
        parts = {"detail": value["detail"], "advice": _loaded(value["advice"])}
        return Note(value["template"], **parts, **{n: _loaded(part) for n, part in value["values"].items()})
    return [*map(_loaded, value)] if isinstance(value, list) else value


def _validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, Note):  # which the schema of a text would turn into a plain one
        return value
    return _loaded(value) if isinstance(value, Mapping) else handler(value)


def _serialize(value: str, handler: Any, info: SerializationInfo) -> Any:
    form = (info.context or {}).get("notes")
    if form == "public":
        return Note.of(value).public
    return _stored(value) if form == "stored" else value


def write_notes(notes: Iterable[str]) -> list[Any]:
    """Notes as JSON for a client, which `read_notes` reads."""
    return [_stored(Note.of(note).public) for note in notes]


def read_notes(data: Iterable[Any]) -> list[str]:
    """The notes of `write_notes`."""
    return [*map(_loaded, data)]


AnyNote = Annotated[
    str,
    WrapValidator(_validate),
    WrapSerializer(_serialize, return_type=Any),
    WithJsonSchema({"type": "string"}),
]
"""A field with a note or another text. JSON has the sentence."""
