"""Media tools: files in, files out, without a model."""

import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from result_bench import a_call, a_film

from jarvis_agent.backends.algorithms.backend import ALGORITHMS
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.media.detect import detect_media_type
from jarvis_agent.media.recordings import decode_audio, write_audio

av = pytest.importorskip("av")
np = pytest.importorskip("numpy")

RunTool = Callable[..., Any]


@pytest.fixture
def film(tmp_path: Path) -> Resource:
    return Resource(kind="video", path=a_film(tmp_path / "film.mp4"))


def a_tone(folder: Path, rate: int = 16_000) -> Resource:
    """A second of a sine wave."""
    path = folder / f"{rate}.wav"
    write_audio(path, np.sin(np.arange(rate) / 10) / 2, rate)
    return Resource(kind="audio", path=path)


@pytest.fixture
def tone(tmp_path: Path) -> Resource:
    return a_tone(tmp_path)


@pytest.fixture
def run_tool(tmp_path: Path) -> RunTool:
    """Runs the tool of a task with these inputs."""
    return lambda task, **inputs: ALGORITHMS[task].run(a_call(TASKS[task], tmp_path, **inputs))


def pictures(path: Path) -> int:
    with av.open(path) as video:
        return sum(1 for _ in video.decode(video=0))


def seconds_of_sound(path: Path) -> float:
    with av.open(path) as video:
        samples = sum(frame.samples for frame in video.decode(audio=0))
        return float(samples / video.streams.audio[0].rate)


@pytest.mark.parametrize(
    ("name", "codec", "size", "rate", "kept"),
    [
        ("film.mp4", "libx264", (32, 16), 8_000, 8_000),
        ("old.mp4", "mpeg4", (32, 16), 11_111, 48_000),
        ("web.webm", "libvpx", (33, 17), 192_000, 48_000),
    ],
)
def test_a_dubbed_video_has_the_pictures_of_one_and_the_sound_of_the_other(
    run_tool: RunTool, tmp_path: Path, name: str, codec: str, size: tuple[int, int], rate: int, kept: int
) -> None:
    """The sound is resampled to 48 kHz if AAC lacks its rate."""
    video = Resource(kind="video", path=a_film(tmp_path / name, codec, size))
    path = run_tool("combine-video-audio", video=video, audio=a_tone(tmp_path, rate))["path"]
    assert detect_media_type(path) == ("video", "video/mp4")
    assert pictures(path) == 10
    assert seconds_of_sound(path) == pytest.approx(1.0, abs=0.2)
    with av.open(path) as dubbed:
        seen, heard = dubbed.streams
        assert (seen.codec_context.name, heard.codec_context.name) == ("h264", "aac")
        assert (seen.width, seen.height, heard.rate) == (32, 16, kept)
        assert dubbed.duration == pytest.approx(1_000_000, abs=200_000)


