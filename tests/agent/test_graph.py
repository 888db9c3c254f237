"""Runs with a checkpointer: they resume where they stopped, and each thread remembers its turns."""

import asyncio
import threading
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
from jarvis_agent.core.errors import ConfigError, DeadlineError, InputError
from jarvis_agent.execution.checkpointed_steps import stored_steps
from jarvis_agent.testing import ScriptedLLM


@pytest.mark.usefixtures("home")
async def test_a_thread_remembers_its_turns_and_files_in_the_checkpointer(tmp_path: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "runs.sqlite")) as saver:
        first, _, _ = small_agent(DESCRIBE_ALOUD)
        async with first.copy(checkpointer=saver) as durable:
            run = await durable.ainvoke("Describe a.jpg aloud", THREAD)
        assert [result.status for result in run.results] == ["ok", "ok"]
        assert run.answer.startswith("A cat on a mat.")
        assert run.usage["plan"].calls == 1
        wav = run.results[1].resources[0].path
        rows = plan(("automatic-speech-recognition", [], {"audio": str(wav)}))
        second, llm, _ = small_agent(rows)  # as in a new process: nothing is in memory
        async with second.copy(checkpointer=saver) as durable:
            run = await durable.ainvoke("Now write down what you said.", THREAD)
    assert run.results[0].status == "ok"
    assert "Describe a.jpg aloud" in llm.calls[0].prompt


class FullDisk(InMemorySaver):
    """A checkpointer that fails to store results of tasks."""

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if any("task" in (value.get("value") or {}) for _, value in writes if isinstance(value, dict)):
            raise OSError("no space left on the disk")
        await super().aput_writes(config, writes, task_id, task_path)


async def test_a_result_that_cannot_be_stored_is_not_used(tmp_path: Path) -> None:
    calls: list[str] = []
    agent = counting_agent(tmp_path, calls, *ONE_BY_ONE)
    with pytest.raises(OSError, match="no space"):
        await agent.copy(checkpointer=FullDisk()).ainvoke("count", THREAD)
    assert calls == ["one"]


class HangingSaver(InMemorySaver):
    """A checkpointer that hangs while it stores the result of a step."""

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if any(isinstance(value, dict) for _, value in writes):
            await asyncio.Event().wait()


async def test_a_checkpointer_that_hangs_stops_the_run(tmp_path: Path, loop_time: LoopTime) -> None:
    calls: list[str] = []
    durable = counting_agent(tmp_path, calls).copy(checkpointer=HangingSaver())
    with pytest.raises(DeadlineError, match="did not commit"):
        await durable.graph.ainvoke({"input": "count"}, THREAD)
    assert calls == []


async def test_a_thread_keeps_only_its_newest_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.agent.graph.MAX_TURNS", 2)
    durable = counting_agent(tmp_path, []).copy(checkpointer=InMemorySaver())
    for request in ("count once", "count twice", "count thrice", "count again"):
        await durable.ainvoke(request, THREAD)
    prompt = durable.model.calls[-1].prompt  # type: ignore[union-attr]
    assert [f"count {word}" in prompt for word in ("once", "twice", "thrice")] == [False, True, True]


async def test_a_thread_whose_run_never_ends_is_refused_in_time(tmp_path: Path, loop_time: LoopTime) -> None:
    stuck = asyncio.Event()
    agent = counting_agent(tmp_path, [], *ONE_BY_ONE, stuck=stuck)
    durable = agent.copy(checkpointer=InMemorySaver())
    async with aclosing(durable.aevents("count", THREAD)) as left:
        await anext(left)
        for _ in range(2):
            waiting = asyncio.create_task(durable.ainvoke("again", THREAD))
            while not waiting.done():
                loop_time.skip(60)
                await asyncio.sleep(0)
            with pytest.raises(ConfigError, match="still running"):
                await waiting


async def test_a_sync_checkpointer_resumes_a_run_and_returns_a_finished_one(tmp_path: Path) -> None:
    calls: list[str] = []
    stuck = asyncio.Event()
    with SqliteSaver.from_conn_string(str(tmp_path / "runs.sqlite")) as saver:
        durable = counting_agent(tmp_path, calls, *ONE_BY_ONE, stuck=stuck).copy(checkpointer=saver)
        await stop_when(stuck, durable, "count")
        assert (await durable.aget_state(THREAD)).unfinished is not None
        run = await durable.ainvoke(None, THREAD)
        states = [state async for state in durable.graph.aget_state_history(THREAD)]
        assert states[0].values["run"] == run.model_dump(mode="json")
        assert await durable.ainvoke(None, THREAD) == run
    assert calls == ["one", "one!", "one!"]


