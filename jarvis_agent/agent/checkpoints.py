"""Checkpointers and checkpoints of LangGraph, as a run needs them.

steps = steps_of_node(config)                 # inside a node of a graph, nested or not
saver = threaded(SqliteSaver(connection))     # a synchronous checkpointer for async graphs

The one module that uses more of LangGraph than its documentation promises: the key of the checkpointer in the
config of a node, and the separator in checkpoint namespaces. `test_the_internals_of_langgraph_in_use_exist`
fails when they change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.constants import CONFIG_KEY_CHECKPOINTER
from langgraph.runtime import get_runtime

from jarvis_agent.agent.checkpointed_steps import CheckpointedSteps

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
