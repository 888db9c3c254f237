"""The tools and the agent for MCP clients: the official client and langchain-mcp-adapters."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
import uvicorn
from langchain_core.tools import tool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from PIL import Image
from pydantic import AnyUrl
from served import ANSWER, CAT, agent_of, endless_expert, plan_for

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.core.types import Resource
from jarvis_agent.interfaces.mcp import run_http, run_stdio
from jarvis_agent.interfaces.mcp.server import Session, _working_directory, make_http_app
from jarvis_agent.testing import ScriptedLLM

ROOT = Path(__file__).parents[2]
DATA = f"data:image/jpeg;base64,{base64.b64encode(CAT.read_bytes()).decode()}"
NOISY = """
import asyncio, os, sys
from pathlib import Path
from jarvis_agent.interfaces.mcp import run_stdio
sys.path.insert(0, {tests!r})
from served import agent_of

async def noisy(call):
    print("printed"), os.write(1, b"written")
    return [{{"generated_text": "a tabby cat"}}]

async def never(call):
    Path("entered").touch()
    try:
        await asyncio.sleep(3600)
    finally:
        Path("stopped").touch()

run_stdio(agent_of(Path("out"), {{"plan": "[]"}}, {{"image-to-text": noisy, "canny-control": never}}))
"""


def texts(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def until(happened: Callable[[], bool]) -> None:
    for _ in range(1200):
        if happened():
            return
        await asyncio.sleep(0.025)
    raise AssertionError("it does not happen")


async def cancel_next(client: ClientSession, entered: Callable[[], bool], name: str, args: Any) -> str:
    """Call a tool, cancel the call once it runs, and return the error that the client is told."""
    number = client._request_id
    call = asyncio.ensure_future(client.call_tool(name, args))
    await until(entered)
    params = types.CancelledNotificationParams(requestId=number)
    await client.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
    with pytest.raises(McpError) as caught:
        await asyncio.wait_for(call, 120)
    return str(caught.value)


def process(folder: Path, *args: str) -> dict[str, Any]:
    """The parameters of a server that is a process of its own, in a folder with cat.jpg."""
    shutil.copy(CAT, folder / "cat.jpg")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {"PYTHONPATH": paths, "JARVIS_OFFLINE": "1", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    return {"command": sys.executable, "args": list(args), "cwd": folder, "env": env}


@asynccontextmanager
async def listening(agent: JarvisAgent, *keys: str, **limits: int) -> AsyncIterator[str]:
    """The URL of a server on loopback."""
    settings = ServerSettings(api_keys=keys, allowed_hosts=("127.0.0.1",), **limits)
    app = make_http_app(agent, settings)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    server.should_exit = True
    await serving


@asynccontextmanager
async def connected(url: str, key: str = "") -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx.AsyncClient(headers=headers, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write) as client,
    ):
        await client.initialize()
        yield client


@pytest.mark.slow
async def test_the_command_serves_tools_and_the_agent_over_stdio(tmp_path: Path) -> None:
    """In a session of langchain-mcp-adapters, whose tools work too."""
    command = process(tmp_path, "-m", "jarvis_agent", "mcp", "--model", "none")
    session: Any = {"read_timeout_seconds": timedelta(seconds=60)}
    server: Any = {"transport": "stdio", "session_kwargs": session, **command}
    async with MultiServerMCPClient({"jarvis": server}).session("jarvis") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"jarvis", "canny-control"} <= tools.keys()
        assert tools["canny-control"].inputSchema["required"] == ["image"]
        assert tools["jarvis"].inputSchema["required"] == ["request"]

        drawn = await client.call_tool("canny-control", {"image": "cat.jpg"})
        (picture,) = [block for block in drawn.content if isinstance(block, types.ImageContent)]
        assert not drawn.isError
        assert picture.mimeType == "image/png"
        assert base64.b64decode(picture.data).startswith(b"\x89PNG")
        (listed,) = (await client.list_resources()).resources
        read = (await client.read_resource(listed.uri)).contents[0]
        assert isinstance(read, types.BlobResourceContents)
        assert read.blob == picture.data
        again = await client.call_tool("canny-control", {"image": str(listed.uri)})
        assert not again.isError

        steps: list[tuple[float, float | None, str | None]] = []

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total, message))

        asked = await client.call_tool(
            "jarvis", {"request": "Draw the outlines of cat.jpg"}, progress_callback=on_progress
        )
        assert not asked.isError, texts(asked)
        assert [block.type for block in asked.content] == ["text", "image"]
        assert [step[0] for step in steps] == sorted({step[0] for step in steps})
        assert "canny-control" in str(steps)
        refused = await client.call_tool("canny-control", {"image": "/etc/passwd"})
        assert refused.isError
        assert "may not read 'passwd'" in texts(refused)

        loaded = {tool.name: tool for tool in await load_mcp_tools(client)}
        text, image = await loaded["jarvis"].ainvoke({"request": "Draw the outlines of cat.jpg"})
        assert text["type"] == "text"
        assert base64.b64decode(image["base64"]).startswith(b"\x89PNG")
        assert "may not read" in str(await loaded["canny-control"].ainvoke({"image": "/etc/passwd"}))


@pytest.mark.slow
def test_ctrl_c_ends_a_server_that_waits_for_its_client(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"print('ready', flush=True)\n{NOISY.format(tests=str(ROOT / 'tests'))}"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    hello = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    with subprocess.Popen(command, cwd=tmp_path, env=env, text=True, **pipes) as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write(hello)
        server.stdin.flush()
        lines = [server.stdout.readline(), server.stdout.readline()]
        server.send_signal(signal.SIGINT)
        assert server.wait(120) != 0
    assert lines[0] == "ready\n"
    assert '"id":1' in lines[1]


@pytest.mark.slow
async def test_stdout_carries_the_protocol_alone_and_a_cancelled_call_ends(tmp_path: Path) -> None:
    server = process(tmp_path, "-c", NOISY.format(tests=str(ROOT / "tests")))
    with (tmp_path / "stderr").open("w") as log:
        streams = stdio_client(StdioServerParameters(**server), errlog=log)
        async with streams as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            told = await client.call_tool("image-to-text", {"image": "cat.jpg"})
            assert texts(told) == "a tabby cat"
            entered = (tmp_path / "entered").exists
            assert "cancel" in await cancel_next(client, entered, "canny-control", {"image": "cat.jpg"})
            await until((tmp_path / "stopped").exists)
            assert texts(await client.call_tool("image-to-text", {"image": "cat.jpg"})) == "a tabby cat"
    shown = (tmp_path / "stderr").read_text()
    assert "printed" in shown
    assert "written" in shown


async def test_over_http_a_client_reads_what_its_session_made_and_nothing_else(tmp_path: Path) -> None:
    script = {"plan": "[]"}
    agent = agent_of(tmp_path / "out", script, allowed_dirs=(tmp_path,), max_file_bytes=1_000_000)
    secret = tmp_path / "secret.jpg"
    shutil.copy(CAT, secret)
    async with listening(agent) as url, connected(url) as client, connected(url) as other:
        drawn = await client.call_tool("canny-control", {"image": DATA})
        assert [block.type for block in drawn.content] == ["text", "image"]
        assert drawn.structuredContent is not None
        (made,) = (await client.list_resources()).resources
        assert (await client.read_resource(made.uri)).contents
        told = await client.call_tool("image-to-text", {"image": f" {made.uri}".replace("jarvis://", "")})
        assert texts(told) == "a tabby cat"
        script["plan"] = plan_for(Path(str(made.uri)).name)
        asked = await client.call_tool("jarvis", {"request": "What is it?", "files": [str(made.uri)]})
        assert texts(asked).startswith(ANSWER)
        assert isinstance(agent.model, ScriptedLLM)
        agent.model.calls.clear()
        await client.call_tool("jarvis", {"request": f"What is in {made.uri}?"})
        (path,) = (tmp_path / "out" / "mcp").rglob(Path(str(made.uri)).name)
        assert f"What is in {path}?" in agent.model.calls[0].prompt

        assert (await other.list_resources()).resources == []
        for uri in (str(made.uri), secret.as_uri(), "file:///etc/passwd", "jarvis:x"):
            with pytest.raises(McpError, match="no file of this session") as caught:
                await other.read_resource(AnyUrl(uri))
            assert (caught.value.error.code, list(caught.value.error.data)) == (-32602, ["uri"])
        foreign = [str(path) for path in (tmp_path / "out" / "mcp").rglob("*canny*.png")]
        assert foreign
        names = [str(secret), "secret.jpg", "/etc/passwd", str(made.uri), Path(str(made.uri)).name]
        for name in [*names, *foreign]:
            for tool_name, args in (
                ("image-to-text", {"image": name}),
                ("jarvis", {"request": "Describe it", "files": [name]}),
            ):
                refused = await other.call_tool(tool_name, args)
                assert refused.isError, (tool_name, name)
        shown = "".join(texts(result) for result in (drawn, told, asked, refused))
        assert str(tmp_path) not in shown + str(drawn.structuredContent)


async def test_sound_is_an_embedded_resource_and_other_files_are_links(tmp_path: Path) -> None:
    async with agent_of(tmp_path, {}) as agent:
        session = Session(agent, tmp_path / "out")
        (tmp_path / "out" / "run").mkdir(parents=True)
        kinds = [
            ("audio", "audio/wav"),
            ("table", "text/csv"),
            ("video", "video/mp4"),
            ("image", "image/png"),
        ]
        resources = []
        for kind, mime in kinds:
            path = tmp_path / "out" / "run" / mime.replace("/", ".")
            path.write_bytes(b"content")
            resources.append(Resource(kind=kind, path=path, mime=mime))
        outside = Resource(kind="image", path=CAT, mime="image/jpeg")
        link = tmp_path / "out" / "run" / "link.jpg"
        link.symlink_to(CAT)
        blocks = session.blocks([*resources, outside, outside.model_copy(update={"path": link})])
    assert [block.type for block in blocks] == ["resource", "resource_link", "resource_link", "image"]
    assert isinstance(blocks[0], types.EmbeddedResource)
    assert (str(blocks[0].resource.uri), blocks[0].resource.mimeType) == (
        "jarvis:///outputs/run/audio.wav",
        "audio/wav",
    )
    assert isinstance(blocks[1], types.ResourceLink)
    assert (str(blocks[1].uri), blocks[1].size) == ("jarvis:///outputs/run/text.csv", 7)
    assert [link.name for link in session.links] == ["audio.wav", "text.csv", "video.mp4", "image.png"]


async def test_errors_are_results_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    def weather(text: str) -> str:
        """Tell the weather."""
        raise OSError("the key sk-live-12345 was refused")

    monkeypatch.setattr("jarvis_agent.core.request.MAX_TEXT_BYTES", 99)
    agent = JarvisAgent(ScriptedLLM([]), tools=[weather], settings=Settings(output_dir=tmp_path))
    async with listening(agent) as url, connected(url) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["weather", "jarvis"]
        for name, args, reason in (
            ("whether", {}, "there is no tool 'whether'"),
            ("weather", {}, "'text' is a required property"),
            ("weather", {"text": "now"}, "internal error (OSError)"),
            ("jarvis", {"request": " "}, "the request is empty"),
            ("jarvis", {"request": "x" * 100}, "100 bytes of text"),
            ("jarvis", {"request": "x", "files": ["data:image/png;base64,!"]}, "not valid base64"),
        ):
            failed = await client.call_tool(name, args)
            assert failed.isError
            assert reason in texts(failed)
            assert "sk-live" not in texts(failed)


async def test_cancelling_a_request_over_http_ends_its_run(tmp_path: Path) -> None:
    never, entered, stopped = endless_expert()
    script = {"plan": "[]"}
    agent = agent_of(tmp_path, script, {"image-to-text": never}, max_file_bytes=1_000_000)
    script["plan"] = '[{"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "<file>"}}]'
    async with listening(agent) as url, connected(url) as client:
        asked = {"request": "Describe the picture.", "files": [DATA]}
        assert "cancel" in await cancel_next(client, entered.is_set, "jarvis", asked)
        assert await asyncio.to_thread(stopped.wait, 120)


async def test_leaving_a_session_over_http_ends_its_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    never, entered, stopped = endless_expert()
    agent = agent_of(tmp_path, {}, {"image-to-text": never}, max_file_bytes=1_000_000)
    async with listening(agent) as url:
        async with connected(url) as client:
            call = asyncio.ensure_future(client.call_tool("image-to-text", {"image": DATA}))
            assert await asyncio.to_thread(entered.wait, 120)
        assert await asyncio.to_thread(stopped.wait, 120)
        call.cancel()
    assert "Traceback" not in caplog.text


async def test_over_http_a_key_has_limits_of_runs(tmp_path: Path) -> None:
    agent = agent_of(tmp_path, {"plan": "[]"}, max_file_bytes=1_000_000)
    async with (
        listening(agent, "one", "two", runs_per_minute=1) as url,
        connected(url, "one") as client,
        connected(url, "two") as other,
    ):
        answers = [await one.call_tool("jarvis", {"request": "Hello"}) for one in (client, client, other)]
    assert [answer.isError for answer in answers] == [False, True, False]
    assert "at most 1 runs a minute" in texts(answers[1])


async def test_over_http_a_key_has_a_limit_of_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jarvis_agent.interfaces.mcp.server.MAX_SESSIONS", 1)
    async with listening(agent_of(tmp_path, {"plan": "[]"}), "one", "two") as url:
        async with connected(url, "one"), connected(url, "two") as other:
            with pytest.raises(ExceptionGroup) as caught:
                async with connected(url, "one"):
                    pass
            assert caught.group_contains(httpx.HTTPStatusError, match="503")
            assert (await other.list_tools()).tools
        async with connected(url, "one") as again:
            assert (await again.list_tools()).tools


async def test_over_http_an_api_key_is_needed_and_owns_its_sessions(tmp_path: Path) -> None:
    ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream"}
    async with listening(agent_of(tmp_path, {"plan": "[]"}), "one", "two") as url:
        async with connected(url, "one") as client:
            assert "jarvis" in [tool.name for tool in (await client.list_tools()).tools]
        opening = {
            "jsonrpc": "2.0",
            "id": 0,
            "method": "initialize",
            "params": {
                "protocolVersion": types.LATEST_PROTOCOL_VERSION,
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        }
        async with httpx.AsyncClient(headers=accept) as http:

            async def post(body: Any, key: str, session: str = "") -> httpx.Response:
                headers = {"Authorization": f"Bearer {key}"} | (
                    {"Mcp-Session-Id": session} if session else {}
                )
                return await http.post(url, json=body, headers=headers)

            session = (await post(opening, "one")).headers["mcp-session-id"]
            answers = [
                await post(ask, "two", session),
                await post(ask, "wrong", session),
                await post(ask, "one", session),
            ]
    assert [answer.status_code for answer in answers] == [404, 401, 200]


async def test_other_hosts_pages_and_large_bodies_are_refused(tmp_path: Path) -> None:
    async with listening(agent_of(tmp_path, {"plan": "[]"})) as url, httpx.AsyncClient() as client:
        headers = {"Accept": "application/json, text/event-stream"}
        statuses = [
            (await client.post(url, json={}, headers=headers | more)).status_code
            for more in ({"Host": "evil.example"}, {"Origin": "http://evil.example"})
        ]
        large = await client.post(url, content=b" " * 300_000, headers=headers)
        deep = await client.post(url, content=b"[" * 5_000 + b"]" * 5_000, headers=headers)
        assert [*statuses, large.status_code, deep.status_code] == [400, 403, 413, 413]


async def test_langchain_mcp_adapters_load_and_call_the_tools(tmp_path: Path) -> None:
    sound = {"audio": [0.0] * 800, "sampling_rate": 8000}
    experts = {"canny-control": Image.new("L", (8, 8)), "text-to-speech": sound}
    agent = agent_of(tmp_path, {"plan": "[]"}, experts, max_file_bytes=1_000_000)
    async with listening(agent) as url:
        server: Any = {"transport": "streamable_http", "url": url}
        tools = {tool.name: tool for tool in await MultiServerMCPClient({"jarvis": server}).get_tools()}
        call = {"type": "tool_call", "name": "canny-control", "args": {"image": DATA}, "id": "1"}
        message = await tools["canny-control"].ainvoke(call)
        assert [block["type"] for block in message.content] == ["text", "image"]
        assert message.artifact["structured_content"]["model"] == "fake/canny-control"
        assert (await tools["jarvis"].ainvoke({"request": "Good morning!"}))[0]["text"] == "Good morning."
        _, file = await tools["text-to-speech"].ainvoke({"text": "hello"})
    assert (file["type"], file["mime_type"]) == ("file", "audio/wav")
    assert base64.b64decode(file["base64"]).startswith(b"RIFF")


@pytest.mark.parametrize("is_open", [True, False])
async def test_tools_say_what_they_do_and_give(tmp_path: Path, is_open: bool) -> None:
    @tool
    def weather(text: str) -> str:
        """Tell the weather."""
        return "rain"

    limits: dict[str, Any] = {} if is_open else {"offline": True, "policy": "local-only"}
    agent = agent_of(tmp_path, {"plan": "[]"}, max_file_bytes=1_000_000, **limits)
    async with listening(agent) as url, connected(url) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        task = tools["canny-control"]
        assert task.title == "Canny control"
        assert task.annotations == types.ToolAnnotations(readOnlyHint=True, openWorldHint=is_open)
        drawn = await client.call_tool("canny-control", {"image": DATA})
        asked = await client.call_tool("jarvis", {"request": "Good morning!"})
        assert asked.structuredContent == {"answer": "Good morning.", "ok": True}
        for name, result in (("canny-control", drawn), ("jarvis", asked)):
            schema = tools[name].outputSchema
            assert schema is not None
            jsonschema.validate(result.structuredContent, schema)
    custom = JarvisAgent(ScriptedLLM([]), tools=[weather], settings=Settings(output_dir=tmp_path))
    async with listening(custom) as url, connected(url) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert (listed["weather"].annotations, listed["weather"].outputSchema) == (None, None)


def test_a_server_started_in_the_root_directory_does_not_read_the_whole_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    assert _working_directory() == []
    monkeypatch.chdir(tmp_path)
    assert _working_directory() == [tmp_path]


def test_a_missing_extra_is_named_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with agent_of(tmp_path, {}) as agent:
        for run in (run_stdio, run_http):
            with pytest.raises(MissingExtraError, match=r"\[mcp\]"):
                run(agent)
