"""Arguments of custom tools: injected ones work as in `create_agent`, and invalid ones are reported."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from langchain.tools import InjectedState, InjectedStore, InjectedToolCallId, ToolRuntime
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import BaseTool, ToolException, tool
from pydantic import BaseModel
from small_agents import plan

from jarvis_agent import JarvisAgent, Plan, Run, Settings, Task
from jarvis_agent.testing import ScriptedLLM


class Text(BaseModel):
    text: str


@tool
def runtime_of(text: str, runtime: ToolRuntime) -> str:
    """Read the runtime."""
    runtime.stream_writer("working")
    assert runtime.context is runtime.store is None
    assert runtime.config["tags"] == ["mine"]
    return f"{text} {runtime.tool_call_id} {runtime.state['messages'][-1].text}"


@tool(args_schema=Text)
async def hidden(text: str, context: ToolRuntime[None, dict[str, Any]]) -> str:
    """The schema does not name the injected argument."""
    return f"{text} {context.tool_call_id} {context.state['messages'][-1].text}"


class WithRun(BaseTool):
    name: str = "with_run"
    description: str = "A tool with a method."

    def _run(self, text: str, runtime: ToolRuntime) -> str:
        return f"{text} {runtime.tool_call_id} {runtime.state['messages'][-1].text}"


@tool
def state_of(
    text: str,
    state: Annotated[dict[str, Any], InjectedState],
    messages: Annotated[list[Any], InjectedState("messages")],
    store: Annotated[Any, InjectedStore()],
    call: Annotated[str, InjectedToolCallId],
    user: Annotated[str, InjectedState("user")] = "nobody",
) -> str:
    """Read the state."""
    assert state["messages"] == messages
    assert (store, user) == (None, "nobody")
    return f"{text} {call} {' / '.join(message.text for message in messages)}"


def run_of(tmp_path: Path, *tools: BaseTool) -> Run:
    llm = ScriptedLLM(
        {"plan": plan(*((given.name, [], {"text": "read"}) for given in tools)), "respond": "Done."}
    )
    asked = {"input": "Do it", "chat_history": [HumanMessage("Hello"), AIMessage("Hi!")]}
    with JarvisAgent(llm, tools=tools, settings=Settings(output_dir=tmp_path)) as agent:
        return agent.invoke(asked, {"tags": ["mine"]})


def test_injected_arguments_hold_the_chat_and_are_no_inputs_of_the_task(tmp_path: Path) -> None:
    run = run_of(tmp_path, runtime_of, hidden, WithRun(), state_of)
    assert [result.error for result in run.results] == [None] * 4
    outputs = [f"read {n} Do it" for n in range(3)]
    assert [result.output for result in run.results] == [*outputs, "read 3 Hello / Hi! / Do it"]
    assert all(set(task.args) == {"text"} for task in run.plan.tasks)


@tool
def add(numbers: list[int], mode: Literal["sum", "mean"]) -> str:
    """Add numbers."""
    return str(sum(numbers)) if mode == "sum" else Text.model_validate({}).text


@tool
def photograph(text: str) -> str:
    """Take a photograph."""
    raise ToolException("there is no film")


@tool
def double(text: int) -> int:
    """Double a number."""
    return 2 * text


NO_INTEGER = "Input should be a valid integer, unable to parse string as an integer"


def test_a_tool_exception_and_an_invalid_argument_are_reported_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = run_of(tmp_path, photograph, double)
    wrong = f"invalid arguments: text: {NO_INTEGER}"
    assert [result.error for result in run.results] == ["there is no film", wrong]
    assert run.answer.count("there is no film") == 1
    assert "Traceback" not in caplog.text


def test_an_invalid_argument_is_reported_in_one_line(tmp_path: Path) -> None:
    faults = "; ".join(f"numbers.{place}: {NO_INTEGER}" for place in range(3))
    calls: list[tuple[dict[str, Any], str]] = [
        ({"numbers": ["four", 1], "mode": "sum"}, f"invalid arguments: numbers.0: {NO_INTEGER}"),
        (
            {"numbers": [f"x{n}" for n in range(300)], "mode": "sum"},
            f"invalid arguments: {faults}; … 297 more",
        ),
        ({"numbers": [1], "mode": "max"}, "invalid arguments: mode: Input should be 'sum' or 'mean'"),
        ({"numbers": [1], "mode": "mean"}, "ValidationError: text: Field required"),
    ]
    llm = ScriptedLLM({"plan": plan(*(("add", [], args) for args, _ in calls)), "respond": "Done."})
    with JarvisAgent(llm, tools=[add], settings={"output_dir": tmp_path}) as agent:
        run = agent.invoke("Add the numbers")
    assert [(result.error or "").splitlines()[0] for result in run.results] == [why for _, why in calls]
    assert "\n" not in "".join(result.error or "" for result in run.results)


@tool
def count_words(text: str) -> int:
    """Count the words."""
    return len(text.split())


@tool
def shout(line: str) -> str:
    """Write a text in capital letters."""
    return line.upper()


@tool
def name_of(path: str) -> str:
    """Tell the name of a text file."""
    return Path(path).name


@tool
def look_up(query: str) -> str:
    """Look up texts."""
    return query


def test_a_text_argument_gets_the_text_of_a_file_and_others_its_name(tmp_path: Path) -> None:
    story = tmp_path / "story.txt"
    story.write_text("Once upon a time")
    tools = [count_words, shout, name_of, look_up]
    args = [{name: story.name} for name in ("text", "line", "path", "query")]
    tasks = [Task(task=tools[n].name, id=n, args=given) for n, given in enumerate(args)]
    settings = Settings(offline=True, model="none", output_dir=tmp_path / "out")
    with JarvisAgent(planner=lambda _: Plan(tasks=tasks), tools=tools, settings=settings) as agent:
        run = agent.invoke({"input": "Do it", "files": [str(story)]})
    outputs = [str(result.output) for result in run.results]
    assert outputs[:3] == ["4", "ONCE UPON A TIME", "story.txt"]
    assert "Once" not in outputs[3]
