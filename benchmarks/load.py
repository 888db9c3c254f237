"""1,000 runs of a five-task plan at once, in one process, three times over. Models and LLM are doubles."""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
from pathlib import Path
from time import perf_counter

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


async def round_of(agent: JarvisAgent) -> tuple[int, float]:
    """How many runs were not answered in full, and the seconds that all took."""
    began = perf_counter()
    runs = await asyncio.gather(
        *(agent.ainvoke("Shorten it five times") for _ in range(RUNS)), return_exceptions=True
    )
    took = perf_counter() - began
    good = [run for run in runs if not isinstance(run, BaseException) and run.ok and run.answer == "done"]
    return RUNS - len([run for run in good if len(run.results) == 5]), took


async def figures() -> list[Figure]:
    """Runs that went wrong, memory from round to round, and throughput."""
    memory, wrong, took = list[float](), 0, list[float]()
    with tempfile.TemporaryDirectory() as folder:
        llm = ScriptedLLM({"plan": PLAN, "respond": "done"}, chunk=0)
        backend = FakeBackend({_TASK: {"summary_text": "short"}})
        settings = Settings(output_dir=Path(folder), offline=True)
        source = FakeSource([fake_candidate(_TASK)])
        async with JarvisAgent(llm, sources=[source], backends=[backend], settings=settings) as agent:
            for _ in range(ROUNDS):
                bad, seconds = await round_of(agent)
                llm.calls.clear()
                backend.calls.clear()
                source.asked.clear()
                gc.collect()
                memory.append(resident())
                wrong, took = wrong + bad, [*took, seconds]
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
