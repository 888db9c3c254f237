"""Clients that stream from the server at once, on loopback, and what it adds to bare FastAPI.

    python benchmarks server --seconds 60

Model and LLM are doubles; the LLM writes a piece of text every 0.2 s. The bare application streams the
replies of the same double. Half of 200 clients use OpenAI's API, half start a run and follow its events. Then
100 use OpenAI's API, and as many the same agent in bare FastAPI.
"""

import asyncio
import json
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import httpx
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from scheduling import Figure, print_figures
from typer import Option

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.server import create_app
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

CLIENTS, FEWER = 200, 100
TASK = "summarization"
PLAN = json.dumps([{"task": TASK, "id": 0, "dep": [-1], "args": {"text": "a text"}}])
ANSWER = "The text says, in short: " + "these are the words of the answer. " * 4
DELAY_S = 0.2
Client = Callable[[httpx.AsyncClient], Awaitable[None]]
Times = dict[str, list[float]]


async def write_replies(text: str) -> AsyncIterator[str]:
    """What the language model writes for a request."""
    for reply in (PLAN, ANSWER):
        async for piece in ScriptedLLM([reply], delay=DELAY_S).astream(text):
            yield str(piece.text)


def echo_app(write: Callable[[str], AsyncIterator[str]]) -> FastAPI:
    """FastAPI with a route that streams what is written for a text."""
    app = FastAPI()

    @app.post("/echo")
    async def echo(body: dict[str, Any]) -> StreamingResponse:
        events = (f"data: {json.dumps(piece)}\n\n" async for piece in write(body["input"]))
        return StreamingResponse(events, media_type="text/event-stream")

    return app


def serve(name: str, folder: Path) -> None:
    """Serve the "agent", the "plain" one in bare FastAPI, both also "without tasks", or a "bare" model."""
    backend, source = FakeBackend({TASK: {"summary_text": "short"}}), FakeSource([fake_candidate(TASK)])
    plan = "[]" if name.endswith("without tasks") else PLAN
    llm = ScriptedLLM({"plan": plan, "respond": ANSWER, "chat": ANSWER}, delay=DELAY_S)
    unrecorded: Any = deque(maxlen=0)
    llm.calls = backend.calls = source.asked = unrecorded
    settings = Settings(output_dir=folder, offline=True)
    agent = JarvisAgent(llm, sources=[source], backends=[backend], settings=settings)
    if name.startswith("agent"):
        app = create_app(agent, ServerSettings(max_concurrent_runs=CLIENTS, runs_per_minute=10**6))
    elif name.startswith("plain"):
        app = echo_app(lambda text: (chunk.answer async for chunk in agent.astream(text)))
    else:
        app = echo_app(write_replies)
    uvicorn.run(app, port=0, access_log=False)


@contextmanager
def serving(name: str) -> Iterator[tuple[str, int]]:
    """The URL of an application in a process of its own, and the process's id."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(Path(__file__).parent), "serve-app", name, folder]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            line = next(line for line in process.stderr or () if "running on" in line)
            yield next(word for word in line.split() if word.startswith("http")), process.pid
            process.terminate()


async def read_events(client: httpx.AsyncClient, method: str, url: str, **options: Any) -> list[str]:
    """The data of a stream's events."""
    async with client.stream(method, url, **options) as answer:
        return [line[6:] async for line in answer.aiter_lines() if line.startswith("data: ")]


async def echo(client: httpx.AsyncClient) -> None:
    """Use the bare application."""
    events = await read_events(client, "POST", "/echo", json={"input": "Shorten a text"})
    assert len(events) > len(ANSWER) // 8, events


async def complete(client: httpx.AsyncClient) -> None:
    """Use OpenAI's API."""
    messages = [{"role": "user", "content": "Shorten a text"}]
    body = {"model": "jarvis", "messages": messages, "stream": True}
    events = await read_events(client, "POST", "/v1/chat/completions", json=body)
    assert events[-1] == "[DONE]", events


async def follow(client: httpx.AsyncClient) -> None:
    """Start a run and follow its events."""
    run = (await client.post("/runs", json={"input": "Shorten a text"})).json()
    events = await read_events(client, "GET", f"/runs/{run['id']}/events")
    assert json.loads(events[-1])["status"] == "done", events


async def load(url: str, seconds: float, *kinds: Client, clients: int = CLIENTS) -> tuple[Times, int]:
    """The seconds of each request by the name of its kind, and how many requests failed."""
    times: Times = {kind.__name__: [] for kind in kinds}
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


async def resident(process: int, samples: list[float]) -> None:
    """Sample the megabytes of a process that are in memory."""
    while True:
        status = await asyncio.to_thread(Path(f"/proc/{process}/status").read_text)
        samples.append(int(status.split("VmRSS:")[1].split()[0]) / 1024)
        await asyncio.sleep(0.5)


def late(times: Sequence[float]) -> float:
    """The 95th percentile."""
    return quantiles(times, n=20)[-1]


async def ratio(tasks: str, seconds: float) -> float:
    """The p95 of OpenAI's API over that of the same agent in bare FastAPI."""
    found = []
    for name, kind in (("agent", complete), ("plain", echo)):
        with serving(name + tasks) as (url, _):
            await load(url, 3, kind, clients=2)
            times, _ = await load(url, seconds, kind, clients=FEWER)
        found.append(late(times[kind.__name__]))
    return found[0] / found[1]


async def figures(seconds: float) -> list[Figure]:
    """Failed requests, memory, and the time that the server adds."""
    with serving("bare") as (url, _):
        bare, _ = await load(url, seconds / 2, echo)
    with serving("agent") as (url, process):
        await load(url, 5, complete, follow)  # imports, caches
        memory: list[float] = []
        sampling = asyncio.create_task(resident(process, memory))
        times, failed = await load(url, seconds, complete, follow)
        sampling.cancel()
    third, base = len(memory) // 3, late(bare["echo"])
    growth = median(memory[-third:]) / median(memory[:third])
    ratios = {tasks: await ratio(tasks, seconds / 3) for tasks in (" without tasks", "")}
    name = f"{CLIENTS} clients streaming for {seconds:g} s"
    return [
        Figure(f"{name}: failed requests of {sum(map(len, times.values())) + failed:,}", failed, 0),
        Figure(f"{name}: memory in the last third of the time over that in the first", growth, 1.1, "×"),
        Figure("p95 of a streamed reply of a bare FastAPI application", base, None, "s"),
        Figure("what OpenAI's API adds to that p95", late(times["complete"]) - base, None, "s"),
        Figure("what a run with stored events adds to that p95", late(times["follow"]) - base, None, "s"),
        *(
            Figure(f"p95 of {FEWER} clients over that of the agent{tasks} in bare FastAPI", value, 1.3, "×")
            for tasks, value in ratios.items()
        ),
    ]


def main(seconds: Annotated[float, Option(help="how long the clients stream")] = 60.0) -> None:
    """Measure and print."""
    print_figures(asyncio.run(figures(seconds)))
