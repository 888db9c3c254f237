"""Adapters of images, sounds, videos and 3D models: the content of the files and their metadata."""

import wave
from pathlib import Path
from typing import Any

import pytest
from libraries import needs
from PIL import Image
from result_bench import ARM, Adapting, a_film, joint, kinds, texts

from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.types import Resource

np = pytest.importorskip("numpy")
av = needs("av")
soundfile = needs("soundfile")
needs("cv2")
torch = needs("torch")
trimesh = needs("trimesh")

NAN = float("nan")


def pixels(path: str) -> Any:
    with Image.open(path) as image:
        return np.asarray(image)


def fading(count: int = 6, width: int = 33, height: int = 17) -> Any:
    """Frames in grey, each brighter than the one before; uint8, shape (count, height, width, 3)."""
    return np.stack([np.full((height, width, 3), 40 * shade, np.uint8) for shade in range(count)])


@pytest.mark.parametrize(
    "raw",
    [
        Image.new("RGB", (4, 2), "red"),
        {"image": Image.new("L", (4, 2))},
        [Image.new("RGBA", (4, 2))],
        np.zeros((2, 4, 3), np.float32),
        np.zeros((2, 4, 1), np.uint8),
    ],
)
def test_images_are_written_as_png(adapting: Adapting, raw: Any) -> None:
    output, resources = adapting("text-to-image", raw)
    assert output == {"path": str(resources[0].path), "width": 4, "height": 2}
    assert (resources[0].kind, resources[0].mime) == ("image", "image/png")
    with Image.open(output["path"]) as saved:
        assert (saved.format, saved.size) == ("PNG", (4, 2))


def test_objects_are_drawn_counted_and_listed(adapting: Adapting, photo: Resource) -> None:
    box = {"xmin": 10.4, "ymin": 20.6, "xmax": 60, "ymax": 80}
    raw = [
        {"label": "cat", "score": np.float32(0.9), "box": box},
        {"label": "remote", "score": 0.5, "box": box},
        {"label": "cat", "score": 0.95, "box": {**box, "xmax": np.int64(400)}},
    ]
    output, resources = adapting("object-detection", raw, image=photo)
    rounded = {"xmin": 10, "ymin": 21, "xmax": 60, "ymax": 80}
    assert output[1] == {"label": "cat", "score": 0.9, "box": rounded}
    assert kinds(resources) == ["image", "data", "text"]
    assert resources[2].text == "3 objects: 2 cats, 1 remote"
    drawn, plain = resources[0].to_pil(), photo.to_pil()
    assert drawn.size == plain.size
    assert drawn.getpixel((10, 50)) != plain.getpixel((10, 50))
    assert drawn.getpixel((35, 50)) == plain.getpixel((35, 50))
    assert adapting("object-detection", [], image=photo)[1][0].to_pil().tobytes() == plain.tobytes()
    odd = {"label": "x" * 90, "score": 1.0, "box": {"xmin": 900, "ymin": 50, "xmax": -20, "ymax": -3}}
    output, resources = adapting("object-detection", [odd], image=photo)
    assert (output[0]["box"]["xmin"], resources[0].to_pil().size) == (900, (200, 100))


def test_segments_and_masks_tint_the_picture_and_become_files(adapting: Adapting, photo: Resource) -> None:
    mask = Image.new("L", (200, 100))
    mask.paste(255, (0, 0, 100, 100))
    sky = {"label": "sky", "score": 0.5, "mask": np.ones((50, 100), bool)}
    output, resources = adapting(
        "image-segmentation", [{"label": "cat", "score": None, "mask": mask}, sky], image=photo
    )
    assert [row["score"] for row in output] == [None, 0.5]
    assert kinds(resources) == ["image", "image", "image", "data", "text"]
    assert [row["mask"] for row in output] == [str(resource.path) for resource in resources[1:3]]
    assert (pixels(output[0]["mask"]) == np.asarray(mask)).all()
    plain = photo.to_pil()
    assert resources[0].to_pil().getpixel((10, 10)) != plain.getpixel((10, 10))
    assert resources[-1].text == "2 segments: cat (50 %), sky (100 %)"

    left = np.zeros((100, 200), bool)
    left[:, :50] = True
    masks = [{"mask": ~left, "score": np.float32(0.25)}, {"mask": left, "score": 0.75}]
    output, resources = adapting("mask-generation", masks, image=photo)
    assert [row["score"] for row in output] == [0.75, 0.25]
    assert np.array_equal(pixels(output[0]["mask"]) == 255, left)
    drawn = resources[0].to_pil()
    assert len({drawn.getpixel((20, 50)), plain.getpixel((20, 50)), drawn.getpixel((150, 50))}) == 3
    assert "2 masks" in texts(resources)


