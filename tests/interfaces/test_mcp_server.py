"""The tools and the agent for MCP clients: the official client, FastMCP's and langchain.mcp.

Clients of both eras: with sessions, and with none over HTTP (since the revision of July 2026).
"""

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import fastmcp
import httpx2
import jsonschema
import pytest
from blocking import guarded
from command_line import jarvis
from fastmcp.client.transports import StreamableHttpTransport
from langchain_core._api import suppress_langchain_beta_warning
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool
from mcp import Client, MCPError, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamable_http_client
from mcp.types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from PIL import Image
from processes import started
from served import ANSWER, CAT, agent_of, endless_expert, listening, plan_for, script_of
from waiting import until

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import CLONE, MissingExtraError
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.core.types import Resource
from jarvis_agent.interfaces.common.uploads_and_outputs import PublicNames
from jarvis_agent.interfaces.mcp import run_http, run_stdio
from jarvis_agent.interfaces.mcp.server import McpWorkspace, _working_directory, make_http_app
from jarvis_agent.testing import ScriptedLLM

with suppress_langchain_beta_warning():
    from langchain.mcp import MCPAdapter

ERAS = ("legacy", "auto")
both_eras = pytest.mark.parametrize("era", ERAS)
ROOT = Path(__file__).parents[2]
DATA = f"data:image/jpeg;base64,{base64.b64encode(CAT.read_bytes()).decode()}"
NOISY = """
import asyncio, os, sys
from pathlib import Path
from jarvis_agent.interfaces.mcp import run_stdio
sys.path.insert(0, {tests!r})
from small_agents import small_agent

async def noisy(call):
    print("printed"), os.write(1, b"written")
    return [{{"generated_text": "a tabby cat"}}]

async def never(call):
    Path("entered").touch()
    try:
        await asyncio.sleep(3600)
    finally:
        Path("stopped").touch()

experts = {{"image-to-text": noisy, "canny-control": never}}
run_stdio(small_agent("[]", experts, settings={{"output_dir": Path("out")}})[0])
"""


def texts(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def cancel_next(client: Client, entered: Callable[[], bool], name: str, args: Any) -> None:
    """Call a tool, and cancel the call once it runs."""
    call = asyncio.ensure_future(client.call_tool(name, args))
    await until(entered)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def process(folder: Path, *args: str) -> dict[str, Any]:
    """The parameters of a server that is a process of its own, in a folder with cat.jpg."""
    shutil.copy(CAT, folder / "cat.jpg")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {"PYTHONPATH": paths, "JARVIS_OFFLINE": "1", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    return {"command": sys.executable, "args": list(args), "cwd": folder, "env": env}


@asynccontextmanager
async def serving(agent: JarvisAgent, *keys: str, **limits: int) -> AsyncIterator[str]:
    """The URL of a server on loopback."""
    settings = ServerSettings(api_keys=keys, allowed_hosts=("127.0.0.1",), **limits)
    with listening(make_http_app(agent, settings), grace=1) as url:
        yield f"{url}/mcp"


@asynccontextmanager
async def connected(url: str, key: str = "", era: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        assert (client.protocol_version in MODERN_PROTOCOL_VERSIONS) == (era == "auto")
        yield client


@pytest.mark.slow
async def test_the_command_serves_tools_and_the_agent_over_stdio(tmp_path: Path) -> None:
    command = process(tmp_path, "-m", "jarvis_agent", "mcp", "--model", "none")
    async with Client(StdioServerParameters(**command), mode="auto", read_timeout_seconds=60) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"jarvis", "canny-control"} <= tools.keys()
        assert tools["canny-control"].input_schema["required"] == ["image"]
        assert tools["jarvis"].input_schema["required"] == ["request"]

        drawn = await client.call_tool("canny-control", {"image": "cat.jpg"})
        (picture,) = [block for block in drawn.content if isinstance(block, types.ImageContent)]
        assert not drawn.is_error
        assert picture.mime_type == "image/png"
        assert base64.b64decode(picture.data).startswith(b"\x89PNG")
        (listed,) = (await client.list_resources()).resources
        read = (await client.read_resource(listed.uri)).contents[0]
        assert isinstance(read, types.BlobResourceContents)
        assert read.blob == picture.data
        again = await client.call_tool("canny-control", {"image": listed.uri})
        assert not again.is_error

        steps: list[tuple[float, float | None, str | None]] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total, message))

        asked = await client.call_tool(
            "jarvis", {"request": "Draw the outlines of cat.jpg"}, progress_callback=on_progress
        )
        assert not asked.is_error, texts(asked)
        assert [block.type for block in asked.content] == ["text", "image"]
        assert [step[0] for step in steps] == sorted({step[0] for step in steps})
        assert "canny-control" in str(steps)
        refused = await client.call_tool("canny-control", {"image": "/etc/passwd"})
        assert refused.is_error
        assert "may not read 'passwd'" in texts(refused)


