"""Any text becomes a valid plan; tasks are given out as soon as they are final; every mend is told."""

import json

import pytest

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task
from jarvis_agent.planning.parser import PlanParseError, StreamingPlanParser
from jarvis_agent.planning.plan import Plan


def speak(task_id, text="hello", dep=None):
    return {
        "task": "text-to-speech",
        "id": task_id,
        "dep": [-1] if dep is None else dep,
        "args": {"text": text},
    }


def look(task_id, image="a.jpg", dep=None):
    return {
        "task": "image-to-text",
        "id": task_id,
        "dep": [-1] if dep is None else dep,
        "args": {"image": image},
    }


def draw(task_id, text="a cat", dep=None):
    return {
        "task": "text-to-image",
        "id": task_id,
        "dep": [-1] if dep is None else dep,
        "args": {"text": text},
    }


def parse(*objects):
    return Plan.parse(json.dumps(objects))


def shape(plan):
    return [(task.id, task.task, task.dep) for task in plan.tasks]


def read(text):
    """The plan, and what is broken."""
    builder = StreamingPlanParser(TASKS)
    builder.feed(text)
    builder.finish()
    return Plan(tasks=builder.tasks, notes=builder.notes), builder.errors


PLAIN = json.dumps([look(0), speak(1, "<resource>-0", [0])])


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"Sure! Here is the plan:\n```json\n{PLAIN}\n```\nIt reads the image aloud.",
        f"<think>Perhaps [{json.dumps(draw(7))}]?</think>\n{PLAIN}",
        f'{{"tasks": {PLAIN}}}',
        f'{{"plan": {PLAIN}, "reason": "as asked"}}',
        f'{{"name": "my plan", "steps": {PLAIN}}}',
        f'{{"task": "Read it aloud", "tasks": {PLAIN}}}',
        PLAIN[1:-1],
        PLAIN[1:-1].replace('}}, {"', '}}\n{"'),
        f'{{"0": {json.dumps(look(0))}, "1": {json.dumps(speak(1, "<resource>-0", [0]))}}}',
        PLAIN.replace('"', "'"),
        PLAIN.replace('"id"', "id").replace('"dep"', "dep"),
        PLAIN.replace("}}]", "}},],").replace("}}", ",}}"),
        PLAIN.replace('"', "“", 1).replace('"', "”", 1),
        PLAIN.replace("[{", "[ // the plan\n{"),
        PLAIN.replace("<resource>-0", "<GENERATED>-0"),
        PLAIN.replace("}}, {", "}, {"),
        PLAIN[:-1],
        PLAIN[:-2],
        PLAIN + PLAIN,
        json.dumps(PLAIN),
    ],
)
def test_a_plan_is_read_however_it_is_written(text):
    plan = Plan.parse(text)
    assert shape(plan) == [(0, "image-to-text", [-1]), (1, "text-to-speech", [0])]
    assert plan.task(1).args == {"text": "<resource>-0"}


def test_what_was_not_json_is_noted_once():
    assert Plan.parse(f"{PLAIN[:-1]},]".replace('"', "'")).notes == [
        "it was not valid JSON and was repaired: other quotes than JSON's, a trailing comma"
    ]


@pytest.mark.parametrize(
    "text", ["[]", "{}", "Nothing to do: ```json\n[]\n```", '{"tasks": []}', "<think>hm</think>[]"]
)
def test_a_plan_may_be_empty_on_purpose(text):
    assert read(text) == (Plan(), [])


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("Hello! How can I help you?", "Hello! How can I help you?"),
        ("", ""),
        ("<think>I would write []", ""),
        ('{"error": "I can not do that"}', {"error": "I can not do that"}),
        ('{"image-to-text": {"image": "a.jpg"}}', {"image-to-text": {"image": "a.jpg"}}),
        ("[1, 2]", ""),
        ('{"tasks": [', {"tasks": []}),
    ],
)
def test_a_text_without_a_plan_is_an_empty_plan_that_may_be_mended(text, raw):
    plan, broken = read(text)
    assert plan.tasks == []
    assert plan.notes[-1].startswith("no plan was found in: ")
    assert broken == [PlanParseError(raw, "it holds no JSON list of tasks")]


