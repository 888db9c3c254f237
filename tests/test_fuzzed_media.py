"""Ruined files of every kind: each is read, or refused by its name, in bounded memory and time."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
pytest.importorskip("soundfile")
pytest.importorskip("trimesh")

from fuzzed import KINDS, good_files, ruined

from jarvis_agent.errors import BadInputError, InputError
from jarvis_agent.media import open_image, read_audio
from jarvis_agent.resources import ResourceStore
from jarvis_agent.settings import Settings
from jarvis_agent.tables import read_table
from jarvis_agent.types import Resource
from jarvis_agent.video import probe_video, spread_frames

MOST_MEMORY = 64_000_000
"""Bytes that Python may hold while one of these files, of a few kilobytes, is read."""

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::UserWarning:PIL")]


def _video(resource: Resource) -> Any:
    assert resource.path is not None
    return probe_video(resource.path), spread_frames(resource.path, 3)


READERS: dict[str, Callable[[Resource], Any]] = {
    "image": lambda resource: open_image(resource).size,
    "audio": lambda resource: len(read_audio(resource.path, 16_000)),
    "video": _video,
    "table": read_table,
    "text": lambda resource: resource.path,
    "3d": lambda resource: resource.path,
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


@pytest.mark.parametrize("suffix", KINDS)
def test_a_header_that_claims_much_takes_little_memory(
    suffix: str, good: dict[str, bytes], tmp_path: Path
) -> None:
    boastful = [(name, content) for name, content in ruined(good[suffix]) if name.startswith("huge")]
    tracemalloc.start()
    try:
        _refusals(boastful, suffix, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


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
