"""LangChain tools as tasks: tools that hang or exit, and the files of their results."""

import asyncio
import base64
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from langchain_core.tools import BaseTool, ToolException, tool
from small_agents import Row, picture, plan

from jarvis_agent import JarvisAgent, Resource, Settings, Task, TaskResult
from jarvis_agent.core.context import RunContext
from jarvis_agent.execution.inputs import TaskCall
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.tools.langchain_task import LangChainTask


def agent_with(given: BaseTool, tmp_path: Path, calls: int = 1, **settings: Any) -> JarvisAgent:
    rows: list[Row] = [(given.name, [], {"text": str(number)}) for number in range(calls)]
    return JarvisAgent(
        ScriptedLLM({"plan": plan(*rows), "respond": "Done.", "chat": "Hello!"}),
        tools=[given],
        settings=Settings(output_dir=tmp_path / "out", context_window=128_000, **settings),
    )


async def result_of(given: BaseTool, tmp_path: Path, **settings: Any) -> TaskResult:
    async with asyncio.timeout(120):
        run = await agent_with(given, tmp_path, **settings).ainvoke("Do it")
    return run.results[0]


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def image_block(data: str) -> dict[str, Any]:
    return {"type": "image", "base64": data, "mime_type": "image/png"}


async def test_tools_that_hang_block_no_other_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more of them than threads in the event loop's own pool."""
    release = threading.Event()

    @tool
    def stuck(text: str) -> str:
        """Wait."""
        release.wait()
        return text

    try:
        monkeypatch.setattr("jarvis_agent.execution.executor.MAX_PARALLEL", 40)
        agent = agent_with(stuck, tmp_path, 40, task_timeout=0.3)
        async with asyncio.timeout(60):
            run = await agent.ainvoke("Do it")
            assert {result.status for result in run.results} == {"failed"}
            assert "JARVIS_TASK_TIMEOUT" in (run.results[0].error or "")
            assert await asyncio.to_thread(str, "there is a thread left")
    finally:
        release.set()


async def test_a_tool_that_exits_fails_only_its_task(tmp_path: Path) -> None:
    @tool
    def leave(text: str) -> str:
        """Exit."""
        sys.exit(3)

    @tool
    async def leave_later(text: str) -> str:
        """Exit."""
        raise GeneratorExit

    for exiting, error in ((leave, "SystemExit: 3"), (leave_later, "GeneratorExit")):
        assert error in ((await result_of(exiting, tmp_path)).error or "")


async def test_a_tool_with_only_a_sync_run_method_works_in_a_thread(tmp_path: Path) -> None:
    class Echo(BaseTool):
        name: str = "echo"
        description: str = "Repeat the text."

        def _run(self, text: str) -> str:
            return f"{text} {threading.current_thread() is threading.main_thread()}"

    assert (await result_of(Echo(), tmp_path)).output == "0 False"


async def test_a_text_result_starts_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    async def echo(text: str) -> str:
        """Repeat the text."""
        return text

    task = Task(task="echo", id=0, args={"text": "hello"})
    settings = Settings(output_dir=tmp_path)
    call = TaskCall(task, task.args, RunContext(request=""), tmp_path.joinpath, settings)
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=AssertionError("a thread was started")))
    result = await LangChainTask(echo).run(None, call)
    assert result.resources == [Resource(kind="text", text="hello")]


async def test_keys_in_an_error_are_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEATHER_API_KEY", "abc-def-12345")

    @tool
    async def weather(text: str) -> str:
        """Tell the weather."""
        raise ToolException("401 for key abc-def-12345")

    weather.handle_tool_error = True
    assert (await result_of(weather, tmp_path)).error == "401 for key (key)"


async def test_the_files_of_a_result_are_kept_unless_one_is_broken(tmp_path: Path) -> None:
    data = base64.b64encode(picture(tmp_path / "x.png").read_bytes()).decode()
    for number, second in enumerate((data, "AAA", "AAAA!", "")):

        @tool
        async def draw(text: str, second: str = second) -> list[Any]:
            """Draw two images."""
            return [image_block(data), image_block(second)]

        result = await result_of(draw, tmp_path / str(number))
        expected = ("ok", ["image", "image"], 2) if second == data else ("failed", [], 0)
        kinds = [resource.kind for resource in result.resources]
        assert (result.status, kinds, len(files(tmp_path / str(number)))) == expected, second


async def test_a_file_written_too_late_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = base64.b64encode(picture(tmp_path / "x.png").read_bytes()).decode()
    release, write = threading.Event(), Path.write_bytes

    @tool
    async def draw(text: str) -> list[Any]:
        """Draw an image."""
        return [image_block(data)]

    def write_late(path: Path, content: bytes) -> int:
        release.wait(20)
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_late)
    result = await result_of(draw, tmp_path, task_timeout=0.3)
    assert "JARVIS_TASK_TIMEOUT" in (result.error or "")
    release.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert not files(tmp_path)


async def test_a_too_large_file_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    async def draw(text: str) -> list[Any]:
        """Return a large file."""
        return [image_block("A" * 2000)]

    def decode(*_: Any) -> bytes:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(base64, "b64decode", decode)
    result = await result_of(draw, tmp_path, max_file_bytes=1000)
    assert "more than 1,000 bytes. What helps: JARVIS_MAX_FILE_BYTES" in (result.error or "")
