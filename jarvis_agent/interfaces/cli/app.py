"""The command `jarvis`. It only parses and prints; the work is done in modules that are imported on use.

Exit codes: 0 answered, 1 nothing could be done, 2 usage error, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer
from typer.main import get_command

from jarvis_agent.core.environment import set_up_proxies
from jarvis_agent.core.errors import ConfigError, InputError, JarvisError, MissingExtraError
from jarvis_agent.interfaces.cli import FAILED, USAGE_ERROR
from jarvis_agent.interfaces.cli.evaluate import eval_app

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import RenderableType

    from jarvis_agent.agent.agent import JarvisAgent
    from jarvis_agent.core.settings import Settings
    from jarvis_agent.interfaces.cli.doctor import Check
    from jarvis_agent.selection.model_registry import ModelRegistry
T = TypeVar("T", bound="BaseModel")


def fail(message: str) -> NoReturn:
    """Print a message on stderr as one line, and exit because of how the command is used."""
    _say(message)
    raise typer.Exit(USAGE_ERROR)


def _say(message: str) -> None:
    from jarvis_agent.core.text import clean

    typer.echo(f"jarvis: {' '.join(clean(message).split())}", err=True)


_EPILOG = """\b
Examples:
  jarvis "Transcribe speech.wav"
  jarvis "What animal is in this picture?" --file cat.jpg --json
  jarvis ask --help            all options of a request"""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    subcommand_metavar='"REQUEST" [OPTIONS] | COMMAND [ARGS]...',
    epilog=_EPILOG,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.add_typer(eval_app, name="eval")

Model = Annotated[str | None, typer.Option(metavar="M", help="Chat model, such as openai:gpt-5-mini.")]
Policy = Annotated[
    str | None,
    typer.Option(metavar="P", help="Where models run: local-first, hosted-first, local-only or hosted-only."),
]
Out = Annotated[
    str | None, typer.Option(metavar="DIR", help="Output directory; each run gets its own in it.")
]
Mcp = Annotated[
    list[str] | None,
    typer.Option(metavar="COMMAND", help="MCP server to start; its tools are tasks too; may be repeated."),
]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Let other machines in without API keys.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]


@app.callback(invoke_without_command=True)
def shared(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Plan a request, run its tasks on expert models, and answer."""
    if version:
        from jarvis_agent import __version__

        typer.echo(f"langchain-hugginggpt {__version__}")
        raise typer.Exit
    _set_up_output(shows_downloads=context.invoked_subcommand == "setup")


@app.command()
def ask(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="REQUEST", help='The request in plain words; "-" reads standard input.'),
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option(metavar="F", help="File or URL of the request; may be repeated.")
    ] = None,
    model: Model = None,
    policy: Policy = None,
    out: Out = None,
    mcp: Mcp = None,
    as_json: AsJson = False,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Print the plan and run nothing.")] = False,
    resume: Annotated[
        str | None, typer.Option(metavar="NAME", help="Store the run under a name, or continue it.")
    ] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Show the plan and ask before running it; it can be edited.")
    ] = False,
) -> None:
    """Run a request: the default command."""
    if approve and not sys.stdin.isatty():
        fail("--approve needs a terminal to ask in; leave it out")
    request = (sys.stdin.read() if words == ["-"] else " ".join(words or [])).strip()
    if not request and resume is None:
        fail('the request is empty; write one, such as: jarvis "What is in cat.jpg?"')
    if resume is not None and not resume.strip():
        fail("--resume needs a name for the run")
    agent = _agent(model, _settings(policy, out), context, mcp)
    inputs = {"input": request, "files": file or []}
    from jarvis_agent.interfaces.cli import ask as terminal

    if plan_only:
        succeeded = terminal.plan_only(agent, inputs, as_json=as_json)
    else:
        decide = terminal.ask_for_approval if approve else None
        succeeded = terminal.one_shot(agent, inputs, as_json=as_json, name=resume, decide=decide)
    _exit_unless(succeeded)


@app.command()
def run(
    context: typer.Context,
    plan: Annotated[
        str, typer.Argument(metavar="PLAN", help="JSON file of a plan or a run, as --json prints them.")
    ],
    file: Annotated[
        list[str] | None,
        typer.Option(metavar="F", help="Files in place of those in the plan, in their order."),
    ] = None,
    policy: Policy = None,
    out: Out = None,
    mcp: Mcp = None,
    as_json: AsJson = False,
) -> None:
    """Run a saved plan, also on other files, without a language model."""
    from jarvis_agent.agent.agent import REPLAY_REQUEST
    from jarvis_agent.interfaces.cli.ask import one_shot
    from jarvis_agent.llm.chat_model import NO_MODEL
    from jarvis_agent.media.access import AccessPolicy
    from jarvis_agent.planning.plan import Plan

    try:
        text = sys.stdin.read() if plan == "-" else Path(plan).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f'{plan} cannot be read: {error}; "run" takes the file of a plan, and jarvis "…" a request')
    saved = Plan.load(text)
    settings = _settings(policy, out)
    files_in = AccessPolicy(settings).files_in
    files = [each for name in file or () for each in files_in(name) or [name]]
    saved = saved.with_inputs(files) if files else saved
    agent = _agent(NO_MODEL, settings, context, mcp).copy(plan=saved)
    _exit_unless(one_shot(agent, {"input": REPLAY_REQUEST, "files": saved.inputs}, as_json=as_json))


