"""`jarvis experts`: local models in another process, with its faults."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import jarvis
from expert_servers import (
    command_backend,
    command_call,
    environment,
    experts_process,
    free_port,
    with_retries,
)
from pydantic import SecretStr
from small_agents import picture, plan
from starlette.testclient import TestClient

from jarvis_agent import JarvisAgent
from jarvis_agent.backends import background
from jarvis_agent.backends.algorithms.backend import AlgorithmsBackend
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.experts import protocol
from jarvis_agent.backends.experts.protocol import write_call
from jarvis_agent.backends.experts.wire import MAX_LINE_BYTES, write_message
from jarvis_agent.backends.jobs import activities
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.registry import make_backends
from jarvis_agent.backends.remote import AbsentError, ExpertServer, RemoteBackend
from jarvis_agent.backends.starter.backend import StarterBackend
from jarvis_agent.core.errors import BadInputError, ConfigError, ExpertError, UnsupportedError
from jarvis_agent.core.settings import ServerSettings, Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Attempt, Candidate, Resource
from jarvis_agent.interfaces.cli import doctor
from jarvis_agent.interfaces.experts import app as app_module
from jarvis_agent.interfaces.experts import create_experts_app
from jarvis_agent.selection.placement import place
from jarvis_agent.testing import FakeSource, ScriptedLLM

KEY = "key-of-a-client"
ROOT = Path(__file__).parents[2]
OTHER_PYTHON = ROOT / ".venv-agent" / "bin" / "python"
"""A Python of another version without extras, which `make test-all` installs."""


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def process(port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The server of most tests, which none of them ends."""
    variables = {"JARVIS_API_KEYS": KEY, "JARVIS_MAX_FILE_BYTES": "100000"}
    with experts_process(folder, port, **variables) as process:
        yield process


@pytest.fixture
def server(process: subprocess.Popen[bytes], port: int) -> ExpertServer:
    return ExpertServer(f"http://127.0.0.1:{port}", KEY)


async def until(happened: Callable[[], Any]) -> None:
    while not happened():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def test_a_call_runs_in_the_server_and_says_so(
    server: ExpertServer, process: subprocess.Popen[bytes]
) -> None:
    call = command_call("echo é")
    assert (await command_backend(server).run(call)).startswith(f"é by {process.pid} ")
    assert call.trace == {"endpoint": server.address}


async def test_a_file_goes_there_and_an_image_comes_back(server: ExpertServer, tmp_path: Path) -> None:
    backend = RemoteBackend(AlgorithmsBackend(Settings(), ModelPool(0)), server)
    image = Resource(kind="image", path=picture(tmp_path / "a.jpg"), mime="image/jpeg")
    candidate = Candidate(id="pillow/resize", task="resize-image", backend="algorithms")
    inputs = {"image": image, "width": 8, "height": 6}
    raw = await backend.run(Call(TASKS["resize-image"], candidate, inputs, Path, Settings()))
    assert raw.size == (8, 6)


async def test_a_wrong_key_is_refused_and_the_message_says_what_to_set(server: ExpertServer) -> None:
    for key in (None, "wrong"):
        with pytest.raises(ConfigError, match=r"answers 401: .*API key.*JARVIS_EXPERTS_KEY"):
            await command_backend(replace(server, key=key)).run(command_call("echo"))


def test_only_its_health_is_told_without_a_key(server: ExpertServer) -> None:
    refused = [httpx.get(f"{server.address}/{name}").status_code for name in ("models", "metrics")]
    assert refused == [401, 401]
    assert httpx.get(f"{server.address}/healthz").json() == {"status": "ok"}


async def test_an_error_of_a_model_keeps_its_class_and_names_no_path_of_the_server(
    server: ExpertServer,
) -> None:
    with pytest.raises(BadInputError, match=r"cannot read …/weights\.bin") as caught:
        await command_backend(server).run(command_call("fail cannot read /home/ada/models/weights.bin"))
    assert "/home" not in str(caught.value)


def sent_raw(server: ExpertServer, task: str, inputs: Any, **candidate: Any) -> str:
    """The answer to a message that this package would not write."""
    given = {"id": "org/model", "task": task, "backend": "command", "metadata": {}, **candidate}
    message = {"task": task, "candidate": given, "settings": {}, "inputs": inputs, "hints": {}, "depth": None}
    body = write_message(message, protocol=protocol.PROTOCOL, version="0", model={})
    headers = {"Authorization": f"Bearer {KEY}"}
    return httpx.post(f"{server.address}/run", content=body, headers=headers).text


