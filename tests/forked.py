"""A forked child, as those of gunicorn, Celery and multiprocessing."""

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a forked child. Raises TimeoutError if that does not end within 20 s."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=lambda: there.send(work()))
    child.start()
    try:
        if not here.poll(20):
            raise TimeoutError("the forked child does not answer")
        return here.recv()
    finally:
        child.kill()
        child.join()