def test_joints_are_drawn_where_they_are(adapting: Adapting, photo: Resource) -> None:
    arm = {"score": np.float32(0.8), "keypoints": ARM, "edges": np.array([(0, 1), (1, 2)])}
    output, resources = adapting("keypoint-detection", [arm], image=photo)
    placed = [joint("shoulder", 20.0, 50.0), joint("elbow", 120.0, 50.0), ARM[2]]
    assert output == [{"score": 0.8, "keypoints": placed}]
    drawn = resources[0].to_pil()
    assert drawn.getpixel((20, 50)) == drawn.getpixel((120, 50)) == (255, 255, 255)
    bone, ground = drawn.getpixel((70, 50)), photo.to_pil().getpixel((0, 0))
    assert bone not in (ground, (0, 0, 0))
    assert drawn.getpixel((180, 20)) == drawn.getpixel((150, 35)) == ground
    assert "1 person: 2 joints seen" in texts(resources)


def test_depth_comes_in_colour_and_with_16_bits(adapting: Adapting) -> None:
    ramp = np.tile(np.linspace(1, 5, 9), (4, 1))
    output, resources = adapting("depth-estimation", {"predicted_depth": ramp, "depth": None})
    assert kinds(resources)[:2] == ["image", "image"]
    assert output["path"] == output["image"] == str(resources[0].path)
    assert (output["width"], output["height"], output["min"], output["max"]) == (9, 4, 1.0, 5.0)
    exact = pixels(output["depth"])
    assert (exact.dtype, exact.shape, exact[0, 0], exact[0, -1]) == (np.uint16, (4, 9), 0, 65_535)
    assert np.allclose(output["min"] + exact / 65_535 * (output["max"] - output["min"]), ramp, atol=1e-4)
    metric = adapting("depth-estimation", {"predicted_depth": ramp, "metric": True})[0]
    near, far = (pixels(made["image"]).astype(int).sum(axis=2)[0] for made in (output, metric))
    assert near[-1] > near[4] > near[0]
    assert list(far) == list(near[::-1])
    assert pixels(metric["depth"])[0, -1] == 65_535
    halves = torch.tensor(ramp, dtype=torch.bfloat16)[None].requires_grad_()
    assert adapting("depth-estimation", {"predicted_depth": halves})[0]["max"] == 5.0
    assert not pixels(adapting("depth-estimation", np.full((2, 3), 7.0))[0]["depth"]).any()


@pytest.mark.parametrize(
    "samples", [np.full(8000, 0.5, np.float32), np.full((8000, 2), 0.5), np.full((2, 8000), 16384, np.int16)]
)
def test_sound_is_written_as_16_bit_mono_wav(adapting: Adapting, samples: Any) -> None:
    raw = {"audio": samples, "sampling_rate": np.int64(16_000)}
    output, resources = adapting("text-to-speech", raw)
    assert output == {"sampling_rate": 16_000, "duration": 0.5, "path": str(resources[0].path)}
    assert kinds(resources) == ["audio"]
    with wave.open(output["path"]) as file:
        assert file.getparams()[:4] == (1, 2, 16_000, 8000)
        first = int.from_bytes(file.readframes(1), "little", signed=True)
    assert first == pytest.approx(16384, abs=2)


def test_sounds_of_other_forms(adapting: Adapting, tmp_path: Path) -> None:
    """Separated voices, WAV kept as it is, a streamed header, and FLAC."""
    raw = [{"audio": np.zeros(80), "sampling_rate": 8000, "label": name} for name in ("one", "two")]
    output, resources = adapting("audio-to-audio", raw)
    assert [row["label"] for row in output] == ["one", "two"]
    assert len({resource.path for resource in resources}) == 2

    stereo = tmp_path / "stereo.wav"
    samples = np.arange(1_600, dtype="<i2").tobytes()
    with wave.open(str(stereo), "wb") as made:
        made.setparams((2, 2, 8_000, 0, "NONE", ""))
        made.writeframes(samples)
    output, _ = adapting("text-to-speech", {"path": stereo}, text="a cat")
    assert output == {"sampling_rate": 8_000, "duration": 0.1, "path": str(stereo)}
    with wave.open(output["path"]) as kept:
        assert kept.readframes(800) == samples

    soundfile.write(tmp_path / "tone.flac", np.zeros(4_000), 8_000)
    output, resources = adapting("audio-to-audio", {"path": tmp_path / "tone.flac"})
    assert (output["sampling_rate"], output["duration"]) == (8_000, 0.5)
    assert Path(output["path"]).suffix == ".wav"
    _, (kept,) = adapting("extract-audio", {"path": tmp_path / "tone.flac"}, format="flac")
    assert kept.path == tmp_path / "tone.flac"


