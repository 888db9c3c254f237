"""Code of others: workers, backends, planners. It may do anything, even cancel itself.

    with foreign("the tool weather"):
        await worker.perform(selection, step)

A CancelledError means that whoever waits is to stop. Raised by such code while nobody stops it (a library
that gave up, a task that it cancelled and awaited), it would stop those who wait for the result instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from jarvis_agent.errors import ExpertError


@contextmanager
def foreign(what: str) -> Iterator[None]:
    """A block that runs code of others; `what` names it for people.

    Raises:
        ExpertError: it was cancelled, and not by those who wait for it.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ExpertError(f"{what} was cancelled from within") from error