def test_a_durable_run_and_its_states_are_available_to_sync_code(tmp_path: Path) -> None:
    with counting_agent(tmp_path, []).copy(checkpointer=InMemorySaver()) as durable:
        run = durable.invoke("count", THREAD)
        assert durable.graph.get_state(THREAD).values["run"] == run.model_dump(mode="json")
        assert len(list(durable.graph.get_state_history(THREAD))) == 3


async def test_an_unusable_request_is_refused_and_not_stored(tmp_path: Path) -> None:
    durable = counting_agent(tmp_path, []).copy(checkpointer=InMemorySaver())
    with pytest.raises(InputError, match="inputt: there is no such field"):
        await durable.ainvoke({"inputt": "count"}, THREAD)
    assert (await durable.aget_state(THREAD)).unfinished is None
    with pytest.raises(ConfigError, match="no run to resume"):
        await durable.ainvoke(None, THREAD)
    with pytest.raises(ConfigError, match="needs a thread"):
        await durable.ainvoke("x", {})


class MortalSaver(InMemorySaver):
    """A checkpointer that stores nothing after `left` more writes, as if its process were killed."""

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


def check_result(run: Run) -> None:
    """Every task is done, with inputs from one plan, and its file has its own text."""
    results = {result.task.id: result for result in run.results}
    assert {number: result.status for number, result in results.items()} == dict.fromkeys(SHAPE, "ok")
    for number, needed in SHAPE.items():
        assert all(results[need].output in results[number].output for need in needed)
        path = results[number].resources[1].path
        assert path is not None
        assert path.read_bytes() == MARK + str(results[number].output).encode()
    assert len({str(result.task.args["text"]).split()[0] for result in run.results}) == 1


async def check_resumed(folder: Path, saver: Any) -> set[int]:
    """Resume a run and check that no task with a stored result runs again; returns the stored tasks."""
    found = await saver.aget_tuple({"configurable": {"thread_id": str(folder)}})
    stored = {int(name.split()[1]) for name in stored_steps(found) if name.startswith("work ")}
    before = len(killed_runs.executed(folder))
    check_result(await killed_runs.run(folder, None, saver))
    assert not stored & set(killed_runs.executed(folder)[before:])
    return stored


@pytest.mark.slow
async def test_a_run_killed_at_any_write_resumes_from_what_was_stored(tmp_path: Path) -> None:
    """The request is stored first: from the first write on, there is a run to resume."""
    whole = MortalSaver()
    check_result(await killed_runs.run(tmp_path / "whole", "work", whole))
    writes = MortalSaver.left - whole.left
    assert writes > len(SHAPE) + 4
    for number in range(1, writes):
        folder, saver = tmp_path / str(number), MortalSaver()
        folder.mkdir()
        saver.left = number
        with pytest.raises(ConnectionError):
            await killed_runs.run(folder, "work", saver)
        saver.left = MortalSaver.left
        await check_resumed(folder, saver)


async def test_a_stored_answer_is_not_written_again(tmp_path: Path) -> None:
    class KilledAfterAnswer(MortalSaver):
        def put_writes(self, config: Any, writes: Any, *given: Any) -> None:
            super().put_writes(config, writes, *given)
            if any(isinstance(value, dict) and value.get("step") == "answer" for _, value in writes):
                self.left = 0

    saver = KilledAfterAnswer()
    durable = counting_agent(tmp_path, []).copy(checkpointer=saver)
    with pytest.raises(ConnectionError):
        await durable.ainvoke("count", THREAD)
    saver.left = MortalSaver.left
    assert (await durable.ainvoke(None, THREAD)).answer
    assert durable.model.stages() == ["plan", "respond"]  # type: ignore[union-attr]


async def test_runs_of_one_thread_in_two_event_loops_run_one_after_the_other(tmp_path: Path) -> None:
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

    llm = ScriptedLLM({"plan": plan(ONE), "respond": "Done: one, two."})
    agent = JarvisAgent(llm, tools=[count], settings=Settings(output_dir=tmp_path / "out"))
    durable = agent.copy(checkpointer=InMemorySaver())
    other = threading.Thread(target=durable.invoke, args=("count", THREAD))
    other.start()
    await asyncio.to_thread(begun.wait)
    run = await durable.ainvoke("count again", THREAD)
    await asyncio.to_thread(other.join)
    assert (run.answer, most) == ("Done: one, two.", 1)
