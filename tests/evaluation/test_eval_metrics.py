"""The metrics of plans agree with what one works out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from jarvis_agent.core.errors import InputError
from jarvis_agent.evaluation.graphs import (
    Argument,
    PendingTask,
    PlanGraph,
    arguments,
    graph_of,
    kind_of,
    links,
    read_graph,
    to_record,
)
from jarvis_agent.evaluation.metrics import METRICS, Counts, Mode, Scores, likeness, score
from jarvis_agent.evaluation.predictions import Prediction
from jarvis_agent.evaluation.report import Part, differences, figures_of, report_on
from jarvis_agent.planning.plan import Plan
from jarvis_agent.tools import TASKS
from jarvis_agent.core.types import Usage

MAKES = {"Translation": "text", "Text-to-Speech": "audio", "Image Classification": "text", "Rank": "none"}


def graph(*nodes: tuple[str, list[Any]], record: str = "1") -> PlanGraph:
    return read_graph(
        {"id": record, "task_nodes": [{"task": name, "arguments": args} for name, args in nodes]}
    )


SPOKEN = graph(("Translation", ["Hello"]), ("Text-to-Speech", ["<node-0>"]))


def scored(gold: PlanGraph, predicted: PlanGraph | None, mode: Mode = "strict") -> Scores:
    return score([gold], {predicted.id: predicted} if predicted else {}, MAKES, mode)


@pytest.mark.parametrize("mode", ["compat", "strict"])
def test_the_gold_plan_itself_is_perfect(mode: Mode) -> None:
    scores = scored(SPOKEN, SPOKEN, mode)
    assert [scores.f1(metric) for metric in METRICS] == [1.0] * 4
    assert (scores.edit_distance, scores.exact) == (0.0, 1.0)


def test_half_of_a_plan_has_all_precision_and_half_the_recall() -> None:
    scores = scored(SPOKEN, graph(("Translation", ["Hello"])))
    node = scores.counts("node")
    assert (node.precision, node.recall, node.f1) == (1.0, 0.5, pytest.approx(2 / 3))
    assert scores.f1("edge") == 0.0
    assert scores.f1("value") == pytest.approx(2 / 3)
    assert scores.edit_distance == pytest.approx(1 - 2 / 3)
    assert scores.exact == 0.0


def test_a_reference_counts_by_what_its_tool_makes_and_by_the_tools_name() -> None:
    other = graph(("Image Classification", ["a.jpg"]), ("Text-to-Speech", ["<node-0>"]))
    scores = scored(SPOKEN, other)
    # Both give text to the speech, but from different tools; the first tools differ altogether.
    assert scores.counts("type").both == 1
    assert scores.counts("value").both == 0


def test_a_reversed_link_is_no_hit() -> None:
    reverse = graph(("Translation", ["<node-1>"]), ("Text-to-Speech", ["Hello"]))
    assert scored(SPOKEN, reverse).f1("edge") == 0.0
    assert scored(SPOKEN, reverse).f1("node") == 1.0
    assert scored(SPOKEN, reverse).exact == 0.0


def test_an_invented_tool_costs_only_in_strict_mode() -> None:
    invented = graph(("Translation", ["Hello"]), ("Text-to-Speech", ["<node-0>"]), ("Magic", []))
    assert scored(SPOKEN, invented, "compat").f1("node") == 1.0
    assert scored(SPOKEN, invented, "strict").f1("node") == pytest.approx(4 / 5)


def test_an_invented_tool_is_a_gap_in_the_sequence() -> None:
    said = graph(("Translation", ["Hello"]), ("Magic", []), ("Text-to-Speech", ["<node-0>"]))
    assert scored(SPOKEN, said, "compat").edit_distance == pytest.approx(1 - 4 / 5)
    both = graph(("Magic", []), ("Translation", []))
    other = graph(("Trick", []), ("Translation", []))
    # TaskBench's script puts the same gap for every tool that does not exist.
    assert scored(both, other, "compat").edit_distance == 0.0
    assert scored(both, other, "strict").edit_distance == pytest.approx(1 / 2)


def test_what_an_invented_tool_makes_is_of_another_kind() -> None:
    said = graph(("Magic", []), ("Text-to-Speech", ["<node-0>"]))
    assert arguments(said, MAKES)[1] == [Argument(kind="other", value="Magic", node=0)]
    assert scored(SPOKEN, said, "compat").counts("type").both == 0


def test_a_missing_answer_costs_only_in_strict_mode() -> None:
    gold = [SPOKEN, graph(("Translation", ["Hi"]), record="2")]
    compat, strict = (score(gold, {"1": SPOKEN}, MAKES, mode) for mode in ("compat", "strict"))
    assert compat.f1("node") == 1.0
    assert strict.f1("node") == pytest.approx(4 / 5)
    assert strict.exact == 0.5


def test_what_stands_twice_counts_twice_only_in_strict_mode() -> None:
    twice = graph(("Translation", ["a"]), ("Translation", ["b"]))
    once = graph(("Translation", ["a"]))
    assert scored(twice, once, "compat").f1("node") == 1.0
    assert scored(twice, once, "strict").f1("node") == pytest.approx(2 / 3)


@pytest.mark.parametrize("argument", ["<node-7>", "<node-1>"])
def test_a_reference_to_nothing_or_to_itself_is_a_wrong_link_only_in_strict_mode(argument: str) -> None:
    odd = graph(("Translation", ["Hello"]), ("Text-to-Speech", ["<node-0>", argument]))
    assert scored(SPOKEN, odd, "compat").f1("edge") == 1.0
    assert scored(SPOKEN, odd, "compat").f1("value") == 1.0
    assert scored(SPOKEN, odd, "strict").f1("edge") == pytest.approx(2 / 3)
    assert scored(SPOKEN, odd, "strict").f1("value") == pytest.approx(4 / 5)


def test_nothing_predicted_where_nothing_was_to_be_is_right() -> None:
    scores = scored(graph(), graph())
    assert [scores.f1(metric) for metric in METRICS] == [1.0] * 4
    assert (scores.exact, scores.edit_distance) == (1.0, 0.0)


def test_something_predicted_where_nothing_was_to_be_is_wrong() -> None:
    scores = scored(graph(), graph(("Translation", ["Hi"])))
    assert (scores.f1("node"), scores.exact, scores.edit_distance) == (0.0, 0.0, 1.0)


def test_f1_is_of_all_requests_added_up() -> None:
    gold = [SPOKEN, graph(("Translation", ["Hi"]), record="2")]
    predicted = {"1": SPOKEN, "2": graph(("Rank", ["Hi"]), record="2")}
    # 2 of 3 predicted are right, and 2 of 3 gold ones found: not the mean of 1 and 0.
    assert score(gold, predicted, MAKES).f1("node") == pytest.approx(2 / 3)


def test_the_interval_holds_the_figure_and_is_the_same_each_time() -> None:
    gold = [graph(("Translation", ["Hi"]), record=str(n)) for n in range(40)]
    predicted = {
        str(n): graph(("Translation" if n % 4 else "Rank", ["Hi"]), record=str(n)) for n in range(40)
    }
    report = report_on("half", score(gold, predicted, MAKES))
    node = report.figures[0]
    assert (node.name, node.value) == ("node F1", 0.75)
    assert node.low < 0.75 < node.high
    assert report_on("half", score(gold, predicted, MAKES)) == report


def hits(*parts: Part) -> tuple[float, float, float]:
    """The figure that parts add up to, with its interval."""
    (figure,) = figures_of(parts, {"hits": lambda part: part})
    return figure.low, figure.value, figure.high


def test_the_interval_is_that_of_the_binomial_distribution() -> None:
    # Of 100 draws from half right, half wrong, 40 to 60 are right in all but 2.5 % at either end.
    low, value, high = hits(*[Part(1), Part(0)] * 50)
    assert (low, value, high) == (pytest.approx(0.4, abs=0.011), 0.5, pytest.approx(0.6, abs=0.011))
    # Of two, none or both are right in a quarter of the draws each.
    assert hits(Part(1), Part(0)) == (0.0, 0.5, 1.0)


def test_draws_with_nothing_to_count_are_no_draws() -> None:
    # Three draws in ten miss the one request that counts; they would be 1 otherwise.
    assert hits(Part(1, 2), Part(0, 0), Part(0, 0)) == (0.5, 0.5, 0.5)
    assert hits(Part(0, 0)) == (1.0, 1.0, 1.0)


def test_nothing_predicted_has_no_precision_where_something_was_due() -> None:
    assert hits(Part(0, 0, else_due=1)) == (0.0, 0.0, 0.0)
    assert [Counts(0, 0, due).precision for due in (0, 1)] == [1.0, 0.0]
    assert [Counts(0, said, 0).recall for said in (0, 1)] == [1.0, 0.0]


def test_two_runs_are_compared_request_by_request() -> None:
    gold = [graph(("Translation", ["Hi"]), record=str(n)) for n in range(40)]
    worse = {str(n): graph(("Translation" if n % 4 else "Rank", ["Hi"]), record=str(n)) for n in range(40)}
    better = {one.id: one for one in gold}
    gain = differences(score(gold, worse, MAKES), score(gold, better, MAKES))[0]
    assert gain.value == pytest.approx(0.25)
    assert 0 < gain.low < gain.value < gain.high
    same = differences(score(gold, worse, MAKES), score(gold, worse, MAKES))[0]
    assert (same.low, same.value, same.high) == (0.0, 0.0, 0.0)


def test_runs_without_a_common_request_are_not_compared() -> None:
    one, other = graph(record="1"), graph(record="2")
    with pytest.raises(InputError, match="in common"):
        differences(scored(one, one), scored(other, other))


def test_a_report_says_how_many_requests_have_no_plan_and_what_the_rest_took() -> None:
    gold = [graph(("Translation", ["Hi"]), record=str(n)) for n in range(3)]
    took = [
        Prediction(graph=gold[n], seconds=n + 1.0, usage=Usage(calls=1, input_tokens=10)) for n in range(2)
    ]
    report = report_on("some", score(gold, {one.graph.id: one.graph for one in took}, MAKES), took)
    assert (report.requests, report.unanswered) == (3, 1)
    assert report.seconds[0] == 1.5
    assert report.usage == Usage(calls=2, input_tokens=20)


def test_a_report_says_how_often_the_planner_failed_and_why_mostly() -> None:
    gold = [graph(("Translation", ["Hi"]), record=str(n)) for n in range(4)]
    reasons = [None, "it is slow", "it is down", "it is down"]
    made = [Prediction(graph=graph(record=str(n)), error=reason) for n, reason in enumerate(reasons)]
    report = report_on("weak", score(gold, {}, MAKES), made)
    assert (report.failed, report.reason, report.seconds) == (3, "it is down", ())
    assert report_on("fine", score(gold, {}, MAKES), made[:1]).reason is None


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("", "", 1.0),
        ("a", "", 0.0),
        ("abc", "abc", 1.0),
        ("abc", "acb", 2 / 3),
        ("kitten", "sitting", 8 / 13),
    ],
)
def test_likeness_is_that_of_levenshteins_ratio(one: str, other: str, alike: float) -> None:
    assert likeness(one, other) == pytest.approx(alike)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("example.jpg", "image"),
        ("'a.wav'", "audio"),
        ("see b.mp4.", "video"),
        ("a.txt", "text"),
        ("Hi", "text"),
    ],
)
def test_the_kind_of_an_argument_is_told_by_an_ending_in_it(value: str, kind: str) -> None:
    assert kind_of(value) == kind


def test_objects_and_lists_of_arguments_are_read_as_taskbench_reads_them() -> None:
    read = graph(("Thing", [{"name": "text", "value": "x"}, ["a", "b"], 7]))
    assert read.nodes[0].arguments == ("text", "a b", "7")


@pytest.mark.parametrize("mode", ["compat", "strict"])
def test_underscores_in_the_names_of_tools_are_blanks_wherever_they_stand(mode: Mode) -> None:
    made = PlanGraph(id="1", nodes=(PendingTask(task="get_text"), PendingTask(task="say_it", arguments=("<node-0>",))))
    gold = graph(("get_text", []), ("say it", ["<node-0>"]))
    scores = score([gold], {"1": made}, {"get_text": "text", "say_it": "audio"}, mode)
    assert [scores.f1(metric) for metric in METRICS] == [1.0] * 4
    assert scores.counts("node").both == 2
    assert scores.counts("type").both == 1
    assert to_record(made)["task_nodes"][0]["task"] == "get_text"


@pytest.mark.parametrize(
    "broken", [{}, {"id": "1"}, {"id": "1", "task_nodes": ["x"]}, {"id": "1", "task_nodes": [{}]}]
)
def test_a_record_that_is_no_plan_is_named(broken: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="plan"):
        read_graph(broken)


def test_our_plans_become_taskbench_plans_and_survive_the_way_through_a_file() -> None:
    plan = Plan.parse(
        '[{"task": "translation", "id": 4, "dep": [-1], "args": {"text": "Hi", "tgt_lang": "fr"}},'
        ' {"task": "sentence-similarity", "id": 6, "dep": [4], "args":'
        ' {"text": "<resource>-4", "sentences": ["a", "b"]}}]'
    )
    made = graph_of(plan, TASKS, "9")
    assert [node.arguments for node in made.nodes] == [("Hi", "fr"), ("<node-0>", "a", "b")]
    assert links(made) == [("translation", "sentence-similarity")]
    assert read_graph(to_record(made, "…")) == made
