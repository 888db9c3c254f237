"""A durable run of several tasks, which is stopped by a test."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from stages import FakeStage

from jarvis_agent import JarvisAgent, Plan, Run, Settings, Task

SHAPE: dict[int, list[int]] = {0: [], 1: [], 2: [0], 3: [0, 1], 4: [2], 5: [3], 6: [4, 5], 7: [1]}
"""The plan: the dependencies of each task."""

MARK = b"GIF89a"
"""Start of the files that tasks write, so that they are detected as images."""


async def random_plan(inputs: Any) -> AsyncIterator[Plan]:
    """A plan with a random word, so that a repeated planning step is noticed."""
    word = os.urandom(3).hex()
    for number, deps in SHAPE.items():
        text = f"{word} {number} " + " ".join(f"<resource>-{dep}" for dep in deps)
        yield Plan(tasks=[Task(task="work", id=number, dep=deps or [-1], args={"text": text})])


def worker(log: Path, gate: Path | None = None, seconds: float = 0.01) -> BaseTool:
    """A tool that logs its calls. It returns its input with a random token, as text and in a file.

    With a `gate`, task 3 waits until that file exists.
    """

    async def work(text: str) -> list[dict[str, Any]]:
        done = f"[{text.strip()} {os.urandom(4).hex()}]"
        word, number, *_ = text.split()
        with log.open("a") as file:
            file.write(f"{number} {os.getpid()} {word}\n")
        await asyncio.sleep(seconds)
        if gate is not None and number == "3":
            await _existing(gate)
        content = base64.b64encode(MARK + done.encode()).decode()
        image = {"type": "image", "base64": content, "mime_type": "image/gif"}
        return [{"type": "text", "text": done}, image]

    return StructuredTool.from_function(coroutine=work, name="work", description="Work on a text.")


async def _existing(path: Path) -> None:
    while True:
        if await asyncio.to_thread(path.exists):
            return
        await asyncio.sleep(0.05)


def executed(folder: Path) -> list[int]:
    """The ids of the started tasks, in order."""
    return [number for number, _ in started(folder)]


def started(folder: Path) -> list[tuple[int, int]]:
    """The ids of the started tasks, in order, and those of the processes that started them."""
    log = folder / "log"
    lines = log.read_text().splitlines() if log.is_file() else []
    return [(int(number), int(process)) for number, process, _ in map(str.split, lines)]


async def run(folder: Path, request: str | None, saver: BaseCheckpointSaver[Any]) -> Run:
    """Run a request, or resume the run for None."""
    planner: Any = FakeStage(random_plan)
    agent = JarvisAgent(
        tools=[worker(folder / "log")],
        planner=planner,
        settings=Settings(output_dir=folder / "out", offline=True),
        checkpointer=saver,
    )
    return await agent.ainvoke(request, {"configurable": {"thread_id": str(folder)}})
