"""What the language model said is kept where somebody wants it, and only there."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from small_agents import DESCRIBE, small_agent

from jarvis_agent import Settings
from jarvis_agent.llm import reply_cache as llm_cache
from jarvis_agent.planning.example_selector import Demonstration
from jarvis_agent.core.errors import LLMError
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.planning.plan import Plan
from jarvis_agent.planning.plan_cache import FROM_CACHE, plan_key, planned_by
from jarvis_agent.llm.prompts import load_prompts
from jarvis_agent.core.request import RunContext, ChatTurn
from jarvis_agent.core.disk_cache import Shelf
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource, Usage

MESSAGES = load_prompts("default").chat_messages(RunContext("hello"))


class TestShelf:
    def test_a_value_is_found_under_its_key_alone(self, tmp_path: Path) -> None:
        shelf = Shelf(tmp_path / "new", days=1)
        shelf.put(["a", 1], {"x": "ü"})
        assert Shelf(tmp_path / "new", days=1).get(["a", 1]) == {"x": "ü"}
        assert shelf.get(["a", 2]) is None

    def test_a_value_grows_old(self, tmp_path: Path) -> None:
        now = [0.0]
        shelf = Shelf(tmp_path, days=2, clock=lambda: now[0])
        shelf.put("key", "value")
        now[0] = 2 * 86_400.0
        assert shelf.get("key") == "value"
        now[0] += 1
        assert shelf.get("key") is None
        assert list(tmp_path.iterdir()) == []

    def test_what_nobody_asks_for_again_is_deleted_when_it_is_too_old(self, tmp_path: Path) -> None:
        Shelf(tmp_path, days=2).put("first", 1)
        (tmp_path / f"{'0' * 64}.0a1b2c3d").touch()
        (tmp_path / "mine.json").touch()
        before = time.time() - 3 * 86_400.0
        for file in tmp_path.iterdir():
            os.utime(file, (before, before))
        shelf = Shelf(tmp_path, days=2)
        shelf.put("second", 2)
        assert shelf.get("second") == 2
        assert len(list(tmp_path.iterdir())) == 2
        assert (tmp_path / "mine.json").exists()

    def test_what_can_not_be_deleted_keeps_nothing_else(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = time.time() - 3 * 86_400.0
        for number in range(8):
            place = tmp_path / f"{number:064x}.json"
            if number % 2:
                place.mkdir()
            else:
                place.touch()
            os.utime(place, (before, before))
        Shelf(tmp_path, days=2).put("new", 1)
        assert len([file for file in tmp_path.iterdir() if file.is_file()]) == 1
        assert caplog.text.count("can not be deleted") == 4

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
    def test_a_value_is_for_its_owner_alone(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        Shelf(tmp_path, days=1).put("key", "value")
        assert [file.stat().st_mode & 0o777 for file in tmp_path.iterdir()] == [0o600]

    @pytest.mark.parametrize("content", ["", "[]", "{", '{"at": "x", "value": 1}', '{"at": 1}'])
    def test_a_broken_file_is_as_good_as_none(self, tmp_path: Path, content: str) -> None:
        shelf = Shelf(tmp_path, days=1)
        shelf.put("key", "value")
        next(tmp_path.glob("*.json")).write_text(content)
        assert shelf.get("key") is None

    def test_a_directory_that_can_not_be_made_is_told_in_the_log(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").write_text("")
        shelf = Shelf(tmp_path / "file" / "below", days=1)
        shelf.put("key", "value")
        assert shelf.get("key") is None
        assert "can not be written" in caplog.text


async def said(llm: ScriptedLLM, brief: RunContext, messages: Any = MESSAGES, **settings: Any) -> list[str]:
    controller = LLMClient(llm, Settings(**settings))
    return [piece async for piece in controller.stream("chat", messages, brief)]


class TestReplies:
    async def test_a_reply_that_is_kept_comes_as_one_piece_and_is_no_call(self, tmp_path: Path) -> None:
        llm, first, second = ScriptedLLM("a reply in several pieces"), RunContext(""), RunContext("")
        pieces = await said(llm, first, llm_cache=tmp_path)
        assert len(pieces) > 1
        assert await said(llm, second, llm_cache=tmp_path) == ["".join(pieces)]
        assert len(llm.calls) == 1
        assert first.meter.usage["chat"].calls == 1
        assert second.meter.usage["chat"] == Usage(cached=1)

    async def test_another_prompt_is_another_reply(self, tmp_path: Path) -> None:
        llm = ScriptedLLM(["one", "two"])
        other = load_prompts("default").chat_messages(RunContext("good bye"))
        assert await said(llm, RunContext(""), llm_cache=tmp_path) == ["one"]
        assert await said(llm, RunContext(""), other, llm_cache=tmp_path) == ["two"]

    async def test_a_model_that_is_wrapped_counts_with_what_it_is_wrapped_in(self, tmp_path: Path) -> None:
        llm = ScriptedLLM({"chat": "Hi!"})
        said = Settings(llm_cache=tmp_path)
        wrapped = [
            llm,
            llm.bind(stop=["a"]),
            llm.bind(stop=["b"]),
            llm.with_retry(),
            llm.with_fallbacks([llm]),
        ]
        for model in wrapped * 2:
            await LLMClient(model, said).complete("chat", MESSAGES, RunContext("hello"))  # type: ignore[arg-type]
        assert len(llm.calls) == len(wrapped)

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

    async def test_a_reply_that_breaks_off_is_not_kept(self, tmp_path: Path) -> None:
        llm = ScriptedLLM([("half", ConnectionError("gone")), "whole"])
        with pytest.raises(LLMError):
            await said(llm, RunContext(""), llm_cache=tmp_path)
        assert await said(llm, RunContext(""), llm_cache=tmp_path) == ["whole"]

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


class TestPlans:
    async def test_the_same_request_gets_its_plan_again_and_a_note(self, tmp_path: Path) -> None:
        from PIL import Image

        Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
        settings = Settings(output_dir=tmp_path / "out", plan_cache=tmp_path / "plans", repair_rounds=0)
        asked = {"input": "What is in it?", "files": [str(tmp_path / "a.jpg")]}
        plan = DESCRIBE.replace("a.jpg", str(tmp_path / "a.jpg"))
        agent, llm, _ = small_agent([plan], settings=settings)
        async with agent:
            first = await agent.ainvoke(asked)
            second = await agent.ainvoke({**asked, "input": "  What is in it?\n"})
        assert llm.stages() == ["plan", "respond", "respond"]
        assert second.plan.tasks == first.plan.tasks
        assert (first.plan.notes, second.plan.notes) == ([], [FROM_CACHE])
        assert second.ok

    async def test_a_plan_that_had_to_be_mended_is_not_kept(self, tmp_path: Path) -> None:
        settings = Settings(output_dir=tmp_path / "out", plan_cache=tmp_path / "plans", repair_rounds=0)
        broken = '[{"task": "no-such-task", "id": 0, "dep": [-1], "args": {}}]'
        agent, _, _ = small_agent(broken, settings=settings)
        async with agent:
            assert (await agent.aplan("Do it")).notes
        assert not (tmp_path / "plans").exists()

    @pytest.mark.parametrize(
        "changes",
        [
            {"request": 'Say "hello" aloud'},
            {"files": (Resource(kind="image", name="b.jpg"),)},
            {"files": (Resource(kind="audio", name="a.jpg"),)},
            {"turns": (ChatTurn("before", "answer"),)},
            {"specs": {"translation": TASKS["translation"]}},
            {"specs": {**TASKS, "translation": replace(TASKS["translation"], description="Sing.")}},
            {"specs": {**TASKS, "translation": replace(TASKS["translation"], outputs=("audio",))}},
        ],
    )
    def test_what_a_plan_depends_on_is_in_the_key(self, changes: dict[str, Any]) -> None:
        brief = RunContext('Say "Hello" aloud', (Resource(kind="image", name="a.jpg"),), specs=TASKS)
        assert plan_key(replace(brief, **changes), "m") != plan_key(brief, "m")
        assert plan_key(brief, "other") != plan_key(brief, "m")
        assert plan_key(replace(brief, config={"tags": ["x"]}), "m") == plan_key(brief, "m")

    @pytest.mark.parametrize(
        "changes",
        [
            {"demos": "paper"},
            {"demos_shown": 2},
            {"tools_offered": "all"},
            {"context_tokens": 4096},
            {"structured": "never"},
            {"logit_bias": 0.2},
        ],
    )
    def test_what_the_language_model_is_shown_is_in_the_key(self, changes: dict[str, Any]) -> None:
        settings, prompts = Settings(), load_prompts("default")
        own = replace(prompts, demonstrations=(Demonstration("Say hi", []),))
        by = planned_by("m", settings, prompts)
        assert planned_by("m", Settings(**changes), prompts) != by
        assert planned_by("m", settings, own) != by
        assert planned_by("m", settings, load_prompts("paper")) != by
        assert planned_by("m", Settings(), load_prompts("default")) == by

    async def test_a_broken_entry_is_planned_anew(self, tmp_path: Path) -> None:
        settings = Settings(output_dir=tmp_path / "out", plan_cache=tmp_path / "plans")
        agent, llm, _ = small_agent(DESCRIBE, settings=settings)
        async with agent:
            assert (await agent.aplan("Describe")).tasks
            for file in (tmp_path / "plans").glob("*.json"):
                file.write_text(file.read_text().replace('"id"', '"idea"'))
            assert await agent.aplan("Describe") != Plan()
        assert len(llm.calls) == 2
