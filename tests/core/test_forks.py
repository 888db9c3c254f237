"""Locks and models of a forked child."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from forked import in_child, needs_fork
from processes import run_python

from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.redaction import redact, register_secret
from jarvis_agent.selection.store import SelectionStore

pytestmark = needs_fork

EXIT = """
import ctypes, os, sys, time
from jarvis_agent.core.forks import keep_forever

class Model:
    def __del__(self):
        time.sleep(60)  # the library waits for its threads

model = Model()
if os.fork() == 0:
    keep_forever(model)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
os._exit(0)
"""


def test_a_lock_that_another_thread_holds_is_free_in_the_child() -> None:
    lock, held, end = fork_safe(threading.Lock()), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            end.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    try:
        assert in_child(lambda: lock.acquire(timeout=5)) is True
        assert lock.acquire(timeout=0.01) is False  # here it is still held
    finally:
        end.set()
        holder.join()


def test_a_fork_waits_until_no_thread_is_in_the_store_of_selection(tmp_path: Path) -> None:
    """SQLite has locks of its own, which would stay closed in the child."""
    store, inside, left = SelectionStore(tmp_path / "selection.sqlite"), threading.Event(), threading.Event()

    class SlowDigests(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            inside.set()
            time.sleep(0.3)
            left.set()
            yield b"digest"

    reader = threading.Thread(target=lambda: store.vectors(SlowDigests()))
    reader.start()
    assert inside.wait(60)

    assert in_child(lambda: (left.is_set(), store.experience("object-detection"))) == (True, {})
    reader.join()
    assert store.rate("org/detr", "object-detection", good=True)  # the parent's lock is free again


def test_secrets_are_registered_and_masked_in_the_child() -> None:
    def work() -> str:
        register_secret("secret-of-the-child")
        return redact("it is secret-of-the-child")

    assert in_child(work) == "it is (key)"


def test_models_of_the_parent_do_not_delay_the_end_of_the_child() -> None:
    assert run_python(EXIT, timeout=40) == "3\n"