@pytest.mark.parametrize(
    "frames",
    [
        fading(),
        fading().astype(np.float32) / 255,
        [Image.fromarray(frame).convert("RGBA") for frame in fading()],
    ],
)
def test_frames_become_a_video_in_h264(adapting: Adapting, frames: Any) -> None:
    output, resources = adapting("text-to-video", {"frames": frames, "fps": np.float32(12)})
    facts = (output["width"], output["height"], output["fps"], output["duration"])
    assert facts == (32, 16, 12.0, 0.5)
    assert resources[0].mime == "video/mp4"
    with av.open(output["path"]) as made:
        codec = made.streams.video[0].codec_context
        assert (codec.name, codec.pix_fmt) == ("h264", "yuv420p")
        shades = [frame.to_image().getpixel((16, 8))[0] for frame in made.decode(video=0)]
    assert shades == pytest.approx([0, 40, 80, 120, 160, 200], abs=6)


@pytest.mark.parametrize(
    ("name", "codec", "pix_fmt", "sound"),
    [
        ("web.webm", "libvpx", "yuv420p", True),
        ("rich.mp4", "libx264", "yuv444p", False),
        ("moving.gif", "gif", "rgb8", False),
    ],
)
def test_video_files_become_h264_unless_they_are(
    adapting: Adapting, tmp_path: Path, name: str, codec: str, pix_fmt: str, sound: bool
) -> None:
    plain = a_film(tmp_path / "plain.mp4")
    assert adapting("text-to-video", {"path": str(plain)})[0]["path"] == str(plain)
    path = a_film(tmp_path / name, codec, pix_fmt=pix_fmt, shades=range(0, 240, 40), sound=sound)
    output, resources = adapting("image-to-video", path)
    assert resources[0].mime == "video/mp4"
    assert output["duration"] == pytest.approx(0.6, abs=0.15)
    with av.open(output["path"]) as made:
        names = [stream.codec_context.name for stream in made.streams]
        assert names == (["h264", "aac"] if sound else ["h264"])
        assert made.streams.video[0].codec_context.pix_fmt == "yuv420p"
        assert sum(1 for _ in made.decode(video=0)) == 6


SHAPE = {
    "vertices": np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], np.float32),
    "faces": [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]],
}
COLOURS = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]


def loaded(path: str) -> Any:
    """The one mesh of a GLB file."""
    (mesh,) = trimesh.load_scene(path).geometry.values()
    return mesh


