"""Requests and chats in a terminal: progress goes to stderr, the answer (or one Run as JSON) to stdout.

    succeeded = one_shot(agent, {"input": "What is in a.jpg?"}, as_json=False)
    succeeded = chat(agent)

Both run their own event loop and close the agent at the end. On KeyboardInterrupt they print the finished
results before they raise it; what does not end soon then ends with the process.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from markdown_it import MarkdownIt
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from jarvis_agent.backends.jobs import activities
from jarvis_agent.core.errors import JarvisError
from jarvis_agent.core.messages import phrases
from jarvis_agent.core.text import clean
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.interfaces.cli import INTERRUPTED
from jarvis_agent.interfaces.common.progress import (
    RunProgress,
    answered,
    echo_json,
    finished_work,
    format_event,
    make_console,
    plan_tree,
)
from jarvis_agent.response.markdown import to_markdown

if TYPE_CHECKING:
    from jarvis_agent.agent.agent import JarvisAgent
    from jarvis_agent.interfaces.cli.resume import Decide

CLOSE_S = 0.5
"""Seconds that an agent may take to close after Ctrl-C."""

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable("image")


def one_shot(
    agent: JarvisAgent,
    request: dict[str, Any],
    *,
    as_json: bool,
    name: str | None = None,
    decide: Decide | None = None,
) -> bool:
    """Run one request and print it. Return whether it was answered.

    Args:
        name: of the run, which is stored under it, or continued; None: nothing is stored.
        decide: asked before a plan runs; None: plans run without approval.
    """
    show = partial(_show, request=request["input"], as_json=as_json)
    with _event_loop(agent) as runner:
        if name or decide:
            from jarvis_agent.interfaces.cli.resume import run_stored

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
            if line:
                outcomes.append(answered(_chat_turn(runner, agent, line, thread)))
    return any(outcomes) or not outcomes


def _chat_turn(runner: asyncio.Runner, agent: JarvisAgent, line: str, thread: Any) -> Run:
    """Run one request of a chat. The Run is empty if it failed, or was interrupted in a terminal."""
    try:
        return runner.run(_show(agent.aevents({"input": line}, thread), line, as_json=False))
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
    except JarvisError as error:
        typer.echo(clean(str(error)), err=True)
    return Run()


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
    leaving = threading.Timer(CLOSE_S, _leave)
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


def _leave() -> None:
    """End the process, whatever its threads do: native code cannot be interrupted."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # a closed pipe
            stream.flush()
    os._exit(INTERRUPTED)


async def _show(events: AsyncGenerator[Event, None], request: str, *, as_json: bool) -> Run:
    """Print the progress and the answer of a run. Return the Run; it is empty if the plan needs approval."""
    progress, run = RunProgress(words=phrases(request)), Run()
    activities.set(progress.activities)
    try:
        with _displayed(progress, as_json) as show:
            async with aclosing(events):
                async for event in events:
                    progress.update(event)
                    run = event.run or run
                    show(event)
    except (asyncio.CancelledError, KeyboardInterrupt):
        _print_interrupted(progress.run, as_json=as_json)
        raise
    return run


@contextmanager
def _displayed(progress: RunProgress, as_json: bool) -> Iterator[Callable[[Event], None]]:
    """Show events: in a terminal a tree of the tasks, then the answer while it is written; else lines."""
    log, page, run = make_console(stderr=True), make_console(), Run()
    tree = Live(get_renderable=lambda: progress, console=log, refresh_per_second=8, redirect_stdout=False)
    answer = Live(get_renderable=lambda: _answer(run if run.answer else progress.run), console=page)
    with ExitStack() as displayed:

        def show(event: Event) -> None:
            nonlocal run
            run = event.run or run
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
                typer.echo(relative_paths(clean(run.answer)))

        if log.is_terminal:
            displayed.enter_context(tree)
        yield show
        tree.transient = run == Run()  # the plan is shown with the question


def _answer(run: Run) -> Markdown:
    """The answer for a terminal, with its line breaks."""
    text = to_markdown(relative_paths(clean(run.answer)), run.results)
    page = Markdown("", hyperlinks=False)
    page.parsed = _PARSER.parse(text.replace("![", "[").replace("\n", "  \n"))
    return page


def relative_paths(text: str) -> str:
    """The text with the paths below the working directory relative to it."""
    return re.sub(rf"(?<![\w/.:~-]){re.escape(str(Path.cwd()) + os.sep)}", "", text)


def _print_interrupted(run: Run, *, as_json: bool) -> None:
    if as_json:
        echo_json(run)
        return
    is_shown = run.answer and sys.stdout.isatty()
    if not is_shown and (finished := clean(run.answer) or finished_work(run)):
        typer.echo(relative_paths(finished))
    typer.echo("Interrupted.", err=True)
