"""Sentences in any order, and with verbs left out, become plain orders one after the other."""

from __future__ import annotations

from time import thread_time

import pytest

from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.planning.offline.again import repeated
from jarvis_agent.planning.offline.marks import mark
from jarvis_agent.planning.offline.recast import LONGEST, recast


def recast_of(request: str) -> str:
    marked = mark(request, named_files(request))
    return marked.restored(recast(marked.text))


@pytest.mark.parametrize(
    ("request_", "orders"),
    [
        ("Before captioning a.jpg, make it brighter.", "make a.jpg brighter, then caption it."),
        (
            "Before translating a.txt into French, shorten it.",
            "shorten a.txt, then translate it into French.",
        ),
        ("Translate a.txt to French, but sum it up first.", "sum a.txt up, then Translate it to French."),
        (
            "Translate a.txt into Dutch after summarising it.",
            "summarise a.txt, then Translate it into Dutch.",
        ),
        ("Write a story and have it narrated.", "Write a story and narrate it."),
        ("get a.jpg captioned and the caption spoken", "caption a.jpg and speak the caption"),
        ("draw a cat and a dog as two separate pictures", "draw a cat, then draw a dog"),
        ("From the transcript make a summary.", "From the transcript, make a summary."),
        ("Translate a.txt (not the summary) into Czech", "Translate a.txt into Czech"),
    ],
)
def test_the_order_of_words_becomes_the_order_of_doing(request_: str, orders: str) -> None:
    assert recast_of(request_) == orders


@pytest.mark.parametrize(
    ("request_", "orders"),
    [
        (
            "Resize a.png to 300, b.png to 200 and c.png to 100",
            "Resize a.png to 300, resize b.png to 200 and resize c.png to 100",
        ),
        (
            "use the pose of a.jpg to draw a fox, and the edges of b.jpg to draw a fort",
            "use the pose of a.jpg to draw a fox, and use the edges of b.jpg to draw a fort",
        ),
        ("for a.jpg: caption and depth map", "for a.jpg, give me caption, then give me depth map"),
        ("A picture of a fox, please", "Give me A picture of a fox, please"),
        (
            "draw a picture of a fox and one of a hen",
            "draw a picture of a fox and a picture of a hen",
        ),
        ("1) describe a.jpg 2) segment it", "\ndescribe a.jpg \nsegment it"),
    ],
)
def test_a_verb_that_is_left_out_is_put_in(request_: str, orders: str) -> None:
    assert recast_of(request_) == orders


@pytest.mark.parametrize(
    "request_",
    [
        "Resize a.png and b.png to 300",
        "After transcribing a.wav, translate it into Dutch.",
        "The picture of a fox is a.jpg.",
        "A photo of my dog: a.jpg",
        "Translate it and read it aloud.",
        "crop a.png to 64. Then caption it",
    ],
)
def test_plain_orders_and_statements_stay_as_they_are(request_: str) -> None:
    assert recast_of(request_) == request_


def test_overlong_sentences_stay_as_they_are() -> None:
    request = f"Before captioning it, make it {'very ' * LONGEST}bright."
    assert recast(request) == request


@pytest.mark.parametrize(
    ("around", "unit"),
    [
        ("I need {}a de", "a depth map, "),
        ("For \ue000: {}x", "caption, "),
        ("Give me {}!", "a caption and "),
        ("Caption \ue000. Do the same for \ue001{}", " , "),
        ("Caption \ue000. Do the same for \ue001{}", " and "),
    ],
)
def test_no_row_of_like_words_takes_more_than_its_length_allows(around: str, unit: str) -> None:
    def cost(count: int) -> float:
        request = "caption a.jpg and b.jpg"
        marked = mark(request, named_files(request))
        text = around.format(unit * count)
        started = thread_time()
        repeated(recast(text), marked)
        return thread_time() - started

    assert cost(14) <= 24 * cost(7) + 0.05


@pytest.mark.parametrize(
    "request_",
    [
        "Write a story about a man sleeping after painting a house",
        "Draw a dog after running",
        "Draw a cat and a dog on a single image",
        "Write a poem about the sea (not the lake)",
    ],
)
def test_what_is_drawn_or_told_stays_whole(request_: str) -> None:
    assert recast_of(request_) == request_
