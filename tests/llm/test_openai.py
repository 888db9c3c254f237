"""Whole runs with the real ChatOpenAI and a local server that streams like OpenAI's."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from doubles.openai_server import OpenAIDouble
from small_agents import DESCRIBE, DESCRIBE_ALOUD, EXPERTS

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate, first_candidate

REQUEST = "Describe a.jpg and say it"
SAID = "A cat; hear it in 1-text-to-speech.wav."
REPLIES = {"plan": DESCRIBE_ALOUD, "select": first_candidate, "respond": SAID}

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def double() -> Iterator[OpenAIDouble]:
    with OpenAIDouble(REPLIES) as server:
        yield server


def agent_at(server: OpenAIDouble) -> JarvisAgent:
    """An agent that finds the server in its settings; each of its tasks has two models."""
    source = FakeSource(fake_candidate(task, f"{task}/{name}") for task in EXPERTS for name in "ab")
    settings = Settings(base_url=server.base_url, model="double")
    return JarvisAgent(sources=[source], backends=[FakeBackend(EXPERTS)], settings=settings)


def check(run: Run) -> None:
    done = {result.task.task: result.error for result in run.results}
    assert done == {"image-to-text": None, "text-to-speech": None}
    assert [result.selection.chosen_by for result in run.results if result.selection] == ["llm", "llm"]
    speech = run.results[1].resources[0].path
    assert run.answer == f"A cat; hear it in {speech}."
    calls = {stage: usage.calls for stage, usage in run.usage.items()}
    assert calls == {"plan": 1, "select": 2, "respond": 1}
    assert all(usage.input_tokens > 10 and usage.output_tokens > 3 for usage in run.usage.values())


@pytest.mark.slow
def test_it_works_sync_and_async_and_in_several_event_loops(double: OpenAIDouble) -> None:
    async def in_a_loop() -> None:
        check(await agent.ainvoke(REQUEST))
        check(agent.invoke(REQUEST))
        check(sum(agent.stream(REQUEST), Run()))
        chunks = [chunk async for chunk in agent.astream(REQUEST)]
        check(sum(chunks, Run()))
        assert len([chunk for chunk in chunks if chunk.answer]) > 3

    with agent_at(double) as agent:
        check(agent.invoke(REQUEST))
        check(sum(agent.stream(REQUEST), Run()))
        assert sorted(double.stages()) == sorted(["plan", "select", "select", "respond"] * 2)
        for _ in range(2):
            asyncio.run(in_a_loop())
        for run in agent.batch([REQUEST] * 4):
            check(run)
        assert agent.model_name == f"double at {double.base_url}"


SCRIPT = """
import asyncio, json, sys
from jarvis_agent import JarvisAgent
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate

source = FakeSource([fake_candidate("image-to-text")])
agent = JarvisAgent(sources=[source], backends=[FakeBackend({"image-to-text": "a cat on a mat"})])
answers = [agent.invoke("Describe a.jpg").answer]
answers.append("".join(chunk.answer for chunk in agent.stream("Describe a.jpg")))

async def main():
    async with agent:
        answers.append((await agent.ainvoke("Describe a.jpg")).answer)
        answers.append("".join([chunk.answer async for chunk in agent.astream("Describe a.jpg")]))

asyncio.run(main())
print(json.dumps(answers))
"""


@pytest.mark.slow
def test_a_script_runs_sync_and_async_and_exits() -> None:
    command = [sys.executable, "-W", "default::ResourceWarning", "-c", SCRIPT]
    with OpenAIDouble({"plan": DESCRIBE, "respond": "A cat."}) as server:
        env = {**os.environ, "JARVIS_BASE_URL": server.base_url, "JARVIS_MODEL": "double"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == ["A cat."] * 4
