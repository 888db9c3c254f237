"""Limits of pixels, seconds, bytes and cells, which hold before anything is decoded."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import struct
import wave
import zlib
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jarvis_agent.core.errors import BadInputError, InputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.media import tables
from jarvis_agent.media.limits import check_limits
from jarvis_agent.media.store import ResourceStore


def _resolve(path: Path, kind: Any, **limits: Any) -> Resource:
    async def resolve() -> Resource:
        store = ResourceStore(Settings(output_dir=path.parent / "outputs", **limits))
        await store.grant(str(path))
        return await store.resolve(str(path), kind)

    return asyncio.run(resolve())


def _png(width: int, height: int) -> bytes:
    """A PNG whose header claims a size, with hardly any picture behind it."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("size", [(20_000, 20_000), (2**31 - 1, 2**31 - 1), (10_001, 10_000)])
def test_a_picture_that_claims_too_many_pixels_is_refused(size: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(_png(*size))
    with pytest.raises(InputError, match=r"bomb\.png"):
        _resolve(tmp_path / "bomb.png", "image")


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "webp", "bmp", "tif"])
def test_the_limit_of_pixels_is_that_of_the_settings(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (40, 25)).save(path)
    assert _resolve(path, "image", max_pixels=1000).kind == "image"
    with pytest.raises(InputError, match=r"40 x 25 pixels, more than 999.*JARVIS_MAX_PIXELS"):
        _resolve(path, "image", max_pixels=999)


