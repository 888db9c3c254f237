"""Requests and chats in a terminal: progress goes to stderr, the answer (or one Run as JSON) to stdout.

A run with a name is stored in a file of its own in the output directory, which one process at a time opens.
Both run their own event loop and close the agent at the end. On KeyboardInterrupt they print the finished
results before they raise it; what does not end soon then ends with the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import sys
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import typer
from markdown_it import MarkdownIt
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from jarvis_agent.backends.jobs import activities
from jarvis_agent.core.errors import ConfigError, JarvisError
from jarvis_agent.core.phrases import phrases
from jarvis_agent.core.request import Request
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.text import clean
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.interfaces.cli import INTERRUPTED
from jarvis_agent.interfaces.common.listen import check_extra, handling
from jarvis_agent.interfaces.common.locks import BusyError, FileThreads
from jarvis_agent.interfaces.common.progress import (
    RunProgress,
    answered,
    echo_json,
    format_event,
    make_console,
    plan_tree,
)
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.markdown import to_markdown
from jarvis_agent.response.report import describe_outcome

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from jarvis_agent.agent.agent import JarvisAgent
    from jarvis_agent.agent.memory import ThreadState

CLOSE_S = 0.5
"""Seconds that an agent may take to close after Ctrl-C."""

FOLDER = "threads"
"""The folder of the stored runs in the output directory."""

Decide = Callable[[dict[str, Any]], Any]
"""Takes the payload of the interrupt ("request", "plan"); returns True, False, or another plan."""

Show = Callable[[AsyncGenerator[Event, None]], Awaitable[Run]]
"""Shows the events of a run, and returns the Run."""

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


def one_shot(
    agent: JarvisAgent,
    request: dict[str, Any],
    *,
    as_json: bool,
    name: str | None = None,
    decide: Decide | None = None,
) -> bool:
    """Run one request, as `run_stored` with a name, and print it. Return whether it was answered."""
    show = partial(_show, request=request["input"], as_json=as_json)
    with _event_loop(agent) as runner:
        if name or decide:
            run = runner.run(run_stored(agent, request, show, name, decide))
        else:
            run = runner.run(show(agent.aevents(request)))
    if as_json:
        echo_json(run)
    return answered(run)


def plan_only(agent: JarvisAgent, request: dict[str, Any], *, as_json: bool) -> bool:
    """Plan one request and print the plan, as a tree or as JSON. Return whether it has tasks."""
    with _event_loop(agent) as runner:
        plan = runner.run(agent.aplan(request))
    if as_json:
        echo_json(plan)
    else:
        make_console().print(plan_tree(plan, phrases(request["input"])))
    return bool(plan.tasks)


def chat(agent: JarvisAgent) -> bool:
    """Run one request per line until the input ends. Return whether any was answered, or none was made."""
    thread: Any = {"configurable": {"thread_id": uuid.uuid4().hex}}
    outcomes: list[bool] = []
    model = agent.model_name or "no language model: requests are planned offline"
    typer.echo(f"jarvis ({clean(model)}). Ctrl-C stops a request, Ctrl-D ends the chat.", err=True)
    with _event_loop(agent) as runner:
        for line in _input_lines():
            if line in ("/quit", "/exit", "quit", "exit"):
                break
            if not line:
                continue
            run = Run()
            try:
                run = runner.run(_show(agent.aevents({"input": line}, thread), line, as_json=False))
            except KeyboardInterrupt:
                if not sys.stdin.isatty():
                    raise
            except JarvisError as error:
                typer.echo(clean(str(error)), err=True)
            outcomes.append(answered(run))
    return any(outcomes) or not outcomes


def _input_lines() -> Iterator[str]:
    """Lines of standard input, with a prompt in a terminal."""
    if not sys.stdin.isatty():
        yield from (line.strip() for line in sys.stdin)
        return
    with suppress(ImportError):
        import readline  # noqa: F401 - gives `input` its line editing
    while True:
        try:
            yield input("\n> ").strip()
        except KeyboardInterrupt:
            typer.echo("\nCtrl-D or /quit ends the chat.", err=True)
        except EOFError:
            return


@contextmanager
def _event_loop(agent: JarvisAgent) -> Iterator[asyncio.Runner]:
    """An event loop, and the agent closed at its end. After Ctrl-C the process waits `CLOSE_S` for both."""

    def leave() -> None:
        """End the process, whatever its threads do: native code cannot be interrupted."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # a closed pipe
                stream.flush()
        os._exit(INTERRUPTED)

    leaving = threading.Timer(CLOSE_S, leave)
    leaving.daemon = True
    try:
        with asyncio.Runner() as runner:
            try:
                yield runner
            except KeyboardInterrupt:
                leaving.start()
                raise
            finally:
                runner.run(agent.aclose())
    finally:
        leaving.cancel()


