"""Clients that stream from the server at once, on loopback, and what it adds to bare FastAPI.

    python benchmarks server --seconds 60

Model and LLM are doubles; the LLM writes a piece of text every 0.2 s. The bare application streams the
replies of the same double. Half of 200 clients use OpenAI's API, half start a run and follow its events. Then
100 use OpenAI's API, and as many the same agent in bare FastAPI.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from scheduling import Figure

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.server import create_app
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

CLIENTS, FEWER, SECONDS = 200, 100, 60.0
TASK = "summarization"
PLAN = json.dumps([{"task": TASK, "id": 0, "dep": [-1], "args": {"text": "a text"}}])
ANSWER = "The text says, in short: " + "these are the words of the answer. " * 4
Client = Callable[[httpx.AsyncClient], Awaitable[None]]


class _Unrecorded(list[Any]):
    """The record of a double's calls, which would hold the memory of all runs."""

    def append(self, item: Any) -> None:
        """Forget it."""


def make_agent(folder: Path, plan: str) -> JarvisAgent:
    """The agent, whose language model makes this plan of each request."""
    backend, source = FakeBackend({TASK: {"summary_text": "short"}}), FakeSource([fake_candidate(TASK)])
    llm = ScriptedLLM({"plan": plan, "respond": ANSWER, "chat": ANSWER}, delay=0.2)
    llm.calls, backend.calls, source.asked = _Unrecorded(), _Unrecorded(), _Unrecorded()
    settings = Settings(output_dir=folder, offline=True)
    return JarvisAgent(llm, sources=[source], backends=[backend], settings=settings)


def agent_app(folder: Path, plan: str = PLAN) -> FastAPI:
    """The server."""
    limits = ServerSettings(max_concurrent_runs=CLIENTS, runs_per_minute=10**6)
    return create_app(make_agent(folder, plan), limits)


def plain_app(folder: Path, plan: str = PLAN) -> FastAPI:
    """FastAPI with a route that streams what the agent answers."""
    app, agent = FastAPI(), make_agent(folder, plan)

    @app.post("/echo")
    async def echo(body: dict[str, Any]) -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            async for chunk in agent.astream(body["input"]):
                yield f"data: {json.dumps(chunk.answer)}\n\n"

        return StreamingResponse(pieces(), media_type="text/event-stream")

    return app


def bare_app(folder: Path) -> FastAPI:
    """FastAPI with a route that streams what the language model writes."""
    app = FastAPI()

    @app.post("/echo")
    async def echo(body: dict[str, Any]) -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            for reply in (PLAN, ANSWER):
                async for piece in ScriptedLLM([reply], delay=0.2).astream(body["input"]):
                    yield f"data: {json.dumps(piece.text)}\n\n"

        return StreamingResponse(pieces(), media_type="text/event-stream")

    return app


APPS: dict[str, Callable[[Path], FastAPI]] = {
    "agent": agent_app,
    "bare": bare_app,
    "plain": plain_app,
    "agent without tasks": partial(agent_app, plan="[]"),
    "plain without tasks": partial(plain_app, plan="[]"),
}


async def echo(client: httpx.AsyncClient) -> None:
    """Use the bare application."""
    async with client.stream("POST", "/echo", json={"input": "Shorten a text"}) as answer:
        lines = [line async for line in answer.aiter_lines()]
    assert len(lines) > len(ANSWER) // 8, answer.status_code


async def complete(client: httpx.AsyncClient) -> None:
    """Use OpenAI's API."""
    messages = [{"role": "user", "content": "Shorten a text"}]
    body = {"model": "jarvis", "messages": messages, "stream": True}
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = [line async for line in answer.aiter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]", lines[-1]


async def follow(client: httpx.AsyncClient) -> None:
    """Start a run and follow its events."""
    run = (await client.post("/runs", json={"input": "Shorten a text"})).json()
    async with client.stream("GET", f"/runs/{run['id']}/events") as answer:
        lines = [line async for line in answer.aiter_lines() if line.startswith("data: ")]
    assert json.loads(lines[-1].removeprefix("data: "))["status"] == "done", lines[-1]


