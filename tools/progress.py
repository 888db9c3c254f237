"""Progress of a tool that is called alone, for LangGraph's custom streams and LangChain's custom events.

for piece in create_agent(llm, hf_tools()).stream(request, stream_mode="custom"):
    print(piece["text"])        # "text-to-image: org/model: 1.2 of 3.4 GB downloaded"
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NotRequired, cast

from langchain_core.callbacks import adispatch_custom_event
from langchain_core.runnables import RunnableConfig
from typing_extensions import TypedDict

from jarvis_agent.backends.jobs import Activity, activities
from jarvis_agent.core.concurrency import cancel_and_wait

if TYPE_CHECKING:
    from langchain.tools import ToolRuntime

EVENT = "jarvis_progress"
"""Name of the custom events, as in `astream_events`."""

_INTERVAL_S = 0.5


class ToolProgress(TypedDict):
    """What a tool does now. `done` and `total`: bytes of a download, or tokens of a text."""

    tool: str
    tool_call_id: str | None
    state: str
    """selecting, running, downloading, loading or writing."""
    text: str
    model: NotRequired[str]
    done: NotRequired[int]
    total: NotRequired[int]


Report = Callable[..., Awaitable[None]]
"""Called with a state, and optionally a text and the further fields of ToolProgress."""


@asynccontextmanager
async def reporting(tool: str, runtime: ToolRuntime | None, config: RunnableConfig) -> AsyncIterator[Report]:
    """Report on a call: within the block, also what is done on its models, as often as that changes."""
    call = getattr(runtime, "tool_call_id", None)
    write = getattr(runtime, "stream_writer", None) or (lambda piece: None)

    async def report(state: str, text: str = "", **more: Any) -> None:
        said = f"{tool}: {text or state}"
        known = {"tool": tool, "tool_call_id": call, "state": state, "text": said}
        piece = cast("ToolProgress", {**known, **more})
        write(piece)
        await adispatch_custom_event(EVENT, piece, config=config)

    shown: list[Activity] = []
    token = activities.set(shown)
    watching = asyncio.create_task(_watch(shown, report))
    try:
        yield report
    finally:
        activities.reset(token)
        await cancel_and_wait([watching])


async def _watch(shown: list[Activity], report: Report) -> None:
    """Report on each of the activities whenever it has changed."""
    last: dict[int, str] = {}
    while True:
        for one in list(shown):
            if last.get(id(one)) != str(one):
                last[id(one)] = str(one)
                counts = {key: getattr(one, key) for key in ("done", "total") if hasattr(one, key)}
                await report(one.state, str(one), model=one.model, **counts)
        await asyncio.sleep(_INTERVAL_S)
