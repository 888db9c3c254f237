"""The header of a GGUF file, as ggml's docs/gguf.md describes versions 2 and 3."""

from __future__ import annotations

import math
import os
import re
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

_TYPES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MAX_DIMENSIONS = 8  # twice ggml's


@lru_cache
def parameters_of(path: Path) -> int:
    """The number of weights in the tensors of a file; 0 if it cannot be read, or is one of several."""
    if re.search(r"-\d{5}-of-\d{5}\.gguf\Z", path.name, re.IGNORECASE):
        return 0
    try:
        with path.open("rb") as file:
            magic, version, tensors, keys = _read(file, "4sIQQ")
            if magic != b"GGUF" or version not in (2, 3):
                return 0
            for _ in range(keys):
                _skip_text(file)
                _skip_value(file, *_read(file, "I"))
            return sum(_weights(file) for _ in range(tensors))
    except (OSError, struct.error, KeyError, ValueError, OverflowError, RecursionError):
        return 0


def _weights(file: BinaryIO) -> int:
    """The number of weights of the next tensor: the product of its sides."""
    _skip_text(file)
    (dimensions,) = _read(file, "I")
    if dimensions > _MAX_DIMENSIONS:
        raise ValueError(f"a tensor has {dimensions} dimensions")
    sides = _read(file, f"{dimensions}Q")
    _read(file, "IQ")  # its type and place
    return math.prod(sides)


def _read(file: BinaryIO, form: str) -> tuple[Any, ...]:
    return struct.unpack(f"<{form}", file.read(struct.calcsize(f"<{form}")))


def _skip_text(file: BinaryIO) -> None:
    length = file.read(8)
    if len(length) < 8:
        raise ValueError("the file ends here")
    file.seek(int.from_bytes(length, "little"), os.SEEK_CUR)  # faster than struct: a vocabulary has 150,000


def _skip_value(file: BinaryIO, kind: int) -> None:
    if kind == _TEXT:
        _skip_text(file)
    elif kind == _LIST:
        kind, length = _read(file, "IQ")
        if kind in _TYPES:
            file.seek(length * struct.calcsize(f"<{_TYPES[kind]}"), os.SEEK_CUR)
        else:
            for _ in range(length):
                _skip_value(file, kind)
    else:
        _read(file, _TYPES[kind])
