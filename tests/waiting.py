"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_until(holds: Callable[[], Any]) -> Any:
    """What `holds` returns when that is true."""
    deadline = time.monotonic() + 60
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
