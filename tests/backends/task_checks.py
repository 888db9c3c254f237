"""Checks of test_every_task.py: functions of an artifact (output, resources) that assert what it holds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.media.tables import Columns, read_table

Artifact = Mapping[str, Any]


def _files(artifact: Artifact, kind: str) -> list[Path]:
    """The files of a kind, none of which is empty."""
    found = [Path(r["path"]) for r in artifact["resources"] if r["kind"] == kind and r["path"]]
    assert all(path.stat().st_size > 0 for path in found)
    return found


def _table(artifact: Artifact) -> Columns:
    (path,) = _files(artifact, "table")
    return read_table(path).columns


# ---- Text and scores


def ranked(artifact: Artifact, key: str, *labels: str) -> None:
    """Rows with a probability, best first; under the key are exactly the labels, if any are given."""
    scores = [row["score"] or 0.0 for row in artifact["output"]]
    assert scores
    assert scores == sorted(scores, reverse=True)
    assert 0 <= scores[-1] <= scores[0] <= 1
    assert all(isinstance(row[key], str) for row in artifact["output"])
    assert {row[key] for row in artifact["output"]} == set(labels) or not labels


def similar(artifact: Artifact, *labels: str) -> None:
    """Labels with cosines, the most similar one first."""
    cosines = [row["similarity"] for row in artifact["output"]]
    assert cosines == sorted(cosines, reverse=True)
    assert {row["label"] for row in artifact["output"]} == set(labels)
    assert "(similarity 0." in artifact["resources"][0]["text"]


def says(artifact: Artifact, key: str, expected: str = "") -> None:
    """One text under a key, which is also the text of a resource."""
    text = artifact["output"][key]
    assert isinstance(text, str)
    assert expected in text
    assert text in [resource["text"] for resource in artifact["resources"]]


def knows(artifact: Artifact, **facts: Any) -> None:
    """The facts are a part of the output."""
    assert facts.items() <= artifact["output"].items()


def answers_from(artifact: Artifact, page: str) -> None:
    answer = artifact["output"][0]["answer"]
    assert answer
    assert answer in page


def points_at_cells(artifact: Artifact) -> None:
    answer = artifact["output"]
    assert answer["aggregator"] in ("NONE", "SUM", "AVERAGE", "COUNT")
    cells = [str((row, row * 2, row % 3)[column]) for row, column in answer["coordinates"]]
    assert answer["cells"] == cells


def scores_each(artifact: Artifact, count: int, best: int | None = None) -> None:
    """A cosine for each text, the highest of which has the index `best`."""
    assert len(artifact["output"]) == count
    assert all(-1.001 <= score <= 1.001 for score in artifact["output"])
    assert best is None or artifact["output"][best] == max(artifact["output"])


def orders(artifact: Artifact, texts: Sequence[str], first: str = "") -> None:
    rows = artifact["output"]
    assert sorted(row["index"] for row in rows) == [*range(len(texts))]
    assert all(row["text"] == texts[row["index"]] for row in rows)
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    assert rows[0]["text"].startswith(first)


def vector(artifact: Artifact, length: int) -> None:
    """One vector as data, a list of numbers or of rows of them."""
    import numpy as np

    (data,) = [resource["data"] for resource in artifact["resources"] if resource["kind"] == "data"]
    numbers = np.ravel(data["output"] if isinstance(data, dict) else data)
    assert len(numbers) == length
    assert numbers.dtype == float


# ---- Images, videos and shapes; the photo is 64 pixels wide and 48 high


def boxes(artifact: Artifact, *labels: str) -> None:
    """Boxes within the photo, which are drawn on it."""
    assert artifact["output"]
    assert {row["label"] for row in artifact["output"]} <= set(labels)
    for box in (row["box"] for row in artifact["output"]):
        assert 0 <= box["xmin"] <= box["xmax"] <= 64
        assert 0 <= box["ymin"] <= box["ymax"] <= 48
    image_of(artifact, 64, 48)


def image_of(artifact: Artifact, width: int, height: int, mode: str = "") -> None:
    """One image of that size; with a mode, of that mode and not black."""
    from PIL import Image

    (path,) = _files(artifact, "image")
    with Image.open(path) as image:
        assert image.size == (width, height)
        assert not mode or (image.mode == mode and image.convert("L").getbbox())


def images_of(artifact: Artifact, width: int, height: int, last: str = "") -> None:
    """Images of that size, the last in the mode `last`; the paths in the output are among them."""
    from PIL import Image

    found = _files(artifact, "image")
    assert len(found) > 1
    opened = [Image.open(path) for path in found]
    assert {image.size for image in opened} == {(width, height)}
    assert opened[-1].mode.startswith(last)
    if isinstance(artifact["output"], list):
        named = {row.get("mask") or row.get("image") for row in artifact["output"]}
        assert named <= {str(path) for path in found}


def video_of(artifact: Artifact, frames: int, width: int, height: int) -> None:
    import av

    (path,) = _files(artifact, "video")
    with av.open(path) as video:
        shown = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    assert len(shown) == frames
    assert shown[0].shape == (height, width, 3)


def is_a_shape(artifact: Artifact) -> None:
    import trimesh

    (path,) = _files(artifact, "3d")
    shape = trimesh.load(path, force="mesh")
    assert min(len(shape.vertices), len(shape.faces)) > 0


# ---- Sound


def sound(artifact: Artifact, seconds: Sequence[float] = (0, 60), rate: int = 0, peak: float = 0) -> None:
    """One WAV file with the rate and length of the output, neither empty nor quieter than the peak."""
    import soundfile

    (path,) = _files(artifact, "audio")
    samples, found = soundfile.read(path)
    assert seconds[0] < len(samples) / found < seconds[1]
    assert artifact["output"]["sampling_rate"] == found
    assert abs(artifact["output"]["duration"] - len(samples) / found) < 0.01
    assert rate in (0, found)
    assert abs(samples).max() >= peak


def has_times(artifact: Artifact) -> None:
    assert all(row["start"] < row["end"] for row in artifact["output"])
    assert sum(row["end"] - row["start"] for row in artifact["output"]) > 2


# ---- Tables; the columns are month, sales (twice the month) and rain (the month modulo 3)


def predicts(artifact: Artifact, low: str, high: str) -> None:
    """A label for each row by its sales, in the output and in the file."""
    expected, predicted = [high if month * 2 > 12 else low for month in range(24)], artifact["output"]
    assert sum(a == b for a, b in zip(predicted, expected, strict=True)) >= 22
    table = _table(artifact)
    assert table["month"] == list(range(24))
    assert table["prediction"] == predicted
    assert all(isinstance(chance, float) and 0.5 <= chance <= 1 for chance in table["probability"])


def adds_up(artifact: Artifact) -> None:
    expected = [2 * month + month % 3 for month in range(24)]
    assert artifact["output"] == pytest.approx(expected, abs=0.01)
    assert _table(artifact)["prediction"] == pytest.approx(expected, abs=0.01)


def forecasts(artifact: Artifact, horizon: int) -> None:
    """Forecasts with bounds of the two columns that do not hold times."""
    names = {f"{series}{side}" for series in ("sales", "rain") for side in ("", "_low", "_high")}
    assert [row["step"] for row in artifact["output"]] == list(range(1, horizon + 1))
    assert all(row.keys() == {"step", *names} for row in artifact["output"])
    assert _table(artifact)["sales"] == pytest.approx([row["sales"] for row in artifact["output"]])
