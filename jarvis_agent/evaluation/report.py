"""How close a plan's graph comes to the gold one, by the metrics of TaskBench, with intervals.

F1 is micro-averaged: true positives, predicted and gold facts are summed over all requests. Repeated facts,
unknown tools and references to missing nodes count, unlike in TaskBench's own script.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median, quantiles
from typing import TypeVar

from jarvis_agent.core.references import ref, refs_in
from jarvis_agent.core.types import Frozen, Task, Usage
from jarvis_agent.evaluation.predict import Prediction

Ratio = tuple[float, float]
"""What something adds to the numerator and to the denominator of a figure."""


@dataclass(frozen=True, slots=True)
class Score:
    """What the tools and links of one request add to a micro-averaged F1."""

    nodes: Ratio
    edges: Ratio

    @property
    def graph(self) -> Ratio:
        """Tools and links together."""
        return self.nodes[0] + self.edges[0], self.nodes[1] + self.edges[1]

    @property
    def exact(self) -> bool:
        """Whether both plans have the same tools and links."""
        return self.graph[0] == self.graph[1]


def score(gold: Sequence[Task], predicted: Sequence[Task]) -> Score:
    """Compare a predicted plan with the gold one."""
    nodes = _f1([task.task for task in predicted], [task.task for task in gold])
    return Score(nodes, _f1(_links(predicted), _links(gold)))


def _links(tasks: Sequence[Task]) -> Iterator[tuple[str, str]]:
    """The tools that each argument joins. A reference to no task, or to the task itself, stays as written."""
    names = {task.id: task.task for task in tasks}
    for task in tasks:
        sources = {**names, task.id: ref(task.id)}
        for value in task.args.values():
            for number in refs_in(value):
                yield sources.get(number, ref(number)), task.task


def _f1(predicted: Iterable[Hashable], gold: Iterable[Hashable]) -> Ratio:
    """Twice the facts of both plans, and the facts of each."""
    produced, right = Counter(predicted), Counter(gold)
    return 2 * (produced & right).total(), produced.total() + right.total()


T = TypeVar("T")

Ratios = Mapping[str, Callable[[T], Ratio]]
"""Figures by name: what an item adds to each."""


class Figure(Frozen):
    """A ratio with its 95 % interval; None where nothing is counted."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None


class EvaluationReport(Frozen):
    """One row of an evaluation's table.

    `unanswered` is how many of the `requests` have no plan or an empty one. `failed` is for how many the
    planner failed, and `reason` why it did most often. `seconds` are the median and 95th percentile of a
    request.
    """

    name: str
    requests: int
    unanswered: int = 0
    failed: int = 0
    reason: str | None = None
    figures: list[Figure]
    seconds: tuple[float, ...] = ()
    usage: Usage = Usage()


def figure(name: str, parts: Sequence[Ratio]) -> Figure:
    """Return the ratio of the sums, with the interval of a linearised ratio estimator (Cochran, 1977)."""
    above, below = sum(part[0] for part in parts), sum(part[1] for part in parts)
    if not below:
        return Figure(name=name, value=None)
    value, count = above / below, len(parts)
    spread = sum((amount - value * total) ** 2 for amount, total in parts)
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
    errors = Counter(prediction.error for prediction in predictions if prediction.error is not None)
    seconds = [prediction.seconds for prediction in predictions]
    late = quantiles(seconds, n=20)[-1:] if len(seconds) > 1 else seconds
    percentiles = [median(seconds), *late] if seconds else []
    return EvaluationReport(
        name=name,
        requests=len(items),
        unanswered=unanswered,
        failed=errors.total(),
        reason=next((error for error, _ in errors.most_common(1)), None),
        figures=[figure(label, [part(item) for item in items]) for label, part in ratios.items()],
        seconds=tuple(round(percentile, 4) for percentile in percentiles),
        usage=sum((prediction.usage for prediction in predictions), Usage()),
    )
