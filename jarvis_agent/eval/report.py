"""What an evaluation came to: figures with their intervals, time and tokens; alone, or two side by side.

report = report_on("offline", scores, predictions)
report.figures[0]                 # Figure(name="node F1", value=0.76, low=0.74, high=0.78)
differences(scores, others)       # what the second run does better, with intervals of the difference
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median, quantiles
from typing import TYPE_CHECKING, TypeVar

from jarvis_agent.errors import InputError, MissingExtraError
from jarvis_agent.eval.metrics import Metric, Mode, Scored, Scores
from jarvis_agent.eval.predict import Prediction
from jarvis_agent.types import Frozen, Usage

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
        unanswered: how many of them have no plan, an empty one included.
        figures: the larger the better, but for the edit distance.
        seconds: median and 95th percentile of the time that a request took; empty if no time is known.
        usage: calls and tokens of the language model, for all requests that were planned now.
    """

    name: str
    mode: Mode
    requests: int
    unanswered: int
    figures: list[Figure]
    seconds: tuple[float, ...] = ()
    usage: Usage = Usage()


Share = Callable[[T], tuple[float, float]]
"""What a request adds to the numerator and to the denominator of a figure."""


def _f1_of(metric: Metric) -> Share[Scored]:
    def share(one: Scored) -> tuple[float, float]:
        counts = one.counts[metric]
        return 2.0 * counts.both, float(counts.predicted + counts.gold)

    return share


FIGURES: dict[str, Share[Scored]] = {
    "node F1": _f1_of("node"),
    "edge F1": _f1_of("edge"),
    "argument type F1": _f1_of("type"),
    "argument value F1": _f1_of("value"),
    "edit distance": lambda one: (1.0 - one.likeness, 1.0),
    "exact graph": lambda one: (float(one.exact), 1.0),
}
"""The figures of a report: ratios of what the requests add up to."""


def report_on(name: str, scores: Scores, predictions: Sequence[Prediction] = ()) -> Report:
    """Sum up scores, and the time and tokens that the predictions took.

    Raises:
        MissingExtraError: numpy is not installed, which resamples the requests.
    """
    return Report(
        name=name,
        mode=scores.mode,
        requests=len(scores.requests),
        unanswered=sum(one.counts["node"].predicted == 0 for one in scores.requests),
        figures=figures_of(scores.requests, FIGURES),
        seconds=seconds_of(predictions),
        usage=sum((one.usage for one in predictions), Usage()),
    )


def seconds_of(predictions: Sequence[Prediction]) -> tuple[float, ...]:
    """Median and 95th percentile of the time that a request took; empty without predictions."""
    times = sorted(one.seconds for one in predictions)
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

    The intervals are of the difference, request by request (paired bootstrap): one that does not hold 0
    tells that the runs differ.

    Raises:
        InputError: they have no request in common.
    """
    second = {one.id: one for one in others.requests}
    pairs = [(one, second[one.id]) for one in scores.requests if one.id in second]
    if not pairs:
        raise InputError("the two runs have no request in common")
    first, then = (_resampled(side, FIGURES) for side in zip(*pairs, strict=True))
    return _figures(then - first, FIGURES)


def _resampled(scored: Sequence[T], shares: Mapping[str, Share[T]]) -> NDArray[np.float64]:
    """The figures of the requests, and then of `RESAMPLES` draws from them; shape (1 + RESAMPLES, figures).

    Draws of as many requests are the same draws, so that two runs can be compared draw by draw.
    """
    try:
        import numpy as np
    except ImportError as error:
        raise MissingExtraError("an evaluation", "eval") from error
    count = len(scored)
    if not count:
        return np.zeros((1 + RESAMPLES, len(shares)))
    added = np.array([[share(one) for share in shares.values()] for one in scored])
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    weights = np.vstack([np.ones(count), drawn])
    above, below = weights @ added[..., 0], weights @ added[..., 1]
    figures: NDArray[np.float64] = np.divide(above, below, out=np.ones_like(above), where=below > 0)
    return figures


def _figures(resampled: NDArray[np.float64], names: Iterable[str]) -> list[Figure]:
    """The figures in the first row, with the interval in which 95 % of the other rows lie."""
    import numpy as np

    low, high = np.quantile(resampled[1:], [0.025, 0.975], axis=0)
    columns = zip(names, resampled[0], low, high, strict=True)
    return [
        Figure(name=name, value=round(float(value), 6), low=round(float(a), 6), high=round(float(b), 6))
        for name, value, a, b in columns
    ]
