"""Paths in an answer: names of made files become paths, all else passes, however the text is split."""

from typing import Any

import pytest
from cost import cost_of
from hypothesis import given
from hypothesis import strategies as st

from jarvis_agent.response.path_checker import PathChecker

SPEECH, EDGES, PAGE = "/outputs/7/1-speech.wav", "/outputs/7/0-canny-control.png", "/home/me/page.png"
MADE = {"1-speech.wav": SPEECH, "0-canny-control.png": EDGES}
OPTIONS: dict[str, Any] = {"names": MADE, "directory": "/outputs", "known": [SPEECH, EDGES, PAGE]}
MISSING = "(no such file)"


def checked(text: str, size: int | None = None) -> str:
    """The answer, fed in pieces of `size` characters."""
    checker = PathChecker(**OPTIONS)
    size = size or len(text) or 1
    shown = [checker.feed(text[start : start + size]) for start in range(0, len(text), size)]
    return "".join(shown) + checker.feed("", final=True)


def test_the_exact_name_of_a_made_file_becomes_its_path() -> None:
    assert checked("See 1-speech.wav, and (0-canny-control.png).") == f"See {SPEECH}, and ({EDGES})."
    assert checked("声音是1-speech.wav。") == f"声音是{SPEECH}。"


@pytest.mark.parametrize(
    "text",
    [
        "save it as street-edges.png",
        "convert it with `convert 0-canny-control.png edges.gif`",
        "```\nconvert 0-canny-control.png edges.gif\n```",
        "``1-speech.wav`` and `1-speech.wav`",
        "page.png, speech.wav, canny-control.png, x1-speech.wav and 1-speech.wav.bak are other names",
        f"The speech is in {SPEECH}, all in /outputs/7/ or /outputs/7.",
        f"I read {PAGE}, and /home/me/other.png is not mine",
        "[path] <image_path> {file}",
        "he/she, 1/2, facebook/detr-resnet-50, https://example.org/img/a.mp4, Node.js 3.14",
        "",
        "/",
    ],
)
def test_everything_else_passes_unchanged(text: str) -> None:
    assert checked(text) == text


def test_code_ends_where_it_ends() -> None:
    assert checked("`a` 1-speech.wav `1-speech.wav`") == f"`a` {SPEECH} `1-speech.wav`"
    assert checked("``a`b`` 1-speech.wav") == f"``a`b`` {SPEECH}"


def test_an_invented_path_below_the_output_directory_is_marked() -> None:
    assert checked("It is in /outputs/7/zoo.png.") == f"It is in /outputs/7/zoo.png {MISSING}."
    assert checked("or in /outputs/8/, see") == f"or in /outputs/8/ {MISSING}, see"


def test_a_path_is_held_back_until_it_is_complete() -> None:
    checker = PathChecker(**OPTIONS)
    assert checker.feed("The speech is in 1-spe") == "The speech is in "
    assert checker.feed("ech.wav, enjoy") == f"{SPEECH}, "
    assert checker.feed("", final=True) == "enjoy"


PIECES = [
    SPEECH,
    "1-speech.wav",
    "0-canny-control.png",
    "/outputs/7/x",
    "`",
    "``",
    " ",
    "\n",
    "。",
    "...",
    "<",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=12), st.integers(1, 9))
def test_how_the_text_is_split_makes_no_difference(pieces: list[str], size: int) -> None:
    text = "".join(pieces)
    assert checked(text, size) == checked(text)


def test_a_word_longer_than_any_path_passes_as_it_comes() -> None:
    for word in ("a" * 5000, "a/" * 3000 + "b.png", "https://x.org/" + "a" * 5000 + ".png"):
        text = f"see {word} and /outputs/7/none.wav"
        for size in (1, 100, 10_000):
            assert checked(text, size) == f"{text} {MISSING}"
    checker = PathChecker(**OPTIONS)
    assert len("".join(checker.feed("a" * 100) for _ in range(100))) == 10_000


def test_the_cost_grows_linearly_with_the_answer() -> None:
    for unit in ("，", "`", "<", "a", "a ", "x.png ", "1-speech.wav "):

        def cost(count: int, unit: str = unit) -> int:
            checker = PathChecker(**OPTIONS)
            return cost_of(lambda: [*map(checker.feed, [unit] * count), checker.feed("", final=True)])

        assert cost(1_600) <= 5 * cost(400), unit
