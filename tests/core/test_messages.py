"""The fixed words of reports: both languages say the same, and what they advise works."""

from __future__ import annotations

import string
from dataclasses import asdict
from pathlib import Path

import pytest
from PIL import Image

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.messages import CHINESE, ENGLISH, Phrases, phrases


@pytest.mark.parametrize(
    ("request_", "words"),
    [("Describe a.jpg", ENGLISH), ("描述 a.jpg", CHINESE), ("この画像は何ですか", ENGLISH), ("", ENGLISH)],
)
def test_a_chinese_request_is_answered_in_chinese_and_others_in_english(
    request_: str, words: Phrases
) -> None:
    assert phrases(request_) is words


def test_both_languages_fill_in_the_same() -> None:
    def blanks(words: Phrases) -> dict[str, set[str | None]]:
        texts = {name: text for name, text in asdict(words).items() if isinstance(text, str)}
        return {
            name: {blank for _, blank, *_ in string.Formatter().parse(text)} - {None}
            for name, text in texts.items()
        }

    assert blanks(CHINESE) == blanks(ENGLISH)


@pytest.mark.starter
@pytest.mark.parametrize("words", [ENGLISH, CHINESE], ids=["English", "Chinese"])
def test_the_examples_are_in_the_language_and_can_be_planned_without_a_language_model(
    words: Phrases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("photo.jpg", "page.png"):
        Image.new("RGB", (8, 8)).save(name)
    _, first, second = words.examples
    assert {phrases(first), phrases(second)} == {words}
    with JarvisAgent(settings=Settings(offline=True)) as agent:
        (described,) = agent.plan(first).tasks
        read, spoken, heard = agent.plan(second).tasks
    assert (described.task, described.args) == ("image-to-text", {"image": "photo.jpg"})
    assert (read.task, read.args) == ("image-to-text", {"image": "page.png"})
    assert (spoken.task, spoken.dep) == ("text-to-speech", [read.id])
    assert (heard.task, heard.dep) == ("automatic-speech-recognition", [spoken.id])
