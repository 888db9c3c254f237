"""A task is understood by whatever names, slots and forms its planner wrote it with."""

import json

import pytest

from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.planning.parser import StreamingPlanParser
from jarvis_agent.planning.plan import Plan


def only(raw, **options):
    """The one task of a plan that holds this object."""
    plan = Plan.parse(json.dumps([raw]), **options)
    assert len(plan) == 1, plan.notes
    return plan.tasks[0]


def notes(raw, **options):
    return "\n".join(Plan.parse(json.dumps([raw]), **options).notes)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("object-detection", "object-detection"),
        ("Object Detection", "object-detection"),
        ("object_detection", "object-detection"),
        ("object-det", "object-detection"),
        ("object-detecton", "object-detection"),
        ("objectdetection", "object-detection"),
        ("VQA", "visual-question-answering"),
        ("ASR", "automatic-speech-recognition"),
        ("image-cls", "image-classification"),
        ("pose-text-to-image", "openpose-text-to-image"),
        ("text-to-speach", "text-to-speech"),
    ],
)
def test_a_task_is_known_by_its_aliases_and_by_small_misspellings(written, name):
    args = {"image": "a.jpg", "text": "hello", "audio": "a.wav"}
    assert only({"task": written, "id": 0, "args": args}).task == name


def test_a_misspelling_is_noted_and_an_alias_is_not():
    assert '"object-detecton" was taken as object-detection' in notes(
        {"task": "object-detecton", "id": 0, "args": {"image": "a.jpg"}}
    )
    assert notes({"task": "object-det", "id": 0, "args": {"image": "a.jpg"}}) == ""


@pytest.mark.parametrize("name", ["make-coffee", "xyz-text-to-image", "audio-detection", "", None, 7, ["a"]])
def test_a_task_that_there_is_not_is_left_out_with_a_note(name):
    plan = Plan.parse(json.dumps([{"task": name, "id": 0, "args": {"image": "a.jpg", "text": "a"}}]))
    assert plan.tasks == []
    assert "task 0 was left out" in plan.notes[-1]


def test_an_unknown_task_is_told_which_names_are_like_it():
    note = notes({"task": "voice-recognition-of-speech", "id": 0, "args": {"audio": "a.wav"}})
    assert "automatic-speech-recognition" in note


def test_a_task_that_exists_but_is_not_offered_is_no_misspelling_of_one_that_is():
    builder = StreamingPlanParser({"audio-classification": TASKS["audio-classification"]})
    builder.feed('[{"task": "video-classification", "id": 0, "args": {"video": "a.mp4", "audio": "a.wav"}}]')
    assert builder.finish() == []
    assert [broken.raw["task"] for broken in builder.errors] == ["video-classification"]


@pytest.mark.parametrize(
    "raw",
    [
        {"task": "image-to-text", "id": 3, "dep": [], "args": {"image": "a.jpg"}},
        {"tool": "image-to-text", "task_id": "3", "depends_on": None, "arguments": {"image": "a.jpg"}},
        {"name": "image-to-text", "taskId": 3.0, "dependencies": "none", "parameters": {"img": "a.jpg"}},
        {"Task": "image-to-text", "ID": "task_3", "Args": {"Image": "a.jpg"}},
        {"task": "image-to-text", "id": 3, "args": '{"image": "a.jpg"}'},
        {"task": "image-to-text", "id": 3, "args": [{"image": "a.jpg"}]},
        {"task": "image-to-text", "id": 3, "args": [{"name": "image", "value": "a.jpg"}]},
        {"task": "image-to-text", "id": 3, "args": ["a.jpg"]},
        {"task": "image-to-text", "id": 3, "args": "a.jpg"},
        {"task": "image-to-text", "id": 3, "image": "a.jpg"},
        {"task": "image-to-text", "id": 3, "args": {"image": ["a.jpg"], "text": None, "audio": ""}},
        {"action": "image-to-text", "id": 3, "action_input": {"image": "a.jpg"}},
    ],
)
def test_slots_are_known_by_other_names_and_forms(raw):
    task = only(raw)
    assert (task.task, task.id, task.dep, task.args) == ("image-to-text", 3, [-1], {"image": "a.jpg"})


@pytest.mark.parametrize(
    ("dep", "meant"),
    [
        (0, [0]),
        ("0", [0]),
        ("task_0", [0]),
        ("task-0", [0]),
        ("<resource>-0", [0]),
        ("0, 1", [0, 1]),
        ("[0]", [0]),
        (["1", 0.0], [0, 1]),
        ([[0], [1]], [0, 1]),
        ([-1], [-1]),
        ("-1", [-1]),
        ([-1, 0], [0]),
        (None, [-1]),
        ([], [-1]),
        ("none", [-1]),
        ([None, True, {}, "image"], [-1]),
    ],
)
def test_dependencies_are_read_in_every_form(dep, meant):
    plan = Plan.parse(
        json.dumps(
            [
                {"task": "text-to-image", "id": 0, "args": {"text": "a"}},
                {"task": "text-to-image", "id": 1, "args": {"text": "b"}},
                {"task": "text-to-image", "id": 2, "dep": dep, "args": {"text": "c"}},
            ]
        )
    )
    assert plan.task(2).dep == meant


