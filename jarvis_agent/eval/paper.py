"""Plans judged as in the paper, on our own requests: by kind of request and by language.

    judged = [judge(asked, tasks) for asked, tasks in …]
    for report in reports_on(judged):
        report.name, report.figures[0]       # "single", Figure("exact plan", 0.84, 0.76, 0.91)

The paper (Shen et al., "HuggingGPT", 2023) scores single tasks by accuracy, precision, recall and F1,
sequences by their edit distance too, and graphs by F1. Where several plans are right, the nearest counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jarvis_agent.eval.alike import same_plan
from jarvis_agent.eval.graphs import graph_of
from jarvis_agent.eval.metrics import Counts, Scored, score
from jarvis_agent.eval.predict import Prediction
from jarvis_agent.eval.report import Figure, Report, Share, figures_of, seconds_of
from jarvis_agent.eval.requests import KINDS, LANGUAGES, OwnRequest
from jarvis_agent.plan import Plan
from jarvis_agent.tools.table import TASKS
from jarvis_agent.types import Task, Usage

_MAKES = {spec.name: spec.outputs[0] for spec in TASKS.values()}


@dataclass(frozen=True, slots=True)
class Judged:
    """A request, the plan that was made for it, and how near it comes to the nearest plan that is right.

    Attributes:
        exact: whether tasks, links and the arguments that matter are the same.
        graph: what tasks and links come to, strictly counted.
    """

    asked: OwnRequest
    tasks: tuple[Task, ...]
    exact: bool
    graph: Scored

    @property
    def parts(self) -> Counts:
        """Tasks and links counted together."""
        return self.graph.counts["node"] + self.graph.counts["edge"]


def judge(asked: OwnRequest, tasks: Sequence[Task]) -> Judged:
    """Compare a plan with those that are right for a request."""
    compared = [(same_plan(right, tasks), _graph(asked.id, right, tasks)) for right in asked.plans]
    exact, graph = max(compared, key=lambda one: (one[0], one[1].exact, one[1].counts["node"].f1))
    return Judged(asked, tuple(tasks), exact, graph)


def _graph(name: str, right: Sequence[Task], said: Sequence[Task]) -> Scored:
    gold, graph = (graph_of(Plan(tasks=list(tasks)), TASKS, name) for tasks in (right, said))
    return score([gold], {name: graph}, _MAKES).requests[0]


def _of_tasks(share: Callable[[Counts], tuple[float, float]]) -> Share[Judged]:
    return lambda one: share(one.graph.counts["node"])


def _f1(counts: Counts) -> tuple[float, float]:
    return 2.0 * counts.both, float(counts.predicted + counts.gold)


FIGURES: dict[str, Share[Judged]] = {
    "exact plan": lambda one: (float(one.exact), 1.0),
    "accuracy": lambda one: (float(one.graph.exact), 1.0),
    "precision": _of_tasks(lambda counts: (counts.both, counts.predicted)),
    "recall": _of_tasks(lambda counts: (counts.both, counts.gold)),
    "F1": _of_tasks(_f1),
    "edit distance": lambda one: (1.0 - one.graph.likeness, 1.0),
    "graph F1": lambda one: _f1(one.parts),
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


def reports_on(judged: Sequence[Judged], predictions: Sequence[Prediction] = ()) -> list[Report]:
    """A report for each group that has requests; time and tokens are those of the predictions."""
    by_id = {one.graph.id: one for one in predictions}
    return [
        _report(name, members, [by_id[one.asked.id] for one in members if one.asked.id in by_id])
        for name, belongs in GROUPS.items()
        if (members := [one for one in judged if belongs(one.asked)])
    ]


def _report(name: str, judged: Sequence[Judged], predictions: Sequence[Prediction]) -> Report:
    return Report(
        name=name,
        mode="strict",
        requests=len(judged),
        unanswered=sum(not one.tasks and one.asked.kind != "empty" for one in judged),
        figures=figures_of(judged, FIGURES),
        seconds=seconds_of(predictions),
        usage=sum((one.usage for one in predictions), Usage()),
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
