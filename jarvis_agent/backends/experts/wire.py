"""Messages of the expert server as bytes: a line of JSON, then the files, images and arrays that it names.

    body = write_message({"depth": array, "image": Resource(...)}, protocol=1)
    read_header(body)["protocol"]                  # 1
    value = read_message(body, new_path)           # files are written where new_path(suffix) says

Nothing is pickled, so that reading a message executes no code and does not need the sender's libraries.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

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
    encoded = _encode(value, parts)
    return b"".join([write_line(**header, bytes=[*map(len, parts)], value=encoded), *parts])


def write_line(**fields: Any) -> bytes:
    """A line of JSON."""
    return json.dumps(fields).encode() + b"\n"


PROGRESS = b'{"progress":'
"""How lines begin that come before a reply."""


def write_progress(lines: Sequence[tuple[str, str]]) -> bytes:
    """What is done for a call, each as a model and a text, as a line before its reply."""
    return write_line(progress=lines)


def read_progress(line: bytes) -> list[tuple[str, str]]:
    """What `write_progress` was given."""
    return [(str(model), str(text)) for model, text in json.loads(line)["progress"]]


def _encode(value: Any, parts: list[bytes]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {"$dict": [[_key(key), _encode(item, parts)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_encode(item, parts) for item in value]
    if isinstance(value, Resource):
        fields = _encode(value.model_dump(exclude={"path"}), parts)
        return {"$resource": fields, "file": value.path and _encode(value.path, parts)}
    if isinstance(value, Path):
        return {"$file": _add(value.read_bytes(), parts), "suffix": value.suffix}
    if (mode := getattr(value, "mode", None)) in _PNG_MODES:
        value.save(png := io.BytesIO(), format="PNG", compress_level=1)
        return {"$image": _add(png.getvalue(), parts)}
    return _encode_array(value, parts) if mode or hasattr(value, "tolist") else _reject(value)


def _key(key: Any) -> str | int:
    return key if isinstance(key, str | int) else str(key)


def _encode_array(value: Any, parts: list[bytes]) -> Any:
    """An array, tensor or image as .npy, a scalar of numpy as a number."""
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()  # numpy has no bfloat16
    array = np.asarray(value)
    if array.dtype.kind not in _NUMBERS:
        return _reject(value) if array.dtype.kind == "O" else _encode(array.tolist(), parts)
    if array.ndim == 0:
        return array.item()
    np.save(npy := io.BytesIO(), array, allow_pickle=False)
    return {"$array": _add(npy.getvalue(), parts)}


def _add(part: bytes, parts: list[bytes]) -> int:
    parts.append(part)
    return len(parts) - 1


def _reject(value: Any) -> Any:
    raise UnsupportedError(f"a {type(value).__name__} cannot be sent to or from the expert server")


def read_header(body: bytes) -> dict[str, Any]:
    """The line of JSON of a message; what follows is not read.

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
        ends = [*accumulate(header["bytes"], initial=body.index(b"\n") + 1)]
        if ends[-1] != len(body) or ends != sorted(ends):
            raise ValueError("its length is not the one that it states")
        view = memoryview(body)
        return _decode(header["value"], [view[begin:end] for begin, end in pairwise(ends)], new_path)
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise BadInputError(f"the message cannot be read: {error}") from error


def _decode(value: Any, parts: Sequence[memoryview], new_path: Callable[[str], Path]) -> Any:
    if isinstance(value, list):
        return [_decode(item, parts, new_path) for item in value]
    if not isinstance(value, dict):
        return value
    if "$dict" in value:
        return {key: _decode(item, parts, new_path) for key, item in value["$dict"]}
    if "$resource" in value:
        fields = _decode(value["$resource"], parts, new_path)
        path = value["file"] and _decode(value["file"], parts, new_path)
        return Resource(**fields, path=path) if path is None or isinstance(path, Path) else _reject(path)
    if "$file" in value:
        path = new_path(Path(f"file{value['suffix']}").suffix)
        path.write_bytes(parts[value["$file"]])
        return path
    if "$image" in value:
        from PIL import Image

        image = Image.open(io.BytesIO(parts[value["$image"]]), formats=["PNG"])
        image.load()
        return image
    import numpy as np

    array = np.load(io.BytesIO(parts[value["$array"]]), allow_pickle=False)
    return array if array.dtype.kind in _NUMBERS else _reject(array)
