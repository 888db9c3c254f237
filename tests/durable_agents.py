"""Shared by tests of durable runs: an agent that counts its calls, and a run that is cancelled midway.

agent = counting_agent(tmp_path, calls)                 # its plan: count "one"
"""

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
    """A tool that records its calls. The first call with "one!" sets `stuck`, if given, and hangs."""

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
    """An agent with the plan in `rows`, by default to count "one"."""
    llm = ScriptedLLM({"plan": plan(*(rows or [ONE])), "respond": "Done: one, two.", "chat": "Hello!"})
    return JarvisAgent(llm, tools=counting(calls, stuck), settings=Settings(output_dir=folder / "out"))


async def stop_when(stuck: asyncio.Event, durable: JarvisAgent, request: Any) -> None:
    """Start a run and cancel it when `stuck` is set."""
    running = asyncio.create_task(durable.ainvoke(request, THREAD))
    await stuck.wait()
    running.cancel()
    await asyncio.wait([running])
