"""What goes to the nodes of a cluster and comes back, and a cluster that is not there. Starts none."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import sys
from dataclasses import replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml
from PIL import Image

from jarvis_agent.backends.algorithms.backend import AlgorithmsBackend
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.circuit_breaker import MAX_FAILURES
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.ray import cluster, protocol, shared
from jarvis_agent.backends.ray.backend import RayBackend
from jarvis_agent.backends.ray.wire import pack, unpack
from jarvis_agent.backends.registry import make_backends
from jarvis_agent.backends.shared import circuit_breaker, hub_api
from jarvis_agent.core.errors import (
    BadInputError,
    CircuitOpenError,
    ConfigError,
    ExpertError,
    JarvisError,
    MissingExtraError,
    OutOfMemoryError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.selection.placement import place
from jarvis_agent.testing import HubDouble


def sent(value: Any, folder: Path) -> Any:
    """A value after its way through bytes; files are written to the folder."""
    number = count()
    return unpack(pack(value), lambda suffix: folder / f"{next(number)}{suffix}")


def call(path: Path | None = None, **inputs: Any) -> Call:
    return Call(
        spec=TASKS["image-classification"],
        candidate=Candidate(id="org/model", task="image-classification", path=path, size=10),
        inputs=inputs,
        new_path=Path,
        settings=Settings(seed=7, hf_token="hf_secret", api_key="of-the-llm"),
        hints={"ocr": True},
    )


def test_plain_values_stay_the_same(tmp_path: Path) -> None:
    value = {"text": "ä\x00", 7: "by number", "rows": [{"score": 0.25, "none": None}], "$array": 3, "n": True}
    assert sent(value, tmp_path) == value


def test_scalars_of_numpy_become_numbers_and_tuples_lists(tmp_path: Path) -> None:
    assert sent({"score": np.float32(0.5), "box": (1, np.int64(2))}, tmp_path) == {
        "score": 0.5,
        "box": [1, 2],
    }


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32"])
def test_arrays_keep_their_values_and_dtype(dtype: str, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    found = sent([array], tmp_path)[0]
    assert found.dtype == array.dtype
    assert (found == array).all()


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "I;16"])
def test_images_keep_their_pixels_and_mode(mode: str, tmp_path: Path) -> None:
    image = Image.effect_noise((5, 4), 50).convert(mode) if mode != "I;16" else Image.new(mode, (5, 4), 999)
    found = sent(image, tmp_path)
    assert (found.mode, found.tobytes()) == (mode, image.tobytes())


def test_files_are_written_where_the_receiver_says(tmp_path: Path) -> None:
    (given := tmp_path / "given.png").write_bytes(b"pixels")
    (here := tmp_path / "here").mkdir()
    image = Resource(kind="image", path=given, mime="image/png", name="a cat")
    found = sent({"image": image, "path": given}, here)
    assert found["image"] == image.model_copy(update={"path": here / "0.png"})
    assert found["path"].read_bytes() == b"pixels"


def test_an_object_that_could_run_code_is_not_sent() -> None:
    for value in (object(), np.array([object()])):
        with pytest.raises(UnsupportedError, match="cannot be sent"):
            pack(value)


def test_a_call_arrives_with_its_settings_and_without_the_key_of_the_language_model(tmp_path: Path) -> None:
    parts = protocol.write_call(call(text="hello"))
    assert b"of-the-llm" not in b"".join(parts)
    found = protocol.read_call(parts, Path, memory=5)
    assert (found.spec, found.inputs, found.hints) == (call().spec, {"text": "hello"}, {"ocr": True})
    assert (found.settings.seed, found.settings.token, found.settings.memory_limit) == (7, "hf_secret", 5)


def test_another_version_on_the_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = protocol.write_call(call())
    monkeypatch.setattr(protocol, "__version__", "99.0")
    with pytest.raises(UnsupportedError, match=r"the cluster has version 99\.0 of langchain-hugginggpt"):
        protocol.read_call(parts, Path, memory=5)


def test_a_model_of_the_callers_cache_is_looked_up_on_the_node(tmp_path: Path) -> None:
    cached = tmp_path / "models--org--model" / "snapshots" / "1"
    found = protocol.read_call(protocol.write_call(call(cached)), Path, memory=5).candidate
    assert (found.path, found.local) == (None, False)
    cached.mkdir(parents=True)
    found = protocol.read_call(protocol.write_call(call(cached)), Path, memory=5).candidate
    assert (found.path, found.local) == (cached, True)


def test_a_model_in_a_folder_of_the_caller_alone_is_refused(tmp_path: Path) -> None:
    parts = protocol.write_call(call(tmp_path / "mine"))
    with pytest.raises(UnsupportedError, match="on its caller's machine only"):
        protocol.read_call(parts, Path, memory=5)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadInputError("no"), BadInputError),
        (RateLimitedError("no"), RateLimitedError),
        (MissingExtraError("no", "local"), ConfigError),
        (UnsupportedError("no"), UnsupportedError),
        (KeyError("no"), ExpertError),
    ],
)
def test_an_error_arrives_with_its_policy_its_message_and_its_node(
    error: Exception, kind: type[JarvisError]
) -> None:
    asked = call()
    with pytest.raises(kind, match="no") as caught:
        protocol.read_reply(protocol.write_reply("10.0.0.7", error=error), asked)
    assert type(caught.value) is kind
    assert asked.trace == {"node": "10.0.0.7"}


def test_a_remark_on_a_result_arrives_with_it() -> None:
    asked = call()
    reply = protocol.write_reply("10.0.0.7", raw="Once", notes=["the text was cut"])
    assert protocol.read_reply(reply, asked) == "Once"
    assert asked.notes == ["the text was cut"]


@pytest.mark.cluster
async def test_a_silent_cluster_is_left_alone_for_a_while(
    monkeypatch: pytest.MonkeyPatch, hub: HubDouble
) -> None:
    asked: list[str] = []

    async def hang(address: str, class_path: str) -> None:
        asked.append(class_path)
        await asyncio.Event().wait()

    monkeypatch.setattr(cluster, "actor", hang)
    monkeypatch.setattr(shared, "BREAKER_TIMEOUT_S", 0.01)
    monkeypatch.setattr(shared, "HUB_TIMEOUT_S", 0.01)
    breaker = shared.SharedBreaker("ray://head.example")
    for _ in range(3):
        async with breaker.call(("hosted", "org/model")):
            pass
    assert len(asked) == 1
    hub.add_model("org/vit", pipeline_tag="image-classification")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    rows = await shared.SharedHubApi(Settings(cluster="ray://head.example")).get("/api/models", {"limit": 1})
    assert [row["id"] for row in rows] == ["org/vit"]


async def test_an_answer_of_the_hub_that_is_no_json_is_transient(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(*args: Any) -> Any:
        return protocol.write_reply("", raw="<html>")

    monkeypatch.setattr(shared, "_ask", ask)
    with pytest.raises(TransientError, match="its response is not JSON"):
        await shared.SharedHubApi(Settings(cluster="ray://head.example")).get("/api/models")


@pytest.mark.cluster
async def test_the_watch_of_the_cluster_goes_on_after_an_error() -> None:
    from jarvis_agent.backends.ray.gateway import Deployment, Gateway, Place

    gateway, response = Gateway(), asyncio.get_running_loop().create_future()
    response.set_result([])
    gateway._watching = ended = asyncio.create_task(asyncio.sleep(0))
    await ended
    await gateway._wait(response, Deployment(Place("f", "", "m", "m", None, gpu=False), None), "m")
    assert not gateway._watching.done()


@pytest.mark.parametrize(
    "value", [{"$resource": {"$dict": [["kind", "image"]]}, "file": "/etc/hostname"}, {"$array": 1}]
)
def test_a_message_has_no_files_and_arrays_but_those_sent(value: Any) -> None:
    np.save(text := io.BytesIO(), np.array(["/etc/hostname"]))
    with pytest.raises(UnsupportedError, match="cannot be sent"):
        unpack([json.dumps(value).encode(), text.getvalue()], Path)


@pytest.mark.parametrize("raw", ["{}", {"path": "{}"}, [{"mask": "{}"}]])
def test_a_file_that_a_node_names_and_does_not_send_is_not_read(raw: Any, tmp_path: Path) -> None:
    (secret := tmp_path / "secret.png").write_bytes(b"pixels")
    raw = json.loads(json.dumps(raw).replace("{}", str(secret)))
    asked = replace(call(), spec=TASKS["image-segmentation"])
    with pytest.raises(UnsupportedError, match="names a file that it did not send"):
        protocol.read_reply(protocol.write_reply("10.0.0.7", raw=raw), asked)


def test_all_local_models_run_on_the_cluster_and_algorithms_here() -> None:
    made = make_backends(Settings(cluster="auto"), ModelPool(0))
    on_cluster = {backend.name for backend in made if isinstance(backend, RayBackend)}
    families = {"starter", "transformers", "sentence-transformers", "diffusers", "sklearn", "chronos"}
    assert on_cluster == families
    assert any(isinstance(backend, AlgorithmsBackend) for backend in made)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch runs the model")
def test_a_model_too_large_for_this_machine_may_run_on_a_cluster() -> None:
    large = Candidate(id="org/large", task="image-classification", local=True, size=10**15)
    settings = Settings(cluster="auto")
    placed = place(large, TASKS[large.task], make_backends(settings, ModelPool(0)), settings)
    assert placed.reason == "it runs on the cluster auto"  # type: ignore[union-attr]


@pytest.mark.parametrize("address", ["http://head:8265", "10.0.0.1:6379", "ray://", "ray://head:abc", ""])
def test_an_address_of_another_form_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match='cluster: it is "auto" or "ray://host:10001"'):
        Settings(cluster=address)


@pytest.mark.cluster
async def test_a_cluster_that_cannot_be_reached_is_named_and_not_tried_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[Any] = []

    def connect(place: tuple[str, int], timeout: float) -> Any:
        tried.append(place)
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(cluster, "_unreachable", {})
    backend = RayBackend(make_backends(Settings(), ModelPool(0))[0], "ray://head.example")  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(TransientError, match=r"ray://head\.example cannot be reached.*JARVIS_CLUSTER"):
            await backend.run(call())
    assert tried == [("head.example", 10001)]


@pytest.mark.cluster
async def test_without_the_cluster_a_process_counts_failures_and_asks_the_hub_itself(
    monkeypatch: pytest.MonkeyPatch, hub: HubDouble
) -> None:
    settings = Settings(cluster="ray://127.0.0.1:9")
    for _ in range(MAX_FAILURES):
        with pytest.raises(TransientError):
            async with circuit_breaker(settings).call(("hosted", "org/model")):
                raise TransientError("503")
    with pytest.raises(CircuitOpenError):
        async with circuit_breaker(settings).call(("hosted", "org/model")):
            pass
    hub.add_model("org/vit", pipeline_tag="image-classification")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    rows = await hub_api(settings).get("/api/models", {"pipeline_tag": "image-classification"})
    assert [row["id"] for row in rows] == ["org/vit"]


async def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    backend = make_backends(Settings(), ModelPool(0))[0]
    with pytest.raises(MissingExtraError, match=r"langchain-hugginggpt\[ray\]"):
        await RayBackend(backend, "auto").run(call())  # type: ignore[arg-type]


@pytest.mark.cluster
async def test_a_wait_for_a_replica_is_shown_and_ended_if_none_can_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray import serve

    from jarvis_agent.backends.ray import gateway as module
    from jarvis_agent.backends.ray.gateway import Deployment, Gateway, Place

    monkeypatch.setattr(module, "_find_misfit", lambda place: None)
    removed: list[str] = []
    monkeypatch.setattr(serve, "delete", removed.append)
    gateway, place = Gateway(), Place("transformers", "", "org/model", "one", None, gpu=False)
    deployment = Deployment(place, handle=None)
    responses = [asyncio.get_running_loop().create_future() for _ in range(2)]
    waiting = [asyncio.create_task(gateway._wait(one, deployment, place.name)) for one in responses]
    await asyncio.sleep(0)

    async def check(trigger: str, **states: int) -> list[tuple[str, str]]:
        status = SimpleNamespace(status_trigger=trigger, replica_states=states, message="at\nno torch")
        await gateway._check(deployment, SimpleNamespace(deployments={"transformers": status}))
        return await gateway.activities(["org/model"])

    assert await check("AUTOSCALING", STARTING=1) == [("org/model", "org/model: waits for a replica")]
    assert await check("AUTOSCALING", RUNNING=1) == []
    await check("REPLICA_STARTUP_FAILED")
    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(one) for one in errors] == [UnsupportedError] * 2
    assert [str(one) for one in errors] == ["the cluster cannot start transformers: no torch"] * 2
    assert removed == [place.deployment]
    monkeypatch.setattr(module, "_find_misfit", lambda place: OutOfMemoryError("no node is large enough"))
    deployment = Deployment(place, handle=None)
    await check("AUTOSCALING", STARTING=1)
    assert str(deployment.fault.result()) == "no node is large enough"


@pytest.mark.cluster
def test_a_node_without_memory_is_not_taken_for_a_lost_one() -> None:
    from ray import exceptions

    from jarvis_agent.backends.ray.gateway import explain_error

    assert type(explain_error(exceptions.OutOfMemoryError("the node runs low"))) is OutOfMemoryError
    assert type(explain_error(exceptions.ActorDiedError())) is TransientError


@pytest.mark.parametrize(
    ("size", "memory", "gpu"), [(None, 2, 0.125), (10**9, 2, 0.125), (5 * 10**9, 16, 1.0), (10**11, 256, 1.0)]
)
@pytest.mark.cluster
def test_a_replica_takes_memory_and_a_share_of_a_gpu_by_the_size_of_its_models(
    size: int | None, memory: int, gpu: float
) -> None:
    from jarvis_agent.backends.ray.gateway import GB, Place

    assert Place("f", "", "m", "m", size, gpu=True).resources == {"CPU": 1, "GPU": gpu, "memory": memory * GB}
    assert Place("f", "", "m", "m", size, gpu=False).resources["GPU"] == 0


@pytest.mark.cluster
@pytest.mark.parametrize("missing", ["JARVIS_CHECKPOINTS", "JARVIS_API_KEYS", "JARVIS_OUTPUT_DIR"])
def test_the_server_does_not_start_without_what_its_replicas_share(
    missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from jarvis_agent.interfaces.ray import make_app

    monkeypatch.setenv("JARVIS_CHECKPOINTS", "postgresql://127.0.0.1/none")
    monkeypatch.setenv("JARVIS_API_KEYS", "key")
    monkeypatch.setenv("JARVIS_OUTPUT_DIR", str(tmp_path))
    monkeypatch.delenv(missing)
    with pytest.raises(ConfigError, match=missing):
        make_app()


def test_the_manifest_for_kubernetes_starts_the_server_with_the_pinned_ray() -> None:
    """The schema is KubeRay's of RayService v1 (ray-project/kuberay, feeaf72), less what we do not use."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "scaling.md").read_text("utf-8")
    manifest = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    jsonschema.validate(manifest, json.loads((root / "tests/data/rayservice_schema.json").read_text("utf-8")))
    (served,) = yaml.safe_load(manifest["spec"]["serveConfigV2"])["applications"]
    module, name = served["import_path"].split(":")
    assert f"\n{name} = " in (root / f"{module.replace('.', '/')}.py").read_text("utf-8")
    version = manifest["spec"]["rayClusterConfig"]["rayVersion"]
    assert f"\nray=={version}\n" in (root / "constraints.txt").read_text("utf-8")
