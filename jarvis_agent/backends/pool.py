"""The pool of local models: loads each once, runs it in worker threads, evicts the least recently used.

Each model has a queue. Its first call loads it while the others wait in the queue; no worker thread waits for
another. Calls that wait together are computed in one batch if the model can. One lock guards the state, for
several event loops.
"""

import asyncio
import atexit
import logging
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakSet

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.devices import bytes_by_device, choosing, free_caches, is_out_of_memory
from jarvis_agent.backends.jobs import Job, closed_error, fits_in_batch, run_jobs, running
from jarvis_agent.core.concurrency import cancellation, run_in_daemon_thread
from jarvis_agent.core.forks import fork_safe, keep_forever, renew_in_child

RAM = "cpu"

Key = tuple[str, ...]
Bytes = Mapping[str, int]
"""Bytes of weights by device."""


@dataclass(eq=False, slots=True)
class ModelEntry:
    """A model of the pool: its queue of jobs, and the expert once it is loaded.

    `running` are the jobs of the worker that uses or loads it. `placed` are its bytes by device; while it is
    being loaded, the bytes reserved for it on a GPU.
    """

    key: Key
    load: Callable[[], Expert]
    size: int | None
    jobs: deque[Job] = field(default_factory=deque)
    expert: Expert | None = None
    placed: Bytes = field(default_factory=dict)
    running: list[Job] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether it is loaded and unused, so that it may be evicted."""
        return self.expert is not None and not self.running and not self.jobs


class ModelTable:
    """Models by key, least recently used first, and their bytes by device: RAM is "cpu".

    A GPU is added, with its own limit, when the first model is placed on one. The pool holds its lock.
    """

    def __init__(self, limit_bytes: int, beside: WeakSet[Any] | None = None) -> None:
        """`limit_bytes`: weights that may stay loaded in RAM; those of the models `beside` count too."""
        self.limits = {RAM: limit_bytes}
        self.beside = WeakSet[Any]() if beside is None else beside
        self.entries: OrderedDict[Key, ModelEntry] = OrderedDict()
        self.evicted: list[Any] = []

    def entry(self, key: Key, load: Callable[[], Expert], size: int | None) -> ModelEntry:
        """The model of a key, added if it is new, as the most recently used."""
        entry = self.entries.setdefault(key, ModelEntry(key, load, size))
        self.entries.move_to_end(key)
        return entry

    def used(self) -> dict[str, int]:
        """Bytes by device, including those reserved for models that are being loaded."""
        return total(entry.placed for entry in self.entries.values())

    def can_load(self, entry: ModelEntry) -> bool:
        """Whether a model may be loaded now; idle models are evicted to make room.

        A model is loaded beside others only if it is known to fit. Otherwise it waits until no other is being
        loaded, so that a limit is exceeded by at most one model.
        """
        loading = [other for other in self.entries.values() if other.expert is None and other.running]
        self.make_room({RAM: sum(model.size or 0 for model in (entry, *loading))})
        used, size = self.used(), entry.size
        if self.over_limit(used):
            return False
        if not loading:
            return True
        if size is None or any(other.size is None for other in loading):
            return False
        expected = sum(other.size or 0 for other in loading)
        unplaced = sum(other.size or 0 for other in loading if not other.placed)
        gpus = [device for device in self.limits if device != RAM]
        fits_a_gpu = not gpus or any(self._fits(gpu, used, unplaced + size) for gpu in gpus)
        return fits_a_gpu and self._fits(RAM, used, expected + size)

    def choose_gpu(self, entry: ModelEntry, limits: Bytes, size: int | None) -> str | None:
        """Reserve the GPU with the most room for `size` bytes (None: unknown); idle models make way.

        Returns None if the model is larger than every limit.
        """
        self.limits.update(limits)
        entry.placed = {}
        used = self.used()
        kept = total(other.placed for other in self.entries.values() if not other.idle)
        able = [gpu for gpu in limits if self._fits(gpu, {}, size or 0)]
        for taken in (used, kept):
            if fits := [gpu for gpu in able if self._fits(gpu, taken, size or 0)]:
                break
        chosen = max(fits or able, key=lambda gpu: self.limits[gpu] - taken.get(gpu, 0), default=None)
        if chosen is not None:
            self.make_room({chosen: size or 0})
            entry.placed = {chosen: size or 0}
        return chosen

    def make_room(self, wanted: Bytes, keep: ModelEntry | None = None) -> None:
        """Evict idle models until `wanted` bytes fit: those least recently used first."""
        for entry in list(self.entries.values()):
            crowded = self.over_limit(total([self.used(), wanted]))
            if not crowded:
                return
            if entry.idle and entry is not keep and any(entry.placed.get(device) for device in crowded):
                self.evict(entry)

    def evict_idle(self) -> None:
        """Evict every idle model."""
        for entry in list(self.entries.values()):
            if entry.idle:
                self.evict(entry)

    def evict(self, entry: ModelEntry) -> None:
        """Unload a model."""
        self.evicted.append(entry.expert)
        entry.expert, entry.placed = None, {}
        del self.entries[entry.key]

    def over_limit(self, used: Bytes) -> list[str]:
        """The devices whose limit `used` bytes exceed."""
        return [device for device in self.limits if not self._fits(device, used, 0)]

    def _fits(self, device: str, used: Bytes, size: int) -> bool:
        beside = sum(model.nbytes for model in self.beside) if device == RAM else 0
        return used.get(device, 0) + size <= max(0, self.limits[device] - beside)


def total(parts: Iterable[Bytes]) -> dict[str, int]:
    """The sum of bytes by device."""
    summed = Counter[str]()
    for part in parts:
        summed.update(part)
    return summed


def measure(expert: Any, size: int | None, device: str = RAM) -> dict[str, int]:
    """Bytes by device of an expert: of its `modules`; else its `nbytes`, or `size`, all on `device`."""
    if modules := getattr(expert, "modules", None):
        return bytes_by_device(*modules)
    nbytes: int | None = getattr(expert, "nbytes", None)
    return {device: (size or 0) if nbytes is None else nbytes}


logger = logging.getLogger(__name__)

MAX_BATCH = 8
"""Calls of one model that are computed as one batch at most."""

T = TypeVar("T")


class ModelPool:
    """Keeps experts loaded up to a limit for RAM, and one for each GPU.

    A model counts with the size of its files, unless the expert has one of the first two attributes:

    - `modules`: its torch modules, which are measured on the devices that hold them.
    - `nbytes` (int): bytes of its weights.
    - `batch(calls) -> list[raw]`: computes several calls at once, in their order. Small calls that wait in
      its queue are computed together, `MAX_BATCH` at most. If a batch raises, its calls run one by one.

    A load that calls `choose_device` gets the GPU with the most room, where idle models make way. A limit
    is exceeded by at most one model.
    """

    def __init__(self, limit_bytes: int, workers: int = 8) -> None:
        """`limit_bytes`: weights that may stay loaded in RAM. `workers`: threads that run models."""
        self.workers = workers
        self._models = ModelTable(limit_bytes)
        self._lock = fork_safe(threading.Lock())
        self._threads: WorkerThreads | None = None
        renew_in_child(self, ModelPool._renew)

    def _renew(self) -> None:
        """Start again in a forked child, which has neither our threads nor those of the models' libraries."""
        if any(entry.expert is not None or entry.running for entry in self._models.entries.values()):
            keep_forever(self._models)
        self._models, self._threads = ModelTable(self._models.limits[RAM], self._models.beside), None

    def leave_room(self, model: Any) -> None:
        """Count the `nbytes` of a model that is loaded beside the pool, as long as it exists."""
        with self._lock:
            self._models.beside.add(model)

    @property
    def used(self) -> dict[str, int]:
        """Bytes of the loaded weights by device: `{"cpu": …, "cuda:0": …}`."""
        with self._lock:
            return total(entry.placed for entry in self._models.entries.values() if entry.expert is not None)

    @property
    def loaded(self) -> dict[Key, int]:
        """The bytes of each model that is loaded now, least recently used first."""
        with self._lock:
            entries = self._models.entries.values()
            return {entry.key: sum(entry.placed.values()) for entry in entries if entry.expert is not None}

    async def run(self, key: Key, load: Callable[[], Expert], call: Call) -> Any:
        """Run a call on the model of that key, which is loaded first if needed.

        If memory is full, idle models are evicted and the step is tried once more, before an
        OutOfMemoryError. If the caller is cancelled, a queued call is removed and a running one is signalled
        (see `jobs.is_cancelled`).
        """
        job = Job(call)
        with self._lock:
            entry = self._models.entry(key, load, call.candidate.size)
            entry.jobs.append(job)
            self._schedule()
        try:
            return await asyncio.wrap_future(job.done)
        except asyncio.CancelledError:
            job.cancelled = True
            if not job.done.cancel():
                job.done.add_done_callback(lambda _: call.cleanup())
            with self._lock:
                self._schedule()
            raise

    async def close(self) -> None:
        """Reject queued calls, cancel running ones, free models and threads; the pool can be used again.

        Running calls get twice `cancellation.GRACE_S` (10 s) to stop; those that do not stop keep their
        thread and their model.
        """
        with self._lock:
            entries = list(self._models.entries.values())
            queued = [job for entry in entries for job in entry.jobs]
            for entry in entries:
                entry.jobs.clear()
            self._cancel_running()
            threads, self._threads = self._threads, None
        for job in queued:
            if job.start():
                job.fail(closed_error("not run"))
                job.end()
        if threads is not None:
            atexit.unregister(self._stop_at_exit)
            stuck = threads.stop(0.05)
            if stuck:  # not for idle threads: at the exit of an interpreter no thread can be started
                stuck = await run_in_daemon_thread(threads.stop, 2 * cancellation.GRACE_S)
            if stuck:
                logger.error("%d model calls do not end after close(); their threads are left", stuck)
        with self._lock:
            self._models.evict_idle()
        self._free()

    def _cancel_running(self) -> None:
        for entry in self._models.entries.values():
            for job in entry.running:
                job.cancelled = True

    def _stop_at_exit(self) -> None:
        """Stop the workers before the interpreter unloads the libraries that they use."""
        self._cancel_running()
        if self._threads is not None:
            self._threads.stop(2 * cancellation.GRACE_S)

    def _schedule(self) -> None:
        """Submit every job that may run now. The lock is held."""
        for entry in list(self._models.entries.values()):
            while entry.jobs and entry.jobs[0].cancelled:
                entry.jobs.popleft()
            is_waiting = bool(entry.jobs) and not entry.running
            if is_waiting and (entry.expert is not None or self._models.can_load(entry)):
                job = entry.jobs.popleft()
                entry.running = [job]
                if self._threads is None:
                    self._threads = WorkerThreads(self.workers)
                    atexit.register(self._stop_at_exit)
                self._threads.submit(partial(self._run_next, entry, job))
            if entry.expert is None and not (entry.jobs or entry.running):
                self._models.entries.pop(entry.key, None)

    def _run_next(self, entry: ModelEntry, first: Job) -> None:
        """Run a job in a worker thread, in one batch with queued ones if possible."""
        jobs = [first] if first.start() else []
        try:
            if jobs:
                with running(jobs):
                    expert = self._load(entry) if entry.expert is None else entry.expert
                jobs += self._take_batch(entry, expert, first)
                run_jobs(expert, jobs, self._with_room)
        except BaseException as error:
            with self._lock:
                if entry.expert is None:
                    entry.placed = {}
                    if not first.cancelled:  # else the load may have stopped with it, and is begun again
                        jobs += [job for job in entry.jobs if job.start()]
                        entry.jobs.clear()
            for job in jobs:
                job.fail(error)
        with self._lock:
            entry.running = []
            self._models.make_room({}, keep=entry)
            self._schedule()
        for job in jobs:
            job.end()
        self._free()

    def _take_batch(self, entry: ModelEntry, expert: Expert, first: Job) -> list[Job]:
        """Take the jobs from the queue that are computed in one batch with the first."""
        if getattr(expert, "batch", None) is None or not fits_in_batch(first.call):
            return []
        with self._lock:
            waiting = [job for job in entry.jobs if not job.cancelled]
            jobs = [job for job in waiting[: MAX_BATCH - 1] if fits_in_batch(job.call)]
            for job in jobs:
                entry.jobs.remove(job)
            entry.running += jobs
        return [job for job in jobs if job.start()]

    def _load(self, entry: ModelEntry) -> Expert:
        def choose(gpus: Bytes, size: int | None) -> str | None:
            with self._lock:
                chosen = self._models.choose_gpu(entry, gpus, size)
            self._free()
            return chosen

        self._free()
        with choosing(choose):
            expert = self._with_room(entry.load)
        placed = measure(expert, entry.size, next(iter(entry.placed), RAM))
        with self._lock:
            entry.placed, entry.size = placed, sum(placed.values())
            entry.expert = expert
            self._models.make_room({})
            self._schedule()
        return expert

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


class WorkerThreads:
    """At most `size` threads, started when needed. `submit` is called by one thread at a time.

    They are daemons, so that a process can end although one is stuck, which a `ThreadPoolExecutor` does not
    allow. They stay for further work, since libraries keep state by thread.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[[], None]) -> None:
        """Run the work when a thread is free. Its errors are logged."""
        self._queue.put(work)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._size:
            name = f"jarvis-model-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
            self._threads[-1].start()

    def stop(self, seconds: float) -> int:
        """End the threads after their work; returns how many still run after so many seconds."""
        for _ in self._threads:
            self._queue.put(None)
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return sum(thread.is_alive() for thread in self._threads)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except BaseException:
                logger.exception("a worker of the model pool failed")
            del work
            self._idle.release()
