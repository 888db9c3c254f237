"""Totals are added up by us, and big results are shortened for prompts only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jarvis_agent.core.types import Attempt, Resource, Selection, Task, TaskResult
from jarvis_agent.llm.budget import truncate_json
from jarvis_agent.response.results import model_assignment, predictions, totals


def box(label: str) -> dict[str, Any]:
    return {"label": label, "score": 0.9, "box": {"xmin": 0, "ymin": 0, "xmax": 9, "ymax": 9}}


def detection(number: int, image: str, labels: str, status: str = "ok") -> TaskResult:
    task = Task(task="object-detection", id=number, args={"image": image})
    return TaskResult(task=task, status=status, output=[box(label) for label in labels.split()])


class TestTotals:
    def test_zebras_are_counted_by_image_and_in_all(self) -> None:
        results = [
            detection(0, "a.jpg", "zebra zebra tree"),
            detection(1, "b.jpg", "zebra"),
            detection(2, "c.jpg", ""),
        ]
        assert totals(results) == {
            "labels": {"zebra": 3, "tree": 1},
            "by_file": {"a.jpg": {"zebra": 2, "tree": 1}, "b.jpg": {"zebra": 1}, "c.jpg": {}},
            "tasks": {"ok": 3},
        }

    def test_an_image_that_two_tasks_looked_at_counts_once(self) -> None:
        results = [detection(0, "a.jpg", "zebra zebra"), detection(1, "a.jpg", "zebra tree")]
        assert totals(results)["labels"] == {"zebra": 2, "tree": 1}

    def test_failed_detections_and_classifications_count_nothing(self) -> None:
        labels = [{"label": "zebra", "score": 0.9}]
        classified = TaskResult(task=Task(task="image-classification", id=1), status="ok", output=labels)
        assert totals([detection(0, "a.jpg", "zebra", "failed"), classified]) == {
            "tasks": {"failed": 1, "ok": 1}
        }

    def test_files_and_durations(self) -> None:
        path = Path("/out/a.wav")
        spoken = TaskResult(
            task=Task(task="text-to-speech", id=0),
            status="ok",
            output={"path": str(path), "duration": 3.256, "sampling_rate": 16000},
            resources=[Resource(kind="audio", path=path)],
        )
        assert totals([spoken]) == {"seconds": {"/out/a.wav": 3.26}, "files": 1, "tasks": {"ok": 1}}

    def test_separated_voices_have_a_duration_each(self) -> None:
        voices = [{"label": name, "path": f"/out/{name}.wav", "duration": 2.0} for name in "ab"]
        result = TaskResult(task=Task(task="audio-to-audio", id=0), status="ok", output=voices)
        assert totals([result])["seconds"] == {"/out/a.wav": 2.0, "/out/b.wav": 2.0}

    def test_nothing_gives_nothing(self) -> None:
        assert totals([]) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


class TestDigest:
    @given(JSON)
    def test_small_data_stays_as_it_is_but_for_long_decimals(self, value: Any) -> None:
        if len(json.dumps(value)) < 500:
            assert _rounded(truncate_json(value)) == _rounded(value)

    @pytest.mark.parametrize(
        "value",
        [
            "x" * 100_000,
            [box("cat")] * 1000,
            [[0.123456] * 384] * 50,
            {"chunks": [{"text": "word " * 40, "timestamp": [0.0, 1.0]}] * 500},
            {str(n): "y" * 500 for n in range(500)},
        ],
    )
    def test_big_data_becomes_short_and_says_so(self, value: Any) -> None:
        short = json.dumps(truncate_json(value))
        assert len(short) < 8000
        assert " more" in short

    def test_many_long_texts_share_the_room(self) -> None:
        short = truncate_json(dict.fromkeys("abcdef", "word " * 1000), 1200)
        assert all(text.count("word") > 100 for text in short.values())

    def test_the_best_boxes_stay(self) -> None:
        short = truncate_json([box(f"label {n}") for n in range(100)])
        assert short[0] == box("label 0")
        assert short[-1].startswith("… ")


class TestPredictions:
    def test_a_result_tells_what_came_out_and_what_went_wrong(self) -> None:
        ok = TaskResult(
            task=Task(task="image-to-text", id=0, args={"image": "a.jpg"}),
            status="ok",
            output={"generated_text": "a cat"},
            resources=[Resource(kind="text", text="a cat")],
            selection=Selection(model="m", reason="r", note="it only classifies"),
        )
        failed = TaskResult(task=Task(task="text-to-image", id=1), status="failed", error="no model is left")
        assert predictions([ok, failed]) == [
            {
                "id": 0,
                "task": "image-to-text",
                "of": {"image": "a.jpg"},
                "status": "ok",
                "output": {"generated_text": "a cat"},
                "notes": ["it only classifies"],
            },
            {"id": 1, "task": "text-to-image", "of": {}, "status": "failed", "error": "no model is left"},
        ]

    def test_a_text_that_the_output_lacks_is_added(self) -> None:
        result = TaskResult(
            task=Task(task="object-detection", id=0),
            status="ok",
            output=[box("cat")],
            resources=[
                Resource(kind="image", path=Path("/out/a.png")),
                Resource(kind="text", text="1 object: 1 cat"),
            ],
        )
        (told,) = predictions([result])
        assert told["text"] == "1 object: 1 cat"
        assert told["files"] == ["/out/a.png"]

    def test_the_model_that_worked_is_told_with_those_that_failed_before(self) -> None:
        attempts = [
            Attempt(model="a", backend="x", started=0, ended=1, error="out of memory"),
            Attempt(model="b", backend="x", started=1, ended=2),
        ]
        result = TaskResult(
            task=Task(task="t", id=3),
            status="ok",
            attempts=attempts,
            selection=Selection(model="a", reason="the best"),
        )
        assert model_assignment([result]) == {"3": {"model": "b", "failed_before": "a: out of memory"}}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return value
