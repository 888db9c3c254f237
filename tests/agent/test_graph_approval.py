"""Approval of plans: nothing runs before a valid decision, and a decision is stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")

from durable_agents import ONE_BY_ONE, THREAD, counting_agent, stop_when
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from small_agents import block, picture, plan, small_agent

from jarvis_agent import JarvisAgent, Plan, Run, Settings, Task
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
        assert run.answer == ("Done." if expected else "The plan was rejected, so nothing was run.")


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


async def test_an_attachment_is_kept_while_the_plan_waits(tmp_path: Path) -> None:
    attached = block(picture(tmp_path / "a.png"), mime="image/png")
    message = HumanMessage([{"type": "text", "text": "What is in it?"}, attached])

    def describe_it(messages: Any) -> str:
        name = next(word for word in messages[-1].text.replace('"', " ").split() if word.startswith("input-"))
        return plan(("image-to-text", [], {"image": name}))

    agent, _, _ = small_agent(describe_it, settings=Settings(output_dir=tmp_path / "out"))
    durable = agent.with_checkpointer(InMemorySaver(), approve=True)
    assert [event.kind async for event in durable.events([message], THREAD)] == []
    run = await decide(durable, True)
    assert [result.error for result in run.results] == [None]
    assert len(list((tmp_path / "out").rglob("input*"))) == 1


@pytest.mark.parametrize("approve", [True, False])
async def test_a_decision_holds_whether_or_not_the_resuming_agent_asks(tmp_path: Path, approve: bool) -> None:
    calls: list[str] = []
    saver, stuck = InMemorySaver(), asyncio.Event()
    agent = counting_agent(tmp_path, calls, stuck=stuck)
    first = agent.with_checkpointer(saver, approve=True)
    waiting = await first.ainvoke("count", THREAD)
    assert ([task.id for task in waiting.plan.tasks], waiting.results, waiting.answer) == ([0], [], "")
    await stop_when(stuck, first, Command(resume=plan(*ONE_BY_ONE)))
    second = agent.with_checkpointer(saver, approve=approve)
    assert await second.waiting(THREAD) is None
    run = await second.ainvoke(None, THREAD)
    assert [result.output for result in run.results] == ["one!", "one!!"]
    assert calls == ["one", "one!", "one!"]


async def test_a_run_started_without_approval_needs_none_when_it_resumes(tmp_path: Path) -> None:
    calls: list[str] = []
    saver, stuck = InMemorySaver(), asyncio.Event()
    agent = counting_agent(tmp_path, calls, *ONE_BY_ONE, stuck=stuck)
    await stop_when(stuck, agent.with_checkpointer(saver), "count")
    run = await agent.with_checkpointer(saver, approve=True).ainvoke(None, THREAD)
    assert [result.output for result in run.results] == ["one!", "one!!"]
    assert calls == ["one", "one!", "one!"]
