"""Predictions, and the files that hold them: a plan a line, in TaskBench's form and in our own.

    found = read_predictions(Path("plans.jsonl"))      # by id
    found["7"].graph, found["7"].error

A record in which there is no plan is a prediction with an `error`, as if the planner had failed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from jarvis_agent.core.errors import InputError
from jarvis_agent.evaluation.graphs import PlanGraph, read_graph, to_record
from jarvis_agent.evaluation.jsonl import bytes_of, records_in, what_is_wrong, writing
from jarvis_agent.core.types import Frozen, Task, Usage

UNNAMED = "a planner without a name"

_START = b'{"id": '
"""How a line of ours begins."""


class Prediction(Frozen):
    """The plan of one request.

    Attributes:
        graph: the plan in TaskBench's form; without nodes where there is none.
        tasks: the plan in our form, with the names of its arguments; None in files of other programs.
        seconds: how long it took; None if that is not known.
        usage: what it took of the language model.
        error: why there is no plan.
        planner: the name of who planned it; empty if that is not known.
    """

    graph: PlanGraph
    tasks: tuple[Task, ...] | None = None
    seconds: float | None = None
    usage: Usage = Usage()
    error: str | None = None
    planner: str = ""

    @property
    def id(self) -> str:
        """The id of the request."""
        return self.graph.id


def read_predictions(path: Path) -> dict[str, Prediction]:
    """The predictions in a file by id, ours or those of another program; the last of an id counts.

    Raises:
        InputError: the file can not be read, or a line is no object with an `id`; the message names it.
    """
    return {str(record["id"]): _from_record(record) for record in records_in(path)}


def _from_record(record: dict[str, Any]) -> Prediction:
    given = {name: record[name] for name in ("seconds", "usage", "error", "planner") if name in record}
    try:
        return Prediction(graph=read_graph(record), tasks=record.get("plan"), **given)
    except InputError as error:
        reason = str(error)
    except ValidationError as error:
        reason = what_is_wrong(error)
    return Prediction(
        graph=PlanGraph(id=str(record["id"])),
        error=f"its record holds no plan: {reason}",
        planner=str(record.get("planner") or ""),
    )


def held_in(path: Path | None, planner: str) -> dict[str, Prediction]:
    """The predictions of a planner in a file that is to be gone on from; none if there is no such file.

    A last line that was broken off while it was written is taken away.

    Raises:
        InputError: the file can not be read or written, or holds plans of another planner.
    """
    if path is None or not path.is_file():
        return {}
    held = bytes_of(path)
    whole, newline, rest = held.rpartition(b"\n")
    if rest and _START.startswith(rest[: len(_START)]) and not _is_json(rest):
        _rewrite(path, whole + newline)
        rest = b""
    found = read_predictions(path)
    other = next((one.planner for one in found.values() if one.planner != planner), None)
    if other is not None:
        raise InputError(
            f'{path} holds plans of "{other or UNNAMED}", and this planner is "{planner}": '
            "name another file to write to"
        )
    if rest:
        _rewrite(path, held + b"\n")
    return found


def _rewrite(path: Path, held: bytes) -> None:
    with writing(path):
        path.write_bytes(held)


def _is_json(written: bytes) -> bool:
    try:
        json.loads(written)
    except ValueError:
        return False
    return True


def line_of(prediction: Prediction, request: str) -> str:
    """The line of a prediction, from which `read_predictions` makes the same."""
    record: dict[str, Any] = to_record(prediction.graph, request)
    record["plan"] = [task.model_dump() for task in prediction.tasks or ()]
    record["seconds"] = None if prediction.seconds is None else round(prediction.seconds, 4)
    record["usage"] = prediction.usage.model_dump()
    record["error"] = prediction.error
    record["planner"] = prediction.planner
    return json.dumps(record, ensure_ascii=False) + "\n"
