"""A server on this machine, for the tests of `jarvis_agent.interfaces.server`."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import langserve.client
import uvicorn
from langserve import RemoteRunnable
from PIL import Image

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.interfaces.server import create_app
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

# LangServe's client starts a thread pool when it is collected in a thread with a running loop. That can be
# the server's, while it holds the lock which a new pool needs: then nothing in this process goes on.
langserve.client._close_clients = lambda sync_client, async_client: sync_client.close()

CAT = Path(__file__).parent.parent / "examples" / "cat.jpg"
ANSWER = "It is a tabby cat, and this is its outline."


def plan_for(*names: str) -> str:
    """A plan that describes the first file and draws the outline of it."""
    tasks = [
        {"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": names[0]}},
        {"task": "canny-control", "id": 1, "dep": [-1], "args": {"image": names[-1]}},
    ]
    return json.dumps(tasks)


@dataclass
class Served:
    """A running server and what is behind it; `plan` is what its language model plans."""

    url: str
    llm: ScriptedLLM
    backend: FakeBackend
    outputs: Path
    script: dict[str, Any]

    @property
    def runs(self) -> Path:
        """Where the runs of clients write."""
        return self.outputs / "served"

    def forget(self) -> Self:
        """This server without a past."""
        shutil.rmtree(self.outputs, ignore_errors=True)
        self.script["plan"] = "[]"
        self.llm.calls.clear()
        self.backend.calls.clear()
        return self

    def remote(self, thread: str | None = None) -> RemoteRunnable:
        headers = {"X-Thread-Id": thread} if thread else {}
        return RemoteRunnable(f"{self.url}/agent", headers=headers)

    @asynccontextmanager
    async def async_remote(self) -> AsyncIterator[RemoteRunnable]:
        remote = self.remote()
        yield remote
        await remote.async_client.aclose()

    def upload(self, content: bytes | None = None, name: str = "cat.jpg") -> httpx.Response:
        return httpx.post(
            f"{self.url}/files", files={"file": (name, CAT.read_bytes() if content is None else content)}
        )

    def uploaded_cat(self) -> str:
        """The name of an uploaded cat, which the language model plans with from now on."""
        name: str = self.upload().json()["name"]
        self.script["plan"] = plan_for(name)
        return name

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path)


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The URL of a server that runs in a thread of its own."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [free]})
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{free.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def agent_of(
    output_dir: Path, script: dict[str, Any], results: dict[str, Any] | None = None, **limits: Any
) -> JarvisAgent:
    """An agent with a fake expert for each of `results`; its language model plans `script["plan"]`."""
    results = results or {
        "image-to-text": [{"generated_text": "a tabby cat"}],
        "canny-control": Image.new("L", (8, 8)),
    }
    return JarvisAgent(
        model=ScriptedLLM(
            {"plan": lambda messages: script["plan"], "respond": ANSWER, "chat": "Good morning."}
        ),
        sources=[FakeSource([fake_candidate(task) for task in results])],
        backends=[FakeBackend(results)],
        settings=Settings(**{"output_dir": output_dir, "max_file_bytes": 100_000} | limits),
    )


@contextmanager
def serving(agent: JarvisAgent, script: dict[str, Any]) -> Iterator[Served]:
    """A server of an agent that `agent_of` made with the same script."""
    with listening(create_app(agent)) as url:
        backend = agent.registry.backends["fake"]
        assert isinstance(agent.model, ScriptedLLM)
        assert isinstance(backend, FakeBackend)
        yield Served(url, agent.model, backend, agent.settings.output_dir, script)
