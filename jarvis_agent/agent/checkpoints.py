"""Checkpointers and checkpoints of LangGraph, as a run needs them.

steps = steps_of_node(config)                 # inside a node of a graph, nested or not
saver = threaded(SqliteSaver(connection))     # a synchronous checkpointer for async graphs

The one module that uses more of LangGraph than its documentation promises: the key of the checkpointer in the
config of a node, and the separator in checkpoint namespaces. `test_the_internals_of_langgraph_in_use_exist`
fails when they change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.constants import CONFIG_KEY_CHECKPOINTER
from langgraph.runtime import get_runtime
from pydantic import TypeAdapter

from jarvis_agent.core.errors import DeadlineError
from jarvis_agent.core.types import Task, TaskResult, Usage
from jarvis_agent.llm.usage import UsageMeter

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple


T = TypeVar("T")

COMMIT_TIMEOUT_S = 60.0
"""Seconds that a checkpointer may take to commit the result of a step."""

DECISION = "decision"
"""Name of the step that asks for approval of the plan."""

_CHANNEL = "jarvis_step"
_USAGES = TypeAdapter(dict[str, Usage])
_RESULT = TypeAdapter(TaskResult)


class CheckpointedSteps:
    """The steps of one run, identified by name. Without a checkpointer nothing is stored.

        steps = CheckpointedSteps()                             # does every step, and stores nothing
        steps = CheckpointedSteps(saver, checkpoint)            # see `checkpoints.steps_of_node`
        plan = await steps.run_once("plan", make_plan, PLAN)    # made now, or as it was stored

    The result of a step is a pending write of the checkpoint in which the graph's node started.
    LangGraph's own tasks hand a result on while it is still being written.
    """

    def __init__(
        self, saver: BaseCheckpointSaver[Any] | None = None, checkpoint: RunnableConfig | None = None
    ) -> None:
        self.meter = UsageMeter()
        self._saver = saver
        self._checkpoint = checkpoint or {}
        self._stored: dict[str, Any] | None = None

    @property
    def is_stored(self) -> bool:
        """Whether a checkpointer stores the steps."""
        return self._saver is not None

    async def run_once(self, name: str, work: Callable[[], Awaitable[T]], adapter: TypeAdapter[T]) -> T:
        """The stored result of this step, else that of `work`, once it is committed.

        The step's LLM usage is stored with it, and counted again when the step is not repeated. `adapter`
        converts the result from and to JSON.

        Raises:
            DeadlineError: the checkpointer did not commit within COMMIT_TIMEOUT_S.
        """
        if self._saver is None:
            return await work()
        if self._stored is None:
            self._stored = stored_steps(await self._saver.aget_tuple(self._checkpoint))
        if name in self._stored:
            done = self._stored[name]
            for stage, usage in _USAGES.validate_python(done["usage"]).items():
                self.meter.add(stage, usage)
            return adapter.validate_python(done["value"])
        with self.meter.measure() as part:
            value = adapter.dump_python(await work(), mode="json")
        done = {"step": name, "value": value, "usage": _USAGES.dump_python(part.usage, mode="json")}
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S) as limit:
                await self._saver.aput_writes(self._checkpoint, [(_CHANNEL, done)], f"{_CHANNEL}:{name}")
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise DeadlineError(
                f"the checkpointer did not commit the result of a step within {COMMIT_TIMEOUT_S:g} s; "
                "the run stops here, since nothing may build on a result that could be lost"
            ) from error
        return adapter.validate_python(value)

    async def get_or_run(self, task: Task, work: Callable[[], Awaitable[TaskResult]]) -> TaskResult:
        """As `jarvis_agent.execution.executor.ResultStore`: each task of a plan is a step."""
        return await self.run_once(f"{task.task} {task.id}", work, _RESULT)


def stored_steps(found: CheckpointTuple | None) -> dict[str, Any]:
    """The stored steps of a checkpoint by name, as {step, value, usage}."""
    writes = (found.pending_writes if found is not None else None) or []
    return {value["step"]: value for _, channel, value in writes if channel == _CHANNEL}


_NAMESPACE_SEPARATOR = "|"


def steps_of_node(config: RunnableConfig) -> CheckpointedSteps:
    """The steps of the node that runs now, stored by its graph's checkpointer, if that has one."""
    saver = config["configurable"].get(CONFIG_KEY_CHECKPOINTER)
    node = get_runtime().execution_info
    if saver is None or node is None:
        return CheckpointedSteps()
    graph, _, _ = node.checkpoint_ns.rpartition(_NAMESPACE_SEPARATOR)
    place = {"thread_id": node.thread_id, "checkpoint_ns": graph, "checkpoint_id": node.checkpoint_id}
    return CheckpointedSteps(threaded(saver), {"configurable": place})


def with_threaded_saver(config: RunnableConfig | None) -> RunnableConfig | None:
    """The config of a nested graph, with the larger graph's synchronous checkpointer called in threads."""
    configurable = (config or {}).get("configurable", {})
    if config is None or (saver := configurable.get(CONFIG_KEY_CHECKPOINTER)) is None:
        return config
    return {**config, "configurable": {**configurable, CONFIG_KEY_CHECKPOINTER: threaded(saver)}}


def threaded(saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    """The checkpointer itself if it has async methods, else one that calls it in threads."""
    is_sync = type(saver).aput_writes is BaseCheckpointSaver.aput_writes
    return ThreadedSaver(saver) if is_sync else saver


class ThreadedSaver(BaseCheckpointSaver[Any]):
    """A synchronous checkpointer, called in threads."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        for name in ("get_tuple", "list", "put", "put_writes", "delete_thread", "get_next_version"):
            setattr(self, name, getattr(saver, name))

    @property
    def config_specs(self) -> list[Any]:
        """As the wrapped checkpointer's."""
        return self._saver.config_specs

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        for found in await asyncio.to_thread(lambda: [*self.list(config, **options)]):
            yield found

    async def aput(self, *given: Any) -> Any:
        """As `put`."""
        return await asyncio.to_thread(self.put, *given)

    async def aput_writes(self, *given: Any) -> None:
        """As `put_writes`."""
        await asyncio.to_thread(self.put_writes, *given)

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await asyncio.to_thread(self.delete_thread, thread_id)
