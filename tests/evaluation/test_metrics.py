"""The metrics of plans agree with hand-computed ones."""

import pytest

from jarvis_agent.core.types import Task, Usage
from jarvis_agent.evaluation.predict import Prediction
from jarvis_agent.evaluation.report import figure, report_on, score
from jarvis_agent.evaluation.taskbench import FIGURES, read_plan


def graph(*nodes: tuple[str, list[str]]) -> list[Task]:
    listed = [{"task": name, "arguments": arguments} for name, arguments in nodes]
    return read_plan({"id": "1", "task_nodes": listed})


HELLO = ("Translation", ["Hello"])
SPEAK = ("Text-to-Speech", ["<node-0>"])
SPOKEN = graph(HELLO, SPEAK)
# A predicted plan, and its F1 of nodes and edges.
CASES: dict[str, tuple[list[Task], list[float]]] = {
    "the gold plan": (SPOKEN, [1, 1]),
    "a tool less": (graph(HELLO), [2 / 3, 0]),
    "another tool": (graph(("Rank", ["Hello"]), (SPEAK[0], ["Hello"])), [0.5, 0]),
    "a reversed link": (graph(("Translation", ["<node-1>"]), (SPEAK[0], ["Hello"])), [1, 0]),
    "an unknown tool": (graph(HELLO, SPEAK, ("Magic", [])), [4 / 5, 1]),
    "the result of an unknown tool": (graph(("Magic", []), SPEAK), [0.5, 0]),
    "a missing node": (graph(HELLO, (SPEAK[0], ["<node-0>", "<node-7>"])), [1, 2 / 3]),
    "the node itself": (graph(HELLO, (SPEAK[0], ["<node-0>", "<node-1>"])), [1, 2 / 3]),
    "a repeated link": (graph(HELLO, (SPEAK[0], ["<node-0>", "<node-0>"])), [1, 2 / 3]),
    "a repeated tool": (graph(HELLO, HELLO, SPEAK), [4 / 5, 1]),
    "nothing": (graph(), [0, 0]),
}


@pytest.mark.parametrize(("predicted", "expected"), CASES.values(), ids=CASES)
def test_figures_agree_with_hand_computed_ones(predicted: list[Task], expected: list[float]) -> None:
    scored = score(SPOKEN, predicted)
    assert [figure("", [part]).value for part in (scored.nodes, scored.edges)] == pytest.approx(
        expected, abs=1e-6
    )
    assert scored.exact is (predicted is SPOKEN)


def test_empty_plans_are_equal_and_figures_are_averaged_over_all_tools() -> None:
    empty, wrong = score(graph(), graph()), score(graph(), graph(HELLO))
    assert (empty.nodes, empty.exact) == ((0, 0), True)
    assert (wrong.nodes, wrong.exact) == ((0, 1), False)
    # Micro-averaged: 2 of 3 gold tools are found, not the mean of 1 and 0.
    scores = [score(SPOKEN, SPOKEN), score(graph(HELLO), graph())]
    assert report_on("", scores, FIGURES).figures[0].value == pytest.approx(4 / 5)


def test_a_plan_is_compared_by_the_links_in_its_arguments_whatever_their_names_and_ids() -> None:
    gold = graph(("translation", ["Hi", "fr"]), ("sentence-similarity", ["<node-0>", "a", "b"]))
    args = {"text": "It says <resource>-4", "sentences": ["a", "b"], "context": None}
    plan = [
        Task(task="translation", id=4, args={"tgt_lang": "fr", "text": "Hi"}),
        Task(task="sentence-similarity", id=6, dep=[4], args=args),
    ]
    assert score(gold, plan).exact
    dangling = plan[1].model_copy(update={"args": {"text": "<resource>-9"}})
    assert score(gold, [plan[0], dangling]).edges == (0, 2)


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
    scores = [score(graph(), graph())] * 4
    report = report_on("weak", scores, FIGURES, made)
    assert (report.requests, report.failed, report.reason) == (4, 3, "it is down")
    assert (report.seconds[0], report.usage) == (2.5, Usage(calls=4, input_tokens=40))
    assert report_on("fine", scores, FIGURES).seconds == ()
