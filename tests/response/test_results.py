"""Totals, predictions and model assignment of the response prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jarvis_agent.core.types import Attempt, Resource, Selection, Task, TaskResult
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

        voices = [{"label": name, "path": f"/out/{name}.wav", "duration": 2.0} for name in "ab"]
        separated = TaskResult(task=Task(task="audio-to-audio", id=0), status="ok", output=voices)
        assert totals([separated])["seconds"] == {"/out/a.wav": 2.0, "/out/b.wav": 2.0}
        assert totals([]) == {}


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

    def test_large_outputs_are_shortened(self) -> None:
        outputs: list[Any] = [
            "x" * 100_000,
            [box("cat")] * 1000,
            [[0.123456] * 384] * 50,
            {"chunks": [{"text": "word " * 40, "timestamp": [0.0, 1.0]}] * 500},
            {str(n): "y" * 500 for n in range(500)},
        ]
        for output in outputs:
            task = Task(task="object-detection", id=0)
            (row,) = predictions([TaskResult(task=task, status="ok", output=output)])
            assert " more" in str(row["output"])
            assert len(str(row)) < 8000
        texts = dict.fromkeys("abcdef", "word " * 1000)
        (row,) = predictions([TaskResult(task=task, status="ok", output=texts)])
        assert all(text.count("word") > 100 for text in row["output"].values())

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
        (row,) = predictions([result])
        assert row["text"] == "1 object: 1 cat"
        assert row["files"] == ["/out/a.png"]

    def test_the_assignment_has_the_model_that_succeeded_and_those_that_failed(self) -> None:
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
