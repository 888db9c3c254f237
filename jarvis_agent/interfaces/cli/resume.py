"""`--resume NAME` and `--approve`: runs that outlive the process, and plans that wait for approval.

    jarvis "Transcribe a.wav" --resume talk               # start, or continue
    jarvis --resume talk                                  # continue

Each run is stored in a file of its own in the output directory, which one process at a time opens.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import typer
from langgraph.types import Command

from jarvis_agent.agent.memory import ThreadState
from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.core.request import Request
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import clean
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.interfaces.common.locks import BusyError, FileThreads
from jarvis_agent.interfaces.common.progress import make_console, plan_tree
from jarvis_agent.media.run_directory import RunDirectory
from jarvis_agent.planning.plan import Plan

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from jarvis_agent.agent.agent import JarvisAgent

FOLDER = "threads"
"""The folder of the stored runs in the output directory."""

Decide = Callable[[dict[str, Any]], Any]
"""Takes the payload of the interrupt ("request", "plan"); returns True, False, or another plan."""

Show = Callable[[AsyncGenerator[Event, None]], Awaitable[Run]]
"""Shows the events of a run, and returns the Run."""


async def run_stored(
    agent: JarvisAgent, request: dict[str, Any], show: Show, name: str | None, decide: Decide | None
) -> Run:
    """Run a request with a checkpointer, or continue its run if that is unfinished.

    Args:
        name: of the stored run; None: it is kept in memory.
        decide: asked before a plan runs; None: plans run without approval.

    Raises:
        ConfigError: there is nothing to continue, the unfinished run has another request, or another
            process works on it.
        MissingExtraError: the run has a name, and the checkpointer for SQLite is not installed.
    """
    thread: Any = {"configurable": {"thread_id": name or "unnamed"}}
    async with open_run(agent.settings, name) as saver:
        durable = agent.copy(checkpointer=saver, approve=decide is not None)
        state = await durable.aget_state(thread)
        start: Any = _start(durable, state, thread["configurable"]["thread_id"], request)
        try:
            while True:
                if start is None and state.waiting is not None:
                    if decide is None:
                        raise ConfigError(f"the plan of the run {name} waits for approval: add --approve")
                    with _immediate_ctrl_c():  # the event loop has nothing else to do
                        start = Command(resume=decide(state.waiting))
                run = await show(durable.aevents(start, thread))
                start, state = None, await durable.aget_state(thread)
                if state.waiting is None:
                    return run
        except (Exception, asyncio.CancelledError, KeyboardInterrupt) as error:
            is_named = name is not None and not isinstance(error, ConfigError)
            if is_named and (await durable.aget_state(thread)).unfinished is not None:
                again = f"jarvis --resume {name}" + (" --approve" if decide else "")
                typer.echo(f"The run is stored: {clean(again)} continues it.", err=True)
            raise


def _start(durable: JarvisAgent, state: ThreadState, name: str, request: dict[str, Any]) -> Request | None:
    """The request to start with; None continues the stored run, or returns it."""
    new = Request.of(request) if request.get("input") else None
    if state.unfinished is None:
        if new is None and not state.turns:
            raise ConfigError(
                f"there is no run named {name} in {durable.settings.output_dir}; start one "
                f'with jarvis "…" --resume {name}, or give its directory with --out'
            )
        return new
    if new is not None and new != state.unfinished:
        raise ConfigError(
            f'the unfinished run {name} has another request ("{state.unfinished.text}"): continue it with '
            f"jarvis --resume {name}, or choose another name"
        )
    typer.echo(f"Continuing the unfinished run {clean(name)}.", err=True)
    return None


@asynccontextmanager
async def open_run(settings: Settings, name: str | None) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Yield the checkpointer for the run `name`, which is locked meanwhile; one in memory without a name.

    Raises:
        ConfigError: another process works on the run, or its file cannot be read or written.
        InputError: the output directory cannot be made.
        MissingExtraError: the checkpointer for SQLite is not installed.
    """
    if name is None:
        from langgraph.checkpoint.memory import InMemorySaver

        yield InMemorySaver()
        return
    try:
        import langgraph.checkpoint.sqlite.aio  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("--resume", "durable") from error
    await asyncio.to_thread(RunDirectory(settings, settings.output_dir).prepare)
    threads = FileThreads(settings.output_dir / FOLDER)
    try:
        async with threads.open(name) as saver:
            yield saver
    except BusyError as error:
        raise ConfigError(
            f"another process works on the run {name}; wait for it, or choose another name"
        ) from error
    except sqlite3.Error as error:
        raise ConfigError(
            f"the run {name} cannot be read or written in {threads.folder} ({error}); choose another name "
            "or --out"
        ) from error


@contextmanager
def _immediate_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt at once; asyncio's handler waits for the blocked event loop."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def ask_for_approval(shown: dict[str, Any]) -> Any:
    """Show a plan on stderr and ask whether to run it: "yes", "no", or the edited plan as JSON.

    Raises:
        KeyboardInterrupt: Ctrl-C or Ctrl-D instead of an answer.
    """
    plan = Plan.load(json.dumps(shown["plan"]))
    make_console(stderr=True).print(plan_tree(plan))
    if "problem" in shown:
        typer.echo(f"That cannot be used: {clean(shown['problem'])}", err=True)
    try:
        while True:
            answer: str = typer.prompt("Run this plan? (y)es, (n)o, (e)dit", default="y", err=True).strip()
            if answer.lower() not in ("e", "edit"):
                return answer
            if (edited := _edit(shown)) is not None:
                return edited
    except typer.Abort:
        raise KeyboardInterrupt from None


def _edit(shown: dict[str, Any]) -> str | None:
    """Open the plan, or the previous edit, in an editor. Return None if it was not changed."""
    import click

    previous = shown.get("given")
    rows = json.dumps(shown["plan"], indent=2, ensure_ascii=False)
    return click.edit(previous if isinstance(previous, str) and "\n" in previous else rows, extension=".json")
