"""Damaged files of every kind are read, or refused with the name of the file."""

from pathlib import Path

import pytest
from fuzzed import KINDS, damaged, read, refusals, valid_files

from jarvis_agent.core.errors import InputError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return valid_files(tmp_path_factory.mktemp("valid"))


@pytest.mark.parametrize("suffix", KINDS)
async def test_a_file_is_read_under_any_name_and_refused_as_another_kind(
    suffix: str, valid: dict[str, bytes], tmp_path: Path
) -> None:
    kind = KINDS[suffix]
    for name in (f"a.{suffix}", *(() if kind in ("table", "text") else ("a.png", "a.wav", "a", "a.txt"))):
        path = tmp_path / name
        path.write_bytes(valid[suffix])
        assert await read(path, kind), name
    path = tmp_path / f"a.{suffix}"
    # A video stands for its sound.
    for other in {"image", "audio", "video", "3d", "table"} - {kind, "audio" if kind == "video" else kind}:
        with pytest.raises(InputError, match=f"a.{suffix} is an? .* file, and"):
            await read(path, other)


@pytest.mark.parametrize("suffix", KINDS)
async def test_a_damaged_file_is_read_or_refused_with_its_name(
    suffix: str, valid: dict[str, bytes], tmp_path: Path
) -> None:
    assert await refusals(damaged(valid[suffix]), suffix, tmp_path) > 0
