"""Where local models are put, and the numbers that they compute with.

device = place(settings)                       # torch.device("cuda:1")
dtype = pick_dtype(settings.dtype, device)     # torch.bfloat16
"""

from __future__ import annotations

from typing import Any

from jarvis_agent.errors import ConfigError
from jarvis_agent.settings import Settings


def place(settings: Settings) -> Any:
    """The torch.device for a model that is loaded now.

    Raises:
        ConfigError: the settings name a device that is not here.
    """
    return pick_device(settings.device)


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
