"""Tasks and their attempts as runs in LangChain's callbacks, for LangSmith, tracers and `astream_events`.

    result = await run_as_tool(context.config, task, inputs, work)     # work(config) -> TaskResult
    output = await run_as_child(config, "org/model", {"image": "a.jpg"}, work, outputs, metadata)

A task is a tool run below the agent's run; each attempt at it is a chain run below the task. Without
callback handlers both only await the work.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import (
    ensure_config,
    get_async_callback_manager_for_config,
    patch_config,
    var_child_runnable_config,
)
from pydantic import TypeAdapter

from jarvis_agent.core.errors import ExpertError
from jarvis_agent.core.types import Task, TaskResult

T = TypeVar("T")
_JSON: TypeAdapter[Any] = TypeAdapter(Any)


async def run_as_tool(
    config: RunnableConfig | None,
    task: Task,
    inputs: Mapping[str, Any],
    work: Callable[[RunnableConfig | None], Awaitable[TaskResult]],
) -> TaskResult:
    """Run a task as a tool run.

    `inputs` are its arguments with references replaced. `work` gets the config for child runs; a failure is
    in its result.
    """
    manager = _manager(config)
    if manager is None:
        return await work(config)
    manager.add_metadata({"jarvis_task_id": task.id}, inherit=False)
    shown = _to_plain(dict(inputs))
    run = await manager.on_tool_start(
        {"name": task.task}, json.dumps(shown, ensure_ascii=False), name=task.task, inputs=shown
    )
    try:
        result = await work(patch_config(config, callbacks=run.get_child()))
    except BaseException as error:  # a cancelled task has ended too
        await run.on_tool_error(error)
        raise
    if result.status == "ok":
        artifact = {"output": result.output, "resources": result.resources, "model": result.model}
        await run.on_tool_end(_to_plain(artifact))
    else:
        await run.on_tool_error(ExpertError(result.error or result.status))
    return result


async def run_as_child(
    config: RunnableConfig | None,
    name: str,
    inputs: Mapping[str, Any],
    work: Callable[[], Awaitable[T]],
    outputs: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> T:
    """Await `work` as a chain run with this name; what it raises is the run's error.

    `work` may fill `outputs`, those of the run. `metadata` is the run's own. What it calls of LangChain, such
    as a chat model, is traced and counted below the run without being given a config.
    """
    manager = _manager(config)
    if manager is None:
        with _context(ensure_config(config)):
            return await work()
    manager.add_metadata(dict(metadata), inherit=False)
    run = await manager.on_chain_start(None, _to_plain(dict(inputs)), name=name)
    try:
        with _context(patch_config(config, callbacks=run.get_child())):
            result = await work()
    except BaseException as error:
        await run.on_chain_error(error)
        raise
    await run.on_chain_end(_to_plain(dict(outputs)))
    return result


@contextmanager
def _context(config: RunnableConfig | None) -> Iterator[None]:
    """Within the block, `config` is that of the parent of Runnables that are called without one."""
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _manager(config: RunnableConfig | None) -> AsyncCallbackManager | None:
    """The callback manager, or None if no handler listens to chains or tools."""
    manager = get_async_callback_manager_for_config(ensure_config(config))
    listening = any(not (handler.ignore_agent and handler.ignore_chain) for handler in manager.handlers)
    return manager if listening else None


def _to_plain(value: Any) -> Any:
    """The value as plain JSON; values without a JSON form become text."""
    return _JSON.dump_python(value, mode="json", fallback=str, exclude_none=True)