def test_media_without_the_needed_streams_are_refused(
    run_tool: RunTool, film: Resource, tone: Resource, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    path = tmp_path / "broken.mp4"
    path.write_bytes(b"\0\0\0\x18ftypisom" + b"garbage" * 20)
    broken = Resource(kind="video", path=path)
    for task, inputs, message in (
        ("combine-video-audio", {"video": tone, "audio": tone}, r"16000\.wav has no frames"),
        ("combine-video-audio", {"video": film, "audio": film}, r"film\.mp4 has no sound"),
        ("extract-audio", {"video": film}, r"film\.mp4 has no sound"),
        ("extract-audio", {"video": broken}, r"broken\.mp4 cannot be read as audio"),
        (
            "extract-audio",
            {"video": tone, "format": "doc"},
            "recordings cannot be written as 'doc'; give one of wav",
        ),
        ("extract-frames", {"video": broken}, r"broken\.mp4 cannot be read as a video"),
    ):
        with subtests.test(task, message=message), pytest.raises(BadInputError, match=message):
            run_tool(task, **inputs)


def test_the_sound_of_a_video_becomes_a_wav_file(run_tool: RunTool, film: Resource, tone: Resource) -> None:
    path = run_tool("combine-video-audio", video=film, audio=tone)["path"]
    dubbed = Resource(kind="video", path=path)
    path = run_tool("extract-audio", video=dubbed)["path"]
    with wave.open(str(path)) as sound:
        assert (sound.getframerate(), sound.getsampwidth(), sound.getnchannels()) == (16_000, 2, 1)
        samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
    assert len(samples) / 16_000 == pytest.approx(1.0, abs=0.2)
    assert np.abs(samples).max() == pytest.approx(16_384, rel=0.2)


@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("wanted", ["mp3", "WAV", ".flac", "audio/ogg", "m4a"])
def test_a_recording_is_converted(run_tool: RunTool, tmp_path: Path, wanted: str, channels: int) -> None:
    """What compresses has two channels at most; rates that a codec lacks are resampled."""
    path = tmp_path / "memo.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, 11_111, 0, "NONE", ""))
        sine = (np.sin(np.arange(11_111) / 10) * 16_384).astype("<i2")
        file.writeframes(sine.repeat(channels).tobytes())
    made = run_tool("extract-audio", video=Resource(kind="audio", path=path), format=wanted)["path"]
    kind, mime = detect_media_type(made)
    assert (kind, made.suffix) == ("audio", f".{wanted.lower().rpartition('/')[2].strip('.')}"), mime
    samples, rate, _ = decode_audio(made)
    assert len(samples) / rate == pytest.approx(1.0, abs=0.1)
    assert np.abs(samples).max() > 0.4


def test_frames_are_spread_over_a_video(run_tool: RunTool, film: Resource, subtests: pytest.Subtests) -> None:
    for count, times in (
        (1, [0.5]),
        ("3", [0.1, 0.5, 0.8]),
        (2.0, [0.2, 0.7]),
        (None, [0.0, 0.1, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9]),
        (64, [place / 10 for place in range(10)]),
    ):
        with subtests.test(count=count):
            found = run_tool("extract-frames", video=film, count=count)
            assert [row["time"] for row in found] == pytest.approx(times)
            shades = [row["image"].convert("L").getpixel((0, 0)) for row in found]
            assert shades == pytest.approx([200 * time for time in times], abs=4)
    refused = "extract-frames needs a whole number from 1 to 64"
    for count in (65, 0, 1.5, "many", True):
        with subtests.test(count=count), pytest.raises(BadInputError, match=refused):
            run_tool("extract-frames", video=film, count=count)


def test_frames_of_a_video_that_was_filmed_sideways_are_upright(run_tool: RunTool, film: Resource) -> None:
    assert film.path is not None
    content = bytearray(film.path.read_bytes())
    matrix = content.index(b"tkhd") + 44
    quarter = (0, 1 << 16, 0, (-1 << 16) % (1 << 32), 0, 0, 0, 0, 1 << 30)
    content[matrix : matrix + 36] = b"".join(value.to_bytes(4, "big") for value in quarter)
    film.path.write_bytes(content)
    (frame,) = run_tool("extract-frames", video=film, count=1)
    assert frame["image"].size == (16, 32)


def test_an_image_is_resized(
    run_tool: RunTool,
    tmp_path: Path,
    photo: Resource,
    subtests: pytest.Subtests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for asked, size in (
        ({"width": 100}, (100, 50)),
        ({"height": "25 px"}, (50, 25)),
        ({"width": "30", "height": 40.0}, (30, 40)),
        ({"scale": 50}, (photo.to_pil().width // 2, photo.to_pil().height // 2)),
    ):
        with subtests.test(**asked):
            assert run_tool("resize-image", image=photo, **asked).size == size
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, "needs either a width or a height in pixels, such as 512, or a scale in percent"),
        ({"scale": 50, "width": 10}, "needs either a width or a height"),
        ({"scale": 0.5}, "needs scale as a number from 1 to 10000 in percent, not '0.5'"),
        ({"width": 0}, "whole number from 1 to 100000000 for width"),
        ({"height": "tall"}, "whole number from .* for height, not 'tall'"),
        ({"width": 2.5}, "whole number"),
        ({"width": 30_000, "height": 30_000}, "has more than 100,000,000"),
    ]
    for asked, message in refused:
        with subtests.test(message), pytest.raises(BadInputError, match=message):
            run_tool("resize-image", image=photo, **asked)
    call = a_call(TASKS["resize-image"], tmp_path, image=photo, width=100)
    monkeypatch.setattr("jarvis_agent.media.limits.MAX_PIXELS", 4_000)
    with pytest.raises(BadInputError, match="more than 4,000"):
        ALGORITHMS["resize-image"].run(call)


@pytest.fixture
def quarters(tmp_path: Path) -> Resource:
    """A red, a green, a blue and a white quarter of 20 × 10 pixels each."""
    image = Image.new("RGB", (40, 20), "white")
    for colour, place in (("red", (0, 0)), ("green", (20, 0)), ("blue", (0, 10))):
        image.paste(colour, (*place, place[0] + 20, place[1] + 10))
    path = tmp_path / "quarters.png"
    image.save(path)
    return Resource(kind="image", path=path)


BLUE = {"xmin": 0, "ymin": 10, "xmax": 20, "ymax": 20}
RED = {"xmin": 0, "ymin": 0, "xmax": 20, "ymax": 10}


BOXES: list[Any] = [
    [0, 10, 20, 20],
    BLUE,
    {"label": "sea", "score": 0.5, "box": BLUE},
    [{"box": RED, "score": 0.2}, {"box": BLUE, "score": 0.9}, {"label": "sky", "score": 1.0}],
    "[0, 10, 20, 20]",
    '{"xmin": 0, "ymin": 10, "xmax": 20, "ymax": 20}',
    "0, 10, 20, 20",
    "(0 10 20 20)",
    '```json\n[{"bbox": [0, 10, 20, 20], "label": "sea"}]\n```',
    "{'x': 0, 'y': 10, 'width': 20, 'height': 10}",
    {"x": 0, "y": 10, "w": 20, "h": 10},
    {"left": 0, "top": 10, "width": 20, "height": 10},
    {"left": 0, "top": 10, "right": 20, "bottom": 20},
    {"x1": 0, "y1": 10, "x2": 20, "y2": 20},
    {"x0": 0, "y0": 10, "x1": 20, "y1": 20},
    {"x_min": "0", "y_min": "10", "x_max": "20", "y_max": "20"},
    {"bounding_box": [0, 10, 20, 20]},
    {"box_2d": [500, 0, 1000, 500]},
    [[0, 10], [20, 20]],
    "[[0, 10], [20, 20]]",
    [{"x": 0, "y": 10}, {"x": 20, "y": 10}, {"x": 20, "y": 20}, {"x": 0, "y": 20}],
    "<box>(0,10),(20,20)</box>",
    [[0, 10, 20, 20]],
    ["0", "10", "20", "20"],
]
ASSUMED: list[tuple[Any, str]] = [
    ([0, 0.5, 0.5, 1], "the box was taken as shares of the image"),
    ("[0.0, 0.5, 0.5, 1.0]", "the box was taken as shares of the image"),
    ({"x": 0, "y": 0.5, "width": 0.5, "height": 0.5}, "the box was taken as shares of the image"),
    ({"BoundingBox": {"Left": 0, "Top": 0.5, "Width": 0.5, "Height": 0.5}}, "shares of the image"),
    ([0, 500, 500, 1000], "the box was taken as thousandths of the sides of the image"),
    ({"bbox_2d": [0, 500, 500, 1000]}, "the box was taken as thousandths of the sides of the image"),
    ({"bbox_2d": [0, 10, 20, 20]}, "the box was taken as pixels"),
    ([{"box_2d": [500, 0, 1000, 500]}, {"box_2d": [0, 0, 9, 9]}], "the first of 2 boxes was taken"),
    ([-9, 10, 20, 20], "the box reaches beyond the image, and was cut off at its sides"),
]
NO_BOXES: list[tuple[Any, str]] = [
    ([90, 90, 99, 99], r"lies outside the image \(40 × 20 pixels\)"),
    *((box, "is not a box") for box in ([], [1, 2, 3], None, 7, {"xmin": 1}, {"box": None})),
    ([{"label": "sky", "score": 1.0}], "is not a box; give .* a detection that has a box"),
    ("the sea", "is not a box"),
    ([20, 20, 20, 10], "ends before it begins, or is empty"),
    ([0.3, 0.3, 0.3, 0.3], "ends before it begins, or is empty"),
    ([[0, 0, 9, 9], [9, 9, 19, 19]], "is not a box"),
    ({"x": 1, "y": 2}, "is not a box"),
    ("[" * 100_000, "is not a box"),
    ([0, 0, float("nan"), 9], "is not a box"),
    ([0, 0, 10**400, 9], "is not a box"),
    *(
        (part, "is not a box")
        for part in ("the cat on the left", "left and right", "half", "left square", "")
    ),
]
NO_EDITS: list[tuple[dict[str, Any], str]] = [
    ({}, "needs one of greyscale, rotate, flip, brightness, border, format"),
    *(({"rotate": turn}, "is not a rotation") for turn in ("sideways", "①", True, "9" * 1000, [90], "nan")),
    ({"flip": "diagonally"}, "is not a way to flip"),
    ({"format": "docx"}, "cannot be written as 'docx'; give one of png"),
    *(
        ({"brightness": b}, "needs brightness as a number from 1 to 1000 in percent")
        for b in (0, 1001, "more", True, "nan")
    ),
    ({"border": -1}, "whole number from 1 to 10000 for border"),
]
PARTS: list[tuple[str, tuple[int, int, int, int]]] = [
    ("left half", (0, 0, 20, 20)),
    ("The right side of the image", (20, 0, 40, 20)),
    ("bottom quarter", (0, 15, 40, 20)),
    ("top-left corner", (0, 0, 20, 10)),
    ("lower right quarter", (20, 10, 40, 20)),
    ("middle third", (13, 0, 27, 20)),
    ("centre", (10, 5, 30, 15)),
    ("square", (10, 0, 30, 20)),
    ("the middle square of the picture", (10, 0, 30, 20)),
    ("正方形", (10, 0, 30, 20)),
    ("方形", (10, 0, 30, 20)),
    ("top centre", (10, 0, 30, 10)),
    ("左半部分", (0, 0, 20, 20)),
    ("图片的右上角", (20, 0, 40, 10)),
    ("下四分之一", (0, 15, 40, 20)),
]


@pytest.mark.parametrize("box", BOXES)
def test_the_part_in_a_box_is_cut_out(run_tool: RunTool, quarters: Resource, box: Any) -> None:
    part = run_tool("crop-image", image=quarters, box=box)
    assert (part.size, part.getcolors()) == ((20, 10), [(200, (0, 0, 255))])


@pytest.mark.parametrize(("box", "note"), ASSUMED, ids=str)
def test_what_was_assumed_of_a_box_is_noted(tmp_path: Path, quarters: Resource, box: Any, note: str) -> None:
    call = a_call(TASKS["crop-image"], tmp_path, image=quarters, box=box)
    part = ALGORITHMS["crop-image"].run(call)
    assert (part.size, part.getcolors()) == ((20, 10), [(200, (0, 0, 255))])
    assert [note in one for one in call.notes] == [True]


def test_the_square_of_an_image_has_equal_sides(run_tool: RunTool, tmp_path: Path) -> None:
    for size in ((401, 300), (302, 301), (300, 401)):
        Image.new("RGB", size).save(tmp_path / "a.png")
        part = run_tool("crop-image", image=Resource(kind="image", path=tmp_path / "a.png"), box="square")
        assert part.size == (min(size), min(size))


def test_what_colour_a_border_has_is_noted(tmp_path: Path, quarters: Resource) -> None:
    call = a_call(TASKS["edit-image"], tmp_path, image=quarters, border=1)
    ALGORITHMS["edit-image"].run(call)
    assert call.notes == ["the border is white"]


def test_a_whole_image_in_shares_is_no_single_pixel(run_tool: RunTool, quarters: Resource) -> None:
    assert run_tool("crop-image", image=quarters, box=[0, 0, 1, 1]).size == (40, 20)


def test_a_box_beyond_the_image_is_cut_off(tmp_path: Path, quarters: Resource) -> None:
    """With a note; a detector's box may overshoot a little."""
    detection = {"box": {"xmin": 0, "ymin": 10, "xmax": 40.5, "ymax": 20}, "score": 0.9}
    for box, notes in (([-5, 10, 2000, 3000], 1), (detection, 0)):
        call = a_call(TASKS["crop-image"], tmp_path, image=quarters, box=box)
        assert ALGORITHMS["crop-image"].run(call).size == (40, 10)
        assert len(call.notes) == notes


REFUSED = [("crop-image", {"box": box}, message) for box, message in NO_BOXES]
REFUSED += [("edit-image", edits, message) for edits, message in NO_EDITS]


@pytest.mark.parametrize(("task", "inputs", "message"), REFUSED, ids=[str(row)[:60] for row in REFUSED])
def test_an_edit_that_cannot_be_read_is_refused_in_a_few_words(
    run_tool: RunTool, quarters: Resource, task: str, inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInputError, match=message) as refused:
        run_tool(task, image=quarters, **inputs)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(("name", "box"), PARTS)
def test_a_named_part_is_cut_out(
    run_tool: RunTool, quarters: Resource, name: str, box: tuple[int, int, int, int]
) -> None:
    whole = quarters.to_pil()
    part = run_tool("crop-image", image=quarters, box=name)
    assert (part.size, part.tobytes()) == (whole.crop(box).size, whole.crop(box).tobytes())


def corners(image: Image.Image) -> list[Any]:
    """The pixels at the corners: top left, top right, bottom left, bottom right."""
    right, bottom = image.width - 1, image.height - 1
    return [image.getpixel(place) for place in ((0, 0), (right, 0), (0, bottom), (right, bottom))]


R, G, B, W = (255, 0, 0), (0, 128, 0), (0, 0, 255), (255, 255, 255)
EDITS: list[tuple[dict[str, Any], tuple[int, int], list[Any]]] = [
    ({"rotate": 90}, (20, 40), [B, R, W, G]),
    ({"rotate": "90 degrees to the left"}, (20, 40), [G, W, R, B]),
    ({"rotate": "-90°"}, (20, 40), [G, W, R, B]),
    ({"rotate": "right"}, (20, 40), [B, R, W, G]),
    ({"rotate": "180"}, (40, 20), [W, B, G, R]),
    ({"flip": "horizontal"}, (40, 20), [G, R, W, B]),
    ({"flip": "Vertically"}, (40, 20), [B, W, R, G]),
    ({"rotate": 90, "flip": "horizontal"}, (20, 40), [R, B, G, W]),
    ({"greyscale": 1}, (40, 20), [76, 75, 29, 255]),
    ({"greyscale": False, "rotate": 0}, (40, 20), [R, G, B, W]),
    ({"brightness": 50}, (40, 20), [(127, 0, 0), (0, 64, 0), (0, 0, 127), (127, 127, 127)]),
    ({"brightness": "150%"}, (40, 20), [R, (0, 192, 0), B, W]),
    ({"border": "2 px"}, (44, 24), [W, W, W, W]),
    ({"rotate": 90, "border": 1}, (22, 42), [W, W, W, W]),
    ({"greyscale": 1, "border": 1}, (42, 22), [255, 255, 255, 255]),
]


@pytest.mark.parametrize(("edits", "size", "pixels"), EDITS)
def test_an_image_is_turned_mirrored_and_made_grey(
    run_tool: RunTool, quarters: Resource, edits: dict[str, Any], size: tuple[int, int], pixels: list[Any]
) -> None:
    edited = run_tool("edit-image", image=quarters, **edits)
    assert (edited.size, corners(edited)) == (size, pixels)


def test_an_image_that_would_become_too_large_is_not_turned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A narrow strip needs a square when it is turned by 45 degrees."""
    path = tmp_path / "strip.png"
    Image.new("L", (2000, 1)).save(path)
    strip = Resource(kind="image", path=path)
    call = a_call(TASKS["edit-image"], tmp_path, image=strip, rotate=45)
    monkeypatch.setattr("jarvis_agent.media.limits.MAX_PIXELS", 9_000)
    with pytest.raises(BadInputError, match="more than 9,000"):
        ALGORITHMS["edit-image"].run(call)
    path.write_bytes(b"damaged")
    with pytest.raises(BadInputError, match="cannot be read as an image"):
        ALGORITHMS["edit-image"].run(call)


@pytest.mark.parametrize(
    ("wanted", "mime"),
    [
        ("jpeg", "image/jpeg"),
        (".JPG", "image/jpeg"),
        ("image/webp", "image/webp"),
        ("gif", "image/gif"),
        ("bmp", "image/bmp"),
        ("tiff", "image/tiff"),
        ("PNG", "image/png"),
    ],
)
def test_an_image_is_converted_and_what_was_transparent_is_white_in_a_jpeg(
    tmp_path: Path, wanted: str, mime: str
) -> None:
    path = tmp_path / "clear.png"
    Image.new("RGBA", (4, 2), (0, 0, 0, 0)).save(path)
    clear = Resource(kind="image", path=path)
    call = a_call(TASKS["edit-image"], tmp_path, image=clear, format=wanted)
    output, (made,) = adapt(call.spec, ALGORITHMS["edit-image"].run(call), call)
    assert detect_media_type(made.path) == ("image", mime)
    assert (made.mime, output["path"], output["width"]) == (mime, str(made.path), 4)
    if mime == "image/jpeg":
        assert made.to_pil().getpixel((0, 0)) == (255, 255, 255)
