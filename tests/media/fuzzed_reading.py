"""Reads files as a task's arguments are read, and tells how much memory that takes.

refusals(ruined(content), "png", folder)            # how many were refused; none may fail in another way
python tests/media/fuzzed_reading.py folder     # {"png": 1048576, …}: peak bytes of each format
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fuzzed import KINDS, good_files, ruined
from PIL import Image
from result_bench import adapting_in

from jarvis_agent.core.errors import BadInputError, InputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.media.audio import read_audio
from jarvis_agent.media.image import open_image
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.media.tables import read_table
from jarvis_agent.media.video import probe_video, spread_frames

CONTROL = 64_000_000
"""Bytes of the picture by which it is shown that the memory of decoders is seen."""

_PEAK, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


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


async def read(path: Path, kind: Any) -> Any:
    """What a task with an argument of that kind would get of the file."""
    store = ResourceStore(Settings(output_dir=path.parent / "outputs"))
    await store.grant(str(path))
    if kind == "text":
        return await store.text_of(str(path))
    return READERS[kind](await store.resolve(str(path), kind))


def refusals(files: Iterable[tuple[str, bytes]], suffix: str, folder: Path) -> int:
    """How many of the files were refused; none may fail in another way."""

    async def read_all() -> list[tuple[str, str]]:
        complaints = []
        for name, content in files:
            path = folder / f"{name}.{suffix}"
            path.write_bytes(content)
            try:
                await read(path, KINDS[suffix])
            except (BadInputError, InputError) as error:
                complaints.append((path.name, str(error)))
        return complaints

    complaints = asyncio.run(read_all())
    assert [name for name, complaint in complaints if name not in complaint] == []
    return len(complaints)


def growths(folder: Path) -> dict[str, int]:
    """The most bytes by which this process grew while it read files whose headers claim much, by format.

    Beside them, as "control", a picture of `CONTROL` bytes.
    """
    Image.new("L", (8000, CONTROL // 8000)).save(folder / "control.png")
    grown = {"control": _growth(lambda: Image.open(folder / "control.png").load())}
    for suffix, content in good_files(folder).items():
        boastful = [(name, made) for name, made in ruined(content) if name.startswith("huge")]
        refusals([("whole", content)], suffix, folder)  # loads the libraries
        grown[suffix] = _growth(lambda: refusals(boastful, suffix, folder))  # noqa: B023 - called at once
    return grown


def _growth(act: Callable[[], Any]) -> int:
    _RESET.write_text("5")
    before = _peak()
    act()
    return _peak() - before


def _peak() -> int:
    """The most memory of this process, in bytes, since it was reset."""
    line = next(line for line in _PEAK.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    sys.stdout.write(json.dumps(growths(Path(sys.argv[1]))))
