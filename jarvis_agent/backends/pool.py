"""The pool of local models: loads each once, runs it in worker threads, evicts the least recently used.

    pool = ModelPool(limit_bytes=4_000_000_000)
    raw = await pool.run(("transformers", "image-classification", "google/vit"), load, call)
    await pool.close()

Each model has a queue. Its first call loads it while the others wait in the queue; no worker thread waits for
another. Calls that wait together are computed in one batch if the model can. One lock guards the state, so
that a pool serves several event loops.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.devices import choosing, free_caches, is_out_of_memory
from jarvis_agent.backends.memory import Key, ModelEntry, ModelTable, fits_in_batch, measure, total
from jarvis_agent.core.errors import ExpertError, JarvisError, OutOfMemoryError, describe_error

logger = logging.getLogger(__name__)

CLOSE_GRACE_S = 10.0
"""Seconds that `close`, and the end of the process, wait for running calls."""

MAX_BATCH = 8
"""Calls of one model that are computed as one batch at most."""

T = TypeVar("T")
_Outcome = tuple[Any, JarvisError | None]
"""The result of a job, or the error that it failed with."""


@dataclass(eq=False, slots=True)
class _Job:
    """A queued or running call. `cancelled`: its caller no longer waits for the result."""

    call: Call
    done: Future[Any] = field(default_factory=Future)
    cancelled: bool = False


_current: ContextVar[tuple[_Job, ...]] = ContextVar("jarvis_pool_jobs", default=())


def is_cancelled() -> bool:
    """Whether every call that this worker thread runs was cancelled. Long computations poll it and stop."""
    jobs = _current.get()
    return bool(jobs) and all(job.cancelled for job in jobs)


class ModelPool:
    """Keeps experts loaded up to a limit for RAM, and one for each GPU.

    Torch modules in an expert are measured on the device that holds them. An expert may also have:

    - `nbytes` (int): bytes of its weights, if they exceed its torch modules.
    - `thread_safe` (True): calls to it may run at the same time.
    - `batch(calls) -> list[raw]`: computes several calls at once, in their order. Small calls that wait in
      its queue are computed together, `MAX_BATCH` at most. If a batch raises, its calls run one by one.

    A load that calls `devices.place` gets the GPU with the most room, where idle models make way. A limit is
    exceeded by at most one model.
    """

    def __init__(self, limit_bytes: int, workers: int = 8) -> None:
        """`limit_bytes`: weights that may stay loaded in RAM. `workers`: threads that run models."""
        self.workers = workers
        self._models = ModelTable(limit_bytes)
        self._lock = threading.Lock()
        self._threads: _Workers | None = None
        self._running: set[Future[None]] = set()

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that are loaded now."""
        return sum(self.used.values())

    @property
    def used(self) -> dict[str, int]:
        """The same by device: `{"cpu": …, "cuda:0": …}`."""
        with self._lock:
            entries = self._models.entries.values()
            return total(entry.placed for entry in entries if entry.expert is not None)

    @property
    def keys(self) -> list[Key]:
        """The models that are loaded now, least recently used first."""
        with self._lock:
            return [key for key, entry in self._models.entries.items() if entry.expert is not None]

    async def run(self, key: Key, load: Callable[[], Expert], call: Call) -> Any:
        """Run a call on the model of that key, which is loaded first if needed.

        Calls to one model run one after the other unless the expert is `thread_safe`. If memory is full, idle
        models are evicted and the step is tried once more. If the caller is cancelled, a queued call is
        removed and a running one is signalled (see `is_cancelled`).

        Raises:
            OutOfMemoryError: the model or the call does not fit.
            ExpertError: the load or the call failed; a failed load is not kept.
        """
        job = _Job(call)
        with self._lock:
            self._models.entry(key, load, call.candidate.size).jobs.append(job)
            self._schedule()
        try:
            return await asyncio.wrap_future(job.done)
        except asyncio.CancelledError:
            job.cancelled = True
            if not job.done.cancel():
                job.done.add_done_callback(lambda _: call.sweep())
            raise

    async def close(self) -> None:
        """Shut down the pool: reject queued calls, cancel running ones, free models and threads.

        Running calls are signalled through `is_cancelled` and get `CLOSE_GRACE_S` (10 s) to stop; their
        results are discarded. Calls that do not stop keep their thread (a daemon) and their model. The pool
        can be used again afterwards.
        """
        with self._lock:
            entries = list(self._models.entries.values())
            queued = [job for entry in entries for job in entry.jobs]
            for entry in entries:
                entry.jobs.clear()
            self._cancel_running()
            running = set(self._running)
        _fail(queued, _closed_error("not run"))
        stuck: Collection[object] = ()
        if running:
            _, stuck = await asyncio.wait(map(asyncio.wrap_future, running), timeout=CLOSE_GRACE_S)
        if stuck:
            logger.error("%d model calls do not end after close(); their threads are abandoned", len(stuck))
        with self._lock:
            self._models.evict_idle()
            self._running -= running
            threads = None if self._running else self._threads  # another event loop may use it again
            self._threads = self._threads if self._running else None
        if threads is not None:
            atexit.unregister(self._stop_at_exit)
            threads.stop(0.0 if stuck else CLOSE_GRACE_S)
        self._free()

    def _cancel_running(self) -> None:
        for entry in self._models.entries.values():
            for job in entry.running:
                job.cancelled = True

    def _stop_at_exit(self) -> None:
        """Stop the workers before the interpreter unloads the libraries that they use."""
        self._cancel_running()
        if self._threads is not None:
            self._threads.stop(CLOSE_GRACE_S)

    def _schedule(self) -> None:
        """Submit every job that may run now to a worker. The lock is held."""
        for entry in list(self._models.entries.values()):
            while entry.jobs and (entry.jobs[0].cancelled or self._may_start(entry)):
                job = entry.jobs.popleft()
                if not job.cancelled:
                    self._submit(entry, job)
            if entry.expert is None and not entry.jobs and not entry.active:
                self._models.entries.pop(entry.key, None)

    def _may_start(self, entry: ModelEntry) -> bool:
        if entry.expert is not None:
            return entry.active == 0 or getattr(entry.expert, "thread_safe", False)
        return entry.active == 0 and self._models.can_load(entry.size)

    def _submit(self, entry: ModelEntry, job: _Job) -> None:
        entry.active += 1
        entry.running.append(job)
        if self._threads is None:
            self._threads = _Workers(self.workers)
            atexit.register(self._stop_at_exit)
        future = self._threads.submit(lambda: self._run_next(entry, job))
        self._running.add(future)
        # _run_next needs the lock, which is held here: it cannot end before the callback is set.
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._running.discard(future)

    def _run_next(self, entry: ModelEntry, first: _Job) -> None:
        """Run a job in a worker thread, in one batch with queued jobs of the same model where possible.

        The model is loaded first if needed; a failed load fails every queued job. Each job gets an outcome.
        """
        jobs = [first] if first.done.set_running_or_notify_cancel() else []
        outcomes: list[_Outcome] = []
        failure: JarvisError | None = None
        token = _current.set(tuple(jobs))
        try:
            if jobs:
                expert = self._load(entry, first.call) if entry.expert is None else entry.expert
                jobs += self._take_batch(entry, expert, first)
                outcomes = self._run_jobs(expert, jobs)
        except BaseException as caught:
            failure = _as_expert_error(caught, first.call)
            outcomes = [(None, failure)] * len(jobs)
        finally:
            _current.reset(token)
            queued = self._finish(entry, [first, *jobs], failure)
            for job, (result, error) in zip(jobs, outcomes, strict=True):
                error = error or (_closed_error("stopped") if job.cancelled else None)
                if error is None:
                    job.done.set_result(result)
                else:
                    job.done.set_exception(error)
            if failure is not None:
                _fail(queued, failure)
            self._free()

    def _finish(self, entry: ModelEntry, ended: Sequence[_Job], failure: JarvisError | None) -> list[_Job]:
        """Release the model and schedule the next jobs; returns the queued jobs that a failed load fails."""
        with self._lock:
            entry.active -= 1
            entry.running = [job for job in entry.running if job not in ended]
            queued: list[_Job] = []
            if failure is not None and entry.expert is None:
                queued = list(entry.jobs)
                entry.jobs.clear()
                entry.placed = {}
            self._models.make_room({}, keep=entry)
            self._schedule()
        return queued

    def _take_batch(self, entry: ModelEntry, expert: Expert, first: _Job) -> list[_Job]:
        """Take the jobs from the queue that are computed in one batch with the first."""
        if not hasattr(expert, "batch") or not fits_in_batch(first.call):
            return []
        with self._lock:
            waiting = [job for job in entry.jobs if not job.cancelled]
            found = [job for job in waiting[: MAX_BATCH - 1] if fits_in_batch(job.call)]
            for job in found:
                entry.jobs.remove(job)
            entry.running += found
        return [job for job in found if job.done.set_running_or_notify_cancel()]

    def _run_jobs(self, expert: Any, jobs: Sequence[_Job]) -> list[_Outcome]:
        """The outcome of each job. A batch that fails is run one by one."""
        if len(jobs) > 1:
            calls = [job.call for job in jobs]
            _current.set(tuple(jobs))
            try:
                results = list(self._with_room(lambda: expert.batch(calls)))
                if len(results) != len(calls):
                    raise ValueError(f"a batch of {len(calls)} calls returned {len(results)} results")
            except Exception as error:
                model, why = calls[0].candidate.id, describe_error(error)
                logger.info("%d calls of %s are run one by one: %s", len(calls), model, why)
            else:
                return [(result, None) for result in results]
        return [self._run_job(expert, job) for job in jobs]

    def _run_job(self, expert: Expert, job: _Job) -> _Outcome:
        if job.cancelled:
            return None, _closed_error("not run")  # cancelled while its model was loaded
        _current.set((job,))
        try:
            return self._with_room(lambda: expert(job.call)), None
        except BaseException as error:
            return None, _as_expert_error(error, job.call)

    def _load(self, entry: ModelEntry, call: Call) -> Expert:
        self._free()
        with choosing(lambda limits, size: self._choose_gpu(entry, limits, size)):
            expert = self._with_room(entry.load)
        placed = measure(expert, call.candidate.size)
        with self._lock:
            entry.expert, entry.placed = expert, placed
            self._models.make_room({})
            self._schedule()
        return expert

    def _choose_gpu(self, entry: ModelEntry, limits: Any, size: int | None) -> str | None:
        with self._lock:
            chosen = self._models.choose_gpu(entry, limits, size)
        self._free()
        return chosen

    def _with_room(self, work: Callable[[], T]) -> T:
        """Do the work; if memory runs out, evict idle models and try once more."""
        try:
            return work()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        with self._lock:
            self._models.evict_idle()
        self._free(always=True)
        return work()

    def _free(self, *, always: bool = False) -> None:
        """Return the memory of evicted models to the system. Slow, so never called under the lock."""
        with self._lock:
            evicted, self._models.evicted = self._models.evicted, []
        if not evicted and not always:
            return
        del evicted
        free_caches()


