"""Slips of the keyboard and short forms are understood; other words stay as they are."""

from __future__ import annotations

import pytest

from jarvis_agent.planning.offline.spelling import is_near, tidy

DICTIONARY = frozenset(
    ("the", "of", "into", "a", "an", "in", "fresh", "elephant", "it", "to", "street", "germany", "dreams")
)


def tidied(text: str) -> str:
    return tidy(text, DICTIONARY.__contains__)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("trasncribe it", "transcribe it"),
        ("detct the objcts", "detect the objects"),
        ("translte it to frensh", "translate it to French"),
        ("Sumarize it", "summarize it"),
        ("an imge of the street", "an image of the street"),
        ("can u make me a pic", "can you make me a picture"),
        ("read it outloud pls", "read it out loud please"),
        ("Hmm, transcribe it n sumarize it", "transcribe it and summarize it"),
        ("transcribe it and, um, translate it", "transcribe it and, translate it"),
    ],
)
def test_slips_and_short_forms_are_mended(typed: str, meant: str) -> None:
    assert tidied(typed) == meant


@pytest.mark.parametrize(
    "text",
    [
        "paint Zorblax in the street",
        "say ah",
        "say: oh",
        "paint an oh so fresh elephant",
        "paint the letter n",
        "paint Sumary in the street",
        "summarizes it",
        "it is about Germany",
        "fresh dreams of a elephant",
        "see www.trasncribe.org and a.trasncribe",
        "the \ue000 of it",
    ],
)
def test_words_names_and_addresses_stay_as_they_are(text: str) -> None:
    assert tidied(text) == text


@pytest.mark.parametrize(
    ("one", "other", "most", "near"),
    [
        ("detct", "detect", 1, True),
        ("trasncribe", "transcribe", 1, True),
        ("wrod", "word", 1, True),
        ("sumary", "summary", 1, True),
        ("smmry", "summary", 1, False),
        ("smmry", "summary", 2, True),
        ("cat", "elephant", 2, False),
        ("same", "same", 0, True),
    ],
)
def test_slips_are_counted(one: str, other: str, most: int, near: bool) -> None:
    assert is_near(one, other, most) is near
