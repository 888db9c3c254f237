"""Where local models are put, and the numbers that they compute with.

device = place(settings)                       # torch.device("cuda:1")
device = place(settings, weight_bytes(model))  # torch.device("cpu"), if it fits on no GPU
dtype = pick_dtype(settings.dtype, device)     # torch.bfloat16

A pool that loads models decides on which of several GPUs a model goes (see `choosing`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings

Chooser = Callable[[Mapping[str, int], int | None], str | None]
"""Given each GPU's limit and the bytes of a model (None: unknown), names a GPU; None: it fits on none."""

GPU_SHARE = 0.8
"""The part of a GPU's memory that weights may take, unless the settings say how much."""

_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""What a machine with a GPU has under Linux: NVIDIA's driver, AMD's, that of Windows' subsystem."""

_chooser: ContextVar[Chooser | None] = ContextVar("jarvis_device_chooser", default=None)


@contextmanager
def choosing(choose: Chooser) -> Iterator[None]:
    """While it is open, `place` in this thread asks `choose` for the GPU."""
    token = _chooser.set(choose)
    try:
        yield
    finally:
        _chooser.reset(token)


def place(settings: Settings, size: int | None = None) -> Any:
    """The torch.device for a model that is loaded now. Of several GPUs it is the one with the most room.

    A model of `size` bytes that is larger than every GPU's limit belongs on the CPU, unless the settings name
    the device. Ask without a size for the device that computes, and with it once the weights are in RAM.

    Raises:
        ConfigError: the settings name a device that is not here.
    """
    import torch

    device = pick_device(settings.device)
    if device.type != "cuda":
        return device
    limits = gpu_limits(settings)
    if settings.device != "auto":
        device = device if device.index is not None else torch.device("cuda", torch.cuda.current_device())
        limits = {str(device): limits[str(device)]}
    choose = _chooser.get() or _first_that_holds
    chosen = choose(limits, size)
    if chosen is None and settings.device != "auto":
        return device
    return torch.device(chosen or "cpu")


def gpu_limits(settings: Settings) -> dict[str, int]:
    """Bytes of weights that may lie on each GPU: `{"cuda:0": 19_000_000_000}`."""
    import torch

    def limit(number: int) -> int:
        memory = torch.cuda.get_device_properties(number).total_memory
        return settings.gpu_memory_budget or int(GPU_SHARE * memory)

    return {f"cuda:{number}": limit(number) for number in range(torch.cuda.device_count())}


def largest_budget(settings: Settings) -> int | None:
    """Bytes of the largest model that may be loaded, in RAM or on a GPU. It never imports torch.

    None where there is no limit, since no model is kept after its use (a budget of 0), and where it is not
    known yet: there may be GPUs, and torch, which knows them, is not imported.
    """
    if settings.memory_budget == 0:
        return None
    if settings.device in ("cpu", "mps") or find_spec("torch") is None:
        return settings.memory_limit
    if "torch" in sys.modules:
        return max(settings.memory_limit, *gpu_limits(settings).values(), 0)
    may_be = sys.platform != "linux" or any(Path(driver).exists() for driver in _DRIVERS)
    return None if may_be else settings.memory_limit


def _first_that_holds(limits: Mapping[str, int], size: int | None) -> str | None:
    return next((device for device, limit in limits.items() if size is None or size <= limit), None)


def pick_device(wanted: str) -> Any:
    """The torch.device for a setting; "auto" is the first GPU, Apple's GPU, or the CPU.

    Raises:
        ConfigError: there is no such device here.
    """
    import torch

    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"the device {wanted!r} (JARVIS_DEVICE) is not here: {error}") from error
    return device


def computes_in_half(settings: Settings) -> bool:
    """Whether models compute with 16 bits, so that weights of 16 bits are all that they need.

    Raises:
        ConfigError: the settings name a device or dtype that is not there.
    """
    return bool(pick_dtype(settings.dtype, pick_device(settings.device)).itemsize == 2)


def pick_dtype(wanted: str, device: Any) -> Any:
    """The torch.dtype for a setting; "auto" is bfloat16 on a GPU that has it, and float32 elsewhere.

    Raises:
        ConfigError: there is no such dtype.
    """
    import torch

    if wanted == "auto":
        fast = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if fast else torch.float32
    dtype = getattr(torch, wanted, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ConfigError(f"{wanted!r} (JARVIS_DTYPE) is no dtype; take auto, float32, bfloat16 or float16")
    return dtype
