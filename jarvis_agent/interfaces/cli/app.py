"""The command `jarvis`. It only parses and prints; the work is done in modules that are imported on use.

    jarvis "Transcribe speech.wav"                        the same as: jarvis ask "…"
    jarvis "Describe it" --file a.jpg --json
    jarvis - < request.txt
    jarvis chat | tasks | models TASK | doctor | serve | eval

Exit codes: 0 answered, 1 nothing could be done, 2 usage error, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

from jarvis_agent.core.errors import ConfigError, InputError, JarvisError
from jarvis_agent.interfaces.cli.evaluate import eval_app

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import RenderableType

    from jarvis_agent.agent.agent import JarvisAgent
    from jarvis_agent.core.settings import Settings
    from jarvis_agent.selection.model_registry import ModelRegistry

T = TypeVar("T", bound="BaseModel")

FAILED, USAGE_ERROR, INTERRUPTED = 1, 2, 130

_LATER = ("ui", "mcp")
"""Commands that are not available yet. Their names are not taken as requests."""

_EPILOG = """\b
Examples:
  jarvis "Transcribe speech.wav"
  jarvis "What animal is in this picture?" --file cat.jpg --json
  jarvis ask --help            all options of a request
  jarvis -- tasks              "tasks" as a request, not as a command"""


class _DefaultCommandGroup(TyperGroup):
    """A command group with a default command: `jarvis "request" --json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command before what is not a command, and --debug first, wherever it stands."""
        end = args.index("--") if "--" in args else len(args)
        shared = [arg for arg in args[:end] if arg == "--debug"]
        args = [arg for arg in args[:end] if arg != "--debug"] + args[end:]
        if args and args[0] not in {*self.commands, "--help", "-h", "--version"}:
            self._reject_command_name(args)
            args = ["ask", *args]
        return super().parse_args(ctx, [*shared, *args])

    def _reject_command_name(self, args: list[str]) -> None:
        """Fail at a later command, a misspelt one, or one that stands after its options."""
        from difflib import get_close_matches

        if args[0] in _LATER:
            _fail(f'"jarvis {args[0]}" is not available yet; as a request: jarvis -- "…"', USAGE_ERROR)
        words = [arg for arg in args if not arg.startswith("-")]
        if args[0] != "--" and len(words) == 1:
            for close in get_close_matches(words[0], self.commands, n=1, cutoff=0.75):
                advice = f'did you mean "jarvis {close} …"? As a request: jarvis -- "{words[0]}"'
                _fail(f'"{words[0]}" is not a request; {advice}', USAGE_ERROR)

    def invoke(self, ctx: Any) -> Any:
        """Run the command. A JarvisError becomes one line on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except JarvisError as error:
            if ctx.params.get("debug"):
                raise
            _fail(str(error), USAGE_ERROR if isinstance(error, ConfigError | InputError) else FAILED)


app = typer.Typer(
    cls=_DefaultCommandGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    subcommand_metavar='"REQUEST" [OPTIONS] | COMMAND [ARGS]...',
    epilog=_EPILOG,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.add_typer(eval_app, name="eval")

Model = Annotated[
    str | None,
    typer.Option("--model", metavar="M", help="Chat model, such as openai:gpt-5-mini."),
]
Policy = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="P",
        help="Where models run: local-first, hosted-first, local-only or hosted-only.",
    ),
]
Out = Annotated[
    str | None, typer.Option("--out", metavar="DIR", help="Output directory; each run gets its own in it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from jarvis_agent import __version__

        typer.echo(f"langchain-hugginggpt {__version__}")
        raise typer.Exit


@app.callback()
def shared(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="JARVIS_DEBUG", help="Show tracebacks and logs.")
    ] = False,
) -> None:
    """Plan a request, run its tasks on expert models, and answer."""
    _set_up_output(debug)


@app.command()
def ask(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="REQUEST", help='The request in plain words; "-" reads standard input.'),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="F", help="File or URL of the request; may be repeated."),
    ] = None,
    model: Model = None,
    policy: Policy = None,
    out: Out = None,
    as_json: AsJson = False,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Print the plan and run nothing.")] = False,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="NAME", help="Store the run under a name, or continue it."),
    ] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Show the plan and ask before running it; it can be edited.")
    ] = False,
) -> None:
    """Run a request: the default command."""
    if approve and not sys.stdin.isatty():
        _fail("--approve needs a terminal to ask in; leave it out", USAGE_ERROR)
    request = (sys.stdin.read() if words == ["-"] else " ".join(words or [])).strip()
    if not request and resume is None:
        _fail('the request is empty; write one, such as: jarvis "What is in cat.jpg?"', USAGE_ERROR)
    if resume is not None and not resume.strip():
        _fail("--resume needs a name for the run", USAGE_ERROR)
    agent: Any = _agent(model, _settings(policy, out))
    from jarvis_agent.interfaces.cli import ask as terminal

    if resume or approve:
        from jarvis_agent.interfaces.cli.resume import ResumableAgent, ask_for_approval

        agent = ResumableAgent(agent, resume, ask_for_approval if approve else None)
    run = terminal.plan_only if plan_only else terminal.one_shot
    _exit_unless(run(agent, {"input": request, "files": file or []}, as_json=as_json))


@app.command()
def chat(model: Model = None, policy: Policy = None, out: Out = None) -> None:
    """Chat with the agent, which remembers earlier requests."""
    agent = _agent(model, _settings(policy, out))
    from jarvis_agent.interfaces.cli import ask as terminal

    _exit_unless(terminal.chat(agent))


@app.command()
def tasks(as_json: AsJson = False) -> None:
    """List the task types and the models that can run them here."""
    from jarvis_agent.interfaces.cli import listing

    _print(_ask_registry(listing.list_tasks), listing.task_table, as_json)


@app.command()
def models(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task type; `jarvis tasks` lists them.")],
    policy: Policy = None,
    as_json: AsJson = False,
) -> None:
    """List the candidate models for a task, in the order in which they are tried."""
    from jarvis_agent.interfaces.cli import listing

    found = _ask_registry(lambda registry: listing.list_models(task, registry), policy)
    _print(found, listing.model_table, as_json)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check the installation and say how to fix what is missing."""
    from jarvis_agent.interfaces.cli import doctor as checks

    report = checks.examine(_settings())
    _print(report, checks.report_text, as_json)
    _exit_unless(report.ready)


@app.command()
def serve(
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on.")] = 8000,
    model: Model = None,
    policy: Policy = None,
    out: Out = None,
) -> None:
    """Serve the agent over HTTP."""
    from jarvis_agent.interfaces.server import run_server

    try:
        run_server(_agent(model, _settings(policy, out)), host, port)
    except SystemExit:  # uvicorn exits after logging why it could not start.
        _fail(f"cannot listen at {host}:{port}; choose another --host or --port", USAGE_ERROR)


def main() -> None:
    """Entry point of the command `jarvis`."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        app(prog_name="jarvis")
    except Exception as error:
        if "--debug" in sys.argv or os.environ.get("JARVIS_DEBUG"):
            raise
        typer.echo(f"jarvis: unexpected {type(error).__name__}: {error}; use --debug for details", err=True)
        sys.exit(FAILED)


def _set_up_output(debug: bool) -> None:
    """Silence the warnings and progress bars of libraries, except with --debug."""
    import logging
    import warnings

    logging.basicConfig(level=logging.DEBUG if debug else logging.ERROR, format="%(name)s: %(message)s")
    if debug:
        return
    warnings.filterwarnings("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _ask_registry(ask: Callable[[ModelRegistry], Awaitable[T]], policy: str | None = None) -> T:
    import asyncio
    from contextlib import aclosing

    from jarvis_agent.selection.model_registry import ModelRegistry

    async def run() -> T:
        async with aclosing(ModelRegistry(_settings(policy))) as registry:
            return await ask(registry)

    return asyncio.run(run())


def _print(listing: T, table: Callable[[T], RenderableType], as_json: bool) -> None:
    from jarvis_agent.interfaces.cli.progress import echo_json, make_console

    if as_json:
        echo_json(listing)
    else:
        make_console().print(table(listing))


def _exit_unless(succeeded: bool) -> None:
    if not succeeded:
        raise typer.Exit(FAILED)


def _fail(message: str, code: int) -> NoReturn:
    from jarvis_agent.core.text import clean

    typer.echo(f"jarvis: {' '.join(clean(message).split())}", err=True)
    raise typer.Exit(code)


def _settings(policy: str | None = None, out: str | None = None) -> Settings:
    from jarvis_agent.core.settings import load_settings, misspelt_variables

    for name, nearest in misspelt_variables(os.environ).items():
        typer.echo(f"jarvis: {name} is not a setting and is ignored; did you mean {nearest}?", err=True)
    return load_settings(policy=policy, output_dir=out)


def _agent(model: str | None, settings: Settings) -> JarvisAgent:
    from jarvis_agent.agent.agent import JarvisAgent

    return JarvisAgent(model=model, settings=settings)