def test_a_request_for_a_path_or_url_is_refused(server: ExpertServer, tmp_path: Path) -> None:
    (secret := tmp_path / "secret.png").write_bytes(b"pixels")
    for asked in (str(secret), "https://example.org/a.png"):
        assert "reads no paths and URLs" in sent_raw(server, "image-classification", {"image": asked})
        assert "reads no paths" in sent_raw(server, "image-classification", {"image": [{"image": asked}]})
    assert "reads no paths" in sent_raw(
        server, "text-generation", {"text": "echo"}, metadata={"base_model": str(tmp_path)}
    )
    # The place of weights in a call is ignored.
    assert "echoed by" in sent_raw(server, "text-generation", {"text": "echo echoed"}, path=str(tmp_path))


def test_a_body_that_is_no_message_is_answered_with_an_error(server: ExpertServer) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    for body in (
        b"",
        b"\xff\n",
        b"[]\n",
        b"{}\n",
        b"[" * 100_000 + b"\n",
        write_message({}, protocol=protocol.PROTOCOL, model={}),
    ):
        answer = httpx.post(f"{server.address}/run", content=body, headers=headers)
        assert json.loads(answer.content.splitlines()[1])["error"] in ("BadInputError", "UnsupportedError")


async def test_a_larger_file_than_the_server_takes_is_refused(server: ExpertServer, tmp_path: Path) -> None:
    (file := tmp_path / "large.bin").write_bytes(bytes(100_001 + MAX_LINE_BYTES))
    with pytest.raises(UnsupportedError, match=r"answers 413: .*JARVIS_MAX_FILE_BYTES"):
        await command_backend(server).run(with_file(file))


async def test_a_server_of_another_version_is_named_and_not_used_where_it_was_not_asked_for(
    server: ExpertServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "PROTOCOL", 7)
    with pytest.raises(UnsupportedError, match=r"speaks protocol 2 .*its caller 7 .*update the older one"):
        await command_backend(server).run(command_call("echo"))
    monkeypatch.setattr(doctor, "PROTOCOL", 7)
    shown = doctor.check_experts(Settings(experts=server.address, experts_key=SecretStr(KEY)))
    assert (shown.state, shown.advice) == ("problem", "update the older one")
    assert "speaks protocol 2, and this is 7" in shown.found


