"""1,000 runs of a five-task plan at once, in one process, three times over. Models and LLM are doubles."""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
from pathlib import Path
from time import perf_counter
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


async def round_of(name: str, agent: JarvisAgent, *records: list[Any]) -> int:
    """How many runs were not answered in full. No request comes twice.

    `records` are what the doubles noted down of their calls: they would hold every run.
    """

    async def answered(number: int) -> bool:
        run = await agent.ainvoke(f"Shorten text {number} of {name} five times")
        for record in records:
            record.clear()
        return run.ok and run.answer == "done" and len(run.results) == 5

    good = await asyncio.gather(*map(answered, range(RUNS)), return_exceptions=True)
    return RUNS - good.count(True)


async def figures() -> list[Figure]:
    """Runs that went wrong, memory from round to round, and throughput."""
    memory, wrong, took = list[float](), 0, list[float]()
    with tempfile.TemporaryDirectory() as folder:
        llm = ScriptedLLM({"plan": PLAN, "respond": "done"}, chunk=0)
        backend = FakeBackend({_TASK: {"summary_text": "short"}})
        settings = Settings(output_dir=Path(folder), offline=True)
        source = FakeSource([fake_candidate(_TASK)])
        async with JarvisAgent(llm, sources=[source], backends=[backend], settings=settings) as agent:
            for number in range(ROUNDS):
                began = perf_counter()
                wrong += await round_of(f"round {number}", agent, llm.calls, backend.calls, source.asked)
                took.append(perf_counter() - began)
                gc.collect()
                memory.append(resident())
    at_once = f"{RUNS:,} runs of 5 tasks at once"
    return [
        Figure(f"{at_once}, {ROUNDS} times: runs that failed or were not answered", wrong, 0),
        Figure(f"{at_once}: throughput", RUNS / min(took), None, "runs/s"),
        Figure(
            "memory after the second such round over that after the first", memory[1] / memory[0], 1.05, "×"
        ),
        Figure(
            "memory after the third such round over that after the first", memory[2] / memory[0], 1.05, "×"
        ),
    ]
