"""Approval of plans: nothing runs before a valid decision, and a decision is stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")

from durable_agents import ONE_BY_ONE, THREAD, counting_agent, stop_when
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from small_agents import plan

from jarvis_agent import JarvisAgent, Plan, Run, Task
from jarvis_agent.core.errors import ConfigError

TWO = {"task": "count", "id": 0, "dep": [-1], "args": {"text": "two"}}
UNKNOWN = {"task": "sing", "id": 1, "dep": [-1], "args": {"text": "la"}}


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
async def waiting(tmp_path: Path, calls: list[str]) -> JarvisAgent:
    """An agent with a plan that waits."""
    durable = counting_agent(tmp_path, calls).with_checkpointer(InMemorySaver(), approve=True)
    assert [event.kind async for event in durable.events("count", THREAD)] == []
    return durable


async def decide(durable: JarvisAgent, decision: Any) -> Any:
    return await durable.ainvoke(Command(resume=decision), THREAD)


def test_a_stream_that_stops_for_approval_yields_the_plan(tmp_path: Path, calls: list[str]) -> None:
    durable = counting_agent(tmp_path, calls).with_checkpointer(InMemorySaver(), approve=True)
    (chunk,) = durable.stream("count", THREAD)
    assert [task.task for task in chunk.plan.tasks] == ["count"]
    run = sum(durable.stream(Command(resume=True), THREAD), Run())
    assert [result.status for result in run.results] == ["ok"]


async def test_a_plan_waits_for_approval(waiting: JarvisAgent, calls: list[str]) -> None:
    shown = await waiting.waiting(THREAD)
    assert shown is not None
    assert (shown["request"], shown["plan"][0]["args"]) == ("count", {"text": "one"})
    with pytest.raises(ConfigError, match="True, False, or another plan"):
        await decide(waiting, None)
    with pytest.raises(ConfigError, match="waits for approval"):
        await waiting.with_checkpointer(waiting.checkpointer).ainvoke(None, THREAD)  # without approve=True
    assert calls == []
    run = await decide(waiting, True)
    assert run.results[0].output == "one!"
    assert await waiting.waiting(THREAD) is None
    with pytest.raises(ConfigError, match="no plan waits"):
        await decide(waiting, True)
    assert calls == ["one"]


async def test_a_decision_has_many_forms(tmp_path: Path) -> None:
    """True and words approve, False and words reject, and a plan in any form replaces the one shown."""
    edited = [
        [TWO],
        json.dumps([TWO]),
        {"plan": [TWO]},
        [Task.model_validate(TWO)],
        Plan(tasks=[Task.model_validate(TWO)]),
        {"plan": {"tasks": [TWO], "notes": []}},
    ]
    cases = [(word, ["one"]) for word in (True, "yes", "y", "Approve", " TRUE ", "ok.")]
    cases += [(word, []) for word in (False, "reject", "No", "n", [])]
    cases += [(plan, ["two"]) for plan in edited]
    for decision, expected in cases:
        calls: list[str] = []
        durable = counting_agent(tmp_path, calls).with_checkpointer(InMemorySaver(), approve=True)
        await durable.ainvoke("count", THREAD)
        run = await decide(durable, decision)
        assert (calls, [task.args["text"] for task in run.plan.tasks]) == (expected, expected), decision
        assert run.answer == ("Done: one, two." if expected else "The plan was rejected, so nothing was run.")


def test_approval_needs_a_checkpointer() -> None:
    with pytest.raises(ConfigError, match=r"^approve=True needs a checkpointer.*InMemorySaver\(\), approve"):
        JarvisAgent(tools=[], approve=True)


async def test_after_an_invalid_decision_the_plan_is_shown_again(
    waiting: JarvisAgent, calls: list[str]
) -> None:
    """A valid task of an edited plan is kept, and shown before it runs."""
    cases: list[tuple[Any, str, str]] = [
        (7, "approved with True", "one"),
        ("perhaps later", "contains no plan", "one"),
        ({"verdict": 1}, "verdict", "one"),
        ([UNKNOWN], "sing", "one"),
        ([TWO, UNKNOWN], "sing", "two"),
    ]
    for decision, problem, text in cases:
        with pytest.raises(ConfigError, match=problem):
            await decide(waiting, decision)
        shown = await waiting.waiting(THREAD)
        assert shown is not None
        assert problem in shown["problem"]
        assert [task["args"] for task in shown["plan"]] == [{"text": text}]
    assert calls == []
    await decide(waiting, "yes")
    assert calls == ["two"]


async def test_a_decision_holds_whether_or_not_the_resuming_agent_asks(tmp_path: Path) -> None:
    """So does a run that was started without approval."""
    for asks, resumes_asking in ((True, True), (True, False), (False, True)):
        calls: list[str] = []
        saver, stuck = InMemorySaver(), asyncio.Event()
        agent = counting_agent(tmp_path, calls, *([] if asks else ONE_BY_ONE), stuck=stuck)
        first = agent.with_checkpointer(saver, approve=asks)
        request: Any = "count"
        if asks:
            waiting = await first.ainvoke("count", THREAD)
            assert ([task.id for task in waiting.plan.tasks], waiting.results) == ([0], [])
            request = Command(resume=plan(*ONE_BY_ONE))
        await stop_when(stuck, first, request)
        second = agent.with_checkpointer(saver, approve=resumes_asking)
        assert await second.waiting(THREAD) is None
        run = await second.ainvoke(None, THREAD)
        assert [result.output for result in run.results] == ["one!", "one!!"]
        assert calls == ["one", "one!", "one!"]