def with_file(path: Path) -> Call:
    """A call that has a file beside its text."""
    image = Resource(kind="image", path=path, mime="image/jpeg")
    return replace(command_call("echo"), inputs={"text": "echo", "image": image})


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limit of a running process is Linux's")
async def test_a_full_disk_of_the_server_fails_the_call_alone(
    server: ExpertServer, process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    backend, file = command_backend(server), picture(tmp_path / "a.jpg")
    await backend.run(with_file(file))  # the server finds its temporary folder by writing to it
    unlimited = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        with pytest.raises(ExpertError, match=rf"server {server.address} failed: OSError: .*too large"):
            await backend.run(with_file(file))
        assert (await backend.run(command_call("echo"))).startswith(" by")  # it needs no disk
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
    assert (await backend.run(with_file(file))).startswith(" by")


@pytest.mark.starter
async def test_a_sentence_of_forty_kilobytes_is_refused_by_the_voice(server: ExpertServer) -> None:
    backend = RemoteBackend(StarterBackend(Settings(), ModelPool(0)), server)
    voice = Candidate(id="maureesewilliams/hibari", task="text-to-speech", backend="starter", local=True)
    for sentence in ("word " * 8_000, "a" * 40_000):
        call = Call(TASKS["text-to-speech"], voice, {"text": sentence}, Path, Settings())
        with pytest.raises(UnsupportedError, match=r"at most 20,000 .* has 40,000; .*or use a hosted model$"):
            await backend.run(call)


async def test_a_client_that_goes_away_ends_its_call(server: ExpertServer, tmp_path: Path) -> None:
    running = asyncio.create_task(command_backend(server).run(command_call(f"hold {tmp_path}")))
    await until(lambda: list(tmp_path.iterdir()))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until((tmp_path / "cancelled").exists)


async def test_what_a_model_does_there_is_shown_here(server: ExpertServer, tmp_path: Path) -> None:
    running = asyncio.create_task(command_backend(server).run(command_call(f"hold {tmp_path}")))
    await until(activities.get)
    assert str(activities.get()[0]) == "org/model: 4 of at most 9 tokens written"
    (tmp_path / "go").touch()
    assert await running
    assert not activities.get()


async def test_a_model_is_loaded_before_its_call_and_listed(server: ExpertServer) -> None:
    later, seen, loaded = command_call("echo", "org/later", size=5), list[str](), asyncio.Event()

    def notify(event: str) -> None:
        seen.append(event)
        if event == "loaded":
            loaded.set()

    release = command_backend(server).prepare(later.spec, later.candidate, later.settings, 1, notify)
    await loaded.wait()
    release()
    assert seen == ["loading", "loaded"]
    listed = server.status()["loaded"]
    assert {"model": "org/later", "backend": "command", "calls": 0, "bytes": 5} in listed


async def test_a_reservation_ends_with_its_client(server: ExpertServer, folder: Path) -> None:
    slow, backend = command_call("echo", size=5, slow="load"), command_backend(server)
    release = backend.prepare(slow.spec, slow.candidate, slow.settings, 1, lambda _: None)
    await until((folder / "load").exists)
    release()
    await until((folder / "load" / "cancelled").exists)


async def test_two_hundred_calls_at_once_are_answered(server: ExpertServer) -> None:
    backend = command_backend(server)
    answers = await asyncio.gather(*(backend.run(command_call(f"echo {n}")) for n in range(200)))
    assert [answer.split()[0] for answer in answers] == [str(n) for n in range(200)]


async def test_a_server_that_is_not_there_is_named_with_the_command_that_starts_it() -> None:
    port = free_port()
    absent = ExpertServer(f"http://127.0.0.1:{port}")
    with pytest.raises(
        AbsentError, match=rf"127\.0\.0\.1:{port} cannot be reached.*`jarvis experts --port {port}`"
    ):
        await command_backend(absent).run(command_call("echo"))
    here = await command_backend(replace(absent, may_be_absent=True)).run(command_call("echo here"))
    assert f"here by {os.getpid()}" in here


def test_settings_limit_what_a_caller_may_ask_for(tmp_path: Path) -> None:
    asked = Settings(allow_pickle=True, trust_remote_code=True, max_download=9, seed=7, api_key="of-the-llm")
    body = write_call(replace(command_call("echo"), settings=asked))
    assert b"of-the-llm" not in body
    own = Settings(max_download=10**6, memory_budget=5, device="cpu", allow_pickle=True)
    found = protocol.read_call(body, Path, own)[0].settings
    assert (found.allow_pickle, found.trust_remote_code) == (True, False)
    assert (found.max_download, found.seed, found.device, found.memory_limit) == (9, 7, "cpu", 5)


def test_models_run_on_the_server_and_algorithms_and_own_folders_here(tmp_path: Path) -> None:
    settings = Settings(experts="http://head.example:8765", offline=True)
    made = make_backends(settings, ModelPool(0))
    model = Candidate(id="org/large", task="image-classification", size=10**15, library="transformers")
    remote = {one.name for one in made if isinstance(one, RemoteBackend) and one.server_for(model)}
    assert remote == {"starter", "transformers", "sentence-transformers", "diffusers", "sklearn", "chronos"}
    placed = place(model, TASKS[model.task], made, settings)
    assert placed.reason == "it runs on the expert server http://head.example:8765"  # type: ignore[union-attr]
    own = place(
        model.model_copy(update={"path": tmp_path, "local": True, "size": 1}),
        TASKS[model.task],
        made,
        settings,
    )
    assert isinstance(own, str) or own.reason == "it is on this machine"


@pytest.mark.parametrize("address", ["auto", "head:8765", "ftp://head", "http://", "http://user:pw@head", ""])
def test_an_address_of_another_form_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="experts: it is a URL"):
        Settings(experts=address)


