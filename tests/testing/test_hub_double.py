"""HubDouble, used through huggingface_hub's own clients."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFolder

from jarvis_agent.testing import HubDouble

FILES = {"README.md": "---\nlicense: mit\n---\n# DETR\n", "unet/config.json": "{}"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    with HubDouble() as double, double.redirected():
        yield double


@pytest.fixture
def api(hub: HubDouble) -> HfApi:
    return HfApi(endpoint=hub.url)


def test_lists_are_filtered_and_ordered(hub: HubDouble, api: HfApi) -> None:
    for number in range(3):
        hub.add_model(f"org/m{number}", pipeline_tag="translation", downloads=number)
    hub.add_model("org/detr", tags=["vision"], library_name="timm")
    queries: list[tuple[dict[str, Any], list[str]]] = [
        ({"pipeline_tag": "translation", "sort": "downloads"}, ["org/m2", "org/m1", "org/m0"]),
        ({"pipeline_tag": "translation", "limit": 1}, ["org/m2"]),
        ({"search": "det"}, ["org/detr"]),
        ({"filter": ["vision", "timm"]}, ["org/detr"]),
    ]
    for query, expected in queries:
        assert [model.id for model in api.list_models(**query)] == expected, query


def test_the_files_of_a_model_are_listed_at_the_top_or_all(hub: HubDouble, api: HfApi) -> None:
    names = ["config.json", "unet/config.json", "unet/model.safetensors", "vae/a/b.json"]
    hub.add_model("org/sd", files=dict.fromkeys(names, "12"))

    def listed(*, recursive: bool) -> set[str]:
        tree = api.list_repo_tree("org/sd", recursive=recursive)
        return {entry.path + ("/" if isinstance(entry, RepoFolder) else "") for entry in tree}

    assert listed(recursive=False) == {"config.json", "unet/", "vae/"}
    assert listed(recursive=True) == {*names, "unet/", "vae/", "vae/a/"}


def test_a_list_has_the_requested_fields(hub: HubDouble, api: HfApi) -> None:
    providers = {"hf-inference": {}, "fal-ai": {"providerId": "fal/x", "status": "error"}}
    hub.add_model(
        "gpt2", pipeline_tag="text-generation", likes=3, card={"license": "mit"}, providers=providers
    )
    [model] = api.list_models(expand=["inferenceProviderMapping", "cardData"], inference_provider="all")
    assert model.likes is None
    assert model.card_data is not None
    assert model.card_data.license == "mit"
    assert [(m.provider, m.provider_id, m.status) for m in model.inference_provider_mapping or []] == [
        ("hf-inference", "gpt2", "live"),
        ("fal-ai", "fal/x", "error"),
    ]


def test_a_snapshot_is_downloaded_whole(hub: HubDouble, tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "model.safetensors").write_bytes(b"\0weights")
    model = hub.add_model("org/detr", files=FILES, directory=tmp_path / "made")
    snapshot = Path(snapshot_download("org/detr", cache_dir=tmp_path / "cache"))
    assert {p.relative_to(snapshot).as_posix() for p in snapshot.rglob("*") if p.is_file()} == {
        "README.md",
        "unet/config.json",
        "model.safetensors",
    }
    assert (snapshot / "model.safetensors").read_bytes() == b"\0weights"
    assert snapshot.name == model.info["sha"]


def test_missing_things_are_reported_as_the_hub_does(hub: HubDouble, api: HfApi, tmp_path: Path) -> None:
    hub.add_model("org/detr", files=FILES)
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("org/none")
    with pytest.raises(EntryNotFoundError):
        hf_hub_download("org/detr", "none.bin", cache_dir=tmp_path)
    with pytest.raises(RevisionNotFoundError):
        hf_hub_download("org/detr", "README.md", revision="v9", cache_dir=tmp_path)


def test_a_gated_model_wants_a_token(hub: HubDouble, tmp_path: Path) -> None:
    hub.add_model("org/gated", files=FILES, gated="auto")
    with pytest.raises(GatedRepoError):
        hf_hub_download("org/gated", "README.md", cache_dir=tmp_path)
    assert hf_hub_download("org/gated", "README.md", cache_dir=tmp_path, token="hf_x")


def test_a_broken_download_is_resumed(hub: HubDouble) -> None:
    hub.add_model("org/detr", files={"data.bin": b"0123456789"})
    reply = httpx.get(f"{hub.url}/org/detr/resolve/main/data.bin", headers={"Range": "bytes=4-"})
    assert (reply.status_code, reply.content) == (206, b"456789")
    assert reply.headers["content-range"] == "bytes 4-9/10"


def test_answers_are_given_in_order_and_as_often_as_set(hub: HubDouble) -> None:
    hub.add_model("org/detr")
    hub.answer("/api/models", status=503, times=1, headers={"Retry-After": "7"})
    first = httpx.get(f"{hub.url}/api/models")
    assert (first.status_code, first.headers["retry-after"]) == (503, "7")
    assert httpx.get(f"{hub.url}/api/models").json()[0]["id"] == "org/detr"


def test_inference_is_answered_from_the_script(hub: HubDouble) -> None:
    hub.answer("/hf-inference/models/org/detr", body=[{"label": "cat", "score": 0.5}])
    hub.answer("/raw", body=b"RIFF")
    url = f"{hub.url}/hf-inference/models/org/detr"
    assert httpx.post(url, json={"inputs": "x"}).json() == [{"label": "cat", "score": 0.5}]
    assert httpx.post(f"{hub.url}/raw").content == b"RIFF"
    assert httpx.post(f"{hub.url}/none").status_code == 404
    assert hub.requests[0].json == {"inputs": "x"}


@pytest.mark.parametrize("where", ["start", "middle"])
def test_a_stalled_reply_ends_with_the_double(where: str) -> None:
    with HubDouble() as hub:
        hub.add_model("org/detr", files={"data.bin": b"0123456789"})
        hub.stall("data.bin", where=where)  # type: ignore[arg-type]
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{hub.url}/org/detr/resolve/main/data.bin", timeout=0.1)
    assert not [thread for thread in threading.enumerate() if thread.name == "hub-double"]


def test_the_redirection_ends(hub: HubDouble) -> None:
    from huggingface_hub import constants

    assert hub.url == constants.ENDPOINT
    with HubDouble() as other, other.redirected():
        assert other.url == constants.ENDPOINT
    assert hub.url == constants.ENDPOINT