@pytest.mark.slow
def test_ctrl_c_ends_a_server_that_waits_for_its_client(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"print('ready', flush=True)\n{NOISY.format(tests=str(ROOT / 'tests'))}"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    hello = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    with started(command, cwd=tmp_path, env=env, **pipes) as server:
        server.stdin.write(hello)
        server.stdin.flush()
        lines = [server.stdout.readline(), server.stdout.readline()]
        server.send_signal(signal.SIGINT)
        assert server.wait(120) != 0
    assert lines[0] == "ready\n"
    assert '"id":1' in lines[1]


@pytest.mark.slow
@both_eras
async def test_stdout_carries_the_protocol_alone_and_a_cancelled_call_ends(tmp_path: Path, era: str) -> None:
    server = process(tmp_path, "-c", NOISY.format(tests=str(ROOT / "tests")))
    with (tmp_path / "stderr").open("w") as log:
        async with Client(stdio_client(StdioServerParameters(**server), errlog=log), mode=era) as client:
            told = await client.call_tool("image-to-text", {"image": "cat.jpg"})
            assert texts(told) == "a tabby cat"
            entered = (tmp_path / "entered").exists
            await cancel_next(client, entered, "canny-control", {"image": "cat.jpg"})
            await until((tmp_path / "stopped").exists)
            assert texts(await client.call_tool("image-to-text", {"image": "cat.jpg"})) == "a tabby cat"
    shown = (tmp_path / "stderr").read_text()
    assert "printed" in shown
    assert "written" in shown


@both_eras
async def test_over_http_a_client_reads_what_it_made_and_nothing_else(tmp_path: Path, era: str) -> None:
    agent = agent_of(tmp_path / "out", allowed_dirs=(tmp_path,), max_file_bytes=1_000_000)
    secret = tmp_path / "secret.jpg"
    shutil.copy(CAT, secret)
    async with (
        serving(agent, "one", "two") as url,
        connected(url, "one", era) as client,
        connected(url, "two", era) as other,
    ):
        drawn = await client.call_tool("canny-control", {"image": DATA})
        assert [block.type for block in drawn.content] == ["text", "image"]
        assert drawn.structured_content is not None
        (made,) = (await client.list_resources()).resources
        assert (await client.read_resource(made.uri)).contents
        told = await client.call_tool("image-to-text", {"image": f" {made.uri}".replace("jarvis://", "")})
        assert texts(told) == "a tabby cat"
        script_of(agent)["plan"] = plan_for(Path(made.uri).name)
        asked = await client.call_tool("jarvis", {"request": "What is it?", "files": [made.uri]})
        assert texts(asked).startswith(ANSWER)
        assert isinstance(agent.model, ScriptedLLM)
        agent.model.calls.clear()
        await client.call_tool("jarvis", {"request": f"What is in {made.uri}?"})
        (path,) = (tmp_path / "out" / "mcp").rglob(Path(made.uri).name)
        assert f"What is in {path}?" in agent.model.calls[0].prompt

        assert (await other.list_resources()).resources == []
        for uri in (made.uri, secret.as_uri(), "file:///etc/passwd", "jarvis:x"):
            with pytest.raises(MCPError, match="no file of yours") as caught:
                await other.read_resource(uri)
            assert (caught.value.code, list(caught.value.data)) == (-32602, ["uri"])
        foreign = [str(path) for path in (tmp_path / "out" / "mcp").rglob("*canny*.png")]
        assert foreign
        names = [str(secret), "secret.jpg", "/etc/passwd", made.uri, Path(made.uri).name]
        for name in [*names, *foreign]:
            for tool_name, args in (
                ("image-to-text", {"image": name}),
                ("jarvis", {"request": "Describe it", "files": [name]}),
            ):
                refused = await other.call_tool(tool_name, args)
                assert refused.is_error, (tool_name, name)
        shown = "".join(texts(result) for result in (drawn, told, asked, refused))
        assert str(tmp_path) not in shown + str(drawn.structured_content)


@both_eras
async def test_over_http_two_connections_of_a_key_share_files(tmp_path: Path, era: str) -> None:
    agent = agent_of(tmp_path / "out", max_file_bytes=1_000_000)
    async with serving(agent, "one", "two") as url:
        async with connected(url, "one", era) as client:
            await client.call_tool("canny-control", {"image": DATA})
            (made,) = (await client.list_resources()).resources
        for key in ("one", "two"):
            async with connected(url, key, era) as other:
                listed = [resource.uri for resource in (await other.list_resources()).resources]
                described = await other.call_tool("image-to-text", {"image": made.uri})
            assert listed == ([made.uri] if key == "one" else [])
            assert described.is_error == (key == "two")


async def test_over_http_the_files_of_a_key_are_deleted_run_by_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jarvis_agent.interfaces.common.uploads_and_outputs.SWEEP_S", 0.01)
    monkeypatch.setattr(Path, "glob", guarded(Path.glob, "glob", []))  # a slow disk stops no request
    agent = agent_of(tmp_path / "out", max_file_bytes=1_000_000)
    async with serving(agent) as url, connected(url) as client:
        await client.call_tool("canny-control", {"image": DATA})
        (old,) = (tmp_path / "out" / "mcp" / "local").iterdir()
        await client.call_tool("canny-control", {"image": DATA})
        for path in (*old.iterdir(), old):
            os.utime(path, (0, 0))
        await until(lambda: not old.exists())
        old_one, new = (await client.list_resources()).resources
        assert (await client.read_resource(new.uri)).contents
        with pytest.raises(MCPError, match="no file of yours"):
            await client.read_resource(old_one.uri)


async def test_sound_is_an_embedded_resource_and_large_or_other_files_are_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_of(tmp_path) as agent:
        workspace = McpWorkspace(agent.copy(settings={"output_dir": tmp_path / "out"}), PublicNames({}))
        (tmp_path / "out" / "run").mkdir(parents=True)
        rows = [("audio", "audio/wav"), ("table", "text/csv"), ("video", "video/mp4"), ("image", "image/png")]
        resources = []
        for kind, mime in rows:
            path = tmp_path / "out" / "run" / mime.replace("/", ".")
            path.write_bytes(b"content")
            resources.append(Resource(kind=kind, path=path, mime=mime))
        outside = Resource(kind="image", path=CAT, mime="image/jpeg")
        link = tmp_path / "out" / "run" / "link.jpg"
        link.symlink_to(CAT)
        blocks = workspace.blocks([*resources, outside, outside.model_copy(update={"path": link})])
        monkeypatch.setattr("jarvis_agent.interfaces.mcp.server.MAX_INLINE_BYTES", 10)
        large = workspace.blocks(resources)
    assert [block.type for block in large] == ["resource", "resource_link", "resource_link", "resource_link"]
    assert [block.type for block in blocks] == ["resource", "resource_link", "resource_link", "image"]
    assert isinstance(blocks[0], types.EmbeddedResource)
    sound = blocks[0].resource
    assert (sound.uri, sound.mime_type) == ("jarvis:///outputs/run/audio.wav", "audio/wav")
    assert isinstance(blocks[1], types.ResourceLink)
    assert (blocks[1].uri, blocks[1].size) == ("jarvis:///outputs/run/text.csv", 7)
    assert [link.name for link in workspace.links] == ["audio.wav", "text.csv", "video.mp4", "image.png"] * 2


async def test_errors_are_results_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    def weather(text: str) -> str:
        """Tell the weather."""
        raise OSError("the key sk-live-12345 was refused")

    monkeypatch.setattr("jarvis_agent.core.request.MAX_TEXT_BYTES", 99)
    agent = JarvisAgent(ScriptedLLM([]), tools=[weather], settings=Settings(output_dir=tmp_path))
    async with serving(agent) as url, connected(url) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["weather", "jarvis"]
        for name, args, reason in (
            ("whether", {}, "there is no tool 'whether'"),
            ("weather", {}, "text: Field required"),
            ("weather", {"text": "now"}, "internal error (OSError)"),
            ("jarvis", {"request": " "}, "the request is empty"),
            ("jarvis", {}, "the request is empty"),
            ("jarvis", {"request": "x" * 100}, "100 bytes of text"),
            ("jarvis", {"request": "x", "files": ["data:image/png;base64,!"]}, "not valid base64"),
        ):
            failed = await client.call_tool(name, args)
            assert failed.is_error
            assert reason in texts(failed)
            assert "sk-live" not in texts(failed)


@both_eras
async def test_a_task_that_is_called_again_has_another_seed(tmp_path: Path, era: str) -> None:
    def paint(call: Call) -> Image.Image:
        return Image.new("RGB", (1 + call.settings.seed, 1))

    agent = agent_of(tmp_path, {"text-to-image": paint})
    async with serving(agent) as url, connected(url, era=era) as client:
        drawn = [await client.call_tool("text-to-image", {"text": "a cat"}) for _ in range(3)]
    assert [one.structured_content["output"]["width"] for one in drawn if one.structured_content] == [1, 2, 3]


async def test_a_tool_that_tells_of_no_events_is_called_once(tmp_path: Path) -> None:
    class Silent(BaseTool):
        name: str = "silent"
        description: str = "Greet."

        def _run(self) -> str:
            return "unused"

        async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002
            return ToolMessage(f"hello {next(numbers)}", tool_call_id=input["id"])

    numbers = count(1)
    agent = JarvisAgent(ScriptedLLM([]), tools=[Silent()], settings=Settings(output_dir=tmp_path))
    async with serving(agent) as url, connected(url) as client:
        assert texts(await client.call_tool("silent", {})) == "hello 1"


@both_eras
async def test_cancelling_a_request_over_http_ends_its_run(tmp_path: Path, era: str) -> None:
    never, entered, stopped = endless_expert()
    plan = '[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "<file>"}}]'
    agent = agent_of(tmp_path, {"image-to-text": never}, plan, max_file_bytes=1_000_000)
    async with serving(agent) as url, connected(url, era=era) as client:
        asked = {"request": "Describe the picture.", "files": [DATA]}
        await cancel_next(client, entered.is_set, "jarvis", asked)
        assert await asyncio.to_thread(stopped.wait, 120)


@both_eras
async def test_leaving_over_http_ends_it(tmp_path: Path, caplog: pytest.LogCaptureFixture, era: str) -> None:
    never, entered, stopped = endless_expert()
    agent = agent_of(tmp_path, {"image-to-text": never}, max_file_bytes=1_000_000)
    async with serving(agent) as url:
        async with connected(url, era=era) as client:
            call = asyncio.ensure_future(client.call_tool("image-to-text", {"image": DATA}))
            assert await asyncio.to_thread(entered.wait, 120)
        assert await asyncio.to_thread(stopped.wait, 120)
        call.cancel()
    assert "Traceback" not in caplog.text


@both_eras
async def test_over_http_a_key_has_limits_of_runs(tmp_path: Path, era: str) -> None:
    agent = agent_of(tmp_path, max_file_bytes=1_000_000)
    async with (
        serving(agent, "one", "two", runs_per_minute=1) as url,
        connected(url, "one", era) as client,
        connected(url, "two", era) as other,
    ):
        answers = [await one.call_tool("jarvis", {"request": "Hello"}) for one in (client, client, other)]
    assert [answer.is_error for answer in answers] == [False, True, False]
    assert "at most 1 runs a minute" in texts(answers[1])


async def test_over_http_a_key_has_limited_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.interfaces.mcp.server.MAX_SESSIONS", 1)
    async with serving(agent_of(tmp_path), "one", "two") as url:
        async with connected(url, "one", "legacy"), connected(url, "two", "legacy") as other:
            with pytest.RaisesGroup(pytest.RaisesExc(MCPError, match="Too many"), flatten_subgroups=True):
                async with connected(url, "one", "legacy"):
                    pass
            assert (await other.list_tools()).tools
        async with connected(url, "one", "legacy") as again:
            assert (await again.list_tools()).tools


async def test_over_http_an_api_key_is_needed_and_owns_its_sessions(tmp_path: Path) -> None:
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    opening = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    accept = {"Accept": "application/json, text/event-stream"}
    async with (
        serving(agent_of(tmp_path), "one", "two") as url,
        httpx2.AsyncClient(headers=accept) as http,
    ):

        async def send(key: str, session: str = "", body: Any = None) -> httpx2.Response:
            """POST a body; without one, end the session."""
            headers = {"Authorization": f"Bearer {key}"} | ({"Mcp-Session-Id": session} if session else {})
            return await http.request("POST" if body else "DELETE", url, json=body, headers=headers)

        session = (await send("one", body=opening)).headers["mcp-session-id"]
        answers = [await send(key, session, ask) for key in ("two", "wrong", "one")]
        answers += [await send("two", session), await send("one", session, ask)]
        answers += [await send("one", session), await send("one", session, ask)]
        for era in ERAS:
            async with connected(url, "one", era) as client:
                assert "jarvis" in [tool.name for tool in (await client.list_tools()).tools]
            with pytest.raises((MCPError, ExceptionGroup)):
                async with connected(url, "wrong", era):
                    pass
    assert [answer.status_code for answer in answers] == [404, 401, 200, 404, 200, 200, 404]


async def test_other_hosts_pages_and_large_bodies_are_refused(tmp_path: Path) -> None:
    async with serving(agent_of(tmp_path)) as url, httpx2.AsyncClient() as client:
        headers = {"Accept": "application/json, text/event-stream"}
        statuses = [
            (await client.post(url, json={}, headers=headers | more)).status_code
            for more in ({"Host": "evil.example"}, {"Origin": "http://evil.example"})
        ]
        large = await client.post(url, content=b" " * 300_000, headers=headers)
        deep = await client.post(url, content=b"[" * 5_000 + b"]" * 5_000, headers=headers)
        assert [*statuses, large.status_code, deep.status_code] == [400, 403, 413, 413]


@both_eras
async def test_clients_of_fastmcp_and_langchain_call_the_tools(tmp_path: Path, era: Any) -> None:
    sound = {"audio": [0.0] * 800, "sampling_rate": 8000}
    experts = {"canny-control": Image.new("L", (8, 8)), "text-to-speech": sound}
    agent = agent_of(tmp_path, experts, max_file_bytes=1_000_000)
    steps: list[str] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append(str(message))

    async def decline(*question: Any) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with serving(agent, "key") as url:
        handlers: Any = {"progress_handler": on_progress, "elicitation_handler": decline}
        client = fastmcp.Client(StreamableHttpTransport(url, auth="key"), mode=era, **handlers)
        async with MCPAdapter(client) as adapter:
            tools = {tool.name: tool for tool in await adapter.list_tools()}
            call = {"type": "tool_call", "name": "canny-control", "args": {"image": DATA}, "id": "1"}
            message = await tools["canny-control"].ainvoke(call)
            asked = await tools["jarvis"].ainvoke({"request": "Good morning!"})
            _, file = await tools["text-to-speech"].ainvoke({"text": "hello"})
            link, _ = await client.list_resources()
            (read,) = await client.read_resource(link.uri)
    assert [block["type"] for block in message.content] == ["text", "image"]
    assert message.artifact["structured_content"]["model"] == "fake/canny-control"
    assert asked[0]["text"] == "Good morning."
    assert (file["type"], file["mime_type"]) == ("file", "audio/wav")
    assert base64.b64decode(file["base64"]).startswith(b"RIFF")
    assert getattr(read, "blob", "") == message.content[1]["base64"]
    assert "running fake/canny-control" in steps


@pytest.mark.parametrize("is_open", [True, False])
async def test_tools_say_what_they_do_and_give(tmp_path: Path, is_open: bool) -> None:
    @tool
    def weather(text: str) -> str:
        """Tell the weather."""
        return "rain"

    limits: dict[str, Any] = {} if is_open else {"offline": True, "policy": "local-only"}
    agent = agent_of(tmp_path, max_file_bytes=1_000_000, **limits)
    async with serving(agent) as url, connected(url) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        task = tools["canny-control"]
        assert task.title == "Canny control"
        assert task.annotations == types.ToolAnnotations(read_only_hint=True, open_world_hint=is_open)
        drawn = await client.call_tool("canny-control", {"image": DATA})
        asked = await client.call_tool("jarvis", {"request": "Good morning!"})
        assert asked.structured_content == {"answer": "Good morning.", "ok": True}
        for name, result in (("canny-control", drawn), ("jarvis", asked)):
            schema = tools[name].output_schema
            assert schema is not None
            jsonschema.validate(result.structured_content, schema)
    custom = JarvisAgent(ScriptedLLM([]), tools=[weather], settings=Settings(output_dir=tmp_path))
    async with serving(custom) as url, connected(url) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert (listed["weather"].annotations, listed["weather"].output_schema) == (None, None)


def test_a_server_started_in_the_root_directory_does_not_read_the_whole_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert _working_directory() == []
    monkeypatch.chdir(tmp_path)
    assert _working_directory() == [tmp_path]


def test_a_missing_extra_is_named_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with agent_of(tmp_path) as agent:
        for run in (run_stdio, run_http):
            with pytest.raises(MissingExtraError, match=r"\[mcp\]"):
                run(agent)


def test_the_printed_configuration_starts_the_server_for_each_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = jarvis("mcp", "--print-config", "--policy", "local-only", "--out", "made")
    blocks = [text[text.index("{") :] for text in printed.stdout.split("\n\n")]
    configurations = [json.loads(block) for block in blocks]
    assert [list(each) for each in configurations] == [["mcpServers"], ["servers"], ["context_servers"]]
    (started,) = {json.dumps(each[key]["jarvis"]) for each in configurations for key in each}
    server = json.loads(started)
    assert server["env"] == {"JARVIS_ALLOWED_DIRS": str(tmp_path), "JARVIS_OUTPUT_DIR": f"{tmp_path}/made"}
    command = [server["command"], *server["args"], "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "MCP clients" in done.stdout, done.stderr
    assert "--policy=local-only" in command
    assert printed.stderr == ""
    monkeypatch.setitem(sys.modules, "mcp", None)
    unusable = jarvis("mcp", "--print-config", "--policy", "local-only", "--out", "made")
    assert (unusable.exit_code, unusable.stdout) == (0, printed.stdout)
    assert f"{CLONE}[mcp]" in unusable.stderr
    refused = jarvis("mcp", "--print-config", "--http")
    assert (refused.exit_code, "http://127.0.0.1:8000/mcp" in refused.stderr) == (2, True)
