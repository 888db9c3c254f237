"""What an expert returned, checked and made plain: Python's own numbers, texts, lists and dicts.

rows(raw, "label", "score")      # a list of dicts that have these keys, or Unexpected
score(np.float32(0.72439))       # 0.7244
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


class UnexpectedError(Exception):
    """The output has another form than the one that is named."""


def rows(raw: Any, *keys: str) -> list[Mapping[str, Any]]:
    """A list of dicts that have all the keys; a lone dict is taken as a list of one.

    Raises:
        UnexpectedError: it is something else.
    """
    listed = [raw] if isinstance(raw, Mapping) else raw
    named = "{" + ", ".join(keys) + "}"
    if not isinstance(listed, list | tuple):
        raise UnexpectedError(f"a list of {named}")
    if not all(isinstance(row, Mapping) and all(key in row for key in keys) for row in listed):
        raise UnexpectedError(f"a list of {named}")
    return list(listed)


def number(value: Any) -> float:
    """A finite float, from a number of Python, numpy or torch.

    Raises:
        UnexpectedError: it is no number, or NaN, or infinite.
    """
    try:
        found = float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UnexpectedError("a number for each score or coordinate") from error
    if not math.isfinite(found):
        raise UnexpectedError("finite numbers (these are NaN or infinite)")
    return found


def score(value: Any) -> float:
    """A number, rounded to four digits."""
    return round(number(value), 4)


def maybe_score(value: Any) -> float | None:
    """As `score`, and None for None."""
    return None if value is None else score(value)


def text(value: Any) -> str:
    """A str without blanks around it.

    Raises:
        UnexpectedError: it is something else.
    """
    if not isinstance(value, str):
        raise UnexpectedError("a text")
    return value.strip()


def text_under(raw: Any, *keys: str) -> str:
    """The text of a str, of a dict that has it under one of the keys, or of the first dict of a list."""
    found = raw[0] if isinstance(raw, list | tuple) and raw else raw
    if isinstance(found, Mapping):
        found = next((found[key] for key in keys if key in found), None)
    return text(found)


def vector(raw: Any) -> list[float]:
    """One vector of floats, from a vector, or from a matrix of tokens, which are averaged, or [matrix].

    Raises:
        UnexpectedError: it holds something else, or nothing.
    """
    nested = listed(raw)
    while isinstance(nested, list) and len(nested) == 1 and isinstance(nested[0], list):
        nested = nested[0]
    tokens = nested if isinstance(nested, list) and nested and isinstance(nested[0], list) else [nested]
    if not all(isinstance(token, list) and token for token in tokens):
        raise UnexpectedError("a vector of numbers")
    if len({len(token) for token in tokens}) != 1:
        raise UnexpectedError("vectors of one length")
    return [
        round(sum(number(value) for value in values) / len(tokens), 6) for values in zip(*tokens, strict=True)
    ]


def existing(value: Any) -> Path | None:
    """The path of a file that is there, from a path or a text; None for anything else."""
    if not isinstance(value, str | Path):
        return None
    try:
        return Path(value) if Path(value).is_file() else None
    except (OSError, ValueError):
        # Not every text can be the name of a file: it may be too long, or hold NUL.
        return None


def listed(value: Any) -> Any:
    """An array or tensor as nested lists; anything else as it is."""
    return value.tolist() if callable(getattr(value, "tolist", None)) else value


def plain(value: Any) -> Any:
    """Anything as plain JSON: arrays become lists, paths texts, NaN becomes None.

    Raises:
        UnexpectedError: there is something in it that JSON has no form for.
    """
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if callable(getattr(value, "tolist", None)):
        return plain(value.tolist())
    raise UnexpectedError(f"plain data (there is a {type(value).__name__} in it)")


def told(raw: Any) -> str:
    """What something is, in a few words for an error message."""
    shape = getattr(raw, "shape", None)
    if shape is not None:
        return f"{type(raw).__name__} of shape {tuple(shape)}"
    shown = repr(raw)
    return f"{type(raw).__name__} {shown if len(shown) <= 80 else shown[:77] + '…'}"


_IRREGULAR = {
    "child": "children",
    "foot": "feet",
    "knife": "knives",
    "man": "men",
    "mouse": "mice",
    "person": "people",
    "scissors": "scissors",
    "sheep": "sheep",
    "skis": "skis",
    "woman": "women",
}


def plural(noun: str) -> str:
    """The plural of an English noun, or of a phrase that ends in one."""
    first, space, last = noun.rpartition(" ")
    if last in _IRREGULAR:
        return first + space + _IRREGULAR[last]
    if last.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if last.endswith("y") and last[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def counted(amount: int, noun: str) -> str:
    """An amount with its noun: "1 cat", "2 cats"."""
    return f"{amount} {noun if amount == 1 else plural(noun)}"


def tally(labels: Iterable[str]) -> str:
    """Labels counted, the most frequent first: "2 cats, 1 remote"."""
    counts: dict[str, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return ", ".join(counted(amount, label) for label, amount in ranked)


def numbers(value: Any, what: str) -> NDArray[Any]:
    """The numbers of an array, list or tensor (of any dtype, on any device) for numpy.

    Raises:
        UnexpectedError: it is something else; `what` says what was expected.
    """
    import numpy as np

    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu()
        # bfloat16 has no counterpart in numpy.
        value = value.float() if value.is_floating_point() else value
    try:
        found = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UnexpectedError(what) from error
    if found.dtype.kind not in "biuf":
        raise UnexpectedError(what)
    return found
