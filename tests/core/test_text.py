"""Text is made encodable and shortened, so that any run can be stored and sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool

from jarvis_agent import JarvisAgent, Request, Run, Settings, hf_tools
from jarvis_agent.core.text import brief_text, first_tokens, replace_surrogates, replace_surrogates_in
from jarvis_agent.core.types import Resource, TaskResult
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

HALF = "a \ud83d cat"


@pytest.mark.parametrize(
    ("text", "told"), [("plain", "plain"), ("猫 😀", "猫 😀"), ("\ud83d\ude00", "😀"), (HALF, "a \ufffd cat")]
)
def test_half_characters_are_replaced_and_halves_joined(text: str, told: str) -> None:
    assert replace_surrogates(text) == told


def test_every_text_in_plain_data_is_made_sound_and_the_rest_left_alone() -> None:
    data = {HALF: [HALF, 1, None, (HALF,)], "path": Path("a")}
    whole = replace_surrogates(HALF)
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


@pytest.mark.parametrize(
    "noun",
    [
        Request(input=HALF, files=[HALF]),
        Request.of({"messages": [{"role": "user", "content": HALF}]}),
        Resource(kind="data", text=HALF, data={"label": [HALF]}, name=HALF),
        TaskResult.model_validate({"task": {"task": HALF, "id": 0, "args": {"text": HALF}}, "status": "ok"}),
    ],
)
def test_half_a_character_in_a_noun_is_no_obstacle(noun: Any) -> None:
    assert "\ufffd" in noun.model_dump_json()


async def test_whoever_writes_half_a_character_the_run_can_be_stored(tmp_path: Path) -> None:
    """Programs that cut texts at some length give such JSON: experts, tools and language models."""

    @tool
    def weather(city: str) -> str:
        """The weather."""
        return HALF

    tasks = (
        '[{"task": "weather", "id": 0, "args": {"city": "Oslo"}},'
        ' {"task": "text-generation", "id": 1, "args": {"text": "Go on"}}]'
    )
    parts: dict[str, Any] = {
        "sources": [FakeSource([fake_candidate("text-generation")])],
        "backends": [FakeBackend({"text-generation": {"generated_text": HALF}})],
        "settings": Settings(output_dir=tmp_path),
    }
    tools = [weather, *hf_tools(tasks=["text-generation"], **parts)]
    agent = JarvisAgent(ScriptedLLM({"plan": tasks, "respond": HALF}), tools, **parts)
    run = await agent.ainvoke(HALF)
    assert [result.status for result in run.results] == ["ok", "ok"]
    assert Run.model_validate_json(run.model_dump_json()) == run
