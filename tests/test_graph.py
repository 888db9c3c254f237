"""Runs in a checkpointer: they resume where they were, wait for approval, and remember their thread."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool

pytest.importorskip("langgraph")
pytest.importorskip("langgraph.checkpoint.sqlite")

from killed_runs import SHAPE
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from small_agents import DESCRIBE_ALOUD, plan, small_agent

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.errors import ConfigError, InputError
from jarvis_agent.graph import DurableAgent, make_graph
from jarvis_agent.testing import ScriptedLLM

THREAD: Any = {"configurable": {"thread_id": "a"}}
HERE = Path(__file__).parent


@pytest.fixture
async def saver(tmp_path: Path) -> AsyncIterator[AsyncSqliteSaver]:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "runs.sqlite")) as saver:
        yield saver


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    return tmp_path / "a.jpg"


def told(picture: Path) -> dict[str, Any]:
    return {"input": "Describe a.jpg aloud", "files": [str(picture)]}


def described(picture: Path) -> str:
    return DESCRIBE_ALOUD.replace("a.jpg", str(picture))


async def test_a_durable_run_is_the_run_that_it_would_be(
    saver: AsyncSqliteSaver, picture: Path, tmp_path: Path
) -> None:
    agent, _, _ = small_agent(described(picture), settings=Settings(output_dir=tmp_path / "out"))
    run = await DurableAgent(agent, saver).ainvoke(told(picture), THREAD)
    assert [result.status for result in run.results] == ["ok", "ok"]
    assert run.results[1].resources[0].path.is_file()  # type: ignore[union-attr]
    assert run.answer == "It is done."
    assert run.usage["plan"].calls == 1
    await agent.aclose()


async def test_its_events_are_those_of_any_run(
    saver: AsyncSqliteSaver, picture: Path, tmp_path: Path
) -> None:
    agent, _, _ = small_agent(described(picture), settings=Settings(output_dir=tmp_path / "out"))
    kinds = [event.kind async for event in DurableAgent(agent, saver).events(told(picture), THREAD)]
    assert kinds[0] == "planned"
    assert kinds.count("started") == kinds.count("finished") == 2
    assert kinds[-1] == "done"
    await agent.aclose()


def counting(calls: list[str], stuck: asyncio.Event | None = None) -> list[BaseTool]:
    """A tool that notes its calls; while `stuck` is set, the call for "one!" says so and never ends."""

    @tool
    async def count(text: str) -> str:
        """Count."""
        calls.append(text)
        if stuck is not None and text == "one!" and not stuck.is_set():
            stuck.set()
            await asyncio.Event().wait()
        return f"{text}!"

    return [count]


async def test_what_was_done_is_not_done_again(saver: AsyncSqliteSaver, tmp_path: Path) -> None:
    calls: list[str] = []
    stuck = asyncio.Event()
    rows = plan(("count", [], {"text": "one"}), ("count", [0], {"text": "<resource>-0"}))
    llm = ScriptedLLM({"plan": [rows, "[]"], "respond": "Done."})
    agent = JarvisAgent(llm, tools=counting(calls, stuck), settings=Settings(output_dir=tmp_path / "out"))
    durable = DurableAgent(agent, saver)
    first = asyncio.create_task(durable.ainvoke("count", THREAD))
    await stuck.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    run = await durable.ainvoke(None, THREAD)
    assert calls == ["one", "one!", "one!"]
    assert [result.output for result in run.results] == ["one!", "one!!"]
    assert run.answer == "Done."
    await agent.aclose()


class FullDisk(InMemorySaver):
    """A checkpointer that can store what comes before the tasks, and not their results."""

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if any("task" in value.get("value", {}) for _, value in writes if isinstance(value, dict)):
            raise OSError("no space left on the disk")
        await super().aput_writes(config, writes, task_id, task_path)


async def test_nothing_is_built_on_a_result_that_can_not_be_stored(tmp_path: Path) -> None:
    calls: list[str] = []
    rows = plan(("count", [], {"text": "one"}), ("count", [0], {"text": "<resource>-0"}))
    llm = ScriptedLLM({"plan": rows, "respond": "Done."})
    agent = JarvisAgent(llm, tools=counting(calls), settings=Settings(output_dir=tmp_path / "out"))
    with pytest.raises(OSError, match="no space"):
        await DurableAgent(agent, FullDisk()).ainvoke("count", THREAD)
    assert calls == ["one"]


async def test_a_plan_waits_for_approval(saver: AsyncSqliteSaver, tmp_path: Path) -> None:
    durable, calls = approving(saver, tmp_path)
    assert [event.kind async for event in durable.events("count", THREAD)] == []
    shown = await durable.waiting(THREAD)
    assert shown is not None
    assert (shown["request"], shown["plan"][0]["args"]) == ("count", {"text": "one"})
    assert calls == []
    run = await durable.ainvoke(Command(resume=True), THREAD)
    assert run.results[0].output == "one!"
    assert await durable.waiting(THREAD) is None


@pytest.mark.parametrize("form", ["list", "text", "object"])
async def test_an_edited_plan_is_the_one_that_runs(
    saver: AsyncSqliteSaver, tmp_path: Path, form: str
) -> None:
    durable, calls = approving(saver, tmp_path)
    with pytest.raises(ConfigError, match="waits for a decision"):
        await durable.ainvoke("count", THREAD)
    edited = [{"task": "count", "id": 0, "dep": [-1], "args": {"text": "two"}}]
    decision: Any = {"list": edited, "text": json.dumps(edited), "object": {"plan": edited}}[form]
    run = await durable.ainvoke(Command(resume=decision), THREAD)
    assert calls == ["two"]
    assert run.plan.tasks[0].args == {"text": "two"}


async def test_a_rejected_plan_runs_nothing_and_the_answer_says_so(
    saver: AsyncSqliteSaver, tmp_path: Path
) -> None:
    durable, calls = approving(saver, tmp_path)
    with pytest.raises(ConfigError):
        await durable.ainvoke("count", THREAD)
    run = await durable.ainvoke(Command(resume="reject"), THREAD)
    assert (calls, run.results) == ([], [])
    assert "rejected" in run.answer


async def test_a_decision_that_is_none_is_an_error(saver: AsyncSqliteSaver, tmp_path: Path) -> None:
    durable, _ = approving(saver, tmp_path)
    with pytest.raises(ConfigError):
        await durable.ainvoke("count", THREAD)
    with pytest.raises(InputError, match="approved with True"):
        await durable.ainvoke(Command(resume=7), THREAD)


def approving(saver: AsyncSqliteSaver, folder: Path) -> tuple[DurableAgent, list[str]]:
    calls: list[str] = []
    llm = ScriptedLLM({"plan": plan(("count", [], {"text": "one"})), "respond": "Done."})
    agent = JarvisAgent(llm, tools=counting(calls), settings=Settings(output_dir=folder / "out"))
    return DurableAgent(agent, saver, approve=True), calls


async def test_a_thread_remembers_its_turns_in_the_checkpointer(
    saver: AsyncSqliteSaver, picture: Path, tmp_path: Path
) -> None:
    settings = Settings(output_dir=tmp_path / "out")
    first, _, _ = small_agent(described(picture), settings=settings)
    made = await DurableAgent(first, saver).ainvoke(told(picture), THREAD)
    wav = made.results[1].resources[0].path
    rows = plan(("automatic-speech-recognition", [], {"audio": str(wav)}))
    second, llm, _ = small_agent(rows, settings=settings)  # a new process, as far as memory goes
    run = await DurableAgent(second, saver).ainvoke("Now write down what you said.", THREAD)
    assert run.results[0].status == "ok"
    assert "Describe a.jpg aloud" in llm.calls[0].prompt


async def test_a_run_that_is_over_is_returned_and_not_run_again(
    saver: AsyncSqliteSaver, tmp_path: Path
) -> None:
    calls: list[str] = []
    llm = ScriptedLLM({"plan": plan(("count", [], {"text": "one"})), "respond": "Done."})
    agent = JarvisAgent(llm, tools=counting(calls), settings=Settings(output_dir=tmp_path / "out"))
    durable = DurableAgent(agent, saver)
    run = await durable.ainvoke("count", THREAD)
    assert await durable.ainvoke(None, THREAD) == run
    assert calls == ["one"]


async def test_without_a_thread_or_a_run_there_is_nothing_to_resume(saver: AsyncSqliteSaver) -> None:
    agent, _, _ = small_agent()
    durable = DurableAgent(agent, saver)
    with pytest.raises(ConfigError, match="wants a thread"):
        await durable.ainvoke("x", {})
    with pytest.raises(ConfigError, match="no run to go on with"):
        await durable.ainvoke(None, THREAD)


async def test_the_graph_is_one_like_any_other_for_langgraph(tmp_path: Path) -> None:
    llm = ScriptedLLM({"plan": plan(("count", [], {"text": "one"})), "respond": "Done."})
    agent = JarvisAgent(llm, tools=counting([]), settings=Settings(output_dir=tmp_path / "out"))
    graph = make_graph(agent, InMemorySaver())
    run = Run.model_validate(await graph.ainvoke("count", THREAD))
    assert run.answer == "Done."
    bare = make_graph(agent)  # as a platform serves it, which brings its own checkpointer
    assert Run.model_validate(await bare.ainvoke("count")).answer == "Done."


def test_the_served_graph_is_named_in_langgraph_json() -> None:
    served = json.loads((HERE.parent / "langgraph.json").read_text())["graphs"]["jarvis"]
    path, name = served.split(":")
    assert (HERE.parent / path).is_file()
    assert name == "graph"


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
def test_nothing_that_was_stored_is_lost_or_done_again_whenever_the_process_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "killed_runs.py"), str(tmp_path / "killed"), "50"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=230)
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) == 50
    killed_in_the_midst = [one for one in runs if one["stored"] and not one["over"]]
    assert len(killed_in_the_midst) >= 5
    for one in runs:
        assert one["error"] is None
        results = {result["task"]["id"]: result for result in one["run"]["results"]}
        assert {number: result["status"] for number, result in results.items()} == dict.fromkeys(SHAPE, "ok")
        for number, output in one["stored"].items():
            assert results[int(number)]["output"] == output
        again = {int(line.split()[0]) for line in one["after"]}
        assert not again & {int(number) for number in one["stored"]}
        for number, needed in SHAPE.items():
            assert all(results[need]["output"] in results[number]["output"] for need in needed)
        assert len({result["task"]["args"]["text"].split()[0] for result in results.values()}) == 1
