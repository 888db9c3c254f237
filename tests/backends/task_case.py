"""How a task type is tried: on a tiny model that the real code loads, with files of the right kinds.

    Case("image-classification", {"image": "@photo"}, check=has_labels, model=tiny_vision.vit)

An argument "@name" is the path of a file of `make_media`. The cases of each domain are in `cases_*.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"

Artifact = Mapping[str, Any]
"""What a tool returns beside its text: output, resources, model, …; read back from JSON."""


@dataclass(frozen=True)
class Case:
    """A task type on one kind of model.

    Attributes:
        task: name of the task type.
        args: what the tool is given.
        check: looks at the artifact: the output's type and shape, and what is in the files.
        model: saves a tiny model in a folder; None: a starter model or an algorithm does it.
        described: further fields of the model's description for RegisteredSource.
        needs: modules that the model can not do without; where one is missing, the error must name it.
    """

    task: str
    args: Mapping[str, Any]
    check: Callable[[Artifact], None]
    model: Callable[[Path], None] | None = None
    described: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The case's name in pytest's list."""
        return f"{self.task}-{self.model.__name__}" if self.model else self.task


def files(artifact: Artifact, kind: str) -> list[Path]:
    """The files of that kind, all of which are there."""
    found = [Path(r["path"]) for r in artifact["resources"] if r["kind"] == kind and r["path"]]
    assert all(path.stat().st_size > 0 for path in found)
    return found


def make_media(folder: Path) -> dict[str, Path]:
    """A photo-like image, a page of text, a tone, speech, a video with sound, and a table; by name."""
    import av
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    from jarvis_agent.media.files import write_audio

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