async def test_an_agent_runs_its_tasks_on_the_server(server: ExpertServer, tmp_path: Path) -> None:
    two = plan(
        ("text-generation", [], {"text": "echo one"}),
        ("text-generation", [0], {"text": "echo <resource>-0"}),
    )
    agent = JarvisAgent(
        ScriptedLLM({"plan": two, "respond": "done"}),
        settings=Settings(output_dir=tmp_path, experts="none"),
        sources=[FakeSource([command_call("").candidate])],
        backends=[command_backend(server)],
    )
    async with agent:
        run = await agent.ainvoke("Say it twice.")
    assert [result.error for result in run.results] == [None, None]
    assert {result.attempts[-1].endpoint for result in run.results} == {server.address}
    assert run.results[1].output["generated_text"].startswith("one by")


@pytest.mark.slow
async def test_a_server_that_is_killed_in_mid_call_and_started_again_repeats_it(tmp_path: Path) -> None:
    port, attempts = free_port(), list[Attempt]()
    backend = command_backend(ExpertServer(f"http://127.0.0.1:{port}"))
    with experts_process(tmp_path, port) as process:
        running = asyncio.create_task(with_retries(backend, f"hold {tmp_path}/held", attempts))
        (tmp_path / "held").mkdir()
        await until(lambda: list((tmp_path / "held").iterdir()))
        process.kill()
        process.wait()
        (tmp_path / "held" / "go").touch()
        await until(lambda: attempts)
        assert "was lost during the call" in str(attempts[0].error)
    with experts_process(tmp_path, port):
        again = await with_retries(backend, f"hold {tmp_path}/held", [])
    assert again.error is None
    await running


@pytest.mark.cluster
@pytest.mark.skipif(not OTHER_PYTHON.exists(), reason="`make test-all` installs another Python")
def test_an_agent_of_another_python_without_any_extra_uses_the_server(tmp_path: Path) -> None:
    code = """if True:
        import json, sys
        from jarvis_agent import JarvisAgent, Settings
        from jarvis_agent.testing import ScriptedLLM
        task = {"task": "image-classification", "id": 0, "dep": [-1], "args": {"image": "examples/cat.jpg"}}
        settings = Settings(experts=sys.argv[1], offline=True, output_dir=sys.argv[2])
        agent = JarvisAgent(ScriptedLLM({"plan": json.dumps([task]), "respond": "done"}), settings=settings)
        (result,) = agent.invoke("What animal is in examples/cat.jpg?").results
        assert not {"torch", "transformers", "ray"} & sys.modules.keys()
        print(sys.version_info[:2], result.error, result.output[0]["label"])"""
    port = free_port()
    with experts_process(tmp_path, port):
        command = [str(OTHER_PYTHON), "-c", code, f"http://127.0.0.1:{port}", str(tmp_path / "out")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "None" in done.stdout, done.stderr
    assert "cat" in done.stdout
    assert str(sys.version_info[:2]) not in done.stdout


@pytest.mark.slow
def test_a_background_server_is_found_shown_and_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)

    assert doctor.check_experts(Settings()).found.startswith("none")
    shown = jarvis("experts", "--background").stdout
    found = background.find_server(Settings())
    assert found is not None
    assert (
        shown == jarvis("experts", "--background").stdout == f"expert server: {found.address}\n"
    )  # there is one
    assert (background.runtime_file().stat().st_mode & 0o077) == 0
    made = make_backends(Settings(), ModelPool(0))
    model = command_call("").candidate
    assert {one.server_for(model) for one in made if isinstance(one, RemoteBackend)} == {found}
    assert background.find_server(Settings(experts="none")) is None
    with monkeypatch.context() as other_version:
        other_version.setattr(background, "PROTOCOL", 7)
        assert background.find_server(Settings()) is None
    backend, call = command_backend(found), command_call("echo said")
    assert f"by {os.getpid()}" not in asyncio.run(backend.run(call))
    assert "org/model (0 MB)" in doctor.check_experts(Settings()).found
    assert jarvis("experts", "--stop").exit_code == 0
    assert background.find_server(Settings()) is None
    assert f"by {os.getpid()}" in asyncio.run(backend.run(call))
    assert jarvis("experts", "--stop").exit_code == 1


def test_an_idle_server_interrupts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    monkeypatch.setattr(app_module, "IDLE_CHECK_S", 0.01)
    app = create_experts_app(Settings(experts="none"), ServerSettings(), idle_s=0.05)
    with TestClient(app):
        while not raised:
            time.sleep(0.01)
    assert set(raised) == {signal.SIGINT}
