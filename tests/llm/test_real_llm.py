"""A small real language model: whatever it writes, the plan is valid and the answer honest.

SmolLM2-135M is served on this machine by llama.cpp (xllamacpp). Its replies are mostly unusable: prose,
endless repetitions, invented files, truncated JSON.
"""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from small_agents import EXPERTS
from small_llm import INSTALL, WEIGHTS, served

from jarvis_agent import JarvisAgent, Plan, Run, Settings
from jarvis_agent.core.references import refs_in
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(WEIGHTS is None or find_spec("xllamacpp") is None, reason=INSTALL),
]

ADMITS_FAILURE = re.compile(
    r"What did not work:|未完成的任务：|fail|error|unable|sorry|(could|can|did) ?n[o’']t|无法|失败",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The server's address."""
    with served(longest=96, threads=1) as address:
        yield address


PROMPTS = {
    "plan": "Write a JSON list of the tasks: {{{available_task_list}}}.\n---\n{{{input}}}",
    "repair": "Write these tasks again as JSON, corrected.\n---\n{{{broken_tasks}}}",
    "chat": "Answer in one sentence.\n---\n{{{input}}}",
    "respond": "Answer in one sentence from the results.\n---\n{{{predictions}}}\n{{{input}}}",
}
"""The long prompts would take it minutes."""


def run_of(address: str, folder: Path, llm: Any = None) -> Run:
    for stage, text in PROMPTS.items():
        (folder / f"{stage}.md").write_text(text)
    chosen: dict[str, Any] = {"model": "smollm2", "prompts": folder, "budget": {"seconds": 1500}}
    chosen |= {"llm_timeout": 600, "context_window": 1024}  # a reply has half of the window at most
    settings, source = Settings(base_url=address, **chosen), FakeSource(map(fake_candidate, EXPERTS))
    with JarvisAgent(llm, sources=[source], backends=[FakeBackend(EXPERTS)], settings=settings) as agent:
        return agent.invoke("Describe a.jpg and say it aloud")


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
        assert ADMITS_FAILURE.search(run.answer)
    for result in run.results:
        for path in result.paths():
            assert path.is_relative_to(home)
    used = {i for result in run.results for i in refs_in(result.task.args)}
    for result in run.results:
        if result.task.id not in used and (made := list(result.paths())):
            assert any(path.name in run.answer for path in made)


def test_whatever_it_writes_the_plan_is_valid_and_the_answer_honest(
    address: str, home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # One test, so that parallel workers do not each serve the model.
    folder = tmp_path_factory.mktemp("prompts")
    options = {"profile": {"structured_output": False}, "temperature": 0, "max_tokens": 64}
    free = ChatOpenAI(model="smollm2", base_url=address, api_key="k", **options)
    run = run_of(address, folder, free)
    check(run, home)
    assert run.usage["respond" if run.plan.tasks else "chat"].calls == 1  # one that repeats itself is stopped
    run = run_of(address, folder)
    check(run, home)
    assert not any("is not an available task" in note for note in run.plan.notes)
