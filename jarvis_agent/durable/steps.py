"""Steps of a run that are done once: what a step came to is stored before anything builds on it.

    teller = CommitTeller(saver)                     # the checkpointer, which tells when a write is stored
    steps = Steps(teller)                            # inside a LangGraph entrypoint
    plan = await steps.once("plan", make_plan)       # JSON: made now, or what was stored when it was made

LangGraph knows a step by its place among the calls of a run, so a resumed run must call the same steps in
the same order.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.func import task

from jarvis_agent.types import Task, TaskResult

_KEY, _VALUE = "step", "value"


class CommitTeller(BaseCheckpointSaver[Any]):
    """A checkpointer that passes everything on to another one, and tells when the result of a step is stored.

    LangGraph hands a result on while it is still being written; who must not build on what a crash could
    take away waits here.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        self._stored: dict[str, asyncio.Future[None]] = {}

    def expect(self, key: str) -> asyncio.Future[None]:
        """What is done once the step of that key is stored; fails if it can not be."""
        return self._stored.setdefault(key, asyncio.get_running_loop().create_future())

    async def aput_writes(
        self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store, then tell."""
        keys = [
            value[_KEY] for _, value in writes if isinstance(value, dict) and value.keys() == {_KEY, _VALUE}
        ]
        waiting = [self._stored.pop(key) for key in keys if key in self._stored]
        try:
            await self._saver.aput_writes(config, writes, task_id, task_path)
        except BaseException as error:
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
            raise
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def config_specs(self) -> list[Any]:
        """As the other's."""
        return self._saver.config_specs

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        """As the other's."""
        return await self._saver.aget_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        """As the other's."""
        async for found in self._saver.alist(config, **options):
            yield found

    async def aput(
        self, config: Any, checkpoint: Checkpoint, metadata: CheckpointMetadata, new_versions: Any
    ) -> Any:
        """As the other's."""
        return await self._saver.aput(config, checkpoint, metadata, new_versions)

    async def adelete_thread(self, thread_id: str) -> None:
        """As the other's."""
        await self._saver.adelete_thread(thread_id)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """As the other's."""
        return self._saver.get_next_version(current, channel)


class Steps:
    """The steps of one run; to be made inside a LangGraph entrypoint. It is the executor's Journal too."""

    def __init__(self, teller: CommitTeller | None) -> None:
        """Without a teller a step counts as stored when LangGraph has its result."""
        self._teller = teller

    async def once(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        """The JSON that is stored for this step; else what `work` returns, once it is stored."""
        stored: list[asyncio.Future[None]] = []

        async def step() -> dict[str, Any]:
            key = secrets.token_hex(8)
            value = await work()
            if self._teller is not None:
                stored.append(self._teller.expect(key))
            return {_KEY: key, _VALUE: value}

        done: dict[str, Any] = await task(name=name)(step)()  # type: ignore[arg-type]
        await asyncio.gather(*stored)
        return done[_VALUE]


class TaskJournal:
    """The executor's journal: each task of a plan is a step."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def once(self, task: Task, work: Callable[[], Awaitable[TaskResult]]) -> TaskResult:
        """As `jarvis_agent.execute.Journal`."""

        async def step() -> dict[str, Any]:
            return (await work()).model_dump(mode="json")

        return TaskResult.model_validate(await self._steps.once(f"{task.task} {task.id}", step))
