"""Expert servers for tests, with the backend of `command_backend`: in a thread, or in a process."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from command_backend import CommandBackend, command_models
from served import listening

from jarvis_agent.backends.algorithms.backend import AlgorithmsBackend
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.remote_experts import ExpertServer, RemoteBackend
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.settings import ServerSettings, Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Attempt, Candidate, Resource, Selection, Task, TaskResult
from jarvis_agent.execution.fallback import FallbackChain
from jarvis_agent.execution.inputs import TaskCall
from jarvis_agent.interfaces.experts import create_experts_app

TESTS = Path(__file__).parent


def command_call(text: str, model: str = "org/model", image: Path | None = None) -> Call:
    """A call of the backend of `command_backend`."""
    task = "image-text-to-text" if image else "text-generation"
    inputs: dict[str, Any] = {"text": text}
    if image:
        inputs["image"] = Resource(kind="image", path=image, mime="image/jpeg")
    candidate = Candidate(id=model, task=task, backend="command", local=True)
    return Call(TASKS[task], candidate, inputs, Path, Settings())


async def said(backend: Backend, call: Call) -> str:
    """The text that a call returns."""
    return str(adapt(call.spec, await backend.run(call), call).output["generated_text"])


def command_backend(server: ExpertServer) -> RemoteBackend:
    """A backend whose models run in an expert server."""
    return RemoteBackend(CommandBackend(Settings(), ModelPool(10**9)), server)


async def with_retries(backend: RemoteBackend, text: str, attempts: list[Attempt]) -> TaskResult:
    """The result of a call, as the executor runs it; its ended attempts are added to the list."""
    one = command_call(text)
    task = Task(task=one.spec.name, id=0, args=dict(one.inputs))
    clock = asyncio.get_running_loop().time
    call = TaskCall(task, one.inputs, RunContext(request="", clock=clock), Path, one.settings, attempts)
    selection = Selection(model=one.candidate.id, reason="", candidates=[one.candidate])
    return await FallbackChain(call, one.spec, selection, {"command": backend}).run()


@contextmanager
def served_experts(
    settings: Settings,
    keys: tuple[str, ...] = (),
    backends: Sequence[Any] | None = (CommandBackend, AlgorithmsBackend),
    **limits: int,
) -> Iterator[str]:
    """The address of a server in a thread of this process."""
    app = create_experts_app(settings, ServerSettings(api_keys=keys, **limits), backends=backends)
    with listening(app, grace=1) as address:
        yield address


def environment(folder: Path) -> dict[str, str]:
    """Variables of a process that has the backend as an installed package, and its files in a folder."""
    models = {"JARVIS_MODELS_FILE": str(command_models(folder))}
    (package := folder / "command-1.0.dist-info").mkdir(exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: command\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[jarvis_agent.backends]\ncommand = command_backend:CommandBackend\n"
    )
    paths = [str(folder), str(TESTS / "backends"), str(TESTS.parent)]
    return os.environ | models | {"PYTHONPATH": os.pathsep.join(paths)}


def free_port() -> int:
    """A free port, below those that the system and Ray give to connections of other programs meanwhile."""
    while True:
        port = random.randint(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@contextmanager
def experts_process(folder: Path, port: int, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """`jarvis experts` in a process, once it answers."""
    command = [sys.executable, "-m", "jarvis_agent", "experts", "--port", str(port)]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, env=environment(folder) | variables, stdout=log, stderr=log) as process,
    ):
        try:
            while True:
                assert process.poll() is None, (folder / "log").read_text()
                with suppress(httpx.HTTPError):
                    httpx.get(f"http://127.0.0.1:{port}/healthz")
                    break
                time.sleep(0.05)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
