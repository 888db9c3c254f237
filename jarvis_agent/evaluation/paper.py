"""Plans judged as in the paper, on our own requests: by kind of request and by language.

    judged = judge_all(read_requests("dev"), predictions)
    for report in reports_on(judged, predictions):
        report.name, report.figures[0]       # "single", Figure("exact plan", 0.84, 0.76, 0.91)

The paper (Shen et al., "HuggingGPT", 2023) scores single tasks by accuracy, precision, recall and F1,
sequences by their edit distance too, and graphs by F1. Where several plans are right, the nearest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jarvis_agent.core.errors import InputError
from jarvis_agent.evaluation.plan_equality import same_plan
from jarvis_agent.evaluation.graphs import graph_of
from jarvis_agent.evaluation.metrics import Counts, Scored, score
from jarvis_agent.evaluation.predictions import Prediction
from jarvis_agent.evaluation.report import (
    Figure,
    Part,
    Report,
    Share,
    commonest,
    f1_part,
    figures_of,
    seconds_of,
)
from jarvis_agent.evaluation.requests import KINDS, LANGUAGES, OwnRequest
from jarvis_agent.planning.plan import Plan
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task, Usage

_MAKES = {spec.name: spec.outputs[0] for spec in TASKS.values()}


@dataclass(frozen=True, slots=True)
class Judged:
    """A request, the plan that was made for it, and how near it comes to the nearest plan that is right.

    Attributes:
        exact: whether tasks, links and the arguments that matter are the same.
        graph: what tasks and links come to, strictly counted.
        error: why there is no plan.
    """

    asked: OwnRequest
    tasks: tuple[Task, ...]
    exact: bool
    graph: Scored
    error: str | None = None

    @property
    def is_unanswered(self) -> bool:
        """Whether there is no plan, or an empty one where none should be."""
        return self.error is not None or (not self.tasks and self.asked.kind != "empty")

    @property
    def parts(self) -> Counts:
        """Tasks and links counted together."""
        return self.graph.counts["node"] + self.graph.counts["edge"]


def judge(asked: OwnRequest, tasks: Sequence[Task], error: str | None = None) -> Judged:
    """Compare a plan with those that are right for a request; with an `error`, there is none to be right."""
    compared = [(same_plan(right, tasks), _graph(asked.id, right, tasks)) for right in asked.plans]
    exact, graph = max(compared, key=lambda one: (one[0], one[1].exact, one[1].counts["node"].f1))
    if error is not None:
        exact, graph = False, replace(graph, exact=False, likeness=0.0)
    return Judged(asked, tuple(tasks), exact, graph, error)


def judge_all(asked: Sequence[OwnRequest], predictions: Mapping[str, Prediction]) -> list[Judged]:
    """Compare the plans of requests, by id, with those that are right; a request without one has failed.

    Raises:
        InputError: a prediction has no plan in our own form.
    """
    return [_judged(one, predictions.get(one.id)) for one in asked]


def _judged(asked: OwnRequest, found: Prediction | None) -> Judged:
    if found is None:
        return judge(asked, (), "it was not planned")
    if found.error is not None:
        return judge(asked, (), found.error)
    if found.tasks is None:
        raise InputError(
            f"the prediction {found.id} holds no `plan`, so that it was not written by `jarvis eval plans`"
        )
    return judge(asked, found.tasks)


def _graph(name: str, right: Sequence[Task], said: Sequence[Task]) -> Scored:
    gold, graph = (graph_of(Plan(tasks=list(tasks)), TASKS, name) for tasks in (right, said))
    return score([gold], {name: graph}, _MAKES).requests[0]


def _of_tasks(part: Callable[[Counts], Part]) -> Share[Judged]:
    return lambda one: part(one.graph.counts["node"])


FIGURES: dict[str, Share[Judged]] = {
    "exact plan": lambda one: Part(float(one.exact)),
    "accuracy": lambda one: Part(float(one.graph.exact)),
    "precision": _of_tasks(lambda counts: Part(counts.both, counts.predicted, counts.gold)),
    "recall": _of_tasks(lambda counts: Part(counts.both, counts.gold, counts.predicted)),
    "F1": _of_tasks(f1_part),
    "edit distance": lambda one: Part(1.0 - one.graph.likeness),
    "graph F1": lambda one: f1_part(one.parts),
}
"""The headline, then what the paper has. Accuracy: tasks and links are right, whatever the arguments."""

GROUPS: dict[str, Callable[[OwnRequest], bool]] = {
    "all": lambda asked: True,
    **{kind: lambda asked, kind=kind: asked.kind == kind for kind in KINDS},  # type: ignore[misc]
    **{
        name: lambda asked, code=code: asked.language == code  # type: ignore[misc]
        for code, name in LANGUAGES.items()
    },
}
"""The rows of a report."""


def reports_on(judged: Sequence[Judged], predictions: Mapping[str, Prediction]) -> list[Report]:
    """A report for each group that has requests; time and tokens are those of the predictions, by id."""
    return [
        report_of(name, members, predictions)
        for name, belongs in GROUPS.items()
        if (members := [one for one in judged if belongs(one.asked)])
    ]


def report_of(
    name: str, judged: Sequence[Judged], predictions: Mapping[str, Prediction], left_out: int = 0
) -> Report:
    """Sum up what was judged, and the time and tokens of its predictions, which are given by id."""
    made = [predictions[one.asked.id] for one in judged if one.asked.id in predictions]
    failures = [one.error for one in made if one.error is not None]
    return Report(
        name=name,
        mode="strict",
        requests=len(judged),
        left_out=left_out,
        unanswered=sum(one.is_unanswered for one in judged),
        failed=len(failures),
        reason=commonest(failures),
        figures=figures_of(judged, FIGURES),
        seconds=seconds_of(made),
        usage=sum((one.usage for one in made), Usage()),
    )


def turned(reports: Sequence[Report], names: Sequence[str]) -> list[Report]:
    """The reports of groups, turned round for a chart: a report a figure, and a figure a group."""
    return [
        reports[0].model_copy(update={"name": name, "figures": [_figure(each, name) for each in reports]})
        for name in names
    ]


def _figure(report: Report, name: str) -> Figure:
    found = next(figure for figure in report.figures if figure.name == name)
    return found.model_copy(update={"name": report.name})
