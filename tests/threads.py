"""The threads that a run has started, to check that it leaves none."""

import threading


def running_threads() -> set[threading.Thread]:
    """All threads but those that stay for the next call, and those that are about to end."""
    for thread in threading.enumerate():
        if thread.name == "jarvis-daemon":
            thread.join(1.0)
    kept = ("asyncio_", "jarvis-sync", "AnyIO")
    return {thread for thread in threading.enumerate() if not thread.name.startswith(kept)}
