"""How near predicted plans come to gold ones: the metrics of TaskBench, and stricter ones of the same kind.

    scores = score(gold, predicted, makes, mode="strict")
    scores.f1("node"), scores.f1("edge"), scores.exact      # 0.81, 0.55, 0.43

F1 is micro-averaged: hits, predictions and gold facts are added up over all requests.

`compat` counts as TaskBench's own script does (taskbench/evaluate.py of microsoft/JARVIS, MIT): each fact
once a request, tools that do not exist left out, requests without a prediction left out. In one case it does
not: where a reference is to no node, the script counts the argument before it a second time, and `compat`
leaves it out.
`strict` counts what was invented and what is missing: facts as often as they stand there, and a request
without a prediction as one with an empty plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from jarvis_agent.evaluation.graphs import Argument, PlanGraph, arguments, links

Mode = Literal["compat", "strict"]
Metric = Literal["node", "edge", "type", "value"]

METRICS: tuple[Metric, ...] = ("node", "edge", "type", "value")
"""Tools; links; tools with the kind of each argument; the same with the arguments' values."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Facts in both plans, in the predicted one, in the gold one."""

    both: int = 0
    predicted: int = 0
    gold: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.both + other.both, self.predicted + other.predicted, self.gold + other.gold)

    @property
    def precision(self) -> float:
        """The share of the predicted facts that are right; without any, 1 if none was due, 0 else."""
        return self.both / self.predicted if self.predicted else float(not self.gold)

    @property
    def recall(self) -> float:
        """The share of the gold facts that were predicted; without any, 1 if none was predicted, 0 else."""
        return self.both / self.gold if self.gold else float(not self.predicted)

    @property
    def f1(self) -> float:
        """Twice the hits over all facts; 1 where nothing was to be predicted and nothing was."""
        facts = self.predicted + self.gold
        return 2 * self.both / facts if facts else 1.0


@dataclass(frozen=True, slots=True)
class Scored:
    """One request: counts by metric, likeness of the sequences (0…1), whether the graphs are equal."""

    id: str
    counts: Mapping[Metric, Counts]
    likeness: float
    exact: bool


@dataclass(frozen=True, slots=True)
class Scores:
    """The requests that were scored, and what they come to together."""

    mode: Mode
    requests: Sequence[Scored]

    def counts(self, metric: Metric) -> Counts:
        """The counts of all requests added up."""
        return sum((one.counts[metric] for one in self.requests), Counts())

    def f1(self, metric: Metric) -> float:
        """Micro-averaged F1, 0…1."""
        return self.counts(metric).f1

    @property
    def edit_distance(self) -> float:
        """Mean normalised edit distance of the sequences of tools: 0 is the same, 1 nothing in common."""
        return 1 - _mean(one.likeness for one in self.requests)

    @property
    def exact(self) -> float:
        """The share of requests whose tools and links are those of the gold plan."""
        return _mean(float(one.exact) for one in self.requests)


def score(
    gold: Iterable[PlanGraph],
    predicted: Mapping[str, PlanGraph],
    makes: Mapping[str, str],
    mode: Mode = "strict",
) -> Scores:
    """Compare predicted plans, by id, with gold ones.

    In the names of tools `_` and a blank are the same, as in TaskBench's script.

    Args:
        makes: the tools that exist, and what each makes first ("none": nothing).
    """
    kinds = {_spaced(tool): kind for tool, kind in makes.items()}
    counted = []
    for graph in gold:
        found = predicted.get(graph.id)
        if found is None and mode == "compat":
            continue
        right, said = (_with_spaces(one) for one in (graph, found or PlanGraph(id=graph.id)))
        counted.append(_scored(right, said, kinds, mode))
    return Scores(mode, counted)


def _with_spaces(graph: PlanGraph) -> PlanGraph:
    nodes = [node.model_copy(update={"task": _spaced(node.task)}) for node in graph.nodes]
    return graph.model_copy(update={"nodes": tuple(nodes)})


def _spaced(tool: str) -> str:
    return tool.replace("_", " ")


def _scored(gold: PlanGraph, predicted: PlanGraph, makes: Mapping[str, str], mode: Mode) -> Scored:
    is_compat = mode == "compat"
    count = _counts_of_sets if is_compat else _counts_of_bags
    right, said = (_facts(graph, makes, is_compat) for graph in (gold, predicted))
    sequences = [
        [node.task if node.task in makes or not is_compat else "" for node in graph.nodes]
        for graph in (predicted, gold)
    ]
    return Scored(
        id=gold.id,
        counts={metric: count(said[metric], right[metric]) for metric in METRICS},
        likeness=likeness(*sequences),
        exact=_bag(gold) == _bag(predicted),
    )


def _facts(graph: PlanGraph, makes: Mapping[str, str], is_compat: bool) -> dict[Metric, list[Hashable]]:
    held = arguments(graph, makes)
    if is_compat:
        held = [[arg for arg in args if _is_readable(arg, place, graph)] for place, args in enumerate(held)]
    pairs = [(node.task, arg) for node, args in zip(graph.nodes, held, strict=True) for arg in args]
    return {
        "node": [node.task for node in graph.nodes if node.task in makes or not is_compat],
        "edge": [link for link in links(graph) if not (is_compat and link[0].startswith("<node-"))],
        "type": [(task, arg.kind) for task, arg in pairs],
        "value": [(task, arg.kind, arg.value) for task, arg in pairs],
    }


def _is_readable(argument: Argument, place: int, graph: PlanGraph) -> bool:
    """Whether it is a value, or refers to another node of the plan."""
    return argument.node is None or (argument.node != place and argument.node < len(graph.nodes))


def _bag(graph: PlanGraph) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    return Counter(node.task for node in graph.nodes), Counter(links(graph))


def _counts_of_sets(predicted: Collection[Hashable], gold: Collection[Hashable]) -> Counts:
    return Counts(len({*predicted} & {*gold}), len({*predicted}), len({*gold}))


def _counts_of_bags(predicted: Collection[Hashable], gold: Collection[Hashable]) -> Counts:
    return Counts((Counter(predicted) & Counter(gold)).total(), len(predicted), len(gold))


def likeness(one: Sequence[str], other: Sequence[str]) -> float:
    """How alike two sequences are: twice their longest common subsequence over both lengths, 1 if empty.

    One minus this is the edit distance by insertions and deletions, normalised (Levenshtein's `ratio`).
    """
    if not one and not other:
        return 1.0
    row = [0] * (len(other) + 1)
    for item in one:
        before = 0
        for place, candidate in enumerate(other, 1):
            kept = row[place]
            row[place] = before + 1 if item == candidate else max(row[place], row[place - 1])
            before = kept
    return 2 * row[-1] / (len(one) + len(other))


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed) if listed else 0.0
