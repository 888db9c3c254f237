"""Messages of the expert server as bytes: a line of JSON about it, one with its value, and the files, images
and arrays in that.

    body = write_message({"depth": array, "image": Resource(...)}, protocol=1)
    read_header(body)["protocol"]                  # 1
    value = read_message(body, new_path)           # files are written where new_path(suffix) says

Nothing is pickled, so that reading a message executes no code and does not need the sender's libraries.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.types import Resource

MAX_LINE_BYTES = 32_000_000
"""Bytes of JSON in a message; files are not part of it."""

_NUMBERS = "biuf"
"""Kinds of dtypes of numpy that are sent as arrays."""

_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})


def write_message(value: Any, **header: Any) -> bytes:
    """Encode JSON values, Resources, paths of files, PIL images, arrays and tensors. Tuples become lists.

    Raises:
        UnsupportedError: there is something else in the value.
        OSError: a file cannot be read.
    """
    parts: list[bytes] = []
    mark = uuid4().hex  # the key of what is no plain JSON; no value can have it by chance
    encoded = json.dumps(value, default=partial(_encode, mark, parts)).encode()
    return b"".join([write_line(**header, mark=mark, bytes=[*map(len, parts)]), encoded, b"\n", *parts])


def write_line(**fields: Any) -> bytes:
    """A line of JSON."""
    return json.dumps(fields).encode() + b"\n"


PROGRESS = b'{"progress":'
"""How lines begin that come before a reply: `write_line(progress=[(model, text), …])` for what is done."""


def read_progress(line: bytes) -> list[tuple[str, str]]:
    """The models and texts in such a line."""
    return [(str(model), str(text)) for model, text in json.loads(line)["progress"]]


def _encode(mark: str, parts: list[bytes], value: Any) -> Any:
    """What stands for a value that JSON does not know."""

    def add(kind: str, part: bytes, **more: str) -> Any:
        parts.append(part)
        return {mark: kind, "part": len(parts) - 1, **more}

    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Resource):
        return {mark: "resource", "fields": value.model_dump(exclude={"path"}), "file": value.path}
    if isinstance(value, Path):
        return add("file", value.read_bytes(), suffix=value.suffix)
    if (mode := getattr(value, "mode", None)) in _PNG_MODES:
        value.save(png := io.BytesIO(), format="PNG", compress_level=1)
        return add("image", png.getvalue())
    if not mode and not hasattr(value, "tolist"):
        return _reject(value)
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()  # numpy has no bfloat16
    array = np.asarray(value)
    if array.dtype.kind not in _NUMBERS:
        return _reject(value) if array.dtype.kind == "O" else array.tolist()
    if array.ndim == 0:
        return array.item()
    np.save(npy := io.BytesIO(), array, allow_pickle=False)
    return add("array", npy.getvalue())


def _reject(value: Any) -> Any:
    raise UnsupportedError(f"a {type(value).__name__} cannot be sent to or from the expert server")


def read_header(body: bytes) -> dict[str, Any]:
    """The first line of a message; what follows is not read.

    Raises:
        BadInputError: it is no message.
    """
    line = body[: body.find(b"\n", 0, MAX_LINE_BYTES) + 1]
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInputError("this is no message of the expert protocol") from error
    return header if isinstance(header, dict) else {}


def read_message(body: bytes, new_path: Callable[[str], Path]) -> Any:
    """Decode the value of a message; `new_path` returns a path for a suffix.

    Raises:
        BadInputError: it is no message, or is incomplete.
        UnsupportedError: it names a file or an array that was not sent.
        OSError: a file cannot be written.
    """
    header = read_header(body)
    try:
        begin = body.index(b"\n") + 1
        ends = [*accumulate(header["bytes"], initial=body.index(b"\n", begin, begin + MAX_LINE_BYTES) + 1)]
        if ends[-1] != len(body) or ends != sorted(ends):
            raise ValueError("its length is not the one that it states")
        view = memoryview(body)
        parts = [view[first:last] for first, last in pairwise(ends)]
        return json.loads(
            body[begin : ends[0]], object_hook=partial(_decode, header["mark"], parts, new_path)
        )
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the message cannot be read: {error}") from error


def _decode(
    mark: str, parts: Sequence[memoryview], new_path: Callable[[str], Path], value: dict[str, Any]
) -> Any:
    """What an object of JSON stands for."""
    kind = value.get(mark)
    if kind == "resource":
        path = value["file"]
        return _reject(path) if isinstance(path, str) else Resource(**value["fields"], path=path)
    if kind == "file":
        path = new_path(Path(f"file{value['suffix']}").suffix)
        path.write_bytes(parts[value["part"]])
        return path
    if kind == "image":
        from PIL import Image

        image = Image.open(io.BytesIO(parts[value["part"]]), formats=["PNG"])
        image.load()
        return image
    if kind == "array":
        import numpy as np

        array = np.load(io.BytesIO(parts[value["part"]]), allow_pickle=False)
        return array if array.dtype.kind in _NUMBERS else _reject(array)
    return value
