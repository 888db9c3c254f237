"""The calls that choose models take turns within a run, and nothing else waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Selection, Task
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.selection.chain import selection_chain
from jarvis_agent.selection.selector import ModelSelector
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

DETECTION, SPEECH = "object-detection", "text-to-speech"


class Gated(LLMClient):
    """Answers when the gate is open; `now` counts the calls under way, and `most` how many they were."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(ScriptedLLM({}), settings)
        self.gate = asyncio.Event()
        self.begun = asyncio.Semaphore(0)
        self.now = self.most = 0

    async def complete(self, *given: Any, **options: Any) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.release()
        try:
            await self.gate.wait()
            return f"{DETECTION}/a"
        finally:
            self.now -= 1

    async def calls(self, count: int) -> None:
        """Wait for so many calls more."""
        for _ in range(count):
            await self.begun.acquire()


def held(limit: int, pins: dict[str, str] | None = None, **given: Any) -> tuple[ModelSelector, Gated]:
    settings = Settings(offline=False, max_parallel=limit, **given)
    controller = Gated(settings)
    source = FakeSource([fake_candidate(DETECTION, "a"), fake_candidate(DETECTION, "b")])
    backend = FakeBackend({DETECTION: "x", SPEECH: "x"})
    chain = selection_chain(controller, settings=settings)
    return ModelSelector([source], [backend], settings, chain, pins=pins), controller


def begun(chosen_by: ModelSelector, brief: RunContext, count: int) -> list[asyncio.Task[Selection]]:
    tasks = [Task(task=DETECTION, id=i, args={"image": "z.jpg"}) for i in range(count)]
    return [asyncio.create_task(chosen_by.select(task, TASKS[DETECTION], brief)) for task in tasks]


async def test_the_calls_of_one_run_wait_for_their_turn_and_those_of_another_do_not() -> None:
    chosen_by, llm = held(3)
    choosing = begun(chosen_by, RunContext("Find the zebras"), 20)
    await llm.calls(3)
    alone = begun(chosen_by, RunContext("Find the lions"), 1)
    await llm.calls(1)
    llm.gate.set()
    chosen = await asyncio.gather(*choosing, *alone)
    assert [selection.chosen_by for selection in chosen] == ["llm"] * 21
    assert llm.most == 4


async def test_while_calls_wait_a_task_without_a_choice_is_not_held_up() -> None:
    chosen_by, llm = held(1, pins={SPEECH: "org/voice"})
    brief = RunContext("Find the zebras")
    choosing = begun(chosen_by, brief, 2)
    await llm.calls(1)
    pinned = await chosen_by.select(Task(task=SPEECH, id=9, args={}), TASKS[SPEECH], brief)
    assert (pinned.chosen_by, llm.now) == ("pinned", 1)
    llm.gate.set()
    await asyncio.gather(*choosing)
