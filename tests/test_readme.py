"""What the README says is so: its snippets run, its commands work, its tables and links are right.

Snippets stand there as users type them. A language model that they ask for is a double on this machine, which
plans the README's requests; the experts are the real starter models.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from shutil import copytree
from typing import Any

import httpx
import pytest
from doubles.openai_server import OpenAIDouble, ToolUse
from readme_blocks import Block, Command, blocks_of, commands_of, is_kept, promises_of

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.backends import sentence_transformers
from jarvis_agent.backends.algorithms.media_tools import MEDIA_TOOLS
from jarvis_agent.backends.algorithms.opencv import CONTROL_MAPS
from jarvis_agent.backends.diffusers import pipelines as diffusers_tasks
from jarvis_agent.backends.hosted.provider_calls import CALLS
from jarvis_agent.backends.starter.models import STARTERS
from jarvis_agent.backends.tabular import sklearn
from jarvis_agent.backends.tabular import time_series as chronos
from jarvis_agent.backends.transformers import pipelines as transformers_tasks
from jarvis_agent.testing import first_candidate
from jarvis_agent.tools import TASKS, HFTaskTool

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = blocks_of(README)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SNIPPETS = {
    section: list(found)
    for section, found in groupby((block for block in BLOCKS if block.lang == "python"), lambda b: b.section)
}
COMMANDS = [
    command for block in BLOCKS if block.lang in ("console", "powershell") for command in commands_of(block)
]

NOT_RUN = {
    "python3 -m venv .venv": "the tests run in such an environment",
    "py -m venv .venv": "the same on Windows",
    ".venv/bin/pytest": "that is this",
    "jarvis serve --port 8000": "a server; the snippet that asks it starts it, on a free port",
}
"""Commands that no test runs or checks, each with the reason."""

CAT, PAGE, SPEECH = "examples/cat.jpg", "examples/page.png", "examples/speech.wav"


def a_task(id: int, task: str, dep: int = -1, **args: str) -> dict[str, Any]:  # noqa: A002
    return {"task": task, "id": id, "dep": [dep], "args": args}


PLANS = {
    f"What animal is in {CAT}?": [a_task(0, "image-classification", image=CAT)],
    f"Tell me what animal is in {CAT} and make a canny edge image of it.": [
        a_task(0, "image-classification", image=CAT),
        a_task(1, "canny-control", image=CAT),
    ],
    "Transcribe this.": [a_task(0, "automatic-speech-recognition", audio=SPEECH)],
    f"Make a canny edge image of {CAT}.": [a_task(0, "canny-control", image=CAT)],
    "Now turn that image into a scribble drawing.": [
        a_task(0, "scribble-control", image="the path in the chat log")
    ],
    f"How many words are spoken in {SPEECH}?": [
        a_task(0, "automatic-speech-recognition", audio=SPEECH),
        a_task(1, "count_words", 0, text="<resource>-0"),
    ],
    f"What is the main colour of {CAT}?": [a_task(0, "color-naming", image=CAT)],
}
"""What the double plans, by request."""


def _plan(body: Mapping[str, Any]) -> str:
    prompt = str(body["messages"][-1]["content"])
    request = re.findall(r"<request>\n(.*?)\n</request>", prompt, re.DOTALL)[-1]
    made = re.findall(r"[^\s\"']+-control\.png", prompt)
    return json.dumps(PLANS[request]).replace("the path in the chat log", made[-1] if made else "")


def _respond(body: Mapping[str, Any]) -> str:
    results = re.search(r"<results>\n(.*?)\n</results>", str(body["messages"][-1]["content"]), re.DOTALL)
    assert results is not None
    return f"This is what came out: {results[1]}"


def _answer_others(body: Mapping[str, Any]) -> Any:
    """What is said to those who are not our agent: a translation is one, else a tool reads the page."""
    last = body["messages"][-1]
    if "Good night" in str(last["content"]):
        return "Bonne nuit"
    if last["role"] == "tool":
        return f"It says: {last['content']}"
    return ToolUse("image-to-text", {"image": PAGE, "text": "read"})


@pytest.fixture(scope="module")
def llm() -> Iterator[OpenAIDouble]:
    """The language model, whichever one a snippet or a command names."""
    script = {"plan": _plan, "select": first_candidate, "respond": _respond, "": _answer_others}
    with OpenAIDouble(script) as server:
        yield server


@pytest.fixture(scope="module")
def folder_of_a_user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a copy of the examples, and a place for a model."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "models" / "detr").mkdir(parents=True)
    copytree(ROOT / "examples", folder / "examples")
    return folder


@pytest.fixture(scope="module")
def _loaded_models() -> Iterator[None]:
    """Keep the models of one snippet for the next one."""
    with JarvisAgent(settings=Settings(offline=True)):
        yield


@pytest.fixture
def _no_new_tasks() -> Iterator[None]:
    before = dict(TASKS)
    yield
    TASKS.clear()
    TASKS.update(before)


def _environment(llm: OpenAIDouble, code: str) -> dict[str, str]:
    """What leads to the double where a language model is named; without one there is none."""
    return (
        {"OPENAI_API_KEY": "any", "OPENAI_BASE_URL": llm.base_url}
        if "openai:" in code
        else {"JARVIS_BASE_URL": llm.base_url}
        if "JARVIS_BASE_URL" in code
        else {}
    )


@pytest.mark.starter
@pytest.mark.timeout(120)
@pytest.mark.usefixtures("_loaded_models", "_no_new_tasks")
@pytest.mark.parametrize("section", SNIPPETS)
def test_the_snippets_of_a_section_run_and_print_what_they_promise(
    section: str,
    llm: OpenAIDouble,
    folder_of_a_user: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(folder_of_a_user)
    names: dict[str, Any] = {"__name__": "readme"}
    try:
        for block in SNIPPETS[section]:
            for name, value in _environment(llm, block.code).items():
                monkeypatch.setenv(name, value)
            _run_snippet(block, names, request)
            printed = capsys.readouterr().out
            broken = [promise for promise in promises_of(block.code) if not is_kept(promise, printed)]
            assert not broken, printed
    finally:
        _close(names)


def _run_snippet(block: Block, names: dict[str, Any], request: pytest.FixtureRequest) -> None:
    code = block.code
    if "localhost:8000" in code:
        code = code.replace("localhost:8000", f"127.0.0.1:{request.getfixturevalue('served')}")
    code = code.replace("http://localhost:11434/v1", request.getfixturevalue("llm").base_url)
    compiled = compile("\n" * (block.line - 1) + code, str(README), "exec")
    # In a thread of its own, since a snippet with asyncio.run takes the event loop of its thread away.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(exec, compiled, names).result()


def _close(names: Mapping[str, Any]) -> None:
    values = [one for value in names.values() for one in (value if isinstance(value, list) else [value])]
    for value in values:
        if isinstance(value, JarvisAgent | HFTaskTool):
            value.close()


def jarvis(*args: str) -> list[str]:
    return [sys.executable, "-c", "from jarvis_agent.interfaces.cli.app import main; main()", *args]


@pytest.fixture
def served(folder_of_a_user: Path) -> Iterator[int]:
    """The port of `jarvis serve`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        jarvis("serve", "--port", str(port)),
        cwd=folder_of_a_user,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not _is_up(port):
            assert server.poll() is None, "jarvis serve has ended"
            time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait()


