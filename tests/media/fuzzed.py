"""Small good files of every kind, and ruined ones made from them, always the same.

for name, content in ruined(good_files(folder)["png"]): ...     # "cut-12", b"\\x89PNG…"
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

KINDS = {
    **dict.fromkeys(("png", "jpg", "gif", "webp", "bmp", "tif", "avif", "ico", "jp2"), "image"),
    **dict.fromkeys(("wav", "flac", "ogg", "mp3", "aac", "m4a"), "audio"),
    **dict.fromkeys(("mp4", "webm"), "video"),
    "csv": "table",
    "txt": "text",
    "glb": "3d",
}
"""The kind of each format, by its suffix."""

_CUTS, _NOISES = 14, 24
_MANY = b"\xff\xff\xff\x7f"


def good_files(folder: Path) -> dict[str, bytes]:
    """The content of one good file of every format."""
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    for suffix in [suffix for suffix, kind in KINDS.items() if kind == "image"]:
        picture.save(folder / f"good.{suffix}")
    _write_sounds(folder)
    _write_videos(folder, picture)
    _write_solid(folder)
    (folder / "good.csv").write_text("month,sales\n" + "1,2.5\n" * 20)
    (folder / "good.txt").write_text("où est le chat ?\n" * 10, encoding="utf-8")
    return {suffix: (folder / f"good.{suffix}").read_bytes() for suffix in KINDS}


def _write_sounds(folder: Path) -> None:
    import soundfile

    noise = np.random.default_rng(0).normal(0, 0.1, 3000)
    for suffix in ("wav", "flac", "ogg", "mp3"):
        soundfile.write(folder / f"good.{suffix}", noise, 16_000)
    for suffix, form in (("aac", "adts"), ("m4a", "ipod")):
        write_aac(folder / f"good.{suffix}", form, noise[None])


def write_aac(path: Path, form: str, noise: np.ndarray) -> None:
    """Write samples, shape (channels, n), as AAC in a container; one channel or two."""
    import av

    layout = ("mono", "stereo")[len(noise) - 1]
    with av.open(path, "w", format=form) as made:
        stream = made.add_stream("aac", rate=16_000, layout=layout)
        for place in range(0, noise.shape[1] - 1023, 1024):
            samples = np.ascontiguousarray(noise[:, place : place + 1024], np.float32)
            frame = av.AudioFrame.from_ndarray(samples, format="fltp", layout=layout)
            frame.rate, frame.pts = 16_000, place
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))


def _write_videos(folder: Path, picture: object) -> None:
    import av

    for suffix, codec in (("mp4", "libx264"), ("webm", "libvpx")):
        with av.open(folder / f"good.{suffix}", "w") as made:
            stream = made.add_stream(codec, rate=8)
            stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
            for _ in range(4):
                made.mux(stream.encode(av.VideoFrame.from_image(picture)))
            made.mux(stream.encode(None))


def _write_solid(folder: Path) -> None:
    import trimesh

    (folder / "good.glb").write_bytes(trimesh.creation.box().export(file_type="glb"))


def ruined(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Ruined files with their names: cut short, noisy, with huge numbers in the header, swapped bytes, more
    behind the end, nothing at all."""
    size = len(content)
    yield "empty", b""
    for cut in sorted({*range(1, min(size, 20), 3), *np.linspace(20, size - 1, _CUTS, dtype=int).tolist()}):
        yield f"cut-{cut}", content[:cut]
    for seed in range(_NOISES):
        chance = random.Random(seed)
        noisy = bytearray(content)
        for _ in range(1 + seed % 8):
            noisy[chance.randrange(min(size, 400) if seed % 2 else size)] = chance.randrange(256)
        yield f"noise-{seed}", bytes(noisy)
    for place in range(4, 40, 3):
        yield f"huge-{place}", content[:place] + _MANY + content[place + 4 :]
    swapped = bytearray(content[:64])
    swapped[0:-1:2], swapped[1::2] = content[1:64:2], content[0:63:2]
    yield "swapped", bytes(swapped) + content[64:]
    yield "polyglot", content + b"<script>alert(1)</script>PK\x03\x04"
