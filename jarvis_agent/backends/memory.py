"""What may stay loaded on each device, and what does: the books of the pool, in bytes of weights.

    budget = Budget({"cpu": 8_000_000_000})
    budget.limits["cuda:0"] = 19_000_000_000
    budget.over({"cpu": 9_000_000_000})        # ["cpu"]

RAM is the device "cpu"; every GPU has a budget of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jarvis_agent.backends.weights import bytes_by_device

RAM = "cpu"

Bytes = Mapping[str, int]
"""Bytes of weights by device."""


@dataclass(eq=False, slots=True)
class Budget:
    """Limits by device. A GPU comes into the books when the first model is placed on one."""

    limits: dict[str, int] = field(default_factory=dict)

    @property
    def gpus(self) -> list[str]:
        """The GPUs that are known."""
        return [device for device in self.limits if device != RAM]

    def over(self, used: Bytes) -> list[str]:
        """The devices on which more lies than their limit."""
        return [device for device, limit in self.limits.items() if used.get(device, 0) > limit]

    def holds(self, device: str, used: Bytes, size: int) -> bool:
        """Whether a model fits on a device beside what lies there."""
        return used.get(device, 0) + size <= self.limits[device]

    def roomiest(self, devices: Iterable[str], used: Bytes, busy: Bytes, size: int | None) -> str | None:
        """The GPU for a model: the one with the most room, now or else once the idle models have gone.

        Args:
            used: what lies on each GPU.
            busy: the part of it that is in use, and stays.
            size: bytes of the model; None: unknown, which fits everywhere.

        Returns:
            None if the model is larger than every limit.
        """
        able = [device for device in devices if size is None or size <= self.limits[device]]
        fits = [device for device in able if self.holds(device, used, size or 0)]
        taken = used if fits else busy
        return max(fits or able, key=lambda device: self.limits[device] - taken.get(device, 0), default=None)


def total(parts: Iterable[Bytes]) -> dict[str, int]:
    """The sum of bytes by device."""
    summed: dict[str, int] = {}
    for part in parts:
        for device, count in part.items():
            summed[device] = summed.get(device, 0) + count
    return summed


def measure(expert: Any, size: int | None) -> dict[str, int]:
    """Where the weights of a loaded expert lie: its torch modules, and what it says of itself (`nbytes`).

    `size` is what its files weigh, for an expert of which nothing else is known.
    """
    found = bytes_by_device(expert)
    stated = getattr(expert, "nbytes", None)
    if not isinstance(stated, int):
        return found or {RAM: size or 0}
    main = max(found, key=lambda device: found[device], default=RAM)
    unseen = max(0, stated - sum(found.values()))
    return {**found, main: found.get(main, 0) + unseen}
