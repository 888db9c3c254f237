"""Plans: reading while they stream, repair by the planner, limits, tools, and the forms of a Plan."""

import json
from typing import Any

import pytest
from langchain_core.tools import tool

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Task
from jarvis_agent.execution.run import Run
from jarvis_agent.planning.normalise import MAX_TASKS
from jarvis_agent.planning.parser import PlanParseError, StreamingPlanParser
from jarvis_agent.planning.plan import Plan


def task(name: str, task_id: int, dep: Any = None, **args: Any) -> dict[str, Any]:
    return {"task": name, "id": task_id, "dep": [-1] if dep is None else dep, "args": args}


def speak(task_id: int, text: str = "hello", dep: Any = None) -> dict[str, Any]:
    return task("text-to-speech", task_id, dep, text=text)


def look(task_id: int, image: Any = "a.jpg", dep: Any = None) -> dict[str, Any]:
    return task("image-to-text", task_id, dep, image=image)


def draw(task_id: int, text: str = "a cat", dep: Any = None) -> dict[str, Any]:
    return task("text-to-image", task_id, dep, text=text)


def parse(*objects: Any, **options: Any) -> Plan:
    return Plan.parse(json.dumps(objects), **options)


def finished(text: str) -> StreamingPlanParser:
    """The parser of a whole text."""
    parser = StreamingPlanParser(TASKS)
    parser.feed(text)
    parser.finish()
    return parser


def test_a_plan_may_be_empty_on_purpose() -> None:
    for text in ("[]", "{}", "Nothing to do: ```json\n[]\n```", '{"tasks": []}', "<think>hm</think>[]"):
        parser = finished(text)
        assert (parser.tasks, parser.notes, parser.errors) == ([], [], []), text


def test_a_text_without_a_plan_is_an_empty_plan_that_may_be_repaired() -> None:
    for text, raw in (
        ("Hello! How can I help you?", "Hello! How can I help you?"),
        ("", ""),
        ("<think>I would write []", ""),
        ('{"error": "I cannot do that"}', {"error": "I cannot do that"}),
        ('{"image-to-text": {"image": "a.jpg"}}', {"image-to-text": {"image": "a.jpg"}}),
        ("[1, 2]", "[1, 2]"),
        ('{"tasks": [', {"tasks": []}),
    ):
        parser = finished(text)
        assert parser.tasks == []
        assert parser.notes[-1].startswith("the reply contains no plan: ")
        assert parser.errors == [PlanParseError(raw, "it holds no JSON list of tasks")]
        if text:
            assert parser.apply_repair("[]") == []
            assert parser.errors == []
    parser = finished("I would first look at it.")
    assert [t.id for t in parser.apply_repair(json.dumps([speak(1, "<resource>-0"), look(0)]))] == [0, 1]
    assert (parser.errors, parser.notes) == ([], [])


def test_a_plan_that_is_cut_off_keeps_its_complete_tasks() -> None:
    whole = [look(0), speak(1, "<resource>-0", [0]), draw(2, "a dog")]
    text = json.dumps(whole)
    tasks = Plan.parse(text).tasks
    for end in range(len(text)):
        plan = Plan.parse(text[:end])
        assert plan.tasks == tasks[: len(plan)]
        assert len(plan) >= text[:end].count("}}")
        begun = text[:end].count('"task": "') > len(plan)
        assert not begun or plan.notes[-1].endswith("was left out: the text ends in the middle of it")
    text = '[{"task": "image-to-text", "args": {"image": "a.jpg"}}, {"task": "text-to-speech", "args": {"te'
    assert "task number 2 was left out: the text ends in the middle of it" in Plan.parse(text).notes


def test_removed_are_the_notes_on_what_a_plan_lacks() -> None:
    many = task("VQA", 3, text=["a?"], image=["x.jpg"] * 70)
    rows = [speak("0"), task("fly", 1), speak(2, "<resource>-1"), many]
    plan = Plan.parse(json.dumps(rows).replace('"hello"}', '"hello",}'))
    assert [note.partition(":")[0] for note in plan.removed] == [
        "task 1 was left out",
        "task 2 (text-to-speech) was left out",
        "task 3 (visual-question-answering)",
    ]
    assert set(plan.removed) < set(plan.notes)
    assert (plan + plan).removed == plan.removed
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert not Run(plan=plan).ok
    repaired = parse({"name": "text-to-speech", "args": {"text": "x"}}, speak(5))
    assert (repaired.removed, Run(plan=repaired).ok) == ([], True)
    assert "removed" not in repaired.model_dump()


