"""`jarvis experts`: local models in another process, with its faults."""

import asyncio
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from command_backend import CommandBackend, command_models
from expert_servers import (
    command_backend,
    command_call,
    experts_process,
    free_port,
    said,
    served_experts,
    with_retries,
)
from pydantic import SecretStr
from small_agents import picture, plan, small_agent
from waiting import until

from jarvis_agent import JarvisAgent
from jarvis_agent.backends.algorithms.backend import AlgorithmsBackend
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.registry import make_backends
from jarvis_agent.backends.remote_experts import (
    ExpertServer,
    RemoteBackend,
    write_request,
)
from jarvis_agent.backends.starter.backend import StarterBackend
from jarvis_agent.core import errors
from jarvis_agent.core.errors import (
    BadInputError,
    ConfigError,
    ExpertError,
    JarvisError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
    policy_for,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Attempt, Candidate, Resource
from jarvis_agent.interfaces.cli import doctor
from jarvis_agent.interfaces.common.limits import MAX_JSON_BYTES
from jarvis_agent.interfaces.experts import hub_api
from jarvis_agent.interfaces.experts.app import ExpertRunner
from jarvis_agent.interfaces.experts.hub_api import InferenceRequest
from jarvis_agent.media.run_directory import RunDirectory
from jarvis_agent.selection.placement import place
from jarvis_agent.testing import FakeSource, ScriptedLLM

KEY = "key-of-a-client"
CAT = Path(__file__).parents[2] / "examples" / "cat.jpg"
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
    (folder / "tmp").mkdir()
    variables = {"JARVIS_API_KEYS": KEY, "JARVIS_MAX_FILE_BYTES": "100000", "TMPDIR": str(folder / "tmp")}
    with experts_process(folder, port, **variables) as process:
        yield process


@pytest.fixture
def server(process: subprocess.Popen[bytes], port: int) -> ExpertServer:
    return ExpertServer(f"http://127.0.0.1:{port}", KEY)


async def test_a_call_runs_in_the_server(server: ExpertServer, process: subprocess.Popen[bytes]) -> None:
    call = command_call("echo é")
    assert (await said(command_backend(server), call)).startswith(f"é by {process.pid} ")
    assert call.trace == {"endpoint": server.address}
    loaded = [(one["model"], one["backend"], one["bytes"]) for one in server.status()["loaded"]]
    assert ("org/model", "command", 0) in loaded
    shown = doctor.check_experts(Settings(experts=server.address, experts_key=SecretStr(KEY))).found
    assert "org/model (0 MB)" in shown


async def test_a_file_goes_there_and_an_image_comes_back(server: ExpertServer, tmp_path: Path) -> None:
    backend = RemoteBackend(AlgorithmsBackend(Settings(), ModelPool(0)), server)
    image = Resource(kind="image", path=picture(tmp_path / "a.jpg"), mime="image/jpeg")
    candidate = Candidate(id="pillow/resize", task="resize-image", backend="algorithms")
    inputs = {"image": image, "width": 8, "height": 6}
    new_path = RunDirectory(Settings(), tmp_path / "out").new_path
    output, (made,) = await backend.run(Call(TASKS["resize-image"], candidate, inputs, new_path, Settings()))
    assert (made.to_pil().size, output["path"]) == ((8, 6), str(made.path))
    assert made.path.parent == tmp_path / "out"


async def test_a_wrong_key_is_refused_and_the_message_says_what_to_set(server: ExpertServer) -> None:
    for key in (None, "wrong"):
        with pytest.raises(ConfigError, match=r"answers 401: .*API key.*JARVIS_EXPERTS_KEY"):
            await command_backend(replace(server, key=key)).run(command_call("echo"))


def test_only_its_health_is_told_without_a_key(server: ExpertServer) -> None:
    refused = [httpx.get(f"{server.address}/{name}").status_code for name in ("models", "metrics")]
    assert refused == [401, 401]
    assert httpx.get(f"{server.address}/healthz").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("error", "arrives_as"),
    [
        (errors.BadInputError, errors.BadInputError),
        (errors.InputError, errors.BadInputError),
        (errors.UnsupportedError, errors.UnsupportedError),
        (errors.OutOfMemoryError, errors.OutOfMemoryError),
        (errors.RateLimitedError, errors.RateLimitedError),
        (errors.TransientError, errors.TransientError),
        (errors.ConfigError, errors.UnsupportedError),
        (errors.ExpertError, errors.ExpertError),
    ],
)
async def test_an_error_of_a_model_arrives_with_its_policy_and_names_no_private_path(
    server: ExpertServer, error: type[JarvisError], arrives_as: type[JarvisError]
) -> None:
    home = Path.home() / "models" / "weights.bin"
    with pytest.raises(arrives_as, match="the model refuses this") as caught:
        await command_backend(server).run(command_call(f"refuse {error.__name__} cannot read {home}"))
    assert type(caught.value) is arrives_as
    assert str(home) not in str(caught.value)
    assert policy_for(arrives_as).fallback == policy_for(error).fallback


