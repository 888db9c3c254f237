"""Any LangChain tool is a task: what it gives becomes resources, what hangs in it holds nobody else."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException, tool
from small_agents import picture, plan

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.testing import ScriptedLLM

QUICK: dict[str, Any] = {"max_replans": 0, "context_window": 128_000}


def agent_with(given: BaseTool, tmp_path: Path, calls: int = 1, **settings: Any) -> JarvisAgent:
    rows = [(given.name, [], {"text": str(number)}) for number in range(calls)]
    return JarvisAgent(
        ScriptedLLM({"plan": plan(*rows), "respond": "Done.", "chat": "Hello!"}),
        tools=[given],
        settings=Settings(output_dir=tmp_path / "out", **{**QUICK, **settings}),
    )


async def run_of(given: BaseTool, tmp_path: Path, **settings: Any) -> Run:
    async with asyncio.timeout(30):
        return await agent_with(given, tmp_path, **settings).ainvoke("Do it")


def files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def image_block(data: str) -> dict[str, Any]:
    return {"type": "image", "base64": data, "mime_type": "image/png"}


class TestThreads:
    async def test_tools_that_hang_hold_no_later_run(self, tmp_path: Path) -> None:
        """There are more of them than threads in the event loop's own pool."""
        let_go = threading.Event()

        @tool
        def stuck(text: str) -> str:
            """A call without a time limit."""
            let_go.wait()
            return text

        try:
            agent = agent_with(stuck, tmp_path, 40, max_parallel=40, task_timeout=0.3)
            async with asyncio.timeout(60):
                run = await agent.ainvoke("Do it")
                assert {result.status for result in run.results} == {"failed"}
                assert "JARVIS_TASK_TIMEOUT" in (run.results[0].error or "")
                assert await asyncio.to_thread(lambda: "there is a thread left") == "there is a thread left"
        finally:
            let_go.set()

    async def test_a_tool_that_never_comes_back_is_called_no_more(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each of its calls keeps a thread."""
        monkeypatch.setattr("jarvis_agent.tools.langchain_task.MAX_ABANDONED_CALLS", 2)
        let_go, calls = threading.Event(), []

        @tool
        def stuck(text: str) -> str:
            """A call without a time limit."""
            calls.append(text)
            let_go.wait()
            return text

        agent = agent_with(stuck, tmp_path, 2, task_timeout=0.3)
        try:
            await agent.ainvoke("Do it")
            run = await agent.ainvoke("Do it")
            assert len(calls) == 2
            assert "still run" in (run.results[0].error or "")
        finally:
            let_go.set()
        for thread in [thread for thread in threading.enumerate() if thread.name == "jarvis-daemon"]:
            await asyncio.to_thread(thread.join)
        assert (await agent.ainvoke("Do it")).ok

    def test_a_tool_that_hangs_does_not_keep_the_process(self, tmp_path: Path) -> None:
        script = f"""
import sys, threading
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[1])!r}]
from pathlib import Path
from langchain_core.tools import tool
from test_langchain_task import agent_with

@tool
def stuck(text: str) -> str:
    "A call without a time limit."
    threading.Event().wait()

with agent_with(stuck, Path({str(tmp_path)!r}), task_timeout=0.2) as agent:
    print(agent.invoke("Do it").results[0].status)
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stdout) == (0, "failed\n"), done.stderr

    async def test_a_tool_that_ends_its_program_fails_alone(self, tmp_path: Path) -> None:
        @tool
        def leave(text: str) -> str:
            """A command line tool in disguise."""
            sys.exit(3)

        run = await run_of(leave, tmp_path)
        assert "SystemExit: 3" in (run.results[0].error or "")

    async def test_a_tool_with_only_a_run_method_works(self, tmp_path: Path) -> None:
        class Echo(BaseTool):
            name: str = "echo"
            description: str = "Say it again."

            def _run(self, text: str) -> str:
                return f"{text} {threading.current_thread() is threading.main_thread()}"

        run = await run_of(Echo(), tmp_path)
        assert run.results[0].output == "0 False"


class TestResults:
    async def test_an_error_message_holds_no_secret(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WEATHER_API_KEY", "abc-def-12345")

        @tool
        async def weather(text: str) -> str:
            """The weather."""
            raise ToolException("401 for key abc-def-12345")

        weather.handle_tool_error = True
        run = await run_of(weather, tmp_path)
        assert run.results[0].error == "401 for key (key)"

    async def test_files_are_kept(self, tmp_path: Path) -> None:
        data = base64.b64encode(picture(tmp_path / "x.png").read_bytes()).decode()

        @tool
        async def draw(text: str) -> list[Any]:
            """Two pictures."""
            return [image_block(data), image_block(data)]

        run = await run_of(draw, tmp_path)
        assert [resource.kind for resource in run.results[0].resources] == ["image", "image"]
        assert len(files(tmp_path)) == 2

    @pytest.mark.parametrize("broken", ["AAA", "AAAA!", ""])
    async def test_nothing_is_left_of_a_result_that_can_not_be_used(
        self, tmp_path: Path, broken: str
    ) -> None:
        data = base64.b64encode(picture(tmp_path / "x.png").read_bytes()).decode()

        @tool
        async def draw(text: str) -> list[Any]:
            """Two pictures, the second of which is broken."""
            return [image_block(data), image_block(broken)]

        run = await run_of(draw, tmp_path)
        assert run.results[0].status == "failed"
        assert not files(tmp_path)

    async def test_a_file_that_is_too_large_is_not_decoded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        @tool
        async def flood(text: str) -> list[Any]:
            """A large file."""
            return [image_block("A" * 2000)]

        def decode(*_: Any) -> bytes:
            raise AssertionError("it was decoded")

        monkeypatch.setattr(base64, "b64decode", decode)
        run = await run_of(flood, tmp_path, max_file_bytes=1000)
        assert "more than 1,000 bytes (JARVIS_MAX_FILE_BYTES)" in (run.results[0].error or "")
