"""Builders for the tests of adapters: calls that write into a directory, and media files."""

import json
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from PIL import Image

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Resource

SEEDED = Settings(seed=7)
Adapting = Callable[..., tuple[Any, list[Resource]]]


def a_call(spec: TaskSpec, folder: Path, **inputs: Any) -> Call:
    """A call of org/model that writes out-0, out-1, … into a folder, never over what is there."""
    made = count(len(list(folder.glob("out-*"))))
    return Call(
        spec=spec,
        candidate=Candidate(id="org/model", task=spec.name),
        inputs=inputs,
        new_path=lambda suffix: folder / f"out-{next(made)}{suffix}",
        settings=SEEDED,
    )


def adapting_in(folder: Path) -> Adapting:
    """adapt(); what it returns must survive JSON."""

    def adapting(task: str | TaskSpec, raw: Any, **inputs: Any) -> tuple[Any, list[Resource]]:
        spec = TASKS[task] if isinstance(task, str) else task
        output, resources = adapt(spec, raw, a_call(spec, folder, **inputs))
        assert json.loads(json.dumps(output, allow_nan=False)) == output
        assert [Resource.model_validate_json(r.model_dump_json()) for r in resources] == resources
        return output, resources

    return adapting


def a_photo(folder: Path) -> Resource:
    """A grey image of 200 × 100 pixels."""
    path = folder / "photo.png"
    Image.new("RGB", (200, 100), "grey").save(path)
    return Resource(kind="image", path=path, mime="image/png")


def a_table(folder: Path) -> Resource:
    """A table of three rows: month 1…3, sales 10, 20, 30."""
    path = folder / "table.csv"
    path.write_text("month,sales\n1,10\n2,20\n3,30\n")
    return Resource(kind="table", path=path, mime="text/csv")


def a_film(
    path: Path,
    codec: str = "libx264",
    size: tuple[int, int] = (32, 16),
    pix_fmt: str = "yuv420p",
    shades: Iterable[int] = range(0, 200, 20),
    sound: bool = False,
) -> Path:
    """A video of grey frames, ten a second, in the format of its suffix; its sound is silence."""
    import av
    import numpy as np

    with av.open(path, "w") as made:
        stream = made.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, pix_fmt
        heard = made.add_stream("libopus", rate=48_000, layout="mono") if sound else None
        for shade in shades:
            frame = av.VideoFrame.from_ndarray(
                np.full((size[1], size[0], 3), shade, np.uint8), format="rgb24"
            )
            made.mux(stream.encode(frame.reformat(format=pix_fmt)))
        made.mux(stream.encode(None))
        if heard is not None:
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 24_000), np.int16), format="s16", layout="mono")
            silence.rate = 48_000
            made.mux([*heard.encode(silence), *heard.encode(None)])
    return path


def kinds(resources: list[Resource]) -> list[str]:
    return [resource.kind for resource in resources]


def texts(resources: list[Resource]) -> list[str | None]:
    return [resource.text for resource in resources]


def joint(label: Any, x: Any, y: Any, score: Any = 0.9) -> dict[str, Any]:
    return {"label": label, "x": x, "y": y, "score": score}


ARM = [joint("shoulder", 20.04, 50), joint("elbow", 120, 50), joint("wrist", 180, 20, 0.1)]
