"""Planners and responders for tests, as Runnables.

JarvisAgent(planner=FakeStage(plan_of(task)), responder=FakeStage(saying("It is ", "done.")))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from jarvis_agent import Plan

Write = Callable[[dict[str, Any]], AsyncIterator[Any]]


class FakeStage(Runnable[dict[str, Any], Any]):
    """A stage that yields the chunks of an async generator function and records its `inputs`."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.inputs: list[dict[str, Any]] = []

    def invoke(self, input: dict[str, Any], config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        return asyncio.run(self.ainvoke(input, config))

    async def ainvoke(
        self,
        input: dict[str, Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        chunks = [chunk async for chunk in self.astream(input, config)]
        return sum(chunks[1:], chunks[0])

    async def astream(
        self,
        input: dict[str, Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        self.inputs.append(input)
        async for chunk in self.write(input):
            yield chunk


def saying(*chunks: Any) -> Write:
    """Yields the chunks; an exception among them is raised, a number is a pause in seconds."""

    async def write(inputs: dict[str, Any]) -> AsyncIterator[Any]:
        for chunk in chunks:
            if isinstance(chunk, Exception):
                raise chunk
            if isinstance(chunk, int | float):
                await asyncio.sleep(chunk)
            else:
                yield chunk

    return write


def plan_of(*tasks: Any) -> Write:
    """Yields a Plan of each task; other chunks as `saying`."""
    return saying(*(task if isinstance(task, Exception) else Plan(tasks=[task]) for task in tasks))
