"""Runs that are killed at a random moment and resumed: python tests/killed_runs.py FOLDER TIMES

They are stored in SQLite; with the address of a Postgres database in TEST_POSTGRES, in that.

It prints one JSON object a run that died before its end: what was stored by then, what was executed before
and after, and the Run in the end. Each run is a child of its own, forked, killed with SIGKILL, and forked
again. A run that was over before it could be killed does not count; another one takes its place.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from stages import FakeStage

from jarvis_agent import JarvisAgent, Plan, Settings, Task
from jarvis_agent.core.errors import ConfigError

SHAPE: dict[int, list[int]] = {0: [], 1: [], 2: [0], 3: [0, 1], 4: [2], 5: [3], 6: [4, 5], 7: [1]}
"""The plan: for each task the ones that it needs."""

MARK = b"GIF89a"
"""Before the text in the files that tasks write, so that they are taken for pictures."""

MOST = 5
"""So many times as many runs are begun, at most, as shall be killed."""


async def whim(inputs: Any) -> AsyncIterator[Plan]:
    """Plans with other words at each call: a plan that is made again is another one."""
    words = os.urandom(3).hex()
    for number, deps in SHAPE.items():
        text = f"{words} {number} " + " ".join(f"<resource>-{dep}" for dep in deps)
        yield Plan(tasks=[Task(task="work", id=number, dep=deps or [-1], args={"text": text})])


def worker(log: Path) -> BaseTool:
    """A tool that takes a few milliseconds and returns its input with a token that no other call returns.

    It gives the same in a file.
    """

    async def work(text: str) -> list[dict[str, Any]]:
        await asyncio.sleep(random.uniform(0.01, 0.08))
        done = f"[{text.strip()} {os.urandom(4).hex()}]"
        with log.open("a") as file:
            file.write(f"{text.split()[1]} {done}\n")
        content = base64.b64encode(MARK + done.encode()).decode()
        return [
            {"type": "text", "text": done},
            {"type": "image", "base64": content, "mime_type": "image/gif"},
        ]

    return StructuredTool.from_function(coroutine=work, name="work", description="Work on a text.")


@asynccontextmanager
async def saver_of(folder: Path) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """The checkpointer of a run, with its tables."""
    if address := os.environ.get("TEST_POSTGRES"):
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        async with AsyncPostgresSaver.from_conn_string(address) as saver:
            await saver.setup()
            yield saver
    else:
        async with AsyncSqliteSaver.from_conn_string(str(folder / "runs.sqlite")) as saver:
            await saver.setup()
            yield saver


def thread(folder: Path) -> RunnableConfig:
    return {"configurable": {"thread_id": str(folder)}}


async def run(folder: Path, request: str | None) -> None:
    settings = Settings(output_dir=folder / "out", offline=True)
    agent = JarvisAgent(tools=[worker(folder / "log")], planner=FakeStage(whim), settings=settings)
    async with saver_of(folder) as saver:
        stored_agent = agent.with_checkpointer(saver)
        try:
            done = await stored_agent.ainvoke(request, thread(folder))
        except ConfigError:
            # Killed before its first step was stored: there is nothing to resume, so it is asked again.
            done = await stored_agent.ainvoke("work", thread(folder))
    (folder / "run.json").write_text(done.model_dump_json())


async def stored(folder: Path) -> dict[int, Any]:
    """The results that the checkpointer holds, by task, as {output, path of the file}."""
    async with saver_of(folder) as saver:
        found = await saver.aget_tuple(thread(folder))
    values = (
        [
            value["value"]
            for _, _, value in (found.pending_writes or [])
            if isinstance(value, dict) and "step" in value
        ]
        if found
        else []
    )
    results = [value for value in values if isinstance(value, dict) and "task" in value]
    return {result["task"]["id"]: told(result) for result in results}


def told(result: dict[str, Any]) -> dict[str, str]:
    """What a task gave: its text, and the file that says the same."""
    return {"output": result["output"], "path": result["resources"][1]["path"]}


def child(folder: Path, request: str | None) -> int:
    """A process of its own that runs; returns its id."""
    folder.mkdir(parents=True, exist_ok=True)
    process = os.fork()
    if process == 0:
        try:
            asyncio.run(run(folder, request))
        except BaseException as error:
            (folder / "error").write_text(repr(error))
        os._exit(0)
    return process


def executed(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.is_file() else []


def once(folder: Path, seconds: float) -> dict[str, Any] | None:
    """One run that is killed after so many seconds and resumed; None if it was over by then."""
    process = child(folder, "work")
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if not os.WIFSIGNALED(status) or (folder / "run.json").is_file():
        return None
    kept, before = asyncio.run(stored(folder)), executed(folder)
    begun = asyncio.run(has_run(folder))
    os.waitpid(child(folder, None if begun else "work"), 0)
    error = folder / "error"
    return {
        "stored": kept,
        "before": before,
        "after": executed(folder)[len(before) :],
        "run": json.loads((folder / "run.json").read_text()) if (folder / "run.json").is_file() else None,
        "error": error.read_text() if error.is_file() else None,
    }


async def has_run(folder: Path) -> bool:
    async with saver_of(folder) as saver:
        return await saver.aget_tuple(thread(folder)) is not None


def main(folder: Path, times: int) -> None:
    """Kill so many runs at moments spread over the time that a whole one takes."""
    (folder / "warm").mkdir(parents=True)
    asyncio.run(run(folder / "warm", "work"))  # what it imports, the children have
    began = time.perf_counter()
    os.waitpid(child(folder / "whole", "work"), 0)
    whole = time.perf_counter() - began
    moments, killed = random.Random(0), 0
    for number in range(MOST * times):
        one = once(folder / str(number), moments.uniform(0.2 * whole, whole))
        if one is not None:
            print(json.dumps(one), flush=True)
            killed += 1
        if killed == times:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
