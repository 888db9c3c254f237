"""What is asked for again, to another file or in another language, is what was asked for before."""

from __future__ import annotations

import pytest

from jarvis_agent.core.request import ChatTurn, RunContext
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.planning.offline.again import repeated, spelt_out
from jarvis_agent.planning.offline.marks import mark


def brief(request: str, *before: str) -> RunContext:
    turns = tuple(ChatTurn(asked, "Here it is.", tuple(named_files(asked))) for asked in before)
    return RunContext(request, files=tuple(named_files(request)), turns=turns)


@pytest.mark.parametrize(
    ("request_", "before", "meant"),
    [
        ("and in Italian?", "translate 'how are you' into French", "translate 'how are you' into Italian"),
        ("What about Greek", "say 'thanks' in Dutch", "say 'thanks' in Greek"),
        ("same with hill.jpg please", "segment lake.jpg", "segment hill.jpg"),
        ("do that for c.png too", "segment a.jpg and b.jpg", "segment c.png"),
        ("Now the same for b.wav and c.wav", "transcribe a.wav", "transcribe b.wav and c.wav"),
        ("how about b.jpg?", "what's in it?", "what's in it? b.jpg"),
        ("日语呢？", "把“早上好”翻译成英语", "把“早上好”翻译成日语"),
        ("b.jpg 也来一遍", "把 a.jpg 抠图", "把 b.jpg 抠图"),
        ("那张图 b.jpg 呢", "描述 a.jpg", "描述 b.jpg"),
    ],
)
def test_a_turn_is_repeated(request_: str, before: str, meant: str) -> None:
    made = spelt_out(brief(request_, before))
    assert made.request == meant
    assert made.turns == ()


def test_a_turn_that_repeats_another_is_repeated_too() -> None:
    made = spelt_out(brief("and c.jpg? the same for c.jpg", "describe a.jpg", "the same for b.jpg"))
    assert made.turns[0].request == "describe a.jpg"
    assert (
        spelt_out(brief("the same for c.jpg", "describe a.jpg", "same for b.jpg")).request == "describe c.jpg"
    )


@pytest.mark.parametrize(
    "request_",
    [
        "now describe b.jpg",
        "and what places does it mention?",
        "translate it into German",
        "再把 b.jpg 放大一点",
    ],
)
def test_a_new_wish_stays_as_it_is(request_: str) -> None:
    asked = brief(request_, "translate a.txt into French")
    assert spelt_out(asked) == asked


def test_without_earlier_turns_nothing_is_repeated() -> None:
    assert spelt_out(brief("the same for b.jpg")).request == "the same for b.jpg"


@pytest.mark.parametrize(
    ("request_", "meant"),
    [
        ("Transcribe a.wav and sum it up. Do the same with b.wav.", "Transcribe b.wav and sum it up."),
        ("Caption a.jpg, and the same for b.jpg", "Caption b.jpg"),
    ],
)
def test_steps_of_the_same_request_are_repeated(request_: str, meant: str) -> None:
    marked = mark(request_, named_files(request_))
    assert meant in marked.restored(repeated(marked.text, marked))


def test_nothing_is_repeated_for_a_file_of_another_kind() -> None:
    marked = mark("Caption a.jpg, and the same for b.wav", named_files("a.jpg b.wav"))
    assert repeated(marked.text, marked) == marked.text


@pytest.mark.parametrize("asked", ["describe this picture in French", "describe a.jpg in French"])
def test_another_language_is_for_the_file_that_the_turn_had(asked: str) -> None:
    files = tuple(named_files("a.jpg"))
    meant = spelt_out(RunContext("and in German?", turns=(ChatTurn(asked, "Un chat.", files),)))
    assert (meant.request, meant.files, meant.turns) == (asked.replace("French", "German"), files, ())