@pytest.mark.parametrize("objects", [[look(0), {"image": "b.jpg"}], [{"image": "b.jpg"}, look(0)]])
def test_what_is_not_a_task_is_left_out_with_a_note(objects):
    plan = parse(*objects)
    assert [task.id for task in plan.tasks] == [0]
    assert plan.notes == ["what is not a task was left out: {'image': 'b.jpg'}"]


def test_a_plan_that_is_cut_off_keeps_its_whole_tasks_and_notes_the_half_one():
    whole = [look(0), speak(1, "<resource>-0", [0]), draw(2, "a dog")]
    text = json.dumps(whole)
    tasks = Plan.parse(text).tasks
    for end in range(len(text)):
        plan = Plan.parse(text[:end])
        assert plan.tasks == tasks[: len(plan)]
        assert len(plan) >= text[:end].count("}}")
        begun = text[:end].count('"task": "') > len(plan)
        assert not begun or plan.notes[-1].endswith("was left out: the text ends in the middle of it")


def test_ids_that_were_written_are_kept():
    assert [t.id for t in parse(look(7), look(3, "b.jpg"), look(100, "c.jpg")).tasks] == [7, 3, 100]


def test_a_task_without_an_id_gets_a_fresh_one_and_is_known_by_its_place():
    first = {"task": "image-to-text", "args": {"image": "a.jpg"}}
    plan = parse(first, {"task": "text-to-speech", "id": None, "args": {"text": "<resource>-0"}})
    assert shape(plan) == [(100, "image-to-text", [-1]), (101, "text-to-speech", [100])]
    assert plan.notes == [
        "task 100 (image-to-text): it had no id and it got 100",
        "task 101 (text-to-speech): it had no id and it got 101",
    ]


def test_a_fresh_id_is_never_one_that_was_written():
    plan = parse(look(100), look(100, "b.jpg"), look(101, "c.jpg"), look(102, "d.jpg"))
    assert [t.id for t in plan.tasks] == [100, 101, 102, 103]
    assert [t.args["image"] for t in plan.tasks] == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]


def test_a_reference_after_a_duplicate_means_the_last_that_makes_its_kind():
    plan = parse(draw(0), look(0), look(1, "<resource>-0"), speak(2, "<resource>-0"))
    assert plan.task(1).args == {"image": "<resource>-0"}
    assert plan.task(2).args == {"text": "<resource>-100"}


def test_a_dependency_after_a_duplicate_means_the_last():
    assert parse(look(0), look(0, "b.jpg"), speak(1, dep=[0])).task(1).dep == [100]


def test_a_task_may_refer_to_an_earlier_one_of_its_own_id():
    plan = parse(look(0), speak(0, "<resource>-0", [0]))
    assert shape(plan) == [(0, "image-to-text", [-1]), (100, "text-to-speech", [0])]


def test_a_task_written_twice_in_the_same_words_is_done_once():
    plan = parse(look(0), speak(1), look(0))
    assert [t.id for t in plan.tasks] == [0, 1]
    assert plan.notes == ["task 0 was written twice in the same words and is done once"]


def test_a_task_that_refers_ahead_stands_after_what_it_needs():
    plan = parse(speak(0, "<resource>-1"), look(1, "<resource>-2", [2]), draw(2))
    assert shape(plan) == [(2, "text-to-image", [-1]), (1, "image-to-text", [2]), (0, "text-to-speech", [1])]
    assert plan.notes == []


def test_a_circle_of_dependencies_is_broken_where_it_goes_back():
    plan = parse(draw(0, dep=[2]), draw(1, "b", dep=[0]), draw(2, "c", dep=[1]))
    assert [(t.id, t.dep) for t in plan.tasks] == [(0, [-1]), (1, [0]), (2, [1])]
    assert plan.notes == [
        "task 0 (text-to-image): its dependency on 2 was left out: "
        "it means task 2 (text-to-image), which needs this task in turn"
    ]


