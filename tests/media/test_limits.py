"""Limits on pixels, seconds, bytes and cells, checked before decoding."""

import base64
import io
import itertools
import struct
import wave
import zlib
from collections.abc import Iterable
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from jarvis_agent.core.errors import BadInputError, InputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.media import limits, tables
from jarvis_agent.media.limits import TASK_LIMITS, check_task_limits
from jarvis_agent.media.store import ResourceStore

av = pytest.importorskip("av")
soundfile = pytest.importorskip("soundfile")

from jarvis_agent.media import recordings  # noqa: E402
from jarvis_agent.media.recordings import decode_audio  # noqa: E402


def check(path: Path, kind: Any, **limited: float) -> None:
    names = {name.upper(): limit for name, limit in limited.items()}
    with mock.patch.multiple(limits, **names) if names else nullcontext():
        limits.check_limits(Resource(kind=kind, path=path))


def _png(width: int, height: int) -> bytes:
    """A PNG whose header claims a size, with little image data."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


def _jpg(width: int, height: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (width, height)).save(content, "JPEG")
    return content.getvalue()


def _film(path: Path, images: list[bytes], *, times: Iterable[int] | None = None) -> Path:
    """A video of these JPEGs, 64 x 64 by its header, ten per second unless `times` are given."""
    with av.open(path, "w") as made:
        stream = made.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 64, "yuvj420p"
        for image, time in zip(images, times or itertools.count(), strict=False):
            packet = av.Packet(image)
            packet.stream, packet.time_base = stream, Fraction(1, 10)
            packet.pts = packet.dts = time
            made.mux(packet)
    return path


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning", "ignore::UserWarning:PIL")
def test_images_have_a_limit_of_pixels(tmp_path: Path) -> None:
    for size in ((20_000, 20_000), (2**31 - 1, 2**31 - 1), (10_001, 10_000)):
        (tmp_path / "bomb.png").write_bytes(_png(*size))
        with pytest.raises(InputError, match=r"bomb\.png"):
            check(tmp_path / "bomb.png", "image")
    for suffix in ("png", "jpg", "gif", "webp", "bmp", "tif"):
        path = tmp_path / f"a.{suffix}"
        Image.new("RGB", (40, 25)).save(path)
        check(path, "image", max_pixels=1000)
        with pytest.raises(InputError, match=r"40 x 25 pixels, more than 999;"):
            check(path, "image", max_pixels=999)
    # The header of this icon states 16 x 16 pixels.
    inner = io.BytesIO()
    Image.new("RGB", (200, 100)).save(inner, "PNG")
    length = len(inner.getvalue())
    header = struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, length, 22)
    icon = tmp_path / "a.ico"
    icon.write_bytes(header + inner.getvalue())
    check(icon, "image", max_pixels=20_000)
    with pytest.raises(InputError, match="200 x 100 pixels, more than 19,999"):
        check(icon, "image", max_pixels=19_999)


def test_long_audio_is_refused_without_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, size = tmp_path / "long.wav", 7_200 * 8000
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 1, 8000, size, "NONE", ""))
        file.writeframesraw(b"\x80")
    with path.open("r+b") as made:  # a sparse file
        made.truncate(44 + size)
        for place, value in ((4, 36 + size), (40, size)):
            made.seek(place)
            made.write(struct.pack("<I", value))
    with pytest.raises(InputError, match=r"lasts 2:00:00, longer than 1:00:00;"):
        check(path, "audio")
    for seconds in (1e15, float("inf")):
        monkeypatch.setattr(
            recordings,
            "measure_packets",
            lambda _, given=seconds: recordings.Packets(given, 0, 0, frozenset()),
        )
        with pytest.raises(InputError, match="longer than 1:00:00"):
            check(path, "audio")


def test_a_recording_is_as_long_as_its_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge.flac"
    soundfile.write(path, np.zeros(1000), 8000)
    content = bytearray(path.read_bytes())
    content[21] |= 0x0F  # the highest bits of the number of samples
    path.write_bytes(content)
    check(path, "audio", max_seconds=0.2)
    assert decode_audio(path)[0].shape == (1000, 1)
    with pytest.raises(InputError, match="longer than"):
        check(path, "audio", max_seconds=0.1)
    monkeypatch.setattr(recordings, "MAX_SAMPLES", 900)
    with pytest.raises(BadInputError, match=r"huge\.flac claims .* samples"):
        decode_audio(path)


def test_a_video_is_measured_by_its_packets(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    recordings.write_video(path, [Image.new("RGB", (32, 24))] * 16, 8.0)
    check(path, "video", max_seconds=2.1)
    content = path.read_bytes()
    place = content.index(b"mvhd") + 4 + 16  # the duration in the header
    for made in (content, content[:place] + struct.pack(">I", 1) + content[place + 4 :]):
        path.write_bytes(made)
        with pytest.raises(InputError, match=r"a\.mp4 lasts .*longer than"):
            check(path, "video", max_seconds=1.5)
    with pytest.raises(InputError, match=r"pictures of 32 x 24 pixels, more than 700"):
        check(path, "video", max_pixels=700)


def test_the_duration_of_packets_without_time_stamps_is_counted(tmp_path: Path) -> None:
    same = _film(tmp_path / "same.mkv", [_jpg(16, 16)] * 3001, times=itertools.repeat(0))
    check(same, "video", max_seconds=301)
    with pytest.raises(InputError, match=r"lasts 0:05:00, longer than 0:00:05"):
        check(same, "video", max_seconds=5)


def test_frames_of_a_video_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = _film(tmp_path / "bomb.avi", [_jpg(64, 64)] * 12 + [_jpg(6000, 6000)] + [_jpg(64, 64)])
    check(bomb, "video", max_pixels=10_000)
    frames, _ = recordings.spread_frames(bomb, 14)
    assert {image.size for _, image in frames} == {(64, 64)}, "others are left out"
    recordings.to_mp4(bomb, tmp_path / "new.mp4")
    assert recordings.probe_video(tmp_path / "new.mp4").frames == 13
    call = _film(tmp_path / "call.avi", [_jpg(64, 64), _jpg(1280, 720)])  # recorded calls grow
    assert [image.size for _, image in recordings.spread_frames(call, 2)[0]] == [(64, 64), (1280, 720)]
    many = _film(tmp_path / "a.avi", [_jpg(64, 64)] * 10)
    monkeypatch.setattr(recordings, "MAX_FRAME_PIXELS", 6 * 64 * 64)
    assert len(recordings.spread_frames(many, 6)[0]) == 6
    with pytest.raises(BadInputError, match=r"7 frames of a\.avi have more than 24,576 pixels together"):
        recordings.spread_frames(many, 7)


async def test_an_attachment_is_measured_undecoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ResourceStore(Settings(output_dir=tmp_path, max_file_bytes=1000))
    allowed = {"type": "file", "base64": base64.b64encode(b"x" * 1000).decode(), "mime_type": "text/plain"}
    assert (await store.grant_block(allowed)).path is not None
    monkeypatch.setattr("jarvis_agent.core.content.base64.b64decode", None)
    for field in ({"base64": "A" * 3000}, {"url": "data:text/plain;base64," + "A" * 3000}):
        with pytest.raises(InputError, match=r"more than 1,000 bytes.*JARVIS_MAX_FILE_BYTES"):
            await store.grant_block({"type": "file", "mime_type": "text/plain", **field})


def test_a_task_has_limits_on_its_inputs(tmp_path: Path) -> None:
    assert TASKS.keys() >= TASK_LIMITS.keys()
    read_images = {name for name, spec in TASKS.items() if any(arg.kind == "image" for arg in spec.inputs)}
    assert [name for name in sorted(read_images) if "pixels" not in TASK_LIMITS.get(name, {})] == []
    page, table, sound = tmp_path / "page.png", tmp_path / "a.csv", tmp_path / "a.wav"
    Image.new("L", (7000, 7000)).save(page)
    table.write_text("a\n" + "1\n" * 2000)
    soundfile.write(sound, np.zeros(8000 * 1300), 8000)
    image, rows = Resource(kind="image", path=page), Resource(kind="table", path=table)
    speech = Resource(kind="audio", path=sound)
    small = Resource(kind="image", path=tmp_path / "small.png")
    Image.new("L", (8, 8)).save(tmp_path / "small.png")
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("text-to-speech", {"text": "a" * 20_001}, "20,000 characters.* has 20,001"),
        ("question-answering", {"text": "b", "context": "a" * 100_000}, "100,000 characters"),
        ("text-ranking", {"text": "a", "sentences": ["b"] * 10_001}, "10,000 texts"),
        ("text-ranking", {"text": "a", "sentences": ["b" * 1000] * 2000}, "2,000,000 characters"),
        ("image-to-text", {"image": image}, "40,000,000 pixels.* has 49,000,000"),
        ("visual-document-retrieval", {"text": "a", "image": [small] * 101}, "100 images"),
        ("audio-to-audio", {"audio": speech}, "1,200 seconds.* has 1,300"),
        ("table-question-answering", {"text": "a", "table": rows}, "1,000 rows.* has 2,000"),
    ]
    for task, inputs, message in cases:
        with pytest.raises(UnsupportedError, match=rf"{task} .*at most {message}.*hosted"):
            check_task_limits(task, inputs)
    for line in ("1\r", "1\r\n", "1\n"):
        table.write_text("a" + line[1:] + line * 1001, newline="")
        with pytest.raises(UnsupportedError, match="has 1,001"):
            check_task_limits("table-question-answering", {"text": "a", "table": rows})
    check_task_limits("text-to-speech", {"text": "a" * 20_000})
    check_task_limits("automatic-speech-recognition", {"audio": speech})
    check_task_limits("time-series-forecasting", {"table": rows, "horizon": 3})
    check_task_limits("image-to-text", {"image": Resource(kind="image", path=table)})  # the model's error


def test_tables_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("MAX_CELLS", 100), ("MAX_ROWS", 50), ("MAX_LINE", 1000)):
        monkeypatch.setattr(tables, name, limit)
    cases = {
        "a,b,c\n" + "1,2,3\n" * 40: "more than 50 rows or 100 cells",
        "a\n" + "1\n" * 51: "more than 50 rows or",
        "a,b\n" + "1" * 2000 + ",2\n": "a line of more than 1,000 characters",
        ",".join(f"c{n}" for n in range(1000)) + "\n": "a line of more than 1,000 characters",
    }
    path = tmp_path / "a.csv"
    for content, message in cases.items():
        path.write_text(content)
        with pytest.raises(BadInputError, match=f"a.csv has {message}"):
            tables.read_table(path)
    path.write_text("a\n" + "1\n" * 50)
    assert tables.read_table(path).columns == {"a": [1] * 50}
