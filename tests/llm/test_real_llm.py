"""A real language model, far too small for the work: whatever it writes, the run is valid and honest.

SmolLM2-135M is served on this machine by llama.cpp (xllamacpp). It writes no usable plan most of the time,
and that is the point: prose, repetitions without end, invented files and cut-off JSON come of themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from small_agents import EXPERTS
from small_llm import INSTALL, WEIGHTS, served

from jarvis_agent import JarvisAgent, Plan, Run, Settings
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        WEIGHTS is None or find_spec("xllamacpp") is None,
        reason=INSTALL,
    ),
]

REQUESTS = ("Describe a.jpg and say it aloud",)
OWNS_UP = re.compile(
    r"What did not work:|未完成的任务：|fail|error|unable|sorry|(could|can|did) ?n[o’']t|无法|失败",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The server's address."""
    with served(longest=96, threads=2) as address:
        yield address


def run_of(request: str, address: str, **settings: object) -> Run:
    """A run through the environment's variables, as a user would have it; experts are doubles."""
    # The small prompts: it would read the long ones for minutes.
    os.environ.update(JARVIS_BASE_URL=address, JARVIS_MODEL="smollm2", JARVIS_LLM_TIMEOUT="600")
    patient = {"run_timeout": 1500}
    settings = {"prompts": "small", **patient, **settings}
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


def test_whatever_it_writes_the_plan_is_valid_and_the_answer_honest(address: str, home: Path) -> None:
    # One test, so that parallel workers do not each serve the model.
    for request in REQUESTS:
        run = run_of(request, address, structured_output="never")
        check(run, home)
        stage = "respond" if run.plan.tasks else "chat"
        assert run.usage[stage].output_tokens > 0
    run = run_of(REQUESTS[0], address)
    check(run, home)
    assert not any("is not an available task" in note for note in run.plan.notes)
