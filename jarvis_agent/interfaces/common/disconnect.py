"""Work for a client ends when the client goes: `await unless_disconnected(request, work)`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

_T = TypeVar("_T")


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """Await `work`, and cancel it when the client goes: HTTPException 499. The body has been read.

    It is awaited in this task, in which FastAPI's handlers enter contexts that end after the response.
    """
    connection = asyncio.timeout(None)

    async def expire() -> None:
        await request.receive()
        connection.reschedule(0)

    try:
        async with connection:
            leaving = asyncio.create_task(expire())
            try:
                return await work
            finally:
                leaving.cancel()
    except TimeoutError:
        if connection.expired():
            raise HTTPException(499, "the client has disconnected") from None
        raise
