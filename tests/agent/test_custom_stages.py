"""Custom stages that fail are replaced, and the run goes on."""

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from clock import LoopTime
from langchain_core.runnables import Runnable, RunnableGenerator, RunnableLambda
from langchain_core.tools import StructuredTool
from small_agents import CAPTION, DESCRIBE, small_agent
from stages import FakeStage

from jarvis_agent import Plan, Run

pytestmark = pytest.mark.usefixtures("home")


def failing(error: Exception) -> list[Runnable[Any, Any]]:
    """Runnables of the usual forms that raise the error. LangChain runs each in a different kind of task."""

    def invoke(inputs: Any) -> Any:
        raise error

    async def ainvoke(inputs: Any) -> Any:
        raise error

    async def transform(values: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for _ in values:
            raise error
            yield  # an async generator function

    coroutine = RunnableLambda(ainvoke)
    sequence = RunnableLambda(lambda value: value) | coroutine
    return [RunnableLambda(invoke), coroutine, RunnableGenerator(transform), sequence]


def check(stage: str, run: Run) -> None:
    assert run.ok
    name = "RuntimeError"
    if stage == "planner":  # the offline planner plans
        assert [task.task for task in run.plan.tasks] == ["image-to-text"]
        assert name in run.plan.notes[0] or "planning failed" in run.plan.notes[0]
    if stage == "selector":  # the ranking decides
        selection = run.results[0].selection
        assert selection is not None
        assert (selection.chosen_by, name in selection.reason) == ("rank", True)
    if stage == "responder":  # the report is the answer
        assert name in run.answer
        assert CAPTION in run.answer


async def test_functions_and_generators_are_stages() -> None:
    plan = Plan.parse('[{"task": "image-to-text", "id": 7, "args": {"image": "a.jpg"}}]')

    def function(inputs: Any) -> Plan:
        return plan

    def generator(values: Iterator[Any]) -> Iterator[Plan]:
        yield from [plan for _ in values]

    async def agenerator(values: AsyncIterator[Any]) -> AsyncIterator[Plan]:
        async for _ in values:
            yield plan

    for planner in (function, generator, agenerator, RunnableGenerator(generator)):
        agent, _, _ = small_agent(DESCRIBE, planner=planner, responder=lambda inputs: "done")
        async with agent:
            run = await agent.ainvoke("Describe a.jpg")
            assert [result.task.id for result in run.results] == [7]
            assert (run.answer, agent.invoke("Describe a.jpg").answer) == ("done", "done")


@pytest.mark.parametrize("stage", ["planner", "selector", "responder"])
async def test_a_custom_stage_that_fails_is_replaced(stage: str) -> None:
    for runnable in failing(RuntimeError("broken")):
        given: Any = {stage: runnable}
        agent, _, _ = small_agent(DESCRIBE, models=["a", "b"], select='{"id": "image-to-text/b"}', **given)
        async with agent:
            check(stage, await agent.ainvoke("Describe a.jpg"))
            check(stage, agent.invoke("Describe a.jpg"))


@pytest.mark.parametrize("given", [{"tasks": []}, [{"task": "image-to-text", "id": 7}], "[]"])
async def test_a_planner_that_returns_no_plan_is_told_what_to_return(given: Any) -> None:
    agent, _, _ = small_agent(planner=lambda inputs: given)
    async with agent:
        run = await agent.ainvoke("Describe a.jpg")
    assert f"the planner returned a {type(given).__name__}, not a Plan" in run.plan.notes[0]
    assert "Plan.parse" in run.plan.notes[0]
    assert [result.status for result in run.results] == ["ok"], "the offline planner plans"


async def test_a_responder_that_never_waits_and_never_ends_is_cut_off(loop_time: LoopTime) -> None:
    async def endless(inputs: Any) -> AsyncIterator[str]:
        while True:
            loop_time.skip(1)
            yield "on "

    agent, _, _ = small_agent(responder=FakeStage(endless), settings={"context_window": 128_000})
    async with agent:
        run = await agent.ainvoke("Describe a.jpg")
    assert run.answer.startswith("on on ")
    assert "JARVIS_LLM_TIMEOUT" in run.answer


@pytest.mark.parametrize("part", ["planner", "selector", "responder", "tool", "expert"])
async def test_an_error_that_a_run_survives_is_one_line_in_the_log_and_its_traceback_is_for_debugging(
    part: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = ValueError("the first line\nthe second line")

    def fails(image: Any) -> str:
        raise error

    tool = StructuredTool.from_function(fails, name="image-to-text", description="Describe an image.")
    options: dict[str, Any] = {"tools": [tool]} if part == "tool" else {part: fails}
    if part == "expert":
        options = {"experts": {"image-to-text": error}}
    caplog.set_level(logging.DEBUG, "jarvis_agent")
    agent, _, _ = small_agent(DESCRIBE, models=["a", "b"], select='{"id": "image-to-text/b"}', **options)
    async with agent:
        await agent.ainvoke("Describe a.jpg")
    records = [record for record in caplog.records if record.name.startswith("jarvis_agent")]
    shown = [record.getMessage() for record in records if record.levelno >= logging.WARNING]
    assert shown
    assert all("the first line the second line" in line and "\n" not in line for line in shown)
    assert all(record.exc_info is None for record in records)
    hidden = [record.getMessage() for record in records if record.levelno == logging.DEBUG]
    assert any("Traceback" in text and "the second line" in text for text in hidden)
