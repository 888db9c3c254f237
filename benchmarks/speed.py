"""Speed and size of the core, as one command: python benchmarks/speed.py

It prints each figure beside its limit and ends with status 1 if one is not met. Times depend on the machine;
ratios stand beside their baseline, measured in the same run.
"""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from jarvis_agent import JarvisAgent, Plan, Settings
from jarvis_agent.execute import Executor, Step
from jarvis_agent.request import Brief
from jarvis_agent.resources import ResourceStore
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate
from jarvis_agent.tools.spec import Arg, TaskSpec
from jarvis_agent.tools.table import TASKS
from jarvis_agent.types import Resource, Selection, Task, TaskResult

HEAVY = ("torch", "transformers", "diffusers", "langgraph", "fastapi")


@dataclass(frozen=True)
class Figure:
    """One measured value and the limit that it must not pass."""

    name: str
    value: float
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        mark = "ok  " if self.met else "MISS"
        return f"{mark} {self.name:<58} {self.value:>9.3f} {self.unit:<5} limit {self.limit:g}"


class NoOp:
    """A worker that sleeps as long as its task's argument says."""

    spec = TaskSpec("sleep", "tool", "Sleep.", (Arg("seconds", "any"),), ("text",))

    async def select(self, task: Task, brief: Brief) -> Selection | None:
        return None

    async def perform(self, selection: Selection | None, step: Step) -> TaskResult:
        seconds = float(step.inputs.get("seconds", 0))
        if seconds:
            await asyncio.sleep(seconds)
        return TaskResult(task=step.task, status="ok", resources=[Resource(kind="text", text="")])


def process_seconds(code: str, runs: int = 7) -> float:
    """The best wall time of a fresh Python that runs `code`, less that of one that runs nothing.

    The best of several, since whatever else the machine does only adds to it.
    """

    def once(source: str) -> float:
        began = perf_counter()
        subprocess.run([sys.executable, "-c", source], check=True, capture_output=True)
        return perf_counter() - began

    return min(once(code) for _ in range(runs)) - min(once("pass") for _ in range(runs))


def imports() -> list[Figure]:
    """What it costs to import, and what is not imported."""
    loaded = f"import sys; sys.exit(sum(m in sys.modules for m in {HEAVY!r}))"
    agent = "from jarvis_agent import JarvisAgent"
    heavy = subprocess.run([sys.executable, "-c", f"{agent}; {loaded}"], check=False)
    base = process_seconds("from langchain_core.tools import BaseTool")
    print(f"     baseline: the part of langchain-core that it stands on takes {base:.3f} s")
    helped = "from jarvis_agent.cli import main; import sys; sys.argv = ['jarvis', '--help']; main()"
    return [
        Figure("import jarvis_agent", process_seconds("import jarvis_agent"), 0.35, "s"),
        Figure(agent, process_seconds(agent), 1.2, "s"),
        Figure("heavy libraries that JarvisAgent imports", heavy.returncode, 0, ""),
        Figure("jarvis --help", process_seconds(helped), 0.8, "s"),
    ]


async def execute(tasks: list[Task], parallel: int = 1_000) -> float:
    """Seconds that the executor takes for a plan."""
    settings = Settings(output_dir=Path(tempfile.gettempdir()) / "jarvis-bench", max_parallel=parallel)
    began = perf_counter()
    async with Executor({"sleep": NoOp()}, ResourceStore(settings), Brief(request=""), settings) as run:
        results = await run.join(tasks)
    assert all(result.status == "ok" for result in results)
    return perf_counter() - began


def sleep(number: int, deps: list[int], seconds: float = 0) -> Task:
    return Task(task="sleep", id=number, dep=deps or [-1], args={"seconds": seconds})


def critical_path(tasks: list[Task]) -> float:
    ends: dict[int, float] = {}
    for task in tasks:
        ends[task.id] = max((ends[i] for i in task.deps), default=0.0) + task.args["seconds"]
    return max(ends.values())


def random_plan(rng: random.Random, size: int) -> list[Task]:
    def deps(number: int) -> list[int]:
        return sorted(rng.sample(range(number), min(number, rng.randint(0, 3))))

    return [sleep(number, deps(number), rng.uniform(0.03, 0.2)) for number in range(size)]


