"""Makespan of random plans over their critical path, and the overhead per task and per agent.

    python benchmarks scheduling

A task sleeps, and some fail. All seconds are divided by `PACE`. A chain of idle tools runs while its plan
streams. The exit status is 1 if a figure misses its limit.
"""

import asyncio
import json
import random
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple
from unittest import mock

import typer
from langchain_core.tools import tool

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Resource, Selection, Task, TaskResult
from jarvis_agent.execution.executor import Executor
from jarvis_agent.execution.inputs import TaskCall
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.testing import ScriptedLLM

PACE, PLANS, CHAIN, REPEATS = 15, 5, 30, 20


class Figure(NamedTuple):
    """One measured value and the limit that it may not exceed; None: any value is accepted."""

    name: str
    value: float
    limit: float | None = None
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        mark = "ok  " if self.met else "MISS"
        limit = "" if self.limit is None else f"≤ {self.limit:g}"
        return f"{mark} {self.name:<86} {self.value:>9.3f} {self.unit:<7} {limit}".rstrip()


def print_figures(figures: Iterable[Figure]) -> None:
    """Print figures as they come, and exit with status 1 if one misses its limit."""
    missed = False
    for figure in figures:
        print(figure)
        missed |= not figure.met
    raise typer.Exit(int(missed))


class Sleeper:
    """A worker that sleeps as long as its task says, and fails where it says so."""

    spec = TaskSpec("sleep", "tool", "Sleep.", (Arg("seconds", "any"), Arg("fails", "any")), ("text",))

    async def select(self, task: Task, context: RunContext) -> Selection | None:
        return None

    async def run(self, selection: Selection | None, call: TaskCall) -> TaskResult:
        await asyncio.sleep(call.inputs["seconds"] / PACE)
        if call.inputs["fails"]:
            return TaskResult(task=call.task, status="failed", error="it fails")
        return TaskResult(task=call.task, status="ok", resources=[Resource(kind="text", text="")])


def random_plan(rng: random.Random) -> list[Task]:
    """1 to 120 tasks of 0.5 to 8 s, with fan-outs of up to 12; one in twenty fails."""
    size, tasks = rng.randint(1, 120), list[Task]()
    while len(tasks) < size:
        deps = sorted(rng.sample(range(len(tasks)), min(len(tasks), rng.randint(0, 3))))
        width = rng.randint(2, 12) if rng.random() < 0.2 else 1
        for _ in range(min(width, size - len(tasks))):
            args = {"seconds": rng.uniform(0.5, 8), "fails": rng.random() < 0.05}
            tasks.append(Task(task="sleep", id=len(tasks), dep=deps or [-1], args=args))
    return tasks


def makespan(tasks: list[Task]) -> float:
    """When the last task ends, if each starts as soon as it is ready; tasks behind a failure take no time."""
    lost: set[int] = set()
    ends: dict[int, float] = {}
    for task in tasks:
        skipped = bool(lost & set(task.deps))
        ready = max((ends[i] for i in task.deps), default=0.0)
        ends[task.id] = ready + (0.0 if skipped else task.args["seconds"])
        if skipped or task.args["fails"]:
            lost.add(task.id)
    return max(ends.values())


async def execute(tasks: list[Task], folder: Path) -> float:
    """The makespan in the executor, in the plan's seconds; the better of two runs, since other work adds."""
    settings, seconds = Settings(output_dir=folder), list[float]()
    for _ in range(2):
        with mock.patch("jarvis_agent.execution.executor.MAX_PARALLEL", 1_000):
            ready = Executor({"sleep": Sleeper()}, ResourceStore(settings), RunContext(request=""), settings)
        began = perf_counter()
        async with ready as run:
            results = await run.join(tasks)
        assert len(results) == len(tasks)
        seconds.append((perf_counter() - began) * PACE)
    return min(seconds)


async def chain_ratio(settings: Settings) -> float:
    """CPU time from the first to the last call of a chain, over that of its stream and its tools alone."""
    calls: list[float] = []

    @tool
    async def note(text: str) -> str:
        """Note a text."""
        calls.append(process_time())
        return text

    texts = ["a text", *(f"<resource>-{i}" for i in range(CHAIN - 1))]
    plan = [{"task": "note", "id": i, "dep": [i - 1], "args": {"text": text}} for i, text in enumerate(texts)]
    call = {"type": "tool_call", "id": "0", "name": "note", "args": {"text": "a text"}}
    llm = ScriptedLLM({"": json.dumps(plan), "plan": json.dumps(plan), "respond": "done"}, chunk=4)
    ratios = []
    async with JarvisAgent(llm, tools=[note], settings=settings) as agent:
        for _ in range(REPEATS):
            began = process_time()
            async for _ in llm.astream("plan"):
                pass
            for _ in range(CHAIN):
                await note.ainvoke(call)
            alone = process_time() - began
            calls.clear()
            assert (await agent.ainvoke("Note a text thirty times")).ok
            assert len(calls) == CHAIN
            ratios.append((calls[-1] - calls[0]) / alone)
    return median(ratios)


def creation_ratio(settings: Settings) -> float:
    """CPU time of making an agent, after the first one, over a loop of plain Python."""
    llm, ratios = ScriptedLLM([]), list[float]()
    for _ in range(REPEATS):
        began = process_time()
        agent = JarvisAgent(llm, settings=settings)
        made = process_time()
        agent.close()
        looped = process_time()
        sum(number * number for number in range(300_000))
        ratios.append((made - began) / (process_time() - looped))
    return median(ratios[1:])


async def figures() -> list[Figure]:
    """The ratios."""
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plans = [random_plan(rng) for _ in range(PLANS)]
        ours = [await execute(tasks, folder) / makespan(tasks) for tasks in plans]
        idle = [Task(task="sleep", id=i, args={"seconds": 0, "fails": False}) for i in range(500)]
        overhead = await execute(idle, folder) / PACE * 2
        settings = Settings(output_dir=folder, offline=True)
        chain = await chain_ratio(settings)
        creation = await asyncio.to_thread(creation_ratio, settings)
    of_plans = f"{PLANS} random plans of 1 to 120 tasks"
    return [
        Figure(f"makespan over critical path, {of_plans}, median", median(ours), 1.03, "×"),
        Figure("the same, worst", max(ours), 1.10, "×"),
        Figure("overhead per task, 500 independent tasks without work", overhead, 1.0, "ms"),
        Figure(f"CPU time of {CHAIN} tools in a chain, over its stream and its tools alone", chain, 4.5, "×"),
        Figure("CPU time of making another agent, over a loop of 300,000 additions", creation, 0.6, "×"),
    ]


def main() -> None:
    """Measure and print."""
    print_figures(asyncio.run(figures()))
