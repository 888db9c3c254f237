"""What the language model said is kept where somebody wants it, and only there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache

from jarvis_agent import Settings
from jarvis_agent.core.request import RunContext
from jarvis_agent.llm import reply_cache as llm_cache
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.llm.prompts import load_prompts
from jarvis_agent.testing import ScriptedLLM

MESSAGES = load_prompts("default").chat_messages(RunContext("hello"))


async def said(llm: ScriptedLLM, brief: RunContext, messages: Any = MESSAGES, **settings: Any) -> list[str]:
    controller = LLMClient(llm, Settings(**settings))
    return [piece async for piece in controller.stream("chat", messages, brief)]


class TestReplies:
    async def test_without_a_cache_every_prompt_is_a_call(self) -> None:
        llm = ScriptedLLM(["one", "two"])
        assert [await said(llm, RunContext("")), await said(llm, RunContext(""))] == [["one"], ["two"]]

    async def test_langchains_cache_counts_and_a_model_may_refuse_it(self) -> None:
        llm, shy = ScriptedLLM(["one", "two"]), ScriptedLLM(["one", "two"], cache=False)
        set_llm_cache(InMemoryCache())
        try:
            assert [await said(llm, RunContext("")), await said(llm, RunContext(""))] == [["one"], ["one"]]
            assert [await said(shy, RunContext("")), await said(shy, RunContext(""))] == [["one"], ["two"]]
        finally:
            set_llm_cache(None)

    async def test_the_cache_of_a_model_counts(self) -> None:
        llm = ScriptedLLM(["one", "two"], cache=InMemoryCache())
        assert [await said(llm, RunContext("")), await said(llm, RunContext(""))] == [["one"], ["one"]]

    async def test_a_cache_that_fails_is_told_in_the_log_and_nothing_more(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken(InMemoryCache):
            async def alookup(self, prompt: str, llm_string: str) -> Any:
                raise OSError("no disk")

        assert await said(ScriptedLLM("hello"), RunContext("")) == ["hello"]
        assert await said(ScriptedLLM("hello", cache=Broken()), RunContext("")) == ["hello"]
        assert "no disk" in caplog.text

    @pytest.mark.parametrize("way", ["alookup", "aupdate"])
    async def test_a_cache_that_hangs_is_waited_for_once_and_not_long(
        self, way: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []

        async def hang(self: Any, *_: Any) -> Any:
            asked.append(way)
            await asyncio.Event().wait()

        cache = type("Away", (InMemoryCache,), {way: hang})()
        monkeypatch.setattr(llm_cache, "PATIENCE", 0.05)
        controller = LLMClient(ScriptedLLM(["one", "two"], cache=cache), Settings())
        async with asyncio.timeout(30):
            replies = [await controller.complete("chat", MESSAGES, RunContext("")) for _ in range(2)]
        assert replies == ["one", "two"]
        assert asked == [way]
        assert "it did not answer within 0.05 s" in caplog.text
