"""Checks of raw outputs and their conversion to plain Python values; the result type of an adapter.

What a value must be is a type for pydantic. Numbers of numpy and torch count as Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    FiniteFloat,
    InstanceOf,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic_core import to_jsonable_python

from jarvis_agent.backends.base import Call
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Adapted:
    """`output`: plain JSON. `summary`: its value as a text argument. `files`: written resources."""

    output: Any
    summary: str
    files: tuple[Resource, ...] = ()


Adapter = Callable[[Any, Call], Adapted]
"""Converts a model's raw output. Raises UnexpectedError for another form."""


class UnexpectedError(Exception):
    """The raw output does not have the form that the message names."""


def to_list(value: Any) -> Any:
    """An array or tensor as nested lists, or as a number; anything else unchanged."""
    return value.tolist() if callable(getattr(value, "tolist", None)) else value


def to_builtin(value: Any) -> Any:
    """Plain JSON: arrays become lists, paths texts, NaN None. Other types raise UnexpectedError."""

    def from_array(item: Any) -> Any:
        if to_list(item) is item:
            raise UnexpectedError(f"plain data (it contains a {type(item).__name__})")
        return to_list(item)

    return to_jsonable_python(value, fallback=from_array, inf_nan_mode="null")


Number = Annotated[FiniteFloat, BeforeValidator(to_list)]
Score = Annotated[Number, AfterValidator(lambda value: round(value, 4))]
Seconds = Annotated[Number, AfterValidator(lambda value: round(value, 3))]
Index = Annotated[int, BeforeValidator(to_list)]
Text = Annotated[InstanceOf[str], AfterValidator(str.strip)]
"""A str, which may have surrogates: pydantic's own type takes none."""
Data = Annotated[Any, BeforeValidator(to_builtin)]
"""Plain JSON."""


def check(form: Any, raw: Any, what: str) -> Any:
    """A raw output as a type; UnexpectedError if it is something else, where `what` names the type."""
    try:
        return TypeAdapter(form).validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UnexpectedError(f"{what} ({place and f'{place}: '}{first['msg']})") from error


def read_rows(
    raw: Any, fields: Mapping[str, Any], optional: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """A list of dicts with these fields, by name and type; other fields are dropped.

    A single dict counts as a list of one, and a list in a list as the inner one. Optional fields that are
    missing or None are left out.
    """
    rows = [raw] if isinstance(raw, Mapping) else raw
    if isinstance(rows, list | tuple) and len(rows) == 1 and isinstance(rows[0], list):
        rows = rows[0]
    required: Any = {name: (form, ...) for name, form in fields.items()}
    further: Any = {name: (form | None, None) for name, form in (optional or {}).items()}
    form = create_model("Row", **required, **further)
    checked = [row.model_dump() for row in check(list[form], rows, f"a list of {{{', '.join(fields)}}}")]
    return [
        {name: value for name, value in row.items() if name in fields or value is not None} for row in checked
    ]


def best_first(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by descending score; those without a score come last."""
    return sorted(rows, key=lambda row: -(row.get("score") or 0.0))


def find_text(raw: Any, *keys: str) -> str:
    """The text of a str, of a dict that has it under one of the keys, or of the first dict of a list."""
    has_one = isinstance(raw, list | tuple) and (len(raw) == 1 or (raw and isinstance(raw[0], Mapping)))
    value = raw[0] if has_one else raw
    if isinstance(value, Mapping):
        value = next((value[key] for key in keys if value.get(key) is not None), None)
    return str(check(Text, value, "a text"))


def text_in(value: Any) -> str | None:
    """A text, a number, the only text of a dict, or the last message of a chat; None for anything else."""
    match value:
        case str():
            return value if value.strip() else None
        case int() | float() if not isinstance(value, bool):
            return str(value)
        case (
            [{"type": "text", "text": only}] | [*_, {"role": "assistant", "content": only}] | [only]
            | {"generated_text": only} | {"choices": [{"message": {"content": only}}, *_]}
            | {"message": {"content": only}} | {"content": only} | {"response": only}
        ):  # fmt: skip
            return text_in(only)
        case Mapping() if value.keys().isdisjoint({"error", "errors", "detail", "message"}):
            texts = [*texts_in(value)]
            return text_in(texts[0]) if len(texts) == 1 else None
    return None


def texts_in(value: Any) -> Iterator[str]:
    """The texts in nested objects and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from texts_in(part)


def existing_file(value: Any) -> Path | None:
    """The path of an existing file, from a path or a text; None for anything else."""
    if not isinstance(value, str | Path):
        return None
    try:
        return Path(value) if Path(value).is_file() else None
    except (OSError, ValueError):  # too long for a file name, or it contains NUL
        return None


def to_array(value: Any, what: str) -> NDArray[Any]:
    """A numpy array of finite numbers, from an array, list or tensor of any dtype and device."""
    import numpy as np

    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() else value  # numpy has no bfloat16
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UnexpectedError(what) from error
    if array.dtype.kind not in "biuf":
        raise UnexpectedError(what)
    if not np.isfinite(array).all():
        raise UnexpectedError(f"{what}, all finite")
    return array


def to_matrix(value: Any, width: int, what: str) -> NDArray[Any]:
    """Numbers of shape (n, width), n > 0; else UnexpectedError."""
    array = to_array(value, what)
    if array.ndim != 2 or array.shape[1] != width or not len(array):
        raise UnexpectedError(what)
    return array


def describe_value(raw: Any) -> str:
    """A value in a few words, for an error message."""
    shape = getattr(raw, "shape", None)
    what = brief_text(repr(raw), 80) if shape is None else f"of shape {tuple(shape)}"
    return f"{type(raw).__name__} {what}"


_PLURALS = {"person": "people", "sheep": "sheep", "skis": "skis", "scissors": "scissors", "knife": "knives"}
"""Irregular plurals among the labels of detectors."""


def plural(noun: str) -> str:
    """The plural of an English noun, or of a phrase that ends in one."""
    first, space, last = noun.rpartition(" ")
    if last in _PLURALS:
        return first + space + _PLURALS[last]
    if last.endswith("y") and last[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if last.endswith(("s", "x", "z", "ch", "sh")) else "s")


def quantity(amount: int, noun: str) -> str:
    """An amount with its noun: "1 cat", "2 cats"."""
    return f"{amount} {noun if amount == 1 else plural(noun)}"
