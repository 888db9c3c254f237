"""The server of `jarvis_agent.interfaces.server` without a socket, and LangServe's client."""

import asyncio
import json
import shutil
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import httpx
import langserve.client
import openai
import uvicorn
from langserve import RemoteRunnable
from PIL import Image
from starlette.testclient import TestClient

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.server import create_app
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

# LangServe's client starts a thread pool when it is collected in a thread with a running loop. That can be
# the server's, while it holds the lock which a new pool needs: then nothing in this process goes on.
langserve.client._close_clients = lambda sync_client, async_client: sync_client.close()

CAT = Path(__file__).parent.parent / "examples" / "cat.jpg"
ANSWER = "It is a tabby cat, and this is its outline."
BASE = "http://testserver"


def plan_for(*names: str) -> str:
    """A plan that describes the first file and draws the outline of the last."""
    tasks = [
        {"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": names[0]}},
        {"task": "canny-control", "id": 1, "dep": [-1], "args": {"image": names[-1]}},
    ]
    return json.dumps(tasks)


@cache
def routes() -> list[tuple[str, str]]:
    """The method and the path of each route of a server."""
    paths = create_app(agent_of(Path("unused"))).openapi()["paths"]
    return [(method, path) for path, methods in paths.items() for method in methods]


def body_of(path: str, file: str | None = None, attached: Sequence[str] = ()) -> dict[str, Any]:
    """A request to a route that starts a run or calls a task, perhaps about a file."""
    text = f"What is in {file}?" if file else "Hello"
    asked: dict[str, Any] = {"input": text, "files": list(attached)}
    if path == "/runs":
        return asked
    if path.startswith("/tools"):
        asked = {"image": file or "none.jpg"}
    if path.startswith(("/agent", "/tools")):
        return {"input": asked, "inputs": [asked]}
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": name}} for name in attached]
    messages = [{"role": "user", "content": [{"type": "text", "text": text}, *parts]}]
    return {"model": "jarvis", "messages": messages, "input": text, "prompt": text}


@dataclass
class Served:
    """A running application of an agent of `agent_of`, and its parts."""

    client: TestClient
    llm: ScriptedLLM
    backend: FakeBackend
    outputs: Path
    agent: JarvisAgent

    @property
    def script(self) -> dict[str, Any]:
        return script_of(self.agent)

    @property
    def runs(self) -> Path:
        """Where the runs of clients without keys write."""
        return self.outputs / "served" / "local"

    @property
    def uploads(self) -> Path:
        """Where their uploads are."""
        return self.outputs / "uploads" / "local"

    def forget(self) -> Self:
        """This server without earlier files and calls."""
        for files in (self.uploads, self.runs):
            shutil.rmtree(files.parent, ignore_errors=True)
        self.script["plan"] = "[]"
        self.llm.calls.clear()
        self.backend.calls.clear()
        return self

    def remote(self, thread: str | None = None) -> RemoteRunnable:
        return remote(self.client, {"X-Thread-Id": thread} if thread else {})

    def tool(self, task: str) -> RemoteRunnable:
        return remote(self.client, path=f"/tools/{task}")

    @asynccontextmanager
    async def async_remote(self) -> AsyncIterator[RemoteRunnable]:
        async with async_remote(self.client.app) as found:
            yield found

    def upload(self, content: bytes | None = None, name: str = "cat.jpg") -> httpx.Response:
        file = (name, CAT.read_bytes() if content is None else content)
        return self.client.post("/files", files={"file": file})

    def uploaded_cat(self) -> str:
        """The name of an uploaded cat, which the language model plans with from now on."""
        name: str = self.upload().json()["name"]
        self.script["plan"] = plan_for(name)
        return name

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path)


class _InProcess(httpx.ASGITransport, httpx.BaseTransport):
    """Sends synchronous requests through a test client, asynchronous ones straight to the application."""

    def __init__(self, client: TestClient) -> None:
        super().__init__(client.app)
        self._client = client

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._client.request(
            request.method, str(request.url), headers=dict(request.headers), content=request.read()
        )
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content)


