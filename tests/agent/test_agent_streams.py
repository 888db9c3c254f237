"""Streams of JarvisAgent: chunks, events, tasks that run while the plan is written, and early exits."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from served import endless_expert
from small_agents import CAPTION, DESCRIBE_ALOUD, plan, small_agent

from jarvis_agent import JarvisAgent, Run
from jarvis_agent.execution.run import Event
from jarvis_agent.testing import FakeSource, ScriptedLLM, fake_candidate, first_candidate

REQUEST = "Describe a.jpg and say it"
APART = plan(
    ("image-to-text", [], {"image": "a.jpg"}), ("translation", [], {"text": "hello", "tgt_lang": "fr"})
)
"""Two independent tasks."""

pytestmark = pytest.mark.usefixtures("home")


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


def test_chunks_are_the_plan_the_results_and_the_answer_and_add_up_to_the_run() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD, models=["a", "b"], select=first_candidate)
    with agent:
        whole = agent.invoke(REQUEST)
        chunks = list(agent.stream(REQUEST))
    total = sum(chunks, Run())
    assert without_times(total) == without_times(whole)
    assert total.timings.keys() == whole.timings.keys()
    kinds = [
        "plan" if c.plan.tasks else "result" if c.results else "token" if c.answer else "usage"
        for c in chunks
    ]
    tokens = len(kinds) - 4
    assert tokens > 1
    assert kinds == ["plan", "result", "result", *["token"] * tokens, "usage"]


async def test_chunks_add_up_in_plan_order_though_the_second_task_ends_first() -> None:
    """The first task ends only after the reader has received the second one's result."""
    received = asyncio.Event()

    async def wait(call: Any) -> str:
        await received.wait()
        return CAPTION

    agent, _, _ = small_agent(APART, {"image-to-text": wait})
    chunks = []
    async with agent:
        async for chunk in agent.astream("Describe a.jpg"):
            chunks.append(chunk)
            if chunk.results:
                received.set()
        whole = await agent.ainvoke("Describe a.jpg")
    assert [result.task.id for chunk in chunks for result in chunk.results] == [1, 0]
    assert [result.task.id for result in whole.results] == [0, 1]
    assert without_times(sum(chunks, Run())) == without_times(whole)


async def test_langchains_event_stream_has_the_stages_and_the_chunks() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD, models=["a", "b"], select=first_candidate)
    async with agent:
        events = [event async for event in agent.astream_events(REQUEST, version="v2")]
    stages = [
        event["metadata"]["jarvis_stage"] for event in events if event["event"] == "on_chat_model_start"
    ]
    assert sorted(stages) == ["plan", "respond", "select", "select"]
    own = [event for event in events if event["event"] == "on_chain_stream" and not event["parent_ids"]]
    total: Run = sum((event["data"]["chunk"] for event in own), Run())
    assert total.answer.startswith("A cat on a mat.")
    assert (events[0]["event"], events[0]["name"]) == ("on_chain_start", "JarvisAgent")
    assert (events[-1]["event"], events[-1]["data"]["output"]) == ("on_chain_end", total)


async def test_events_come_in_order_and_are_json() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    async with agent:
        events = [event async for event in agent.aevents(REQUEST)]
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


class WaitingLLM(ScriptedLLM):
    """Waits for `gate` at the mark "…" in its plan."""

    gate: Any = None

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in super()._astream(messages, *args, **kwargs):
            if "…" in str(chunk.text):
                await self.gate.wait()
            yield chunk


async def test_a_task_runs_while_the_language_model_still_writes_the_plan() -> None:
    """The plan continues only when the first task has run."""
    gate = asyncio.Event()

    def caption(call: Any) -> str:
        gate.set()
        return CAPTION

    first, second = json.loads(DESCRIBE_ALOUD)
    written = f"[{json.dumps(first)}, …{json.dumps(second)}]"
    llm = WaitingLLM(replies={"plan": written, "respond": "Done."}, chunk=1, gate=gate)
    _, _, backend = small_agent(experts={"image-to-text": caption})
    source = FakeSource([fake_candidate("image-to-text"), fake_candidate("text-to-speech")])
    async with JarvisAgent(llm, sources=[source], backends=[backend]) as agent:
        events = [event async for event in agent.aevents(REQUEST)]
    order = [(event.kind, event.task.id if event.task else None) for event in events]
    assert order.index(("started", 0)) < order.index(("task", 1)) < order.index(("planned", None))
    assert events[-1].run is not None
    assert events[-1].run.ok


# Early exits. Cancellation at every stage is tested in tests/core/test_cancellation.py.


async def test_leaving_a_stream_stops_the_run() -> None:
    before = asyncio.all_tasks()
    for method, options in (("astream", {}), ("aevents", {}), ("astream_events", {"version": "v2"})):
        never, entered, stopped = endless_expert()
        agent, _, _ = small_agent(DESCRIBE_ALOUD, {"image-to-text": never})
        async with agent:
            async with aclosing(getattr(agent, method)(REQUEST, **options)) as items:
                await anext(items)
                assert await asyncio.to_thread(entered.wait, 60)
            assert stopped.is_set(), method
            assert asyncio.all_tasks() == before, method


def test_leaving_a_sync_stream_stops_the_run() -> None:
    never, entered, stopped = endless_expert()
    agent, _, backend = small_agent(DESCRIBE_ALOUD, {"image-to-text": never})
    with agent:
        chunks = agent.stream(REQUEST)
        assert next(chunks).plan.tasks
        assert entered.wait(60)
        chunks.close()  # type: ignore[attr-defined]
        assert stopped.is_set()
        assert backend.running == 0


async def test_a_cancelled_run_keeps_the_files_of_its_finished_tasks(tmp_path: Path) -> None:
    never, entered, _ = endless_expert()
    two = plan(("text-to-speech", [], {"text": "hello"}), ("image-to-text", [0], {"image": "a.jpg"}))
    agent, _, _ = small_agent(two, {"image-to-text": never})
    async with agent:
        running = asyncio.create_task(agent.ainvoke(REQUEST))
        assert await asyncio.to_thread(entered.wait, 60)
        running.cancel()
        await asyncio.wait([running])
    assert len(await asyncio.to_thread(lambda: [*tmp_path.glob("outputs/*/*.wav")])) == 1
