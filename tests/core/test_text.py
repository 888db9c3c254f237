"""Text is made encodable and shortened, so that any run can be stored and sent."""

from __future__ import annotations

from pathlib import Path

from jarvis_agent import Request
from jarvis_agent.core.text import brief_text, replace_surrogates, replace_surrogates_in
from jarvis_agent.core.types import Resource, TaskResult

HALF = "a \ud83d cat"


def test_surrogates_are_joined_or_replaced() -> None:
    texts = {"plain": "plain", "猫 😀": "猫 😀", "\ud83d\ude00": "😀", HALF: "a \ufffd cat"}
    assert {text: replace_surrogates(text) for text in texts} == texts
    data, whole = {HALF: [HALF, 1, None, (HALF,)], "path": Path("a")}, texts[HALF]
    assert replace_surrogates_in(data) == {whole: [whole, 1, None, (whole,)], "path": Path("a")}


def test_texts_are_shortened_on_one_line_at_the_end_of_a_word() -> None:
    assert [brief_text("one\ntwo three", limit) for limit in (300, 9)] == ["one two three", "one two …"]
    assert brief_text("a " + "物" * 500) == f"a {'物' * 298} …"


def test_requests_resources_and_results_have_no_lone_surrogates() -> None:
    task = {"task": HALF, "id": 0, "args": {"text": HALF}}
    for value in (
        Request(input=HALF, files=[HALF]),
        Request.of({"messages": [{"role": "user", "content": HALF}]}),
        Resource(kind="data", text=HALF, data={"label": [HALF]}, name=HALF),
        TaskResult.model_validate({"task": task, "status": "ok"}),
    ):
        assert "\ufffd" in value.model_dump_json()
