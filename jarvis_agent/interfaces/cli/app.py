"""The command `jarvis`: it parses and prints. What it prints is made in modules imported when needed.

    jarvis "How many objects are in street.jpg?"          the same as: jarvis ask "…"
    jarvis "Describe it" --file a.jpg --json
    jarvis - < request.txt
    jarvis chat | tasks | models TASK | doctor | serve | eval

Exit codes: 0 answered, 1 nothing could be done, 2 bad usage, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from typer.core import TyperGroup

from jarvis_agent.core.errors import ConfigError, InputError, JarvisError
from jarvis_agent.interfaces.cli import evaluate_compare, evaluate_own
from jarvis_agent.interfaces.cli.evaluate import eval_app

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import RenderableType

    from jarvis_agent.agent.agent import JarvisAgent
    from jarvis_agent.core.settings import Settings
    from jarvis_agent.interfaces.cli import ask as terminal

T = TypeVar("T", bound="BaseModel")

NOTHING_DONE, BAD_USAGE, INTERRUPTED = 1, 2, 130

DEFAULT = "ask"
"""The command that is meant where no command is named."""

_EPILOG = """\b
Examples:
  jarvis "How many objects are in street.jpg?"
  jarvis "Describe this picture" --file cat.jpg --json
  jarvis ask --help            all options of a request
  jarvis -- tasks              "tasks" as a request, not as a command"""


class _Commands(TyperGroup):
    """Commands of which one is meant when the first word is none of them: `jarvis "request" --json`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_command(args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Our errors become one line on stderr and an exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except JarvisError as error:
            if ctx.params.get("debug"):
                raise
            _fail(str(error), BAD_USAGE if isinstance(error, ConfigError | InputError) else NOTHING_DONE)

    def _with_command(self, args: list[str]) -> list[str]:
        """The arguments with the command's name first, and --debug, which all commands share, before it."""
        end = args.index("--") if "--" in args else len(args)
        shared = [arg for arg in args[:end] if arg == "--debug"]
        args = [arg for arg in args[:end] if arg != "--debug"] + args[end:]
        place = self._first_word(args)
        if place is not None and args[place] in self.commands:
            return [*shared, args[place], *args[:place], *args[place + 1 :]]
        if place is not None:
            self._refuse_misspelt(args[place], args[place + 1 :])
        if not args or args[0] in ("--help", "-h", "--version"):
            return [*shared, *args]
        return [*shared, DEFAULT, *args]

    def _refuse_misspelt(self, word: str, rest: list[str]) -> None:
        """A lone word that is nearly a command's name was hardly meant as a request."""
        from difflib import get_close_matches

        close = get_close_matches(word, self.commands, n=1, cutoff=0.75)
        if close and all(arg.startswith("-") for arg in rest):
            advice = f'did you mean "jarvis {close[0]}"? If it is a request: jarvis -- "{word}"'
            _fail(f'there is no command "{word}"; {advice}', BAD_USAGE)

    def _first_word(self, args: list[str]) -> int | None:
        """Where the first argument stands that is neither an option nor the value of one."""
        takes_value = {
            name
            for param in self.commands[DEFAULT].params
            if not getattr(param, "is_flag", True)
            for name in param.opts
        }
        place = 0
        while place < len(args) and args[place].startswith("-"):
            if args[place] == "--":
                return None
            place += 2 if args[place] in takes_value else 1
        return place if place < len(args) else None


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    subcommand_metavar='"REQUEST" [OPTIONS] | COMMAND [ARGS]...',
    epilog=_EPILOG,
    context_settings={"help_option_names": ["--help", "-h"]},
)

eval_app.command()(evaluate_compare.compare)
eval_app.command()(evaluate_own.plans)
eval_app.command()(evaluate_own.selection)
app.add_typer(eval_app, name="eval")

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="M",
        help="Language model, such as openai:gpt-5-mini; else what the environment offers.",
    ),
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
    str | None,
    typer.Option("--out", metavar="DIR", help="Directory for what is made; each run gets its own in it."),
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
    """Plan a request, let expert models do its tasks, and answer."""
    _set_up_output(debug)


@app.command(DEFAULT)
def ask(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="REQUEST", help='What is to be done, in plain words; "-" reads it from standard input.'
        ),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="F", help="File or URL that goes with it; may be repeated."),
    ] = None,
    model: Model = None,
    policy: Policy = None,
    out: Out = None,
    as_json: AsJson = False,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Print the plan and run nothing.")] = False,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume", metavar="NAME", help="Keep the run under a name; go on with it if it broke off."
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="With --resume: begin anew what was unfinished under the name.")
    ] = False,
    approve: Annotated[
        bool, typer.Option("--approve", help="Ask before the plan is run; it can be edited.")
    ] = False,
) -> None:
    """Do what a request says: the command meant where none is named."""
    request = (sys.stdin.read() if words == ["-"] else " ".join(words or [])).strip()
    if not request and resume is None:
        _fail(
            'the request is empty; write what is to be done, such as: jarvis "What is in cat.jpg?"', BAD_USAGE
        )
    if resume is not None and not resume.strip():
        _fail("--resume wants a name under which the run is kept", BAD_USAGE)
    if restart and resume is None:
        _fail("--restart goes with --resume NAME, the run that is to begin anew", BAD_USAGE)
    files = [_checked_file(name) for name in file or []]
    agent = _agent(model, _settings(policy, out))
    from jarvis_agent.interfaces.cli import ask as terminal

    run = terminal.plan_only if plan_only else terminal.one_shot
    kept = _kept(agent, resume, approve, restart) if resume or approve else agent
    _exit_unless(run(kept, {"input": request, "files": files}, as_json=as_json))


