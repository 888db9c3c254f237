"""A measured figure beside its limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One measured value and the limit that it may not exceed; None: any value is accepted."""

    name: str
    value: float
    limit: float | None = None
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        mark = "ok  " if self.met else "MISS"
        limit = "" if self.limit is None else f"≤ {self.limit:g}"
        return f"{mark} {self.name:<86} {self.value:>9.3f} {self.unit:<7} {limit}".rstrip()
