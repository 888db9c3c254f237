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
from itertools import count
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
WAIT_S, LONG_WAIT_S, WINDOW_S = 0.2, 1.0, 15.0
CALLS_PER_NODE = 12
CALLS, CALLERS, RUNS = 300, 64, 1_000

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


async def ask(backend: Backend, seconds: float = 0.0) -> tuple[str, int]:
    """The process that ran a call, and how often the call was sent: again if its replica was lost."""
    spec = TASKS["text-generation"]
    for tries in count(1):
        try:
            call = Call(spec, CANDIDATE, {"text": str(seconds)}, Path, Settings())
            return str(await backend.run(call)), tries
        except TransientError:
            await asyncio.sleep(0.1)
    raise AssertionError


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
            process, _ = await ask(backend, WAIT_S)
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


async def ceiling(backend: Backend) -> tuple[float, float]:
    """Calls a second that do nothing, from many callers, and milliseconds of CPU of the gateway for one."""
    done = 0

    async def repeat() -> None:
        nonlocal done
        while True:
            await ask(backend)
            done += 1

    began, used = perf_counter(), gateway_seconds()
    running = [asyncio.create_task(repeat()) for _ in range(CALLERS)]
    await asyncio.sleep(WINDOW_S)
    rate, cost = done / (perf_counter() - began), 1000 * (gateway_seconds() - used) / done
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return rate, cost


def gateway_seconds() -> float:
    """Seconds of CPU that the actor that passes calls on has used."""
    (process,) = (one for one in Path("/proc").glob("[0-9]*") if "ray::Gateway" in title(one))
    user, system = (process / "stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def title(process: Path) -> str:
    """The title of a process of /proc; "" if it has ended."""
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


async def recovery(backend: Backend, started: Any, node: Any) -> float:
    """Seconds by which calls end later if a node is lost while they run."""
    usual, _ = await makespan(backend)
    losing = asyncio.create_task(makespan(backend))
    await asyncio.sleep(LONG_WAIT_S)
    await asyncio.to_thread(started.remove_node, node, allow_graceful=False)
    found, repeated = await losing
    if not repeated:
        raise RuntimeError("the lost node had no call; run it again")
    return found - usual


async def makespan(backend: Backend) -> tuple[float, int]:
    """Seconds that four calls for each node take, and how many of them were sent again."""
    began = perf_counter()
    found = await asyncio.gather(*(ask(backend, LONG_WAIT_S) for _ in range(4 * max(NODES))))
    return perf_counter() - began, sum(tries > 1 for _, tries in found)


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
    here = await times(WaitingBackend(Settings(), ModelPool(10**9)))
    backend = RayBackend(WaitingBackend(Settings(), ModelPool(0)), "auto")
    with cluster() as started:
        nodes: list[Any] = []
        first = 0.0
        for number in NODES:
            nodes += [started.add_node(**_NODE) for _ in range(number - len(nodes))]
            if number == 1:
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
            rate = await throughput(backend, number)
            first = first or rate
            yield Figure(f"throughput of {number} nodes, experts that wait {WAIT_S} s", rate, None, "calls/s")
            if number > 1:
                yield Figure(
                    f"linear over measured throughput, {number} nodes", number * first / rate, 1 / 0.9
                )
        rate, cost = await ceiling(backend)
        yield Figure(f"calls that do nothing, from {CALLERS} callers", rate, None, "calls/s")
        yield Figure("CPU of the gateway for one of these", cost, None, "ms")
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
