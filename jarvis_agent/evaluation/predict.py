"""Run a planner over many requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from jarvis_agent.core.errors import ConfigError, InputError, JarvisError, describe_error
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.types import Frozen, Resource, Task, Usage
from jarvis_agent.llm.usage import UsageMeter
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.plan import Plan


class Prediction(Frozen):
    """The plan of one request, or the error why there is none."""

    id: str
    plan: tuple[Task, ...] = ()
    seconds: float = 0.0
    usage: Usage = Usage()
    error: str | None = None


def read_records(path: Path, key: str = "id") -> list[dict[str, Any]]:
    """Read a file of JSON lines, or a JSON array, of objects with this key. Empty lines are skipped.

    Raises InputError: the file cannot be read, or a record is invalid; the message names its line.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    lines = [content] if content.lstrip().startswith("[") else content.split("\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            parsed = json.loads(line) if line.strip() else []
        except ValueError as error:
            raise InputError(f"{path}, line {number}, is not JSON: {error}") from error
        for record in parsed if isinstance(parsed, list) else [parsed]:
            if not isinstance(record, dict) or key not in record:
                raise InputError(f"{path}, line {number}, is not an object with an `{key}`")
            records.append(record)
    return records


def named_files(request: str) -> list[Resource]:
    """Return the files that a request names, by their extensions; in an evaluation none of them exists."""
    return [Resource(kind=kind_by_name(name), path=Path(name), name=name) for name in mentions(request)]


async def predict(
    requests: Mapping[str, dict[str, Any]], planner: Runnable[Any, Plan], *, concurrency: int = 4
) -> AsyncIterator[Prediction]:
    """Yield the plan of each request as it is made; a prediction has an `error` if the planner failed.

    `requests` are the planner's inputs by id. Raises ConfigError: the planner cannot work as configured.
    """

    async def plan(record: str) -> Prediction:
        meter, started, plan, failure = UsageMeter(), perf_counter(), Plan(), None
        try:
            plan = await planner.ainvoke(requests[record], {"callbacks": [meter]})
        except (ConfigError, InputError):
            raise
        except JarvisError as error:
            failure = describe_error(error)
        return Prediction(
            id=record,
            plan=tuple(plan.tasks),
            seconds=round(perf_counter() - started, 4),
            usage=meter.total,
            error=failure,
        )

    config: RunnableConfig = {"max_concurrency": concurrency}
    async for _, prediction in RunnableLambda(plan).abatch_as_completed(list(requests), config):
        yield prediction