def test_a_plan_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = parse(*(speak(i, f"line {i}") for i in range(300)))
    assert [t.id for t in plan.tasks] == list(range(256))
    assert plan.notes == ["tasks left out: 44, since a plan has at most 256"]
    # Fanned tasks count, and leave room for those that wait.
    lists = [speak(i, [f"{i}-{j}" for j in range(64)]) for i in range(5)]
    plan = parse(speak(9, "waits", [8]), *lists)
    assert len(plan) == 256
    assert plan.tasks[-1].id == 9
    assert "tasks left out: 1, since a plan has at most 256" in plan.notes
    # A task may refer to as many tasks as a plan has, in its `dep` and in its arguments.
    others = list(range(200))
    for most, count in ((MAX_TASKS, 201), (199, 200)):
        monkeypatch.setattr("jarvis_agent.planning.normalise.MAX_TASKS", most)
        text = " ".join(f"<resource>-{i}" for i in others)
        assert len(parse(*map(look, others), speak(200, text, others))) == count
    names = [f"{i}.jpg" for i in range(20)]
    plan = parse(task("VQA", 0, text=[f"{i}?" for i in range(7)], image=names))
    assert len(plan) == 64
    assert any("more than 64 tasks; only the first 64 were kept" in note for note in plan.notes)


def test_tasks_are_returned_while_the_plan_streams() -> None:
    parser = StreamingPlanParser(TASKS)
    assert parser.feed('[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "a.jpg"}') == []
    assert [t.id for t in parser.feed("}, ")] == [0]
    assert parser.feed(json.dumps(speak(1, "<resource>-2")) + ",") == []
    assert [t.id for t in parser.feed(json.dumps(look(2)) + ",")] == [2]
    assert [t.id for t in parser.feed(json.dumps(speak(3, "<resource>-2")))] == [3]
    assert [t.id for t in parser.finish()] == [1]
    assert parser.finish() == []
    assert [t.id for t in parser.tasks] == [0, 2, 3, 1]


def test_a_broken_task_has_an_error_and_can_be_repaired() -> None:
    parser = StreamingPlanParser(TASKS)
    bad = {"task": "make-noise", "id": 0, "args": {}}
    assert [t.id for t in parser.feed(json.dumps([bad, speak(1, dep=[0]), draw(2)]))] == [2]
    assert parser.finish() == []
    assert [(b.raw, "make-noise" in b.error) for b in parser.errors] == [(bad, True)]
    assert [t.id for t in parser.apply_repair("Sorry! " + json.dumps([speak(0, "noise")]))] == [0, 1]
    assert parser.errors == []
    assert parser.notes == ["task 0 (text-to-speech): it was repaired by its planner"]


def test_repaired_tasks_are_matched_by_id_and_then_by_order() -> None:
    parser = finished(json.dumps([{"task": "x", "id": i} for i in range(3)] + [draw(3)]))
    reply = [draw(1, "by id"), draw(3, "not asked for"), draw(9, "with a new id"), draw(None, "without one")]
    tasks = parser.apply_repair(json.dumps(reply))
    texts = [(0, "with a new id"), (1, "by id"), (2, "without one")]
    assert [(t.id, t.args["text"]) for t in tasks] == texts
    assert parser.tasks[0].args == {"text": "a cat"}
    assert parser.errors == []
    parser = finished(json.dumps([draw(0), draw(1, "a dog")])[:-6])
    assert [b.error for b in parser.errors] == ["the text ends in the middle of it"]
    assert [t.id for t in parser.apply_repair(json.dumps(draw(1, "a dog")))] == [1]


