"""Repairs of tasks whose written name or arguments are those of another form of the task.

    controlnet_name("Controlnet-sd", {"image": "a.jpg", "text": "canny"})     # "canny-control"
    split_question("Who wrote Hamlet? Shakespeare did.")     # ("Who wrote Hamlet?", "Shakespeare did.")

The paper's table 3 has one name for all control maps, and its question answering takes only a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.extra_tasks import EXTRA_TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.planning.file_names import FileNames

_CONTROLNET = re.compile(r"(?:sd-?)?control-?net(?:-?sd)?")
_TO_IMAGE = "-text-to-image"
_MAPS = {
    spelling.removesuffix(_TO_IMAGE): spec.name.removesuffix(_TO_IMAGE)
    for spec in EXTRA_TASKS
    for spelling in (spec.name, *spec.aliases)
    if spec.name.endswith(_TO_IMAGE) and spelling.endswith(_TO_IMAGE)
}
"""Names of control maps by their spellings: "pose" → "openpose"."""

_READERS = frozenset({"ocr", "optical-character-recognition"})
"""Names of image-to-text that ask for the text of the image."""

_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


def controlnet_name(name: str, args: Mapping[str, Any]) -> str:
    """The task that a ControlNet's name and arguments mean; other names are returned unchanged.

    Args:
        name: in lower case with dashes, such as "controlnet-sd" or "sd-controlnet-canny".
        args: as written. One of them may name the control map.

    Raises:
        PlanError: they name no control map, or several.
    """
    if not _CONTROLNET.search(name):
        return name
    text = str(args.get("text") or "")
    others = json.dumps([name, {key: value for key, value in args.items() if key != "text"}], default=str)
    maps = _maps_in(others) or _maps_in(text)
    if len(maps) != 1:
        raise PlanError(
            f'"{name}" is not one task: X-control makes a control map from an image, and X{_TO_IMAGE} '
            f"an image from a map and a text; X is one of {', '.join(sorted(set(_MAPS.values())))}"
        )
    has_prompt = bool(text.strip()) and text.strip().lower() not in _MAPS
    return maps.pop() + (_TO_IMAGE if has_prompt else "-control")


def _maps_in(text: str) -> set[str]:
    return {_MAPS[word] for word in re.findall("[a-z]+", text.lower()) if word in _MAPS}


def repair_call(
    written: str,
    spec: TaskSpec,
    args: dict[str, Any],
    has_more: bool,
    find: Callable[[str], TaskSpec | None],
    files: FileNames | None,
    notes: list[str],
) -> TaskSpec:
    """Complete the arguments of a task, or return another task that they fit. Repairs are noted.

    Args:
        written: the name that the planner wrote, in lower case with dashes.
        args: by canonical name; what is missing is added.
        has_more: whether there are values without a known name.
        find: returns an available task type by name, or None.
        files: the files that the plan may name.
    """
    if written in _READERS and "text" not in args:
        args["text"] = "read"
    if "table" in spec.required and "table" not in args and files and (found := files.only("table")):
        args["table"] = found
        notes.append(f'its missing "table" was taken to be {found}')
    text = args.get("text")
    if not isinstance(text, str) or refs_in(text) or has_more:
        return spec
    if spec.name == "question-answering" and "context" not in args:
        question, rest = split_question(text)
        found = files.only("text") if files else None
        if found or (question and rest):
            args["text"], args["context"] = (text, found) if found else (question, rest)
            notes.append(f'its missing "context" was taken from {found or "its text"}')
        elif fitting := find("text-generation"):
            notes.append(f"{spec.name} was taken as {fitting.name}, which fits its arguments")
            return fitting
    return spec


def split_question(text: str) -> tuple[str, str]:
    """The questions of a text, and its other sentences."""
    parts = [part.strip() for part in _END_OF_SENTENCE.split(text) if part.strip()]
    questions = [part for part in parts if part.endswith(("?", "？"))]
    return " ".join(questions), " ".join(part for part in parts if part not in questions)
