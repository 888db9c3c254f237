"""The pool of local models: loads each once, runs it in worker threads, forgets the least recently used.

    pool = ModelPool(limit_bytes=4_000_000_000)
    raw = await pool.run(("transformers", "image-classification", "google/vit"), load, call)
    await pool.close()

Each model has a queue. Its first call loads it, and the others wait in the queue: no thread ever waits for
another. One lock guards the books, so that a pool can serve several event loops at once.
"""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.weights import free_caches, is_out_of_memory, weight_bytes
from jarvis_agent.errors import ExpertError, JarvisError, OutOfMemoryError

Key = tuple[str, ...]
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Job:
    """A call that waits or runs. `abandoned`: nobody waits for its result any more."""

    call: Call
    done: Future[Any] = field(default_factory=Future)
    abandoned: bool = False


@dataclass(eq=False, slots=True)
class _Slot:
    """A model: its queue, and the expert once it is loaded. `active`: jobs handed to worker threads."""

    key: Key
    load: Callable[[], Expert]
    size: int | None
    jobs: deque[_Job] = field(default_factory=deque)
    expert: Expert | None = None
    nbytes: int = 0
    active: int = 0

    @property
    def loading(self) -> bool:
        return self.expert is None and self.active > 0

    @property
    def idle(self) -> bool:
        return self.expert is not None and self.active == 0 and not self.jobs


_current: ContextVar[_Job | None] = ContextVar("jarvis_pool_job", default=None)


def abandoned() -> bool:
    """Whether the call that this worker thread runs was cancelled: a long computation asks, and stops."""
    job = _current.get()
    return job is not None and job.abandoned