class _Workers:
    """Daemon threads that run one piece of work after the other. Libraries keep state by thread, so they
    stay.

    `submit` is called by one thread at a time.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._lock = threading.Lock()

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Run the work, which raises nothing, when a thread is free."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                work()
            except BaseException:
                logger.exception("a worker of the model pool failed")
            with self._lock:
                self._unfinished -= 1
            done.set_result(None)

        with self._lock:
            self._unfinished += 1
            grows = len(self._threads) < min(self._unfinished, self._size)
        self._queue.put(run)
        if grows:
            name = f"jarvis-model-{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return done

    def stop(self, seconds: float) -> None:
        """End the threads after their work; wait up to `seconds` for them."""
        for _ in self._threads:
            self._queue.put(None)
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work


def _fail(jobs: Sequence[_Job], error: JarvisError) -> None:
    for job in jobs:
        if job.done.set_running_or_notify_cancel():
            job.done.set_exception(error)


def _closed_error(what: str) -> ExpertError:
    return ExpertError(f"the model call was {what}: the pool was closed meanwhile")


def _as_expert_error(error: BaseException, call: Call) -> JarvisError:
    if isinstance(error, JarvisError):
        return error
    model, task = call.candidate.id, call.spec.name
    if is_out_of_memory(error):
        traceback.clear_frames(error.__traceback__)  # they hold the tensors that filled the memory
        wrapped: ExpertError = OutOfMemoryError(
            f"{model} does not fit into memory for {task}, even with every idle model unloaded; "
            "use a smaller model, or another device (JARVIS_DEVICE)"
        )
    else:
        wrapped = ExpertError(describe_error(error))
    wrapped.__cause__ = error
    return wrapped
