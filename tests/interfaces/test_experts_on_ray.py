"""The expert server on a real Ray cluster, whose nodes are processes of this machine. The order matters."""

import asyncio
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from command_backend import CommandBackend, command_models
from doc_blocks import blocks_of
from expert_servers import command_backend, command_call, environment, free_port, said, with_retries
from small_agents import picture
from waiting import until

from jarvis_agent.backends.remote_experts import ExpertServer, RemoteBackend
from jarvis_agent.core.errors import BadInputError, ConfigError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Attempt
from jarvis_agent.interfaces.experts.app import ExpertRunner
from jarvis_agent.interfaces.experts.hub_api import InferenceRequest

pytestmark = pytest.mark.cluster
ray = pytest.importorskip("ray")

KEY = "key-of-a-client"
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "memory": 6 * 10**9}
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def cluster(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head and a second node, with a CPU each."""
    from ray import serve
    from ray.cluster_utils import Cluster

    packages = environment(tmp_path_factory.mktemp("packages"))
    variables = {
        "JARVIS_API_KEYS": KEY,
        **{name: packages[name] for name in ("JARVIS_MODELS_FILE", "PYTHONPATH")},
        # By default Ray's workers yield to all other work, and a proxy that takes 15 s to start is ended.
        "RAY_worker_niceness": "0",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
        cluster.add_node(**NODE)
        patch.setenv("RAY_ADDRESS", cluster.address)
        ray.init(cluster.address, log_to_driver=False)
        serve.start(http_options={"port": port})
        from jarvis_agent.interfaces.experts import cluster as application

        serve.run(application, name="experts", route_prefix="/experts")
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def backend(cluster: Any, port: int) -> RemoteBackend:
    return command_backend(ExpertServer(f"http://127.0.0.1:{port}/experts", KEY))


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


async def test_calls_run_on_both_nodes(backend: RemoteBackend, port: int, tmp_path: Path) -> None:
    calls = [command_call(f"hold {tmp_path}") for _ in range(12)]
    running = [asyncio.create_task(said(backend, call)) for call in calls]
    await until(lambda: len(names(tmp_path)) == 2)
    assert httpx.get(f"http://127.0.0.1:{port}/-/healthz").is_success  # noqa: ASYNC210
    (tmp_path / "go").touch()
    assert len({answer.split()[4] for answer in await asyncio.gather(*running)}) == 2


async def test_a_key_is_needed(backend: RemoteBackend, port: int) -> None:
    server = ExpertServer(f"http://127.0.0.1:{port}/experts")
    with pytest.raises(ConfigError, match="401"):
        await command_backend(server).run(command_call("echo"))
    assert httpx.get(f"{server.address}/healthz").json() == {"status": "ok"}  # noqa: ASYNC210


async def test_only_a_model_that_was_found_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from jarvis_agent.interfaces.experts.ray_serve import ExpertReplica

    noted = []

    async def note(_: ExpertReplica, model: str) -> None:
        noted.append(model)

    monkeypatch.setattr(ExpertReplica, "_note_model", note)
    replica = ExpertReplica.__new__(ExpertReplica)
    ExpertRunner.__init__(replica, Settings(models_file=command_models(tmp_path)), [CommandBackend])
    asked = [
        InferenceRequest(name, "text-generation", b'{"inputs": "echo"}', "application/json")
        for name in ("", "org/unknown", "org/model")
    ]
    answers = [(await replica.answer(request)).status_code for request in asked]
    assert (answers, noted) == ([404, 404, 200], ["org/model"])
    await replica.close()


async def test_a_model_without_a_name_is_not_found(backend: RemoteBackend, port: int) -> None:
    url, headers = f"http://127.0.0.1:{port}/experts/models/", {"Authorization": f"Bearer {KEY}"}
    answer = httpx.post(url, content=b"echo", headers=headers)  # noqa: ASYNC210
    assert (answer.status_code, answer.json()) == (404, {"error": "this server has no model "})


async def test_an_error_of_a_model_keeps_its_class(backend: RemoteBackend) -> None:
    with pytest.raises(BadInputError, match="not like this"):
        await backend.run(command_call("fail BadInputError not like this"))


async def test_a_model_too_large_for_the_memory_of_a_replica_is_refused(backend: RemoteBackend) -> None:
    with pytest.raises(UnsupportedError, match="5,000,000,000 bytes are more than the 2,000,000,000"):
        await backend.run(command_call("echo", "org/large"))


async def test_a_client_that_leaves_ends_its_call_in_replicas(backend: RemoteBackend, tmp_path: Path) -> None:
    running = asyncio.create_task(backend.run(command_call(f"hold {tmp_path}")))
    await until(lambda: names(tmp_path))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until((tmp_path / "cancelled").exists)


async def test_a_file_goes_to_a_replica(backend: RemoteBackend, tmp_path: Path) -> None:
    assert (await said(backend, command_call("echo", image=picture(tmp_path / "a.jpg")))).startswith("by ")


async def test_a_long_text_arrives_and_comes_back(backend: RemoteBackend) -> None:
    text = "é" * 90_000
    assert (await said(backend, command_call(f"echo {text}"))).startswith(f"{text} by")


async def test_two_hundred_calls_at_once_are_answered(backend: RemoteBackend) -> None:
    answers = await asyncio.gather(*(said(backend, command_call(f"echo {n}")) for n in range(200)))
    assert [answer.split()[0] for answer in answers] == [str(n) for n in range(200)]


async def test_a_killed_replica_is_replaced_its_call_repeated(backend: RemoteBackend, tmp_path: Path) -> None:
    done = await with_retries(backend, f"die {tmp_path / 'died'}", [])
    assert done.error is None
    assert "answers 5" in str(done.attempts[0].error)


async def test_a_lost_node_costs_no_call(cluster: Any, backend: RemoteBackend, tmp_path: Path) -> None:
    node = cluster.add_node(**NODE)
    raylet = str(node.all_processes["raylet"][0].process.pid)
    attempts: list[list[Attempt]] = [[] for _ in range(20)]
    running = [asyncio.create_task(with_retries(backend, f"hold {tmp_path}", one)) for one in attempts]
    await until(lambda: raylet in names(tmp_path) and len(names(tmp_path)) > 1)
    await asyncio.to_thread(cluster.remove_node, node, allow_graceful=False)
    await until(lambda: any(attempts))
    (tmp_path / "go").touch()
    done = await asyncio.gather(*running)
    assert [one.error for one in done] == [None] * 20
    assert any(len(one) > 1 for one in attempts)


def test_the_documented_file_configures_the_deployment(cluster: Any) -> None:
    from ray import serve
    from ray.serve.schema import ServeDeploySchema

    (block,) = (block for block in blocks_of(ROOT / "docs" / "scaling.md") if block.lang == "yaml")
    (served,) = ServeDeploySchema.model_validate(yaml.safe_load(block.code)).applications
    module, _, name = served.import_path.partition(":")
    assert isinstance(getattr(import_module(module), name), serve.Application)
    assert [row.name for row in served.deployments] == [*serve.status().applications["experts"].deployments]


def test_the_expert_server_does_not_start_without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    from jarvis_agent.interfaces.experts.ray_serve import ExpertReplica

    monkeypatch.delenv("JARVIS_API_KEYS", raising=False)
    with pytest.raises(ConfigError, match="JARVIS_API_KEYS"):
        ExpertReplica.__new__(ExpertReplica).__serve_build_asgi_app__()
