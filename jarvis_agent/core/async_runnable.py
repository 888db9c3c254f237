"""AsyncRunnable: a LangChain Runnable that only defines `astream`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from typing import Any, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig

from jarvis_agent.core.sync import iterate_sync, run_sync

In = TypeVar("In")
Out = TypeVar("Out")


class AsyncRunnable(Runnable[In, Out]):
    """A Runnable whose other methods, sync and async, follow from `astream`.

    The context variables of a sync call, and with them the parent's config, are visible in `astream`.
    """

    @abstractmethod
    def astream(
        self,
        input: In,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Out, None]:
        """The output in chunks. Close it (`aclosing`) unless it is read to the end."""

    @abstractmethod
    def join(self, chunks: list[Out]) -> Out:
        """The whole output, from its chunks."""

    async def ainvoke(self, input: In, config: RunnableConfig | None = None, **kwargs: Any) -> Out:  # noqa: A002
        """The whole output."""
        return self.join([chunk async for chunk in self.astream(input, config, **kwargs)])

    def invoke(self, input: In, config: RunnableConfig | None = None, **kwargs: Any) -> Out:  # noqa: A002
        """The whole output."""
        return run_sync(partial(self.ainvoke, **kwargs), input, config)

    def stream(self, input: In, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Out]:  # noqa: A002
        """The output in chunks."""
        yield from iterate_sync(partial(self.astream, **kwargs), input, config)
