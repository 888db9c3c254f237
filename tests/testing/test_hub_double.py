"""HubDouble, used through huggingface_hub's own clients."""

import threading
from pathlib import Path

import httpx
import pytest
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from jarvis_agent.testing import HubDouble

FILES = {"README.md": "---\nlicense: mit\n---\n# DETR\n", "unet/config.json": "{}"}


@pytest.fixture
def api(hub: HubDouble) -> HfApi:
    return HfApi(endpoint=hub.url)


def test_missing_things_are_reported_as_the_hub_does(hub: HubDouble, api: HfApi, tmp_path: Path) -> None:
    hub.add_model("org/detr", files=FILES)
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("org/none")
    with pytest.raises(EntryNotFoundError):
        hf_hub_download("org/detr", "none.bin", cache_dir=tmp_path)
    with pytest.raises(RevisionNotFoundError):
        hf_hub_download("org/detr", "README.md", revision="v9", cache_dir=tmp_path)


@pytest.mark.parametrize("where", ["start", "middle"])
def test_a_stalled_reply_ends_with_the_double(where: str) -> None:
    with HubDouble() as hub:
        hub.add_model("org/detr", files={"data.bin": b"0123456789"})
        hub.stall("data.bin", where=where)
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{hub.url}/org/detr/resolve/main/data.bin", timeout=0.1)
    assert not [thread for thread in threading.enumerate() if thread.name == "hub-double"]


def test_the_redirection_ends(hub: HubDouble) -> None:
    from huggingface_hub import constants

    assert hub.url == constants.ENDPOINT
    with HubDouble() as other, other.redirected():
        assert other.url == constants.ENDPOINT
    assert hub.url == constants.ENDPOINT
