"""The rows of an evaluation's table: figures with 95 % intervals, time, tokens and failures.

row = report_on("offline", scores, FIGURES, predictions)
row.figures[0]                # Figure(name="node F1", value=0.76, low=0.74, high=0.78)
row.failed, row.reason        # how often the planner failed, and the most frequent error
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from statistics import median, quantiles
from typing import TypeVar

from jarvis_agent.core.types import Frozen, Usage
from jarvis_agent.evaluation.metrics import Counts
from jarvis_agent.evaluation.predict import Prediction

T = TypeVar("T")

Ratios = Mapping[str, Callable[[T], tuple[float, float]]]
"""Figures by name: what an item adds to the numerator and to the denominator."""


class Figure(Frozen):
    """A ratio with its 95 % interval; None where nothing is counted."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None


class EvaluationReport(Frozen):
    """One row of an evaluation's table.

    Attributes:
        name: the planner, or a group of requests.
        requests: number of scored requests.
        unanswered: how many of those have no plan or an empty one.
        failed: how many have no plan because the planner failed.
        reason: the most frequent error.
        seconds: median and 95th percentile of the time per request; empty if unknown.
        usage: calls and tokens of the language model for all requests.
    """

    name: str
    requests: int
    unanswered: int = 0
    failed: int = 0
    reason: str | None = None
    figures: list[Figure]
    seconds: tuple[float, ...] = ()
    usage: Usage = Usage()


def f1(counts: Counts) -> tuple[float, float]:
    """Return what one item adds to a micro-averaged F1."""
    return 2.0 * counts.both, counts.predicted + counts.gold


def figure(name: str, parts: Sequence[tuple[float, float]]) -> Figure:
    """Return the ratio of the sums, with the interval of a linearised ratio estimator (Cochran, 1977)."""
    above, below = sum(part[0] for part in parts), sum(part[1] for part in parts)
    if not below:
        return Figure(name=name, value=None)
    value, count = above / below, len(parts)
    spread = sum((one - value * of) ** 2 for one, of in parts)
    margin = 1.96 * sqrt(spread * count / (count - 1)) / below if count > 1 else 0.0
    low, high = max(value - margin, 0.0), min(value + margin, 1.0)
    return Figure(name=name, value=round(value, 6), low=round(low, 6), high=round(high, 6))


def report_on(
    name: str,
    items: Sequence[T],
    ratios: Ratios[T],
    predictions: Sequence[Prediction] = (),
    *,
    unanswered: int = 0,
) -> EvaluationReport:
    """Return the figures of scored items, with time, tokens and failures of their predictions."""
    errors = Counter(one.error for one in predictions if one.error is not None)
    return EvaluationReport(
        name=name,
        requests=len(items),
        unanswered=unanswered,
        failed=errors.total(),
        reason=next((error for error, _ in errors.most_common(1)), None),
        figures=[figure(label, [part(item) for item in items]) for label, part in ratios.items()],
        seconds=_percentiles([one.seconds for one in predictions]),
        usage=sum((one.usage for one in predictions), Usage()),
    )


def _percentiles(seconds: Sequence[float]) -> tuple[float, ...]:
    if not seconds:
        return ()
    late = quantiles(seconds, n=20)[-1] if len(seconds) > 1 else seconds[0]
    return round(median(seconds), 4), round(late, 4)
