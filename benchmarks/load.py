"""1,000 runs of a five-task plan at once, three times, and the CPU time of runs one after the other.

Models and LLM are doubles. CPU time is given as a multiple of a loop of plain Python, measured in between.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from figures import Figure

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

RUNS, ROUNDS = 1_000, 3
_TASK = "summarization"
PLAN = json.dumps(
    [
        {"task": _TASK, "id": i, "dep": [i - 1], "args": {"text": f"<resource>-{i - 1}" if i else "a text"}}
        for i in range(5)
    ]
)


def resident() -> float:
    """Megabytes of this process that are in memory."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def reference() -> float:
    """CPU seconds of a loop of plain Python."""
    began = process_time()
    sum(number * number for number in range(300_000))
    return process_time() - began


async def run_at_once(name: str, agent: JarvisAgent, *records: list[Any]) -> int:
    """How many runs failed. `records` are the calls that the doubles noted, which would hold every run."""

    async def succeeds(number: int) -> bool:
        run = await agent.ainvoke(f"Shorten text {number} of {name} five times")
        for record in records:
            record.clear()
        return run.ok and run.answer == "done" and len(run.results) == 5

    found = await asyncio.gather(*map(succeeds, range(RUNS)), return_exceptions=True)
    return RUNS - found.count(True)


async def cpu_time(agent: JarvisAgent) -> float:
    """The median CPU time of a run, as a multiple of the reference."""
    ratios = []
    for number in range(30):
        began = process_time()
        assert (await agent.ainvoke(f"Shorten text {number} five times")).ok
        ratios.append((process_time() - began) / reference())
    return median(ratios[5:])


async def figures() -> list[Figure]:
    """Failed runs, memory from round to round, and CPU time."""
    memory, failed = list[float](), 0
    with tempfile.TemporaryDirectory() as folder:
        llm = ScriptedLLM({"plan": PLAN, "respond": "done"}, chunk=0)
        backend = FakeBackend({_TASK: {"summary_text": "short"}})
        settings = Settings(output_dir=Path(folder), offline=True)
        source = FakeSource([fake_candidate(_TASK)])
        async with JarvisAgent(llm, sources=[source], backends=[backend], settings=settings) as agent:
            cpu = await cpu_time(agent)
            for number in range(ROUNDS):
                failed += await run_at_once(f"round {number}", agent, llm.calls, backend.calls, source.asked)
                gc.collect()
                memory.append(resident())
    return [
        Figure("CPU time of a run of 5 tasks, over a loop of 300,000 additions", cpu, None, "×"),
        Figure(f"{RUNS:,} runs of 5 tasks at once, {ROUNDS} times: failed runs", failed, 0),
        Figure("memory after the second round over that after the first", memory[1] / memory[0], 1.05, "×"),
        Figure("memory after the third round over that after the first", memory[2] / memory[0], 1.05, "×"),
    ]
