"""End-to-end time of three case studies against the same stages one after the other.

The language model says its first token after 0.4 s and then 50 a second, in choosing models a sentence of
reasons; experts take half a second or two. All seconds are divided by `PACE`, which makes the costs of our
own code weigh as many times. One after the other means: the whole plan, then for each task its selection and
its work, then the answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from figures import Figure

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.execution.executor import Executor
from jarvis_agent.core.request import RunContext
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.testing import ScriptedLLM, first_candidate

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from scenarios import SCENARIOS, Scenario, make_experts, make_files

Way = Callable[[JarvisAgent, dict[str, Any]], Awaitable[None]]
PACE = 4
EXPERTS = (0.5, 2.0)
"""Seconds that an expert takes."""

_FIRST, _TOKEN = 0.4, 0.02
_TOKENS, _LETTERS = 5, 4
"""Tokens in a piece, letters in a token."""

ANSWER = "I looked at it with several models, and this is what they found. " * 8
REASON = "it was made for pictures like this one, is on this machine already, and has the most downloads"


@dataclass(frozen=True)
class Case:
    """A case study of the paper, and how many times as fast it must be with experts of two seconds."""

    number: int
    name: str
    times: float = 1.0


CASES = (Case(1, "girl-in-the-boys-pose"), Case(5, "zebras"), Case(8, "in-detail", 2.0))


def chosen(messages: Any) -> tuple[str | float, ...]:
    return paced(json.dumps({**json.loads(first_candidate(messages)), "reason": REASON}))


def paced(text: str) -> tuple[str | float, ...]:
    """A reply that comes as slowly as a language model's."""
    size = _TOKENS * _LETTERS
    pieces: list[str | float] = [_FIRST / PACE]
    for place in range(0, len(text), size):
        pieces += [text[place : place + size], _TOKENS * _TOKEN / PACE]
    return tuple(pieces)


def agent_for(scenario: Scenario, expert: float, folder: Path) -> JarvisAgent:
    source, backend = make_experts()
    backend.delay = expert / PACE
    replies = {
        "plan": paced(scenario.written),
        "select": chosen,
        "respond": paced(ANSWER),
    }
    llm = ScriptedLLM(replies, chunk=0)
    settings = Settings(output_dir=folder / "out", offline=True, max_replans=0)
    return JarvisAgent(llm, sources=[source], backends=[backend], settings=settings)


async def at_once(agent: JarvisAgent, asked: dict[str, Any]) -> None:
    assert (await agent.ainvoke(asked)).ok


async def one_after_the_other(agent: JarvisAgent, asked: dict[str, Any]) -> None:
    plan = await agent.aplan(asked)
    workers = await agent.stages.workers()
    store = ResourceStore(agent.settings)
    for name in asked["files"]:
        await store.grant(name)
    brief = RunContext(asked["input"], specs={name: worker.spec for name, worker in workers.items()})
    store.prepare()
    async with Executor(workers, store, brief, agent.settings) as executor:
        for place in range(len(plan.tasks)):
            results = await executor.join(plan.tasks[: place + 1])
    assert all(result.status == "ok" for result in results)
    assert "".join([piece async for piece in agent.stages.responder.respond(brief, plan, results)])
    store.close()


async def seconds(way: Way, scenario: Scenario, expert: float, folder: Path) -> float:
    async with agent_for(scenario, expert, folder) as agent:
        await agent.aplan({"input": scenario.request, "files": scenario.files})
        began = perf_counter()
        await way(agent, {"input": scenario.request, "files": scenario.files})
        return (perf_counter() - began) * PACE


async def times(case: Case, expert: float, folder: Path) -> list[Figure]:
    scenario = SCENARIOS[case.name]
    make_files(folder, *scenario.files)
    whole = await seconds(at_once, scenario, expert, folder)
    apart = await seconds(one_after_the_other, scenario, expert, folder)
    named = f"case study {case.number}, {len(scenario.plan)} tasks of {expert:g} s"
    least = case.times if expert == max(EXPERTS) else 1.0
    return [
        Figure(f"{named}: end to end", whole, None, "s"),
        Figure(f"{named}: the same stages one after the other", apart, None, "s"),
        Figure(f"{named}: times as fast", apart / whole, least, "×", at_least=True),
    ]


async def figures() -> list[Figure]:
    """How many times as fast each case study is."""
    found: list[Figure] = []
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for case in CASES:
                for expert in EXPERTS:
                    found += await times(case, expert, Path(folder))
        finally:
            os.chdir(home)
    return found


if __name__ == "__main__":
    for figure in asyncio.run(figures()):
        print(figure)
