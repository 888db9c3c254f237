"""Runs that the command line keeps under a name, to be resumed.

    jarvis "Transcribe a.wav" --resume talk      # begin, or go on
    jarvis --resume talk                         # go on

They are stored in runs.sqlite in the output directory, and outlive the process.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import typer

from jarvis_agent.agent import JarvisAgent
from jarvis_agent.errors import ConfigError, MissingExtraError
from jarvis_agent.plan import Plan
from jarvis_agent.run import Event

FILE = "runs.sqlite"

Decide = Callable[[dict[str, Any]], Any]
"""Shows a plan, as {request, plan, notes}, and returns True, False, or another plan."""


class KeptAgent:
    """An agent whose runs are kept under a name; what the terminal uses of a JarvisAgent."""

    def __init__(self, agent: JarvisAgent, name: str, decide: Decide | None = None) -> None:
        """With `decide`, plans run only when it lets them."""
        self._agent = agent
        self._name = name
        self._decide = decide

    @property
    def model_name(self) -> str | None:
        """The language model, for people."""
        return self._agent.model_name

    async def aplan(self, request: Any, config: Any = None) -> Plan:
        """The plan only; nothing is stored."""
        return await self._agent.aplan(request, config)

    async def events(self, request: Any, config: Any = None) -> AsyncGenerator[Event, None]:
        """What happens in the run. An unfinished one of this name goes on, whatever the request says.

        Raises:
            ConfigError: there is no request, and no run of this name.
            MissingExtraError: the checkpointer is not installed.
        """
        try:
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
            from langgraph.types import Command
        except ImportError as error:
            raise MissingExtraError("--resume", "durable") from error
        from jarvis_agent.graph import DurableAgent

        folder = Path(self._agent.settings.output_dir)
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        thread: Any = {"configurable": {"thread_id": self._name}}
        async with AsyncSqliteSaver.from_conn_string(str(folder / FILE)) as saver:
            durable = DurableAgent(self._agent, saver, approve=self._decide is not None)
            unfinished = (await durable.graph.aget_state(thread)).next
            given = request if request.get("input") and not unfinished else None
            if unfinished:
                typer.echo(f"Going on with the unfinished run {self._name}.", err=True)
            while True:
                shown = await durable.waiting(thread)
                if shown is not None:
                    given = Command(resume=await self._decision(shown))
                async with aclosing(durable.events(given, thread)) as events:
                    async for event in events:
                        yield event
                if await durable.waiting(thread) is None:
                    return

    async def _decision(self, shown: dict[str, Any]) -> Any:
        if self._decide is None:
            raise ConfigError(
                f"the plan of the run {self._name} waits for approval; resume it with --approve"
            )
        return await asyncio.to_thread(self._decide, shown)

    async def aclose(self) -> None:
        """Free the agent."""
        await self._agent.aclose()


def ask_for_approval(shown: dict[str, Any]) -> Any:
    """Show a plan on stderr and ask whether to run it, in a terminal.

    Raises:
        ConfigError: there is nobody to ask.
    """
    from jarvis_agent.console.show import make_console, plan_tree

    if not sys.stdin.isatty():
        raise ConfigError("--approve asks in a terminal, and the input is none; leave it out")
    plan = Plan.parse(json.dumps(shown["plan"]), tools=[task["task"] for task in shown["plan"]])
    make_console(stderr=True).print(plan_tree(plan))
    answer = typer.prompt("Run this plan? (y)es, (n)o, (e)dit", default="y", err=True).strip().lower()[:1]
    if answer == "e":
        import click

        edited = click.edit(json.dumps(shown["plan"], indent=2, ensure_ascii=False), extension=".json")
        return True if edited is None else edited
    return answer == "y"
