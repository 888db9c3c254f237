"""Figures beside their limits, printed and written as a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BEGIN, END = "<!-- figures: python benchmarks/run.py --write -->\n", "<!-- end of figures -->\n"


@dataclass(frozen=True)
class Figure:
    """One measured value and what it may not pass, or with `at_least` must reach; None: anything will do."""

    name: str
    value: float
    limit: float | None = None
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def bound(self) -> str:
        return "" if self.limit is None else f"{'≥' if self.at_least else '≤'} {self.limit:g}"

    def __str__(self) -> str:
        mark = "ok  " if self.met else "MISS"
        return f"{mark} {self.name:<86} {self.value:>9.3f} {self.unit:<7} {self.bound}".rstrip()


def table(figures: Iterable[Figure]) -> str:
    """The figures as a Markdown table."""
    rows = [
        f"| {one.name} | {one.value:.3g} {one.unit} | {one.bound} |".replace("  ", " ") for one in figures
    ]
    return "\n".join(["| figure | measured | target |", "|---|---|---|", *rows, ""])


def write(page: Path, figures: Iterable[Figure], measured_on: str) -> None:
    """Put the table between the marks of a page.

    Raises:
        ValueError: the page has no marks.
    """
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, mark, tail = rest.partition(END)
    if not mark:
        raise ValueError(f"{page} has no place for figures: {BEGIN.strip()} … {END.strip()}")
    page.write_text(f"{head}{BEGIN}\n{measured_on}\n\n{table(figures)}\n{END}{tail}", encoding="utf-8")
