"""The expert server: python benchmarks/experts.py [--ray] (extras "dev", and "ray" for the second part)

The first part compares an agent with a server and one without: what a call costs, and what requests and
processes save. With --ray, Ray clusters of 1, 2, 4 and 8 nodes on this machine run experts that wait, so that
more nodes than cores can be measured.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import Any

import httpx
from figures import Figure
from waiting_expert import WaitingBackend, environment

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.experts.client import ExpertServer
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.concurrency import gather_limited
from jarvis_agent.core.errors import TransientError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.llm.chat_model import NO_MODEL

ROOT = Path(__file__).parents[1]
CALLS, RUNS = 100, 1_000
SIZES = {"no file": 0, "a file of 1 MB": 10**6, "a file of 20 MB": 2 * 10**7}
CAT_FILE = ROOT / "examples" / "cat.jpg"
CAT = "What animal is in examples/cat.jpg?"
DEMO = (
    "Read the text in examples/page.png aloud, then transcribe the recording. Also tell me what animal is in "
    "examples/cat.jpg and make a canny edge image of it."
)
REQUESTS = {
    "What animal is in cat.jpg?": "cat.jpg",
    "Read the text in page.png aloud, then transcribe the recording": "page.png",
    "Make a canny edge image of cat.jpg": "cat.jpg",
}
"""Requests that use four models, and their files."""

CANDIDATE = Candidate(id="org/waits", task="text-generation", backend="waiting", local=True)
KEY = "benchmark"
SETTINGS = Settings()
NODES, CALLS_PER_NODE, WAIT_S, LONG_WAIT_S, WINDOW_S, CALLERS = (1, 2, 4, 8), 12, 0.2, 1.0, 15.0, 64
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "memory": 3 * 10**9}


_QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def backend_on(address: str) -> WaitingBackend:
    """The backend whose models run on a server."""
    backend = WaitingBackend(Settings(), ModelPool(10**9))
    backend.server = ExpertServer(address, KEY)
    return backend


async def ask(backend: Backend, seconds: float = 0.0, file: Path | None = None) -> tuple[str, int]:
    """The process that ran a call, and how often the call was sent: again if its server was lost."""
    inputs: dict[str, Any] = {"text": str(seconds)}
    if file is not None:
        inputs["image"] = Resource(kind="image", path=file)
    for tries in count(1):
        with suppress(TransientError):
            call = Call(TASKS["text-generation"], CANDIDATE, inputs, Path, SETTINGS)
            return str(await backend.run(call)), tries
        await asyncio.sleep(0.1)
    raise AssertionError


async def times(backend: Backend, file: Path | None) -> list[float]:
    """Milliseconds of calls that do nothing, one after the other."""
    await ask(backend, 0.0, file)
    found = []
    for _ in range(CALLS):
        began = perf_counter()
        await ask(backend, 0.0, file)
        found.append(1000 * (perf_counter() - began))
    return found


@contextmanager
def serving(command: str, *options: str, **variables: str) -> Iterator[tuple[str, int]]:
    """The address and process id of `jarvis experts` or `jarvis serve`, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = [sys.executable, "-m", "jarvis_agent", command, "--port", str(port), *options]
    process = subprocess.Popen(started, env=variables, cwd=ROOT, **_QUIET)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            assert process.poll() is None
            with suppress(httpx.HTTPError):
                httpx.get(f"{address}/healthz", trust_env=False)
                break
            sleep(0.1)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def seconds_of(request: str, **variables: str) -> float:
    """Seconds of `jarvis "request"` in a new process, offline and without a key: the median of five."""
    found = []
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JARVIS_OFFLINE": "1", "JARVIS_MODEL": "none", **variables}
    env["PYTHONDONTWRITEBYTECODE"] = ""  # pip compiles what it installs
    with tempfile.TemporaryDirectory() as out:
        for _ in range(5):
            began = perf_counter()
            command = [sys.executable, "-m", "jarvis_agent", request, "--json", "--out", out]
            subprocess.run(command, env=env, cwd=ROOT, **_QUIET, check=True)
            found.append(perf_counter() - began)
    return median(found)


