"""What models weigh, and whether an error says that memory is full. Never imports torch itself.

weight_bytes(pipeline)        # 347_000_000
is_out_of_memory(error)       # True
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Iterator
from typing import Any

from jarvis_agent.errors import OutOfMemoryError


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that RAM or a GPU's memory is full, whichever library raised it."""
    if isinstance(error, MemoryError | OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()


def weight_bytes(*objects: Any) -> int:
    """Bytes of the parameters and buffers of the torch modules found in the objects and what they hold."""
    torch = _torch()
    if torch is None:
        return 0
    modules = [part for thing in objects for part in _parts(thing) if isinstance(part, torch.nn.Module)]
    tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


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


def _parts(thing: Any, depth: int = 2) -> Iterator[Any]:
    """The thing, and what it holds: a function's closure, a method's object, an instance's attributes."""
    yield thing
    if depth == 0 or isinstance(thing, types.ModuleType | type):
        return
    match thing:
        case types.FunctionType():
            held = [value for cell in thing.__closure__ or () for value in _contents(cell)]
        case types.MethodType():
            held = [thing.__self__]
        case functools.partial():
            held = [thing.func, *thing.args, *thing.keywords.values()]
        case _:
            held = list(getattr(thing, "__dict__", {}).values())
    for part in held:
        yield from _parts(part, depth - 1)


def _contents(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # a variable that is not bound yet
        return []
