"""The models of a pool, and how many bytes of weights they may use on each device.

    table = ModelTable(limit_bytes=8_000_000_000)
    entry = table.entry(("transformers", "org/model"), load, size=500_000_000)
    table.can_load(entry)      # evicts idle models to make room, those first that are needed last

RAM is the device "cpu". A GPU is added, with its own limit, when the first model is placed on one.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from sys import maxsize
from typing import Any

from jarvis_agent.backends.base import Expert
from jarvis_agent.backends.devices import bytes_by_device
from jarvis_agent.backends.jobs import Reservation

RAM = "cpu"

Key = tuple[str, ...]
Bytes = Mapping[str, int]
"""Bytes of weights by device."""


@dataclass(eq=False, slots=True)
class ModelEntry:
    """A model of the pool: its queue of jobs, its reservations, and the expert once it is loaded.

    `running` are the jobs of the worker that uses or loads it, or the reservation for which it is loaded.
    `placed` are its bytes by device; while it is being loaded, the bytes reserved for it on a GPU.
    """

    key: Key
    load: Callable[[], Expert]
    size: int | None
    jobs: deque[Any] = field(default_factory=deque)
    expert: Expert | None = None
    placed: Bytes = field(default_factory=dict)
    running: list[Any] = field(default_factory=list)
    reserved: list[Reservation] = field(default_factory=list)

    @property
    def loading(self) -> bool:
        """Whether a worker is loading it."""
        return self.expert is None and bool(self.running)

    @property
    def idle(self) -> bool:
        """Whether it is loaded and unused, so that it may be evicted."""
        return self.expert is not None and not self.running and not self.jobs

    @property
    def prefetching(self) -> bool:
        """Whether a worker is loading it for a reservation."""
        return any(isinstance(one, Reservation) for one in self.running)

    @property
    def wanted(self) -> bool:
        """Whether it has a reservation, or a caller waits for it."""
        return bool(self.reserved) or any(not job.cancelled for job in self.jobs)

    @property
    def needed(self) -> float:
        """When it is needed: -1 is now, then by the depth of its reservations; infinity if it has none."""
        if self.jobs or (self.running and not self.prefetching):
            return -1
        return min((one.depth for one in self.reserved), default=inf)


class ModelTable:
    """Models by key, least recently used first. Not thread-safe: the pool holds its lock."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes`: weights that may stay loaded in RAM."""
        self.limits = {RAM: limit_bytes}
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
        """Whether a model may be loaded now; idle models that are needed later are evicted to make room.

        A model is loaded beside others only if it is known to fit. Otherwise it waits until no other is being
        loaded, so that a limit is exceeded by at most one model. One that is only reserved must fit.
        """
        size = entry.size
        loading = [other for other in self.entries.values() if other.loading]
        expected = sum(other.size or 0 for other in loading)
        wanted = {RAM: expected + (size or 0)}
        if entry.needed >= 0 and (not size or self._over(total([self._kept(entry.needed), wanted]))):
            return False
        self.make_room(wanted)
        used = self.used()
        if self._over(used):
            return False
        if not loading:
            return True
        if size is None or any(other.size is None for other in loading):
            return False
        unplaced = sum(other.size or 0 for other in loading if not other.placed)
        gpus = [device for device in self.limits if device != RAM]
        fits_a_gpu = not gpus or any(self._fits(gpu, used, unplaced + size) for gpu in gpus)
        return fits_a_gpu and self._fits(RAM, used, expected + size)

    def choose_gpu(self, entry: ModelEntry, limits: Bytes, size: int | None) -> str | None:
        """Reserve the GPU with the most room for `size` bytes (None: unknown); idle models make way.

        Returns None if the model is larger than every limit, or is only reserved and has no room yet.
        """
        self.limits.update(limits)
        entry.placed = {}
        kept = self._kept(entry.needed)
        able = [gpu for gpu in limits if self._fits(gpu, kept if entry.needed >= 0 else {}, size or 0)]
        for taken in (self.used(), self._kept(maxsize), kept):  # rather evict what no task needs
            if fits := [gpu for gpu in able if self._fits(gpu, taken, size or 0)]:
                break
        chosen = max(fits or able, key=lambda gpu: self.limits[gpu] - taken.get(gpu, 0), default=None)
        if chosen is not None:
            self.make_room({chosen: size or 0})
            entry.placed = {chosen: size or 0}
        return chosen

    def make_room(self, wanted: Bytes, keep: ModelEntry | None = None) -> None:
        """Evict idle models until `wanted` bytes fit on every device.

        First go those without a reservation, least recently used first, then those that are needed last.
        """
        for entry in sorted(self.entries.values(), key=lambda entry: -entry.needed):
            crowded = self._over(total([self.used(), wanted]))
            if not crowded:
                return
            if entry.idle and entry is not keep and any(entry.placed.get(device) for device in crowded):
                self.evict(entry)

    def evict_idle(self) -> None:
        """Evict every idle model, and give up every reservation."""
        for entry in list(self.entries.values()):
            entry.reserved.clear()
            if entry.idle:
                self.evict(entry)

    def evict(self, entry: ModelEntry) -> None:
        """Unload a model. It stays in the table as long as it is reserved."""
        self.evicted.append(entry.expert)
        entry.expert, entry.placed = None, {}
        if not entry.reserved:
            del self.entries[entry.key]

    def _kept(self, needed: float) -> dict[str, int]:
        """Bytes by device of the models that do not make way for one that is needed then."""
        entries = self.entries.values()
        return total(entry.placed for entry in entries if not (entry.idle and entry.needed > needed))

    def _over(self, used: Bytes) -> list[str]:
        """The devices whose limit is exceeded."""
        return [device for device, limit in self.limits.items() if used.get(device, 0) > limit]

    def _fits(self, device: str, used: Bytes, size: int) -> bool:
        return used.get(device, 0) + size <= self.limits[device]


def total(parts: Iterable[Bytes]) -> dict[str, int]:
    """The sum of bytes by device."""
    summed: dict[str, int] = {}
    for part in parts:
        for device, count in part.items():
            summed[device] = summed.get(device, 0) + count
    return summed


def measure(expert: Any, size: int | None, device: str = RAM) -> dict[str, int]:
    """Bytes by device of an expert: of its `modules`, else its `nbytes`, else `size`, that of its files.

    `device` is where a load was placed; it holds what is not counted by modules.
    """
    if modules := getattr(expert, "modules", None):
        return bytes_by_device(*modules)
    nbytes: int | None = getattr(expert, "nbytes", None)
    return {device: (size or 0) if nbytes is None else nbytes}
