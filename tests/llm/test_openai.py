"""The whole line with the real ChatOpenAI, against a server on this machine that streams as OpenAI's does."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles.openai_server import Failure, OpenAIDouble
from langchain_openai import ChatOpenAI
from pydantic import SecretStr
from small_agents import DESCRIBE_ALOUD, EXPERTS, plan

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate, first_candidate

REQUEST = "Describe a.jpg and say it"
REPLIES = {"plan": DESCRIBE_ALOUD, "select": first_candidate, "respond": "A cat; hear it in speech.wav."}


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def double() -> Iterator[OpenAIDouble]:
    with OpenAIDouble(REPLIES) as server:
        yield server


def agent_at(server: OpenAIDouble, model: Any = None, **settings: Any) -> JarvisAgent:
    """An agent that finds the server in its settings; each of its tasks has two models."""
    source = FakeSource(fake_candidate(task, f"{task}/{name}") for task in EXPERTS for name in "ab")
    chosen = Settings(base_url=server.base_url, model="double", **settings)
    return JarvisAgent(model, sources=[source], backends=[FakeBackend(EXPERTS)], settings=chosen)


def check(run: Run) -> None:
    assert [(result.task.task, result.error) for result in run.results] == [
        ("image-to-text", None),
        ("text-to-speech", None),
    ]
    assert [result.selection.chosen_by for result in run.results if result.selection] == ["llm", "llm"]
    speech = run.results[1].resources[0].path
    assert run.answer == f"A cat; hear it in {speech}."
    assert {stage: usage.calls for stage, usage in run.usage.items()} == {
        "plan": 1,
        "select": 2,
        "respond": 1,
    }
    assert all(usage.input_tokens > 10 and usage.output_tokens > 3 for usage in run.usage.values())


def test_sync_in_a_script(double: OpenAIDouble) -> None:
    with agent_at(double) as agent:
        check(agent.invoke(REQUEST))
        check(sum_of(agent.stream(REQUEST)))
        assert agent.model_name == f"double at {double.base_url}"
    assert sorted(double.stages()) == sorted(["plan", "select", "select", "respond"] * 2)


def sum_of(chunks: Any) -> Run:
    run = Run()
    for chunk in chunks:
        run += chunk
    return run


async def test_async_in_a_running_loop(double: OpenAIDouble) -> None:
    async with agent_at(double) as agent:
        check(await agent.ainvoke(REQUEST))
        chunks = [chunk async for chunk in agent.astream(REQUEST)]
    check(sum_of(chunks))
    tokens = [chunk.answer for chunk in chunks if chunk.answer]
    assert len(tokens) > 3


async def test_sync_in_a_running_loop(double: OpenAIDouble) -> None:
    with agent_at(double) as agent:
        check(agent.invoke(REQUEST))
        check(sum_of(agent.stream(REQUEST)))


def test_one_agent_in_one_loop_after_another(double: OpenAIDouble) -> None:
    """The client's connections belong to the loop that opened them."""
    agent = agent_at(double)
    for _ in range(3):
        check(asyncio.run(agent.ainvoke(REQUEST)))
    check(agent.invoke(REQUEST))
    agent.close()


def test_many_requests_at_once(double: OpenAIDouble) -> None:
    with agent_at(double) as agent:
        runs = agent.batch([REQUEST] * 6)
    assert len(runs) == 6
    for run in runs:
        check(run)


def test_tasks_start_while_the_server_still_writes_the_plan() -> None:
    """The pause is long for this machine, and nothing here measures it: what counts is the order."""
    first, second = json.loads(DESCRIBE_ALOUD)
    reply = (f"[{json.dumps(first)},", 0.5, f"{json.dumps(second)}]")

    async def order(server: OpenAIDouble) -> list[Any]:
        async with agent_at(server) as agent:
            return [(e.kind, e.task.id if e.task else None) async for e in agent.events(REQUEST)]

    with OpenAIDouble({**REPLIES, "plan": reply}) as server:
        events = asyncio.run(order(server))
    assert events.index(("finished", 0)) < events.index(("task", 1)) < events.index(("planned", None))


def test_a_model_that_we_make_is_asked_at_temperature_0_and_one_that_is_given_as_it_is(
    double: OpenAIDouble,
) -> None:
    with agent_at(double) as agent:
        agent.invoke(REQUEST)
    own = ChatOpenAI(model="mine", base_url=double.base_url, api_key=SecretStr("k"), temperature=0.7)
    with agent_at(double, own) as agent:
        assert agent.invoke(REQUEST).ok
    asked = {(request.body["model"], request.body["temperature"]) for request in double.requests}
    assert asked == {("double", 0.0), ("mine", 0.7)}


