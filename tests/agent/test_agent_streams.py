"""JarvisAgent while it works: chunks, events, what overlaps, and what remains when it is stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from small_agents import CAPTION, DESCRIBE_ALOUD, plan, small_agent

from jarvis_agent import JarvisAgent, Run
from jarvis_agent.core.sync import run_sync
from jarvis_agent.execution.run import Event
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate, first_candidate

REQUEST = "Describe a.jpg and say it"
APART = plan(
    ("image-to-text", [], {"image": "a.jpg"}), ("translation", [], {"text": "hello", "tgt_lang": "fr"})
)
"""Two tasks that do not need each other."""


pytestmark = pytest.mark.usefixtures("home")


def total(chunks: list[Run]) -> Run:
    run = chunks[0]
    for chunk in chunks[1:]:
        run = run + chunk
    return run


def without_times(run: Run) -> dict[str, Any]:
    """A run as JSON, without what differs between two runs: times, and the directory of its files."""

    def scrubbed(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: scrubbed(v) for k, v in value.items() if k not in ("started", "ended", "timings")}
        if isinstance(value, list):
            return [scrubbed(item) for item in value]
        return Path(value).name if isinstance(value, str) and "outputs" in value else value

    dumped = scrubbed(run.model_dump(mode="json"))
    assert isinstance(dumped, dict)
    return dumped


def test_the_sum_of_the_chunks_is_what_invoke_returns() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD, models=["a", "b"], select=first_candidate)
    with agent:
        whole = agent.invoke(REQUEST)
        chunks = list(agent.stream(REQUEST))
    assert without_times(total(chunks)) == without_times(whole)
    assert total(chunks).timings.keys() == whole.timings.keys()


def test_first_comes_the_plan_then_the_results_then_the_answer() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    with agent:
        chunks = list(agent.stream(REQUEST))
    kinds = [
        "plan" if c.plan.tasks else "result" if c.results else "token" if c.answer else "usage"
        for c in chunks
    ]
    assert kinds[:3] == ["plan", "result", "result"]
    assert kinds[-1] == "usage"
    assert set(kinds[3:-1]) == {"token"}
    assert len(kinds) > 5


async def test_the_chunks_add_up_in_plan_order_though_the_second_task_ends_first() -> None:
    """The first task ends only after the reader has seen the second one's result; with invoke, at once."""
    seen = asyncio.Event()

    async def wait(call: Any) -> str:
        await seen.wait()
        return CAPTION

    agent, _, _ = small_agent(APART, {"image-to-text": wait})
    chunks = []
    async with agent:
        async for chunk in agent.astream(REQUEST):
            chunks.append(chunk)
            if chunk.results:
                seen.set()
        whole = await agent.ainvoke(REQUEST)
    assert [result.task.id for chunk in chunks for result in chunk.results] == [1, 0]
    assert [result.task.id for result in whole.results] == [0, 1]
    assert without_times(total(chunks)) == without_times(whole)


async def test_the_event_stream_of_langchain_tells_stages_and_chunks() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD, models=["a", "b"], select=first_candidate)
    async with agent:
        events = [event async for event in agent.astream_events(REQUEST, version="v2")]
    stages = [
        event["metadata"]["jarvis_stage"] for event in events if event["event"] == "on_chat_model_start"
    ]
    assert sorted(stages) == ["plan", "respond", "select", "select"]
    chunks = [
        event["data"]["chunk"]
        for event in events
        if event["event"] == "on_chain_stream" and not event["parent_ids"]
    ]
    assert total(chunks).answer == "It is done."
    assert (events[0]["event"], events[0]["name"]) == ("on_chain_start", "JarvisAgent")
    end = events[-1]
    assert (end["event"], end["data"]["output"]) == ("on_chain_end", total(chunks))


async def test_the_events_of_a_run_tell_what_happens_in_its_order() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    async with agent:
        events = [event async for event in agent.events(REQUEST)]
    kinds = [event.kind for event in events]
    assert kinds[-1] == "done"
    assert events[-1].run is not None
    assert events[-1].run.answer == "".join(event.text for event in events if event.kind == "token")
    for task_id in (0, 1):
        own = [event.kind for event in events if event.task is not None and event.task.id == task_id]
        assert own == ["task", "selected", "started", "finished"]
    assert kinds.index("planned") < kinds.index("token")
    seconds = [event.seconds for event in events]
    assert seconds == sorted(seconds)
    assert all(Event.model_validate_json(event.model_dump_json()) == event for event in events)


