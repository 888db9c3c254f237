"""Recordings and videos: what a container holds, its channels, its damage, and which way is up."""

import struct
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fuzzed import RATE, record, write_film
from PIL import Image
from result_bench import a_film

from jarvis_agent.core.errors import BadInputError, InputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.media import recordings
from jarvis_agent.media.detect import detect_content, detect_media_type
from jarvis_agent.media.recordings import (
    _upright,
    _voices,
    decode_audio,
    probe_audio,
    read_audio,
    read_voices,
)
from jarvis_agent.media.store import ResourceStore

av, soundfile = pytest.importorskip("av"), pytest.importorskip("soundfile")

from jarvis_agent.media.recordings import probe_video, spread_frames, to_mp4  # noqa: E402

TONE = (0.3 * np.sin(np.arange(RATE) * 0.2)).astype(np.float32)
OTHER = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "codec", "form", "mime"),
    [
        ("memo.m4a", "aac", "mp4", "audio/mp4"),
        ("memo.mp4", "aac", "mp4", "audio/mp4"),
        ("memo.3gp", "aac", "3gp", "audio/mp4"),
        ("voice.webm", "libopus", "webm", "audio/webm"),
        ("voice.mka", "aac", "matroska", "audio/x-matroska"),
        ("voice.wma", "wmav2", "asf", "audio/x-ms-asf"),
        ("voice.ts", "aac", "mpegts", "audio/mp2t"),
        ("voice.aac", "aac", "adts", "audio/aac"),
        ("voice.oga", "libopus", "ogg", "audio/ogg"),
        ("voice.aiff", "pcm_s16be", "aiff", "audio/x-aiff"),
        ("voice", "libmp3lame", "mp3", "audio/mpeg"),
    ],
)
def test_what_has_no_pictures_is_sound(name: str, codec: str, form: str, mime: str, tmp_path: Path) -> None:
    path = record(tmp_path / name, codec, [TONE], form)
    assert detect_media_type(path) == ("audio", mime)
    with SpooledTemporaryFile() as upload:  # open for writing, too
        upload.write(path.read_bytes())
        upload.seek(0)
        assert detect_content(upload, path) == ("audio", mime)
    samples, notes = read_audio(path, RATE)
    assert len(samples) == pytest.approx(RATE, rel=0.2)
    assert (np.abs(samples).max() > 0.2, notes) == (True, [])


@pytest.mark.parametrize("name", ["a.ogv", "a.avi", "a.ts", "a.mkv", "a.mov", "a.bin"])
def test_a_container_with_pictures_is_a_video(name: str, tmp_path: Path) -> None:
    form = {"a.ogv": "ogg", "a.ts": "mpegts", "a.mov": "mov", "a.bin": "mp4"}.get(name)
    write_film(
        tmp_path / name, Image.new("RGB", (32, 24), "red"), "libvpx" if form == "ogg" else "mpeg4", form
    )
    assert detect_media_type(tmp_path / name)[0] == "video"


@pytest.mark.parametrize("count", [6, 8])
@pytest.mark.parametrize(("form", "codec"), [("mp4", "aac"), ("webm", "libopus"), ("flac", "flac")])
def test_surround_sound_is_read(form: str, codec: str, count: int, tmp_path: Path) -> None:
    quiet = np.zeros(RATE, np.float32)
    path = record(tmp_path / "a", codec, [quiet, quiet, TONE, *[quiet] * (count - 3)], form)
    assert decode_audio(path)[0].shape[1] == count
    samples, _ = read_audio(path, RATE)
    assert np.abs(samples[2_000:-2_000]).max() == pytest.approx(0.3, abs=0.08), "the centre is not drowned"


