"""Small valid files of every kind, damaged versions of them, and a reader as tasks use it.

await refusals(damaged(valid_files(folder)["png"]), "png", folder)     # the number of refused files
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from libraries import needs
from PIL import Image
from result_bench import a_call, adapting_in

from jarvis_agent.backends.algorithms.backend import info
from jarvis_agent.core.errors import BadInputError, InputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.media.recordings import probe_video, read_audio, spread_frames
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.media.tables import read_table

av, soundfile, trimesh = needs("av"), needs("soundfile"), needs("trimesh")

RATE = 16_000
KINDS = {
    **dict.fromkeys(("png", "jpg", "gif", "webp", "bmp", "tif", "avif", "ico", "jp2"), "image"),
    **dict.fromkeys(("wav", "flac", "ogg", "mp3", "aac", "m4a"), "audio"),
    **dict.fromkeys(("mp4", "webm"), "video"),
    "csv": "table",
    "txt": "text",
    "glb": "3d",
}
"""The kind of each format, by its suffix."""


def valid_files(folder: Path) -> dict[str, bytes]:
    """The content of one valid file of every format."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8))
    noise = np.random.default_rng(0).normal(0, 0.1, 3000)
    for suffix, kind in KINDS.items():
        path = folder / f"good.{suffix}"
        if kind == "image":
            image.save(path)
        elif suffix in ("aac", "m4a"):
            record(path, "aac", [noise.astype(np.float32)], "ipod" if suffix == "m4a" else "adts")
        elif kind == "audio":
            soundfile.write(path, noise, RATE)
        elif kind == "video":
            write_film(path, image, "libvpx" if suffix == "webm" else "libx264")
    (folder / "good.glb").write_bytes(trimesh.creation.box().export(file_type="glb"))
    (folder / "good.csv").write_text("month,sales\n" + "1,2.5\n" * 20)
    (folder / "good.txt").write_text("où est le chat ?\n" * 10, encoding="utf-8")
    return {suffix: (folder / f"good.{suffix}").read_bytes() for suffix in KINDS}


def record(
    path: Path, codec: str, channels: Any, form: str | None = None, options: dict[str, str] | None = None
) -> Path:
    """A recording of these channels, each float32, shape (samples,), in `RATE` Hz."""
    layout = {1: "mono", 2: "stereo", 6: "5.1", 8: "7.1"}[len(channels)]
    rate = {"libopus": 48_000, "wmav2": 44_100}.get(codec, RATE)
    with av.open(path, "w", format=form, options=options) as made:
        stream = made.add_stream(codec, rate=rate, layout=layout)
        stream.bit_rate = 96_000
        packed = np.stack(channels, axis=1).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(packed, format="flt", layout=layout)
        frame.rate = RATE
        resampler = av.AudioResampler(stream.format, layout, stream.rate)
        for part in [*resampler.resample(frame), *resampler.resample(None), None]:
            made.mux(stream.encode(part))
    return path


def write_film(
    path: Path,
    image: Image.Image,
    codec: str = "mpeg4",
    form: str | None = None,
    turn: int = 0,
    options: dict[str, str] | None = None,
    frames: Sequence[Image.Image] = (),
) -> Path:
    """A video of four such images, or of `frames`, eight a second, turned by so many degrees in players."""
    with av.open(path, "w", format=form, options=options) as made:
        stream = made.add_stream(codec, rate=8)
        stream.width, stream.height, stream.pix_fmt = *image.size, "yuv420p"
        if turn:
            stream.set_display_rotation(turn)
        for each in frames or [image] * 4:
            made.mux(stream.encode(av.VideoFrame.from_image(each)))
        made.mux(stream.encode(None))
    return path


def damaged(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Damaged files by name: cut short, with noise, with huge numbers or swapped bytes in the header."""
    size = len(content)
    yield "empty", b""
    for cut in sorted({*range(1, min(size, 20), 3), *np.linspace(20, size - 1, 14, dtype=int).tolist()}):
        yield f"cut-{cut}", content[:cut]
    for seed in range(24):
        chance, noisy = random.Random(seed), bytearray(content)
        for _ in range(1 + seed % 8):
            noisy[chance.randrange(min(size, 400) if seed % 2 else size)] = chance.randrange(256)
        yield f"noise-{seed}", bytes(noisy)
    for place in range(4, 40, 3):
        yield f"huge-{place}", content[:place] + b"\xff\xff\xff\x7f" + content[place + 4 :]
    swapped = bytearray(content[:64])
    swapped[0:-1:2], swapped[1::2] = content[1:64:2], content[0:63:2]
    yield "swapped", bytes(swapped) + content[64:]
    yield "polyglot", content + b"<script>alert(1)</script>PK\x03\x04"


def _solid(resource: Resource) -> Any:
    """The result of a model that wrote this file; no task takes a 3D file."""
    folder = Path(resource.path or "").parent / "made"
    folder.mkdir(exist_ok=True)
    try:
        return adapting_in(folder)("text-to-3d", {"path": str(resource.path)})
    except UnsupportedError as error:
        raise BadInputError(f"{resource.path}: {error}") from error


def _info(resource: Resource) -> dict[str, Any]:
    return info(a_call(TASKS["media-info"], Path(resource.path or "").parent, file=resource))


READERS: dict[str, Callable[[Any], Any]] = {
    "image": lambda resource: resource.to_pil().size,
    "audio": lambda resource: len(read_audio(resource.path, 16_000)),
    "video": lambda resource: (probe_video(resource.path), spread_frames(resource.path, 3)),
    "table": lambda resource: read_table(resource.path),
    "3d": _solid,
    "file": lambda resource: adapting_in(resource.path.parent)("media-info", _info(resource)),
}


async def read(path: Path, kind: Any, settings: Settings | None = None) -> Any:
    """The value that a task gets for the file in an argument of that kind."""
    store = ResourceStore(settings or Settings(output_dir=path.parent / "outputs"))
    await store.grant(str(path))
    return (
        await store.text_of(str(path))
        if kind == "text"
        else READERS[kind](await store.resolve(str(path), kind))
    )


async def refusals(files: Iterable[tuple[str, bytes]], suffix: str, folder: Path) -> int:
    """How many of the files were refused. Other errors are raised; each message must name its file."""
    count, settings = 0, Settings(output_dir=folder / "outputs")
    for name, content in files:
        path = folder / f"{name}.{suffix}"
        path.write_bytes(content)
        count += await _is_refused(path, KINDS[suffix], settings)
        await _is_refused(path, "file", settings)
    return count


async def _is_refused(path: Path, kind: Any, settings: Settings) -> bool:
    try:
        await read(path, kind, settings)
    except (BadInputError, InputError) as error:
        if path.name not in str(error):
            raise
        return True
    return False
