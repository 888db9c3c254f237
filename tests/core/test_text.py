"""Text is made encodable and shortened, so that any run can be stored and sent."""

from __future__ import annotations

from pathlib import Path

from jarvis_agent import Request
from jarvis_agent.core.text import brief_text, first_tokens, replace_surrogates, replace_surrogates_in
from jarvis_agent.core.types import Resource, TaskResult

HALF = "a \ud83d cat"


def test_surrogates_are_joined_or_replaced() -> None:
    texts = {"plain": "plain", "猫 😀": "猫 😀", "\ud83d\ude00": "😀", HALF: "a \ufffd cat"}
    assert {text: replace_surrogates(text) for text in texts} == texts
    data, whole = {HALF: [HALF, 1, None, (HALF,)], "path": Path("a")}, texts[HALF]
    assert replace_surrogates_in(data) == {whole: [whole, 1, None, (whole,)], "path": Path("a")}


def test_texts_are_shortened_on_one_line_at_the_end_of_a_word() -> None:
    tokens = [
        ("A short text.", 80, "A short text."),
        ("one\ntwo three", 2, "one two …"),
        ("internationalization of texts", 7, "internationalization of …"),
        ("two incomprehensibilities", 3, "two …"),
        ("检测图像中的物体", 4, "检测图像 …"),
        ("", 5, ""),
    ]
    assert [first_tokens(text, limit) for text, limit, _ in tokens] == [short for *_, short in tokens]
    assert len(first_tokens("物" * 500)) < len(first_tokens("word " * 500)) / 3
    assert [brief_text("one\ntwo three", limit) for limit in (300, 9)] == ["one two three", "one two …"]


def test_requests_resources_and_results_have_no_lone_surrogates() -> None:
    task = {"task": HALF, "id": 0, "args": {"text": HALF}}
    for value in (
        Request(input=HALF, files=[HALF]),
        Request.of({"messages": [{"role": "user", "content": HALF}]}),
        Resource(kind="data", text=HALF, data={"label": [HALF]}, name=HALF),
        TaskResult.model_validate({"task": task, "status": "ok"}),
    ):
        assert "\ufffd" in value.model_dump_json()
