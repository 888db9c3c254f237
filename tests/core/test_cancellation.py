"""A run cancelled at any stage leaves no task, thread, open file or partial file."""

import asyncio
import signal
import socket
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from small_agents import DESCRIBE, small_agent
from threads import running_threads
from waiting import wait_until

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.execution.fallback import HFTaskRunner
from jarvis_agent.media.download import fetch
from jarvis_agent.testing import ScriptedLLM

REQUEST = "Describe a.jpg"
OPEN = Path("/proc/self/fd")


pytestmark = pytest.mark.usefixtures("home")


def open_files() -> set[str]:
    """Open files below /tmp, and open connections."""
    found = set()
    for descriptor in OPEN.iterdir():
        try:
            found.add(str(descriptor.readlink()))
        except OSError:
            continue
    return {name for name in found if name.startswith(("socket:", "/tmp"))}


needs_proc = pytest.mark.skipif(not OPEN.is_dir(), reason="needs /proc")


@dataclass
class Stuck:
    """A place where a run hangs until it is cancelled; sets `begun` and then `left`."""

    begun: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    async def wait(self, *_: Any, **__: Any) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()

    async def arrived(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, 120)


def stuck_agent(stage: str, stuck: Stuck, monkeypatch: pytest.MonkeyPatch) -> JarvisAgent:
    """An agent whose run hangs at a stage."""
    experts: dict[str, Any] = {}

    async def write(call: Call) -> Any:
        call.new_path(".png").write_bytes(b"a part of it")
        await stuck.wait()

    if stage == "run":
        experts["image-to-text"] = write
    if stage == "choice":
        monkeypatch.setattr(HFTaskRunner, "select", stuck.wait)
    if stage in ("plan", "select", "respond"):
        original = ScriptedLLM._astream

        async def stream(self: Any, messages: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
            if messages[0].additional_kwargs.get("jarvis_stage") == stage:
                await stuck.wait()
            async for chunk in original(self, messages, *args, **options):
                yield chunk

        monkeypatch.setattr(ScriptedLLM, "_astream", stream)
    agent, _, _ = small_agent(DESCRIBE, experts, models=["a", "b"], select="{}")
    return agent


STAGES = ["plan", "choice", "select", "run", "respond"]


@needs_proc
@pytest.mark.parametrize("stage", STAGES)
async def test_a_run_can_be_cancelled_at_every_stage(
    stage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stuck = Stuck()
    agent = stuck_agent(stage, stuck, monkeypatch)
    tasks, threads, files = asyncio.all_tasks(), running_threads(), open_files()
    running = asyncio.create_task(agent.ainvoke(REQUEST))
    await stuck.arrived()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await agent.aclose()
    assert stuck.left.is_set()
    assert asyncio.all_tasks() == tasks
    wait_until(lambda: running_threads() <= threads)
    assert open_files() <= files
    assert not list((tmp_path / "outputs").rglob("*.*"))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs pthread_kill")
@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupted_sync_call_stops_its_run(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Ctrl-C, KeyboardInterrupt is raised after the run has stopped."""
    stuck = Stuck()
    agent = stuck_agent(stage, stuck, monkeypatch)

    def interrupt() -> None:
        stuck.begun.wait(120)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        agent.invoke(REQUEST)
    assert stuck.left.is_set()
    agent.close()


@dataclass
class HangingServer:
    """Answers one request with `reply`, and then waits until the client disconnects."""

    reply: bytes
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + self.reply)
        await writer.drain()
        self.asked.set()
        while await reader.read(65536):
            continue
        self.disconnected.set()
        writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serves inside the block; yields the URL."""
        async with await asyncio.start_server(self._answer, "127.0.0.1", 0, family=socket.AF_INET) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def see_cancelled(self, call: Coroutine[Any, Any, Any]) -> None:
        """Cancel a call that has received the reply, and wait until it has disconnected."""
        running = asyncio.create_task(call)
        await asyncio.wait_for(self.asked.wait(), 120)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(self.disconnected.wait(), 120)


@needs_proc
async def test_a_cancelled_download_disconnects_and_removes_its_partial_file(tmp_path: Path) -> None:
    target, settings = tmp_path / "part.jpg", Settings(allow_private_urls=True)
    server = HangingServer(b"Content-Length: 1000000\r\n\r\n" + b"x" * 70_000)
    files = {name for name in open_files() if not name.startswith("socket:")}
    async with server.serving() as url:
        await server.see_cancelled(fetch(f"{url}/a.jpg", target, settings))
    assert not target.exists()
    assert {name for name in open_files() if not name.startswith("socket:")} == files


async def test_a_cancelled_run_closes_its_connection_to_the_language_model() -> None:
    pytest.importorskip("langchain_openai")
    server = HangingServer(b"Content-Type: text/event-stream\r\n\r\n")
    async with server.serving() as url:
        settings = Settings(base_url=f"{url}/v1", model="m", offline=True)
        async with JarvisAgent(settings=settings, sources=[], backends=[]) as agent:
            await server.see_cancelled(agent.ainvoke("hello"))


async def test_a_run_cancelled_twice_leaves_no_empty_directory(tmp_path: Path) -> None:
    """The end of an event loop cancels a run both directly and through its caller."""
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
            wait_until(lambda: not list(out.iterdir()))
        finally:
            let_go.set()
