"""Devices and number types of local models, their weights in bytes, and seeded random numbers.

The pool decides which of several GPUs a model is loaded on (see `choosing`). Importing this never imports
torch.
"""

import gc
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jarvis_agent.core.errors import ConfigError, OutOfMemoryError
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.settings import Settings

Chooser = Callable[[Mapping[str, int], int | None], str | None]
"""Takes each GPU's limit and a model's bytes (None: unknown); returns a GPU, or None if it fits on none."""

GPU_SHARE = 0.8
"""Share of a GPU's memory for weights, if `memory_budget` is not set."""

_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of a GPU on Linux: NVIDIA, AMD, and Windows' subsystem."""

_chooser: ContextVar[Chooser | None] = ContextVar("jarvis_device_chooser", default=None)
_SEED_LOCK = fork_safe(threading.Lock())


@contextmanager
def choosing(choose: Chooser) -> Iterator[None]:
    """Within the block, `choose_device` in this thread asks `choose` for the GPU."""
    token = _chooser.set(choose)
    try:
        yield
    finally:
        _chooser.reset(token)


def choose_device(settings: Settings, size: int | None = None) -> Any:
    """The device for a model of `size` bytes (None: unknown); of several GPUs the one with the most room.

    A model larger than every GPU's limit is placed on the CPU, unless the settings name a device. Raises
    ConfigError if that device does not exist here.
    """
    import torch

    device = pick_device(settings.device)
    if device.type != "cuda":
        return device
    limits = gpu_limits(settings)
    if settings.device != "auto":
        device = device if device.index is not None else torch.device("cuda", torch.cuda.current_device())
        limits = {str(device): limits[str(device)]}
    if (choose := _chooser.get()) is not None:
        chosen = choose(limits, size)
    else:
        chosen = next((gpu for gpu, limit in limits.items() if limit >= (size or 0)), None)
    if chosen is None and settings.device != "auto":
        return device
    return torch.device(chosen or "cpu")


def gpu_limits(settings: Settings) -> dict[str, int]:
    """Bytes of weights allowed on each GPU: `{"cuda:0": 19_000_000_000}`."""
    import torch

    limits: dict[str, int] = {}
    for number in range(torch.cuda.device_count()):
        memory: int = torch.cuda.get_device_properties(number).total_memory
        limits[f"cuda:{number}"] = min(int(GPU_SHARE * memory), settings.memory_budget or memory)
    return limits


def largest_budget(settings: Settings) -> int | None:
    """Bytes of the largest model that may be loaded, in RAM or on a GPU. Never imports torch.

    None: there is no limit (`memory_budget=0`), or torch, which knows the GPUs, is not imported yet.
    """
    if settings.memory_budget == 0:
        return None
    if settings.device in ("cpu", "mps") or find_spec("torch") is None:
        return settings.memory_limit
    if "torch" in sys.modules:
        return max(settings.memory_limit, *gpu_limits(settings).values(), 0)
    may_have_gpu = sys.platform != "linux" or any(Path(driver).exists() for driver in _DRIVERS)
    return None if may_have_gpu else settings.memory_limit


def pick_device(wanted: str) -> Any:
    """The torch.device for a setting; "auto" is the first GPU, Apple's GPU, or the CPU."""
    import torch

    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"the device {wanted!r} is not available", detail=error, advice="JARVIS_DEVICE names another"
        ) from error
    return device


def pick_dtype(device: Any, *, exact: bool = False) -> Any:
    """The torch.dtype of a model: bfloat16 on a GPU with units for it, unless it is `exact`; else float32."""
    import torch

    fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if fast and not exact else torch.float32


def computes_in_half(settings: Settings) -> bool:
    """Whether models compute in 16 bits, so that 16-bit weights suffice."""
    return bool(pick_dtype(pick_device(settings.device)).itemsize == 2)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw torch's random numbers from the seed, in one block at a time: threads share a generator."""
    import torch

    with _SEED_LOCK, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of any library says that RAM or a GPU's memory is full."""
    if isinstance(error, MemoryError | OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "out of memory" in str(error).lower()


def weight_bytes(*modules: Any) -> int:
    """Bytes of the parameters and buffers of torch modules."""
    return sum(bytes_by_device(*modules).values())


def bytes_by_device(*modules: Any) -> dict[str, int]:
    """The same by device ("cpu", "cuda:0"). Shared storage counts once; other objects count nothing."""
    import torch

    sizes: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    for module in modules:
        tensors = [*module.parameters(), *module.buffers()] if isinstance(module, torch.nn.Module) else []
        for tensor in tensors:
            # Apple's GPU shares the RAM.
            device = "cpu" if tensor.device.type == "mps" else str(tensor.device)
            storage = tensor.untyped_storage()
            if tensor.device.type != "meta" and (device, storage.data_ptr()) not in seen:
                seen.add((device, storage.data_ptr()))
                sizes[device] = sizes.get(device, 0) + storage.nbytes()
    return sizes


def free_caches() -> None:
    """Return unused memory to the system and to other users of the GPU."""
    gc.collect()
    torch: Any = sys.modules.get("torch")
    # While another thread imports torch, its names are not there yet.
    if hasattr(torch, "cuda") and hasattr(torch.cuda, "empty_cache") and torch.cuda.is_available():
        torch.cuda.empty_cache()
