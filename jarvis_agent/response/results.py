"""The results of a run for the response prompt: shortened outputs, chosen models, and totals."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from jarvis_agent.core.references import ref, refs_in, substitute_results
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.text import map_texts
from jarvis_agent.core.types import Task, TaskResult
from jarvis_agent.llm.tokens import clip, to_json_line

_ARG_TOKENS, _NOTE_TOKENS = 100, 200
"""Tokens of a text among the arguments, and of an error or note."""
_MAX_BOXES = 5
"""Of more objects, the boxes are not shown: the totals have the counts."""


def predictions(results: Sequence[TaskResult]) -> list[dict[str, Any]]:
    """What each task produced; empty fields are left out."""
    files = {result.task.id: list(map(str, result.paths())) for result in results}
    rows = []
    for result in results:
        part = result.resource("text")
        text = (part.text if part else None) or ""
        is_in_output = to_json_line(text) in to_json_line(result.output)
        row = {
            "id": result.task.id,
            "task": result.task.task,
            "args": map_texts(_with_files(result.task.args, files), partial(clip, limit=_ARG_TOKENS)),
            "model": result.model,
            "status": result.status,
            "text": "" if is_in_output else text,
            "files": files[result.task.id],
            "output": _with_short_boxes(result.output),
            "error": clip(result.error or "", _NOTE_TOKENS),
            "notes": [clip(note, _NOTE_TOKENS) for note in result.all_notes],
        }
        rows.append({name: value for name, value in row.items() if value not in (None, [], "")})
    return rows


def _with_short_boxes(output: Any) -> Any:
    """The rows of a detection with boxes as [xmin, ymin, xmax, ymax], or without them if they are many.

    Boxes below the top, such as those of the lines of a page, are left out with their rows.
    """
    if isinstance(output, dict):
        return {name: value for name, value in output.items() if not _have_boxes(value)}
    if not _have_boxes(output):
        return output
    if len(output) > _MAX_BOXES:
        return [{name: value for name, value in row.items() if name != "box"} for row in output]
    return [{**row, "box": [*row["box"].values()]} for row in output]


def _have_boxes(rows: Any) -> bool:
    is_list = isinstance(rows, list) and bool(rows)
    return is_list and all(isinstance(row, dict) and isinstance(row.get("box"), dict) for row in rows)


def _with_files(args: Any, files: Mapping[int, list[str]]) -> Any:
    """Arguments in which a reference to one of several files is that file, so that it can be named."""

    def named(task_id: int, place: int) -> str:
        paths = files.get(task_id, [])
        return paths[place - 1] if 0 < place <= len(paths) else ref(task_id, place)

    return substitute_results(args, named)


def file_names(results: Iterable[TaskResult]) -> dict[str, str]:
    """By path of a file that was made: its name, where no other file has it."""
    paths = dict.fromkeys(path for result in results for path in result.paths())
    count = Counter(path.name for path in paths)
    return {str(path): path.name for path in paths if count[path.name] == 1}


def model_assignment(results: Iterable[TaskResult]) -> dict[str, dict[str, str]]:
    """By task id: the model that succeeded, why it was chosen, and the models that failed before it."""
    chosen: dict[str, dict[str, str]] = {}
    for result in results:
        if result.model is None:
            continue
        entry = chosen[str(result.task.id)] = {"model": result.model}
        if result.selection and result.selection.model == result.model:
            entry["reason"] = result.selection.reason
        if failed := [f"{attempt.model}: {attempt.error}" for attempt in result.attempts if attempt.error]:
            entry["failed_before"] = clip("; ".join(failed), 150)
    return chosen


def input_files(task: Task) -> list[str]:
    """The files that a task was given; not those that other tasks make."""
    media = [value for name, value in task.args.items() if name in MEDIA]
    files = [file for value in media for file in (value if isinstance(value, list) else [value])]
    return [str(file) for file in files if not refs_in(file)]


def totals(results: Sequence[TaskResult]) -> dict[str, Any]:
    """Sums over the results of a run; empty ones are left out.

    "by_file" counts the objects of each label by image; of two detections of an image, the larger count.
    "labels" is their sum, "seconds" has durations of audio and video by path, "tasks" numbers by status.
    """
    by_file: dict[str, Counter[str]] = {}
    seconds: dict[str, float] = {}
    for result in results:
        boxes = detections(result)
        if boxes is not None:
            image = str(result.task.args.get("image", f"task {result.task.id}"))
            by_file[image] = by_file.get(image, Counter()) | Counter(str(box["label"]) for box in boxes)
        for row in result.output if isinstance(result.output, list) else [result.output]:
            if isinstance(row, dict) and "path" in row and isinstance(row.get("duration"), int | float):
                seconds[str(row["path"])] = round(float(row["duration"]), 2)
    sums: dict[str, Any] = {
        "labels": dict(sum(by_file.values(), Counter())),
        "by_file": {image: dict(counts) for image, counts in by_file.items()},
        "seconds": seconds,
        "files": sum(1 for result in results for _ in result.paths()),
        "tasks": dict(Counter(result.status for result in results)),
    }
    return {name: value for name, value in sums.items() if value}


def detections(result: TaskResult) -> list[dict[str, Any]] | None:
    """The boxes of a detection; None if the task was no detection, or failed."""
    if result.status != "ok" or not isinstance(result.output, list):
        return None
    if not result.output:
        return [] if "object-detection" in result.task.task else None
    is_detection = all(isinstance(box, dict) and "label" in box and box.get("box") for box in result.output)
    return result.output if is_detection else None


def scored_labels(result: TaskResult) -> list[tuple[str, float | None]]:
    """The labels that exclude each other, or the words for a gap, best first; [] if the output is another."""
    rows = result.output if isinstance(result.output, list) else []
    for row in rows:
        is_one = isinstance(row, dict) and (row.keys() == {"label", "score"} or "token_str" in row)
        if not is_one or not isinstance(row.get("score"), int | float | None):
            return []
    labels = [(str(row.get("label", row.get("token_str"))).strip(), row.get("score")) for row in rows]
    return sorted(labels, key=lambda label: -(label[1] or 0.0))