async def _show(events: AsyncGenerator[Event, None], request: str, *, as_json: bool) -> Run:
    """Print the progress and the answer of a run. Return the Run; it is empty if the plan needs approval."""
    progress = RunProgress(words=phrases(request))
    activities.set(progress.activities)
    try:
        with _displayed(progress, as_json) as show:
            async with aclosing(events):
                async for event in events:
                    progress.update(event)
                    show(event)
    except (asyncio.CancelledError, KeyboardInterrupt):
        if as_json:
            echo_json(progress.run)
        else:
            run = progress.run
            done = [result for result in run.results if result.status == "ok"]
            outcome = describe_outcome(run.plan, done, progress.words) if done else ()
            is_shown = run.answer and sys.stdout.isatty()
            if not is_shown and (finished := run.answer or "\n\n".join(filter(None, outcome))):
                typer.echo(relative_paths(clean(finished)))
            typer.echo("Interrupted.", err=True)
        raise
    return progress.done or Run()


@contextmanager
def _displayed(progress: RunProgress, as_json: bool) -> Iterator[Callable[[Event], None]]:
    """Show events: in a terminal a tree of the tasks, then the answer while it is written; else lines."""
    log, page = make_console(stderr=True), make_console()
    tree = Live(get_renderable=lambda: progress, console=log, refresh_per_second=8, redirect_stdout=False)
    answer = Live(get_renderable=lambda: _answer(progress.run), console=page)
    with ExitStack() as displayed:

        def show(event: Event) -> None:
            if not log.is_terminal and (line := format_event(event, progress.words)):
                log.print(Text(line), soft_wrap=True)
            if event.kind not in ("token", "done"):
                return
            if tree.is_started:
                tree.stop()
                log.print()
            if as_json or answer.is_started:
                return
            if page.is_terminal:
                displayed.enter_context(answer)
            elif event.kind == "done":
                typer.echo(relative_paths(clean(progress.run.answer)))

        if log.is_terminal:
            displayed.enter_context(tree)
        yield show
        tree.transient = progress.done is None  # the plan is shown with the question


def _answer(run: Run) -> Markdown:
    """The answer for a terminal, with its line breaks."""
    text = to_markdown(relative_paths(clean(run.answer)), run.results)
    page = Markdown("", hyperlinks=False)
    page.parsed = _PARSER.parse(text.replace("![", "[").replace("\n", "  \n"))
    return page


def relative_paths(text: str) -> str:
    """The text with the paths below the working directory relative to it."""
    return re.sub(rf"(?<![\w/.:~-]){re.escape(str(Path.cwd()) + os.sep)}", "", text)


async def run_stored(
    agent: JarvisAgent, request: dict[str, Any], show: Show, name: str | None, decide: Decide | None
) -> Run:
    """Run a request with a checkpointer, or continue its run if that is unfinished.

    Without a name, the run is kept in memory; without `decide`, plans run without approval. ConfigError:
    there is nothing to continue, the unfinished run has another request, or as `open_run`.
    """
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command

    thread: Any = {"configurable": {"thread_id": name or "unnamed"}}
    async with nullcontext(InMemorySaver()) if name is None else open_run(agent.settings, name) as saver:
        durable = agent.copy(checkpointer=saver, approve=decide is not None)
        state = await durable.aget_state(thread)
        start: Any = _start(durable, state, thread["configurable"]["thread_id"], request)
        try:
            while True:
                if start is None and state.waiting is not None:
                    if decide is None:
                        raise ConfigError(f"the plan of the run {name} waits for approval: add --approve")
                    # asyncio's handler of Ctrl-C would wait for the event loop, which is blocked.
                    with handling(signal.SIGINT, signal.default_int_handler):
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
async def open_run(settings: Settings, name: str) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """Yield the checkpointer for the run `name`, which is locked meanwhile.

    ConfigError: another process works on the run, or its file cannot be made, read or written.
    """
    check_extra("--resume", "durable", "langgraph.checkpoint.sqlite")
    threads = FileThreads(settings.output_dir / FOLDER)
    try:
        async with threads.open(name) as saver:
            yield saver
    except BusyError as error:
        why = f"another process works on the run {name}; wait for it, or choose another name"
        raise ConfigError(why) from error
    except sqlite3.Error as error:
        why = f"the run {name} cannot be read or written in {threads.folder} ({error})"
        raise ConfigError(f"{why}; choose another name or --out") from error


def ask_for_approval(proposal: dict[str, Any]) -> Any:
    """Show a plan on stderr and ask whether to run it: "yes", "no", or the edited plan as JSON."""
    plan, edit = Plan.load(json.dumps(proposal["plan"])), proposal.get("given")
    make_console(stderr=True).print(plan_tree(plan))
    if "problem" in proposal:
        typer.echo(f"That cannot be used: {clean(proposal['problem'])}", err=True)
    if not (isinstance(edit, str) and "\n" in edit):  # no earlier edit, but an answer
        edit = json.dumps(proposal["plan"], indent=2, ensure_ascii=False)
    try:
        while True:
            answer: str = typer.prompt("Run this plan? (y)es, (n)o, (e)dit", default="y", err=True).strip()
            if answer.lower() not in ("e", "edit"):
                return answer
            if (edited := click.edit(edit, extension=".json")) is not None:
                return edited
    except typer.Abort:
        raise KeyboardInterrupt from None
