"""Speed and size of the core, as one command: python benchmarks/speed.py

It prints each figure beside its limit and ends with status 1 if one is not met. Times depend on the machine;
ratios stand beside their baseline, measured in the same run.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from figures import Figure

from jarvis_agent import JarvisAgent, Plan, Settings
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.types import Resource, Selection, Task, TaskResult
from jarvis_agent.execution.executor import Executor, Step
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

HEAVY = ("torch", "transformers", "diffusers", "langgraph", "fastapi")


class NoOp:
    """A worker that does nothing."""

    spec = TaskSpec("rest", "tool", "Do nothing.", (Arg("text", "text", required=False),), ("text",))

    async def select(self, task: Task, context: RunContext) -> Selection | None:
        return None

    async def run(self, selection: Selection | None, step: Step) -> TaskResult:
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
    helped = "import sys; from jarvis_agent.interfaces.cli.app import main; sys.argv[1:] = ['--help']; main()"
    return [
        Figure("import jarvis_agent", process_seconds("import jarvis_agent"), 0.35, "s"),
        Figure(agent, process_seconds(agent), 1.2, "s"),
        Figure("heavy libraries that JarvisAgent imports", heavy.returncode, 0, ""),
        Figure("jarvis --help", process_seconds(helped), 0.8, "s"),
    ]


async def execute(tasks: list[Task]) -> float:
    """Seconds that the executor takes for a plan."""
    settings = Settings(output_dir=Path(tempfile.gettempdir()) / "jarvis-bench", max_parallel=1_000)
    began = perf_counter()
    async with Executor({"rest": NoOp()}, ResourceStore(settings), RunContext(request=""), settings) as run:
        results = await run.join(tasks)
    assert all(result.status == "ok" for result in results)
    return perf_counter() - began


async def executor() -> list[Figure]:
    """What the executor itself takes."""
    flat = [Task(task="rest", id=i, dep=[-1], args={}) for i in range(1_000)]
    chain = [Task(task="rest", id=i, dep=[i - 1], args={}) for i in range(50)]
    await execute(chain)
    return [
        Figure("executor overhead a task (1,000 independent tasks)", await execute(flat), 1.0, "ms"),
        Figure("chain of 50 no-op tasks", median([await execute(chain) for _ in range(5)]) * 1_000, 30, "ms"),
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


def main() -> int:
    """Print every figure; 1 if one misses its limit."""
    print(f"Python {sys.version.split()[0]}; {len(TASKS)} task types")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        parts: list[Callable[[], list[Figure]]] = [
            imports,
            lambda: asyncio.run(executor()),
            lambda: asyncio.run(streaming(Path(folder))),
        ]
        for part in parts:
            for figure in part():
                print(figure, flush=True)
                figures.append(figure)
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
