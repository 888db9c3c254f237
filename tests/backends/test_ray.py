"""Local models on a real Ray cluster, whose nodes are processes of this machine. The order matters."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_backend import CommandBackend
from postgres import INSTALLED
from small_agents import picture, plan
from typer.testing import CliRunner

from jarvis_agent import JarvisAgent, RegisteredSource, default_backends
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.circuit_breaker import MAX_FAILURES
from jarvis_agent.backends.jobs import activities
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.ray import cluster as connection
from jarvis_agent.backends.ray.backend import RayBackend
from jarvis_agent.backends.ray.shared import SharedBreaker, SharedHubApi
from jarvis_agent.backends.ray.wire import INLINE_BYTES
from jarvis_agent.core.errors import (
    BadInputError,
    CircuitOpenError,
    ConfigError,
    NoCandidateError,
    OutOfMemoryError,
    TransientError,
    UnsupportedError,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Attempt, Candidate, Selection
from jarvis_agent.execution.fallback import FallbackChain, FallbackResult
from jarvis_agent.interfaces.cli.app import app
from jarvis_agent.interfaces.cli.doctor import check_cluster
from jarvis_agent.testing import HubDouble, ScriptedLLM

pytestmark = pytest.mark.cluster
ray = pytest.importorskip("ray")

KEY = "key-of-a-client"
PORT = 23_917
FOLDERS = [str(Path(__file__).parent), str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "memory": 6 * 10**9}


@pytest.fixture(scope="module")
def hub() -> Iterator[HubDouble]:
    """The Hub of the nodes."""
    with HubDouble() as hub:
        hub.add_model("org/vit", pipeline_tag="image-classification")
        yield hub


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, hub: HubDouble, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A head and a second node, with a CPU each."""
    from ray import serve
    from ray.cluster_utils import Cluster

    variables = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_OFFLINE": "0",
        "GRPC_ENABLE_FORK_SUPPORT": "0",  # else the server of Ray Client crashes now and then
        "JARVIS_API_KEYS": KEY,
        "JARVIS_CHECKPOINTS": request.getfixturevalue("postgres_server").new_database() if INSTALLED else "",
        "JARVIS_MODEL": "none",
        "JARVIS_OUTPUT_DIR": str(tmp_path_factory.mktemp("outputs")),
        "PYTHONPATH": os.pathsep.join(FOLDERS),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        head = {**NODE, "include_dashboard": False, "ray_client_server_port": PORT}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.add_node(**NODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(FOLDERS))
        patch.setenv("RAY_ADDRESS", cluster.address)
        ray.init(cluster.address, log_to_driver=False)
        serve.start(http_options={"port": PORT + 1})
        yield cluster
        connection.disconnect()
        cluster.shutdown()


@pytest.fixture
def backend(cluster: Any) -> RayBackend:
    return RayBackend(CommandBackend(Settings(), ModelPool(0)), "auto")


def call(text: str, model: str = "org/model", size: int | None = None) -> Call:
    return Call(
        spec=TASKS["text-generation"],
        candidate=Candidate(id=model, task="text-generation", backend="command", size=size),
        inputs={"text": text},
        new_path=Path,
        settings=Settings(),
    )


async def with_retries(backend: RayBackend, text: str, attempts: list[Attempt]) -> FallbackResult:
    """The result of a call, as the executor runs it; its ended attempts are added to the list."""
    one = call(text)
    chain = FallbackChain(
        spec=one.spec,
        selection=Selection(model=one.candidate.id, reason="", candidates=[one.candidate]),
        backends={"command": backend},
        settings=one.settings,
        new_path=Path,
        clock=asyncio.get_running_loop().time,
        attempts=attempts,
    )
    return await chain.run(one.inputs)


def in_memory(answer: str) -> int:
    return int(answer.split()[-3])


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


