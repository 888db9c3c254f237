"""Plans as graphs, and how close predicted graphs come to gold ones: the metrics of TaskBench.

    scores = score(gold, predicted, makes, mode="strict")
    scores[0].counts["node"].f1, scores[0].similarity, scores[0].exact

F1 is micro-averaged: true positives, predicted and gold facts are summed over all requests.

`compat` counts as TaskBench's script does (taskbench/evaluate.py of microsoft/JARVIS, MIT): each fact once
per request, without unknown tools and without requests that have no prediction. It differs in one case: for
a reference to a missing node, the script counts the previous argument twice; `compat` leaves it out.
`strict` also counts repeated facts, unknown tools, and a missing prediction as an empty plan.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Task

Mode = Literal["compat", "strict"]
Metric = Literal["node", "edge", "type", "value"]
"""Tools; links; tools with the kind of each argument; the same with the arguments' values."""

_REFERENCE = re.compile(r"<node-(\d{1,9})>")

_EXTENSIONS = {
    "image": ("jpg", "png", "jpeg", "gif", "bmp", "tiff", "svg", "ico"),
    "audio": ("mp3", "wav", "wma", "ogg", "aac", "flac", "aiff", "au"),
    "video": ("mp4", "avi", "mov", "flv", "wmv", "mkv", "webm", "m4v", "mpg", "mpeg"),
}
"""TaskBench takes the kind of an argument from the first of these found anywhere in it."""


class GraphNode(NamedTuple):
    """A tool with its arguments in order: values as written, or `<node-j>` for the result of node j."""

    task: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanGraph:
    """The plan of one request. `kind` is TaskBench's type: "single", "chain" or "dag"."""

    id: str
    nodes: tuple[GraphNode, ...] = ()
    kind: str = ""

    def links(self) -> list[tuple[str, str]]:
        """Return links by tool names; a reference to no other node of the plan stays as written."""
        links = []
        for place, node in enumerate(self.nodes):
            for source in filter(None, map(_REFERENCE.search, node.arguments)):
                number = int(source[1])
                exists = number < len(self.nodes) and number != place
                links.append((self.nodes[number].task if exists else source[0], node.task))
        return links


def graph_of(tasks: Sequence[Task], specs: Mapping[str, TaskSpec], record: str) -> PlanGraph:
    """Return a plan in TaskBench's form, with arguments in the order of the task's specification."""
    places = {task.id: place for place, task in enumerate(tasks)}
    nodes = []
    for task in tasks:
        known = [arg.name for arg in specs[task.task].inputs] if task.task in specs else []
        names = sorted(task.args, key=lambda name: known.index(name) if name in known else len(known))
        values = tuple(value for name in names for value in _argument_values(task.args[name], places))
        nodes.append(GraphNode(task.task, values))
    return PlanGraph(record, tuple(nodes))


def _argument_values(value: Any, places: Mapping[int, int]) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _argument_values(item, places)
    elif references := [number for number in refs_in(value) if number in places]:
        yield from (f"<node-{places[number]}>" for number in references)
    elif value is not None:
        yield str(value)


@dataclass(frozen=True, slots=True)
class Counts:
    """Facts in both plans, in the predicted one, and in the gold one."""

    both: int = 0
    predicted: int = 0
    gold: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.both + other.both, self.predicted + other.predicted, self.gold + other.gold)

    @property
    def f1(self) -> float:
        """Return F1; 1 if there are no facts at all."""
        facts = self.predicted + self.gold
        return 2 * self.both / facts if facts else 1.0


@dataclass(frozen=True, slots=True)
class Score:
    """One request: counts by metric, similarity of the tool sequences (0 to 1), equality of the graphs."""

    id: str
    counts: Mapping[Metric, Counts]
    similarity: float
    exact: bool


def score(
    gold: Iterable[PlanGraph],
    predicted: Mapping[str, PlanGraph],
    makes: Mapping[str, str],
    mode: Mode = "strict",
) -> list[Score]:
    """Compare predicted plans, by id, with gold ones. In tool names `_` and a space are equal.

    Args:
        makes: the known tools, with the kind of their first output ("none" without one).
    """
    kinds = {tool.replace("_", " "): kind for tool, kind in makes.items()}
    is_compat = mode == "compat"
    return [
        _score(
            _with_spaces(graph), _with_spaces(predicted.get(graph.id, PlanGraph(graph.id))), kinds, is_compat
        )
        for graph in gold
        if graph.id in predicted or not is_compat
    ]


def _with_spaces(graph: PlanGraph) -> PlanGraph:
    nodes = (node._replace(task=node.task.replace("_", " ")) for node in graph.nodes)
    return replace(graph, nodes=tuple(nodes))


def _score(gold: PlanGraph, predicted: PlanGraph, makes: Mapping[str, str], is_compat: bool) -> Score:
    expected, found = (_facts(graph, makes, is_compat) for graph in (gold, predicted))
    sequences = [
        ["" if is_compat and node.task not in makes else node.task for node in graph.nodes]
        for graph in (predicted, gold)
    ]
    return Score(
        id=gold.id,
        counts={metric: _counts(found[metric], expected[metric], is_compat) for metric in expected},
        similarity=similarity(*sequences),
        exact=_tools_and_links(gold) == _tools_and_links(predicted),
    )


def _tools_and_links(graph: PlanGraph) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    return Counter(node.task for node in graph.nodes), Counter(graph.links())


def _facts(graph: PlanGraph, makes: Mapping[str, str], is_compat: bool) -> dict[Metric, list[Hashable]]:
    facts: dict[Metric, list[Hashable]] = {"node": [], "edge": [], "type": [], "value": []}
    for place, node in enumerate(graph.nodes):
        if not is_compat or node.task in makes:
            facts["node"].append(node.task)
        for value in node.arguments:
            reference = _REFERENCE.search(value)
            number = int(reference[1]) if reference else None
            if is_compat and number is not None and (number == place or number >= len(graph.nodes)):
                continue
            if number is not None and number < len(graph.nodes):
                value = graph.nodes[number].task
                kind = makes.get(value, "other")
            else:
                kind = _kind_of(value)
            facts["type"].append((node.task, kind))
            facts["value"].append((node.task, kind, value))
    facts["edge"] = [one for one in graph.links() if not (is_compat and one[0].startswith("<node-"))]
    return facts


def _kind_of(value: str) -> str:
    found = (kind for kind, endings in _EXTENSIONS.items() if any(f".{end}" in value for end in endings))
    return next(found, "text")


def _counts(predicted: Iterable[Hashable], gold: Iterable[Hashable], is_compat: bool) -> Counts:
    said, right = Counter(predicted), Counter(gold)
    if is_compat:
        said, right = Counter(said.keys()), Counter(right.keys())
    return Counts((said & right).total(), said.total(), right.total())


def similarity(one: Sequence[str], other: Sequence[str]) -> float:
    """Return twice the longest common subsequence over both lengths; 1 for two empty sequences.

    One minus this is the normalised edit distance by insertions and deletions (Levenshtein's `ratio`).
    """
    if not one and not other:
        return 1.0
    row = [0] * (len(other) + 1)
    for item in one:
        diagonal = 0
        for place, candidate in enumerate(other, 1):
            above = row[place]
            row[place] = diagonal + 1 if item == candidate else max(above, row[place - 1])
            diagonal = above
    return 2 * row[-1] / (len(one) + len(other))
