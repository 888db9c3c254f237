"""Plans that are held to the demonstrations: what stood there says what may stand in its place."""

import pytest

from jarvis_agent.planning.demonstrated_schema import demonstrated_schema
from jarvis_agent.planning.example_selector import Demonstration
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.core.request import RunContext, ChatTurn
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource


def demo(request, *tasks):
    plan = [{"task": name, "id": i, "dep": dep, "args": args} for i, (name, dep, args) in enumerate(tasks)]
    return Demonstration(request, plan, files=tuple(named_files(request)))


ALOUD = demo(
    "Describe e1.jpg and read it out",
    ("image-to-text", [-1], {"image": "e1.jpg"}),
    ("text-to-speech", [0], {"text": "<resource>-0"}),
)
SAY = demo('Say "hello"', ("text-to-speech", [-1], {"text": "hello"}))
CHAT = demo("Hi!")


def brief(request, turns=()):
    return RunContext(request, tuple(named_files(request)), turns, TASKS)


def forms(demos, request, turns=()):
    schema = demonstrated_schema(demos, brief(request, turns))
    return [form["properties"] for form in schema["properties"]["tasks"]["items"]["anyOf"]]


def args(demos, request, turns=()):
    return [form["args"]["properties"] for form in forms(demos, request, turns)]


def test_where_a_file_stood_there_is_a_file_of_the_request_and_a_reference_stays():
    look, speak = args([ALOUD], "Caption b.jpg, c.jpg and d.wav aloud")
    assert look == {"image": {"type": "string", "enum": ["b.jpg", "c.jpg"]}}
    assert speak == {"text": {"type": "string", "enum": ["<resource>-0"]}}


def test_what_takes_a_file_that_the_request_does_not_have_can_not_be_written():
    assert [form["task"]["enum"] for form in forms([ALOUD, SAY], 'Say "hi"')] == [
        ["text-to-speech"],
        ["text-to-speech"],
    ]
    listen = demo("Write down e1.wav", ("automatic-speech-recognition", [-1], {"audio": "e1.wav"}))
    assert demonstrated_schema([listen], brief("Describe b.jpg")) is None


def test_where_a_quoted_text_stood_there_is_one_that_the_request_quotes():
    assert args([SAY], 'Say "one" or "two"') == [{"text": {"type": "string", "enum": ["one", "two"]}}]


def test_where_the_request_quotes_nothing_texts_are_free():
    assert args([SAY], "Say hello to everybody") == [{"text": {"type": "string"}}]


def test_what_was_neither_a_file_nor_a_quoted_text_is_free():
    paint = demo("Paint a boat", ("text-to-image", [-1], {"text": "a boat"}))
    assert args([paint], 'Paint "a house" in b.jpg') == [{"text": {"type": "string"}}]


@pytest.mark.parametrize(
    ("value", "like"),
    [
        (640, {"type": "integer"}),
        (0.5, {"type": "number"}),
        (True, {"type": "boolean"}),
        ([1, 2, 3, 4], {"type": "array", "items": {"type": "number"}, "maxItems": 8}),
        (["a cat", "a dog"], {"type": "array", "items": {"type": "string"}, "maxItems": 8}),
        ("a picture of <resource>-0", {"type": "string"}),
    ],
)
def test_other_values_keep_their_types(value, like):
    assert args([demo("Do it", ("crop-image", [-1], {"box": value}))], "Do it") == [{"box": like}]


def test_texts_and_tables_and_the_sound_of_videos_are_files_too():
    short = demo("Sum up e1.txt", ("summarization", [-1], {"text": "e1.txt"}))
    hear = demo("Write down e1.wav", ("automatic-speech-recognition", [-1], {"audio": "e1.wav"}))
    text, audio = args([short, hear], "Sum up b.txt and c.mp4")
    assert text["text"]["enum"] == ["b.txt"]
    assert audio["audio"]["enum"] == ["c.mp4"]


def test_files_of_earlier_turns_may_be_named():
    turn = ChatTurn("Draw a zoo", "Here", (Resource(kind="image", path="/out/zoo.png"),))
    assert args([ALOUD], "Describe it", (turn,))[0] == {"image": {"type": "string", "enum": ["/out/zoo.png"]}}


def test_a_plan_is_as_long_as_the_longest_example_or_has_a_task_for_each_file():
    def most(demos, request):
        return demonstrated_schema(demos, brief(request))["properties"]["tasks"]["maxItems"]

    assert most([SAY, ALOUD], "Describe b.jpg") == 2
    assert most([ALOUD], "Describe b.jpg, c.jpg and d.jpg") == 3


def test_a_task_that_two_examples_show_alike_stands_there_once():
    assert len(forms([SAY, SAY], "Say hello")) == 1


def test_of_examples_without_tasks_nothing_can_be_made():
    assert demonstrated_schema([CHAT], brief("Hello")) is None


def test_every_object_is_closed_and_in_the_order_of_the_example():
    def check(part):
        if isinstance(part, dict) and part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
        for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            check(each)

    check(demonstrated_schema([ALOUD], brief("Describe b.jpg")))
    assert list(forms([ALOUD], "Describe b.jpg")[0]) == ["task", "id", "dep", "args"]