def test_a_reference_that_closes_a_circle_means_the_dependency():
    plan = parse(draw(5), look(0, "<resource>-1", [5]), speak(1, "<resource>-0"))
    assert plan.task(0).args == {"image": "<resource>-5"}
    assert plan.task(1).dep == [0]


def test_a_reference_that_closes_a_circle_and_can_not_be_mended_is_reported():
    plan = parse(look(0, "<resource>-1"), draw(1, "<resource>-0"), speak(2))
    assert [t.id for t in plan.tasks] == [2]
    assert plan.notes == [
        "task 0 (image-to-text) was left out: <resource>-1 can not be its image: "
        "it means task 1 (text-to-image), which needs this task in turn",
        "task 1 (text-to-image) was left out: it needs a task that was left out",
    ]


def test_what_needs_a_task_that_is_left_out_is_left_out_too():
    nonsense = {"task": "make-coffee", "id": 0, "args": {}}
    plan = parse(nonsense, draw(1), speak(2, dep=[0]), speak(3, "after", [2]))
    assert [t.id for t in plan.tasks] == [1]
    assert [note.split(" was left out")[0] for note in plan.notes] == [
        "task 0",
        "task 2 (text-to-speech)",
        "task 3 (text-to-speech)",
    ]


def test_a_plan_has_a_limit():
    plan = parse(*(speak(i, f"line {i}") for i in range(300)))
    assert [t.id for t in plan.tasks] == list(range(256))
    assert plan.notes == ["tasks left out: 44, since a plan has at most 256"]


def test_fanned_tasks_count_for_the_limit_and_leave_room_for_what_waits():
    lists = [speak(i, [f"{i}-{j}" for j in range(64)]) for i in range(5)]
    plan = parse(speak(9, "waits", [8]), *lists)
    assert len(plan) == 256
    assert plan.tasks[-1].id == 9
    assert "tasks left out: 1, since a plan has at most 256" in plan.notes


def test_tasks_are_given_out_while_the_plan_is_still_being_written():
    builder = StreamingPlanParser(TASKS)
    assert builder.feed('[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}') == []
    assert [t.id for t in builder.feed("}, ")] == [0]
    assert builder.feed(json.dumps(speak(1, "<resource>-2")) + ",") == []
    assert [t.id for t in builder.feed(json.dumps(look(2)))] == [2, 1]
    assert builder.finish() == []
    assert builder.finish() == []
    assert [t.id for t in Plan(tasks=builder.tasks, notes=builder.notes).tasks] == [0, 2, 1]


def test_what_is_broken_is_told_with_its_error_and_can_be_written_again():
    builder = StreamingPlanParser(TASKS)
    bad = {"task": "make-noise", "id": 0, "args": {}}
    assert [t.id for t in builder.feed(json.dumps([bad, speak(1, dep=[0]), draw(2)]))] == [2]
    assert builder.finish() == []
    assert [(b.raw, "make-noise" in b.error) for b in builder.errors] == [(bad, True)]
    assert [t.id for t in builder.apply_repair("Sorry! " + json.dumps([speak(0, "noise")]))] == [0, 1]
    assert builder.errors == []
    assert Plan(tasks=builder.tasks, notes=builder.notes).notes == [
        "task 0 (text-to-speech): it was repaired by its planner"
    ]


def test_what_is_written_again_is_put_in_place_by_id_and_then_by_order():
    builder = StreamingPlanParser(TASKS)
    builder.feed(json.dumps([{"task": "x", "id": i} for i in range(3)] + [draw(3)]))
    builder.finish()
    reply = [draw(1, "by id"), draw(3, "not asked for"), {**draw(None, "by order")}]
    tasks = builder.apply_repair(json.dumps(reply))
    assert [(t.id, t.args["text"]) for t in tasks] == [(0, "by order"), (1, "by id")]
    assert Plan(tasks=builder.tasks, notes=builder.notes).task(3).args == {"text": "a cat"}
    assert len(builder.errors) == 1


