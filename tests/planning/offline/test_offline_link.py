"""A step and its task become tasks: arguments are found, or made by tasks that go before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Resource
from jarvis_agent.planning.offline import arguments
from jarvis_agent.planning.offline.link import Linker
from jarvis_agent.planning.offline.marks import mark
from jarvis_agent.planning.offline.steps import split

FILES = (
    Resource(kind="image", name="a.jpg", path=Path("/files/a.jpg")),
    Resource(kind="image", name="b.jpg", path=Path("/files/b.jpg")),
    Resource(kind="audio", name="talk.wav", path=Path("/files/talk.wav")),
    Resource(kind="text", name="notes.txt", path=Path("/files/notes.txt")),
)


def linked(
    request: str, *names: str, specs: dict[str, TaskSpec] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """The tasks of a request whose steps are for the tasks of these names."""
    brief = RunContext(request, FILES, specs=specs or TASKS)
    marked = mark(request, FILES)
    linker = Linker(marked, brief)
    steps = split(marked.text)
    assert len(steps) == len(names)
    for place, (step, name) in enumerate(zip(steps, names, strict=True)):
        linker.discourse.give(step.context)
        after = " ".join(later.text for later in steps[place + 1 :])
        linker.add(step, brief.specs[name], after)
    assert [task.id for task in linker.tasks] == list(range(len(linker.tasks)))
    return [(task.task, task.args) for task in linker.tasks]


def test_a_text_is_made_of_a_picture_or_a_recording_where_only_that_is_named() -> None:
    assert linked("translate a.jpg to French", "translation") == [
        ("image-to-text", {"image": "a.jpg"}),
        ("translation", {"text": "<resource>-0", "tgt_lang": "fr"}),
    ]
    assert linked("summarize talk.wav", "summarization")[0] == (
        "automatic-speech-recognition",
        {"audio": "talk.wav"},
    )


def test_the_noun_before_a_file_names_the_task_that_goes_first() -> None:
    assert linked("read the summary of talk.wav aloud", "text-to-speech") == [
        ("automatic-speech-recognition", {"audio": "talk.wav"}),
        ("summarization", {"text": "<resource>-0"}),
        ("text-to-speech", {"text": "<resource>-1"}),
    ]


def test_several_files_are_several_tasks_and_so_are_the_tasks_that_need_them() -> None:
    assert linked(
        "describe a.jpg and b.jpg, then speak both captions", "image-to-text", "text-to-speech"
    ) == [
        ("image-to-text", {"image": "a.jpg"}),
        ("image-to-text", {"image": "b.jpg"}),
        ("text-to-speech", {"text": "<resource>-0"}),
        ("text-to-speech", {"text": "<resource>-1"}),
    ]


def test_the_same_task_is_not_planned_twice() -> None:
    made = linked("transcribe talk.wav. Summarize talk.wav.", "automatic-speech-recognition", "summarization")
    assert [name for name, _ in made] == ["automatic-speech-recognition", "summarization"]


def test_a_noun_means_what_its_task_made_and_not_what_came_last() -> None:
    made = linked(
        "describe a.jpg, then translate it to German, then speak the caption",
        "image-to-text",
        "translation",
        "text-to-speech",
    )
    assert made[2] == ("text-to-speech", {"text": "<resource>-0"})


def test_it_means_the_picture_and_not_the_one_with_boxes_drawn_on_it() -> None:
    made = linked("detect the objects in a.jpg and describe it", "object-detection", "image-to-text")
    assert made[1] == ("image-to-text", {"image": "a.jpg"})
    made = linked(
        "detect the objects in a.jpg and describe the annotated image", "object-detection", "image-to-text"
    )
    assert made[1] == ("image-to-text", {"image": "<resource>-0"})


def test_a_control_map_is_made_first_unless_it_is_there() -> None:
    prompt = 'use the canny edges of a.jpg and the prompt "a castle" to make an image'
    assert linked(prompt, "canny-text-to-image") == [
        ("canny-control", {"image": "a.jpg"}),
        ("canny-text-to-image", {"text": "a castle", "image": "<resource>-0"}),
    ]
    prompt = 'use the canny image a.jpg and the prompt "a castle" to make an image'
    assert linked(prompt, "canny-text-to-image") == [
        ("canny-text-to-image", {"text": "a castle", "image": "a.jpg"})
    ]


def test_a_file_named_later_serves_a_step_that_names_none() -> None:
    made = linked("Make a caption and a summary of a.jpg", "image-to-text", "summarization")
    assert made == [("image-to-text", {"image": "a.jpg"}), ("summarization", {"text": "<resource>-0"})]


ARGUMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "who wrote notes.txt?": ("question-answering", {"text": "who wrote?", "context": "notes.txt"}),
    "what color is the car in a.jpg?": (
        "visual-question-answering",
        {"text": "what color is the car?", "image": "a.jpg"},
    ),
    'sort "hi" into rude or polite': (
        "zero-shot-classification",
        {"text": "hi", "labels": ["rude", "polite"]},
    ),
    'is "hi" one of "rude" or "polite"?': (
        "zero-shot-classification",
        {"text": "hi", "labels": ["rude", "polite"]},
    ),
    "Labels: x, y. Text: hello": ("zero-shot-classification", {"text": "hello", "labels": ["x", "y"]}),
    'compare "a" with "b" and "c"': ("sentence-similarity", {"text": "a", "sentences": ["b", "c"]}),
    "translate good morning from English into Greek": (
        "translation",
        {"text": "good morning", "src_lang": "en", "tgt_lang": "el"},
    ),
    "erase the dog in a.jpg with the mask b.jpg": (
        "image-to-image",
        {"image": "a.jpg", "text": "erase the dog", "mask": "b.jpg"},
    ),
    'rewrite "yo" politely': ("text-generation", {"text": "rewrite yo politely"}),
    "where are the fire hoses in a.jpg?": (
        "zero-shot-object-detection",
        {"image": "a.jpg", "labels": ["fire hose"]},
    ),
    "is the pear in a.jpg green, ripe or brown?": (
        "zero-shot-image-classification",
        {"image": "a.jpg", "labels": ["green", "ripe", "brown"]},
    ),
    "a.jpg is a sketch. draw a castle like that": (
        "scribble-text-to-image",
        {"text": "a castle", "image": "a.jpg"},
    ),
    "draw a fox in the snow": ("text-to-image", {"text": "a fox in the snow"}),
}


@pytest.mark.parametrize("request_", ARGUMENTS)
def test_arguments_are_found_in_the_words(request_: str) -> None:
    name, args = ARGUMENTS[request_]
    assert linked(request_, name) == [(name, args)]


def test_an_argument_that_is_missing_leaves_nothing_behind() -> None:
    marked = mark("transcribe it", ())
    linker = Linker(marked, RunContext("transcribe it", specs=TASKS))
    (step,) = split(marked.text)
    with pytest.raises(PlanError, match="automatic-speech-recognition needs an audio file"):
        linker.add(step, TASKS["automatic-speech-recognition"])
    assert linker.tasks == linker.discourse.things == []


def test_a_bridge_that_is_not_on_offer_is_an_error_that_names_it() -> None:
    with pytest.raises(PlanError, match="summarization needs automatic-speech-recognition"):
        linked("summarize talk.wav", "summarization", specs={"summarization": TASKS["summarization"]})


def test_a_tool_of_unknown_arguments_gets_what_the_step_names() -> None:
    tool = TaskSpec("count_words", "tool", "Counts words.", (Arg("document", "any"),), ("text",))
    specs = {**TASKS, tool.name: tool}
    assert linked("count the words of notes.txt", "count_words", specs=specs) == [
        ("count_words", {"document": "notes.txt"})
    ]


def test_languages_are_codes() -> None:
    assert arguments.languages("translate it from Chinese into Portuguese") == {
        "src_lang": ["zh"],
        "tgt_lang": ["pt"],
    }
    assert arguments.languages("the French translation of it") == {"tgt_lang": ["fr"]}
    assert arguments.languages("put it into Dutch, Greek and Polish") == {"tgt_lang": ["nl", "el", "pl"]}
    assert arguments.languages("describe it in short") == {}


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("generate an image of two cats", "two cats"),
        ("I would like a video about trains, please", "trains"),
        ("create a picture of a castle that follows the outlines of the house", "a castle"),
        ("a very short clip of a kite in the wind", "a kite in the wind"),
        ("compose some calm music for me", "some calm music"),
        ("draw boxes round them", None),
        ("make an image of it", None),
        ("describe the new image with your voice", None),
        ("generate a new image", None),
    ],
)
def test_a_prompt_is_what_is_to_be_seen(text: str, prompt: str | None) -> None:
    assert arguments.prompt(text) == prompt
