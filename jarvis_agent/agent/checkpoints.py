"""Steps of a run that are done once: what a step came to is stored before anything builds on it.

    teller = CommitAwareSaver(saver)    # the checkpointer, which tells when a write is stored
    steps = CheckpointedSteps(teller)                            # inside a LangGraph entrypoint
    plan = await steps.once("plan", make_plan)       # JSON: made now, or what was stored when it was made

LangGraph knows a step by its place among the calls of a run, so a resumed run must call the same steps in
the same order.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.func import task
from pydantic import TypeAdapter

from jarvis_agent.core.errors import DeadlineError
from jarvis_agent.core.request import UsageMeter
from jarvis_agent.core.types import Task, TaskResult, Usage

_KEY, _VALUE, _USAGE = "step", "value", "usage"
_USAGES = TypeAdapter(dict[str, Usage])

# LangGraph's names, in its config, for the checkpointer and the durability of a run that is nested or not.
_SAVER, _DURABILITY = "__pregel_checkpointer", "__pregel_durability"

# LangGraph's names for a question of a step, and for its result.
_INTERRUPT, _RETURN = "__interrupt__", "__return__"

PATIENCE = 60.0
"""Seconds for which a write is waited for; a checkpointer that needs longer is taken to be broken."""


class CommitAwareSaver(BaseCheckpointSaver[Any]):
    """A checkpointer that passes everything on to another one, and tells when the result of a step is stored.

    LangGraph hands a result on while it is still being written; who must not build on what a crash could
    take away waits here. A synchronous checkpointer is asked in threads.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        self._in_threads = type(saver).aput_writes is BaseCheckpointSaver.aput_writes
        self._stored: dict[str, asyncio.Future[None]] = {}

    def hears(self, config: RunnableConfig) -> bool:
        """Whether the run of this config stores its steps here, and each as soon as it is done.

        It does not inside a larger graph, which lends its own checkpointer or has none, and not with
        `durability="exit"`, which stores nothing before the end.
        """
        told = config.get("configurable", {})
        saver = told.get(_SAVER)
        # LangGraph may work with a copy of a checkpointer.
        same = isinstance(saver, CommitAwareSaver) and saver._stored is self._stored
        return same and told.get(_DURABILITY) != "exit"

    def expect(self, key: str) -> asyncio.Future[None]:
        """What is done once the step of that key is stored; fails if it can not be."""
        return self._stored.setdefault(key, asyncio.get_running_loop().create_future())

    def forget(self, key: str) -> None:
        """Nobody waits for the step of that key any more."""
        self._stored.pop(key, None)

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store, then tell.

        Raises:
            DeadlineError: the other did not store it within PATIENCE.
        """
        keys = [
            value[_KEY]
            for _, value in writes
            if isinstance(value, dict) and value.keys() == {_KEY, _VALUE, _USAGE}
        ]
        waiting = [self._stored.pop(key) for key in keys if key in self._stored]
        try:
            async with asyncio.timeout(PATIENCE) as late:
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
        """As the other's."""
        return self._saver.config_specs

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        """As the other's."""
        found: CheckpointTuple | None = await self._ask("get_tuple", config)
        return found

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        """As the other's."""
        if self._in_threads:
            for found in await asyncio.to_thread(lambda: list(self._saver.list(config, **options))):
                yield found
            return
        async for found in self._saver.alist(config, **options):
            yield found

    async def aput(
        self, config: Any, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: Any
    ) -> Any:
        """As the other's."""
        return await self._ask("put", config, checkpoint, metadata, new_versions)

    async def adelete_thread(self, thread_id: str) -> None:
        """As the other's."""
        await self._ask("delete_thread", thread_id)

    def get_tuple(self, config: Any) -> CheckpointTuple | None:
        """As the other's; for `get_state`."""
        return self._saver.get_tuple(config)

    def list(self, config: Any, **options: Any) -> Iterator[CheckpointTuple]:
        """As the other's; for `get_state_history`."""
        return self._saver.list(config, **options)

    async def _ask(self, method: str, *given: Any) -> Any:
        if self._in_threads:
            return await asyncio.to_thread(getattr(self._saver, method), *given)
        return await getattr(self._saver, f"a{method}")(*given)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """As the other's."""
        return self._saver.get_next_version(current, channel)


def is_answered(stored: CheckpointTuple) -> bool:
    """Whether what a step asked was answered, and the step is done: LangGraph keeps the question."""
    writes = [(step, channel) for step, channel, _ in stored.pending_writes or []]
    return any(channel == _INTERRUPT and (step, _RETURN) in writes for step, channel in writes)


class CheckpointedSteps:
    """The steps of one run; to be made inside a LangGraph entrypoint."""

    def __init__(self, teller: CommitAwareSaver | None) -> None:
        """Without a teller a step counts as stored when LangGraph has its result."""
        self._teller = teller

    async def once(
        self, name: str, work: Callable[[], Awaitable[Any]], meter: UsageMeter | None = None
    ) -> Any:
        """The JSON that is stored for this step; else what `work` returns, once it is stored.

        What the step cost is stored with it, and counted by `meter` where it is not done again.

        Raises:
            DeadlineError: the checkpointer did not store it within PATIENCE.
        """
        key = secrets.token_hex(8)
        meter = meter or UsageMeter()
        written: list[asyncio.Future[None]] = []

        async def step() -> dict[str, Any]:
            with meter.part() as cost:
                value = await work()
            if self._teller is not None:
                written.append(self._teller.expect(key))
            return {_KEY: key, _VALUE: value, _USAGE: _USAGES.dump_python(cost.usage, mode="json")}

        try:
            done: dict[str, Any] = await task(name=name)(step)()  # type: ignore[arg-type]
            if done[_KEY] == key:
                await _all_of(written)
            else:
                for stage, usage in _USAGES.validate_python(done[_USAGE]).items():
                    meter.add(stage, usage)
        finally:
            for write in written:
                write.cancel()
            if self._teller is not None:
                self._teller.forget(key)
        return done[_VALUE]


async def _all_of(writes: Sequence[asyncio.Future[None]]) -> None:
    """Wait until they are done; also for a write that LangGraph never asks for, not for ever."""
    if writes and (await asyncio.wait(writes, timeout=PATIENCE))[1]:
        raise _too_late()
    await asyncio.gather(*writes)


def _too_late() -> DeadlineError:
    return DeadlineError(
        f"the checkpointer did not store the result of a step within {PATIENCE:g} s; "
        "the run stops here, for nothing may be built on what could be lost"
    )


class CheckpointStore:
    """The executor's result store: each task of a plan is a step."""

    def __init__(self, steps: CheckpointedSteps, meter: UsageMeter) -> None:
        """`meter` counts what the tasks cost."""
        self._steps = steps
        self._meter = meter

    async def get_or_run(self, task: Task, work: Callable[[], Awaitable[TaskResult]]) -> TaskResult:
        """As `jarvis_agent.execution.executor.ResultStore`."""

        async def step() -> dict[str, Any]:
            return (await work()).model_dump(mode="json")

        return TaskResult.model_validate(await self._steps.once(f"{task.task} {task.id}", step, self._meter))
