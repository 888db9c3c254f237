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
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import typer
from rich.console import Console
from rich.live import Live
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
    unmentioned_files,
)

if TYPE_CHECKING:
    from jarvis_agent.agent.agent import JarvisAgent
    from jarvis_agent.interfaces.cli.resume import ResumableAgent

    Agent: TypeAlias = JarvisAgent | ResumableAgent


_LINE_END = re.compile(r"\n")
_BLOCK_END = re.compile(r"\n\s*\n(?=[^\s*+\-\d>|])")
"""Between blocks of Markdown that can be rendered one by one; a list with blank lines is one block."""

CHAT_HELP = """\
Write a request and press Enter. A request may refer to earlier ones and to their results.
/help  this text      /quit  end the chat (or Ctrl-D)
Ctrl-C stops the running request."""

CLOSE_S = 0.5
"""Seconds that an agent may take to close after Ctrl-C."""

_QUIT = {"/quit", "/exit", "quit", "exit"}


class AnswerPrinter:
    """Prints an answer while its pieces come, with the paths below the working directory relative.

    A terminal gets it wrapped, a pipe line by line as it is. `close` prints what `feed` held back.

    Args:
        console: of standard output.
        is_markdown: the answer is a language model's; a terminal shows it block by block.
    """

    def __init__(self, console: Console, *, is_markdown: bool) -> None:
        self._console = console
        self._is_markdown = is_markdown and console.is_terminal
        self._pending = ""
        self._has_blocks = False

    def feed(self, piece: str) -> None:
        """Print what the piece completes."""
        self._pending += piece
        ends = (_BLOCK_END if self._is_markdown else _LINE_END).finditer(self._pending)
        complete = [end for end in ends if self._pending.count("```", 0, end.start()) % 2 == 0]
        if complete:
            self._print(self._pending[: complete[-1].start()])
            self._pending = self._pending[complete[-1].end() :]

    def close(self) -> None:
        """Print the rest."""
        if self._pending:
            self._print(self._pending)
        self._pending = ""

    def _print(self, text: str) -> None:
        text = relative_paths(clean(text))
        if self._is_markdown:
            from rich.markdown import Markdown

            blank = "\n" if self._has_blocks else ""
            # As a link, an image keeps its path.
            self._console.print(blank, Markdown(text.replace("![", "["), hyperlinks=False), sep="", end="")
            self._has_blocks = True
            return
        for line in text.split("\n"):
            rows = _wrapped(line, self._console.width) if self._console.is_terminal else [line]
            for row in rows:
                self._console.print(row, soft_wrap=True)


def relative_paths(text: str) -> str:
    """The text with the paths below the working directory relative to it."""
    return re.sub(rf"(?<![\w/.:~-]){re.escape(str(Path.cwd()) + os.sep)}", "", text)


def _wrapped(line: str, width: int) -> list[str]:
    """Rows of at most `width` columns, indented like the text of a list's item; a path stays whole."""
    indent = re.match(r"\s*(?:(?:[-*•]|\d+[.)])\s+)?", line)
    hanging = " " * len(indent[0]) if indent else ""
    rows = textwrap.wrap(
        line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    return rows or [""]


def one_shot(agent: Agent, request: dict[str, Any], *, as_json: bool) -> bool:
    """Run one request and print it. Return whether anything succeeded."""
    with _event_loop(agent) as runner:
        run = runner.run(_run(agent, request, None, as_json=as_json))
    return answered(request["input"], run)


def plan_only(agent: Agent, request: dict[str, Any], *, as_json: bool) -> bool:
    """Plan one request and print the plan, as a tree or as JSON. Return whether it has tasks."""
    with _event_loop(agent) as runner:
        plan = runner.run(agent.aplan(request))
    if as_json:
        echo_json(plan)
    else:
        make_console().print(plan_tree(plan, phrases(request["input"])))
    return bool(plan.tasks)


@contextmanager
def _event_loop(agent: Agent) -> Iterator[asyncio.Runner]:
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


async def _run(agent: Agent, request: dict[str, Any], config: Any, *, as_json: bool) -> Run:
    """Run one request, print its progress and its outcome, and return the Run."""
    progress, run = RunProgress(words=phrases(request["input"])), Run()
    activities.set(progress.activities)
    printer = AnswerPrinter(make_console(), is_markdown=agent.model_name is not None)
    events = agent.events(request, config)
    try:
        async with aclosing(events):
            with _displayed(progress) as show:
                async for event in events:
                    progress.update(event)
                    show(event)
                    if event.kind == "token" and not as_json:
                        printer.feed(event.text)
                    run = event.run or run
    except (asyncio.CancelledError, KeyboardInterrupt):
        printer.close()
        _print_interrupted(progress.run, as_json=as_json)
        raise
    if as_json:
        echo_json(run)
    else:
        _print_rest(run, progress.answer, printer)
    return run


@contextmanager
def _displayed(progress: RunProgress) -> Iterator[Callable[[Event], None]]:
    """Show the progress on stderr: redrawn in a terminal until the answer begins, else one line per event."""
    console = make_console(stderr=True)
    if not console.is_terminal:

        def log(event: Event) -> None:
            if line := format_event(event, progress.words):
                console.print(Text(line), soft_wrap=True)

        yield log
        return

    with Live(
        get_renderable=lambda: progress, console=console, refresh_per_second=8, redirect_stdout=False
    ) as live:

        def pause(event: Event) -> None:
            """Stop redrawing while the answer is printed, or a question after a note."""
            if event.kind == "token" and live.is_started:
                live.stop()
                console.print()
            elif event.kind in ("token", "note"):
                live.stop()
            elif event.kind != "done":
                live.start()

        yield pause


def _print_rest(run: Run, streamed: str, printer: AnswerPrinter) -> None:
    """Print the part of the answer that was not streamed, and the files that it does not name."""
    printer.feed(run.answer.removeprefix(streamed) if run.answer.startswith(streamed) else f"\n{run.answer}")
    printer.close()
    for path in unmentioned_files(run):
        typer.echo(f"file: {relative_paths(clean(path))}")


def _print_interrupted(run: Run, *, as_json: bool) -> None:
    if as_json:
        echo_json(run)
        return
    if not run.answer and (finished := finished_work(run)):
        typer.echo(relative_paths(finished))
    typer.echo("Interrupted.", err=True)


def chat(agent: Agent) -> bool:
    """Run one request per line until the input ends. Return whether any succeeded, or none was made."""
    thread = {"configurable": {"thread_id": uuid.uuid4().hex}}
    outcomes: list[bool] = []
    model = agent.model_name or "no language model: requests are planned offline"
    typer.echo(f"jarvis ({clean(model)}). Type /help for help.", err=True)
    with _event_loop(agent) as runner:
        for line in _input_lines():
            if line in _QUIT:
                break
            if line == "/help":
                typer.echo(CHAT_HELP)
            elif re.fullmatch(r"/[a-z]+", line):
                typer.echo(f"There is no command {line}; /help lists them.", err=True)
            elif line:
                outcomes.append(answered(line, _chat_turn(runner, agent, line, thread)))
    return any(outcomes) or not outcomes


def _chat_turn(runner: asyncio.Runner, agent: Agent, line: str, thread: Any) -> Run:
    """Run one request of a chat. The Run is empty if it failed, or was interrupted in a terminal."""
    try:
        return runner.run(_run(agent, {"input": line}, thread, as_json=False))
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
