"""What it costs to store every task: runs with the SQLite checkpointer against the same runs without it."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from figures import Figure
from langchain_core.tools import BaseTool, tool

from jarvis_agent import JarvisAgent, Plan, Settings, Task
from jarvis_agent.agent.graph import DurableAgent
from jarvis_agent.core.request import RunContext

TASKS = 20
TIMES = 7
SHAPES = {"chain": lambda number: [number - 1], "fan": lambda number: [0] if number else [-1]}


class Fixed:
    """A planner that always has the same plan."""

    def __init__(self, deps: Callable[[int], list[int]]) -> None:
        rows = [Task(task="work", id=i, dep=deps(i), args={"text": f"text {i}"}) for i in range(TASKS)]
        self.made = Plan(tasks=rows)

    async def plan(self, context: RunContext, on_task: Callable[[Task], None]) -> Plan:
        for task in self.made.tasks:
            on_task(task)
        return self.made


def worker() -> BaseTool:
    @tool
    async def work(text: str) -> str:
        """Work on a text."""
        return text

    return work


async def seconds(run: Callable[[int], Awaitable[Any]]) -> float:
    """The median of several runs, the first of which does not count."""
    took = []
    for number in range(TIMES + 1):
        began = perf_counter()
        assert (await run(number)).ok
        took.append(perf_counter() - began)
    return median(took[1:])


async def overhead(shape: str, folder: Path) -> float:
    """Milliseconds a task."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    settings = Settings(output_dir=folder / "out", offline=True)
    async with AsyncSqliteSaver.from_conn_string(str(folder / f"{shape}.sqlite")) as saver:
        agent = JarvisAgent(tools=[worker()], planner=Fixed(SHAPES[shape]), settings=settings)
        durable = DurableAgent(agent, saver)
        plain = await seconds(lambda number: agent.ainvoke("Work"))
        stored = await seconds(
            lambda number: durable.ainvoke("Work", {"configurable": {"thread_id": str(number)}})
        )
        await durable.aclose()
    return (stored - plain) / TASKS * 1_000


async def figures() -> list[Figure]:
    """The overhead of a chain and of a fan."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            Figure(
                f"storing each task with the SQLite checkpointer, {shape} of {TASKS} tasks, a task",
                await overhead(shape, Path(folder)),
                5,
                "ms",
            )
            for shape in SHAPES
        ]
