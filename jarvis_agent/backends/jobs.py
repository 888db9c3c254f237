"""Calls in the queues of the pool: how they run, alone or in a batch; their progress and cancellation."""

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, TypeVar

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import is_out_of_memory
from jarvis_agent.core.errors import ExpertError, JarvisError, OutOfMemoryError, describe_error
from jarvis_agent.core.types import Resource

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BATCH_TEXT = 2_000
"""Characters of an argument of a call in a batch."""

MAX_BATCH_FILE = 5_000_000
"""Bytes of a file of a call in a batch."""


@dataclass(eq=False, slots=True)
class Activity:
    """Work on a model that takes long, as a line of a progress display; `state` says what is done."""

    model: str
    state: ClassVar[str] = "loading"

    def __str__(self) -> str:
        return f"{self.model}: {self.state}"


_unshown: list[Activity] = []
activities: ContextVar[list[Activity]] = ContextVar("jarvis_activities", default=_unshown)
"""The downloads and texts of the current run that are under way. What shows a run sets a list before it."""


@dataclass(eq=False, slots=True)
class Job:
    """A queued or running call, then its result or error; `done` hands it to the caller.

    `cancelled`: no caller waits for the result. `activities` are those of the run that it is for.
    """

    call: Call
    cancelled: bool = False
    activities: list[Activity] = field(default_factory=activities.get)
    done: Future[Any] = field(default_factory=Future)
    result: Any = None
    error: JarvisError | None = None

    def start(self) -> bool:
        """Mark the job as running; False if it was cancelled before."""
        return self.done.set_running_or_notify_cancel()

    def fail(self, error: BaseException) -> None:
        """Keep the error of a library as one of ours."""
        if isinstance(error, JarvisError):
            self.error = error
            return
        self.error = ExpertError(describe_error(error))
        if is_out_of_memory(error):
            traceback.clear_frames(error.__traceback__)  # they hold the tensors that filled the memory
            self.error = OutOfMemoryError(
                f"{self.call.candidate.id} does not fit into memory for {self.call.spec.name}, even with "
                "every idle model unloaded; use a smaller model",
                advice="JARVIS_DEVICE names another device",
            )
        self.error.__cause__ = error

    def end(self) -> None:
        """Hand the result or error to the caller; a result that arrives after a cancellation is an error."""
        if error := self.error or (closed_error("stopped") if self.cancelled else None):
            self.done.set_exception(error)
        else:
            self.done.set_result(self.result)


_current: ContextVar[Sequence[Job]] = ContextVar("jarvis_pool_jobs", default=())


def is_cancelled() -> bool:
    """Whether all that this worker thread works for was cancelled. Long computations poll it and stop."""
    jobs = _current.get()
    return bool(jobs) and all(job.cancelled for job in jobs)


def until_cancelled(items: Iterable[T]) -> Iterator[T]:
    """The items one by one. Raises ExpertError as soon as `is_cancelled`, before the next one is used."""
    for item in items:
        if is_cancelled():
            raise closed_error("stopped")
        yield item


def add_note(text: str) -> None:
    """Add a remark for the user to the results of the calls that this worker thread works for."""
    for job in _current.get():
        job.call.notes.append(text)


@dataclass(eq=False, slots=True)
class Generation(Activity):
    """A text that a model is writing: `done` of at most `total` tokens; `text` if it is known so far."""

    state: ClassVar[str] = "writing"
    total: int
    done: int = 0
    text: str = ""

    def add(self, text: str) -> None:
        """Count a token and append its text."""
        self.done += 1
        self.text += text

    def __str__(self) -> str:
        written = f"{self.model}: {self.done} of at most {self.total} tokens written"
        return f"{written}: …{' '.join(self.text[-60:].split())}" if self.text else written


@contextmanager
def listed(activity: Activity) -> Iterator[None]:
    """Show it within the block, in the runs that this thread works for."""
    lists = [job.activities for job in _current.get()] or [activities.get()]
    for shown in lists:
        shown.append(activity)
    try:
        yield
    finally:
        for shown in lists:
            shown.remove(activity)


@contextmanager
def running(jobs: Sequence[Job]) -> Iterator[None]:
    """Within the block, `is_cancelled` speaks of these jobs."""
    token = _current.set(jobs)
    try:
        yield
    finally:
        _current.reset(token)


def run_jobs(expert: Any, jobs: Sequence[Job], retry: Callable[[Callable[[], Any]], Any]) -> None:
    """Compute the results of jobs. A batch that fails is logged, and its jobs are run one by one."""
    if len(jobs) > 1:
        calls = [job.call for job in jobs]
        try:
            with running(jobs):
                results = list(retry(lambda: expert.batch(calls)))
            for job, result in zip(jobs, results, strict=True):
                job.result = result
        except Exception as error:
            model, why = calls[0].candidate.id, describe_error(error)
            logger.warning("a batch of %d calls of %s is run one by one: %s", len(calls), model, why)
        else:
            return
    for job in jobs:
        if job.cancelled:  # while its model was loaded
            job.fail(closed_error("not run"))
            continue
        try:
            with running((job,)):
                job.result = retry(partial(expert, job.call))
        except BaseException as error:
            job.fail(error)


def fits_in_batch(call: Call) -> bool:
    """Whether every input of a call is small: a batch needs the memory of all its calls at once."""

    def is_small(value: Any) -> bool:
        if not isinstance(value, Resource):
            return len(str(value)) <= MAX_BATCH_TEXT
        if value.kind not in ("text", "image"):
            return False
        if value.path is None:
            return len(value.text or "") <= MAX_BATCH_TEXT
        return value.path.stat().st_size <= MAX_BATCH_FILE

    try:
        return all(map(is_small, call.inputs.values()))
    except OSError:
        return False


def closed_error(what: str) -> ExpertError:
    """The error of a call that a closed pool does not finish."""
    return ExpertError(f"the model call was {what}: the pool was closed meanwhile")
