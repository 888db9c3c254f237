"""Calls and raw outputs as bytes, for other nodes: JSON, then the files, images and arrays that it names.

    parts = pack({"depth": array, "image": Resource(...)})      # [b'{"$dict": …', b"…", b"…"]
    value = unpack(parts, new_path)                # files are written where new_path(suffix) says

Nothing is pickled, so that reading a message executes no code and does not need the sender's libraries.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.types import Resource

Parts = Sequence[Any]
"""JSON, and the bytes that it refers to by number; or one reference to all of these in Ray's object store."""

INLINE_BYTES = 100_000
"""Parts of more bytes go to the object store, past the processes that only pass them on."""

_NUMBERS = "biuf"
"""Kinds of dtypes of numpy that are sent as arrays."""

_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})


def pack(value: Any) -> list[bytes]:
    """Encode JSON values, Resources, paths of files, PIL images, arrays and tensors. Tuples become lists.

    Raises:
        UnsupportedError: there is something else in the value.
        OSError: a file cannot be read.
    """
    parts = [b""]
    parts[0] = json.dumps(_encode(value, parts)).encode()
    return parts


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
    raise UnsupportedError(f"a {type(value).__name__} cannot be sent between the nodes of a cluster")


def unpack(parts: Parts, new_path: Callable[[str], Path]) -> Any:
    """Decode what `pack` made; `new_path` returns a path for a suffix."""
    return _decode(json.loads(parts[0]), parts, new_path)


def _decode(value: Any, parts: Parts, new_path: Callable[[str], Path]) -> Any:
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


def store(parts: Parts) -> Parts:
    """The parts, or a reference to them if they are large. Blocks. Raises errors of Ray."""
    import ray

    return [ray.put(parts)] if sum(map(len, parts)) > INLINE_BYTES else parts


def fetch(parts: Parts) -> Parts:
    """What `store` was given. Blocks. Raises errors of Ray."""
    import ray

    return parts if isinstance(parts[0], bytes) else ray.get(parts[0])