@app.command()
def chat(
    context: typer.Context, model: Model = None, policy: Policy = None, out: Out = None, mcp: Mcp = None
) -> None:
    """Chat with the agent, which remembers earlier requests."""
    agent = _agent(model, _settings(policy, out), context, mcp)
    from jarvis_agent.interfaces.cli import ask as terminal

    _exit_unless(terminal.chat(agent))


@app.command()
def tasks(
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="Only this task type.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the task types and what can run them here."""
    from jarvis_agent.interfaces.cli import listing

    settings, hub = _reachable(_settings())
    listed = _ask_registry(lambda registry: listing.list_tasks(registry, task), settings)
    notes = [] if hub.state == "ok" else [f"{hub.name}: {hub.found}"]
    table = listing.task_details if task else listing.task_table
    _print(listed.model_copy(update={"notes": notes}), table, as_json)


@app.command()
def models(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task type; `jarvis tasks` lists them.")],
    purpose: Annotated[
        str, typer.Option("--for", metavar="PURPOSE", help="Explain the order for a purpose (chest X-rays).")
    ] = "",
    policy: Policy = None,
    as_json: AsJson = False,
) -> None:
    """List the models for a task, in the order in which they are tried."""
    from jarvis_agent.interfaces.cli import listing

    listed = _ask_registry(lambda registry: listing.list_models(task, registry, purpose), _settings(policy))
    _print(listed, listing.model_table, as_json)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check the installation and say how to fix what is missing."""
    from jarvis_agent.interfaces.cli import doctor as checks

    settings = _settings()
    reachable, hub = _reachable(settings)
    report = _ask_registry(lambda registry: checks.examine(settings, registry, hub), reachable)
    _print(report, checks.report_text, as_json)
    _exit_unless(report.ready)


@app.command()
def demo() -> None:
    """Copy two example files here, and run a request on them."""
    from jarvis_agent.interfaces.cli import ask as terminal
    from jarvis_agent.interfaces.cli.demo import NEXT, REQUEST, check_starters, copy_files

    check_starters()
    for line in copy_files(Path.cwd()):
        typer.echo(line)
    typer.echo(f'Running, without a language model and the network:\n  jarvis "{REQUEST}"\n')
    settings = _settings("local-only").model_copy(update={"offline": True})
    succeeded = terminal.one_shot(_agent("none", settings), {"input": REQUEST, "files": []}, as_json=False)
    typer.echo(NEXT)
    _exit_unless(succeeded)


@app.command()
def setup(
    model: Annotated[
        str | None, typer.Option(metavar="M", help="A GGUF file, or org/repo:file.gguf of the Hub.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Download without asking.")] = False,
) -> None:
    """Install a language model that runs on this machine."""
    from jarvis_agent.interfaces.cli.setup import set_up

    if not (yes or sys.stdin.isatty()):
        fail("there is no terminal to ask in; --yes agrees to the download")
    ask = partial(typer.confirm, default=True)
    _exit_unless(set_up(_settings(), model, ask=(lambda _: True) if yes else ask, say=typer.echo))


@app.command()
def serve(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes, which share the runs.")] = 1,
    insecure: Insecure = False,
    model: Model = None,
    policy: Policy = None,
    out: Out = None,
) -> None:
    """Serve the agent over HTTP."""
    from jarvis_agent.interfaces.server import run_server

    make_agent = partial(_agent, model, _settings(policy, out))
    _listen(partial(run_server, make_agent, workers=workers, insecure=insecure), host, port)


@app.command()
def ui(
    host: Host = "127.0.0.1",
    port: Port = 7860,
    insecure: Insecure = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    model: Model = None,
    policy: Policy = None,
    out: Out = None,
) -> None:
    """Serve a web page to chat with the agent."""
    from jarvis_agent.interfaces.ui import run_ui

    agent = _agent(model, settings := _settings(policy, out))
    from jarvis_agent.llm.chat_model import NO_MODEL

    # Without its language model, the agent still plans plain requests.
    agents = [agent, _agent(NO_MODEL, settings)] if agent.model_name else [agent]
    _listen(partial(run_ui, *agents, insecure=insecure, open_browser=open_browser), host, port)


@app.command()
def mcp(
    http: Annotated[bool, typer.Option("--http", help="Serve over streamable HTTP, not stdio.")] = False,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    insecure: Insecure = False,
    model: Model = None,
    policy: Policy = None,
    out: Out = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the JSON that makes MCP clients start it.")
    ] = False,
) -> None:
    """Serve the tools and the agent to MCP clients."""
    from jarvis_agent.interfaces.mcp import client_settings, run_http, run_stdio

    settings = _settings(policy, out)
    if print_config and http:
        fail(f"clients do not start it over HTTP; give them http://{host}:{port}/mcp")
    if print_config:
        options = [f"--{name}={value}" for name, value in (("model", model), ("policy", policy)) if value]
        typer.echo(client_settings(settings, options))
        if find_spec("mcp") is None:
            _say(str(MissingExtraError("the server that clients start", "mcp")))
    elif http:
        _listen(partial(run_http, _agent(model, settings), insecure=insecure), host, port)
    else:
        run_stdio(_agent(model, settings))


@app.command()
def experts(host: Host = "127.0.0.1", port: Port = 8765, insecure: Insecure = False) -> None:
    """Serve local models to agents, which then need not load them."""
    from jarvis_agent.interfaces.experts import run_experts

    _listen(partial(run_experts, _settings(), insecure=insecure), host, port)


def _listen(run: Callable[..., None], host: str, port: int) -> None:
    try:
        run(host=host, port=port)
    except SystemExit as end:  # uvicorn exits after logging why it could not start.
        if not end.code:
            raise
        fail(f"cannot listen at {host}:{port}; choose another --host or --port")


def main() -> None:
    """Entry point of the command `jarvis`. An error is one line on stderr, and an exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        getattr(sys, name).reconfigure(errors="replace")
    set_up_proxies()
    try:
        app(_with_command(sys.argv[1:]), prog_name="jarvis")
    except Exception as error:
        if os.environ.get("JARVIS_DEBUG"):
            raise
        is_known = isinstance(error, JarvisError)
        unexpected = f"unexpected {type(error).__name__}: {error}; JARVIS_DEBUG=1 shows details"
        _say(str(error) if is_known else unexpected)
        sys.exit(USAGE_ERROR if isinstance(error, ConfigError | InputError) else FAILED)


def _with_command(words: list[str]) -> list[str]:
    """The words with `ask` before those of a request. One that is almost a command is refused as such."""
    first, names = next(iter(words), "--help"), get_command(app).commands  # type: ignore[attr-defined]
    is_misspelt = " " not in first and get_close_matches(first, names, n=1, cutoff=0.8)
    if is_misspelt or first in ("--help", "-h", "--version"):
        return words
    return ["ask", *words]


def _set_up_output(shows_downloads: bool = False) -> None:
    """Silence the warnings and progress bars of libraries, except with JARVIS_DEBUG."""
    import logging
    import warnings

    is_debugging = bool(os.environ.get("JARVIS_DEBUG"))
    level = logging.DEBUG if is_debugging else logging.ERROR
    logging.basicConfig(level=level, format="%(name)s: %(message)s")
    if is_debugging:
        return
    warnings.filterwarnings("ignore")
    quiet = {"TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
    if not shows_downloads:
        quiet |= {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
    for name, value in quiet.items():
        os.environ.setdefault(name, value)


def _reachable(settings: Settings) -> tuple[Settings, Check]:
    """The settings, offline if the Hub does not answer, and the check of it."""
    from jarvis_agent.interfaces.cli.doctor import check_hub

    hub = check_hub(settings)
    return (settings if hub.state == "ok" else settings.model_copy(update={"offline": True})), hub


def _ask_registry(ask: Callable[[ModelRegistry], Awaitable[T]], settings: Settings) -> T:
    import asyncio
    from contextlib import aclosing, suppress

    from jarvis_agent.llm.chat_model import resolve_model
    from jarvis_agent.llm.client import LLMClient
    from jarvis_agent.selection.model_registry import ModelRegistry

    llm = None
    with suppress(ConfigError):  # a list needs no language model; `jarvis doctor` says what is wrong with it
        model = resolve_model(None, settings)
        llm = LLMClient(model, settings) if model is not None else None

    async def run() -> T:
        async with aclosing(ModelRegistry(settings, llm=llm)) as registry:
            return await ask(registry)

    return asyncio.run(run())


def _print(listing: T, table: Callable[[T], RenderableType], as_json: bool) -> None:
    from jarvis_agent.interfaces.common.progress import echo_json, make_console

    if as_json:
        echo_json(listing)
    else:
        make_console().print(table(listing))


def _exit_unless(succeeded: bool) -> None:
    if not succeeded:
        raise typer.Exit(FAILED)


def _settings(policy: str | None = None, out: str | None = None) -> Settings:
    from jarvis_agent.core.settings import misspelt_variables, read_settings

    for name, nearest in misspelt_variables(os.environ).items():
        typer.echo(f"jarvis: {name} is not a setting and is ignored; did you mean {nearest}?", err=True)
    return read_settings({"policy": policy, "output_dir": out})


def _agent(
    model: str | None,
    settings: Settings,
    context: typer.Context | None = None,
    mcp: Sequence[str] | None = None,
) -> JarvisAgent:
    """The agent of a command, whose MCP servers run until the end of the command's context."""
    from jarvis_agent.agent.agent import JarvisAgent

    if context is None or not mcp:
        return JarvisAgent(model=model, settings=settings)
    from jarvis_agent.interfaces.cli.mcp_servers import mcp_tools
    from jarvis_agent.tools import hf_tools

    tools = context.with_resource(mcp_tools(mcp))
    experts = hf_tools(model, settings=settings)
    return JarvisAgent(model=model, tools=[*experts, *tools], settings=settings)
