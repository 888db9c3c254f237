"""Results made short enough for a prompt, and the totals that no language model should have to add up.

    totals(results)        {"labels": {"zebra": 6}, "by_file": {"a.jpg": {"zebra": 2}, …}, "files": 3, …}
    predictions(results)   one entry a task: what came out, long lists and texts cut

Nothing is lost by it: the Run keeps every result whole.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from jarvis_agent.core.types import TaskResult
from jarvis_agent.llm.budget import count_tokens, truncate, truncate_json

_BUDGET = 1200
_WORDS = 200
"""Tokens of an error, and of all notes of a task."""


def predictions(results: Iterable[TaskResult], budget: int = _BUDGET) -> list[dict[str, Any]]:
    """What each task came to, as the language model is told it; empty fields are left out.

    `budget` is tokens for each output.
    """
    return [
        {name: value for name, value in _prediction(result, budget).items() if value not in (None, [], "")}
        for result in results
    ]


def _prediction(result: TaskResult, budget: int) -> dict[str, Any]:
    text = result.resource("text")
    output = truncate_json(result.output, budget)
    told = json.dumps(result.output, ensure_ascii=False, default=str)
    spoken = (
        text.text if text and text.text and json.dumps(text.text, ensure_ascii=False) not in told else None
    )
    return {
        "id": result.task.id,
        "task": result.task.task,
        "of": truncate_json(result.task.args, min(100, budget)),
        "status": result.status,
        "text": truncate_json(spoken, budget) if spoken else None,
        "files": _files(result, budget),
        "output": output,
        "error": truncate(result.error or "", min(_WORDS, budget)),
        "notes": truncate_json(result.all_notes, min(_WORDS, budget)),
    }


def _files(result: TaskResult, budget: int) -> list[str]:
    """Paths, which are whole or not there."""
    paths = [str(path) for path in result.paths()]
    for place in range(len(paths)):
        budget -= count_tokens(paths[place])
        if budget < 0 and place:
            return [*paths[:place], f"… {len(paths) - place} more"]
    return paths


def model_assignment(results: Iterable[TaskResult]) -> dict[str, dict[str, str]]:
    """By task id: the model that worked, why it was chosen, and which ones failed before it."""
    chosen: dict[str, dict[str, str]] = {}
    for result in results:
        if result.model is None:
            continue
        entry = {"model": result.model}
        if result.selection and result.selection.model == result.model:
            entry["reason"] = result.selection.reason
        failed = [f"{attempt.model}: {attempt.error}" for attempt in result.attempts if attempt.error]
        if failed:
            entry["failed_before"] = str(truncate_json("; ".join(failed), 150))
        chosen[str(result.task.id)] = entry
    return chosen


def totals(results: Sequence[TaskResult]) -> dict[str, Any]:
    """Sums over the results of a run.

    Returns:
        "labels": how many objects of each label all detections found, "by_file": the same by image (an image
        that two tasks looked at counts once, by the larger number), "seconds": durations of sounds and videos
        by path, "files": number of files made, "tasks": number of tasks by status. What there is none of is
        left out.
    """
    by_file = counts_by_file(results)
    seconds = {path: length for result in results for path, length in _durations(result)}
    found: dict[str, Any] = {
        "labels": dict(sum((Counter(counts) for counts in by_file.values()), Counter[str]())),
        "by_file": by_file,
        "seconds": seconds,
        "files": sum(1 for result in results for _ in result.paths()),
        "tasks": dict(Counter(result.status for result in results)),
    }
    return {name: value for name, value in found.items() if value}


def counts_by_file(results: Iterable[TaskResult]) -> dict[str, dict[str, int]]:
    """How many objects of each label were found in each image; an image without any has an empty dict."""
    by_file: dict[str, dict[str, int]] = {}
    for result in results:
        boxes = detections(result)
        if boxes is None:
            continue
        known = by_file.setdefault(str(result.task.args.get("image", f"task {result.task.id}")), {})
        for label, count in Counter(str(box["label"]) for box in boxes).items():
            known[label] = max(count, known.get(label, 0))
    return by_file


def detections(result: TaskResult) -> list[dict[str, Any]] | None:
    """The boxes that a detection found, which may be none; None if the task was no detection."""
    if result.status != "ok" or not isinstance(result.output, list):
        return None
    if not result.output:
        return [] if "object-detection" in result.task.task else None
    is_detection = all(isinstance(box, dict) and "label" in box and box.get("box") for box in result.output)
    return result.output if is_detection else None


def _durations(result: TaskResult) -> Iterable[tuple[str, float]]:
    for row in result.output if isinstance(result.output, list) else [result.output]:
        if isinstance(row, dict) and "path" in row and isinstance(row.get("duration"), int | float):
            yield str(row["path"]), round(float(row["duration"]), 2)