def test_a_useless_repair_changes_nothing() -> None:
    replies = ["", "no", "[]", "[{", '[{"task": "x", "id": 0}]', '{"a": 1}', "[[[[", '{"task": 1}']
    cut_off = json.dumps([draw(0, "a cat on a mat")])[:-12]
    for reply in [*replies, cut_off, json.dumps([look(0, "<resource>-4")])]:
        parser = finished('[{"task": "make-noise", "id": 0}]')
        assert parser.apply_repair(reply) == []
        assert len(parser.errors) == 1, reply
    assert parser.notes[-1].endswith("<resource>-4 cannot be its image: it means no task of the plan")


FORMS_OF_THE_PAPER = [
    ("OCR", {"image": "a.jpg"}, "image-to-text", {"image": "a.jpg", "text": "read"}),
    ("ocr", {"image": "a.jpg", "text": "READ"}, "image-to-text", {"image": "a.jpg", "text": "READ"}),
    ("pose-to-image", {"image": "a.jpg", "text": "a zoo"}, "openpose-text-to-image", None),
    ("tabular-cls", {"text": "data.csv"}, "tabular-classification", {"table": "data.csv"}),
]


def test_calls_in_the_forms_of_the_paper_are_repaired() -> None:
    for name, args, meant, expected in FORMS_OF_THE_PAPER:
        (found,) = parse(task(name, 0, **args)).tasks
        assert (found.task, found.args) == (meant, args if expected is None else expected), name
    own = TaskSpec("ocr", "tool", "", (Arg("image", "image"),), ("text",))
    assert parse(task("ocr", 0, image="a.jpg"), tools=[own]).tasks[0].args == {"image": "a.jpg"}


def test_chunks_of_a_plan_add_up() -> None:
    first, second, third = parse(look(0), speak(1, "<resource>-0"), draw(2)).tasks
    whole = Plan(tasks=[first, second], notes=["a"]) + Plan(tasks=[second, third], notes=["b", "a"])
    assert whole == Plan(tasks=[first, second, third], notes=["a", "b"])
    assert Plan() + whole == whole + Plan() == whole
    assert len(whole) == 3


def test_a_plan_is_json_and_a_flowchart() -> None:
    plan = parse(look(0, "ü.jpg"), speak(1, "<resource>-0"))
    first = '[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "ü.jpg"}}, '
    assert plan.to_json().startswith(first)
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    tasks = '    t0["0: image-to-text"]\n    t1["1: text-to-speech"]'
    assert plan.to_mermaid() == f"flowchart TD\n{tasks}\n    t0 --> t1"
    label = "0: a #quot;b#quot; #35;1 #lt;c#gt; #amp; #96;d#96;"
    assert label in Plan(tasks=[Task(task='a "b" #1 <c>\n& `d`', id=0)]).to_mermaid()
    with pytest.raises(KeyError):
        plan.task(2)


def test_a_notebook_draws_a_plan_and_shows_its_notes_as_they_are_written() -> None:
    plan = Plan(tasks=[Task(task="```\nsee", id=0)], notes=["`![it](http://x)` was\n<odd>"])
    shown = plan._repr_markdown_()
    assert shown == f"```mermaid\n{plan.to_mermaid()}\n```\n\n- `'![it](http://x)' was <odd>`"
    assert shown.count("```") == 2, "a name does not end the block"
    assert Plan()._repr_markdown_().strip() == "no tasks"


def test_a_known_task_that_is_not_offered_is_not_a_misspelling_of_an_offered_one() -> None:
    parser = StreamingPlanParser({"audio-classification": TASKS["audio-classification"]})
    parser.feed(json.dumps([task("video-classification", 0, video="a.mp4", audio="a.wav")]))
    assert parser.finish() == []
    assert [error.raw["task"] for error in parser.errors] == ["video-classification"]


def test_a_name_that_only_resembles_a_task_is_an_error() -> None:
    for name in ("death-estimator", "objectdetector"):
        (error,) = finished(json.dumps([task(name, 0, text="a cat", image="a.jpg")])).errors
        assert f'"{name}" is not an available task; similar ones are ' in error.error


WEATHER = TaskSpec(
    "weather",
    "tool",
    "Tell the weather.",
    (Arg("city", "any"), Arg("days", "any", required=False), Arg("hours", "any", required=False, many=True)),
    ("text", "data"),
)


