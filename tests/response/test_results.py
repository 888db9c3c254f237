"""Totals, predictions and model assignment of the response prompt."""

import json
from pathlib import Path
from typing import Any

from jarvis_agent.core.types import Attempt, Resource, Selection, Task, TaskResult
from jarvis_agent.llm.tokens import clip_rows
from jarvis_agent.response.results import model_assignment, predictions, totals


def box(label: str) -> dict[str, Any]:
    return {"label": label, "score": 0.9, "box": {"xmin": 0, "ymin": 0, "xmax": 9, "ymax": 9}}


def result(task: str, output: Any = None, *made: Resource, number: int = 0, **fields: Any) -> TaskResult:
    asked = Task(task=task, id=number, args=fields.pop("args", {}))
    return TaskResult(task=asked, output=output, resources=list(made), **{"status": "ok", **fields})


def detection(number: int, image: str, labels: str, status: str = "ok") -> TaskResult:
    boxes = [box(label) for label in labels.split()]
    return result("object-detection", boxes, number=number, args={"image": image}, status=status)


class TestTotals:
    def test_objects_are_counted_by_image_and_in_all_and_each_image_once(self) -> None:
        found = {"a.jpg": "zebra zebra tree", "b.jpg": "zebra", "c.jpg": ""}
        results = [detection(n, image, labels) for n, (image, labels) in enumerate(found.items())]
        assert totals(results) == {
            "labels": {"zebra": 3, "tree": 1},
            "by_file": {"a.jpg": {"zebra": 2, "tree": 1}, "b.jpg": {"zebra": 1}, "c.jpg": {}},
            "tasks": {"ok": 3},
        }
        results = [detection(0, "a.jpg", "zebra zebra"), detection(1, "a.jpg", "zebra tree")]
        assert totals(results)["labels"] == {"zebra": 2, "tree": 1}

    def test_failed_detections_and_classifications_count_nothing(self) -> None:
        classified = result("image-classification", [{"label": "zebra", "score": 0.9}], number=1)
        counted = totals([detection(0, "a.jpg", "zebra", "failed"), classified])
        assert counted == {"tasks": {"failed": 1, "ok": 1}}

    def test_files_and_durations_are_added_up(self) -> None:
        path = Path("/out/a.wav")
        output = {"path": str(path), "duration": 3.256, "sampling_rate": 16000}
        spoken = result("text-to-speech", output, Resource(kind="audio", path=path))
        assert totals([spoken]) == {"seconds": {"/out/a.wav": 3.26}, "files": 1, "tasks": {"ok": 1}}
        voices = [{"label": name, "path": f"/out/{name}.wav", "duration": 2.0} for name in "ab"]
        assert totals([result("audio-to-audio", voices)])["seconds"] == {"/out/a.wav": 2.0, "/out/b.wav": 2.0}
        assert totals([]) == {}


class TestPredictions:
    def test_a_result_tells_what_came_out_and_what_went_wrong(self) -> None:
        chosen = Selection(model="m", reason="r", note="it only classifies")
        caption, text = {"generated_text": "a cat"}, Resource(kind="text", text="a cat")
        ok = result("image-to-text", caption, text, args={"image": "a.jpg"}, selection=chosen)
        failed = result("text-to-image", number=1, status="failed", error="no model is left")
        assert predictions([ok, failed]) == [
            {
                "id": 0,
                "task": "image-to-text",
                "args": {"image": "a.jpg"},
                "model": "m",
                "status": "ok",
                "output": {"generated_text": "a cat"},
                "notes": ["it only classifies"],
            },
            {"id": 1, "task": "text-to-image", "args": {}, "status": "failed", "error": "no model is left"},
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
            row = clip_rows(predictions([result("object-detection", output)]), 1500)
            assert " more" in row
            assert len(row) < 8000
            assert json.loads(row)["status"] == "ok"
        texts = dict.fromkeys("abcdef", "word " * 1000)
        row = clip_rows(predictions([result("object-detection", texts)]), 2000)
        assert all(text.count("word") > 100 for text in json.loads(row)["output"].values())

    def test_a_text_that_the_output_lacks_is_added(self) -> None:
        made = Resource(kind="image", path=Path("/out/a.png")), Resource(kind="text", text="1 object: 1 cat")
        (row,) = predictions([result("object-detection", [box("cat")], *made)])
        assert row["text"] == "1 object: 1 cat"
        assert row["files"] == ["/out/a.png"]

    def test_the_assignment_has_the_model_that_succeeded_and_those_that_failed(self) -> None:
        attempts = [
            Attempt(model="a", backend="x", started=0, ended=1, error="out of memory"),
            Attempt(model="b", backend="x", started=1, ended=2),
        ]
        tried = result("t", number=3, attempts=attempts, selection=Selection(model="a", reason="the best"))
        assert model_assignment([tried]) == {"3": {"model": "b", "failed_before": "a: out of memory"}}
