"""Plans that wait for approval: nothing runs before somebody decided, and a wrong word decides nothing."""

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

from jarvis_agent import JarvisAgent, Plan, Settings, Task
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


async def test_a_plan_waits_for_approval(waiting: JarvisAgent, calls: list[str]) -> None:
    shown = await waiting.waiting(THREAD)
    assert shown is not None
    assert (shown["request"], shown["plan"][0]["args"]) == ("count", {"text": "one"})
    assert calls == []
    run = await decide(waiting, True)
    assert run.results[0].output == "one!"
    assert await waiting.waiting(THREAD) is None


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


def test_approval_needs_a_checkpointer(tmp_path: Path) -> None:
    agent = counting_agent(tmp_path, []).with_checkpointer(None, approve=True)
    with pytest.raises(ConfigError, match=r"^approve=True needs a checkpointer: .*, approve=True\)$"):
        agent.invoke("count")


async def test_an_invalid_decision_is_asked_again(waiting: JarvisAgent, calls: list[str]) -> None:
    invalid = {
        "approved with True": 7,
        "contains no plan": "perhaps later",
        "sing": [UNKNOWN],
        "verdict": {"verdict": 1},
    }
    for problem, decision in invalid.items():
        with pytest.raises(ConfigError, match=problem):
            await decide(waiting, decision)
        shown = await waiting.waiting(THREAD)
        assert shown is not None
        assert problem in shown["problem"]
        assert shown["plan"][0]["args"] == {"text": "one"}
    assert calls == []
    await decide(waiting, True)
    assert calls == ["one"]


async def test_an_edited_plan_that_was_mended_is_shown_again_before_it_runs(
    waiting: JarvisAgent, calls: list[str]
) -> None:
    with pytest.raises(ConfigError, match="sing"):
        await decide(waiting, [TWO, UNKNOWN])
    shown = await waiting.waiting(THREAD)
    assert shown is not None
    assert [task["args"] for task in shown["plan"]] == [{"text": "two"}]
    assert calls == []
    await decide(waiting, "yes")
    assert calls == ["two"]


async def test_an_attached_picture_is_there_after_the_approval(tmp_path: Path) -> None:
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


async def test_without_a_plan_that_waits_there_is_nothing_to_decide(
    waiting: JarvisAgent, calls: list[str]
) -> None:
    with pytest.raises(ConfigError, match="True, False, or another plan"):
        await decide(waiting, None)
    await decide(waiting, True)
    with pytest.raises(ConfigError, match="no plan waits"):
        await decide(waiting, True)
    assert calls == ["one"]


@pytest.mark.parametrize("asks", [True, False], ids=["who would ask", "who would not ask"])
async def test_a_decision_holds_for_whoever_goes_on_with_the_run(tmp_path: Path, asks: bool) -> None:
    calls: list[str] = []
    saver, stuck = InMemorySaver(), asyncio.Event()
    agent = counting_agent(tmp_path, calls, stuck=stuck)
    first = agent.with_checkpointer(saver, approve=True)
    asked = await first.ainvoke("count", THREAD)
    assert ([task.id for task in asked.plan.tasks], asked.results, asked.answer) == ([0], [], "")
    await stop_when(stuck, first, Command(resume=plan(*ONE_BY_ONE)))
    second = agent.with_checkpointer(saver, approve=asks)
    assert await second.waiting(THREAD) is None
    run = await second.ainvoke(None, THREAD)
    assert [result.output for result in run.results] == ["one!", "one!!"]
    assert calls == ["one", "one!", "one!"]


async def test_a_run_that_nobody_had_to_approve_asks_nobody_when_it_goes_on(tmp_path: Path) -> None:
    calls: list[str] = []
    saver, stuck = InMemorySaver(), asyncio.Event()
    agent = counting_agent(tmp_path, calls, *ONE_BY_ONE, stuck=stuck)
    await stop_when(stuck, agent.with_checkpointer(saver), "count")
    run = await agent.with_checkpointer(saver, approve=True).ainvoke(None, THREAD)
    assert [result.output for result in run.results] == ["one!", "one!!"]
    assert calls == ["one", "one!", "one!"]


async def test_a_plan_that_waits_is_not_run_by_who_asks_nobody(
    waiting: JarvisAgent, calls: list[str]
) -> None:
    hasty = waiting.with_checkpointer(waiting.checkpointer)
    with pytest.raises(ConfigError, match="waits for approval"):
        await hasty.ainvoke(None, THREAD)
    assert calls == []