def test_a_purpose_is_kept_with_each_task_made_of_it_and_left_out_where_there_is_none() -> None:
    written = look(0, ["a.jpg", "b.jpg"]) | {"purpose": "chest\nX-rays"}
    plan = parse(written, look(2) | {"purpose": None}, look(3) | {"purpose": ["x"]}, draw(4))
    assert [one.purpose for one in plan.tasks] == ["chest X-rays", "chest X-rays", "", "", ""]
    assert [row.get("purpose") for row in json.loads(plan.to_json())[1:3]] == ["chest X-rays", None]
    assert Plan.load(plan.to_json()).tasks == Plan.parse(plan.to_json()).tasks == plan.tasks
    (long,) = parse(look(0) | {"purpose": "x" * 999}).tasks
    assert len(long.purpose) == 200
    visa = TaskSpec("visa", "tool", "", (Arg("purpose", "text"),), ())
    (asked,) = parse({"task": "visa", "id": 0, "purpose": "study"}, tools=[visa]).tasks
    assert (asked.args, asked.purpose) == ({"purpose": "study"}, "")


def test_a_tools_arguments_keep_their_types_and_unknown_ones_are_left_out() -> None:
    plan = parse(task("weather", 0, city="Rome", days=2, hours=[6, 12], foo=1), tools={"weather": WEATHER})
    assert plan.tasks[0].args == {"city": "Rome", "days": 2, "hours": [6, 12]}
    # Rows of a table do not fan out.
    table = TaskSpec("table-qa", "tabular", "", (Arg("text", "text"), Arg("table", "table")), ("text",))
    rows = [{"a": 1}, {"a": 2}]
    plan = parse(task("table-qa", 0, text="sum?", table=rows), tools=[table])
    assert plan.tasks[0].args == {"text": "sum?", "table": rows}


def test_a_tool_without_declared_outputs_may_make_any_kind() -> None:
    args = (Arg("what", "any"), Arg("all", "any", required=False, many=True))
    upload = task("upload", 1, what="<resource>-0", all=["<resource>-0", 5])
    plan = parse(draw(0), upload, look(2, "<resource>-1"), tools=[TaskSpec("upload", "tool", "", args, ())])
    assert plan.task(1).args == {"what": "<resource>-0", "all": ["<resource>-0", 5]}
    assert (plan.task(2).dep, plan.notes) == ([1], [])


def test_a_langchain_tool_is_a_task() -> None:
    @tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return city

    plan = parse({"task": "Weather", "id": 0, "args": ["Rome"]}, tools=[weather])
    assert plan.tasks[0].args == {"city": "Rome"}


@pytest.mark.parametrize(
    "text",
    [
        f'{{"preference": "local", "tasks": [{json.dumps(look(0))}]}}',
        f'Here: {{"tasks": [{json.dumps(look(0))}], "preference": "local"}}',
        f'[{{"preference": "local"}}, {json.dumps(look(0))}]',
        json.dumps([look(0) | {"preference": "local"}]),
        f"{{'preference': 'local', 'tasks': [{json.dumps(look(0))},]}}",
    ],
)
def test_a_plan_says_once_what_the_request_prefers_of_models(text: str) -> None:
    plan = Plan.parse(text)
    assert (plan.preference, plan.tasks) == ("local", [Task.model_validate(look(0))])
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    saved = (plan.model_dump_json(), Run(plan=plan).model_dump_json())
    assert [Plan.load(text).preference for text in saved] == ["local", "local"], "it is kept in a saved plan"
    assert Run(plan=plan).repeating(0).preference == "local"


def test_a_preference_is_known_with_the_first_task_and_must_be_a_known_one() -> None:
    parser = StreamingPlanParser(TASKS)
    assert parser.feed(f'{{"preference": "fastest", "tasks": [{json.dumps(look(0))}')
    assert parser.preference == "fastest"
    for unknown in ("/etc/passwd", ["local"], {"local": 1}, 7, None):
        plan = Plan.parse(json.dumps({"preference": unknown, "tasks": [look(0)]}))
        assert (plan.preference, len(plan)) == (None, 1)
        assert "preference" not in plan.model_dump_json()
