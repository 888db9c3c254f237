"""What tests of durable runs share: an agent whose tasks count, and a run that stops in the middle.

agent = counting_agent(tmp_path, calls)                 # its plan: count one, then count what came of it
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from langchain_core.tools import BaseTool, tool
from small_agents import Row, plan

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.testing import ScriptedLLM

THREAD: Any = {"configurable": {"thread_id": "a"}}
ONE: Row = ("count", [], {"text": "one"})
ONE_BY_ONE: list[Row] = [ONE, ("count", [0], {"text": "<resource>-0"})]


def counting(calls: list[str], stuck: asyncio.Event | None = None) -> list[BaseTool]:
    """A tool that notes its calls; while `stuck` is set, the call for "one!" says so and never ends."""

    @tool
    async def count(text: str) -> str:
        """Count."""
        calls.append(text)
        if stuck is not None and text == "one!" and not stuck.is_set():
            stuck.set()
            await asyncio.Event().wait()
        return f"{text}!"

    return [count]


def counting_agent(
    folder: Path, calls: list[str], *rows: Row, stuck: asyncio.Event | None = None
) -> JarvisAgent:
    """An agent that counts "one", or does what the rows say."""
    llm = ScriptedLLM({"plan": plan(*(rows or [ONE])), "respond": "Done.", "chat": "Hello!"})
    return JarvisAgent(llm, tools=counting(calls, stuck), settings=Settings(output_dir=folder / "out"))


async def stop_when(stuck: asyncio.Event, durable: JarvisAgent, request: Any) -> None:
    """Begin a run and cancel it as soon as `stuck` is set."""
    running = asyncio.create_task(durable.ainvoke(request, THREAD))
    await stuck.wait()
    running.cancel()
    await asyncio.wait([running])
