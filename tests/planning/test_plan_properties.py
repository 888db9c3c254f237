"""For any text the plan is valid, independent of chunking, and parsed in linear time.

Of the files in tests/data, planner_outputs.jsonl holds outputs of strong and weak planners; plan_rules.jsonl
has an example of each rule; paper_plans.jsonl has the plans of the paper's case studies, as intended and as
printed with slips. A line is an output: its name, its "text" (or "tasks", written as JSON), the "tools"
beside the Hub's tasks, the "plan" as [task, id, dep, args], and words of the "notes".
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from cost import cost_of
from hypothesis import given, settings
from hypothesis import strategies as st

from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task
from jarvis_agent.planning.parser import StreamingPlanParser
from jarvis_agent.planning.plan import Plan

LOOK = '{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}}'
SPEAK = '{"task": "text-to-speech", "id": 0, "dep": [-1], "args": {"text": "hello"}}'


def stream(text: str, cuts: Iterable[int] = ()) -> Any:
    """The plan, the tasks given out, and what is broken, when the text comes cut at these places."""
    builder, given_out, start = StreamingPlanParser(TASKS), [], 0
    for cut in [*sorted(cuts), len(text)]:
        given_out += builder.feed(text[start:cut])
        start = max(start, cut)
    given_out += builder.finish()
    return Plan(tasks=builder.tasks, notes=builder.notes), given_out, builder.errors


ids = st.integers(0, 4)
references = st.builds(
    lambda i, form: form.format(i),
    ids,
    st.sampled_from(
        ["<resource>-{}", "<GENERATED>-{}", "see <resource-{}> now", "<resource>-{0},<resource>-0"]
    ),
)
values = st.one_of(
    references,
    st.sampled_from(["a.jpg", "b.wav", "hello", "", None, "https://x.org/y", 5, {"a": 1}]),
    st.lists(references | st.sampled_from(["a.jpg", "b"]), max_size=3),
)
nested = st.recursive(
    references,
    lambda inner: (
        st.dictionaries(st.sampled_from(["url", "path"]) | references, inner, max_size=2)
        | st.lists(inner, max_size=2)
    ),
    max_leaves=4,
)
values = values | nested | st.fixed_dictionaries({"url": nested})
arguments = st.one_of(
    st.dictionaries(
        st.sampled_from(["text", "image", "question", "context", "labels", "img", "foo"]), values, max_size=3
    ),
    st.lists(values, max_size=3),
    values,
)
names = ["image-to-text", "text-to-image", "object-det", "VQA", "qa", "zero-shot-classification"]
names.append("pose-text-to-image")
slots = {
    "task": st.sampled_from([*names, *names, "image-to-image", "text-to-speach", "nonsense"]),
    "id": st.one_of(ids, ids, st.builds("task_{}".format, ids), st.none()),
    "dep": st.one_of(ids, st.lists(st.integers(-1, 5), max_size=3), st.none()),
    "args": arguments,
}
complete = st.one_of(
    *(
        st.fixed_dictionaries(
            {**slots, "task": st.just(task), "args": st.fixed_dictionaries(dict.fromkeys(args, values))}
        )
        for task, args in {
            "image-to-text": ["image"],
            "text-to-image": ["text"],
            "zero-shot-classification": ["text", "labels"],
        }.items()
    )
)
plans = st.lists(
    complete | st.fixed_dictionaries(slots) | st.fixed_dictionaries({}, optional=slots), max_size=6
)


def assert_valid(plan: Any) -> None:
    known: set[int] = set()
    for task in plan.tasks:
        spec = TASKS[task.task]
        assert task.id not in known
        assert task.dep == [-1] or task.dep == sorted(set(task.dep))
        assert set(refs_in(task.args)) <= set(task.deps) <= known
        assert set(spec.required) <= set(task.args) <= {arg.name for arg in spec.inputs}
        for name, value in task.args.items():
            arg = spec.arg(name)
            assert arg is not None
            assert all(TASKS[plan.task(i).task].makes(arg.kind) for i in refs_in(value))
            assert isinstance(value, list if arg.many else str)
        known.add(task.id)


@settings(max_examples=100)
@given(plans, st.data())
def test_any_plan_becomes_valid_and_chunking_makes_no_difference(written: Any, data: st.DataObject) -> None:
    text = json.dumps(written)
    text = text[: data.draw(st.integers(0, len(text)) | st.just(len(text)))]
    plan, given_out, broken = stream(text)
    assert given_out == plan.tasks
    assert_valid(plan)
    assert stream(text, range(len(text))) == (plan, given_out, broken)
    assert stream(text, data.draw(st.lists(st.integers(0, len(text)), max_size=3))) == (
        plan,
        given_out,
        broken,
    )


@settings(max_examples=60)
@given(plans, plans)
def test_any_repair_keeps_the_plan_valid_and_the_returned_tasks_unchanged(written: Any, again: Any) -> None:
    builder = StreamingPlanParser(TASKS)
    before = builder.feed(json.dumps(written)) + builder.finish()
    after = builder.apply_repair(json.dumps(again))
    assert builder.tasks == before + after
    assert_valid(Plan(tasks=builder.tasks, notes=builder.notes))


@settings(max_examples=60)
@given(plans)
def test_a_repaired_plan_needs_no_repair(written: Any) -> None:
    plan = Plan.parse(json.dumps(written))
    assert Plan.parse(plan.to_json()) == Plan(tasks=plan.tasks)


@settings(max_examples=100)
@given(st.text() | st.text(alphabet="[]{}\"':,task <resource>-01\\"), st.data())
def test_no_text_raises(text: str, data: st.DataObject) -> None:
    plan, given_out, _ = stream(text, data.draw(st.lists(st.integers(0, len(text)), max_size=2)))
    assert given_out == plan.tasks
    assert_valid(plan)


def test_lone_surrogates_are_replaced() -> None:
    plan = Plan.parse(
        '[{"task": "text-to-speech", "id": 0, "args": {"text": "a \ud83d b \\udc00 \\ud83d\\ude00"}}]'
    )
    assert plan.tasks[0].args == {"text": "a � b � 😀"}
    Plan.parse("\ud83d").model_dump_json()


HOSTILE = {
    "brackets": ("[", ""),
    "braces": ("{", ""),
    "quotes": ('"', ""),
    "nested wrappers": ('{"tasks": [', ""),
    "nested arguments": ('{"task": "text-to-speech", "args": ', ""),
    "one task again and again": (SPEAK + ",", ""),
    "many lists": ("[]", ""),
    "many dependencies": ("1, ", '{"task": "text-to-speech", "id": 0, "args": {"text": "a"}, "dep": ['),
    "many arguments": ('"a", ', '{"task": "text-to-speech", "id": 0, "args": ['),
    "many texts": ('"a", ', '{"task": "text-to-speech", "id": 0, "args": {"text": ['),
    "many references": ("<resource>-0 ", LOOK + '{"task": "text-to-speech", "args": {"text": "'),
    "a long name": ("text-to-speec", '{"task": "'),
    "a long id": ("9", '{"task": "text-to-speech", "id": "'),
    "quotes in a text": ('a "b", c', '{"task": "text-to-speech", "id": 0, "args": {"text": "'),
    "backslashes": ("\\", '{"task": "text-to-speech", "id": 0, "args": {"text": "'),
    "file names": ("a.jpg, ", '{"task": "image-to-text", "id": 0, "args": {"image": "'),
    "angle brackets": ("<", ""),
    "half a tag": ("<think", ""),
    "thinking without an end": ("<think>a[", ""),
    "comments": ("# a\n", "["),
    "words": ("word ", "[{a: "),
    "commas": (",", "["),
    "colons": (":", "{"),
}


def cost(text: str, piece: int = 0) -> Any:
    """The cost of parsing a text, whole or in pieces of that size."""

    def parse() -> None:
        builder = StreamingPlanParser(TASKS)
        for at in range(0, len(text), piece or len(text)):
            builder.feed(text[at : at + (piece or len(text))])
        builder.finish()
        assert Plan(tasks=builder.tasks, notes=builder.notes).notes is not None

    return cost_of(parse)


@pytest.mark.parametrize(("unit", "start"), HOSTILE.values(), ids=HOSTILE.keys())
def test_the_cost_of_a_hostile_text_grows_linearly_also_in_single_characters(unit: str, start: str) -> None:
    def text(length: int) -> str:
        return start + (unit * length)[:length]

    assert cost(text(16_000)) <= 10 * cost(text(2_000)) + 5_000
    assert cost(text(8_000), piece=1) <= 10 * cost(text(1_000), piece=1) + 5_000


def test_the_cost_of_many_tasks_is_bounded() -> None:
    def text(count: int) -> str:
        draw = {"task": "text-to-image"}
        return json.dumps([draw | {"id": i, "dep": [i - 1], "args": {"text": f"{i}"}} for i in range(count)])

    assert cost(text(2_000)) <= 8 * cost(text(256))


@pytest.mark.parametrize("slot", ["dep", "args"])
def test_the_cost_of_tasks_that_depend_on_each_other_grows_linearly(slot: str) -> None:
    """Twice the tasks are four times the text, since each names all of them."""

    def text(count: int) -> str:
        needs = {"dep": list(range(count)), "args": {"text": "a"}}
        if slot == "args":
            needs = {"args": {"text": " ".join(f"<resource>-{i}" for i in range(count))}}
        return json.dumps([{"task": "summarization", "id": i, **needs} for i in range(count)])

    assert cost(text(96)) <= 6 * cost(text(48))


DATA = Path(__file__).parents[1] / "data"


def read(name: str) -> list[dict[str, Any]]:
    outputs = [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]
    return [
        {**output, "text": output["text"] if "text" in output else json.dumps(output["tasks"])}
        for output in outputs
    ]


OUTPUTS = read("planner_outputs.jsonl")
RULES = read("plan_rules.jsonl") + read("paper_plans.jsonl")


def rows(tasks: list[Task]) -> list[list[Any]]:
    return [[task.task, task.id, task.dep, task.args] for task in tasks]


def test_each_output_becomes_the_intended_plan() -> None:
    failures = {}
    for output in OUTPUTS + RULES:
        plan = Plan.parse(output["text"], output.get("tools"))
        missing = [words for words in output.get("notes", ()) if not any(words in n for n in plan.notes)]
        surplus = plan.notes if output in RULES and not output["notes"] else []
        if rows(plan.tasks) != output["plan"] or missing or surplus:
            failures[output["name"]] = plan
    assert failures == {}


def test_chunking_makes_no_difference() -> None:
    cases = [(output, size) for output in OUTPUTS + RULES if "tools" not in output for size in (1, 7)]
    for output, size in cases:
        parser, text = StreamingPlanParser(TASKS), output["text"]
        tasks = [task for at in range(0, len(text), size) for task in parser.feed(text[at : at + size])]
        tasks += parser.finish()
        assert rows(tasks) == output["plan"], output["name"]


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    names = [output["name"] for output in OUTPUTS + RULES]
    assert len(names) == len(set(names))
    assert len(OUTPUTS) >= 200


def test_only_an_empty_list_is_an_empty_plan_without_a_note() -> None:
    notes = {output["name"]: Plan.parse(output["text"]).notes for output in OUTPUTS if not output["plan"]}
    assert notes["nothing: an empty list"] == []
    assert notes["nothing: an empty list of tasks"] == []
    assert notes["nothing: a refusal"]
    assert notes["nothing: HTML"]
