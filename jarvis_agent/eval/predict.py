"""Have a planner plan many requests, and write each plan down as soon as it is there.

    async for done in predict(requests, specs, planner, out=Path("predictions.jsonl"), concurrency=8):
        done.graph, done.seconds, done.usage

A run that was broken off goes on where it was: requests whose plan stands in the file are not planned again.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from pydantic import ValidationError

from jarvis_agent.errors import InputError, JarvisError, in_words
from jarvis_agent.eval.graphs import PlanGraph, graph_of, read_graph, to_record
from jarvis_agent.eval.lines import records_in
from jarvis_agent.plan import Plan
from jarvis_agent.planner import Planner
from jarvis_agent.request import Brief, Meter, mentions
from jarvis_agent.tools.spec import Modality, TaskSpec
from jarvis_agent.types import Frozen, Resource, Task, Usage

_KINDS: Mapping[str, Modality] = {"image": "image", "audio": "audio", "video": "video", "text": "text"}


class Prediction(Frozen):
    """The plan of one request; `seconds` is how long it took, `error` why there is none.

    `tasks` is the plan in our own format, with the names of its arguments.
    """

    graph: PlanGraph
    tasks: tuple[Task, ...] = ()
    seconds: float
    usage: Usage = Usage()
    error: str | None = None


async def predict(
    requests: Mapping[str, str],
    specs: Mapping[str, TaskSpec],
    planner: Planner,
    *,
    out: Path | None = None,
    concurrency: int = 4,
    briefs: Mapping[str, Brief] | None = None,
) -> AsyncIterator[Prediction]:
    """Plan the requests, given by id, in any order.

    Args:
        out: where predictions are written, a line each; those that it holds already are left out here.
        concurrency: requests that are planned at once.
        briefs: by id, what is known of a request beside its words (earlier turns, files that it does not
            name); where there is none, it has the files that it names.
    """
    known = briefs or {}

    def start(one: tuple[str, str]) -> asyncio.Task[Prediction]:
        record, request = one
        brief = known.get(record) or Brief(request, files=tuple(named_files(request)), specs=specs)
        return asyncio.create_task(_predict(record, replace(brief, meter=Meter()), planner))

    done = planned(out)
    waiting = iter([(record, text) for record, text in requests.items() if record not in done])
    with out.open("a", encoding="utf-8") if out else nullcontext() as file:
        running = {start(one) for one in _take(waiting, concurrency)}
        try:
            while running:
                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                running |= {start(one) for one in _take(waiting, len(ended))}
                for task in ended:
                    prediction = task.result()
                    if file:
                        file.write(_line(prediction, requests[prediction.graph.id]))
                        file.flush()
                    yield prediction
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def planned(out: Path | None) -> set[str]:
    """The ids in a file of predictions; a last line that was cut off does not count, and is taken away."""
    if out is None or not out.is_file():
        return set()
    lines = out.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        out.write_text("".join(lines[:-1]), encoding="utf-8")
        lines.pop()
    return {str(json.loads(line)["id"]) for line in lines if line.strip()}


def read_written(path: Path) -> list[Prediction]:
    """The predictions that `predict` wrote to a file, with their plans in our own format.

    Raises:
        InputError: a line of the file is none that `predict` writes.
    """
    return [_from_record(record) for record in records_in(path)]


def _from_record(record: dict[str, Any]) -> Prediction:
    try:
        return Prediction(
            graph=read_graph(record),
            tasks=record["plan"],
            seconds=record["seconds"],
            usage=record["usage"],
            error=record["error"],
        )
    except (KeyError, ValidationError) as error:
        raise InputError(
            f"the prediction {record['id']} was not written by `jarvis eval plans`: {error}"
        ) from error


def _take(waiting: Iterable[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    return [one for _, one in zip(range(count), waiting, strict=False)]


async def _predict(record: str, brief: Brief, planner: Planner) -> Prediction:
    began, plan, failure = perf_counter(), Plan(), None
    try:
        plan = await planner.plan(brief, lambda task: None)
    except JarvisError as error:
        failure = in_words(error)
    return Prediction(
        graph=graph_of(plan, brief.specs, record),
        tasks=tuple(plan.tasks),
        seconds=perf_counter() - began,
        usage=sum(brief.meter.usage.values(), Usage()),
        error=failure,
    )


def named_files(request: str) -> list[Resource]:
    """The files that a request names, by their endings alone: in an evaluation none of them exists."""
    return [Resource(kind=_kind(name), path=Path(name), name=name) for name in mentions(request)]


def _kind(name: str) -> Modality:
    if name.lower().endswith((".csv", ".tsv")):
        return "table"
    return _KINDS.get((mimetypes.guess_type(name)[0] or "").partition("/")[0], "file")


def _line(prediction: Prediction, request: str) -> str:
    record: dict[str, Any] = to_record(prediction.graph, request)
    record["plan"] = [task.model_dump() for task in prediction.tasks]
    record["seconds"] = round(prediction.seconds, 4)
    record["usage"] = prediction.usage.model_dump()
    record["error"] = prediction.error
    return json.dumps(record, ensure_ascii=False) + "\n"