async def test_a_larger_file_than_the_server_takes_is_refused(server: ExpertServer, tmp_path: Path) -> None:
    (file := tmp_path / "large.jpg").write_bytes(bytes(100_001))
    with pytest.raises(BadInputError, match="more than 100,000"):
        await command_backend(server).run(command_call("echo", image=file))
    file.write_bytes(bytes(MAX_JSON_BYTES))
    with pytest.raises(ConfigError, match=r"answers 413: .*JARVIS_MAX_FILE_BYTES"):
        await command_backend(server).run(command_call("echo", image=file))


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limit of a running process is Linux's")
async def test_a_full_disk_of_the_server_fails_the_call_alone(
    server: ExpertServer, process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    backend, call = command_backend(server), command_call("echo", image=picture(tmp_path / "a.jpg"))
    await backend.run(call)  # the server finds its temporary folder by writing to it
    unlimited = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        with pytest.raises(ExpertError, match=rf"server {server.address} failed: OSError: .*too large"):
            await backend.run(call)
        await backend.run(command_call("echo"))  # it needs no disk
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
    await backend.run(call)


@pytest.mark.starter
async def test_a_sentence_of_forty_kilobytes_is_refused_by_the_voice(server: ExpertServer) -> None:
    backend = RemoteBackend(StarterBackend(Settings(), ModelPool(0)), server)
    voice = Candidate(id="maureesewilliams/hibari", task="text-to-speech", backend="starter", local=True)
    for sentence in ("word " * 8_000, "a" * 40_000):
        call = Call(TASKS["text-to-speech"], voice, {"text": sentence}, Path, Settings())
        with pytest.raises(UnsupportedError, match=r"at most 20,000 .* has 40,000; .*or use a hosted model"):
            await backend.run(call)


async def test_a_client_that_goes_away_ends_its_call(server: ExpertServer, tmp_path: Path) -> None:
    running = asyncio.create_task(command_backend(server).run(command_call(f"hold {tmp_path}")))
    await until(lambda: list(tmp_path.iterdir()))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until((tmp_path / "cancelled").exists)


async def test_cancelled_calls_leave_no_file(server: ExpertServer, folder: Path, tmp_path: Path) -> None:
    backend, image = command_backend(server), picture(tmp_path / "a.jpg")
    calls = [asyncio.create_task(backend.run(command_call(f"echo {n}", image=image))) for n in range(100)]
    for number, call in enumerate(calls):
        await asyncio.sleep(number % 5 / 500)
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await until(lambda: not list((folder / "tmp").glob("jarvis-*")))


async def test_a_thread_that_outlives_its_call_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the file of the request, and writes it after the call was cancelled."""
    holds, goes_on = threading.Event(), threading.Event()

    def wait(content: bytes, mime: str) -> str:
        holds.set()
        goes_on.wait()
        return ".jpg"

    (folder := tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(hub_api, "detect_suffix", wait)
    runner = ExpertRunner(Settings(models_file=command_models(tmp_path)), [CommandBackend])
    body, mime, _ = write_request(command_call("echo", image=picture(tmp_path / "a.jpg")))
    request = InferenceRequest("org/model", "image-text-to-text", body, mime)
    running = asyncio.create_task(runner.answer(request))
    await asyncio.to_thread(holds.wait)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    goes_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert not list(folder.iterdir())
    await runner.close()


async def test_two_hundred_calls_at_once_are_answered(server: ExpertServer) -> None:
    backend = command_backend(server)
    answers = await asyncio.gather(*(said(backend, command_call(f"echo {n}")) for n in range(200)))
    assert [answer.split()[0] for answer in answers] == [str(n) for n in range(200)]


async def test_a_client_with_too_many_calls_is_told_when_to_ask_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jarvis_agent.interfaces.experts.app.MAX_PARALLEL", 1)
    settings = Settings(models_file=command_models(tmp_path))
    with served_experts(settings, max_concurrent_runs=1) as address:
        backend = command_backend(ExpertServer(address))
        holding = asyncio.create_task(backend.run(command_call(f"hold {tmp_path}")))
        await until((tmp_path / str(os.getppid())).exists)
        with pytest.raises(RateLimitedError) as caught:
            await backend.run(command_call("echo"))
        assert (caught.value.retry_after or 0) >= 1
        (tmp_path / "go").touch()
        await holding


async def test_a_server_that_is_not_there_is_named_with_the_command_that_starts_it() -> None:
    port = free_port()
    absent = ExpertServer(f"http://127.0.0.1:{port}")
    with pytest.raises(
        TransientError, match=rf"127\.0\.0\.1:{port} cannot be reached.*`jarvis experts --port {port}`"
    ):
        await command_backend(absent).run(command_call("echo"))


def test_models_run_on_the_server_and_algorithms_and_own_models_here(tmp_path: Path) -> None:
    settings = Settings(experts="http://head.example:8765", offline=True)
    made = make_backends(settings, ModelPool(0))
    model = Candidate(
        id="org/large", task="image-classification", source="hub", size=10**15, library="transformers"
    )
    remote = {one.name for one in made if isinstance(one, RemoteBackend) and one.server_for(model)}
    assert remote == {"starter", "transformers", "sentence-transformers", "diffusers", "sklearn", "chronos"}
    spec = TASKS[model.task]
    placed = place(model, spec, made, settings)
    assert placed.reason == "it runs on the expert server http://head.example:8765"  # type: ignore[union-attr]
    described = {"source": "registered", "metadata": {"base_model": "org/base", "options": {"num_beams": 2}}}
    for own in ({"path": tmp_path}, described):
        here = place(model.model_copy(update={"local": True, "size": 1, **own}), spec, made, settings)
        assert isinstance(here, str) or here.reason == "it is on this machine"


@pytest.mark.parametrize("address", ["auto", "head:8765", "ftp://head", "http://", "http://user:pw@head", ""])
def test_an_address_of_another_form_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="experts: it is a URL"):
        Settings(experts=address)


async def test_an_agent_runs_its_tasks_on_the_server(server: ExpertServer, tmp_path: Path) -> None:
    two = plan(
        ("text-generation", [], {"text": "echo one"}), ("text-generation", [0], {"text": "echo <resource>-0"})
    )
    source, settings = FakeSource([command_call("").candidate]), {"output_dir": tmp_path}
    agent, _, _ = small_agent(two, sources=[source], backends=[command_backend(server)], settings=settings)
    async with agent:
        run = await agent.ainvoke("Say it twice.")
    assert [result.error for result in run.results] == [None, None]
    assert {result.attempts[-1].endpoint for result in run.results} == {server.address}
    assert run.results[1].output["generated_text"].startswith("one by")


@pytest.mark.starter
async def test_the_starter_models_of_an_agent_run_on_the_server(server: ExpertServer, tmp_path: Path) -> None:
    script = {"plan": plan(("image-classification", [], {"image": str(CAT)})), "respond": "done"}
    settings = Settings(experts=server.address, experts_key=SecretStr(KEY), offline=True, output_dir=tmp_path)
    async with JarvisAgent(ScriptedLLM(script), settings=settings) as agent:
        (result,) = (await agent.ainvoke(f"What animal is in {CAT}?")).results
    assert (result.error, result.attempts[-1].endpoint) == (None, server.address)
    assert "cat" in result.output[0]["label"]


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
        assert "was lost" in str(attempts[0].error)
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
