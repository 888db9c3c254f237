"""Runs whose models are loaded while their tasks wait, over the same runs without that.

One has five experts in a row that sleep. The other is the request of the README with the starter models, in a
new process (extra "starter"); it gains only on a machine that has a CPU core to spare.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from figures import Figure
from langchain_core.runnables import RunnableLambda

from jarvis_agent import JarvisAgent, Settings, TaskSpec
from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.types import Candidate
from jarvis_agent.testing import FakeSource, ScriptedLLM, fake_candidate

LOAD_S, RUN_S, SIZE = 2.0, 0.2, 100
TASK, TASKS, ROUNDS = "summarization", 5, 3
REQUEST = (
    "Read the text in examples/page.png aloud, then transcribe the recording. "
    "Also tell me what animal is in examples/cat.jpg and make a canny edge image of it."
)
DEMO = f"""
import sys
from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.backends.local import LocalBackend
if sys.argv[1] == "after":
    LocalBackend.prepare = None
with JarvisAgent("none", settings=Settings(offline=True, output_dir=sys.argv[2])) as agent:
    run = agent.invoke({REQUEST!r})
assert run.ok and len(run.results) == 5, run
print(run.timings["total"])
"""


class Sleeper(LocalBackend):
    """A backend whose models take their time to load and to run; `peak` is the most that was loaded."""

    name = "fake"
    peak = 0

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return None

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        time.sleep(LOAD_S)
        return self.run_model

    def run_model(self, call: Call) -> Any:
        self.peak = max(self.peak, sum(self.pool.used.values()))
        time.sleep(RUN_S)
        return "a text"


class LateSleeper(Sleeper):
    """The same without loading in advance."""

    prepare = None  # type: ignore[assignment]


async def chain(kind: Callable[[Settings, ModelPool], Sleeper], room: int) -> tuple[float, float]:
    """Seconds of five tasks in a row, and the most bytes that were loaded over a budget for `room` models."""
    rows = [
        {"task": TASK, "id": i, "dep": [i - 1], "args": {"text": f"<resource>-{i - 1}" if i else "a text"}}
        for i in range(TASKS)
    ]
    backend = kind(Settings(), ModelPool(room * SIZE))
    source = FakeSource(fake_candidate(TASK, f"model-{i}", size=SIZE) for i in range(TASKS))
    llm = ScriptedLLM({"plan": json.dumps(rows), "respond": "done"})
    its_own = RunnableLambda(lambda call: f"model-{call['task'].id}")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(output_dir=folder)
        async with JarvisAgent(
            llm, selector=its_own, sources=[source], backends=[backend], settings=settings
        ) as agent:
            run = await agent.ainvoke("Shorten the text five times")
    assert run.ok, run
    assert len({result.model for result in run.results}) == TASKS
    await backend.pool.close()
    return run.timings["execute"], backend.peak / (room * SIZE)


def demo(when: str) -> float:
    """Seconds of the README's request in a new process; models are loaded "before" or "after" tasks start."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", DEMO, when, folder]
        root = Path(__file__).parent.parent
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
    return float(done.stdout)


async def figures() -> list[Figure]:
    """The ratios, and the memory."""
    before, _ = await chain(Sleeper, TASKS)
    after, _ = await chain(LateSleeper, TASKS)
    _, peak = await chain(Sleeper, 2)
    pairs = [(demo("before"), demo("after")) for _ in range(ROUNDS)]
    seconds = ", ".join(f"{one:.1f}/{other:.1f} s" for one, other in pairs)
    return [
        Figure("five experts in a row, models loaded before / when tasks start", before / after, 0.40, "×"),
        Figure("with room for two of the five: most bytes loaded / budget", peak, 1.0, "×"),
        Figure(
            f"README request, new process, the same ({seconds}), median",
            median(one / other for one, other in pairs),
            0.85,
            "×",
        ),
    ]
