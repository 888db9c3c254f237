"""The pool of local models: loads each once, runs it in worker threads, forgets the least recently used.

    pool = ModelPool(limit_bytes=4_000_000_000)
    raw = await pool.run(("transformers", "image-classification", "google/vit"), load, call)
    await pool.close()

Each model has a queue. Its first call loads it, and the others wait in the queue: no thread ever waits for
another. Calls that wait together are computed together where the model can (see `batch` in ModelPool). One
lock guards the books, so that a pool can serve several event loops at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.batches import batch_of, fits_a_batch
from jarvis_agent.backends.devices import choosing
from jarvis_agent.backends.memory import RAM, Budget, measure, total
from jarvis_agent.backends.weights import free_caches, is_out_of_memory
from jarvis_agent.core.errors import ExpertError, JarvisError, OutOfMemoryError, describe_error
from jarvis_agent.core.threads import Crew

logger = logging.getLogger(__name__)

_GRACE = 10.0
"""Seconds for which the end of a pool waits for what runs."""

Key = tuple[str, ...]
T = TypeVar("T")
MAX_BATCH = 8
"""Calls of one model that may be computed as one batch."""

_Outcome = tuple[Any, JarvisError | None]
"""The result of a job, or why it has none."""


@dataclass(eq=False, slots=True)
class _Job:
    """A call that waits or runs. `abandoned`: nobody waits for its result any more."""

    call: Call
    done: Future[Any] = field(default_factory=Future)
    abandoned: bool = False


@dataclass(eq=False, slots=True)
class _Slot:
    """A model: its queue, and the expert once it is loaded.

    `active`: turns handed to worker threads, and `running` their jobs. `placed`: its bytes by device, or
    while it is loaded those that it is expected to take on its GPU.
    """

    key: Key
    load: Callable[[], Expert]
    size: int | None
    jobs: deque[_Job] = field(default_factory=deque)
    expert: Expert | None = None
    placed: Mapping[str, int] = field(default_factory=dict)
    active: int = 0
    running: list[_Job] = field(default_factory=list)

    @property
    def loading(self) -> bool:
        return self.expert is None and self.active > 0

    @property
    def idle(self) -> bool:
        return self.expert is not None and self.active == 0 and not self.jobs


_current: ContextVar[tuple[_Job, ...]] = ContextVar("jarvis_pool_jobs", default=())


def abandoned() -> bool:
    """Whether every call that this worker thread runs was cancelled: a long computation asks, and stops."""
    jobs = _current.get()
    return bool(jobs) and all(job.abandoned for job in jobs)


class ModelPool:
    """Keeps experts loaded up to a limit for RAM, and one for each GPU.

    Torch modules in an expert are measured on the device on which they lie. Beyond that an expert may say

    - `nbytes` (int): bytes of its weights, if there is more than its torch modules.
    - `thread_safe` (True): calls to it may run at the same time.
    - `batch(calls) -> list[raw]`: computes several calls at once, with a raw output for each, in their order.
      Calls that wait in its queue together are given to it, `MAX_BATCH` at most, if their inputs
      are small (see batches.py). Where it raises, they are run one by one: a bad input harms no other.

    A load that asks `devices.place` for a device is given the GPU with the most room, on which idle models
    make way. A limit is exceeded by at most one model: a model is loaded beside others only where it is known
    to fit; otherwise it waits until no other is being loaded and what is in use is within the limits.
    """

    def __init__(self, limit_bytes: int, workers: int = 8) -> None:
        """`limit_bytes`: weights that may stay loaded in RAM. `workers`: threads that run models."""
        self.workers = workers
        self._budget = Budget({RAM: limit_bytes})
        self._lock = threading.Lock()
        self._slots: OrderedDict[Key, _Slot] = OrderedDict()
        self._evicted: list[Expert] = []
        self._crew: Crew | None = None
        self._running: set[Future[None]] = set()

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that are loaded now."""
        return sum(self.used.values())

    @property
    def used(self) -> dict[str, int]:
        """The same by device: `{"cpu": …, "cuda:0": …}`."""
        with self._lock:
            return total(slot.placed for slot in self._slots.values() if slot.expert is not None)

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
            if not job.done.cancel():
                job.done.add_done_callback(lambda _: call.sweep())
            raise

    async def close(self) -> None:
        """Fail what waits, wait for what runs, free every model and thread. A later `run` starts afresh.

        What runs is abandoned: long computations see it and stop (see `abandoned`), and since what they have
        by then may be a part of the result, it fails too. What has not ended after `_GRACE` seconds is left
        alone, with its model, which takes no call until then unless it can work on several at once.
        """
        with self._lock:
            waiting = [job for slot in self._slots.values() for job in slot.jobs]
            for job in (job for slot in self._slots.values() for job in slot.running):
                job.abandoned = True
            for slot in self._slots.values():
                slot.jobs.clear()
            running = set(self._running)
        _fail(waiting, _closed("not run"))
        stuck: Collection[object] = ()
        if running:
            _, stuck = await asyncio.wait(map(asyncio.wrap_future, running), timeout=_GRACE)
        if stuck:
            logger.error("%d calls of models on this machine do not end; they are left alone", len(stuck))
        with self._lock:
            self._evict_idle()
            self._running -= running
            crew = None if self._running else self._crew  # another event loop may have begun anew
            self._crew = self._crew if self._running else None
        if crew is not None:
            crew.stop(0.0 if stuck else _GRACE)
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
        loading = [slot for slot in self._slots.values() if slot.loading]
        expected = sum(slot.size or 0 for slot in loading)
        self._make_room({RAM: expected + (size or 0)})
        used = self._used()
        if self._budget.over(used):
            return False
        if not loading:
            return True
        if size is None or any(slot.size is None for slot in loading):
            return False
        unplaced = sum(slot.size or 0 for slot in loading if not slot.placed)
        gpus = self._budget.gpus
        on_gpu = not gpus or any(self._budget.holds(gpu, used, unplaced + size) for gpu in gpus)
        return on_gpu and self._budget.holds(RAM, used, expected + size)

    def _submit(self, slot: _Slot, job: _Job) -> None:
        slot.active += 1
        slot.running.append(job)
        if self._crew is None:
            self._crew = Crew(self.workers, "jarvis-model")
        future = self._crew.start(self._turn, slot, job)
        self._running.add(future)
        # The turn needs the lock, which is held: it can not be over before its callback is there.
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._running.discard(future)

    def _turn(self, slot: _Slot, first: _Job) -> None:
        """A job of a model in a worker thread, with those that can be computed along with it.

        The model is loaded first if it is not; if that fails, it fails for all who wait for it. Whatever goes
        wrong, every job has an outcome in the end, and the slot is free for the next turn.
        """
        jobs = [first] if first.done.set_running_or_notify_cancel() else []
        outcomes: list[_Outcome] = []
        failure: JarvisError | None = None
        token = _current.set(tuple(jobs))
        try:
            if jobs:
                expert = self._load(slot, first.call) if slot.expert is None else slot.expert
                jobs += self._companions(slot, expert, first)
                outcomes = self._outcomes(expert, jobs)
        except BaseException as caught:
            failure = _as_expert_error(caught, first.call)
            outcomes = [(None, failure)] * len(jobs)
        finally:
            _current.reset(token)
            self._end_turn(slot, first, jobs, outcomes, failure)

    def _end_turn(
        self,
        slot: _Slot,
        first: _Job,
        jobs: Sequence[_Job],
        outcomes: Sequence[_Outcome],
        failure: JarvisError | None,
    ) -> None:
        """Hand out what came of a turn's jobs, and start the next. A failed load fails all who wait."""
        with self._lock:
            slot.active -= 1
            slot.running = [job for job in slot.running if job is not first and job not in jobs]
            unloaded = failure is not None and slot.expert is None
            waiting = list(slot.jobs) if unloaded else []
            if unloaded:
                slot.jobs.clear()
                slot.placed = {}
            self._make_room({}, keep=slot)
            self._schedule()
        for job, (result, error) in zip(jobs, outcomes, strict=True):
            error = error or (_closed("stopped") if job.abandoned else None)
            if error is None:
                job.done.set_result(result)
            else:
                job.done.set_exception(error)
        if failure is not None:
            _fail(waiting, failure)
        self._sweep()

    def _companions(self, slot: _Slot, expert: Expert, first: _Job) -> list[_Job]:
        """Jobs taken from the queue that are computed in one batch with the first."""
        most = MAX_BATCH - 1
        if batch_of(expert) is None or not fits_a_batch(first.call):
            return []
        with self._lock:
            waiting = [job for job in slot.jobs if not job.abandoned]
            found = [job for job in waiting[:most] if fits_a_batch(job.call)]
            for job in found:
                slot.jobs.remove(job)
            slot.running += found
        return [job for job in found if job.done.set_running_or_notify_cancel()]

    def _outcomes(self, expert: Expert, jobs: Sequence[_Job]) -> list[_Outcome]:
        """What becomes of each job. A batch that fails is run one by one."""
        batch = batch_of(expert)
        if batch is not None and len(jobs) > 1:
            calls = [job.call for job in jobs]
            _current.set(tuple(jobs))
            try:
                return [(result, None) for result in self._with_room(lambda: batch(calls))]
            except Exception as error:
                model, why = calls[0].candidate.id, describe_error(error)
                logger.info("%d calls of %s are run one by one: %s", len(calls), model, why)
        return [self._outcome(expert, job) for job in jobs]

    def _outcome(self, expert: Expert, job: _Job) -> _Outcome:
        if job.abandoned:
            return None, _closed("not run")  # while its model was loaded, or others before it ran
        _current.set((job,))
        try:
            return self._with_room(lambda: expert(job.call)), None
        except BaseException as error:
            return None, _as_expert_error(error, job.call)

    def _load(self, slot: _Slot, call: Call) -> Expert:
        self._sweep()
        with choosing(lambda limits, size: self._choose(slot, limits, size)):
            expert = self._with_room(slot.load)
        placed = measure(expert, call.candidate.size)
        with self._lock:
            slot.expert, slot.placed = expert, placed
            self._make_room({})
            self._schedule()
        return expert

    def _choose(self, slot: _Slot, limits: Mapping[str, int], size: int | None) -> str | None:
        """The GPU for a model that is being loaded. Idle models make way for it there."""
        with self._lock:
            self._budget.limits.update(limits)
            slot.placed = {}
            busy = total(other.placed for other in self._slots.values() if not other.idle)
            chosen = self._budget.roomiest(limits, self._used(), busy, size)
            if chosen is not None:
                self._make_room({chosen: size or 0})
                slot.placed = {chosen: size or 0}
        self._sweep()
        return chosen

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

    def _used(self) -> dict[str, int]:
        """Bytes by device, with those that are promised to models that are being loaded."""
        return total(slot.placed for slot in self._slots.values())

    def _make_room(self, wanted: Mapping[str, int], keep: _Slot | None = None) -> None:
        """Evict idle models, least recently used first, until `wanted` bytes fit on every device.

        The lock is held.
        """
        for slot in list(self._slots.values()):
            crowded = self._budget.over(total([self._used(), wanted]))
            if not crowded:
                return
            if slot.idle and slot is not keep and any(slot.placed.get(device) for device in crowded):
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


def _fail(jobs: list[_Job], error: JarvisError) -> None:
    for job in jobs:
        if job.done.set_running_or_notify_cancel():
            job.done.set_exception(error)


def _closed(what: str) -> ExpertError:
    return ExpertError(f"the model was {what}: the pool was closed meanwhile")


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
        wrapped = ExpertError(describe_error(error))
    wrapped.__cause__ = error
    return wrapped
