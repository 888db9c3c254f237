"""How close a plan's graph comes to the gold one, by the metrics of TaskBench, with intervals.

F1 is micro-averaged: true positives, predicted and gold facts are summed over all requests. Repeated facts,
unknown tools and references to missing nodes count, unlike in TaskBench's own script.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median, quantiles
from typing import Any, Literal, TypeVar

from jarvis_agent.core.references import ref, refs_in
from jarvis_agent.core.types import Frozen, Task, Usage
from jarvis_agent.evaluation.predict import Prediction

Metric = Literal["node", "edge", "type", "value"]
"""Tools; links; tools with the kind of each argument; the same with the arguments' values."""

_EXTENSIONS = {
    "image": ("jpg", "png", "jpeg", "gif", "bmp", "tiff", "svg", "ico"),
    "audio": ("mp3", "wav", "wma", "ogg", "aac", "flac", "aiff", "au"),
    "video": ("mp4", "avi", "mov", "flv", "wmv", "mkv", "webm", "m4v", "mpg", "mpeg"),
}
"""TaskBench takes the kind of an argument from the first of these found anywhere in it."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Facts in both plans, in the predicted one, and in the gold one."""

    both: int = 0
    predicted: int = 0
    gold: int = 0

    @property
    def f1(self) -> float:
        """Return F1; 1 if there are no facts at all."""
        facts = self.predicted + self.gold
        return 2 * self.both / facts if facts else 1.0


@dataclass(frozen=True, slots=True)
class Score:
    """One request: counts by metric, similarity of the tool sequences (0 to 1), equality of the graphs."""

    counts: Mapping[Metric, Counts]
    similarity: float
    exact: bool


def score(gold: Sequence[Task], predicted: Sequence[Task], makes: Mapping[str, str]) -> Score:
    """Compare a predicted plan with the gold one.

    Args:
        makes: the known tools, with the kind of their first output ("none" without one).
    """
    expected, produced = _facts(gold, makes), _facts(predicted, makes)
    return Score(
        counts={metric: _counts(produced[metric], expected[metric]) for metric in expected},
        similarity=similarity([task.task for task in predicted], [task.task for task in gold]),
        exact=all(Counter(expected[metric]) == Counter(produced[metric]) for metric in ("node", "edge")),
    )


def _facts(tasks: Sequence[Task], makes: Mapping[str, str]) -> dict[Metric, list[Hashable]]:
    """What a plan says, by metric. A link from no task, or from the task itself, stays as it is written."""
    names = {task.id: task.task for task in tasks}
    links, arguments = list[Hashable](), list[tuple[str, str, str]]()
    for task in tasks:
        for value in _values([*task.args.values()]):
            sources = refs_in(value)
            for number in sources:
                name = names.get(number)
                links.append((ref(number) if name is None or number == task.id else name, task.task))
                source = ("text", ref(number)) if name is None else (makes.get(name, "other"), name)
                arguments.append((task.task, *source))
            if not sources:
                arguments.append((task.task, _kind_of(str(value)), str(value)))
    return {
        "node": [task.task for task in tasks],
        "edge": links,
        "type": [argument[:2] for argument in arguments],
        "value": [*arguments],
    }


def _values(value: Any) -> Iterator[Any]:
    """A value, or those of nested lists one by one."""
    if isinstance(value, list):
        for item in value:
            yield from _values(item)
    elif value is not None:
        yield value


def _kind_of(value: str) -> str:
    kinds = (kind for kind, endings in _EXTENSIONS.items() if any(f".{end}" in value for end in endings))
    return next(kinds, "text")


def _counts(predicted: Iterable[Hashable], gold: Iterable[Hashable]) -> Counts:
    produced, right = Counter(predicted), Counter(gold)
    return Counts((produced & right).total(), produced.total(), right.total())


def similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """Return twice the longest common subsequence over both lengths; 1 for two empty sequences.

    One minus this is the normalised edit distance by insertions and deletions (Levenshtein's `ratio`).
    """
    if not first and not second:
        return 1.0
    row = [0] * (len(second) + 1)
    for item in first:
        diagonal = 0
        for place, candidate in enumerate(second, 1):
            above = row[place]
            row[place] = diagonal + 1 if item == candidate else max(above, row[place - 1])
            diagonal = above
    return 2 * row[-1] / (len(first) + len(second))


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


def f1(*counts: Counts) -> tuple[float, float]:
    """Return what one item adds to a micro-averaged F1."""
    return 2.0 * sum(each.both for each in counts), sum(each.predicted + each.gold for each in counts)


def figure(name: str, parts: Sequence[tuple[float, float]]) -> Figure:
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