def megabytes(process: int) -> float:
    """Memory of a process and its children; what several share is divided among them."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    own = next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) / 1024
    return own + sum(megabytes(int(child)) for child in children)


def workers_of(process: int) -> list[int]:
    """The processes of a server that answer requests."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    found = [one for child in children for one in workers_of(int(child))] or [process]
    return [one for one in found if b"resource_tracker" not in Path(f"/proc/{one}/cmdline").read_bytes()]


def workers_memory(workers: int, **variables: str) -> float:
    """Megabytes of `jarvis serve`, each worker of which has used the models of REQUESTS."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "JARVIS_OFFLINE": "1", "JARVIS_MODEL": "none", **variables}
    with (
        tempfile.TemporaryDirectory() as out,
        serving("serve", "--workers", str(workers), **env, JARVIS_OUTPUT_DIR=out) as (address, process),
    ):
        sleep(3.0)  # until all workers listen
        started = workers_of(process)
        for used in started:
            others = {process, *started} - {used}
            for one in others:  # so that this worker answers
                os.kill(one, signal.SIGSTOP)
            with httpx.Client(base_url=address, timeout=120, trust_env=False) as client:
                for request, file in REQUESTS.items():
                    content = (ROOT / "examples" / file).read_bytes()
                    name = client.post("/files", files={"file": (file, content)}).json()["name"]
                    body = {"input": {"input": request, "files": [name]}}
                    results = client.post("/agent/invoke", json=body).json()["output"]["results"]
                    assert {result["status"] for result in results} == {"ok"}
            for one in others:
                os.kill(one, signal.SIGCONT)
        return megabytes(process)


async def growth(address: str, process: int) -> tuple[float, float]:
    """Megabytes that an agent and the server grow by from run 100 to run 1,000."""
    requests = (f"What animal is in {CAT_FILE}?", f"Make a canny edge image of {CAT_FILE}")
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(output_dir=Path(folder), offline=True, experts=address, experts_key=KEY)
        async with JarvisAgent(NO_MODEL, settings=settings) as agent:

            async def run(number: int) -> None:
                assert (await agent.ainvoke(requests[number % 2])).ok

            await gather_limited(run, range(RUNS // 10), 4)
            before = megabytes(os.getpid()) - megabytes(process), megabytes(process)
            await gather_limited(run, range(RUNS - RUNS // 10), 4)
            after = megabytes(os.getpid()) - megabytes(process), megabytes(process)
    return after[0] - before[0], after[1] - before[1]


async def figures() -> AsyncIterator[Figure]:
    """With and without a server, on this machine."""
    with (
        tempfile.TemporaryDirectory() as name,
        serving("experts", **environment(Path(name), JARVIS_API_KEYS=KEY)) as (address, process),
    ):
        here, there = WaitingBackend(Settings(), ModelPool(10**9)), backend_on(address)
        for what, size in SIZES.items():
            file = Path(name, "file.bin") if size else None
            if file:
                file.write_bytes(os.urandom(size))
            local, remote = await times(here, file), await times(there, file)
            limit = None if size else 5.0
            yield Figure(
                f"a call over one in this process, {what}, median",
                median(remote) - median(local),
                limit,
                "ms",
            )
            ends = quantiles(remote, n=20)[-1] - quantiles(local, n=20)[-1]
            yield Figure("the same, 95th percentile", ends, None, "ms")
        agent, grown = await growth(address, process)
        yield Figure(f"growth of the agent from run {RUNS // 10} to {RUNS}", agent, 50.0, "MB")
        yield Figure("growth of the server meanwhile", grown, 50.0, "MB")
        used = {"JARVIS_EXPERTS": address, "JARVIS_EXPERTS_KEY": KEY}
        for request, limit in ((CAT, 0.4), (DEMO, 0.6)):
            alone, seconds_of_warm = seconds_of(request, JARVIS_EXPERTS="none"), seconds_of(request, **used)
            yield Figure(f'"{request[:40]}…" without a server', alone, None, "s")
            yield Figure("the same with a warm one, over that", seconds_of_warm / alone, limit)
        one = workers_memory(1, JARVIS_EXPERTS="none")
        yield Figure("memory of `jarvis serve` with four models", one, None, "MB")
        yield Figure("with --workers 4, over that", workers_memory(4, JARVIS_EXPERTS="none") / one)
        shared = workers_memory(4, **used) + megabytes(process)
        yield Figure("with --workers 4 and an expert server, over that", shared / one, 1.5)


@contextmanager
def cluster() -> Any:
    """A head without CPUs, to which nodes are added; and its address for agents."""
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory() as folder:
        # Ray gives its workers the niceness 15, so that other work would be measured too.
        more = {"JARVIS_API_KEYS": KEY, "JARVIS_OFFLINE": "1", "RAY_worker_niceness": "0"}
        os.environ |= environment(Path(folder), **more)
        head = {**NODE, "num_cpus": 0, "include_dashboard": False}
        started = Cluster(initialize_head=True, head_node_args=head)
        ray.init(started.address, log_to_driver=False)
        try:
            from jarvis_agent.interfaces.experts import cluster as application

            serve.start(http_options={"port": 8766})
            args = {"sizes": [{"memory_gb": 2, "max_replicas": max(NODES)}]}
            serve.run(application(args), name="experts", route_prefix="/")
            yield started, "http://127.0.0.1:8766"
        finally:
            ray.shutdown()
            started.shutdown()


async def rate(backend: Backend, callers: int, seconds: float, processes: int) -> float:
    """Calls a second, once so many processes have answered."""
    ended: list[tuple[float, str]] = []

    async def repeat() -> None:
        while True:
            process, _ = await ask(backend, seconds)
            ended.append((perf_counter(), process))

    running = [asyncio.create_task(repeat()) for _ in range(callers)]
    while len({process for _, process in ended[-4 * callers :]}) < processes:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    began = perf_counter() + 2.0  # until the calls have spread
    await asyncio.sleep(2.0 + WINDOW_S)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    return sum(began <= at < began + WINDOW_S for at, _ in ended) / WINDOW_S


async def makespan(backend: Backend) -> tuple[float, int]:
    """Seconds that four calls for each node take, and how many of them were sent again."""
    began = perf_counter()
    found = await asyncio.gather(*(ask(backend, LONG_WAIT_S) for _ in range(4 * max(NODES))))
    return perf_counter() - began, sum(tries > 1 for _, tries in found)


async def recovery(backend: Backend, started: Any, node: Any) -> float:
    """Seconds by which calls end later if a node is lost while they run."""
    usual, _ = await makespan(backend)
    losing = asyncio.create_task(makespan(backend))
    await asyncio.sleep(LONG_WAIT_S)
    await asyncio.to_thread(started.remove_node, node, allow_graceful=False)
    found, _ = await losing
    return found - usual


async def ray_figures() -> AsyncIterator[Figure]:
    """More and more nodes."""
    with cluster() as (started, address):
        backend, nodes, first = backend_on(address), list[Any](), 0.0
        for number in NODES:
            nodes += [started.add_node(**NODE) for _ in range(number - len(nodes))]
            found = await rate(backend, CALLS_PER_NODE * number, WAIT_S, number)
            first = first or found
            yield Figure(
                f"throughput of {number} nodes, experts that wait {WAIT_S} s", found, None, "calls/s"
            )
            yield Figure("linear over measured throughput", number * first / found, 1 / 0.95)
        found = await rate(backend, CALLERS, 0.0, 1)
        yield Figure(f"calls that do nothing, from {CALLERS} callers, one proxy", found, None, "calls/s")
        yield Figure(
            "time to recover from a lost node", await recovery(backend, started, nodes[-1]), None, "s"
        )


async def main() -> int:
    """Measure and print."""
    met = True
    async for figure in ray_figures() if "--ray" in sys.argv else figures():
        print(figure, flush=True)
        met = met and figure.met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