@app.command()
def chat(model: Model = None, policy: Policy = None, out: Out = None) -> None:
    """Talk with the agent, which remembers earlier requests."""
    agent = _agent(model, _settings(policy, out))
    from jarvis_agent.interfaces.cli import ask as terminal

    _exit_unless(terminal.chat(agent))


@app.command()
def tasks(as_json: AsJson = False) -> None:
    """List the task types, and what here can run them."""
    from jarvis_agent.interfaces.cli import listing as inventory
    from jarvis_agent.interfaces.cli import tables

    _print(inventory.survey_tasks(_settings()), tables.task_table, as_json)


@app.command()
def models(
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="Name of a task type, as `jarvis tasks` lists them.")
    ],
    policy: Policy = None,
    as_json: AsJson = False,
) -> None:
    """List the models for a task, as the selection sees them."""
    from jarvis_agent.interfaces.cli import listing as inventory
    from jarvis_agent.interfaces.cli import tables

    _print(inventory.survey_models(task, _settings(policy)), tables.model_table, as_json)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what is here, and what to do about what is not."""
    from jarvis_agent.interfaces.cli import tables
    from jarvis_agent.interfaces.cli.doctor import examine

    report = examine(_settings())
    _print(report, tables.report_text, as_json)
    _exit_unless(report.ready)


@app.command()
def serve(
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; the default is for this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on.")] = 8000,
    model: Model = None,
    policy: Policy = None,
    out: Out = None,
) -> None:
    """Serve the agent over HTTP."""
    from jarvis_agent.interfaces.server import run_server

    try:
        run_server(_agent(model, _settings(policy, out)), host, port)
    except SystemExit:  # uvicorn's way to say that it could not start; it has told why
        _fail(f"nothing could be served at {host}:{port}; --host and --port choose another place", BAD_USAGE)


def main() -> None:
    """Entry point of the command `jarvis`."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        app(prog_name="jarvis")
    except Exception as error:
        if _debugging():
            raise
        typer.echo(
            f"jarvis: something unexpected went wrong ({type(error).__name__}: {error}); --debug shows where",
            err=True,
        )
        sys.exit(NOTHING_DONE)


def _debugging() -> bool:
    return "--debug" in sys.argv or bool(os.environ.get("JARVIS_DEBUG"))


def _set_up_output(debug: bool) -> None:
    """Keep the libraries' warnings and progress bars out of ours, unless they are asked for."""
    import logging
    import warnings

    logging.basicConfig(level=logging.DEBUG if debug else logging.ERROR, format="%(name)s: %(message)s")
    if debug:
        return
    warnings.filterwarnings("ignore")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def _print(listing: T, table: Callable[[T], RenderableType], as_json: bool) -> None:
    from jarvis_agent.core.text import clean_json
    from jarvis_agent.interfaces.cli.progress import make_console

    if as_json:
        typer.echo(clean_json(listing.model_dump_json(indent=2)))
    else:
        make_console().print(table(listing))


def _exit_unless(done: bool) -> None:
    if not done:
        raise typer.Exit(NOTHING_DONE)


def _fail(message: str, code: int) -> NoReturn:
    from jarvis_agent.core.text import clean

    typer.echo(f"jarvis: {' '.join(clean(message).split())}", err=True)
    raise typer.Exit(code)


def _settings(policy: str | None = None, out: str | None = None) -> Settings:
    from jarvis_agent.core.settings import load_settings, misspelt_variables

    for name, nearest in misspelt_variables(os.environ).items():
        typer.echo(f"jarvis: {name} is no setting and changes nothing; did you mean {nearest}?", err=True)
    return load_settings(policy=policy, output_dir=out)


def _agent(model: str | None, settings: Settings) -> JarvisAgent:
    from jarvis_agent.agent.agent import JarvisAgent

    return JarvisAgent(model=model, settings=settings)


def _kept(agent: JarvisAgent, name: str | None, approve: bool, restart: bool) -> terminal.Agent:
    """The agent, whose run is kept under a name if one is given."""
    from jarvis_agent.interfaces.cli.resume import ResumableAgent, ask_for_approval

    return ResumableAgent(agent, name, ask_for_approval if approve else None, restart=restart)


def _checked_file(name: str) -> str:
    """The name of a file that can be read, or a URL, which is looked at later."""
    if name.startswith(("http://", "https://")):
        return name
    try:
        with Path(name).open("rb"):
            return name
    except OSError as error:
        reason = error.strerror or str(error)
        _fail(f"--file {name} can not be read: {reason}; check the path", BAD_USAGE)
