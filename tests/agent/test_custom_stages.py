"""Stages that the user passes: an error of any class in one of them ends neither the run nor the process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.runnables import Runnable, RunnableGenerator, RunnableLambda
from small_agents import CAPTION, DESCRIBE, small_agent

from jarvis_agent import Run

pytestmark = pytest.mark.usefixtures("home")


def failing(error: BaseException) -> dict[str, Runnable[Any, Any]]:
    """Runnables of the usual forms that raise the error. LangChain runs each in another kind of task."""

    def invoke(inputs: Any) -> Any:
        raise error

    async def ainvoke(inputs: Any) -> Any:
        raise error

    async def transform(values: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for _ in values:
            raise error
            yield  # an async generator function

    return {
        "function": RunnableLambda(invoke),
        "coroutine": RunnableLambda(ainvoke),
        "generator": RunnableGenerator(transform),
        "sequence": RunnableLambda(lambda value: value) | RunnableLambda(ainvoke),
    }


ERRORS = [RuntimeError("broken"), SystemExit(3), KeyboardInterrupt()]


def check(stage: str, run: Run, name: str) -> None:
    if stage == "planner":  # the offline planner plans
        assert [task.task for task in run.plan.tasks] == ["image-to-text"]
        assert name in run.plan.notes[0] or "planning failed" in run.plan.notes[0]
    if stage == "selector":  # the rank decides
        selection = run.results[0].selection
        assert selection is not None
        assert (selection.chosen_by, name in selection.reason) == ("rank", True)
    if stage == "responder":  # the report is the answer
        assert name in run.answer
    assert run.ok
    assert CAPTION in run.answer or stage != "responder"


@pytest.mark.parametrize("stage", ["planner", "selector", "responder"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_custom_stage_that_fails_is_replaced(stage: str, error: BaseException) -> None:
    choice = '{"id": "image-to-text/b", "reason": "it is better"}'
    for form in failing(error):
        given: Any = {stage: failing(error)[form]}
        agent, _, _ = small_agent(DESCRIBE, models=["a", "b"], select=choice, **given)
        async with agent:
            check(stage, await agent.ainvoke("Describe a.jpg"), type(error).__name__)
            check(stage, agent.invoke("Describe a.jpg"), type(error).__name__)
