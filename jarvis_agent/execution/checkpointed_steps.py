"""CheckpointedSteps: each step of a run is done once, and its result is committed before anything uses it.

Without a checkpointer the work is only awaited. With one, its result becomes a pending write of the
checkpoint in which the graph's node started: LangGraph's own tasks hand a result on before it is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.runnables import RunnableConfig
from pydantic import TypeAdapter

from jarvis_agent.core.errors import DeadlineError
from jarvis_agent.core.notes import STORED
from jarvis_agent.core.types import Task, TaskResult, Usage
from jarvis_agent.llm.usage import UsageMeter

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

T = TypeVar("T")

COMMIT_TIMEOUT_S = 60.0
"""Seconds that a checkpointer may take to commit the result of a step."""

PROPOSAL, DECISION = "models", "decision"
"""Names of the steps that select models for a plan, and ask for its approval. A second plan's end in " 2"."""

_CHANNEL = "jarvis_step"
_USAGES = TypeAdapter(dict[str, Usage])
_RESULT = TypeAdapter(TaskResult)


class CheckpointedSteps:
    """The steps of one run, identified by name. Without a checkpointer nothing is stored.

    `meter` counts the calls of each step; RunPipeline gives it the budget and the prices of the run.
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
        converts the result from and to JSON. Raises DeadlineError after COMMIT_TIMEOUT_S.
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
            value = adapter.dump_python(await work(), mode="json", context=STORED)
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
        """The stored result of a task, else that of `work`. Called in the order in which tasks were added."""
        return await self.run_once(f"task {task.id}: {task.task}", work, _RESULT)


def stored_steps(checkpoint: CheckpointTuple | None) -> dict[str, Any]:
    """The stored steps of a checkpoint by name, as {step, value, usage}."""
    writes = (checkpoint.pending_writes if checkpoint is not None else None) or []
    return {value["step"]: value for _, channel, value in writes if channel == _CHANNEL}
