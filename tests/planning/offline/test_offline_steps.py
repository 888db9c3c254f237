"""Requests are marked and split so that each step is one thing to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from jarvis_agent.core.types import Resource
from jarvis_agent.planning.offline import chinese
from jarvis_agent.planning.offline.marks import Mark, mark
from jarvis_agent.planning.offline.steps import split, without_lead_in

FILES = [
    Resource(kind="image", name="a.jpg", path=Path("/files/a.jpg")),
    Resource(kind="image", name="my photo.png", path=Path("/files/my photo.png")),
    Resource(kind="audio", name="dir/b.wav", path=Path("/files/dir/b.wav")),
]


def steps_of(request: str) -> list[str]:
    marked = mark(request, FILES)
    return [marked.restored(step.text) for step in split(marked.text)]


@pytest.mark.parametrize(
    ("request_", "steps"),
    [
        ("Describe a.jpg.", ["Describe a.jpg."]),
        ("Describe a.jpg, then detect its objects.", ["Describe a.jpg", "detect its objects."]),
        ("First describe a.jpg. Then, translate it.", ["First describe a.jpg.", "translate it."]),
        ("Transcribe dir/b.wav, sum it up, and read it", ["Transcribe dir/b.wav", "sum it up", "read it"]),
        ("Tell me what it is and what it does", ["Tell me what it is", "what it does"]),
        ("Find the black and white cat", ["Find the black and white cat"]),
        ("Based on a.jpg, make a new image", ["Based on a.jpg, make a new image"]),
        ("Denoise dir/b.wav before you transcribe it", ["Denoise dir/b.wav", "transcribe it"]),
        ("Take a.jpg and make it blue", ["Take a.jpg, make it blue"]),
        ("In a.jpg, what is it and what does it do?", ["In a.jpg, what is it", "what does it do?"]),
        ("classify and describe a.jpg", ["classify a.jpg", "describe a.jpg"]),
        ("Make a canny image of a.jpg and a depth map", ["Make a canny image of a.jpg", "Make a depth map"]),
        ("make music and lay it under a.jpg", ["make music", "lay it under a.jpg"]),
        ("Make a poem, make a song, join the two.", ["Make a poem", "make a song", "join the two."]),
        ("it is too big, can you shrink a.jpg", ["can you shrink a.jpg"]),
        ("a.jpg is a sketch, draw a castle like that", ["draw a castle like that"]),
        ("They want a depth map. Make one from a.jpg", ["Make a depth map from a.jpg"]),
        ("Listen to dir/b.wav: what is it?", ["Listen to dir/b.wav, what is it?"]),
        ("Turn a.jpg into a clip and into a mesh", ["Turn a.jpg into a clip", "Turn a.jpg into a mesh"]),
        ("who and what is in a.jpg", ["who and what is in a.jpg"]),
        (
            "for a.jpg i want the caption, the depth map and the edges",
            ["for a.jpg i want the caption", "give me the depth map", "give me the edges"],
        ),
        ("hello", ["hello"]),
        ("", []),
    ],
)
def test_a_request_is_split_where_another_thing_is_asked_for(request_: str, steps: list[str]) -> None:
    assert steps_of(request_) == steps


def test_nothing_is_cut_inside_quotation_marks() -> None:
    assert steps_of('Say "Stop. And then describe it!" and translate it') == [
        "Say Stop. And then describe it!",
        "translate it",
    ]


def test_a_sentence_that_asks_for_nothing_is_context() -> None:
    marked = mark("I have a picture a.jpg. Describe it. Here is the sound: dir/b.wav", FILES)
    (step,) = split(marked.text)
    assert marked.restored(step.text) == "Describe it."
    assert "a.jpg" in marked.restored(step.context)
    assert "dir/b.wav" in marked.restored(step.context)


def test_a_clause_is_freed_of_what_leads_to_it() -> None:
    assert without_lead_in("then, could you please tell me what it is?") == "what it is"
    assert without_lead_in("I would like you to describe it.") == "describe it"
    assert without_lead_in("Tell me a joke") == "Tell me a joke"


@pytest.mark.parametrize(
    ("request_", "marks"),
    [
        ("describe a.jpg", [Mark("image", "a.jpg", is_file=True)]),
        ("describe 'my photo.png'", [Mark("image", "my photo.png", is_file=True)]),
        ("transcribe b.wav", [Mark("audio", "dir/b.wav", is_file=True)]),
        ("describe ba.jpg and a.jpg.bak", []),
        ("say 'I don't know'", [Mark("text", "I don't know")]),
        ("what's new, and who's there", []),
        ("say “hi” or 「你好」", [Mark("text", "hi"), Mark("text", "你好")]),
        ('say "a.jpg is mine"', [Mark("text", "a.jpg is mine")]),
        ("Translate to French: I love you", [Mark("text", "I love you")]),
        ("Summarize this text: One. Two. Then read it", [Mark("text", "One. Two.")]),
        (
            "Context: It rains. Question: Does it rain?",
            [Mark("text", "It rains.", role="context"), Mark("text", "Does it rain?", role="question")],
        ),
        ("Who is named here: Ann met Bob in Rome.", [Mark("text", "Ann met Bob in Rome.")]),
        ("No text this time: make a random image", []),
        ("two things: how many are there, and why?", []),
        ("Do the following: describe a.jpg", [Mark("image", "a.jpg", is_file=True)]),
    ],
)
def test_files_and_texts_are_marked(request_: str, marks: list[Mark]) -> None:
    assert list(mark(request_, FILES).marks.values()) == marks


def test_a_word_that_only_looks_like_a_file_is_no_mark() -> None:
    guessed = [Resource(kind="text", name="node.js"), Resource(kind="file", name="v2.beta")]
    assert mark("what do node.js and v2.beta do", guessed).marks == {}


def test_characters_of_the_private_use_area_can_not_pose_as_marks() -> None:
    marked = mark("describe \ue000 and a.jpg", FILES)
    assert marked.restored(marked.text) == "describe and a.jpg"


def test_more_marks_than_there_are_characters_for_stay_text() -> None:
    marked = mark(" ".join(f'"t{n}"' for n in range(6500)), [])
    assert len(marked.marks) == 6400
    assert marked.restored(marked.text).endswith(" t6498 t6499")


@pytest.mark.parametrize(
    ("request_", "steps"),
    [
        ("描述一下 a.jpg，并翻译成法语", ["describe a.jpg", "translate it to French"]),
        ("a.jpg 里有几只猫？", ["how many objects are in a.jpg"]),
        ("转录 dir/b.wav，然后朗读出来", ["transcribe dir/b.wav", "read it aloud"]),
        ("画一只红色的狐狸", ["generate an image of 一只红色的狐狸"]),
        ("把“你好”翻译成英文", ["translate 你好 to English"]),
        ("你好", ["你好"]),
    ],
)
def test_plain_chinese_is_put_in_the_words_of_the_phrases(request_: str, steps: list[str]) -> None:
    marked = mark(request_, FILES)
    assert chinese.is_chinese(marked.text)
    assert [marked.restored(step.text) for step in chinese.steps(marked)] == steps


def test_an_english_request_about_a_chinese_text_is_english() -> None:
    assert not chinese.is_chinese(mark("Translate to English: 你好，世界", []).text)
