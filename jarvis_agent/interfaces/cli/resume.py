"""Runs that the command line keeps under a name, to be resumed, and plans that wait for a word.

    jarvis "Transcribe a.wav" --resume talk               # begin, or go on
    jarvis --resume talk                                  # go on
    jarvis "Transcribe b.wav" --resume talk --restart     # begin anew, whatever was unfinished

They outlive the process (see `jarvis_agent.interfaces.cli.run_file`).
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any

import typer

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.core.request import Request
from jarvis_agent.execution.run import Event
from jarvis_agent.interfaces.cli.run_file import opened, tidied
from jarvis_agent.planning.plan import Plan

Decide = Callable[[dict[str, Any]], Any]
"""Shows a plan, as `JarvisAgent.waiting` returns it, and returns True, False, or another plan."""


class ResumableAgent:
    """An agent whose runs are kept under a name; what the terminal uses of a JarvisAgent."""

    def __init__(
        self, agent: JarvisAgent, name: str | None, decide: Decide | None = None, *, restart: bool = False
    ) -> None:
        """Without a name, the run is kept in memory, and only as long as it takes.

        Args:
            decide: plans run only when it lets them.
            restart: an unfinished run of this name begins anew.
        """
        self._agent = agent
        self._name = name
        self._decide = decide
        self._restart = restart

    @property
    def model_name(self) -> str | None:
        """The language model, for people."""
        return self._agent.model_name

    async def aplan(self, request: Any, config: Any = None) -> Plan:
        """The plan only; nothing is stored."""
        return await self._agent.aplan(request, config)

    async def events(self, request: Any, config: Any = None) -> AsyncGenerator[Event, None]:
        """What happens in the run. An unfinished one of this name goes on.

        Raises:
            ConfigError: there is no request, and no run of this name; or its request is another one, or
                another process works on it.
            MissingExtraError: the checkpointer is not installed.
        """
        thread = _thread(self._name or "unnamed")
        async with self._durable() as durable:
            given = await self._to_do(durable, thread, request)
            try:
                async with aclosing(self._going_on(durable, thread, given)) as events:
                    async for event in events:
                        yield event
            except (Exception, asyncio.CancelledError, KeyboardInterrupt) as error:
                if not isinstance(error, ConfigError) and await durable.unfinished(thread) is not None:
                    self._tell_what_now()
                raise

    @asynccontextmanager
    async def _durable(self) -> AsyncIterator[JarvisAgent]:
        """The agent with the checkpointer of this run; what it needs no more when it is over is forgotten."""
        try:
            from langgraph.checkpoint.memory import InMemorySaver
        except ImportError as error:
            raise MissingExtraError("--resume or --approve", "durable") from error
        approve = self._decide is not None
        if self._name is None:
            yield self._agent.with_checkpointer(InMemorySaver(), approve=approve)
            return
        async with opened(self._agent.settings, self._name) as saver:
            durable = self._agent.with_checkpointer(saver, approve=approve)

            async def is_over(name: str) -> bool:
                return await durable.unfinished(_thread(name)) is None

            yield durable
            await tidied(saver, self._name, is_over)

    async def _to_do(self, durable: JarvisAgent, thread: Any, request: Any) -> Request | None:
        """The request to begin with; None to go on with what there is."""
        asked = await durable.unfinished(thread)
        new = Request.of(request) if request.get("input") else None
        if asked is None and new is None and self._restart:
            raise ConfigError(f"--restart wants a request, for no run {self._name} is unfinished")
        if asked is None and new is None and not (await durable.graph.aget_state(thread)).values:
            raise ConfigError(
                f"no run of the name {self._name} is kept in {self._agent.settings.output_dir}; "
                f'begin one with jarvis "…" --resume {self._name}, or name its directory with --out'
            )
        if asked is None:
            return new
        if self._restart:
            return new or asked
        if new is not None and new != asked:
            raise ConfigError(
                f'the run {self._name} is unfinished, and its request is another one ("{asked.text}"): '
                f"jarvis --resume {self._name} goes on with it; another name, or --restart, begins anew"
            )
        _tell(f"Going on with the unfinished run {self._name}.")
        return None

    async def _going_on(self, durable: JarvisAgent, thread: Any, given: Any) -> AsyncGenerator[Event, None]:
        """The run's events, to its end, through all decisions on its plan."""
        from langgraph.types import Command

        while True:
            shown = await durable.waiting(thread) if given is None else None
            if shown is not None:
                yield Event(kind="note", text="the plan waits for a decision")
                given = Command(resume=self._decision(shown))
            async with aclosing(durable.events(given, thread)) as events:
                async for event in events:
                    yield event
            if await durable.waiting(thread) is None:
                return
            given = None

    def _decision(self, shown: dict[str, Any]) -> Any:
        """What was decided. The event loop stands still meanwhile: there is nothing to do without it."""
        if self._decide is None:
            raise ConfigError(
                f"the plan of the run {self._name} waits for approval; resume it with --approve"
            )
        with _ctrl_c_at_once():
            return self._decide(shown)

    def _tell_what_now(self) -> None:
        if self._name is not None:
            again = f"jarvis --resume {self._name}"
            _tell(f"The run is kept: {again} goes on with it, {again} --restart begins it anew.")

    async def aclose(self) -> None:
        """Free the agent."""
        await self._agent.aclose()


def _tell(line: str) -> None:
    """Write a line on stderr as it is now: while the board is shown, that is above it, where it stays."""
    from jarvis_agent.core.text import clean

    sys.stderr.write(f"{clean(line)}\n")


def _thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


@contextmanager
def _ctrl_c_at_once() -> Iterator[None]:
    """A block in which Ctrl-C raises KeyboardInterrupt; asyncio would wait for what blocks its loop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if before is not None:  # None: a handler that Python did not set, and can not set again
            signal.signal(signal.SIGINT, before)


def ask_for_approval(shown: dict[str, Any]) -> Any:
    """Show a plan on stderr and ask whether to run it, in a terminal.

    Raises:
        ConfigError: there is nobody to ask.
        KeyboardInterrupt: Ctrl-C or Ctrl-D instead of an answer.
    """
    from jarvis_agent.core.text import clean
    from jarvis_agent.interfaces.cli.progress import make_console, plan_tree

    if not sys.stdin.isatty():
        raise ConfigError("--approve asks in a terminal, and the input is none; leave it out")
    plan = Plan.parse(json.dumps(shown["plan"]), tools=[task["task"] for task in shown["plan"]])
    make_console(stderr=True).print(plan_tree(plan))
    if "problem" in shown:
        typer.echo(f"That is no decision: {clean(shown['problem'])}", err=True)
    try:
        while True:
            answer: str = typer.prompt("Run this plan? (y)es, (n)o, (e)dit", default="y", err=True).strip()
            if answer.lower() not in ("e", "edit"):
                return answer
            if (edited := _edited(shown)) is not None:
                return edited
    except typer.Abort:
        raise KeyboardInterrupt from None


def _edited(shown: dict[str, Any]) -> str | None:
    """The plan as it was left in an editor, which opens with what was written there before; None if it was
    left as it is."""
    import click

    given = shown.get("given")
    rows = json.dumps(shown["plan"], indent=2, ensure_ascii=False)
    return click.edit(given if isinstance(given, str) and "\n" in given else rows, extension=".json")
