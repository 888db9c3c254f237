"""The metrics of plans agree with hand-computed ones, and with those of TaskBench's script."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Usage
from jarvis_agent.evaluation.metrics import (
    GraphNode,
    Metric,
    Mode,
    PlanGraph,
    Score,
    graph_of,
    score,
    similarity,
)
from jarvis_agent.evaluation.predict import Prediction
from jarvis_agent.evaluation.report import f1, figure, report_on
from jarvis_agent.evaluation.taskbench import FIGURES, read_graph
from jarvis_agent.planning.plan import Plan

MAKES = {"Translation": "text", "Text-to-Speech": "audio", "Image Editing": "image", "Rank": "none"}
METRICS: tuple[Metric, ...] = ("node", "edge", "type", "value")


def graph(*nodes: tuple[str, list[str]], record: str = "1") -> PlanGraph:
    return PlanGraph(record, tuple(GraphNode(name, tuple(arguments)) for name, arguments in nodes))


def scored(gold: PlanGraph, predicted: PlanGraph, mode: Mode = "strict") -> Score:
    return score([gold], {predicted.id: predicted}, MAKES, mode)[0]


def f1s(gold: PlanGraph, predicted: PlanGraph, mode: Mode = "strict") -> list[float]:
    found = scored(gold, predicted, mode)
    return [found.counts[metric].f1 for metric in METRICS]


HELLO = ("Translation", ["Hello"])
SPEAK = ("Text-to-Speech", ["<node-0>"])
SPOKEN = graph(HELLO, SPEAK)
# A predicted plan, and its F1 of nodes, edges, argument types and values: in strict mode, and in compat mode
# where they differ.
CASES: dict[str, tuple[PlanGraph, list[float], list[float] | None]] = {
    "the gold plan": (SPOKEN, [1, 1, 1, 1], None),
    "a tool less": (graph(HELLO), [2 / 3, 0, 2 / 3, 2 / 3], None),
    "the kind from another tool": (graph(("Rank", ["Hello"]), (SPEAK[0], ["Hello"])), [0.5, 0, 0.5, 0], None),
    "a reversed link": (graph(("Translation", ["<node-1>"]), (SPEAK[0], ["Hello"])), [1, 0, 0.5, 0], None),
    "an unknown tool": (graph(HELLO, SPEAK, ("Magic", [])), [4 / 5, 1, 1, 1], [1, 1, 1, 1]),
    "the result of an unknown tool": (graph(("Magic", []), SPEAK), [0.5, 0, 0, 0], [2 / 3, 0, 0, 0]),
    "nothing": (graph(), [0, 0, 0, 0], None),
    **{
        f"a reference to {name}": (
            graph(HELLO, (SPEAK[0], ["<node-0>", reference])),
            [1, 2 / 3, 4 / 5, 4 / 5],
            [1, 1, 1, 1],
        )
        for name, reference in (("a missing node", "<node-7>"), ("the node itself", "<node-1>"))
    },
}


def test_figures_agree_with_hand_computed_ones(subtests: pytest.Subtests) -> None:
    for name, (predicted, strict, compat) in CASES.items():
        with subtests.test(name):
            assert f1s(SPOKEN, predicted) == pytest.approx(strict, abs=1e-6)
            assert f1s(SPOKEN, predicted, "compat") == pytest.approx(compat or strict, abs=1e-6)
    assert (scored(SPOKEN, SPOKEN).similarity, scored(SPOKEN, SPOKEN).exact) == (1.0, True)
    assert (f1s(graph(), graph()), scored(graph(), graph()).exact) == ([1.0] * 4, True)
    wrong = scored(graph(), graph(HELLO))
    assert (wrong.counts["node"].f1, wrong.exact, wrong.similarity) == (0.0, False, 0.0)


def test_underscores_and_spaces_in_tool_names_are_equal() -> None:
    gold = graph(("get text", []), ("say it", ["<node-0>"]))
    made = graph(("get_text", []), ("say_it", ["<node-0>"]))
    found = score([gold], {"1": made}, {"get_text": "text", "say_it": "audio"})[0]
    assert [found.counts[metric].f1 for metric in METRICS] == [1.0] * 4


def test_repeated_facts_and_missing_predictions_count_only_in_strict_mode() -> None:
    twice, once = graph(("Translation", ["a"]), ("Translation", ["b"])), graph(("Translation", ["a"]))
    assert f1s(twice, once)[0] == pytest.approx(2 / 3, abs=1e-6)
    assert f1s(twice, once, "compat")[0] == 1.0
    gold = [SPOKEN, graph(("Translation", ["Hi"]), record="2")]
    assert len(score(gold, {"1": SPOKEN}, MAKES, "compat")) == 1
    strict = score(gold, {"1": SPOKEN}, MAKES)
    assert [one.exact for one in strict] == [True, False]
    # Micro-averaged: 2 of 3 gold tools are found, not the mean of 1 and 0.
    assert report_on("", strict, FIGURES).figures[0].value == pytest.approx(4 / 5)


def test_similarity_is_levenshteins_ratio() -> None:
    rows = [
        ("", "", 1),
        ("a", "", 0),
        ("abc", "abc", 1),
        ("abc", "acb", 2 / 3),
        ("kitten", "sitting", 8 / 13),
    ]
    for one, other, expected in rows:
        assert similarity(one, other) == pytest.approx(expected), (one, other)
    # In compat mode unknown tools are equal gaps.
    magic, trick = graph(("Magic", []), ("Translation", [])), graph(("Trick", []), ("Translation", []))
    assert (scored(magic, trick, "compat").similarity, scored(magic, trick).similarity) == (1.0, 0.5)


def test_our_plans_become_graphs_with_arguments_in_the_order_of_the_specification() -> None:
    plan = Plan.parse(
        '[{"task": "translation", "id": 4, "dep": [-1], "args": {"tgt_lang": "fr", "text": "Hi"}},'
        ' {"task": "sentence-similarity", "id": 6, "dep": [4], "args":'
        ' {"text": "<resource>-4", "sentences": ["a", "b"]}}]'
    )
    made = graph_of(plan.tasks, TASKS, "9")
    assert [node.arguments for node in made.nodes] == [("Hi", "fr"), ("<node-0>", "a", "b")]
    assert made.links() == [("translation", "sentence-similarity")]


def test_the_interval_is_close_to_that_of_the_binomial_distribution() -> None:
    half = figure("hits", [(1, 1), (0, 1)] * 50)
    assert [half.low, half.value, half.high] == pytest.approx([0.4, 0.5, 0.6], abs=0.01)
    assert figure("one", [(1, 1)]).low == 1.0
    assert figure("nothing to count", [(0, 0), (0, 0)]).value is None
    assert figure("all right", [(2, 2), (6, 6)]).high == 1.0


def test_a_report_counts_failures_time_and_tokens() -> None:
    errors = [None, "it is slow", "it is down", "it is down"]
    made = [
        Prediction(id=str(n), seconds=n + 1.0, usage=Usage(calls=1, input_tokens=10), error=error)
        for n, error in enumerate(errors)
    ]
    scores = score([graph(record=str(n)) for n in range(4)], {}, MAKES)
    report = report_on("weak", scores, FIGURES, made)
    assert (report.requests, report.failed, report.reason) == (4, 3, "it is down")
    assert (report.seconds[0], report.usage) == (2.5, Usage(calls=4, input_tokens=40))
    assert report_on("fine", scores, FIGURES).seconds == ()
    assert f1(scores[0].counts["node"]) == (0.0, 0)


NAMES = [*MAKES, "Magic", "Image_Editing"]
VALUES = ["Hello", "x.jpg", "b.mp4", "'x.wav'", "你好", "", "a\u2028b", {"text": "Hello"}, ["a", "b.png"]]


def random_nodes(rng: random.Random, names: Sequence[str]) -> list[dict[str, Any]]:
    """The nodes of a plan, with references to other nodes before or after."""
    count = rng.choice((0, 1, 1, 2, 3, 4))
    made = []
    for place in range(count):
        others = [f"<node-{other}>" for other in range(count) if other != place]
        arguments = [
            rng.choice(others if others and rng.random() < 0.5 else VALUES)
            for _ in range(rng.choice((0, 1, 1, 2)))
        ]
        made.append({"task": rng.choice(names), "arguments": arguments})
    return made


def script_facts(plan: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """The facts that TaskBench's script compares: tools, links, argument kinds, argument values."""
    names = [node["task"].replace("_", " ") for node in plan]
    found: list[list[Any]] = [[name for name in names if name in MAKES], [], [], []]
    for name, node in zip(names, plan, strict=True):
        for argument in node["arguments"]:
            value = next(iter(argument.values())) if isinstance(argument, dict) else argument
            value = " ".join(value) if isinstance(value, list) else value
            if "<node-" in value:
                value = names[int(value[6:-1])]
                kind = MAKES.get(value, "other")
                found[1].append((value, name))
            else:
                kinds = {".jpg": "image", ".png": "image", ".wav": "audio", ".mp4": "video"}
                kind = next((kind for end, kind in kinds.items() if end in value), "text")
            found[2].append(f"{name}-{kind}")
            found[3].append(f"{name}-{kind}-{value}")
    return found