def test_the_key_of_openai_is_not_sent_to_another_address(
    double: OpenAIDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-of-openai")
    with agent_at(double) as agent:
        agent.invoke(REQUEST)
    with agent_at(double, api_key="mine") as agent:
        agent.invoke(REQUEST)
    assert {request.key for request in double.requests} == {"none", "mine"}


def test_a_server_that_knows_no_schema_is_asked_again_without() -> None:
    with OpenAIDouble(REPLIES, rejects=("response_format",)) as server:
        with agent_at(server, structured_output="always") as agent:
            assert agent.invoke(REQUEST).ok
        bodies = [request.body for request in server.requests if request.stage == "plan"]
    assert ["response_format" in body for body in bodies] == [True, False]


def test_a_schema_names_the_tasks_that_may_be_used(double: OpenAIDouble) -> None:
    with agent_at(double, structured_output="always") as agent:
        check(agent.invoke(REQUEST))
    body = double.requests[0].body
    schema = json.dumps(body["response_format"]["json_schema"]["schema"])
    assert all(json.dumps(task) in schema for task in EXPERTS)


def test_a_busy_server_is_asked_again() -> None:
    busy = Failure(429, "slow down", retry_after=0.01)
    with OpenAIDouble({**REPLIES, "plan": [busy, DESCRIBE_ALOUD]}) as server, agent_at(server) as agent:
        check(agent.invoke(REQUEST))
        assert server.stages()[:2] == ["plan", "plan"]


def test_a_server_that_fails_at_selection_leaves_it_to_the_rank() -> None:
    with OpenAIDouble({**REPLIES, "select": Failure(400, "no")}) as server, agent_at(server) as agent:
        run = agent.invoke(REQUEST)
    assert run.ok
    assert {result.selection.chosen_by for result in run.results if result.selection} == {"rank"}
    assert run.answer.startswith("A cat;")


# As processes of their own.

SCRIPT = """
import asyncio, json, sys
from jarvis_agent import JarvisAgent
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate

tasks = {"image-to-text": "a cat on a mat"}
source = FakeSource(fake_candidate("image-to-text", f"image-to-text/{name}") for name in "ab")
with JarvisAgent(sources=[source], backends=[FakeBackend(tasks)]) as agent:
    answers = [agent.invoke("Describe a.jpg").answer]
    answers.append("".join(chunk.answer for chunk in agent.stream("Describe a.jpg")))

async def main():
    async with JarvisAgent(sources=[source], backends=[FakeBackend(tasks)]) as agent:
        answers.append((await agent.ainvoke("Describe a.jpg")).answer)
        answers.append(agent.invoke("Describe a.jpg").answer)
        answers.append("".join([chunk.answer async for chunk in agent.astream("Describe a.jpg")]))

asyncio.run(main())
print(json.dumps(answers))
"""
DESCRIBED = {
    "plan": plan(("image-to-text", [], {"image": "a.jpg"})),
    "select": first_candidate,
    "respond": "A cat.",
}


def run_python(code: str, *args: str, server: OpenAIDouble) -> subprocess.CompletedProcess[str]:
    """A Python process that finds the server in its environment; one that does not end fails the test."""
    env = {**os.environ, "JARVIS_BASE_URL": server.base_url, "JARVIS_MODEL": "double"}
    command = [sys.executable, "-W", "default::ResourceWarning", "-c", code, *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=False)


def test_a_script_of_its_own_runs_sync_and_async_and_ends() -> None:
    with OpenAIDouble(DESCRIBED) as server:
        done = run_python(SCRIPT, server=server)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == ["A cat."] * 5


def test_the_command_works_with_the_server_and_a_real_expert(tmp_path: Path) -> None:
    """The plan comes from the server; the edges are found by OpenCV, which needs no model."""
    replies = {
        "plan": plan(("canny-control", [], {"image": "a.jpg"})),
        "respond": "The edges: /tmp/edges.png",
    }
    with OpenAIDouble(replies) as server:
        done = run_python(
            "from jarvis_agent.interfaces.cli.app import main; main()",
            "Make a canny edge image of a.jpg",
            "--json",
            "--out",
            str(tmp_path / "made"),
            server=server,
        )
    assert done.returncode == 0, done.stderr
    run = Run.model_validate_json(done.stdout)
    (edges,) = [path for result in run.results for path in result.paths()]
    assert run.answer == f"The edges: {edges}"
    assert edges.is_relative_to(tmp_path / "made")
    assert edges.is_file()
    assert server.stages() == ["plan", "respond"]