def remote(client: TestClient, headers: dict[str, str] | None = None, path: str = "/agent") -> RemoteRunnable:
    """LangServe's client of an application in this process: of its agent, or of a tool."""
    return RemoteRunnable(f"{BASE}{path}", headers=headers, client_kwargs={"transport": _InProcess(client)})


@asynccontextmanager
async def async_remote(app: Any) -> AsyncIterator[RemoteRunnable]:
    """The same, to be used in the test's own event loop."""
    found = remote(TestClient(app, base_url=BASE))
    yield found
    await found.async_client.aclose()


def agent_of(
    output_dir: Path, results: dict[str, Any] | None = None, plan: Any = "[]", **limits: Any
) -> JarvisAgent:
    """An agent with a fake expert for each of `results`."""
    results = results or {
        "image-to-text": [{"generated_text": "a tabby cat"}],
        "canny-control": Image.new("L", (8, 8)),
    }
    return JarvisAgent(
        model=ScriptedLLM({"plan": plan, "respond": ANSWER, "chat": "Good morning."}),
        sources=[FakeSource([fake_candidate(task) for task in results])],
        backends=[FakeBackend(results)],
        settings=Settings(**{"output_dir": output_dir, "max_file_bytes": 100_000} | limits),
    )


def script_of(agent: JarvisAgent) -> dict[str, Any]:
    """The replies of its language model by stage, which may be changed."""
    assert isinstance(agent.model, ScriptedLLM)
    replies: dict[str, Any] = agent.model.replies
    return replies


@contextmanager
def serving(agent: JarvisAgent, **settings: Any) -> Iterator[Served]:
    """A running application of an agent that `agent_of` made."""
    server = ServerSettings(**{"runs_per_minute": 10_000} | settings)
    with TestClient(create_app(agent, server), base_url=BASE, raise_server_exceptions=False) as client:
        backend = agent.stages.registry.backends["fake"]
        assert isinstance(agent.model, ScriptedLLM)
        assert isinstance(backend, FakeBackend)
        yield Served(client, agent.model, backend, agent.settings.output_dir, agent)


@contextmanager
def listening(app: Any, log_level: str = "error", grace: int | None = None, **options: Any) -> Iterator[str]:
    """The URL of an application that uvicorn serves on a free port of this machine.

    At the end, open requests have `grace` seconds to end; with None, as many as they need.
    """
    config = uvicorn.Config(app, port=0, log_level=log_level, timeout_graceful_shutdown=grace, **options)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


class Live:
    """A server on a port of this machine, its parts, and OpenAI's client of it."""

    def __init__(self, url: str, agent: JarvisAgent) -> None:
        self.url, self.agent = url, agent
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)

    @property
    def llm(self) -> ScriptedLLM:
        assert isinstance(self.agent.model, ScriptedLLM)
        return self.agent.model

    @property
    def script(self) -> dict[str, Any]:
        return script_of(self.agent)

    @property
    def backend(self) -> FakeBackend:
        backend = self.agent.stages.registry.backends["fake"]
        assert isinstance(backend, FakeBackend)
        return backend

    def ask(self, messages: list[Any], **more: Any) -> Any:
        return self.client.chat.completions.create(model="jarvis", messages=messages, **more)

    def post(self, body: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        return httpx.post(f"{self.url}/v1/chat/completions", content=content, headers=headers)


@contextmanager
def live_server(agent: JarvisAgent, **settings: Any) -> Iterator[Live]:
    """A running server of an agent that `agent_of` made."""
    server = ServerSettings(**{"runs_per_minute": 10_000} | settings)
    with listening(create_app(agent, server)) as url:
        yield Live(url, agent)


def endless_expert() -> tuple[Callable[[Call], Awaitable[Any]], threading.Event, threading.Event]:
    """An expert that never ends by itself, and the events that it was entered and stopped."""
    entered, stopped = threading.Event(), threading.Event()

    async def never(call: Call) -> Any:
        entered.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    return never, entered, stopped
