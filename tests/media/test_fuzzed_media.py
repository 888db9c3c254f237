"""Ruined files of every kind: each is read, or refused by its name, in bounded memory and time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("av")
pytest.importorskip("soundfile")
pytest.importorskip("trimesh")

import numpy as np
from fuzzed import KINDS, good_files, ruined, write_aac
from fuzzed_reading import CONTROL, read, refusals

from jarvis_agent.core.errors import InputError

MOST_MEMORY = 16_000_000
"""Bytes that a process may grow by, decoders in C and all, while it reads one of these small files."""

pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::UserWarning:PIL")]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return good_files(tmp_path_factory.mktemp("good"))


@pytest.mark.parametrize("suffix", KINDS)
def test_a_ruined_file_is_read_or_refused_by_its_name(
    suffix: str, good: dict[str, bytes], tmp_path: Path
) -> None:
    assert refusals(ruined(good[suffix]), suffix, tmp_path) > 0


@pytest.mark.parametrize("channels", [(1, 2), (2, 1)])
def test_sound_whose_channels_come_or_go_is_refused_by_its_name(
    channels: tuple[int, int], tmp_path: Path
) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, (2, 4096))
    parts = []
    for place, count in enumerate(channels):
        write_aac(tmp_path / f"{place}.aac", "adts", noise[:count])
        parts.append((tmp_path / f"{place}.aac").read_bytes())
    assert refusals([("mixed", b"".join(parts))], "aac", tmp_path) == 1


@pytest.fixture(scope="module")
def growths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """By format: in a process of its own, since memory that other tests freed would hide what is taken, and
    with large blocks given back to the system at once, since otherwise one format would hide the next."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("only Linux tells the most memory of a while")
    script = Path(__file__).with_name("fuzzed_reading.py")
    command = [sys.executable, str(script), str(tmp_path_factory.mktemp("memory"))]
    paths = os.pathsep.join(sys.path)
    plainly = {
        **os.environ,
        "PYTHONPATH": paths,
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "0",
    }
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100, env=plainly)
    return json.loads(done.stdout)


@pytest.mark.parametrize("suffix", KINDS)
def test_a_header_that_claims_much_takes_little_memory(suffix: str, growths: dict[str, int]) -> None:
    assert growths[suffix] < MOST_MEMORY


def test_the_memory_of_decoders_is_seen(growths: dict[str, int]) -> None:
    assert growths["control"] > 0.9 * CONTROL


@pytest.mark.parametrize("suffix", KINDS)
async def test_a_whole_file_is_read_whatever_it_is_called(
    suffix: str, good: dict[str, bytes], tmp_path: Path
) -> None:
    by_content = KINDS[suffix] not in ("table", "text")
    for name in (f"a.{suffix}", *(("a.png", "a.wav", "a", "a.txt") if by_content else ())):
        path = tmp_path / name
        path.write_bytes(good[suffix])
        assert await read(path, KINDS[suffix])


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
        await read(path, kind)


@pytest.mark.parametrize("suffix", [suffix for suffix, kind in KINDS.items() if kind in ("image", "audio")])
async def test_text_that_is_called_a_medium_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_text("<html>not found</html>")
    with pytest.raises(InputError, match=rf"a\.{suffix} is a text file"):
        await read(path, KINDS[suffix])