class ModelPool:
    """Keeps experts loaded up to a limit.

    An expert may say `nbytes` (int: bytes of its weights; otherwise torch modules in it are measured, then
    the candidate's own size is taken) and `thread_safe` (True: calls to it may run at the same time).

    The limit is exceeded by at most one model: a model is loaded beside others only where it is known to fit;
    otherwise it waits until no other is being loaded and what is in use is within the limit.
    """

    def __init__(self, limit_bytes: int, workers: int = 8) -> None:
        """`limit_bytes`: weights that may stay loaded. `workers`: threads that run models."""
        self.limit_bytes = limit_bytes
        self.workers = workers
        self._lock = threading.Lock()
        self._slots: OrderedDict[Key, _Slot] = OrderedDict()
        self._evicted: list[Expert] = []
        self._threads: ThreadPoolExecutor | None = None
        self._running: set[Future[None]] = set()

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that are loaded now."""
        with self._lock:
            return self._loaded()

    @property
    def keys(self) -> list[Key]:
        """The models that are loaded now, least recently used first."""
        with self._lock:
            return [key for key, slot in self._slots.items() if slot.expert is not None]

    async def run(self, key: Key, load: Callable[[], Expert], call: Call) -> Any:
        """Run a call on the model of that key, which is loaded first if it is not.

        Calls to one model run one after the other unless the expert is `thread_safe`. Where the memory is
        full, everything idle is evicted and the step is tried once more. If the waiting coroutine is
        cancelled, a call in the queue is taken back and one that runs is left to end (see `abandoned`).

        Raises:
            OutOfMemoryError: the model or the call does not fit.
            ExpertError: the load or the call failed; a failed load is not kept.
        """
        job = _Job(call)
        with self._lock:
            slot = self._slots.setdefault(key, _Slot(key, load, call.candidate.size))
            self._slots.move_to_end(key)
            slot.jobs.append(job)
            self._schedule()
        try:
            return await asyncio.wrap_future(job.done)
        except asyncio.CancelledError:
            job.abandoned = True
            job.done.cancel()
            raise

    async def close(self) -> None:
        """Fail what waits, wait for what runs, free every model and thread. A later `run` starts afresh."""
        with self._lock:
            waiting = [job for slot in self._slots.values() for job in slot.jobs]
            for slot in self._slots.values():
                slot.jobs.clear()
            running = [asyncio.wrap_future(future) for future in self._running]
        _fail(waiting, ExpertError("the model was not run: the pool was closed meanwhile"))
        await asyncio.gather(*running)
        with self._lock:
            self._evict_idle()
            threads = None if self._running else self._threads  # another event loop may have begun anew
            self._threads = self._threads if self._running else None
        if threads is not None:
            threads.shutdown(wait=True)
        self._sweep()

    def _schedule(self) -> None:
        """Hand every job that may run now to a worker thread. The lock is held."""
        for slot in list(self._slots.values()):
            while slot.jobs and (slot.jobs[0].abandoned or self._may_start(slot)):
                job = slot.jobs.popleft()
                if not job.abandoned:
                    self._submit(slot, job)
            if slot.expert is None and not slot.jobs and not slot.active:
                self._slots.pop(slot.key, None)

    def _may_start(self, slot: _Slot) -> bool:
        if slot.expert is not None:
            return slot.active == 0 or getattr(slot.expert, "thread_safe", False)
        return slot.active == 0 and self._may_load(slot.size)

    def _may_load(self, size: int | None) -> bool:
        loading = [slot.size for slot in self._slots.values() if slot.loading]
        expected = sum(other or 0 for other in loading)
        self._make_room(expected + (size or 0))
        if not loading:
            return self._loaded() <= self.limit_bytes
        if size is None or None in loading:
            return False
        return self._loaded() + expected + size <= self.limit_bytes

    def _submit(self, slot: _Slot, job: _Job) -> None:
        slot.active += 1
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="jarvis-model")
        future = self._threads.submit(self._turn, slot, job)
        self._running.add(future)
        # The turn needs the lock, which is held: it can not be over before its callback is there.
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._running.discard(future)

    def _turn(self, slot: _Slot, job: _Job) -> None:
        """One job of a model in a worker thread; the model is loaded first if it is not."""
        wanted = job.done.set_running_or_notify_cancel()
        failed: list[_Job] = []
        result, error = None, None
        if wanted:
            token = _current.set(job)
            try:
                expert = self._load(slot, job.call) if slot.expert is None else slot.expert
                result = self._with_room(lambda: expert(job.call))
            except BaseException as caught:
                error = _as_expert_error(caught, job.call)
            _current.reset(token)
        with self._lock:
            slot.active -= 1
            if error is not None and slot.expert is None:
                failed = list(slot.jobs)
                slot.jobs.clear()
            self._make_room(0, keep=slot)
            self._schedule()
        if error is not None:
            job.done.set_exception(error)
            _fail(failed, error)
        elif wanted:
            job.done.set_result(result)
        self._sweep()

    def _load(self, slot: _Slot, call: Call) -> Expert:
        self._sweep()
        expert = self._with_room(slot.load)
        with self._lock:
            slot.expert = expert
            slot.nbytes = _nbytes(expert, call)
            self._make_room(0)
            self._schedule()
        return expert

    def _with_room(self, work: Callable[[], T]) -> T:
        """Do the work; where memory runs out, evict what is idle and do it once more."""
        try:
            return work()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        with self._lock:
            self._evict_idle()
        self._sweep(always=True)
        return work()

    def _loaded(self) -> int:
        return sum(slot.nbytes for slot in self._slots.values() if slot.expert is not None)

    def _make_room(self, wanted: int, keep: _Slot | None = None) -> None:
        """Evict idle models, least recently used first, until `wanted` bytes fit. The lock is held."""
        idle = (slot for slot in list(self._slots.values()) if slot.idle and slot is not keep)
        while self._loaded() + wanted > self.limit_bytes and (slot := next(idle, None)):
            self._evict(slot)

    def _evict_idle(self) -> None:
        for slot in [slot for slot in self._slots.values() if slot.idle]:
            self._evict(slot)

    def _evict(self, slot: _Slot) -> None:
        assert slot.expert is not None
        self._evicted.append(slot.expert)
        slot.expert = None
        del self._slots[slot.key]

    def _sweep(self, *, always: bool = False) -> None:
        """Give back the memory of evicted models. Never under the lock: it may take a while."""
        with self._lock:
            evicted, self._evicted = self._evicted, []
        if not evicted and not always:
            return
        del evicted
        free_caches()


def _nbytes(expert: Expert, call: Call) -> int:
    stated = getattr(expert, "nbytes", None)
    if isinstance(stated, int):
        return stated
    return weight_bytes(expert) or call.candidate.size or 0


def _fail(jobs: list[_Job], error: JarvisError) -> None:
    for job in jobs:
        if job.done.set_running_or_notify_cancel():
            job.done.set_exception(error)


def _as_expert_error(error: BaseException, call: Call) -> JarvisError:
    if isinstance(error, JarvisError):
        return error
    model, task = call.candidate.id, call.spec.name
    if is_out_of_memory(error):
        traceback.clear_frames(error.__traceback__)  # they hold the tensors that filled the memory
        wrapped: ExpertError = OutOfMemoryError(
            f"{model} does not fit into memory for {task}, even with every idle model unloaded; "
            "take a smaller model, or another device (JARVIS_DEVICE)"
        )
    else:
        wrapped = ExpertError(f"{model} failed at {task}: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