@pytest.mark.parametrize(
    ("channels", "heard", "note"),
    [
        ([TONE, TONE], [TONE], ""),
        ([TONE, -TONE], [TONE], "the strongest of 2 channels was used"),
        ([TONE, np.zeros_like(TONE)], [TONE], ""),
        ([TONE, np.full_like(TONE, 0.9)], [TONE], ""),
        ([OTHER * 1e-5, TONE * 0], [OTHER * 5e-6], ""),
        ([TONE, OTHER], [TONE, OTHER], ""),
    ],
)
def test_channels_do_not_cancel_or_cover_others(channels: Any, heard: Any, note: str, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.stack(channels, axis=1), RATE, subtype="FLOAT")
    voices, notes = read_voices(tmp_path / "a.wav", RATE)
    for voice, wanted in zip(voices, heard, strict=True):
        assert np.allclose(abs(voice), abs(wanted), atol=1e-4)
    assert notes == [note] * bool(note)
    alone, notes = read_audio(tmp_path / "a.wav", RATE)
    assert np.allclose(abs(alone), abs(heard[0]), atol=1e-4)
    assert bool(notes) == (bool(note) or len(heard) > 1)


def test_the_callers_of_a_long_call_are_told_apart() -> None:
    """Sums of float32 in a row stop growing at 2**24, after six minutes."""
    signs = np.random.default_rng(0).integers(0, 2, (20_000_000, 2), np.int8)
    assert len(_voices(signs * np.float32(2) - np.float32(1), [])) == 2


def test_samples_that_are_not_numbers_are_silence(tmp_path: Path) -> None:
    broken = TONE.copy()
    broken[100:200], broken[300] = np.nan, np.inf
    soundfile.write(tmp_path / "a.wav", broken, RATE, subtype="FLOAT")
    samples, notes = read_audio(tmp_path / "a.wav", RATE)
    assert np.isfinite(samples).all()
    assert notes == ["101 samples are not numbers, and were taken as silence"]
    soundfile.write(tmp_path / "b.wav", np.full(100, np.nan), RATE, subtype="FLOAT")
    with pytest.raises(BadInputError, match=r"b\.wav holds no sound: its samples are not numbers"):
        read_audio(tmp_path / "b.wav", RATE)


@pytest.mark.parametrize(("name", "codec"), [("a.mp3", "libmp3lame"), ("a.mka", "aac"), ("a.flac", "flac")])
def test_a_recording_that_breaks_off_is_read_to_there(name: str, codec: str, tmp_path: Path) -> None:
    path = record(tmp_path / name, codec, [OTHER])
    whole = len(decode_audio(path)[0])
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])
    part = len(decode_audio(path)[0])
    assert 0.3 * whole < part < 0.9 * whole
    assert 0.3 < probe_audio(path).duration < 0.9


def test_damage_in_the_middle_is_left_out_with_a_note(tmp_path: Path) -> None:
    path = record(tmp_path / "a.m4a", "aac", [OTHER], "mp4")
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 1000] = b"\xff" * 1000
    path.write_bytes(content)
    samples, _, notes = decode_audio(path)
    assert len(samples) > RATE // 4
    assert notes == ["parts of the audio are damaged or missing"]


@pytest.mark.parametrize("share", [0.6, 0.94])
@pytest.mark.parametrize(
    ("suffix", "codec", "options"),
    [
        ("mp3", "libmp3lame", {}),
        ("mp3", "libmp3lame", {"write_xing": "0"}),
        ("opus", "libopus", {}),
        ("webm", "libopus", {}),
        ("wav", "pcm_s16le", {}),
    ],
)
def test_a_recording_that_is_cut_off_is_read_with_a_note(
    tmp_path: Path, suffix: str, codec: str, options: dict[str, str], share: float
) -> None:
    whole = tmp_path / f"whole.{suffix}"
    wave = np.sin(np.arange(RATE * 4) ** 1.5 / 900).astype(np.float32) / 4
    record(whole, codec, [wave], options=options)
    cut = tmp_path / f"cut.{suffix}"
    cut.write_bytes(whole.read_bytes()[: int(share * whole.stat().st_size)])
    assert read_audio(whole, RATE)[1] == []
    assert any("the recording breaks off after" in note for note in read_audio(cut, RATE)[1])


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.mp4", "libx264", {"movflags": "+faststart"}),
        ("a.mp4", "mpeg4", {"movflags": "+faststart"}),
        ("a.webm", "libvpx", {}),
        ("a.flv", "libx264", {}),
    ],
)
def test_a_video_that_is_cut_off_is_read_with_a_note(
    name: str, codec: str, options: dict[str, str], tmp_path: Path
) -> None:
    noise = [Image.effect_noise((64, 48), 60) for _ in range(24)]
    path = write_film(tmp_path / name, noise[0], codec, options=options, frames=noise)
    assert spread_frames(path, 3)[1] == []
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    frames, notes = spread_frames(path, 3)
    assert len(frames) == 3
    assert any("the recording breaks off after" in note for note in notes)