def _is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").is_success
    except httpx.ConnectError:
        return False


def _kind(command: Command) -> str:
    return "not run" if command.text in NOT_RUN else command.words[0]


def _commands(kind: str) -> list[Any]:
    """The commands of a kind, those that differ only in how a system writes them once."""
    found = {(tuple(c.words), *c.env.items()): c for c in reversed(COMMANDS) if _kind(c) == kind}
    return [pytest.param(command, id=command.text[:60]) for command in reversed(found.values())]


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {block.lang for block in BLOCKS} <= {"python", "console", "powershell"}
    assert {_kind(command) for command in COMMANDS} <= {"jarvis", "make", "pip", "not run"}
    assert set(NOT_RUN) <= {command.text for command in COMMANDS}


@pytest.mark.starter
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("command", _commands("jarvis"))
def test_a_command_does_what_it_shows(command: Command, llm: OpenAIDouble, folder_of_a_user: Path) -> None:
    named = " ".join([*command.env, command.text])
    done = subprocess.run(
        jarvis(*command.words[1:]),
        cwd=folder_of_a_user,
        env={**os.environ, **command.env, **_environment(llm, named), **_TERMINAL},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout
    broken = [line for line in command.output if line and not is_kept(line, done.stdout)]
    assert not broken, done.stdout


_TERMINAL = {
    "FORCE_COLOR": "1",
    "TERM": "xterm",
    "COLUMNS": "150",
    "LINES": "60",
    "PYTHONIOENCODING": "utf-8",
}
"""Makes rich draw what a terminal is shown."""


def test_the_demo_is_that_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    demo = re.search(r"^DEMO := (.*?[^\\])$", makefile, re.MULTILINE | re.DOTALL)
    assert demo is not None
    assert COMMANDS[0].words == ["jarvis", " ".join(demo[1].replace("\\\n", "").split())]


@pytest.mark.parametrize("command", _commands("make"))
def test_make_has_the_target(command: Command) -> None:
    (target,) = command.words[1:]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("command", _commands("pip"))
def test_pip_can_install_that(command: Command) -> None:
    assert command.words[:4] == ["pip", "install", "-c", "constraints.txt"]
    assert (ROOT / "constraints.txt").is_file()
    wanted = re.fullmatch(r"\.\[([\w,-]+)\]", command.words[-1])
    assert wanted is not None
    assert set(wanted[1].split(",")) <= set(PROJECT["optional-dependencies"])


def table(heading: str) -> list[list[str]]:
    """The cells of the table whose head begins with `heading`, row by row, without their backquotes."""
    lines = TEXT.partition(f"\n| {heading} |")[2].splitlines()[2:]
    rows = [line.strip("|").split("|") for line in lines[: lines.index("")]]
    return [[cell.strip().strip("`") for cell in row] for row in rows]


def test_the_table_of_extras_names_them_all() -> None:
    assert {extra for extra, _ in table("extra")} == set(PROJECT["optional-dependencies"])


def test_the_table_of_commands_names_them_all() -> None:
    from typer.main import get_command

    from jarvis_agent.interfaces.cli.app import app

    group: Any = get_command(app)
    named = {shlex.split(command)[1] for command, _ in table("command")} - {"request"}
    assert named == set(group.commands) - {"ask"}
    options = {option for param in group.commands["ask"].params for option in param.opts}
    assert {row[0].split()[0] for row in table("option of a request")} == options - {"words"}


def test_the_starter_models_and_their_licences() -> None:
    assert {model: licence for model, _, licence in table("model")} == {
        model.id: model.license for model in STARTERS.values()
    }


def test_the_settings_and_their_defaults() -> None:
    for variables, default, _ in table("variable"):
        name = variables.split("`")[0].removeprefix("JARVIS_").lower()
        value = Settings.model_fields[name].default
        said = {"memory_budget": "half of RAM", "licenses": "all", "allowed_dirs": "none", "offline": "false"}
        assert default == said.get(name, str(value))
        assert value in (None, (), False) or name not in said


@pytest.mark.parametrize("page", [README, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name)
def test_variables_are_settings(page: Path) -> None:
    known = {f"JARVIS_{name.upper()}" for name in Settings.model_fields} | {"JARVIS_DEBUG"}
    assert set(re.findall(r"\bJARVIS_[A-Z_]+\b", page.read_text(encoding="utf-8"))) <= known


def test_how_many_task_types_there_are_and_can_be_run() -> None:
    optional = {task for model in STARTERS.values() if model.extra is None for task in model.tasks}
    starters = {task for model in STARTERS.values() for task in model.tasks} - optional
    starters |= CONTROL_MAPS.keys() | MEDIA_TOOLS.keys()
    on_this_machine = {*transformers_tasks.PIPELINES, *diffusers_tasks.PIPELINES, *sklearn.TASKS_DONE}
    on_this_machine |= {*sentence_transformers.TASKS_DONE, chronos.TASK}
    assert f"do {len(starters)} of the {len(TASKS)} task types" in TEXT
    assert starters | on_this_machine | CALLS.keys() >= TASKS.keys()
    assert f"All {len(TASKS)} task types can be run by something" in TEXT


PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if not link.startswith("https://")]
    assert not [link for link in local if not (page.parent / link).exists()]


def test_pictures_are_small() -> None:
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", TEXT)
    assert len(pictures) == 2
    assert all((ROOT / picture).stat().st_size < 150_000 for picture in pictures)
