"""A fake backend with given results, and a fake source with given models.

backend = FakeBackend({"image-to-text": "a cat", "text-to-speech": OutOfMemoryError("too big")})
source = FakeSource([fake_candidate("image-to-text", "org/captioner", downloads=10)])
"""

import asyncio
import inspect
import threading
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from jarvis_agent.backends.base import Call
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


class FakeBackend:
    """A backend that gives the results it was made with.

    Args:
        results: by task name or model id (which comes first): a raw output as the task's adapter takes it; an
            exception to raise; a tuple of those, one a call, the last one for every further call; or a
            callable that takes the Call and returns one of them, or a coroutine of it.
        name: what candidates name in their field `backend`.
        local: whether it counts as running on this machine.
        delay: seconds that each call takes.

    `calls` are the Calls so far, `running` how many run now, `peak` how many ran at once at most, and
    `closed` whether it was closed.
    """

    name: ClassVar[str] = "fake"
    local: ClassVar[bool] = True

    def __init__(
        self, results: Mapping[str, Any], name: str = "fake", *, local: bool = True, delay: float = 0.0
    ) -> None:
        self.name = name  # type: ignore[misc]
        self.local = local  # type: ignore[misc]
        self.results = dict(results)
        self.delay = delay
        self.calls: list[Call] = []
        self.running = self.peak = 0
        self.closed = False
        self._used: dict[str, int] = {}
        self._lock = threading.Lock()

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if there is a result for the task or the model."""
        if candidate.backend not in (None, self.name):
            return f"it wants the backend {candidate.backend}"
        if candidate.id in self.results or spec.name in self.results:
            return None
        return f"the backend {self.name} has no result for {spec.name}"

    async def run(self, call: Call) -> Any:
        """The next result for the call's model or task."""
        with self._lock:
            self.calls.append(call)
            self.running += 1
            self.peak = max(self.peak, self.running)
        try:
            if self.delay:
                await asyncio.sleep(self.delay)
            return await self._result(call)
        finally:
            with self._lock:
                self.running -= 1

    async def close(self) -> None:
        """Record that it was closed."""
        self.closed = True

    def models(self) -> list[str]:
        """Ids of the run models, in order."""
        return [call.candidate.id for call in self.calls]

    async def _result(self, call: Call) -> Any:
        key = call.candidate.id if call.candidate.id in self.results else call.spec.name
        result = self.results[key]
        if isinstance(result, tuple):
            with self._lock:
                place = self._used.get(key, 0)
                self._used[key] = place + 1
            result = result[min(place, len(result) - 1)]
        if callable(result) and not isinstance(result, type):
            result = result(call)
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, BaseException):
            raise result
        return result


class FakeSource:
    """A source that lists the candidates it was made with; `asked` are the tasks for which it was asked."""

    name: ClassVar[str] = "fake"

    def __init__(self, candidates: Iterable[Candidate], name: str = "fake") -> None:
        self.name = name  # type: ignore[misc]
        self.asked: list[str] = []
        self._candidates = list(candidates)

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """Those of the task, the most downloaded first."""
        self.asked.append(spec.name)
        models = [candidate for candidate in self._candidates if candidate.task == spec.name]
        return sorted(models, key=lambda candidate: -candidate.downloads)[:limit]


def fake_candidate(task: str, id: str = "", **fields: Any) -> Candidate:  # noqa: A002
    """A model for a task, on this machine, for the backend "fake"; by default its id is "fake/<task>"."""
    values = {
        "source": "fake",
        "backend": "fake",
        "local": True,
        "description": f"A model for {task}.",
    } | fields
    return Candidate(id=id or f"fake/{task}", task=task, **values)