@pytest.mark.parametrize(
    ("name", "codec", "most"), [("film.mp4", "mpeg4", 100), ("film.h264", "libx264", 600)]
)
def test_of_a_long_video_only_parts_are_decoded(
    name: str, codec: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If its frames have times."""
    shades = [Image.new("RGB", (32, 16), (number // 2,) * 3) for number in range(500)]
    path = write_film(tmp_path / name, shades[0], codec, frames=shades)
    seen: list[Any] = []
    read = recordings.decoded
    monkeypatch.setattr(
        recordings, "decoded", lambda *given: (seen.append(frame) or frame for frame in read(*given))
    )
    frames, notes = spread_frames(path, 3)
    shown = [image.getpixel((8, 8))[0] for _, image in frames]  # type: ignore[index]
    assert shown == pytest.approx([41, 125, 208], abs=4)
    assert notes == []
    assert len(seen) < most


@pytest.mark.parametrize("stated", [(0xFFFFFFFF, 0xFFFFFFFF), (0x7FFFF024, 0x7FFFF000), (0, 0)])
def test_a_recording_that_was_written_to_a_pipe_is_whole(stated: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / "piped.wav"
    soundfile.write(path, np.full(RATE, 0.5), RATE)
    content = bytearray(path.read_bytes())
    for place, size in zip((4, content.index(b"data") + 4), stated, strict=True):
        struct.pack_into("<I", content, place, size)
    path.write_bytes(content)
    samples, notes = read_audio(path, RATE)
    assert (len(samples), notes) == (RATE, [])


async def test_a_video_is_its_sound_where_that_is_needed(tmp_path: Path, film: Path) -> None:
    """So that a hosted model, too, gets no pictures."""
    store = ResourceStore(Settings(output_dir=tmp_path / "out"))
    video = a_film(tmp_path / "talk.mp4", sound=True)
    resource = await store.resolve(await store.grant(str(video)), "audio")
    assert (resource.kind, resource.mime, resource.name) == ("audio", "audio/flac", str(video))
    assert resource.path is not None
    assert detect_media_type(resource.path) == ("audio", "audio/flac")
    assert probe_audio(resource.path).duration == pytest.approx(0.5, abs=0.05)
    with pytest.raises(BadInputError, match=r"film\.mp4 has no sound"):
        await store.resolve(await store.grant(str(film)), "audio")


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A film whose left half is red, stored in 32 × 16 and to be turned by 90 degrees."""
    image = Image.new("RGB", (32, 16), "blue")
    image.paste("red", (0, 0, 16, 16))
    return write_film(tmp_path / "film.mp4", image, turn=90)


def test_a_turned_video_is_upright_everywhere(film: Path, tmp_path: Path) -> None:
    facts = probe_video(film)
    assert (facts.width, facts.height, facts.frames) == (16, 32, 4)
    ((_, before),), _ = spread_frames(film, 1)
    assert before.size == (16, 32)
    to_mp4(film, tmp_path / "new.mp4")
    ((_, after),), _ = spread_frames(tmp_path / "new.mp4", 1)
    assert after.size == before.size
    tops = [image.getpixel((8, 4)) for image in (before, after)]
    assert np.abs(np.subtract(*tops)).max() < 40, "the same half is on top"


@pytest.mark.parametrize(
    ("matrix", "corner"),
    [
        ((-1, 0, 0, 1), (1, 0)),  # as phones mirror the picture of their front camera
        ((1, 0, 0, -1), (0, 1)),
        ((-1, 0, 0, -1), (1, 1)),
        ((0, 1, 1, 0), (0, 0)),
        ((0, 1, -1, 0), (1, 0)),
        ((0, -1, 1, 0), (0, 1)),
        ((0, -1, -1, 0), (1, 1)),
    ],
)
def test_a_mirrored_or_turned_video_is_shown_as_players_do(
    tmp_path: Path, matrix: tuple[int, ...], corner: tuple[int, int]
) -> None:
    """The corner at the top left is the one at (0, 0) without a matrix."""
    image = Image.new("RGB", (32, 16), "blue")
    image.paste("red", (0, 0, 16, 8))
    path = write_film(tmp_path / "film.mp4", image)
    content = bytearray(path.read_bytes())
    a, b, c, d = (part << 16 for part in matrix)
    struct.pack_into(">5i", content, content.index(b"tkhd") + 44, a, b, 0, c, d)
    path.write_bytes(content)
    for video in (path, tmp_path / "new.mp4"):
        ((_, shown),), _ = spread_frames(video, 1)
        width, height = shown.size
        assert (width > height) is bool(matrix[0])
        at: Any = shown.getpixel((width // 4 + corner[0] * width // 2, height // 4 + corner[1] * height // 2))
        assert at[0] > at[2], "the red corner"
        to_mp4(path, tmp_path / "new.mp4")


def test_pixels_that_are_not_square_are_shown_so(tmp_path: Path) -> None:
    image = Image.new("RGB", (48, 32), "blue")
    with av.open(tmp_path / "wide.mp4", "w") as output:
        stream = output.add_stream("libx264", rate=8)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
        stream.codec_context.sample_aspect_ratio = Fraction(4, 3)
        frames = [av.VideoFrame.from_image(image) for _ in range(4)]
        output.mux([packet for frame in [*frames, None] for packet in stream.encode(frame)])
    facts = probe_video(tmp_path / "wide.mp4")
    assert (facts.width, facts.height) == (64, 32)
    ((_, shown),), _ = spread_frames(tmp_path / "wide.mp4", 1)
    assert shown.size == (64, 32)


def test_a_matrix_of_zeros_or_of_another_angle_turns_nothing(tmp_path: Path) -> None:
    path = write_film(tmp_path / "film.mp4", Image.new("RGB", (32, 16), "blue"))
    content = path.read_bytes()
    for matrix in ((0, 0, 0, 0, 0), (46_341, 46_341, 0, -46_341, 46_341)):
        changed = bytearray(content)
        struct.pack_into(">5i", changed, content.index(b"tkhd") + 44, *matrix)
        path.write_bytes(changed)
        facts = probe_video(path)
        assert (facts.width, facts.height) == spread_frames(path, 1)[0][0][1].size == (32, 16)


def test_a_frame_may_have_data_that_pyav_does_not_name() -> None:
    class Frame:
        @property
        def side_data(self) -> dict[str, Any]:
            raise ValueError("29 is not a valid Type")

    frame = Frame()
    assert _upright(frame, SimpleNamespace(sample_aspect_ratio=None)) is frame


def test_of_a_recording_in_which_a_stream_begins_later_the_first_part_is_read(film: Path) -> None:
    with av.open(film) as file:

        def demux(*_: Any) -> Iterator[Any]:
            yield from islice(file.demux(video=0), 2)
            raise IndexError("list index out of range")  # as PyAV does

        later: Any = SimpleNamespace(demux=demux, streams=file.streams, format=file.format, name=str(film))
        assert recordings.measure_packets(later).frames == 2
        file.seek(0)
        notes: list[str] = []
        assert list(recordings.decoded(later, "video", notes))
        assert notes == ["parts of the video are damaged or missing"]


def test_an_encrypted_recording_is_refused_not_decoded_to_green_pictures(film: Path, tmp_path: Path) -> None:
    path, key = tmp_path / "encrypted.mp4", {"encryption_scheme": "cenc-aes-ctr"}
    keys = {"encryption_key": "0" * 31 + "1", "encryption_kid": "0" * 32}
    with av.open(film) as file, av.open(path, "w", options=key | keys) as made:
        stream = made.add_stream_from_template(file.streams.video[0])
        for packet in file.demux(video=0):
            packet.stream = stream
            made.mux(packet)
    with pytest.raises(BadInputError, match=r"encrypted\.mp4 is encrypted"):
        spread_frames(path, 1)


def test_a_stream_without_times_keeps_its_rate(tmp_path: Path) -> None:
    with av.open(tmp_path / "a.h264", "w") as made:
        stream = made.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        for _ in range(25):
            made.mux(stream.encode(av.VideoFrame.from_image(Image.new("RGB", (32, 16)))))
        made.mux(stream.encode(None))
    to_mp4(tmp_path / "a.h264", tmp_path / "a.mp4")
    facts = probe_video(tmp_path / "a.mp4")
    assert (facts.frames, round(facts.fps), round(facts.duration, 1)) == (25, 25, 1)


def test_frames_are_counted_where_the_rate_is_impossible(tmp_path: Path) -> None:
    with av.open(tmp_path / "a.mkv", "w") as made:
        stream = made.add_stream("mjpeg", rate=1000)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuvj420p"
        for place in range(6):
            frame = av.VideoFrame.from_image(Image.new("RGB", (32, 16)))
            frame.pts = place * 100
            made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
    facts = probe_video(tmp_path / "a.mkv")
    assert facts.frames == 6
    assert facts.fps < 20


def test_lists_of_other_files_are_not_opened(film: Path, tmp_path: Path) -> None:
    """FFmpeg would read the files, and fetch the addresses, that a play list names."""
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{film}\n#EXT-X-ENDLIST\n"
    (tmp_path / "a.m3u8").write_text(playlist)
    assert detect_media_type(tmp_path / "a.m3u8") == ("text", "text/plain")
    (tmp_path / "b.m3u8").write_bytes(playlist.encode() + b"\0\xff")
    with pytest.raises(InputError, match="is damaged, or not a supported file type"):
        detect_media_type(tmp_path / "b.m3u8")
    with pytest.raises(BadInputError, match=r"b\.m3u8 cannot be read as a video"):
        probe_video(tmp_path / "b.m3u8")


def test_samples_far_beyond_full_scale_are_scaled(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", TONE * 30_000, RATE, subtype="FLOAT")
    samples, notes = read_audio(tmp_path / "a.wav", RATE)
    assert np.abs(samples).max() == pytest.approx(1)
    assert notes == ["the samples reach 9e+03 instead of 1, and were scaled"]


def test_a_header_that_states_more_than_there_is_is_noted(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.tile(OTHER, 4), RATE)
    content = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(content[: len(content) // 2])
    facts, (samples, _, notes) = probe_audio(tmp_path / "a.wav"), decode_audio(tmp_path / "a.wav")
    assert len(samples) == pytest.approx(2 * RATE, rel=0.01)
    assert facts.duration == pytest.approx(2.0, abs=0.1)
    assert len(notes) <= 1


@pytest.mark.parametrize("name", ["camera.raw", "a.bin", "a.mp3"])
def test_other_bytes_are_refused(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / name).write_bytes(bytes(range(256)) * 20)
    caplog.set_level("DEBUG", "jarvis_agent")
    with pytest.raises(InputError, match="is damaged, or not a supported file type"):
        detect_media_type(tmp_path / name)
    assert "Error" in caplog.text, "the library's own reason is logged"
    for read in (decode_audio, probe_audio):
        with pytest.raises(BadInputError, match=f"{name} "):
            read(tmp_path / name)
