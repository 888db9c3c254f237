"""Runs in a checkpointer: they resume where they were, wait for approval, and remember their thread."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")
pytest.importorskip("langgraph.checkpoint.sqlite")

import killed_runs
from clock import LoopTime
from durable_agents import ONE, ONE_BY_ONE, THREAD, counting_agent, stop_when
from killed_runs import MARK, SHAPE
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from small_agents import DESCRIBE_ALOUD, plan, small_agent

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.agent import steps
from jarvis_agent.core.errors import ConfigError, DeadlineError, InputError
from jarvis_agent.testing import ScriptedLLM

HERE = Path(__file__).parents[1]


@pytest.fixture
async def saver(tmp_path: Path) -> AsyncIterator[AsyncSqliteSaver]:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "runs.sqlite")) as saver:
        yield saver


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    return tmp_path / "a.jpg"


def request_for(picture: Path) -> dict[str, Any]:
    return {"input": "Describe a.jpg aloud", "files": [str(picture)]}


def described(picture: Path) -> str:
    return DESCRIBE_ALOUD.replace("a.jpg", str(picture))


async def test_a_durable_run_is_the_run_that_it_would_be(
    saver: AsyncSqliteSaver, picture: Path, tmp_path: Path
) -> None:
    agent, _, _ = small_agent(described(picture), settings=Settings(output_dir=tmp_path / "out"))
    run = await agent.with_checkpointer(saver).ainvoke(request_for(picture), THREAD)
    assert [result.status for result in run.results] == ["ok", "ok"]
    assert run.results[1].resources[0].path.is_file()  # type: ignore[union-attr]
    assert run.answer == "It is done."
    assert run.usage["plan"].calls == 1
    await agent.aclose()


class FullDisk(InMemorySaver):
    """A checkpointer that can store what comes before the tasks, and not their results."""

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if any("task" in (value.get("value") or {}) for _, value in writes if isinstance(value, dict)):
            raise OSError("no space left on the disk")
        await super().aput_writes(config, writes, task_id, task_path)


async def test_nothing_is_built_on_a_result_that_can_not_be_stored(tmp_path: Path) -> None:
    calls: list[str] = []
    agent = counting_agent(tmp_path, calls, *ONE_BY_ONE)
    with pytest.raises(OSError, match="no space"):
        await agent.with_checkpointer(FullDisk()).ainvoke("count", THREAD)
    assert calls == ["one"]


class Asleep(InMemorySaver):
    """A checkpointer that never comes back from storing the result of a step."""

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if any(isinstance(value, dict) for _, value in writes):
            await asyncio.Event().wait()


async def test_a_checkpointer_that_never_ends_is_not_waited_for_for_ever(
    tmp_path: Path, loop_time: LoopTime
) -> None:
    calls: list[str] = []
    with pytest.raises(DeadlineError, match="did not commit"):
        await (
            counting_agent(tmp_path, calls)
            .with_checkpointer(Asleep())
            .graph.ainvoke({"input": "count"}, THREAD)
        )
    assert calls == []


async def test_a_thread_remembers_its_turns_in_the_checkpointer(
    saver: AsyncSqliteSaver, picture: Path, tmp_path: Path
) -> None:
    settings = Settings(output_dir=tmp_path / "out")
    first, _, _ = small_agent(described(picture), settings=settings)
    made = await first.with_checkpointer(saver).ainvoke(request_for(picture), THREAD)
    wav = made.results[1].resources[0].path
    rows = plan(("automatic-speech-recognition", [], {"audio": str(wav)}))
    second, llm, _ = small_agent(rows, settings=settings)  # a new process, as far as memory goes
    run = await second.with_checkpointer(saver).ainvoke("Now write down what you said.", THREAD)
    assert run.results[0].status == "ok"
    assert "Describe a.jpg aloud" in llm.calls[0].prompt


async def test_a_thread_keeps_its_newest_turns_and_not_all_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jarvis_agent.agent.graph.MAX_TURNS", 2)
    durable = counting_agent(tmp_path, []).with_checkpointer(InMemorySaver())
    for request in ("count once", "count twice", "count thrice", "count again"):
        await durable.ainvoke(request, THREAD)
    asked = durable.model.calls[-1].prompt  # type: ignore[union-attr]
    assert "count once" not in asked
    assert "count twice" in asked
    assert "count thrice" in asked


async def test_a_run_that_is_never_over_is_not_waited_for_for_ever(
    tmp_path: Path, loop_time: LoopTime
) -> None:
    stuck = asyncio.Event()
    agent = counting_agent(tmp_path, [], *ONE_BY_ONE, stuck=stuck)
    durable = agent.with_checkpointer(InMemorySaver())
    async with aclosing(durable.events("count", THREAD)) as left:
        await anext(left)
        asyncio.get_running_loop().call_later(0.05, loop_time.skip, 1000)
        with pytest.raises(ConfigError, match="still running"):
            await durable.ainvoke("again", THREAD)


async def test_a_synchronous_checkpointer_does_as_well(tmp_path: Path) -> None:
    calls: list[str] = []
    stuck = asyncio.Event()
    with SqliteSaver.from_conn_string(str(tmp_path / "runs.sqlite")) as saver:
        durable = counting_agent(tmp_path, calls, *ONE_BY_ONE, stuck=stuck).with_checkpointer(saver)
        await stop_when(stuck, durable, "count")
        assert await durable.unfinished(THREAD) is not None
        run = await durable.ainvoke(None, THREAD)
        states = [state async for state in durable.graph.aget_state_history(THREAD)]
        assert states[0].values["run"] == run.model_dump(mode="json")
    assert calls == ["one", "one!", "one!"]


def test_sync_code_runs_and_looks_at_it_too(tmp_path: Path) -> None:
    durable = counting_agent(tmp_path, []).with_checkpointer(InMemorySaver())
    run = durable.invoke("count", THREAD)
    assert durable.graph.get_state(THREAD).values["run"] == run.model_dump(mode="json")
    assert len(list(durable.graph.get_state_history(THREAD))) == 3
    durable.close()


async def test_what_is_no_request_is_not_stored(tmp_path: Path) -> None:
    durable = counting_agent(tmp_path, []).with_checkpointer(InMemorySaver())
    with pytest.raises(InputError, match="inputt: there is no such field"):
        await durable.ainvoke({"inputt": "count"}, THREAD)
    assert await durable.unfinished(THREAD) is None


async def test_a_run_that_is_over_is_returned_and_not_run_again(
    saver: AsyncSqliteSaver, tmp_path: Path
) -> None:
    calls: list[str] = []
    durable = counting_agent(tmp_path, calls).with_checkpointer(saver)
    run = await durable.ainvoke("count", THREAD)
    assert await durable.ainvoke(None, THREAD) == run
    assert calls == ["one"]


async def test_without_a_thread_or_a_run_there_is_nothing_to_resume(saver: AsyncSqliteSaver) -> None:
    agent, _, _ = small_agent()
    durable = agent.with_checkpointer(saver)
    with pytest.raises(ConfigError, match="needs a thread"):
        await durable.ainvoke("x", {})
    with pytest.raises(ConfigError, match="no run to resume"):
        await durable.ainvoke(None, THREAD)


class MortalSaver(InMemorySaver):
    """A checkpointer whose process dies: after `left` more writes, nothing is stored."""

    left = 1_000

    def put(self, *given: Any) -> Any:
        self._count()
        return super().put(*given)

    def put_writes(self, *given: Any) -> None:
        self._count()
        super().put_writes(*given)

    def _count(self) -> None:
        if self.left <= 0:
            raise ConnectionError("the process was killed")
        self.left -= 1


def check_resumed(run: Run) -> None:
    """Every task is done, with the inputs of one plan, and its file has its own text."""
    results = {result.task.id: result for result in run.results}
    assert {number: result.status for number, result in results.items()} == dict.fromkeys(SHAPE, "ok")
    for number, needed in SHAPE.items():
        assert all(results[need].output in results[number].output for need in needed)
        path = results[number].resources[1].path
        assert path is not None
        assert path.read_bytes() == MARK + str(results[number].output).encode()
    assert len({str(result.task.args["text"]).split()[0] for result in run.results}) == 1


async def test_a_run_killed_at_any_write_resumes_from_what_was_stored(tmp_path: Path) -> None:
    """The request is stored first: from the first write on, there is a run to resume."""
    whole = MortalSaver()
    check_resumed(await killed_runs.run(tmp_path / "whole", "work", whole))
    writes = MortalSaver.left - whole.left
    assert writes > len(SHAPE) + 4
    for number in range(1, writes):
        folder, saver = tmp_path / str(number), MortalSaver()
        folder.mkdir()
        saver.left = number
        with pytest.raises(ConnectionError):
            await killed_runs.run(folder, "work", saver)
        saver.left = MortalSaver.left
        found = await saver.aget_tuple({"configurable": {"thread_id": str(folder)}})
        kept = {int(name.split()[1]) for name in steps.stored_steps(found) if name.startswith("work ")}
        before = len(killed_runs.executed(folder))
        check_resumed(await killed_runs.run(folder, None, saver))
        assert not kept & set(killed_runs.executed(folder)[before:]), f"killed after {number} writes"


@pytest.mark.timeout(120)
async def test_a_killed_process_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "killed_runs.py"), str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*command)
    while len(killed_runs.executed(tmp_path)) < 4:
        assert process.returncode is None
        await asyncio.sleep(0.005)
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    async with killed_runs.database(tmp_path) as saver:
        found = await saver.aget_tuple({"configurable": {"thread_id": str(tmp_path)}})
        kept = {int(name.split()[1]) for name in steps.stored_steps(found) if name.startswith("work ")}
        before = len(killed_runs.executed(tmp_path))
        check_resumed(await killed_runs.run(tmp_path, None, saver))
    assert kept
    assert not kept & set(killed_runs.executed(tmp_path)[before:])


async def test_runs_of_one_thread_follow_each_other_over_event_loops(tmp_path: Path) -> None:
    begun, under_way, most = threading.Event(), 0, 0

    @tool
    async def count(text: str) -> str:
        """Count."""
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        begun.set()
        await asyncio.sleep(0.05)
        under_way -= 1
        return text

    llm = ScriptedLLM({"plan": plan(ONE), "respond": "Done."})
    agent = JarvisAgent(llm, tools=[count], settings=Settings(output_dir=tmp_path / "out"))
    durable = agent.with_checkpointer(InMemorySaver())
    other = threading.Thread(target=durable.invoke, args=("count", THREAD))
    other.start()
    await asyncio.to_thread(begun.wait)
    run = await durable.ainvoke("count again", THREAD)
    await asyncio.to_thread(other.join)
    assert (run.answer, most) == ("Done.", 1)
