"""Steps of a run: done directly, or done once and stored (agent/checkpoints.py).

steps = DirectSteps()
plan = await steps.run_once("plan", make_plan, TypeAdapter(Plan))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from pydantic import TypeAdapter

from jarvis_agent.execution.executor import ResultStore
from jarvis_agent.llm.usage import UsageMeter

T = TypeVar("T")


class Steps(Protocol):
    """How the steps of a run are done: directly, or once and stored (agent/checkpoints.py)."""

    @property
    def is_stored(self) -> bool: ...

    @property
    def meter(self) -> UsageMeter: ...

    @property
    def results(self) -> ResultStore | None: ...

    async def run_once(self, name: str, work: Callable[[], Awaitable[T]], adapter: TypeAdapter[T]) -> T:
        """The stored result of this step, else that of `work`. `adapter` converts it from and to JSON."""
        ...


class DirectSteps:
    """Runs every step, and stores nothing."""

    is_stored = False
    results = None

    def __init__(self) -> None:
        self.meter = UsageMeter()

    async def run_once(self, name: str, work: Callable[[], Awaitable[T]], adapter: TypeAdapter[T]) -> T:
        """The result of `work`."""
        return await work()