def test_meshes_and_3d_files_are_glb(adapting: Adapting, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for colours in (np.array(COLOURS, np.uint8), np.array(COLOURS) / 255):
        with subtests.test(colours=str(colours)):
            output, resources = adapting("text-to-3d", {**SHAPE, "colors": colours})
            assert (output["vertices"], output["faces"]) == (4, 4)
            assert (resources[0].kind, resources[0].mime) == ("3d", "model/gltf-binary")
            mesh = loaded(output["path"])
            assert np.allclose(mesh.vertices, SHAPE["vertices"])
            assert mesh.visual.vertex_colors[:, :3].tolist() == COLOURS
    vertices = torch.tensor(SHAPE["vertices"], dtype=torch.bfloat16).requires_grad_()
    raw = {"vertices": vertices, "faces": torch.tensor(SHAPE["faces"]), "colors": None}
    assert np.allclose(loaded(adapting("image-to-3d", raw)[0]["path"]).vertices, SHAPE["vertices"])
    for suffix in ("glb", "obj", "ply", "stl"):
        with subtests.test(suffix):
            path = tmp_path / f"shape.{suffix}"
            trimesh.Trimesh(SHAPE["vertices"], SHAPE["faces"], process=False).export(path)
            output, resources = adapting("text-to-3d", {"path": str(path)})
            assert output["faces"] == 4
            assert resources[0].path != path
            assert loaded(output["path"]).volume == pytest.approx(1 / 6)


SIZES = [Image.new("L", (4, 4)), Image.new("L", (4, 6))]
REFUSED: dict[str, list[tuple[Any, str]]] = {
    "text-to-video": [
        ({"frames": [], "fps": 8}, "at least one frame"),
        ({"frames": 3, "fps": 8}, "frames"),
        ({"frames": [None], "fps": 8}, "an image"),
        ({"frames": np.full((2, 4, 4, 3), NAN), "fps": 8}, "finite"),
        ({"frames": SIZES, "fps": 8}, "frames of one size"),
        ({"frames": fading(), "fps": 0}, "above zero"),
        ({"frames": fading()}, "a number"),
        ({"path": "gone.mp4"}, "the path of a file"),
        ({"path": "\0"}, "the path of a file"),
    ],
    "text-to-3d": [
        ({**SHAPE, "vertices": []}, "vertices as numbers"),
        ({**SHAPE, "vertices": [[0, 0], [1, 1]]}, "vertices as numbers"),
        ({**SHAPE, "vertices": [[0, 0, NAN]] * 4}, "vertices as numbers .*finite"),
        ({**SHAPE, "faces": [[0, 1, -1]]}, "faces between the 4 vertices"),
        ({**SHAPE, "faces": None}, "faces as numbers"),
        ({**SHAPE, "colors": COLOURS[:3]}, "a colour for each of the 4 vertices"),
    ],
}
BROKEN = [
    ("text-to-video", "broken.mp4", b"\0\0\0\x18ftypisom" + bytes(200)),
    ("text-to-image", "broken.png", b"\x89PNG\r\n\x1a\n" + bytes(200)),
    ("text-to-speech", "broken.flac", b"fLaC" + bytes(200)),
    ("text-to-3d", "a.glb", b"glTF\2\0\0\0" + bytes(40)),
    ("text-to-3d", "a.obj", b""),
    ("text-to-3d", "a.xyzzy", b"cube"),
]


def test_other_media_are_refused(adapting: Adapting, tmp_path: Path, subtests: pytest.Subtests) -> None:
    rows = [(task, raw, part) for task, listed in REFUSED.items() for raw, part in listed]
    for task, name, content in BROKEN:
        (tmp_path / name).write_bytes(content)
        raw = tmp_path / name if task == "text-to-image" else {"path": tmp_path / name}
        rows.append((task, raw, "org/model did not return .* expected was"))
    for task, raw, part in rows:
        with subtests.test(task, raw=str(raw)), pytest.raises(UnsupportedError, match=part):
            adapting(task, raw)


def test_the_facts_of_a_file_are_a_phrase(adapting: Adapting) -> None:
    film = {"name": "a.mp4", "format": "MP4", "bytes": 5_200_000, "width": 64, "height": 48, "fps": 24.0}
    for facts, summary in (
        (
            {**film, "duration": 5412.34, "frames": 1},
            "MP4, 64 × 48 pixels, 5412.3 s (1:30:12), 24 frames a second, 1 frame, 5.2 MB",
        ),
        (
            {"name": "a.csv", "format": "CSV", "bytes": 2_048, "rows": 2, "columns": ["x"]},
            "CSV, 2 rows, 1 column, 2.0 kB",
        ),
        ({"name": "a.wav", "format": "WAV", "bytes": 1, "duration": float("inf")}, "WAV, 1 byte"),
        (
            {"name": "a.wav", "format": "WAV", "bytes": 1, "duration": 1e15},
            "WAV, 1000000000000000.0 s, 1 byte",
        ),
    ):
        output, resources = adapting("media-info", facts)
        assert [resource.as_text() for resource in resources] == [summary] * 2
        assert output["bytes"] == facts["bytes"]


def test_pictures_made_from_photos_are_jpeg_files_unless_parts_are_transparent(
    adapting: Adapting, tmp_path: Path
) -> None:
    Image.new("RGB", (40, 20), "grey").save(tmp_path / "photo.jpg")
    photo = Resource(kind="image", path=tmp_path / "photo.jpg", mime="image/jpeg")
    for task, raw, form in (
        ("resize-image", Image.new("RGB", (8, 8)), "JPEG"),
        ("edit-image", Image.new("L", (8, 8)), "JPEG"),
        ("crop-image", Image.new("RGBA", (8, 8)), "PNG"),
        ("canny-control", Image.new("RGB", (8, 8)), "PNG"),
        ("object-detection", [], "JPEG"),
    ):
        _, resources = adapting(task, raw, image=photo)
        assert resources[0].path is not None
        with Image.open(resources[0].path) as made:
            assert (made.format, resources[0].mime) == (form, f"image/{form.lower()}"), task
