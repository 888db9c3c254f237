"""Tools of a real MCP server over stdio, as tasks of a plan (langchain.mcp)."""

import logging
import sys
from pathlib import Path

import pytest
from langchain_core._api import suppress_langchain_beta_warning
from small_agents import CAPTION, hub_tools, plan

from jarvis_agent import JarvisAgent
from jarvis_agent.testing import ScriptedLLM

with suppress_langchain_beta_warning():
    from langchain.mcp import MCPAdapter

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.usefixtures("home")
async def test_mcp_tools_and_experts_read_each_others_results(caplog: pytest.LogCaptureFixture) -> None:
    written = plan(
        ("photograph", [], {"animal": "cat"}),
        ("image-to-text", [0], {"image": "<resource>-0"}),
        ("describe_file", [0], {"path": "<resource>-0"}),
        ("record", [], {}),
        ("automatic-speech-recognition", [3], {"audio": "<resource>-3"}),
        ("count_words", [4], {"text": "<resource>-4"}),
        ("photograph", [], {"animal": "dog"}),
        ("count_words", [], {"text": ["a", "list"]}),
    )
    llm = ScriptedLLM({"plan": written, "respond": "Done."})
    experts = hub_tools("image-to-text", "automatic-speech-recognition", model=llm)
    server = {"command": sys.executable, "args": [str(EXAMPLES / "mcp_server.py")]}
    async with MCPAdapter({"mcpServers": {"studio": server}}) as adapter:
        studio = await adapter.list_tools()
        with caplog.at_level(logging.WARNING):
            async with JarvisAgent(llm, tools=[*studio, *experts]) as agent:
                run = await agent.ainvoke("Photograph a cat and measure it; count the words of a speech.")
    assert [result.task.id for result in run.results if result.status == "failed"] == [6, 7]
    results = [result.error or result.output for result in run.results]
    size = (EXAMPLES / "cat.jpg").stat().st_size
    assert results[:6] == [
        "",
        {"generated_text": CAPTION},
        {"name": "0-photograph.jpg", "bytes": size},
        "",
        {"text": "hello there"},
        2,
    ]
    assert [run.results[task].resources[0].kind for task in (0, 3)] == ["image", "audio"]
    (photograph,) = run.results[0].paths()
    assert photograph.read_bytes() == (EXAMPLES / "cat.jpg").read_bytes()
    assert "there is no dog in the studio" in results[6]
    assert "valid string" in results[7]
    assert "Traceback" not in caplog.text