async def until(happened: Callable[[], Any]) -> None:
    while not happened():  # noqa: ASYNC110
        await asyncio.sleep(0.05)


@pytest.mark.skipif(INSTALLED is None, reason="PostgreSQL is not installed")
def test_any_replica_of_the_server_answers_for_a_run_and_continues_a_thread(
    cluster: Any, tmp_path: Path
) -> None:
    from ray import serve

    from jarvis_agent.interfaces.ray import app as server

    serve.run(server, name="server", route_prefix="/")
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{PORT + 1}", headers=headers, timeout=60) as client:

        def image_of(text: str, *files: str) -> str:
            """What a run takes as its image, after all replicas agree on the run."""
            asked = {"input": text, "thread": "one", "files": files}
            at = f"/runs/{client.post('/runs', json=asked).json()['id']}"
            assert "status" in client.get(f"{at}/events").text
            found = [client.get(at).json() for _ in range(20)]
            assert found == found[:1] * 20
            (result,) = found[0]["run"]["results"]
            assert result["status"] == "ok"
            return str(result["task"]["args"]["image"])

        assert client.get("/runs", headers={"Authorization": "Bearer no"}).status_code == 401
        with picture(tmp_path / "a.jpg").open("rb") as file:
            name = client.post("/files", files={"file": file}).json()["name"]
        assert image_of("Find the edges in the picture", name) == name
        for _ in range(3):
            assert image_of("Find the edges in it").endswith("/0-canny-control.png")
    (deployment,) = serve.status().applications["server"].deployments.values()
    assert deployment.replica_states == {"RUNNING": 2}
    serve.delete("server")


async def test_a_backend_that_no_node_has_is_reported(cluster: Any) -> None:
    absent = type("Absent", (CommandBackend,), {"__module__": "nowhere", "name": "absent"})
    backend = RayBackend(absent(Settings(), ModelPool(0)), "auto")
    found = await asyncio.gather(*(backend.run(call("echo")) for _ in range(2)), return_exceptions=True)
    assert {type(one) for one in found} == {UnsupportedError}
    assert all("nowhere.Absent is not installed on this node" in str(one) for one in found)


