"""Experts on a Ray cluster of this machine: python benchmarks/cluster.py (extra "ray", some minutes)

Each node is a set of processes with one CPU for Ray. Experts wait, so that more nodes than cores can be
measured. Throughput is that of calls which end while twelve for each node are under way.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from cluster_expert import WaitingBackend
from figures import Figure
from load import resident

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.ray.backend import RayBackend
from jarvis_agent.backends.ray.cluster import disconnect
from jarvis_agent.core.concurrency import gather_limited
from jarvis_agent.core.errors import TransientError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.testing import FakeSource, ScriptedLLM

NODES = (1, 2, 4, 8)
WAIT_S, WINDOW_S = 0.2, 15.0
CALLS_PER_NODE = 12
CALLS, RUNS = 300, 1_000

CANDIDATE = Candidate(id="org/waits", task="text-generation", backend="waiting", local=True)
_NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "memory": 3 * 10**9}
_FOLDERS = (Path(__file__).parent, Path(__file__).parents[1])


@contextmanager
def cluster() -> Any:
    """A head without CPUs, to which nodes are added."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, _FOLDERS))
    head = {**_NODE, "num_cpus": 0, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=head)
    os.environ["RAY_ADDRESS"] = started.address
    try:
        yield started
    finally:
        disconnect()
        started.shutdown()


async def ask(backend: Backend, seconds: float = 0.0) -> str:
    """The process that ran a call; a call whose replica was lost is repeated."""
    spec = TASKS["text-generation"]
    while True:
        try:
            return str(await backend.run(Call(spec, CANDIDATE, {"text": str(seconds)}, Path, Settings())))
        except TransientError:
            await asyncio.sleep(0.1)


async def times(backend: Backend) -> list[float]:
    """Milliseconds of calls that do nothing, one after the other."""
    await ask(backend)
    found = []
    for _ in range(CALLS):
        began = perf_counter()
        await ask(backend)
        found.append(1000 * (perf_counter() - began))
    return found


async def throughput(backend: Backend, nodes: int) -> float:
    """Calls a second, once every node has a replica that answers."""
    ended: list[tuple[float, str]] = []

    async def repeat() -> None:
        while True:
            process = await ask(backend, WAIT_S)
            ended.append((perf_counter(), process))

    running = [asyncio.create_task(repeat()) for _ in range(CALLS_PER_NODE * nodes)]
    while len({process for _, process in ended[-4 * CALLS_PER_NODE * nodes :]}) < nodes:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    began = perf_counter() + 2.0  # until the calls have spread
    await asyncio.sleep(2.0 + WINDOW_S)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return sum(began <= at < began + WINDOW_S for at, _ in ended) / WINDOW_S


async def recovery(backend: Backend, started: Any, node: Any) -> float:
    """Seconds of the longest call of those under way when a node is lost, less what it waits itself."""

    async def timed() -> float:
        began = perf_counter()
        await ask(backend, WAIT_S)
        return perf_counter() - began

    running = [asyncio.create_task(timed()) for _ in range(CALLS_PER_NODE)]
    await asyncio.sleep(2 * WAIT_S)
    await asyncio.to_thread(started.remove_node, node, allow_graceful=False)
    return max(await asyncio.gather(*running)) - WAIT_S


async def growth(backend: Backend) -> float:
    """Megabytes that the driver grows by from run 100 to run 1,000."""
    plan = json.dumps([{"task": CANDIDATE.task, "id": 0, "dep": [-1], "args": {"text": "0"}}])
    with tempfile.TemporaryDirectory() as folder:
        agent = JarvisAgent(
            ScriptedLLM({"plan": plan, "respond": "done"}),
            sources=[FakeSource([CANDIDATE])],
            backends=[backend],
            settings=Settings(output_dir=Path(folder), offline=True),
        )

        async def run(number: int) -> None:
            assert (await agent.ainvoke(f"request {number}")).ok

        await gather_limited(run, range(RUNS // 10), 16)
        before = resident()
        await gather_limited(run, range(RUNS - RUNS // 10), 16)
        return resident() - before


async def figures() -> AsyncIterator[Figure]:
    """Measure each figure in turn, with more and more nodes."""
    here = await times(WaitingBackend(ModelPool(10**9)))
    backend = RayBackend(WaitingBackend(ModelPool(0)), "auto")
    with cluster() as started:
        nodes: list[Any] = []
        first = 0.0
        for count in NODES:
            nodes += [started.add_node(**_NODE) for _ in range(count - len(nodes))]
            if count == 1:
                there = await times(backend)
                yield Figure(
                    "a call on the cluster over one of the local pool, median",
                    median(there) - median(here),
                    None,
                    "ms",
                )
                yield Figure(
                    "the same, 95th percentile",
                    quantiles(there, n=20)[-1] - quantiles(here, n=20)[-1],
                    None,
                    "ms",
                )
            rate = await throughput(backend, count)
            first = first or rate
            yield Figure(f"throughput of {count} nodes, experts that wait {WAIT_S} s", rate, None, "calls/s")
            if count > 1:
                yield Figure(f"linear over measured throughput, {count} nodes", count * first / rate, 1 / 0.9)
        yield Figure(
            "time to recover from a lost node", await recovery(backend, started, nodes[-1]), None, "s"
        )
        yield Figure(
            f"growth of the driver from run {RUNS // 10} to {RUNS}", await growth(backend), 50.0, "MB"
        )


async def main() -> int:
    """Measure and print."""
    met = True
    async for figure in figures():
        print(figure, flush=True)
        met = met and figure.met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
