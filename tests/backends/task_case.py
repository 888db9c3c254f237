"""A case of the contract test: a task type, its arguments, a tiny model, and a check of the result.

    Case("image-classification", {"image": "@photo"}, ranked("label", *THREE), "vit")

An argument "@name" is the path of a file of `make_media`. The functions below it give checks of an artifact:
what a tool returns beside its text (output, resources, model), read back from JSON.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
THREE = ("first", "second", "third")
"""Labels of the tiny classifiers."""

Artifact = Mapping[str, Any]
Check = Callable[[Artifact], None]


@dataclass(frozen=True)
class Case:
    """A task type on one kind of model.

    Attributes:
        task: name of the task type.
        args: arguments of the tool.
        check: checks the artifact.
        model: a tiny model of tiny_models.yaml; None: a starter model or an algorithm does the task.
        described: further fields of the model's description for RegisteredSource.
        needs: modules that the model needs; where one is missing, the error must name it.
    """

    task: str
    args: Mapping[str, Any]
    check: Check
    model: str | None = None
    described: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.task}-{self.model}" if self.model else self.task


def make_media(folder: Path) -> dict[str, Path]:
    """Make an image of noise, a page of text, a tone, speech, a video with sound, and a table; by name."""
    import av
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    from jarvis_agent.media.audio import write_audio

    photo = Image.fromarray(np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8))
    photo.save(folder / "photo.png")
    page = Image.new("RGB", (640, 160), "white")
    ImageDraw.Draw(page).text((20, 50), "Invoice total 42", fill="black", font=ImageFont.load_default(48))
    page.save(folder / "page.png")
    write_audio(folder / "tone.wav", np.sin(np.arange(16_000) / 9), 8_000)
    (folder / "table.csv").write_text(
        "month,sales,rain\n" + "".join(f"{n},{n * 2},{n % 3}\n" for n in range(24))
    )
    with av.open(folder / "clip.mp4", "w") as made:
        pictures, sound = made.add_stream("libx264", rate=8), made.add_stream("aac", rate=8_000)
        pictures.width, pictures.height, pictures.pix_fmt = 64, 48, "yuv420p"
        for n in range(16):
            frame = np.full((48, 64, 3), 16 * n, np.uint8)
            made.mux(pictures.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        made.mux(pictures.encode(None))
        tone = (np.sin(np.arange(16_000) / 9) * 9000).astype(np.int16)[None]
        heard = av.AudioFrame.from_ndarray(tone, format="s16", layout="mono")
        heard.rate = 8_000
        made.mux(sound.encode(heard))
        made.mux(sound.encode(None))
    shutil.copy(EXAMPLES / "speech.wav", folder)
    names = ("photo.png", "page.png", "tone.wav", "speech.wav", "clip.mp4", "table.csv")
    return {Path(name).stem: folder / name for name in names}


def files(artifact: Artifact, kind: str) -> list[Path]:
    """The files of a kind, none of which is empty."""
    found = [Path(r["path"]) for r in artifact["resources"] if r["kind"] == kind and r["path"]]
    assert all(path.stat().st_size > 0 for path in found)
    return found


def ranked(key: str, *labels: str) -> Check:
    """Rows with a probability, best first; under the key are exactly the labels, if any are given."""

    def check(artifact: Artifact) -> None:
        scores = [row["score"] or 0.0 for row in artifact["output"]]
        assert scores
        assert scores[0] <= 1
        assert scores == sorted(scores, reverse=True)
        assert scores[-1] >= 0
        assert all(isinstance(row[key], str) for row in artifact["output"])
        assert {row[key] for row in artifact["output"]} == set(labels) or not labels

    return check


def says(key: str, expected: str = "") -> Check:
    """One text under a key, which is also the text of a resource."""

    def check(artifact: Artifact) -> None:
        text = artifact["output"][key]
        assert isinstance(text, str)
        assert expected in text
        assert text in [resource["text"] for resource in artifact["resources"]]

    return check


def vector(length: int) -> Check:
    """One vector as data."""

    def check(artifact: Artifact) -> None:
        (data,) = [resource["data"] for resource in artifact["resources"] if resource["kind"] == "data"]
        numbers = _numbers(data)
        assert len(numbers) == length
        assert all(isinstance(number, float) for number in numbers)

    return check


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    return [number for part in value for number in _numbers(part)] if isinstance(value, list) else [value]


def boxes(*labels: str) -> Check:
    """Boxes within the photo, which are drawn on it."""

    def check(artifact: Artifact) -> None:
        assert artifact["output"]
        assert {row["label"] for row in artifact["output"]} <= set(labels)
        for box in (row["box"] for row in artifact["output"]):
            assert 0 <= box["xmin"] <= box["xmax"] <= 64
            assert 0 <= box["ymin"] <= box["ymax"] <= 48
        image_of(64, 48)(artifact)

    return check


def image_of(width: int, height: int, *modes: str) -> Check:
    """One image of that size; with modes, in one of them and not black."""

    def check(artifact: Artifact) -> None:
        from PIL import Image

        (path,) = files(artifact, "image")
        with Image.open(path) as image:
            assert image.size == (width, height)
            assert not modes or (image.mode in modes and image.convert("L").getextrema()[1] > 0)

    return check


def images_of(width: int, height: int, *, exact: str = "") -> Check:
    """Images of that size; the paths in the output are among them. `exact`: mode of the last one."""

    def check(artifact: Artifact) -> None:
        from PIL import Image

        found = files(artifact, "image")
        assert len(found) > 1
        opened = [Image.open(path) for path in found]
        assert {image.size for image in opened} == {(width, height)}
        assert opened[-1].mode.startswith(exact)
        if isinstance(artifact["output"], list):
            named = {row.get("mask") or row.get("image") for row in artifact["output"]}
            assert named <= {str(path) for path in found}

    return check


def video_of(frames: int, width: int, height: int) -> Check:
    """One video of so many frames of that size."""

    def check(artifact: Artifact) -> None:
        import av

        (path,) = files(artifact, "video")
        with av.open(path) as video:
            shown = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
        assert len(shown) == frames
        assert shown[0].shape == (height, width, 3)

    return check


def sound(*, seconds: tuple[float, float] = (0, 60), rate: int = 0, peak: float = 0) -> Check:
    """One WAV file with the rate and length of the output, neither empty nor quieter than the peak."""

    def check(artifact: Artifact) -> None:
        import soundfile

        (path,) = files(artifact, "audio")
        samples, found = soundfile.read(path)
        assert seconds[0] < len(samples) / found < seconds[1]
        assert artifact["output"]["sampling_rate"] == found
        assert abs(artifact["output"]["duration"] - len(samples) / found) < 0.01
        assert rate in (0, found)
        assert abs(samples).max() >= peak

    return check
