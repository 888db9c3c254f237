"""Ruined files of every kind: each is read, or refused by its name, in bounded memory and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
pytest.importorskip("soundfile")
pytest.importorskip("trimesh")

import numpy as np
from fuzzed import KINDS, good_files, ruined, write_aac
from PIL import Image
from result_bench import adapting_in

from jarvis_agent.errors import BadInputError, InputError, UnsupportedError
from jarvis_agent.media import open_image, read_audio
from jarvis_agent.resources import ResourceStore
from jarvis_agent.settings import Settings
from jarvis_agent.tables import read_table
from jarvis_agent.types import Resource
from jarvis_agent.video import probe_video, spread_frames

MOST_MEMORY = 64_000_000
"""Bytes that the process may grow by, decoders in C and all, while one of these small files is read."""

_PEAK, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::UserWarning:PIL")]


def _video(resource: Resource) -> Any:
    assert resource.path is not None
    return probe_video(resource.path), spread_frames(resource.path, 3)


def _solid(resource: Resource) -> Any:
    """What becomes of a 3D file that a model made; no task takes one."""
    assert resource.path is not None
    folder = resource.path.parent / "made"
    folder.mkdir(exist_ok=True)
    try:
        return adapting_in(folder)("text-to-3d", {"path": str(resource.path)})
    except UnsupportedError as error:
        raise BadInputError(f"{resource.path}: {error}") from error


READERS: dict[str, Callable[[Resource], Any]] = {
    "image": lambda resource: open_image(resource).size,
    "audio": lambda resource: len(read_audio(resource.path, 16_000)),
    "video": _video,
    "table": read_table,
    "text": lambda resource: resource.path,
    "3d": _solid,
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return good_files(tmp_path_factory.mktemp("good"))


async def _read(path: Path, kind: Any) -> Any:
    """What a task with an argument of that kind would get of the file."""
    store = ResourceStore(Settings(output_dir=path.parent / "outputs"))
    await store.grant(str(path))
    if kind == "text":
        return await store.text_of(str(path))
    return READERS[kind](await store.resolve(str(path), kind))


@pytest.mark.parametrize("suffix", KINDS)
def test_a_ruined_file_is_read_or_refused_by_its_name(
    suffix: str, good: dict[str, bytes], tmp_path: Path
) -> None:
    assert _refusals(ruined(good[suffix]), suffix, tmp_path) > 0


@pytest.mark.parametrize("channels", [(1, 2), (2, 1)])
def test_sound_whose_channels_come_or_go_is_refused_by_its_name(
    channels: tuple[int, int], tmp_path: Path
) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, (2, 4096))
    parts = []
    for place, count in enumerate(channels):
        write_aac(tmp_path / f"{place}.aac", "adts", noise[:count])
        parts.append((tmp_path / f"{place}.aac").read_bytes())
    assert _refusals([("mixed", b"".join(parts))], "aac", tmp_path) == 1


@pytest.mark.skipif(not _RESET.exists(), reason="only Linux tells the most memory of a while")
@pytest.mark.parametrize("suffix", KINDS)
def test_a_header_that_claims_much_takes_little_memory(
    suffix: str, good: dict[str, bytes], tmp_path: Path
) -> None:
    boastful = [(name, content) for name, content in ruined(good[suffix]) if name.startswith("huge")]
    _refusals([("whole", good[suffix])], suffix, tmp_path)  # loads the libraries
    _RESET.write_text("5")
    before = _peak()
    _refusals(boastful, suffix, tmp_path)
    assert _peak() - before < MOST_MEMORY


@pytest.mark.skipif(not _RESET.exists(), reason="only Linux tells the most memory of a while")
def test_the_memory_of_decoders_is_seen(tmp_path: Path) -> None:
    Image.new("L", (8000, 8000)).save(tmp_path / "large.png")
    _RESET.write_text("5")
    before = _peak()
    with Image.open(tmp_path / "large.png") as image:
        image.load()
    assert _peak() - before > 0.9 * 8000 * 8000


def _peak() -> int:
    """The most memory of this process, in bytes, since it was reset."""
    line = next(line for line in _PEAK.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _refusals(files: Iterable[tuple[str, bytes]], suffix: str, folder: Path) -> int:
    """How many of the files were refused; none may fail in another way."""

    async def read_all() -> list[tuple[str, str]]:
        complaints = []
        for name, content in files:
            path = folder / f"{name}.{suffix}"
            path.write_bytes(content)
            try:
                await _read(path, KINDS[suffix])
            except (BadInputError, InputError) as error:
                complaints.append((path.name, str(error)))
        return complaints

    complaints = asyncio.run(read_all())
    assert [name for name, complaint in complaints if name not in complaint] == []
    return len(complaints)


@pytest.mark.parametrize("suffix", KINDS)
async def test_a_whole_file_is_read_whatever_it_is_called(
    suffix: str, good: dict[str, bytes], tmp_path: Path
) -> None:
    by_content = KINDS[suffix] not in ("table", "text")
    for name in (f"a.{suffix}", *(("a.png", "a.wav", "a", "a.txt") if by_content else ())):
        path = tmp_path / name
        path.write_bytes(good[suffix])
        assert await _read(path, KINDS[suffix])


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("kind", ["image", "audio", "video", "3d", "table"])
async def test_a_file_of_another_kind_is_refused_by_its_name(
    suffix: str, kind: str, good: dict[str, bytes], tmp_path: Path
) -> None:
    if kind == KINDS[suffix]:
        pytest.skip("it is of that kind")
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(good[suffix])
    with pytest.raises(InputError, match=f"a.{suffix} is an? .* file, and"):
        await _read(path, kind)


@pytest.mark.parametrize("suffix", [suffix for suffix, kind in KINDS.items() if kind in ("image", "audio")])
async def test_text_that_is_called_a_medium_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_text("<html>not found</html>")
    with pytest.raises(InputError, match=rf"a\.{suffix} is a text file"):
        await _read(path, KINDS[suffix])
