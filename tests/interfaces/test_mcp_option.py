"""`jarvis --mcp COMMAND`: the tools of real MCP servers over stdio, as tasks beside the Hub's."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import jarvis
from doubles.openai_server import OpenAIDouble
from PIL import Image
from small_agents import Row, plan

from jarvis_agent.execution.run import Run

pytestmark = pytest.mark.slow
STUDIO = f"{sys.executable} {Path(__file__).parents[2] / 'examples' / 'mcp_server.py'}"
COUNTER = """
import os
from mcp.server.mcpserver import MCPServer

server, calls = MCPServer("counter"), []


@server.tool()
def count_calls() -> int:
    "Count the calls."
    calls.append(1)
    return len(calls)


@server.tool()
def end() -> None:
    "End the server."
    os._exit(3)


server.run()
"""

REPORTER = """
import asyncio, base64, io, wave
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server

QUESTION = types.ElicitRequestFormParams(
    message="Who are you?", requested_schema={"type": "object", "properties": {"name": {"type": "string"}}}
)
NAMES = ("measure", "fail", "sing", "greet")


async def list_tools(context, params):
    schema = {"type": "object", "properties": {}}
    return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in NAMES])


async def call_tool(context, params):
    if params.name == "sing":
        with wave.open(sound := io.BytesIO(), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(bytes(1600))
        data = base64.b64encode(sound.getvalue()).decode()
        return types.CallToolResult(content=[types.AudioContent(data=data, mime_type="audio/wav")])
    if params.name == "greet":
        if not params.input_responses:
            return types.InputRequiredResult(input_requests={"name": types.ElicitRequest(params=QUESTION)})
        return types.CallToolResult(content=[types.TextContent(text=params.input_responses["name"].action)])
    facts = {"meters": 12, "place": params.name}
    if params.name == "measure":
        return types.CallToolResult(content=[], structured_content=facts)
    return types.CallToolResult(
        content=[types.TextContent(text="the tape is torn")], structured_content=facts, is_error=True
    )


async def main():
    server = Server("reporter", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
"""


def tell_results(body: dict[str, Any]) -> str:
    """The results in the prompt."""
    prompt = str(body["messages"][-1]["content"])
    return str(re.findall(r"<results>\n(.*?)\n</results>", prompt, re.DOTALL)[-1])


@pytest.fixture
def plans(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The plans that the language model of `jarvis` writes, one a request."""
    written: list[str] = []
    script = {"plan": lambda _: written.pop(0), "respond": tell_results}
    with OpenAIDouble(script) as server:
        given = {"JARVIS_OFFLINE": "1", "JARVIS_BASE_URL": server.base_url, "JARVIS_MODEL": "double"}
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        yield written


@pytest.fixture
def serve(home: Path) -> Callable[[str], str]:
    """Write the program of a server and return its command."""

    def write(program: str) -> str:
        (home / "server.py").write_text(program, encoding="utf-8")
        return f"{sys.executable} server.py"

    return write


def test_tools_of_a_server_and_experts_of_the_hub_work_in_one_plan(plans: list[str]) -> None:
    rows: list[Row] = [
        ("photograph", [], {"animal": "cat"}),
        ("canny-control", [0], {"image": "<resource>-0"}),
        ("count_words", [], {"text": "one two three"}),
    ]
    plans.append(plan(*rows))
    result = jarvis("Photograph a cat and draw its edges. Count three words.", "--mcp", STUDIO, "--json")
    run = Run.model_validate_json(result.stdout)
    assert [(one.task.task, one.error) for one in run.results] == [(task, None) for task, *_ in rows]
    (edges,) = run.results[1].paths()
    with Image.open(edges) as image:
        assert image.size == (451, 300), "the edges are those of the server's picture"
    assert run.results[2].output == 3
    assert result.exit_code == 0


def test_a_server_keeps_its_state_between_requests(plans: list[str], serve: Callable[[str], str]) -> None:
    plans += [plan(("count_calls", [], {}))] * 2
    result = jarvis("chat", "--mcp", serve(COUNTER), stdin="Count.\nCount again.\n")
    assert re.findall(r'"count_calls".*?"text": "(\d)"', result.stdout) == ["1", "2"]


def test_structured_content_is_a_text_sound_is_a_file_and_questions_are_declined(
    plans: list[str], serve: Callable[[str], str]
) -> None:
    rows: list[Row] = [(name, [], {}) for name in ("measure", "count_words", "fail", "sing", "greet")]
    rows[1] = ("count_words", [0], {"text": "<resource>-0"})
    plans.append(plan(*rows))
    result = jarvis("Measure it.", "--mcp", serve(REPORTER), "--mcp", STUDIO, "--json")
    run = Run.model_validate_json(result.stdout)
    measured, counted, failed, recorded, greeted = run.results
    assert measured.output == {"meters": 12, "place": "measure"}
    assert '"meters": 12' in run.answer
    assert counted.output == 4
    assert failed.error == 'the tape is torn\n{"meters": 12, "place": "fail"}'
    assert failed.output == {"meters": 12, "place": "fail"}
    assert [resource.kind for resource in recorded.resources] == ["audio"]
    assert greeted.output == "decline"


def test_a_settings_file_of_the_directory_is_not_read(home: Path) -> None:
    (home / ".env").write_text("FASTMCP_LOG_LEVEL=nonsense\n", encoding="utf-8")
    command = [sys.executable, "-m", "jarvis_agent", "Do it.", "--mcp", "no-such-program"]
    told = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert "'no-such-program'" in told.stderr
    assert "nonsense" not in told.stderr


def test_a_server_that_ends_fails_its_tasks_alone(plans: list[str], serve: Callable[[str], str]) -> None:
    plans.append(plan(("end", [], {}), ("count_calls", [0], {}), ("count_words", [], {"text": "a"})))
    options = ["--mcp", serve(COUNTER), "--mcp", STUDIO, "--json"]
    result = jarvis("End the server, and count.", *options)
    ended, skipped, counted = json.loads(result.stdout)["results"]
    assert ended["error"] == f'the MCP server "{sys.executable} server.py" failed: Connection closed'
    assert (skipped["status"], counted["output"]) == ("skipped", 1)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("no-such-program x", "cannot be started: [Errno 2] No such file or directory: 'no-such-program'"),
        ("'no end", "cannot be started: No closing quotation"),
        ("", "cannot be started: the command is empty"),
        (f"{sys.executable} -c 1/0", "is no MCP server: ZeroDivisionError: division by zero"),
        (f"{sys.executable} -c 0", "is no MCP server: Connection closed"),
    ],
)
def test_a_command_that_is_no_server_is_a_usage_error(command: str, problem: str, plans: list[str]) -> None:
    result = jarvis("Do it.", "--mcp", command)
    assert result.stderr == f'jarvis: --mcp "{command}" {problem}\n'
    assert result.exit_code == 2


def test_a_server_without_tools_and_two_tools_of_one_name_are_usage_errors(
    plans: list[str], serve: Callable[[str], str]
) -> None:
    bare = serve("from mcp.server.mcpserver import MCPServer\nMCPServer('bare').run()\n")
    result = jarvis("Do it.", "--mcp", bare)
    assert result.stderr == f'jarvis: --mcp "{bare}": the server has no tools\n'
    assert result.exit_code == 2
    result = jarvis("chat", "--mcp", STUDIO, "--mcp", STUDIO)
    assert result.stderr == "jarvis: two tools have the name 'photograph'; names must be unique in a plan\n"
    assert result.exit_code == 2


def test_a_server_that_does_not_answer_is_given_up(plans: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from jarvis_agent.interfaces.cli import mcp_servers

    monkeypatch.setattr(mcp_servers, "START_TIMEOUT_S", 0.1)
    silent = f"{sys.executable} -c 'import sys; sys.stdin.read()'"
    result = jarvis("Do it.", "--mcp", silent)
    assert result.stderr == f'jarvis: --mcp "{silent}" did not answer within 0.1 s\n'
