"""What models weigh, and whether an error says that memory is full. Never imports torch itself.

weight_bytes(pipeline)        # 347_000_000
bytes_by_device(expert)       # {"cuda:0": 347_000_000}
is_out_of_memory(error)       # True
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Iterator
from typing import Any

from jarvis_agent.core.errors import OutOfMemoryError

_MANY = 100
"""Longer lists and dicts hold data, and no models."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that RAM or a GPU's memory is full, whichever library raised it."""
    if isinstance(error, MemoryError | OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()


def weight_bytes(*objects: Any) -> int:
    """Bytes of the parameters and buffers of the torch modules found in the objects and what they hold."""
    return sum(bytes_by_device(*objects).values())


def bytes_by_device(*objects: Any) -> dict[str, int]:
    """The same by the device on which they lie ("cpu", "cuda:0"); what is shared is counted once."""
    torch = _torch()
    if torch is None:
        return {}
    leaf = torch.nn.Module
    modules = [part for thing in objects for part in _parts(thing, leaf) if isinstance(part, leaf)]
    tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    storages = {
        (str(tensor.device), tensor.untyped_storage().data_ptr()): tensor.untyped_storage().nbytes()
        for tensor in tensors
        if tensor.device.type != "meta"
    }
    found: dict[str, int] = {}
    for (device, _), nbytes in storages.items():
        # Apple's GPU has no memory of its own.
        name = "cpu" if device.startswith("mps") else device
        found[name] = found.get(name, 0) + nbytes
    return found


def free_caches() -> None:
    """Give memory that nobody uses any more back to the system and to the GPU's other users."""
    gc.collect()
    torch = _torch()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _torch() -> Any:
    """torch, if it has been imported. While another thread imports it, its names are not there yet: None."""
    torch = sys.modules.get("torch")
    return None if getattr(getattr(torch, "__spec__", None), "_initializing", False) else torch


def _parts(thing: Any, leaf: type, depth: int = 3) -> Iterator[Any]:
    """The thing, and what it holds, unless it is a leaf: attributes, values, a function's closure."""
    yield thing
    if depth == 0 or isinstance(thing, types.ModuleType | type | leaf):
        return
    for part in _held(thing):
        yield from _parts(part, leaf, depth - 1)


def _held(thing: Any) -> list[Any]:
    match thing:
        case types.FunctionType():
            return [value for cell in thing.__closure__ or () for value in _contents(cell)]
        case types.MethodType():
            return [thing.__self__]
        case functools.partial():
            return [thing.func, *thing.args, *thing.keywords.values()]
        case dict() | list() | tuple() if len(thing) > _MANY:
            return []
        case dict():
            return list(thing.values())
        case list() | tuple():
            return list(thing)
        case _:
            slots = [getattr(thing, name, None) for name in getattr(type(thing), "__slots__", ())]
            return [*slots, *getattr(thing, "__dict__", {}).values()]


def _contents(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # a variable that is not bound yet
        return []
