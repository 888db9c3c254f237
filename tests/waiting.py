"""Waiting for what another thread or process does."""

import asyncio
import time
from collections.abc import Callable
from typing import Any


def wait_until(holds: Callable[[], Any]) -> Any:
    """What `holds` returns when that is true, which it is within a minute."""
    deadline = time.monotonic() + 60
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


async def until(holds: Callable[[], Any]) -> None:
    """As `wait_until`, while other coroutines go on."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - what others do sets no event
            await asyncio.sleep(0.02)
