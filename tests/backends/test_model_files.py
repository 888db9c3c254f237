"""Model files: from a folder, the cache of the Hub, or a download that obeys its limits and ends."""

import asyncio
import io
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import hf_hub_download
from model_bench import fetched
from rich.console import Console

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hub import snapshot as downloads
from jarvis_agent.backends.hub.snapshot import (
    DIFFUSERS,
    SENTENCE_TRANSFORMERS,
    SKOPS,
    TRANSFORMERS,
    Layout,
    model_folder,
)
from jarvis_agent.backends.jobs import activities
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import TransientError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.interfaces.common.progress import RunProgress
from jarvis_agent.testing import HubDouble
from jarvis_agent.testing.hub import HubRequest, Reply

pytestmark = pytest.mark.slow

ONLINE = Settings(offline=False, device="cpu")
OFFLINE = Settings(offline=True, device="cpu")
MODEL = Candidate(id="org/model", task="text-to-image")
FILES: dict[Layout, dict[str, str]] = {
    TRANSFORMERS: {"config.json": "{}", "model.safetensors": "weights"},
    DIFFUSERS: {
        "model_index.json": json.dumps({"unet": ["diffusers", "UNet2DConditionModel"]}),
        "unet/config.json": "{}",
        "unet/diffusion_pytorch_model.safetensors": "weights",
    },
    SENTENCE_TRANSFORMERS: {
        "modules.json": json.dumps([{"path": ""}, {"path": "1_Pooling"}]),
        "model.safetensors": "weights",
        "1_Pooling/config.json": "{}",
    },
    SKOPS: {"model.skops": "weights"},
}


def held(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_the_files_of_each_library_are_downloaded_and_then_found_without_the_hub(
    tmp_path: Path, hub: HubDouble, subtests: pytest.Subtests
) -> None:
    useless = {"README.md": "card", "onnx/model.onnx": "onnx", "flax_model.msgpack": "flax"}
    for layout, files in FILES.items():
        with subtests.test(layout.library):
            model = MODEL.model_copy(update={"id": f"org/{layout.library}"})
            refuse_what_is_not_there(model, layout, tmp_path)
            hub.add_model(model.id, files=files | useless)
            hub.requests.clear()
            folder = model_folder(model, ONLINE, layout)
            assert held(folder) == fetched(hub) == set(files)
            hub.requests.clear()
            local = model.model_copy(update={"local": True})
            assert model_folder(local, OFFLINE, layout) == folder
            pinned = model.model_copy(update={"revision": folder.name, "local": True})
            assert model_folder(pinned, ONLINE, layout) == folder
            assert hub.requests == []
            with pytest.raises(UnsupportedError, match="404"):
                model_folder(model.model_copy(update={"revision": "other"}), ONLINE, layout)
            own = tmp_path / layout.library
            for name, text in files.items():
                (own / name).parent.mkdir(exist_ok=True, parents=True)
                (own / name).write_text(text)
            assert model_folder(model.model_copy(update={"path": own}), OFFLINE, layout) == own


def refuse_what_is_not_there(model: Candidate, layout: Layout, folder: Path) -> None:
    for update, settings, message in (
        ({}, OFFLINE, rf"{model.id}.*JARVIS_OFFLINE"),
        ({"local": True}, ONLINE, f"hf download {model.id}"),
        ({"path": folder}, OFFLINE, model.id),
        ({}, ONLINE, rf"the Hub refuses {model.id} \(404\)"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            model_folder(model.model_copy(update=update), settings, layout)


def test_the_limit_counts_what_would_be_fetched_and_nothing_else(hub: HubDouble) -> None:
    files = {"config.json": "{}", "model.safetensors": "w" * 500, "model.onnx": "o" * 10_000}
    hub.add_model("org/model", files=files)
    with pytest.raises(UnsupportedError, match="JARVIS_MAX_DOWNLOAD"):
        model_folder(MODEL, Settings(offline=False, max_download=400))
    assert fetched(hub) == set()
    folder = model_folder(MODEL, Settings(offline=False, max_download=600))
    # What is in the cache already costs nothing.
    assert model_folder(MODEL, Settings(offline=False, max_download=0)) == folder


def test_a_download_that_stalls_ends_and_the_next_try_goes_on(
    hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.05)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    hub.add_model("org/model", files=FILES[TRANSFORMERS])
    hub.stall("model.safetensors", where="middle", times=7)
    with pytest.raises(TransientError, match="org/model could not be downloaded"):
        model_folder(MODEL, ONLINE)
    tries = [request for request in hub.requests if "model.safetensors" in request.path]
    assert len(tries) <= 8
    assert held(model_folder(MODEL, ONLINE)) == set(FILES[TRANSFORMERS])


def test_what_an_earlier_download_left_is_no_model_where_the_hub_fails(
    hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    hub.add_model("org/model", files=FILES[TRANSFORMERS])
    hf_hub_download("org/model", "config.json")
    hub.answer("/tree/", status=503, times=8)
    with pytest.raises(TransientError, match="org/model could not be downloaded"):
        model_folder(MODEL, ONLINE)
    while httpx.get(f"{hub.url}/api/models/org/model/tree/main").status_code == 503:
        pass
    assert held(model_folder(MODEL, ONLINE)) == set(FILES[TRANSFORMERS])


async def test_a_cancelled_call_stops_its_download_and_blocks_no_later_one(
    hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add_model("org/model", files=FILES[TRANSFORMERS])
    hub.stall("model.safetensors", where="middle", times=2)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.5)
    asked, ended = threading.Event(), threading.Event()
    handle = hub.handle

    def watched(request: HubRequest) -> Reply:
        if request.path.endswith("model.safetensors") and request.method == "GET":
            asked.set()
        return handle(request)

    monkeypatch.setattr(hub, "handle", watched)

    def load() -> Any:
        try:
            model_folder(MODEL, ONLINE)
        finally:
            ended.set()

    pool, call = ModelPool(100), Call(TASKS["text-to-image"], MODEL, {}, Path, ONLINE)
    running = asyncio.ensure_future(pool.run(("a",), load, call))
    assert await asyncio.to_thread(asked.wait, 60)
    assert [each.model for each in activities.get()] == ["org/model"]
    running.cancel()
    assert await asyncio.to_thread(ended.wait, 60)
    await pool.close()
    assert activities.get() == []
    assert held(await asyncio.to_thread(model_folder, MODEL, ONLINE)) == set(FILES[TRANSFORMERS])


def test_the_progress_of_a_download_is_in_a_terminal(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, advance = io.StringIO(), downloads.Download.advance
    console = Console(file=shown, width=100)

    def watched(download: downloads.Download, count: float) -> None:
        advance(download, count)
        console.print(RunProgress(activities=activities.get()))

    hub.add_model("org/model", files={"config.json": "{}", "model.safetensors": "w" * 2_000_000})
    monkeypatch.setattr(downloads.Download, "advance", watched)
    model_folder(MODEL, ONLINE)
    assert "org/model: 2.0 of 2.0 MB downloaded" in shown.getvalue()
    assert activities.get() == []
