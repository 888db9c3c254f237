"""Requests and chats in a terminal: progress goes to stderr, the answer (or one Run as JSON) to stdout.

    answered = one_shot(agent, {"input": "What is in a.jpg?"}, as_json=False)
    answered = chat(agent)

Both own the event loop in which the agent works, close the agent at the end, and let KeyboardInterrupt out
after they have printed what was finished.
"""

from __future__ import annotations

import asyncio
import re
import sys
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any, Protocol, cast

import typer
from rich.live import Live
from rich.text import Text

from jarvis_agent.core.messages import phrases
from jarvis_agent.core.text import clean, clean_json
from jarvis_agent.interfaces.cli.progress import (
    Board,
    finished_work,
    line_of,
    make_console,
    plan_tree,
    unmentioned_files,
)
from jarvis_agent.core.errors import JarvisError
from jarvis_agent.planning.plan import Plan
from jarvis_agent.execution.run import Event, Run

CHAT_HELP = """\
Write a request and press Enter. Later requests may speak of earlier ones and of what they made.
/files  the files of this chat      /help  this text      /quit  end the chat (or Ctrl-D)
Ctrl-C stops the running request."""

_LAST_WORDS = {"/quit", "/exit", "quit", "exit"}


class Agent(Protocol):
    """What is used of a JarvisAgent."""

    @property
    def model_name(self) -> str | None:
        """The language model, for people."""
        ...

    def events(self, request: Any, config: Any = None) -> AsyncIterator[Event]:
        """What happens in a run."""
        ...

    async def aplan(self, request: Any, config: Any = None) -> Plan:
        """The plan only."""
        ...

    async def aclose(self) -> None:
        """Free what is held."""
        ...


def answered(request: str, run: Run) -> bool:
    """Whether anything was done: a task went well, or the language model answered a request without tasks."""
    if run.plan.tasks:
        return any(result.status == "ok" for result in run.results)
    if run.plan.notes:
        return False  # There was a plan, or should have been, and it came to nothing.
    # The report on an empty plan tells what can be asked instead.
    return bool(run.answer) and phrases(request).examples[0] not in run.answer


def one_shot(agent: Agent, request: dict[str, Any], *, as_json: bool) -> bool:
    """Run one request and print it. Returns whether anything was done."""
    with _loop_of(agent) as runner:
        run = runner.run(_ask(agent, request, None, as_json=as_json))
    return answered(request["input"], run)


def plan_only(agent: Agent, request: dict[str, Any], *, as_json: bool) -> bool:
    """Plan one request and print the plan, as a tree or as JSON. Returns whether it has tasks."""
    with _loop_of(agent) as runner:
        plan = runner.run(agent.aplan(request))
    if as_json:
        typer.echo(clean_json(plan.model_dump_json(indent=2)))
    else:
        make_console().print(plan_tree(plan))
    return bool(plan.tasks)


@contextmanager
def _loop_of(agent: Agent) -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        try:
            yield runner
        finally:
            runner.run(agent.aclose())


async def _ask(agent: Agent, request: dict[str, Any], config: Any, *, as_json: bool) -> Run:
    """Run one request, show it, and return its Run."""
    board = Board()
    events = cast("AsyncGenerator[Event, None]", agent.events(request, config))
    run = Run()
    try:
        async with aclosing(events):
            with _progress(board) as tell:
                async for event in events:
                    board.feed(event)
                    tell(event)
                    if event.kind == "token" and not as_json:
                        typer.echo(clean(event.text), nl=False)
                    run = event.run or run
    except (asyncio.CancelledError, KeyboardInterrupt):
        _print_interrupted(board.run, as_json=as_json)
        raise
    _print_run(run, board.answer, as_json=as_json)
    return run


@contextmanager
def _progress(board: Board) -> Iterator[Callable[[Event], None]]:
    """The board on stderr: redrawn in a terminal until the answer begins, a line an event elsewhere."""
    console = make_console(stderr=True)
    if not console.is_terminal:

        def tell(event: Event) -> None:
            if line := line_of(event):
                console.print(Text(line), soft_wrap=True)

        yield tell
        return

    with Live(
        get_renderable=lambda: board, console=console, refresh_per_second=8, redirect_stdout=False
    ) as live:

        def leave_room(event: Event) -> None:
            """For the answer, and for a question that comes after a note."""
            if event.kind in ("token", "note"):
                live.stop()
            elif event.kind != "done":
                live.start()

        yield leave_room


def _print_run(run: Run, streamed: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(clean_json(run.model_dump_json(indent=2)))
        return
    rest = run.answer.removeprefix(streamed) if run.answer.startswith(streamed) else f"\n{run.answer}"
    typer.echo(clean(rest))
    for path in unmentioned_files(run):
        typer.echo(f"file: {clean(path)}")


def _print_interrupted(run: Run, *, as_json: bool) -> None:
    if as_json:
        typer.echo(clean_json(run.model_dump_json(indent=2)))
        return
    if run.answer:
        typer.echo()  # Ends the line in which the answer broke off.
    elif done := finished_work(run):
        typer.echo(done)
    typer.echo("Interrupted.", err=True)


def chat(agent: Agent) -> bool:
    """Talk until the input ends, one request a line. Returns whether any was answered, or none made."""
    with _loop_of(agent) as runner:
        conversation = _Chat(agent, runner)
        for line in _lines():
            if not conversation.hear(line):
                break
    return conversation.answers > 0 or conversation.requests == 0


class _Chat:
    """One chat: its thread in the agent's memory, and its files."""

    def __init__(self, agent: Agent, runner: asyncio.Runner) -> None:
        self._agent = agent
        self._runner = runner
        self._config = {"configurable": {"thread_id": uuid.uuid4().hex}}
        self._files: list[str] = []
        self.requests = self.answers = 0
        self._commands: dict[str, Callable[[], None]] = {
            "/help": lambda: typer.echo(CHAT_HELP),
            "/files": lambda: typer.echo("\n".join(self._files) or "No files yet."),
        }
        model = agent.model_name or "no language model: requests are planned without one"
        typer.echo(f"jarvis ({clean(model)}). /help tells more.", err=True)

    def hear(self, line: str) -> bool:
        """Do what a line says. Returns whether the chat goes on."""
        if line in _LAST_WORDS:
            return False
        if re.fullmatch(r"/[a-z]+", line):
            unknown = f"There is no command {line}; /help lists them."
            self._commands.get(line, lambda: typer.echo(unknown, err=True))()
        elif line:
            self._ask(line)
        return True

    def _ask(self, line: str) -> None:
        self.requests += 1
        try:
            run = self._runner.run(_ask(self._agent, {"input": line}, self._config, as_json=False))
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            return
        except JarvisError as error:
            typer.echo(clean(str(error)), err=True)
            return
        self.answers += answered(line, run)
        self._files.extend(clean(str(r.path)) for r in run.resources if r.path is not None)


def _lines() -> Iterator[str]:
    """What the user writes, line by line; a terminal is prompted."""
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
