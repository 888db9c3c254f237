"""The fixed texts of reports, in English and Chinese."""

from __future__ import annotations

import string
from dataclasses import asdict
from pathlib import Path

import pytest
from PIL import Image

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.messages import CHINESE, ENGLISH, Phrases, phrases


def test_reports_are_in_chinese_for_chinese_requests_and_else_in_english() -> None:
    assert phrases("描述 a.jpg") is CHINESE
    for request in ("Describe a.jpg", "この画像は何ですか", ""):
        assert phrases(request) is ENGLISH


def test_both_languages_have_the_same_placeholders() -> None:
    english, chinese = asdict(ENGLISH), asdict(CHINESE)
    for name in english.keys() - {"examples", "kinds"}:
        fields = [{field for _, field, *_ in string.Formatter().parse(w[name])} for w in (english, chinese)]
        assert fields[0] - {None} == fields[1] - {None}, name


@pytest.mark.starter
@pytest.mark.parametrize("words", [ENGLISH, CHINESE], ids=["English", "Chinese"])
def test_the_example_requests_can_be_planned_offline(
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
    assert (read.task, read.args) == ("image-to-text", {"image": "page.png", "text": "read"})
    assert (spoken.task, spoken.dep) == ("text-to-speech", [read.id])
    assert (heard.task, heard.dep) == ("automatic-speech-recognition", [spoken.id])
