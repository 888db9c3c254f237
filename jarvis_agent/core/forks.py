"""Locks and threads in a forked child (gunicorn's preload, Celery's prefork, multiprocessing).

    lock = fork_safe(threading.Lock())       # free in the child, whichever thread holds it in the parent
    lock = kept_in_forks(threading.Lock())   # a fork waits until no thread holds it
    renew_in_child(pool, ModelPool._renew)   # forgets the parent's threads

Only the thread that forks exists in the child. What others hold there is never released.
"""

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_renewals: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def renew_in_child(owner: T, renew: Callable[[T], None]) -> T:
    """Return the owner, on which `renew(owner)` is called in each forked child while it exists."""
    _renewals[owner] = renew
    return owner


def fork_safe(lock: T) -> T:
    """Return the lock, which is free in each forked child."""
    return renew_in_child(lock, lambda held: held._at_fork_reinit())  # type: ignore[attr-defined]


def kept_in_forks(lock: threading.Lock) -> threading.Lock:
    """Return the lock, for which a fork waits.

    It guards calls into a library with locks of its own, which would stay closed in the child: SQLite.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock


class cached_property(functools.cached_property[T]):  # noqa: N801 - as Python's
    """As Python's, whose lock (until 3.12: one for all objects of a class) is free in each forked child."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        super().__init__(compute)
        if lock := getattr(self, "lock", None):
            fork_safe(lock)


def keep_forever(value: object) -> None:
    """Never free models of the parent in the child: their libraries would wait for threads that it lacks.

    For the same reason, the child's exit leaves out what the libraries do there; Python's own part is done.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # it calls `_exit` with the status, before what was registered earlier
        libc.on_exit(libc._exit, None)


def _renew_all() -> None:
    for owner, renew in list(_renewals.items()):
        renew(owner)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
