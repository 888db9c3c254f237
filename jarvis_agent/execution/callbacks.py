"""A task of a plan as a tool run in LangChain's callbacks, so that LangSmith and `astream_events` show it.

    result = await as_tool_run(brief.config, task, inputs, work)

It is a child of the agent's run: `on_tool_start` with the task's name and inputs as plain JSON, then
`on_tool_end` with what came of it, or `on_tool_error`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_async_callback_manager_for_config
from pydantic import TypeAdapter

from jarvis_agent.core.errors import ExpertError
from jarvis_agent.core.types import Task, TaskResult

_JSON: TypeAdapter[Any] = TypeAdapter(Any)


async def as_tool_run(
    config: RunnableConfig | None,
    task: Task,
    inputs: Mapping[str, Any],
    work: Callable[[], Awaitable[TaskResult]],
) -> TaskResult:
    """Do the work of a task, and tell the callbacks of the config; without any, only do it.

    Args:
        config: of the agent's run.
        task: what is done.
        inputs: its arguments with every reference replaced.
        work: does it; a failure is in its result.
    """
    manager = get_async_callback_manager_for_config(config or {})
    if not manager.handlers:
        return await work()
    manager.add_metadata({"jarvis_task_id": task.id}, inherit=False)
    told = _plain(dict(inputs))
    run = await manager.on_tool_start(
        {"name": task.task}, json.dumps(told, ensure_ascii=False), name=task.task, inputs=told
    )
    try:
        result = await work()
    except BaseException as error:
        # A cancelled task is over too.
        await run.on_tool_error(error)
        raise
    if result.status == "ok":
        made = {"output": result.output, "resources": result.resources, "model": result.model}
        await run.on_tool_end(_plain(made))
    else:
        await run.on_tool_error(ExpertError(result.error or result.status))
    return result


def _plain(value: Any) -> Any:
    """The value as plain JSON; what JSON has no form for is put as text."""
    return _JSON.dump_python(value, mode="json", fallback=str, exclude_none=True)
