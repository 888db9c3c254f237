"""Calls of the planner and the responder under a time limit. What fails becomes a note or the report.

plan, is_complete = await ask_planner(planner, "planning", inputs, config, executor.add, (300.0, "300 s"))
await write_answer(responder, inputs, config, pieces.append, (120.0, "120 s"))
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

from langchain_core.runnables import Runnable, RunnableConfig

from jarvis_agent.core.concurrency import StageTimeoutError, run_with_timeout
from jarvis_agent.core.errors import JarvisError, describe_error, format_traceback
from jarvis_agent.core.types import Task
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.chain import report_after_failure

logger = logging.getLogger(__name__)

AddTask = Callable[[Task], None]

Limit = tuple[float, str]
"""Seconds, and the limit in words: "300 s, JARVIS_RUN_TIMEOUT"."""


async def ask_planner(
    planner: Runnable[Any, Plan], what: str, inputs: Any, config: RunnableConfig, add: AddTask, limit: Limit
) -> tuple[Plan, bool]:
    """What a planner wrote, and whether it came to its end. A note says why not; `what` names the work.

    Each task is passed to `add` as it comes. It may run already, so it stays whatever becomes of the planner.
    """
    plan = Plan()

    def read(chunk: Any) -> None:
        nonlocal plan
        if not isinstance(chunk, Plan):
            raise TypeError(f"the planner returned no Plan: {chunk!r}")
        plan += chunk
        for task in chunk.tasks:
            add(task)

    try:
        await _stream(planner, inputs, config, read, limit[0], "the planner")
    except StageTimeoutError:
        note = f"{what} did not finish in its time ({limit[1]})"
    except JarvisError as error:
        note = f"{what} failed: {error}"
    except Exception as error:
        logger.error("%s failed: %s", what, format_traceback(error))
        note = f"{what} failed ({type(error).__name__}); see the log"
    else:
        return plan, True
    return plan + Plan(notes=[note]), False


async def write_answer(
    responder: Runnable[Any, str],
    inputs: Any,
    config: RunnableConfig,
    show: Callable[[str], None],
    limit: Limit,
) -> None:
    """Pass the answer to `show` in pieces. If its writer fails, the report completes it and says why."""
    begun = False

    def read(piece: Any) -> None:
        nonlocal begun
        if not isinstance(piece, str):
            raise TypeError(f"the responder returned no text: {piece!r}")
        begun = True
        show(piece)

    try:
        await _stream(responder, inputs, config, read, limit[0], "the responder")
    except Exception as error:
        is_late = isinstance(error, StageTimeoutError)
        why = f"there was no time left ({limit[1]})" if is_late else describe_error(error)
        logger.warning("the answer could not be written: %s: %s", why, format_traceback(error))
        for piece in report_after_failure(inputs, begun, why):
            show(piece)


async def _stream(
    stage: Runnable[Any, Any],
    inputs: Any,
    config: RunnableConfig,
    read: Callable[[Any], None],
    seconds: float,
    name: str,
) -> None:
    """Pass the chunks of a stage to `read` for at most `seconds`."""
    is_over = False

    async def stream() -> None:
        chunks = cast("AsyncGenerator[Any, None]", stage.astream(inputs, config))
        async with aclosing(chunks):
            async for chunk in chunks:
                if is_over:  # a stage that ignores its cancellation may still write
                    return
                read(chunk)
                await asyncio.sleep(0)  # lets the time limit pass if the stream never waits

    try:
        await run_with_timeout(seconds, stream(), name)
    finally:
        is_over = True
