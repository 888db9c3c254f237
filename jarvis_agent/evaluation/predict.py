"""Have a planner plan many requests, and write each plan down as soon as it is there.

    made = predict(requests, specs, planner, name="offline", out=Path("predictions.jsonl"), concurrency=8)
    async for one in made:
        one.graph, one.seconds, one.usage, one.error

A run that was broken off goes on where it was: what stands in the file is taken from there, but for requests
at which the planner failed, which are planned again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import IO

from jarvis_agent.core.errors import ConfigError, InputError, JarvisError, describe_error
from jarvis_agent.core.request import RunContext, UsageMeter, mentions
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource, Usage
from jarvis_agent.evaluation.graphs import graph_of
from jarvis_agent.evaluation.jsonl import writing
from jarvis_agent.evaluation.predictions import Prediction, held_in, line_of
from jarvis_agent.planning.chain import Planner
from jarvis_agent.planning.inputs import kind_by_name
from jarvis_agent.planning.plan import Plan


async def predict(
    requests: Mapping[str, str],
    specs: Mapping[str, TaskSpec],
    planner: Planner,
    *,
    name: str,
    out: Path | None = None,
    concurrency: int = 4,
    briefs: Mapping[str, RunContext] | None = None,
    warm: bool = False,
) -> AsyncIterator[Prediction]:
    """The plans of the requests, which are given by id: first those that `out` holds, then the others.

    A planner may fail at a request; the prediction then has an `error`.

    Args:
        name: the planner's name, which is written down with each plan.
        out: where predictions are written, a line each.
        concurrency: requests that are planned at once.
        briefs: by id, what is known of a request beside its words (earlier turns, files that it does not
            name); where there is none, it has the files that it names.
        warm: whether to plan the first request once before, uncounted, so that no time holds the loading.

    Raises:
        ConfigError: the planner can not plan as it is set up, or lacks a package.
        InputError: `out` can not be read or written, or holds plans of another planner.
    """
    known = briefs or {}

    def plan(one: tuple[str, str]) -> asyncio.Task[Prediction]:
        record, request = one
        brief = known.get(record) or RunContext(request, files=tuple(named_files(request)), specs=specs)
        return asyncio.create_task(_predict(record, replace(brief, meter=UsageMeter()), planner, name))

    done = {record: one for record, one in held_in(out, name).items() if one.error is None}
    for record in requests:
        if record in done:
            yield done[record]
    missing = [(record, text) for record, text in requests.items() if record not in done]
    with _appending(out) as file:
        if warm and missing:
            await plan(missing[0])
        async with aclosing(_each(map(plan, missing), concurrency)) as planned:
            async for prediction in planned:
                if file:
                    file.write(line_of(prediction, requests[prediction.id]))
                    file.flush()
                yield prediction


@contextmanager
def _appending(out: Path | None) -> Iterator[IO[str] | None]:
    if out is None:
        yield None
        return
    with writing(out):
        file = out.open("a", encoding="utf-8")
    with file:
        yield file


async def _each(
    started: Iterable[asyncio.Task[Prediction]], concurrency: int
) -> AsyncGenerator[Prediction, None]:
    """What the tasks come to, as they end; so many at once, each started when it is drawn."""
    waiting = iter(started)
    ended: set[asyncio.Task[Prediction]] = set()
    running = set(islice(waiting, concurrency))
    try:
        while running:
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            running |= set(islice(waiting, len(ended)))
            for task in ended:
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, *ended, return_exceptions=True)


async def _predict(record: str, brief: RunContext, planner: Planner, name: str) -> Prediction:
    began, plan, failure = perf_counter(), Plan(), None
    try:
        plan = await planner.plan(brief, lambda task: None)
    except (ConfigError, InputError):
        raise
    except JarvisError as error:
        failure = describe_error(error)
    return Prediction(
        graph=graph_of(plan, brief.specs, record),
        tasks=tuple(plan.tasks),
        seconds=perf_counter() - began,
        usage=sum(brief.meter.usage.values(), Usage()),
        error=failure,
        planner=name,
    )


def named_files(request: str) -> list[Resource]:
    """The files that a request names, by their endings alone: in an evaluation none of them exists."""
    return [Resource(kind=kind_by_name(name), path=Path(name), name=name) for name in mentions(request)]