def by_levels(tasks: list[Task]) -> float:
    """The makespan if each level waits for the whole level before it, computed."""
    level: dict[int, int] = {}
    for task in tasks:
        level[task.id] = max((level[i] + 1 for i in task.deps), default=0)
    longest: dict[int, float] = {}
    for task in tasks:
        longest[level[task.id]] = max(longest.get(level[task.id], 0.0), task.args["seconds"])
    return sum(longest.values())


async def executor() -> list[Figure]:
    """The executor's overhead, and its makespan over the critical path, the better of two runs a plan."""
    flat = [sleep(i, []) for i in range(1_000)]
    chain = [sleep(i, [i - 1] if i else []) for i in range(50)]
    await execute(chain)
    rng = random.Random(7)
    ratios, levels, serial = [], [], []
    for _ in range(20):
        plan = random_plan(rng, rng.randint(5, 60))
        best = critical_path(plan)
        ratios.append(min([await execute(plan) for _ in range(2)]) / best)
        levels.append(by_levels(plan) / best)
        serial.append(sum(task.args["seconds"] for task in plan) / best)
    print("     baselines over the critical path, median of the same plans, computed:")
    print(f"     level by level {median(levels):.2f}, one after the other {median(serial):.2f}")
    return [
        Figure("executor overhead a task (1,000 independent tasks)", await execute(flat), 1.0, "ms"),
        Figure("chain of 50 no-op tasks", median([await execute(chain) for _ in range(5)]) * 1_000, 30, "ms"),
        Figure("makespan / critical path, 20 random plans, median", median(ratios), 1.03, "x"),
        Figure("makespan / critical path, 20 random plans, worst", max(ratios), 1.10, "x"),
    ]


def doubled_agent(llm: ScriptedLLM, backend: FakeBackend, output: Path) -> JarvisAgent:
    """An agent on doubles: no model, no network."""
    return JarvisAgent(
        model=llm,
        sources=[FakeSource([fake_candidate("summarization")])],
        backends=[backend],
        settings=Settings(output_dir=output, offline=True),
    )


PLAN = Plan(
    tasks=[
        Task(task="summarization", id=i, dep=[i - 1], args={"text": f"<resource>-{i - 1}" if i else "a text"})
        for i in range(5)
    ]
).to_json()


async def streaming(output: Path) -> list[Figure]:
    """When the first task starts, in parts of the time that the plan takes to arrive."""
    pieces = [PLAN[i : i + 8] for i in range(0, len(PLAN), 8)]
    llm = ScriptedLLM({"plan": PLAN, "respond": "done"}, chunk=8, delay=2.0 / len(pieces))
    backend = FakeBackend({"summarization": {"summary_text": "short"}})
    started, planned = 0.0, 0.0
    async with doubled_agent(llm, backend, output) as agent:
        async for event in agent.events("Shorten it five times"):
            if event.kind == "started" and not started:
                started = event.seconds
            if event.kind == "planned":
                planned = event.seconds
    return [Figure(f"first task starts / plan complete ({planned:.1f} s)", started / planned, 0.99, "x")]


def resident() -> float:
    """Megabytes of this process that are in memory."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


async def memory(output: Path) -> list[Figure]:
    """Memory after 1,000 runs over that after 100."""
    llm = ScriptedLLM({"plan": PLAN, "respond": "done"}, chunk=0)
    backend = FakeBackend({"summarization": {"summary_text": "short"}})
    async with doubled_agent(llm, backend, output) as agent:
        after_100 = 0.0
        for number in range(1, 1_001):
            run = await agent.ainvoke("Shorten it five times")
            assert run.ok
            llm.calls.clear()
            backend.calls.clear()
            if number == 100:
                gc.collect()
                after_100 = resident()
        gc.collect()
    grown = resident() / after_100
    return [Figure(f"memory after 1,000 runs / after 100 ({after_100:.0f} MB)", grown, 1.05, "x")]


def main() -> int:
    """Print every figure; 1 if one misses its limit."""
    print(f"Python {sys.version.split()[0]}; {len(TASKS)} task types")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        parts: list[Callable[[], list[Figure]]] = [
            imports,
            lambda: asyncio.run(executor()),
            lambda: asyncio.run(streaming(Path(folder))),
            lambda: asyncio.run(memory(Path(folder))),
        ]
        for part in parts:
            for figure in part():
                print(figure, flush=True)
                figures.append(figure)
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
