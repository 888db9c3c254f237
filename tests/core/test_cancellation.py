"""A run that is stopped, at whichever stage and by whom, leaves no task, thread, open file or half a file."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from small_agents import DESCRIBE, small_agent

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import is_cancelled
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.download import fetch
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.tools.hf_task_tool import HFTaskRunner

REQUEST = "Describe a.jpg"
OPEN = Path("/proc/self/fd")


pytestmark = pytest.mark.usefixtures("home")


def threads() -> set[threading.Thread]:
    """Those beside the reserves of threads and the portal, which stay for the next call."""
    kept = ("asyncio_", "jarvis-sync", "AnyIO")
    return {thread for thread in threading.enumerate() if not thread.name.startswith(kept)}


def open_files() -> set[str]:
    """What this process has open that is a file of the test or a connection."""
    found = set()
    for descriptor in OPEN.iterdir():
        try:
            found.add(str(descriptor.readlink()))
        except OSError:
            continue
    return {name for name in found if name.startswith(("socket:", "/tmp"))}


needs_proc = pytest.mark.skipif(not OPEN.is_dir(), reason="needs /proc")


def until(true: Callable[[], bool]) -> bool:
    """Wait a little for what another thread does."""
    for _ in range(500):
        if true():
            return True
        time.sleep(0.01)
    return False


@dataclass
class Stuck:
    """A place where a run hangs until it is stopped: `begun` when it is there, `left` when it is gone."""

    begun: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    async def wait(self, *_: Any, **__: Any) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()

    async def arrived(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, 20)


def stuck_agent(stage: str, stuck: Stuck, monkeypatch: pytest.MonkeyPatch) -> JarvisAgent:
    """An agent whose run hangs at that stage."""
    experts: dict[str, Any] = {}
    if stage == "run":
        experts["image-to-text"] = stuck.wait
    if stage == "replan":
        experts["image-to-text"] = UnsupportedError("no")
    if stage == "choice":
        monkeypatch.setattr(HFTaskRunner, "select", stuck.wait)
    if stage in ("plan", "select", "replan", "respond"):
        original = ScriptedLLM._astream

        async def stream(self: Any, messages: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
            if messages[0].additional_kwargs.get("jarvis_stage") == stage:
                await stuck.wait()
            async for chunk in original(self, messages, *args, **options):
                yield chunk

        monkeypatch.setattr(ScriptedLLM, "_astream", stream)
    agent, _, _ = small_agent(DESCRIBE, experts, models=["a", "b"], select="{}", settings=Settings(retries=0))
    return agent


STAGES = ["plan", "choice", "select", "run", "replan", "respond"]


@needs_proc
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("way", ["cancel", "leave"])
async def test_a_run_is_stopped_at_every_stage(
    stage: str, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stuck = Stuck()
    agent = stuck_agent(stage, stuck, monkeypatch)
    tasks, running_threads, files = asyncio.all_tasks(), threads(), open_files()
    if way == "cancel":
        running = asyncio.create_task(agent.ainvoke(REQUEST))
        await stuck.arrived()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        async with aclosing(agent.events(REQUEST)) as events:
            reading = asyncio.create_task(_read(events))
            await stuck.arrived()
            reading.cancel()
            await asyncio.wait([reading])
    await agent.aclose()
    assert stuck.left.is_set()
    assert asyncio.all_tasks() == tasks
    assert until(lambda: threads() <= running_threads)
    assert open_files() <= files
    assert not list((tmp_path / "outputs").rglob("*.*"))


@pytest.mark.parametrize("by", ["a cancellation", "a time limit"])
async def test_leaving_a_run_can_itself_be_cancelled(by: str) -> None:
    """Whoever leaves a stream waits until its run has stopped, and no longer if he is stopped himself."""
    begun, stopping, let_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(call: Call) -> Any:
        try:
            begun.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopping.set()
            await let_go.wait()
            raise

    agent, _, _ = small_agent(DESCRIBE, {"image-to-text": slow})
    went_on: list[str] = []

    async def leave() -> None:
        async with aclosing(agent.events(REQUEST)) as events:
            async for event in events:
                if event.kind == "started":
                    await begun.wait()
                    break
        went_on.append("after the stream")

    async def leave_in_time(late: asyncio.Timeout) -> None:
        async with late:
            await leave()

    late = asyncio.timeout(None)
    leaving = asyncio.create_task(leave() if by == "a cancellation" else leave_in_time(late))
    async with asyncio.timeout(30):
        await stopping.wait()
        if by == "a cancellation":
            leaving.cancel()
        else:
            late.reschedule(0)
        with pytest.raises(asyncio.CancelledError if by == "a cancellation" else TimeoutError):
            await leaving
    assert not went_on
    let_go.set()
    await agent.aclose()


async def _read(events: AsyncIterator[Any]) -> None:
    async for _ in events:
        continue


@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupt_of_a_sync_call_stops_the_run(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does: the caller's wait ends with KeyboardInterrupt, but not before the run has stopped."""
    stuck = Stuck()
    agent = stuck_agent(stage, stuck, monkeypatch)

    class Interrupted(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            assert stuck.begun.wait(timeout=20)
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("jarvis_agent.core.sync.Future", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            agent.invoke(REQUEST)
    assert stuck.left.is_set()
    agent.close()


class Dripping(BaseHTTPRequestHandler):
    """Sends a few bytes of many, and then nothing until the client is gone."""

    gone: threading.Event

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.wfile.write(b"x" * 70_000)
        self.connection.settimeout(20)
        try:
            self.connection.recv(1)
        except TimeoutError:
            return
        self.gone.set()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def dripping() -> Iterator[tuple[str, threading.Event]]:
    gone = threading.Event()
    handler = type("Handler", (Dripping,), {"gone": gone})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a.jpg", gone
        server.shutdown()


@needs_proc
async def test_a_fetch_that_is_cancelled_hangs_up_and_removes_its_half_file(
    dripping: tuple[str, threading.Event], tmp_path: Path
) -> None:
    url, gone = dripping
    files = {name for name in open_files() if not name.startswith("socket:")}
    target = tmp_path / "half.jpg"
    running = asyncio.create_task(fetch(url, target, Settings(allow_private_urls=True)))
    assert await asyncio.to_thread(until, lambda: target.exists() and target.stat().st_size > 0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not target.exists()
    assert await asyncio.to_thread(gone.wait, 20)
    assert {name for name in open_files() if not name.startswith("socket:")} == files


class Counting(LocalBackend):
    """A local model that computes step by step, and looks between two steps whether it is still wanted."""

    name = "counting"

    def __init__(self, pool: ModelPool) -> None:
        super().__init__(pool)
        self.begun, self.stopped = threading.Event(), threading.Event()

    def unsupported_reason(self, spec: Any, candidate: Candidate) -> str | None:
        return None

    def load(self, spec: Any, candidate: Candidate, settings: Settings) -> Any:
        return self.count

    def count(self, call: Call) -> str:
        self.begun.set()
        while not is_cancelled():
            time.sleep(0.005)
        self.stopped.set()
        return "stopped"


async def test_local_inference_stops_between_its_steps_and_its_thread_ends(tmp_path: Path) -> None:
    before = threads()
    pool = ModelPool(10**9)
    backend = Counting(pool)
    candidate = Candidate(id="m", task="summarization", backend="counting")
    call = Call(TASKS["summarization"], candidate, {"text": "a"}, lambda s: tmp_path / s, Settings())
    running = asyncio.create_task(backend.run(call))
    assert await asyncio.to_thread(backend.begun.wait, 20)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(backend.stopped.wait, 20)
    await pool.close()
    assert until(lambda: threads() <= before)


async def test_a_connection_to_a_language_model_is_closed_when_the_run_is_cancelled() -> None:
    """A real client against a server that begins a reply and falls silent: the server sees it hang up."""
    pytest.importorskip("langchain_openai")
    closed = asyncio.Event()
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        await writer.drain()
        asked.set()
        while await reader.read(65536):
            continue
        closed.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, family=socket.AF_INET)
    port = server.sockets[0].getsockname()[1]
    settings = Settings(base_url=f"http://127.0.0.1:{port}/v1", model="m", offline=True)
    agent = JarvisAgent(settings=settings, sources=[], backends=[])
    running = asyncio.create_task(agent.ainvoke("hello"))
    await asyncio.wait_for(asked.wait(), 20)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(closed.wait(), 20)
    await agent.aclose()
    server.close()
    await server.wait_closed()


async def test_a_run_that_is_stopped_twice_leaves_no_empty_directory(tmp_path: Path) -> None:
    """The end of an event loop stops whatever runs: a run by itself, and once more through its caller."""
    began, let_go = asyncio.Event(), threading.Event()

    async def expert(call: Call) -> None:
        began.set()
        await asyncio.Event().wait()

    out = tmp_path / "out"
    agent, _, _ = small_agent(experts={"image-to-text": expert}, settings=Settings(output_dir=out))
    with ThreadPoolExecutor(1) as only:
        asyncio.get_running_loop().set_default_executor(only)
        running = asyncio.create_task(agent.ainvoke(REQUEST))
        await began.wait()
        assert list(out.iterdir())
        only.submit(let_go.wait)
        try:
            for _ in range(2):
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()
                await asyncio.sleep(0.05)
            await asyncio.wait([running])
            assert until(lambda: not list(out.iterdir()))
        finally:
            let_go.set()