def test_what_was_cut_off_can_be_written_again():
    builder = StreamingPlanParser(TASKS)
    builder.feed(json.dumps([draw(0), draw(1, "a dog")])[:-6])
    builder.finish()
    assert [b.error for b in builder.errors] == ["the text ends in the middle of it"]
    assert [t.id for t in builder.apply_repair(json.dumps(draw(1, "a dog")))] == [1]


def test_a_task_may_be_broken_still_after_it_was_written_again():
    builder = StreamingPlanParser(TASKS)
    builder.feed(json.dumps([look(0, "<resource>-0")]))
    builder.finish()
    assert builder.apply_repair(json.dumps([look(0, "<resource>-4")])) == []
    assert (
        Plan(tasks=builder.tasks, notes=builder.notes)
        .notes[-1]
        .endswith("<resource>-4 can not be its image: it means no task of the plan")
    )


@pytest.mark.parametrize(
    "reply", ["", "no", "[]", "[{", '[{"task": "x", "id": 0}]', '{"a": 1}', "[[[[", '{"task": 1}']
)
def test_a_useless_reply_mends_nothing(reply):
    builder = StreamingPlanParser(TASKS)
    builder.feed('[{"task": "make-noise", "id": 0}]')
    builder.finish()
    assert builder.apply_repair(reply) == []
    assert len(builder.errors) == 1


def test_a_text_without_a_plan_can_be_answered_with_one():
    builder = StreamingPlanParser(TASKS)
    builder.feed("I would first look at it.")
    builder.finish()
    assert [t.id for t in builder.apply_repair(json.dumps([speak(1, "<resource>-0"), look(0)]))] == [0, 1]
    assert builder.errors == []
    assert Plan(tasks=builder.tasks, notes=builder.notes).notes == []


def test_a_text_without_a_plan_can_be_answered_with_an_empty_one():
    builder = StreamingPlanParser(TASKS)
    builder.feed("Hello!")
    builder.finish()
    assert builder.apply_repair("[]") == []
    assert builder.errors == []


def test_chunks_of_a_plan_add_up():
    first, second, third = parse(look(0), speak(1, "<resource>-0"), draw(2)).tasks
    whole = Plan(tasks=[first, second], notes=["a"]) + Plan(tasks=[second, third], notes=["b", "a"])
    assert whole == Plan(tasks=[first, second, third], notes=["a", "b"])
    assert Plan() + whole == whole + Plan() == whole
    assert len(whole) == 3


def test_a_plan_is_put_in_the_papers_format():
    plan = Plan(tasks=[Task(task="text-to-speech", id=0, dep=[], args={"text": "ü"})])
    assert plan.to_json() == '[{"task": "text-to-speech", "id": 0, "dep": [-1], "args": {"text": "ü"}}]'


def test_a_plan_is_drawn_as_a_flowchart():
    plan = parse(look(0), speak(1, "<resource>-0"))
    assert (
        plan.to_mermaid()
        == 'flowchart TD\n    t0["0: image-to-text"]\n    t1["1: text-to-speech"]\n    t0 --> t1'
    )


def test_a_flowchart_shows_strange_names_as_they_are():
    plan = Plan(tasks=[Task(task='a "b" #1 <c>\n& `d`', id=0)])
    label = "0: a #quot;b#quot; #35;1 #lt;c#gt; #amp; #96;d#96;"
    assert plan.to_mermaid() == f'flowchart TD\n    t0["{label}"]'


def test_a_plan_is_json_and_back():
    plan = parse(look(0), speak(1, "<resource>-0"))
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


def test_a_task_that_there_is_not_is_a_key_error():
    with pytest.raises(KeyError):
        parse(look(0)).task(1)
