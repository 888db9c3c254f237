"""Stored steps of a run: the result of a step is committed before anything builds on it.

    saver = CommitAwareSaver(checkpointer)              # reports when a write is committed
    steps = CheckpointedSteps(saver, config)            # inside a LangGraph node
    plan = await steps.run_once("plan", make_plan, PLAN)    # made now, or what was stored when it was made

LangGraph identifies a step by its place among the calls of a run, so a resumed run must call the same steps
in the same order.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.func import task
from pydantic import TypeAdapter

from jarvis_agent.core.errors import DeadlineError
from jarvis_agent.core.types import Task, TaskResult, Usage
from jarvis_agent.llm.usage import UsageMeter

T = TypeVar("T")

_KEY, _VALUE, _USAGE = "step", "value", "usage"
_USAGES = TypeAdapter(dict[str, Usage])
_RESULT = TypeAdapter(TaskResult)

# LangGraph's names in its config for the checkpointer and the durability of a run, nested or not.
SAVER_KEY, _DURABILITY = "__pregel_checkpointer", "__pregel_durability"

# LangGraph's names for an interrupt of a step, and for its result.
_INTERRUPT, _RETURN = "__interrupt__", "__return__"

COMMIT_TIMEOUT_S = 60.0
"""Seconds that a checkpointer may take for one write."""


class CommitAwareSaver(BaseCheckpointSaver[Any]):
    """A checkpointer around another one, which reports when the result of a step is committed.

    LangGraph hands a result on while it is still being written; steps that must not build on a result that a
    crash could lose wait here. A synchronous checkpointer is called in threads.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        self._in_threads = type(saver).aput_writes is BaseCheckpointSaver.aput_writes
        self._stored: dict[str, asyncio.Future[None]] = {}

    def is_active(self, config: RunnableConfig) -> bool:
        """Whether the run of this config commits each step here when it ends.

        Not inside a larger graph, whose checkpointer is used, and not with `durability="exit"`.
        """
        configurable = config.get("configurable", {})
        saver = configurable.get(SAVER_KEY)
        # LangGraph may use a copy of a checkpointer.
        same = isinstance(saver, CommitAwareSaver) and saver._stored is self._stored
        return same and configurable.get(_DURABILITY) != "exit"

    def expect(self, key: str) -> asyncio.Future[None]:
        """A future that is done when the step of that key is committed, and fails if it cannot be."""
        return self._stored.setdefault(key, asyncio.get_running_loop().create_future())

    def forget(self, key: str) -> None:
        """Drop the future of a step."""
        self._stored.pop(key, None)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Write, then report.

        Raises:
            DeadlineError: the checkpointer did not commit within COMMIT_TIMEOUT_S.
        """
        keys = [
            value[_KEY]
            for _, value in writes
            if isinstance(value, dict) and value.keys() == {_KEY, _VALUE, _USAGE}
        ]
        waiting = [self._stored.pop(key) for key in keys if key in self._stored]
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S) as late:
                await self._ask("put_writes", config, writes, task_id, task_path)
        except BaseException as failure:
            error = _too_late() if late.expired() else failure
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
            if error is failure:
                raise
            raise error from failure
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def config_specs(self) -> list[Any]:
        """As the wrapped checkpointer's."""
        return self._saver.config_specs

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        """As the wrapped checkpointer's."""
        found: CheckpointTuple | None = await self._ask("get_tuple", config)
        return found

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        """As the wrapped checkpointer's."""
        if self._in_threads:
            for found in await asyncio.to_thread(lambda: list(self._saver.list(config, **options))):
                yield found
            return
        async for found in self._saver.alist(config, **options):
            yield found

    async def aput(
        self, config: Any, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: Any
    ) -> Any:
        """As the wrapped checkpointer's."""
        return await self._ask("put", config, checkpoint, metadata, new_versions)

    async def adelete_thread(self, thread_id: str) -> None:
        """As the wrapped checkpointer's."""
        await self._ask("delete_thread", thread_id)

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        """As the wrapped checkpointer's; for `get_state`."""
        return self._saver.get_tuple(config)

    def list(self, config: Any, **options: Any) -> Iterator[CheckpointTuple]:
        """As the wrapped checkpointer's; for `get_state_history`."""
        return self._saver.list(config, **options)

    async def _ask(self, method: str, *given: Any) -> Any:
        if self._in_threads:
            return await asyncio.to_thread(getattr(self._saver, method), *given)
        return await getattr(self._saver, f"a{method}")(*given)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """As the wrapped checkpointer's."""
        return self._saver.get_next_version(current, channel)


def is_answered(stored: CheckpointTuple) -> bool:
    """Whether an interrupt was answered and its step is done: LangGraph keeps the interrupt."""
    writes = [(step, channel) for step, channel, _ in stored.pending_writes or []]
    return any(channel == _INTERRUPT and (step, _RETURN) in writes for step, channel in writes)


class CheckpointedSteps:
    """The steps of one run, for RunPipeline; to be made inside a LangGraph node."""

    is_stored = True

    def __init__(self, saver: CommitAwareSaver | None, config: RunnableConfig) -> None:
        """With another checkpointer than `saver`, a step counts as stored when LangGraph has its result."""
        self.meter = UsageMeter()
        self.results = CheckpointStore(self)
        self._saver = saver if saver is not None and saver.is_active(config) else None

    async def run_once(self, name: str, work: Callable[[], Awaitable[T]], adapter: TypeAdapter[T]) -> T:
        """The stored result of this step, else that of `work`, once it is committed.

        The step's LLM usage is stored with it, and counted again when the step is not repeated.

        Raises:
            DeadlineError: the checkpointer did not commit within COMMIT_TIMEOUT_S.
        """
        key = secrets.token_hex(8)
        writes: list[asyncio.Future[None]] = []

        async def step() -> dict[str, Any]:
            with self.meter.measure() as part:
                value = await work()
            if self._saver is not None:
                writes.append(self._saver.expect(key))
            return {
                _KEY: key,
                _VALUE: adapter.dump_python(value, mode="json"),
                _USAGE: _USAGES.dump_python(part.usage, mode="json"),
            }

        try:
            done: dict[str, Any] = await task(name=name)(step)()  # type: ignore[arg-type]
            if done[_KEY] == key:
                await _committed(writes)
            else:
                for stage, usage in _USAGES.validate_python(done[_USAGE]).items():
                    self.meter.add(stage, usage)
        finally:
            for write in writes:
                write.cancel()
            if self._saver is not None:
                self._saver.forget(key)
        return adapter.validate_python(done[_VALUE])


class CheckpointStore:
    """The executor's result store: each task of a plan is a step."""

    def __init__(self, steps: CheckpointedSteps) -> None:
        self._steps = steps

    async def get_or_run(self, task: Task, work: Callable[[], Awaitable[TaskResult]]) -> TaskResult:
        """As `jarvis_agent.execution.executor.ResultStore`."""
        return await self._steps.run_once(f"{task.task} {task.id}", work, _RESULT)


async def _committed(writes: Sequence[asyncio.Future[None]]) -> None:
    """Wait for the writes, also for one that LangGraph never makes, at most COMMIT_TIMEOUT_S."""
    if writes and (await asyncio.wait(writes, timeout=COMMIT_TIMEOUT_S))[1]:
        raise _too_late()
    await asyncio.gather(*writes)


def _too_late() -> DeadlineError:
    return DeadlineError(
        f"the checkpointer did not commit the result of a step within {COMMIT_TIMEOUT_S:g} s; "
        "the run stops here, since nothing may build on a result that could be lost"
    )