async def load(
    url: str, seconds: float, *kinds: Client, clients: int = CLIENTS
) -> tuple[dict[str, list[float]], int]:
    """The seconds of each request by the name of its kind, and how many requests failed."""
    times: dict[str, list[float]] = {kind.__name__: [] for kind in kinds}
    failed, end = 0, perf_counter() + seconds

    async def use(number: int) -> None:
        nonlocal failed
        kind = kinds[number % len(kinds)]
        await asyncio.sleep(number / clients * 5)  # They do not start all at once.
        while perf_counter() < end:
            began = perf_counter()
            try:
                await kind(client)
                times[kind.__name__].append(perf_counter() - began)
            except (httpx.HTTPError, AssertionError, KeyError, ValueError) as error:
                failed += 1
                print(f"{kind.__name__}: {str(error)[:200]}", file=sys.stderr)

    # A connection that is used again may just have been closed by the server.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        await asyncio.gather(*map(use, range(clients)))
    return times, failed


@contextmanager
def serving(name: str) -> Iterator[tuple[str, int]]:
    """The URL of an application in a process of its own, and the process's id."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).parent), "server", "--serve", name, folder]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "running on" in line)
            yield next(word for word in line.split() if word.startswith("http")), process.pid
            process.terminate()


async def resident(process: int, samples: list[float]) -> None:
    """Sample the megabytes of a process that are in memory."""
    while True:
        status = await asyncio.to_thread(Path(f"/proc/{process}/status").read_text)
        samples.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)
        await asyncio.sleep(0.5)


async def ratio(tasks: str, seconds: float) -> float:
    """The p95 of OpenAI's API over that of the same agent in bare FastAPI."""
    found = []
    for name, kind in (("agent", complete), ("plain", echo)):
        with serving(name + tasks) as (url, _):
            await load(url, 3, kind, clients=2)
            times, _ = await load(url, seconds, kind, clients=FEWER)
        found.append(quantiles(times[kind.__name__], n=20)[-1])
    return found[0] / found[1]


async def figures(seconds: float = SECONDS) -> list[Figure]:
    """Failed requests, memory, and the time that the server adds."""
    with serving("bare") as (url, _):
        bare, _ = await load(url, seconds / 2, echo)
    with serving("agent") as (url, process):
        await load(url, 5, complete, follow)  # imports, caches
        memory: list[float] = []
        sampling = asyncio.create_task(resident(process, memory))
        times, failed = await load(url, seconds, complete, follow)
        sampling.cancel()
    third, base = len(memory) // 3, quantiles(bare["echo"], n=20)[-1]
    added = {kind: quantiles(of_kind, n=20)[-1] - base for kind, of_kind in times.items()}
    growth = median(memory[-third:]) / median(memory[:third])
    ratios = {tasks: await ratio(tasks, seconds / 3) for tasks in (" without tasks", "")}
    name = f"{CLIENTS} clients streaming for {seconds:g} s"
    return [
        Figure(f"{name}: failed requests of {sum(map(len, times.values())) + failed:,}", failed, 0),
        Figure(f"{name}: memory in the last third of the time over that in the first", growth, 1.1, "×"),
        Figure("p95 of a streamed reply of a bare FastAPI application", base, None, "s"),
        Figure("what OpenAI's API adds to that p95", added["complete"], None, "s"),
        Figure("what a run with stored events adds to that p95", added["follow"], None, "s"),
        *(
            Figure(f"p95 of {FEWER} clients over that of the agent{tasks} in bare FastAPI", value, 1.3, "×")
            for tasks, value in ratios.items()
        ),
    ]


def main(arguments: Sequence[str]) -> int:
    """Measure and print, or serve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the clients stream")
    parser.add_argument("--serve", nargs=2, metavar=("APP", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        import uvicorn

        name, folder = given.serve
        uvicorn.run(APPS[name](Path(folder)), port=0, access_log=False)
        return 0
    measured = asyncio.run(figures(given.seconds))
    print(*measured, sep="\n")
    return 0 if all(figure.met for figure in measured) else 1
