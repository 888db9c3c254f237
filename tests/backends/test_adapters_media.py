"""Adapters of videos, sounds and 3D models: what is in the files, and what their metadata tell."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from result_bench import Adapting, adapting_in

from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.media.audio import write_audio

np = pytest.importorskip("numpy")
av = pytest.importorskip("av")

NAN = float("nan")
ORIGIN = {"model": "org/model", "prompt": "a cat", "seed": "7"}


@pytest.fixture
def adapting(tmp_path: Path) -> Adapting:
    folder = tmp_path / "made"
    folder.mkdir()
    return adapting_in(folder)


def fading(count: int = 6, width: int = 33, height: int = 17) -> Any:
    """Frames in grey, each brighter than the one before; uint8, shape (count, height, width, 3)."""
    shades = np.arange(count, dtype=np.uint8) * 40
    return np.broadcast_to(shades[:, None, None, None], (count, height, width, 3)).copy()


def encoded(path: Path, codec: str, pix_fmt: str = "yuv420p", sound: bool = False) -> Path:
    """A video of six frames of 32 × 16 pixels, 10 a second, in the format that its suffix names."""
    with av.open(path, "w") as made:
        stream = made.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 16, pix_fmt
        heard = made.add_stream("libopus", rate=48_000, layout="mono") if sound else None
        for pixels in fading(6, 32, 16):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            made.mux(stream.encode(frame.reformat(format=pix_fmt)))
        made.mux(stream.encode(None))
        if heard is not None:
            tone = av.AudioFrame.from_ndarray(np.zeros((1, 28_800), np.int16), format="s16", layout="mono")
            tone.rate = 48_000
            made.mux(heard.encode(tone))
            made.mux(heard.encode(None))
    return path


@pytest.mark.parametrize(
    "frames",
    [
        fading(),
        fading().astype(np.float32) / 255,
        [Image.fromarray(frame) for frame in fading()],
        [Image.fromarray(frame).convert("RGBA") for frame in fading()],
        list(fading()),
    ],
)
def test_frames_become_a_video_that_every_player_shows(adapting: Adapting, frames: Any) -> None:
    output, resources = adapting("text-to-video", {"frames": frames, "fps": np.float32(12)}, text="a cat")
    assert (output["width"], output["height"], output["fps"], output["duration"]) == (32, 16, 12.0, 0.5)
    assert resources[0].mime == "video/mp4"
    with av.open(output["path"]) as made:
        codec = made.streams.video[0].codec_context
        assert (codec.name, codec.pix_fmt) == ("h264", "yuv420p")
        shades = [frame.to_image().getpixel((16, 8))[0] for frame in made.decode(video=0)]
    assert shades == pytest.approx([0, 40, 80, 120, 160, 200], abs=6)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"frames": [], "fps": 8}, "at least one frame"),
        ({"frames": "film", "fps": 8}, "frames"),
        ({"frames": 3, "fps": 8}, "frames"),
        ({"frames": [None], "fps": 8}, "an image"),
        ({"frames": np.full((2, 4, 4, 3), NAN), "fps": 8}, "finite"),
        ({"frames": [Image.new("L", (4, 4)), Image.new("L", (4, 6))], "fps": 8}, "frames of one size"),
        ({"frames": fading(), "fps": 0}, "above zero"),
        ({"frames": fading(), "fps": NAN}, "finite"),
        ({"frames": fading()}, "a number"),
        ({"path": "gone.mp4"}, "the path of a file"),
        ({"path": "x" * 5_000}, "the path of a file"),
        ({"path": "\0"}, "the path of a file"),
    ],
)
def test_what_is_no_video_is_refused(adapting: Adapting, raw: Any, expected: str) -> None:
    with pytest.raises(UnsupportedError, match=expected):
        adapting("text-to-video", raw)


def test_a_video_in_h264_is_taken_as_it_is(adapting: Adapting, tmp_path: Path) -> None:
    path = encoded(tmp_path / "plain.mp4", "libx264")
    assert adapting("text-to-video", {"path": str(path)})[0]["path"] == str(path)


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt", "sound"),
    [
        ("web.webm", "libvpx", "yuv420p", True),
        ("old.mp4", "mpeg4", "yuv420p", False),
        ("rich.mp4", "libx264", "yuv444p", False),
        ("film.mkv", "libx264", "yuv420p", True),
        ("moving.gif", "gif", "rgb8", False),
    ],
)
def test_other_formats_become_h264(
    adapting: Adapting, tmp_path: Path, name: str, codec: str, pix_fmt: str, sound: bool
) -> None:
    path = encoded(tmp_path / name, codec, pix_fmt, sound)
    output, resources = adapting("image-to-video", path, text="a cat")
    assert resources[0].mime == "video/mp4"
    assert output["duration"] == pytest.approx(0.6, abs=0.15)
    with av.open(output["path"]) as made:
        names = [stream.codec_context.name for stream in made.streams]
        assert names == (["h264", "aac"] if sound else ["h264"])
        assert made.streams.video[0].codec_context.pix_fmt == "yuv420p"
        assert sum(1 for _ in made.decode(video=0)) == 6


def test_a_file_that_is_broken_is_the_models_failure(adapting: Adapting, tmp_path: Path) -> None:
    for task, name, content in (
        ("text-to-video", "broken.mp4", b"\0\0\0\x18ftypisom" + bytes(200)),
        ("text-to-image", "broken.png", b"\x89PNG\r\n\x1a\n" + bytes(200)),
        ("text-to-speech", "broken.flac", b"fLaC" + bytes(200)),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        raw = path if task == "text-to-image" else {"path": path}
        with pytest.raises(UnsupportedError, match=rf"org/model returned .* for {task}; expected was"):
            adapting(task, raw)
    assert not list((tmp_path / "made").iterdir())


def test_sound_in_a_file_keeps_its_samples_and_gets_its_origin(adapting: Adapting, tmp_path: Path) -> None:
    path = tmp_path / "stereo.wav"
    with wave.open(str(path), "wb") as made:
        made.setparams((2, 2, 8_000, 0, "NONE", ""))
        made.writeframes(np.arange(1_600, dtype="<i2").tobytes())
    output, _ = adapting("text-to-speech", {"path": path}, text="a cat")
    assert (output["sampling_rate"], output["duration"]) == (8_000, 0.1)
    with wave.open(output["path"]) as kept:
        assert kept.readframes(800) == np.arange(1_600, dtype="<i2").tobytes()
    assert output["path"] == str(path)


def test_sound_that_was_streamed_has_its_true_length(adapting: Adapting, tmp_path: Path) -> None:
    path = tmp_path / "streamed.wav"
    write_audio(path, np.zeros(4_000), 8_000)
    content = bytearray(path.read_bytes())
    content[4:8] = content[40:44] = b"\xff\xff\xff\x7f"
    path.write_bytes(content)
    output, _ = adapting("text-to-speech", {"path": path})
    assert output["duration"] == 0.5


def test_other_sounds_become_wav(adapting: Adapting, tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    path = tmp_path / "tone.flac"
    soundfile.write(path, np.zeros(4_000), 8_000)
    output, resources = adapting("audio-to-audio", {"path": path})
    assert (output["sampling_rate"], output["duration"]) == (8_000, 0.5)
    assert resources[0].mime == "audio/wav"


def test_a_key_in_a_prompt_is_not_handed_on_with_the_file(adapting: Adapting) -> None:
    image = Image.new("L", (2, 2))
    path = adapting("text-to-image", image, text="Say hf_QwErTyUiOpAsDfGhJk1234 twice")[0]["path"]
    content = Path(path).read_bytes()
    assert b"Say (key) twice" in content
    assert b"hf_Qw" not in content


def test_pictures_tell_their_origin(adapting: Adapting) -> None:
    output, _ = adapting("text-to-image", Image.new("RGB", (4, 4)), text="a cat")
    with Image.open(output["path"]) as image:
        assert image.text == {"task": "text-to-image", **ORIGIN}


SHAPE = {
    "vertices": np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32),
    "faces": [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]],
}
COLOURS = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]


def loaded(path: str) -> Any:
    """The one mesh of a GLB file."""
    trimesh = pytest.importorskip("trimesh")
    (mesh,) = trimesh.load_scene(path).geometry.values()
    return mesh


@pytest.mark.parametrize("colours", [np.array(COLOURS, np.uint8), np.array(COLOURS) / 255, COLOURS])
def test_a_mesh_becomes_a_glb_with_its_colours(adapting: Adapting, colours: Any) -> None:
    output, resources = adapting("text-to-3d", {**SHAPE, "colors": colours}, text="a cat")
    assert (output["vertices"], output["faces"]) == (4, 4)
    assert (resources[0].kind, resources[0].mime) == ("3d", "model/gltf-binary")
    mesh = loaded(output["path"])
    assert np.allclose(mesh.vertices, SHAPE["vertices"])
    assert mesh.visual.vertex_colors[:, :3].tolist() == COLOURS


def test_a_mesh_may_be_of_torch_and_without_colours(adapting: Adapting) -> None:
    torch = pytest.importorskip("torch")
    vertices = torch.tensor(SHAPE["vertices"], dtype=torch.bfloat16).requires_grad_()
    raw = {"vertices": vertices, "faces": torch.tensor(SHAPE["faces"]), "colors": None}
    assert np.allclose(loaded(adapting("image-to-3d", raw)[0]["path"]).vertices, SHAPE["vertices"])


@pytest.mark.parametrize("suffix", ["glb", "obj", "ply", "stl"])
def test_a_3d_file_becomes_a_glb(adapting: Adapting, tmp_path: Path, suffix: str) -> None:
    trimesh = pytest.importorskip("trimesh")
    path = tmp_path / f"shape.{suffix}"
    trimesh.Trimesh(SHAPE["vertices"], SHAPE["faces"], process=False).export(path)
    output, resources = adapting("text-to-3d", {"path": str(path)}, text="a cat")
    assert output["faces"] == 4
    assert resources[0].path != path
    assert loaded(output["path"]).volume == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"vertices": []}, "vertices as numbers"),
        ({"vertices": [[0, 0, "z"]]}, "vertices as numbers"),
        ({"vertices": [[0, 0], [1, 1]]}, "vertices as numbers"),
        ({"vertices": [[0, 0, NAN]] * 4}, "finite vertices"),
        ({"faces": [[0, 1, 4]]}, "faces between the 4 vertices"),
        ({"faces": [[0, 1, -1]]}, "faces between the 4 vertices"),
        ({"faces": None}, "faces as numbers"),
        ({"colors": COLOURS[:3]}, "a colour for each of the 4 vertices"),
        ({"colors": [[NAN] * 3] * 4}, "finite colors"),
    ],
)
def test_what_is_no_mesh_is_refused(adapting: Adapting, change: Any, expected: str) -> None:
    with pytest.raises(UnsupportedError, match=expected):
        adapting("text-to-3d", {**SHAPE, **change})


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.glb", b"glTF\2\0\0\0" + bytes(40)), ("a.obj", b""), ("a.stl", b"solid"), ("a.xyzzy", b"cube")],
)
def test_a_3d_file_that_is_broken_is_refused(
    adapting: Adapting, tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UnsupportedError, match="expected was a 3D file"):
        adapting("text-to-3d", path)
