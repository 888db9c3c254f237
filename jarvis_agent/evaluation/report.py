"""What an evaluation came to: figures with their intervals, time and tokens; alone, or two side by side.

report = report_on("offline", scores, predictions)
report.figures[0]                 # Figure(name="node F1", value=0.76, low=0.74, high=0.78)
report.failed, report.reason      # requests at which the planner failed, and why most of them
differences(scores, others)       # what the second run does better, with intervals of the difference
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from jarvis_agent.core.errors import InputError, MissingExtraError
from jarvis_agent.evaluation.metrics import Counts, Metric, Mode, Scored, Scores
from jarvis_agent.evaluation.predictions import Prediction
from jarvis_agent.core.types import Frozen, Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

RESAMPLES = 1000
"""Draws of requests from which the intervals come (percentile bootstrap, Efron 1979)."""


class Figure(Frozen):
    """A figure between 0 and 1, and the 95 % interval that resampled requests give it."""

    name: str
    value: float
    low: float
    high: float


class Report(Frozen):
    """The outcome of one evaluation.

    Attributes:
        name: what was evaluated.
        mode: how invented tools and missing answers count (see `metrics`).
        requests: how many were scored.
        left_out: how many have a gold plan and were not scored.
        unanswered: how many of those scored have no plan, an empty one included.
        failed: how many have none since the planner failed, or wrote a record that can not be read.
        reason: the commonest reason why.
        figures: the larger the better, but for the edit distance.
        seconds: median and 95th percentile of the time that a request took; empty if no time is known.
        usage: calls and tokens of the language model, for all requests.
    """

    name: str
    mode: Mode
    requests: int
    left_out: int = 0
    unanswered: int
    failed: int = 0
    reason: str | None = None
    figures: list[Figure]
    seconds: tuple[float, ...] = ()
    usage: Usage = Usage()


class Part(NamedTuple):
    """What a request adds to a figure: to its numerator, its denominator, and what else was to be counted.

    Where the denominators of all requests add up to nothing, the figure is 0 if `else_due` does not.
    """

    above: float
    below: float = 1.0
    else_due: float = 0.0


Share = Callable[[T], Part]
"""The part that a request has in a figure."""


def f1_part(counts: Counts) -> Part:
    """Of F1."""
    return Part(2.0 * counts.both, counts.predicted + counts.gold)


def _f1_of(metric: Metric) -> Share[Scored]:
    return lambda one: f1_part(one.counts[metric])


FIGURES: dict[str, Share[Scored]] = {
    "node F1": _f1_of("node"),
    "edge F1": _f1_of("edge"),
    "argument type F1": _f1_of("type"),
    "argument value F1": _f1_of("value"),
    "edit distance": lambda one: Part(1.0 - one.likeness),
    "exact graph": lambda one: Part(float(one.exact)),
}
"""The figures of a report: ratios of what the requests add up to."""


def report_on(name: str, scores: Scores, predictions: Sequence[Prediction] = (), left_out: int = 0) -> Report:
    """Sum up scores, and the time and tokens that the predictions took.

    Raises:
        MissingExtraError: numpy is not installed, which resamples the requests.
    """
    failures = [one.error for one in predictions if one.error is not None]
    return Report(
        name=name,
        mode=scores.mode,
        requests=len(scores.requests),
        left_out=left_out,
        unanswered=sum(one.counts["node"].predicted == 0 for one in scores.requests),
        failed=len(failures),
        reason=commonest(failures),
        figures=figures_of(scores.requests, FIGURES),
        seconds=seconds_of(predictions),
        usage=sum((one.usage for one in predictions), Usage()),
    )


def commonest(reasons: Sequence[str]) -> str | None:
    """The reason that most failures have; None without any."""
    return Counter(reasons).most_common(1)[0][0] if reasons else None


def seconds_of(predictions: Sequence[Prediction]) -> tuple[float, ...]:
    """Median and 95th percentile of the time that a request took; empty where no time is known."""
    times = sorted(one.seconds for one in predictions if one.seconds is not None)
    if not times:
        return ()
    late = quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
    return round(median(times), 4), round(late, 4)


def figures_of(scored: Sequence[T], shares: Mapping[str, Share[T]]) -> list[Figure]:
    """Figures of anything that was scored, with their intervals; 1 where there is nothing to count.

    Raises:
        MissingExtraError: numpy is not installed, which resamples.
    """
    return _figures(_resampled(scored, shares), shares)


def differences(scores: Scores, others: Scores) -> list[Figure]:
    """By how much the second run's figures exceed the first's, on the requests that both have.

    Raises:
        InputError: they have no request in common.
    """
    second = {one.id: one for one in others.requests}
    pairs = [(one, second[one.id]) for one in scores.requests if one.id in second]
    return differences_of(pairs, FIGURES)


def differences_of(pairs: Sequence[tuple[T, T]], shares: Mapping[str, Share[T]]) -> list[Figure]:
    """By how much the figures of the second of each pair exceed those of the first.

    The intervals are of the difference, request by request (paired bootstrap): one that does not hold 0
    tells that the runs differ.

    Raises:
        InputError: there is no pair.
        MissingExtraError: numpy is not installed, which resamples.
    """
    if not pairs:
        raise InputError("the two runs have no request in common")
    first, then = (_resampled(side, shares) for side in zip(*pairs, strict=True))
    return _figures(then - first, shares)


def _resampled(scored: Sequence[T], shares: Mapping[str, Share[T]]) -> NDArray[np.float64]:
    """The figures of the requests, and then of `RESAMPLES` draws from them; shape (1 + RESAMPLES, figures).

    Where a draw has nothing to count for a figure, that figure is NaN. Draws of as many requests are the
    same draws, so that two runs can be compared draw by draw.
    """
    try:
        import numpy as np
    except ImportError as error:
        raise MissingExtraError("an evaluation", "eval") from error
    count = len(scored)
    if not count:
        return np.zeros((1 + RESAMPLES, len(shares)))
    added = np.array([[share(one) for share in shares.values()] for one in scored], float)
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    weights = np.vstack([np.ones(count), drawn])
    above, below, else_due = (weights @ added[..., part] for part in range(3))
    figures: NDArray[np.float64] = np.where(else_due > 0, 0.0, np.nan)
    np.divide(above, below, out=figures, where=below > 0)
    figures[0, np.isnan(figures[0])] = 1.0
    return figures


def _figures(resampled: NDArray[np.float64], names: Iterable[str]) -> list[Figure]:
    """The figures in the first row, with the interval in which 95 % of the other rows lie that are no NaN."""
    import numpy as np

    draws = resampled[1:]
    uncounted = np.isnan(draws).all(axis=0)
    low, high = np.nanquantile(np.where(uncounted, resampled[0], draws), [0.025, 0.975], axis=0)
    columns = zip(names, resampled[0], low, high, strict=True)
    return [
        Figure(name=name, value=round(float(value), 6), low=round(float(a), 6), high=round(float(b), 6))
        for name, value, a, b in columns
    ]