async def test_a_chain_runs_on_two_nodes(
    cluster: Any, built: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    picture(tmp_path / "a.jpg")
    two_tasks = plan(
        ("image-classification", [], {"image": "a.jpg"}),
        ("text-generation", [0], {"text": "echo <resource>-0"}),
    )
    models = [
        {"id": "tiny/vit", "task": "image-classification", "path": built("vit"), "size": 100_000},
        {"id": "tiny/command", "task": "text-generation", "backend": "command", "size": 1, "local": True},
    ]
    agent = JarvisAgent(
        ScriptedLLM({"plan": two_tasks, "respond": "done"}),
        settings=Settings(cluster="auto", output_dir=tmp_path / "outputs"),
        sources=[RegisteredSource(models)],
        backends=[*default_backends(), RayBackend(CommandBackend(Settings(), ModelPool(0)), "auto")],
    )
    async with agent:
        run = await agent.ainvoke("What is in a.jpg?")
    label, text = run.results
    assert (label.error, text.error) == (None, None)
    assert text.output["generated_text"].startswith(label.output[0]["label"])
    nodes = [result.attempts[-1].node for result in run.results]
    assert len(set(nodes)) == 2
    assert "the cluster" in label.selection.placement


async def test_an_error_of_a_model_keeps_its_class(backend: RayBackend) -> None:
    with pytest.raises(BadInputError, match="not like this"):
        await backend.run(call("fail not like this"))


async def test_a_model_is_loaded_before_its_call(backend: RayBackend) -> None:
    later, events, loaded = call("echo", "org/later", size=5), [], asyncio.Event()
    before = await backend.run(call("echo"))

    def notify(event: str) -> None:
        events.append(event)
        if event == "loaded":
            loaded.set()

    release = backend.prepare(later.spec, later.candidate, later.settings, 1, notify)
    assert release is not None
    await loaded.wait()
    release()
    assert events == ["loading", "loaded"]
    assert in_memory(await backend.run(call("echo"))) == in_memory(before) + 1
    loaded.clear()
    release = backend.prepare(later.spec, later.candidate, later.settings, 1, notify)
    await asyncio.wait_for(loaded.wait(), 20)  # a model that is loaded already does not hold a place


async def test_a_call_takes_over_the_load_of_its_model(backend: RayBackend, tmp_path: Path) -> None:
    slow = call("echo slow", "org/slow", size=5)
    slow = replace(slow, candidate=slow.candidate.model_copy(update={"metadata": {"folder": str(tmp_path)}}))
    assert backend.prepare(slow.spec, slow.candidate, slow.settings, 1, lambda _: None)
    await until(lambda: names(tmp_path))
    running = asyncio.create_task(backend.run(slow))
    await asyncio.sleep(0.5)  # until it is there; too short a time would only hide a fault
    (tmp_path / "go").touch()
    assert (await running).startswith("slow by")
    assert len(names(tmp_path)) == 2


async def test_a_model_larger_than_every_node_is_out_of_memory(backend: RayBackend) -> None:
    with pytest.raises(OutOfMemoryError, match="needs a node with a CPU and 16 GB of memory"):
        await backend.run(call("echo", size=5 * 10**9))


async def test_a_cancelled_call_ends_in_the_replica(backend: RayBackend, tmp_path: Path) -> None:
    running = asyncio.create_task(backend.run(call(f"hold {tmp_path}")))
    await until(lambda: names(tmp_path))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until((tmp_path / "cancelled").exists)


async def test_the_progress_on_a_node_is_shown_here(backend: RayBackend, tmp_path: Path) -> None:
    running = asyncio.create_task(backend.run(call(f"hold {tmp_path}")))
    await until(activities.get)
    assert str(activities.get()[0]).startswith("org/model: 4 of at most 9 tokens written on ")
    (tmp_path / "go").touch()
    assert await running
    assert not activities.get()


async def test_large_inputs_and_outputs_go_through_the_object_store(backend: RayBackend) -> None:
    text = "é" * (INLINE_BYTES * 3 // 4)
    assert (await backend.run(call(f"echo {text}"))).startswith(f"{text} by")


async def test_a_killed_replica_is_replaced_and_its_call_is_repeated(
    backend: RayBackend, tmp_path: Path
) -> None:
    done = await with_retries(backend, f"die {tmp_path / 'died'}", [])
    assert done.error is None
    assert "lost the replica" in str(done.attempts[0].error)


async def test_models_are_evicted_when_the_memory_of_a_replica_is_full(backend: RayBackend) -> None:
    sizes = {f"org/{number}": 600_000_000 for number in range(3)}
    answers = [await backend.run(call("echo", model, size)) for model, size in sizes.items()]
    assert all("with 1 in memory" in answer for answer in answers)


async def test_a_driver_outside_the_cluster_shares_it(backend: RayBackend) -> None:
    code = f"""if True:
        import asyncio, test_ray as t
        backend = t.RayBackend(t.CommandBackend(t.Settings(), t.ModelPool(0)), "ray://127.0.0.1:{PORT}")
        text = "echo other!!!" + t.INLINE_BYTES * 3 // 4 * "é"
        print(asyncio.run(t.with_retries(backend, text, [])).output["generated_text"])"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(FOLDERS)}
    command = [sys.executable, "-c", code]
    other = asyncio.create_task(asyncio.to_thread(subprocess.run, command, env=env, capture_output=True))
    while not other.done():
        assert (await backend.run(call("echo mine"))).startswith("mine by")
    done = await other
    assert done.stdout.startswith(b"other!!!"), done.stderr


async def test_calls_go_on_after_ray_serve_was_shut_down(backend: RayBackend) -> None:
    from ray import serve

    await backend.run(call("echo before"))
    await asyncio.to_thread(serve.shutdown)
    done = await with_retries(backend, "echo after", [])
    assert done.output["generated_text"].startswith("after by"), done.error


async def test_a_driver_outside_the_cluster_outlives_a_restart_of_it() -> None:
    code = f"""if True:
        import test_ray as t
        from ray.cluster_utils import Cluster
        head = t.NODE | {{"include_dashboard": False, "ray_client_server_port": {PORT + 2}}}
        for _ in range(2):
            cluster, shown = Cluster(initialize_head=True, head_node_args=head), ""
            while not shown:
                try:
                    print(shown := t.connection.describe_cluster("ray://127.0.0.1:{PORT + 2}"))
                except t.TransientError as error:
                    print(error)
            cluster.shutdown()"""
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(FOLDERS),
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "1",
    }
    command = [sys.executable, "-c", code]
    done = await asyncio.to_thread(subprocess.run, command, env=env, capture_output=True, text=True)
    assert done.stdout.count("1 node with 1 CPUs") == 2, done.stdout + done.stderr


async def test_the_hub_is_asked_once_for_all_drivers(cluster: Any, hub: HubDouble) -> None:
    query = {"pipeline_tag": "image-classification", "limit": 5}
    drivers = [SharedHubApi(Settings(cluster="auto")) for _ in range(5)]
    answers = await asyncio.gather(*(driver.get("/api/models", query) for driver in drivers))
    assert [[row["id"] for row in rows] for rows in answers] == [["org/vit"]] * 5
    assert [request.path for request in hub.requests] == ["/api/models"]
    with pytest.raises(NoCandidateError, match="has no org/absent"):
        await drivers[0].get("/api/models/org/absent")


async def test_failures_are_counted_for_all_drivers(cluster: Any) -> None:
    one, other = SharedBreaker("auto"), SharedBreaker("auto")
    for _ in range(MAX_FAILURES):
        with pytest.raises(TransientError):
            async with one.call(("hosted", "org/down")):
                raise TransientError("503")
    with pytest.raises(CircuitOpenError, match="org/down is not called"):
        async with other.call(("hosted", "org/down")):
            pass
    async with other.call(("hosted", "org/up")):
        pass


async def test_a_process_uses_one_cluster(backend: RayBackend) -> None:
    await backend.run(call("echo"))
    with pytest.raises(ConfigError, match="cannot use ray://elsewhere"):
        await RayBackend(CommandBackend(Settings(), ModelPool(0)), "ray://elsewhere").run(call("echo"))


def test_doctor_and_models_show_what_the_cluster_has(cluster: Any) -> None:
    has = "auto has 2 nodes with 2 CPUs, 0 GPUs and 12.0 GB of memory"
    assert check_cluster("auto").found == has
    shown = CliRunner().invoke(app, ["models", "text-to-speech", "--cluster", "auto", "--json"])
    assert has in json.loads(shown.stdout)["notes"]


async def test_calls_of_one_model_are_spread_and_survive_the_loss_of_a_node(
    cluster: Any, backend: RayBackend, tmp_path: Path
) -> None:
    node = cluster.add_node(**NODE)
    raylet = str(node.all_processes["raylet"][0].process.pid)
    attempts: list[list[Attempt]] = [[] for _ in range(20)]
    running = [asyncio.create_task(with_retries(backend, f"hold {tmp_path}", one)) for one in attempts]
    await until(lambda: (tmp_path / raylet).exists() and len(names(tmp_path)) > 1)
    await asyncio.to_thread(cluster.remove_node, node, allow_graceful=False)
    await until(lambda: any(attempts))
    (tmp_path / "go").touch()
    done = await asyncio.gather(*running)
    assert [one.error for one in done] == [None] * 20
    assert "lost the replica" in str([one for one in attempts if len(one) > 1])
