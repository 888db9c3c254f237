"""Planners and responders for tests, as Runnables.

JarvisAgent(planner=FakeStage(plan_of(task)), responder=FakeStage(saying("It is ", "done.")))
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from langchain_core.runnables import RunnableGenerator

from jarvis_agent import Plan

Write = Callable[[dict[str, Any]], AsyncIterator[Any]]


class FakeStage(RunnableGenerator[dict[str, Any], Any]):
    """A stage that yields the chunks of an async generator function and records its `inputs`."""

    def __init__(self, write: Write) -> None:
        self.inputs: list[dict[str, Any]] = []

        async def transform(values: AsyncIterator[dict[str, Any]]) -> AsyncIterator[Any]:
            async for value in values:
                self.inputs.append(value)
                async for chunk in write(value):
                    yield chunk

        super().__init__(transform)


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
