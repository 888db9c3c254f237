"""Where a model's files are found: a folder, the Hub's cache, a download that obeys its limits and ends."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hub import snapshot as downloads
from jarvis_agent.backends.hub.layouts import DIFFUSERS, SENTENCE_TRANSFORMERS, SKOPS, TRANSFORMERS, Layout
from jarvis_agent.backends.hub.snapshot import model_folder
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import TransientError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.interfaces.cli.progress import RunProgress
from jarvis_agent.testing import HubDouble
from jarvis_agent.testing.hub import HubRequest, Reply

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
EVERY = pytest.mark.parametrize("layout", FILES, ids=lambda layout: layout.library)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    """A Hub, and an empty cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with HubDouble() as hub, hub.redirected():
        yield hub


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Hub's client waits only for moments."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.05)
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)


def fetched(hub: HubDouble) -> set[str]:
    paths = [request.path for request in hub.requests if "/resolve/" in request.path]
    return {path.split("/resolve/")[1].split("/", 1)[1] for path in paths}


def held(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


@EVERY
def test_what_a_library_reads_is_downloaded_and_then_found_without_the_hub(
    hub: HubDouble, layout: Layout
) -> None:
    useless = {"README.md": "card", "onnx/model.onnx": "onnx", "flax_model.msgpack": "flax"}
    hub.add_model("org/model", files=FILES[layout] | useless)
    folder = model_folder(MODEL, ONLINE, layout)
    assert held(folder) == fetched(hub) == set(FILES[layout])
    asked = len(hub.requests)
    local = MODEL.model_copy(update={"local": True})
    assert model_folder(local, OFFLINE, layout) == folder
    pinned = MODEL.model_copy(update={"revision": folder.name, "local": True})
    assert model_folder(pinned, ONLINE, layout) == folder
    assert len(hub.requests) == asked


@EVERY
def test_a_folder_of_the_users_own_is_taken_as_it_is(tmp_path: Path, layout: Layout) -> None:
    for name, text in FILES[layout].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert model_folder(MODEL.model_copy(update={"path": tmp_path}), OFFLINE, layout) == tmp_path


@EVERY
def test_a_model_that_is_not_there_is_refused_by_name(hub: HubDouble, tmp_path: Path, layout: Layout) -> None:
    with pytest.raises(UnsupportedError, match=r"org/model.*JARVIS_OFFLINE"):
        model_folder(MODEL, OFFLINE, layout)
    with pytest.raises(UnsupportedError, match="hf download org/model"):
        model_folder(MODEL.model_copy(update={"local": True}), ONLINE, layout)
    with pytest.raises(UnsupportedError, match="org/model"):
        model_folder(MODEL.model_copy(update={"path": tmp_path}), OFFLINE, layout)
    with pytest.raises(UnsupportedError, match=r"the Hub refuses org/model \(404\)"):
        model_folder(MODEL, ONLINE, layout)


def test_the_limit_counts_what_would_be_fetched_and_nothing_else(hub: HubDouble) -> None:
    files = {"config.json": "{}", "model.safetensors": "w" * 500, "model.onnx": "o" * 10_000}
    hub.add_model("org/model", files=files)
    with pytest.raises(UnsupportedError, match="JARVIS_MAX_DOWNLOAD"):
        model_folder(MODEL, Settings(offline=False, max_download=400))
    assert fetched(hub) == set()
    folder = model_folder(MODEL, Settings(offline=False, max_download=600))
    # What is in the cache already costs nothing.
    assert model_folder(MODEL, Settings(offline=False, max_download=0)) == folder


def test_a_revision_is_what_is_downloaded(hub: HubDouble) -> None:
    sha = hub.add_model("org/model", files=FILES[TRANSFORMERS]).info["sha"]
    assert model_folder(MODEL.model_copy(update={"revision": sha}), ONLINE).name == sha
    with pytest.raises(UnsupportedError, match="404"):
        model_folder(MODEL.model_copy(update={"revision": "other"}), ONLINE)


@pytest.mark.usefixtures("impatient")
def test_a_download_that_stalls_ends_and_the_next_try_goes_on(hub: HubDouble) -> None:
    hub.add_model("org/model", files=FILES[TRANSFORMERS])
    hub.stall("model.safetensors", where="middle", times=7)
    with pytest.raises(TransientError, match="org/model could not be downloaded"):
        model_folder(MODEL, ONLINE)
    tries = [request for request in hub.requests if "model.safetensors" in request.path]
    assert len(tries) <= 8
    assert held(model_folder(MODEL, ONLINE)) == set(FILES[TRANSFORMERS])


def in_pool(work: Callable[[], Any]) -> tuple[ModelPool, Callable[[], Any]]:
    """A pool, and what makes a coroutine that runs the work as a load in it."""
    pool = ModelPool(100)
    call = Call(TASKS["text-to-image"], MODEL, {}, Path, ONLINE)

    def load() -> Any:
        found = work()
        return lambda call: found

    return pool, lambda: pool.run(("a",), load, call)


async def test_a_cancelled_call_gives_its_download_up_and_blocks_no_later_one(
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

    def work() -> Path:
        try:
            return model_folder(MODEL, ONLINE)
        finally:
            ended.set()

    pool, run = in_pool(work)
    running = asyncio.ensure_future(run())
    assert await asyncio.to_thread(asked.wait, 10)
    assert [download.model for download in downloads.active_downloads()] == ["org/model"]
    running.cancel()
    assert await asyncio.to_thread(ended.wait, 10)
    await pool.close()
    assert downloads.active_downloads() == []
    assert held(await asyncio.to_thread(model_folder, MODEL, ONLINE)) == set(FILES[TRANSFORMERS])


def test_a_download_says_in_the_terminal_how_far_it_is(
    hub: HubDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    shown: list[str] = []
    advance = downloads.Download.advance

    def watched(download: downloads.Download, count: float) -> None:
        advance(download, count)
        seen.append(str(download))
        console = Console(file=io.StringIO(), width=100)
        console.print(RunProgress())
        shown.append(console.file.getvalue())

    hub.add_model("org/model", files={"config.json": "{}", "model.safetensors": "w" * 2_000_000})
    monkeypatch.setattr(downloads.Download, "advance", watched)
    model_folder(MODEL, ONLINE)
    assert any("org/model: 2.0 of 2.0 MB downloaded" in screen for screen in shown)
    assert seen[-1] == "org/model: 2.0 of 2.0 MB downloaded"
    assert downloads.active_downloads() == []