def script_f1(gold: Iterable[Iterable[Any]], predicted: Iterable[Iterable[Any]]) -> float:
    """F1 of the distinct facts of all requests, as the script computes it."""
    pairs = [(set(expected), set(found)) for expected, found in zip(gold, predicted, strict=True)]
    total = sum(len(expected) + len(found) for expected, found in pairs)
    return 2 * sum(len(expected & found) for expected, found in pairs) / total if total else 1.0


def test_compat_mode_gives_the_figures_of_taskbenchs_script() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        gold = {str(n): random_nodes(rng, list(MAKES)) for n in range(12)}
        predicted = {record: random_nodes(rng, NAMES) for record in gold if rng.random() < 0.9}
        predicted |= {record: gold[record] for record in predicted if rng.random() < 0.5}
        graphs = [
            {record: read_graph({"id": record, "task_nodes": plan}) for record, plan in run.items()}
            for run in (gold, predicted)
        ]
        found = report_on("", score(graphs[0].values(), graphs[1], MAKES, "compat"), FIGURES).figures
        expected, made = ([script_facts(run[record]) for record in predicted] for run in (gold, predicted))
        for part in range(4):
            wanted = script_f1([one[part] for one in expected], [one[part] for one in made])
            value = found[part].value
            assert (1.0 if value is None else value) == pytest.approx(wanted, abs=1e-6), (seed, part)