# What overlaps.


class WaitingLLM(ScriptedLLM):
    """Goes on behind the mark "…" of its plan only when `gate` is open."""

    gate: Any = None

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in super()._astream(messages, *args, **kwargs):
            if "…" in str(chunk.text):
                await self.gate.wait()
            yield chunk


async def test_a_task_runs_while_the_language_model_still_writes_the_plan() -> None:
    """The plan goes on only when the first task has run: if tasks waited for it, nothing would move."""
    gate = asyncio.Event()

    def caption(call: Any) -> str:
        gate.set()
        return CAPTION

    first, second = json.loads(DESCRIBE_ALOUD)
    llm = WaitingLLM(
        {"plan": f"[{json.dumps(first)}, …{json.dumps(second)}]", "respond": "Done."}, chunk=1, gate=gate
    )
    _, _, backend = small_agent(experts={"image-to-text": caption})
    source = FakeSource([fake_candidate("image-to-text"), fake_candidate("text-to-speech")])
    async with JarvisAgent(llm, sources=[source], backends=[backend]) as agent:
        events = [event async for event in agent.events(REQUEST)]
    order = [(event.kind, event.task.id if event.task else None) for event in events]
    assert order.index(("started", 0)) < order.index(("task", 1)) < order.index(("planned", None))
    assert events[-1].run is not None
    assert events[-1].run.ok


async def test_a_model_is_chosen_while_what_its_task_needs_still_runs() -> None:
    """The first task ends only when the second one's model has been chosen."""
    chosen = asyncio.Event()

    async def caption(call: Any) -> str:
        await chosen.wait()
        return CAPTION

    def select(messages: Any) -> str:
        if "text-to-speech/" in messages[-1].text:
            chosen.set()
        return first_candidate(messages)

    agent, llm, _ = small_agent(DESCRIBE_ALOUD, {"image-to-text": caption}, models=["a", "b"], select=select)
    async with agent:
        run = await agent.ainvoke(REQUEST)
    assert run.ok
    assert llm.stages().count("select") == 2


# What remains when it is stopped.


class Hanging:
    """An expert that never ends; `begun` and `stopped` tell what became of it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.stopped = asyncio.Event()

    async def __call__(self, call: Any) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


def hanging_agent() -> tuple[JarvisAgent, Hanging, FakeBackend]:
    expert = Hanging()
    agent, _, backend = small_agent(DESCRIBE_ALOUD, {"image-to-text": expert})
    return agent, expert, backend


async def test_a_cancelled_run_leaves_nothing_running() -> None:
    agent, expert, backend = hanging_agent()
    before = asyncio.all_tasks()
    async with agent:
        running = asyncio.create_task(agent.ainvoke(REQUEST))
        await expert.begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert expert.stopped.is_set()
    assert backend.running == 0
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("method", ["astream", "events", "astream_events"])
async def test_a_reader_that_leaves_stops_the_run(method: str) -> None:
    agent, expert, _ = hanging_agent()
    before = asyncio.all_tasks()
    options = {"version": "v2"} if method == "astream_events" else {}
    async with agent:
        async with aclosing(getattr(agent, method)(REQUEST, **options)) as items:
            await anext(items)
            await expert.begun.wait()
        assert expert.stopped.is_set()
        assert asyncio.all_tasks() == before


def test_a_sync_reader_that_leaves_stops_the_run() -> None:
    agent, expert, backend = hanging_agent()
    with agent:
        chunks = agent.stream(REQUEST)
        assert next(chunks).plan.tasks
        run_sync(expert.begun.wait)
        chunks.close()  # type: ignore[attr-defined]
        assert expert.stopped.is_set()
        assert backend.running == 0


async def test_what_a_cancelled_run_had_made_stays_on_disk(tmp_path: Path) -> None:
    def made() -> list[Path]:
        return list(tmp_path.glob("outputs/*/*.wav"))

    expert = Hanging()
    two = plan(("text-to-speech", [], {"text": "hello"}), ("image-to-text", [0], {"image": "a.jpg"}))
    agent, _, _ = small_agent(two, {"image-to-text": expert})
    async with agent:
        running = asyncio.create_task(agent.ainvoke(REQUEST))
        await expert.begun.wait()
        running.cancel()
        await asyncio.wait([running])
    assert len(made()) == 1