def test_what_is_no_dependency_is_noted():
    raw = {"task": "text-to-image", "id": 0, "dep": ["the picture"], "args": {"text": "a"}}
    assert 'what names no task was left out of its dependencies: "the picture"' in notes(raw)


@pytest.mark.parametrize(
    ("task", "written", "meant"),
    [
        (
            "visual-question-answering",
            {"question": "who?", "img": "a.jpg"},
            {"text": "who?", "image": "a.jpg"},
        ),
        ("visual-question-answering", ["who?", "a.jpg"], {"text": "who?", "image": "a.jpg"}),
        ("visual-question-answering", ["a.jpg", "who?"], {"text": "who?", "image": "a.jpg"}),
        (
            "question-answering",
            {"question": "who?", "text": "a story"},
            {"text": "who?", "context": "a story"},
        ),
        ("question-answering", ["who?", "a story"], {"text": "who?", "context": "a story"}),
        ("text-to-image", {"prompt": "a cat"}, {"text": "a cat"}),
        ("image-to-text", {"file": "a.jpg"}, {"image": "a.jpg"}),
        ("object-detection", {"text": "https://x.org/photo.PNG"}, {"image": "https://x.org/photo.PNG"}),
        ("automatic-speech-recognition", {"input": "my talk.mp3"}, {"audio": "my talk.mp3"}),
        ("translation", {"text": "hi", "target_language": "fr"}, {"text": "hi", "tgt_lang": "fr"}),
        ("zero-shot-classification", {"text": "a", "classes": "x, y"}, {"text": "a", "labels": ["x", "y"]}),
        ("text-to-speech", {"text": 42}, {"text": "42"}),
        ("text-to-speech", {"text": {"say": "é"}}, {"text": '{"say": "é"}'}),
    ],
)
def test_arguments_are_known_by_other_names_and_by_their_kind(task, written, meant):
    assert only({"task": task, "id": 0, "args": written}).args == meant


def test_a_surplus_argument_is_left_out_with_a_note_and_an_empty_one_without():
    raw = {"task": "object-detection", "id": 0, "args": {"image": "a.jpg", "threshold": 0.5, "video": ""}}
    assert only(raw).args == {"image": "a.jpg"}
    assert notes(raw) == 'task 0 (object-detection): what it has no place for was left out: "threshold"'


def test_a_surplus_argument_never_becomes_an_optional_one():
    raw = {"task": "image-to-text", "id": 0, "args": {"image": "a.jpg", "mode": "fast"}}
    assert only(raw).args == {"image": "a.jpg"}


PATHS = [
    "C:\\data\\cat, sleeping.jpg",
    "./a b/ü.png",
    "https://x.org/a.jpg?x=<1>&y=resource-0.jpg",
    " a.jpg ",
]


@pytest.mark.parametrize("path", PATHS)
def test_paths_and_addresses_stay_as_they_were_written(path):
    assert only({"task": "image-to-text", "id": 0, "args": {"image": path}}).args == {"image": path}


WEATHER = TaskSpec(
    "weather",
    "tool",
    "Tell the weather.",
    (Arg("city", "any"), Arg("days", "any", required=False), Arg("hours", "any", required=False, many=True)),
    ("text", "data"),
)


def test_a_tool_known_by_its_name_takes_any_arguments():
    raw = {"task": "weather", "id": 0, "args": {"city": "Rome", "days": [1, 2], "deep": {"a": None}}}
    assert only(raw, tools=["weather"]).args == {"city": "Rome", "days": [1, 2], "deep": {"a": None}}


def test_a_tool_with_known_arguments_keeps_their_types_and_takes_no_others():
    raw = {"task": "weather", "id": 0, "args": {"city": "Rome", "days": 2, "hours": [6, 12], "foo": 1}}
    task = only(raw, tools={"weather": WEATHER})
    assert task.args == {"city": "Rome", "days": 2, "hours": [6, 12]}


def test_a_langchain_tool_may_be_a_task():
    from langchain_core.tools import tool

    @tool
    def weather(city: str) -> str:
        """Tell the weather."""
        return city

    plan = Plan.parse('[{"task": "Weather", "id": 0, "args": ["Rome"]}]', tools=[weather])
    assert plan.tasks[0].args == {"city": "Rome"}


def test_tools_without_known_arguments_take_no_values_without_a_name():
    raw = {"task": "weather", "id": 0, "args": ["Rome"]}
    assert only(raw, tools="weather").args == {}
    assert 'values without a name were left out: "Rome"' in notes(raw, tools="weather")