def test_ten_hours_of_sound_are_refused_unread(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    path = tmp_path / "long.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 1, 8000, 0, "NONE", ""))
        file.setnframes(36_000 * 8000)
        file.writeframesraw(b"\x80")
    _set_sizes(path, 36_000 * 8000)
    with pytest.raises(
        InputError, match=r"long\.wav lasts 10:00:00, longer than 1:00:00 \(JARVIS_MAX_SECONDS"
    ):
        _resolve(path, "audio")


def _set_sizes(path: Path, data: int) -> None:
    """Make the file as long as a WAV of so many bytes of sound; the new part takes no room on the disk."""
    with path.open("r+b") as file:
        file.truncate(44 + data)
        file.seek(4)
        file.write(struct.pack("<I", 36 + data))
        file.seek(40)
        file.write(struct.pack("<I", data))


def test_a_video_is_measured_by_its_packets(tmp_path: Path) -> None:
    pytest.importorskip("av")
    from jarvis_agent.media.video import write_video

    path = tmp_path / "a.mp4"
    write_video(path, [Image.new("RGB", (32, 24))] * 16, 8.0, {})
    assert _resolve(path, "video", max_seconds=2.1).kind == "video"
    with pytest.raises(InputError, match=r"a\.mp4 lasts .*JARVIS_MAX_SECONDS"):
        _resolve(path, "video", max_seconds=1.5)
    content = path.read_bytes()
    place = content.index(b"mvhd") + 4 + 16
    path.write_bytes(content[:place] + struct.pack(">I", 1) + content[place + 4 :])
    with pytest.raises(InputError, match="JARVIS_MAX_SECONDS"):
        _resolve(path, "video", max_seconds=1.5)
    with pytest.raises(InputError, match=r"pictures of 32 x 24 pixels.*JARVIS_MAX_PIXELS"):
        _resolve(path, "video", max_pixels=700)


def _film(path: Path, pictures: list[bytes], *, times: Iterable[int] | None = None) -> Path:
    """A video of these JPEGs, 64 x 64 by its head, ten a second unless `times` say otherwise."""
    import av

    with av.open(path, "w") as made:
        stream = made.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuvj420p"
        for picture, time in zip(pictures, times or itertools.count(), strict=False):
            packet = av.Packet(picture)
            packet.stream, packet.time_base = stream, Fraction(1, 10)
            packet.pts = packet.dts = time
            made.mux(packet)
    return path


def _jpg(width: int, height: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (width, height)).save(content, "JPEG")
    return content.getvalue()


def test_a_later_picture_of_a_video_is_not_much_larger_than_the_head_says(tmp_path: Path) -> None:
    pytest.importorskip("av")
    from jarvis_agent.media.video import spread_frames, to_mp4

    path = _film(tmp_path / "bomb.avi", [_jpg(64, 64)] * 12 + [_jpg(6000, 6000)] + [_jpg(64, 64)])
    assert _resolve(path, "video", max_pixels=10_000).kind == "video"
    with pytest.raises(BadInputError, match=r"bomb\.avi can not be read as a video"):
        spread_frames(path, 14)
    with pytest.raises(BadInputError, match=r"bomb\.avi can not be read as a video"):
        to_mp4(path, tmp_path / "new.mp4", {})


def test_a_video_may_grow_as_recorded_calls_do(tmp_path: Path) -> None:
    pytest.importorskip("av")
    from jarvis_agent.media.video import spread_frames

    path = _film(tmp_path / "call.avi", [_jpg(64, 64), _jpg(1280, 720)])
    assert [image.size for _, image in spread_frames(path, 2)] == [(64, 64), (1280, 720)]


def test_pictures_of_a_video_are_held_up_to_a_limit_of_all_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("av")
    from jarvis_agent.media import video

    path = _film(tmp_path / "a.avi", [_jpg(64, 64)] * 10)
    monkeypatch.setattr(video, "MAX_HELD", 6 * 64 * 64)
    assert len(video.spread_frames(path, 6)) == 6
    with pytest.raises(BadInputError, match=r"7 pictures of a\.avi have more than 24,576 pixels together"):
        video.spread_frames(path, 7)


def test_pictures_that_are_all_shown_at_once_last_as_long_as_so_many_do(tmp_path: Path) -> None:
    pytest.importorskip("av")
    path = _film(tmp_path / "same.mkv", [_jpg(16, 16)] * 3001, times=itertools.repeat(0))
    resource = Resource(kind="video", path=path)
    check_limits(resource, Settings(max_seconds=301))
    with pytest.raises(InputError, match=r"lasts 0:05:00, longer than 0:00:05"):
        check_limits(resource, Settings(max_seconds=5))


def test_pictures_that_last_no_time_at_all_still_count() -> None:
    from jarvis_agent.media.video import length_of

    stream = SimpleNamespace(index=0, type="video", average_rate=Fraction(10))
    packet = SimpleNamespace(size=1, pts=0, duration=0, time_base=Fraction(1, 10), stream=stream)
    container = SimpleNamespace(demux=lambda: itertools.repeat(packet, 2400))
    assert length_of(container) == pytest.approx(10)


def test_sound_that_is_all_heard_at_once_lasts_as_long_as_its_packets(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "same.nut"
    with av.open(path, "w") as made:
        stream = made.add_stream("aac", rate=16_000, layout="mono")
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        silence.rate = 16_000
        for place in range(400):
            silence.pts = place * 1024
            for packet in stream.encode(silence):
                packet.pts = packet.dts = 0
                made.mux(packet)
    with pytest.raises(InputError, match=r"lasts 0:00:25, longer than 0:00:05"):
        check_limits(Resource(kind="audio", path=path), Settings(max_seconds=5))


def test_a_sound_that_claims_a_terabyte_is_refused(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    path = tmp_path / "boast.flac"
    soundfile.write(path, np.zeros(1000), 8000)
    content = bytearray(path.read_bytes())
    content[21] |= 0x0F  # the highest bits of the number of samples
    path.write_bytes(content)
    resource = Resource(kind="audio", path=path)
    with pytest.raises(InputError, match="JARVIS_MAX_SECONDS"):
        check_limits(resource, Settings())
    from jarvis_agent.media.audio import decode_audio

    with pytest.raises(BadInputError, match=r"boast\.flac claims .* samples"):
        decode_audio(path)


async def test_an_attachment_is_measured_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ResourceStore(Settings(output_dir=tmp_path, max_file_bytes=1000))
    run_with_timeout = base64.b64encode(b"x" * 1000).decode()
    assert (
        await store.keep({"type": "file", "base64": run_with_timeout, "mime_type": "text/plain"})
    ).path is not None
    monkeypatch.setattr("jarvis_agent.media.store.base64.b64decode", None)
    for block in (
        {"type": "file", "base64": "A" * 3000, "mime_type": "text/plain"},
        {"type": "file", "url": "data:text/plain;base64," + "A" * 3000},
    ):
        with pytest.raises(InputError, match=r"more than 1,000 bytes \(JARVIS_MAX_FILE_BYTES\)"):
            await store.keep(block)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a,b,c\n" + "1,2,3\n" * 40, "more than 100 cells"),
        ("a\n" + "1\n" * 60, "more than 50 rows"),
        ("a,b\n" + "1" * 2000 + ",2\n", "a line of more than 1,000 letters"),
        (",".join(f"c{n}" for n in range(1000)) + "\n", "a line of more than 1,000 letters"),
    ],
    ids=["cells", "rows", "letters", "columns"],
)
def test_a_table_has_limits_of_its_own(
    content: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in (("MAX_CELLS", 100), ("MAX_ROWS", 50), ("MAX_LINE", 1000)):
        monkeypatch.setattr(tables, name, limit)
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(BadInputError, match=f"a.csv has {complaint}"):
        tables.read_table(Resource(kind="table", path=path))


def test_a_picture_that_is_larger_than_its_icon_says_is_refused(tmp_path: Path) -> None:
    inner = io.BytesIO()
    Image.new("RGB", (200, 100)).save(inner, "PNG")
    content = inner.getvalue()
    head = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, len(content), 22)
    (tmp_path / "a.ico").write_bytes(head + content)
    icon = Resource(kind="image", path=tmp_path / "a.ico")
    check_limits(icon, Settings(max_pixels=20_000))
    with pytest.raises(InputError, match="200 x 100 pixels, more than 19,999"):
        check_limits(icon, Settings(max_pixels=19_999))


@pytest.mark.parametrize("seconds", [1e15, float("inf")])
def test_a_sound_that_claims_to_last_for_ever_is_refused(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile = pytest.importorskip("soundfile")
    monkeypatch.setattr(soundfile, "info", lambda path: SimpleNamespace(duration=seconds))
    with pytest.raises(InputError, match="longer than 1:00:00"):
        check_limits(Resource(kind="audio", path=tmp_path / "a.wav"), Settings())
