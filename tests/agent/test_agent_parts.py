"""Custom tools, task types, models and stages of JarvisAgent; the schemas, reprs and copies of its parts."""

import copy
import json
import pickle
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool, ToolException, tool
from PIL import Image
from small_agents import (
    CAPTION,
    DESCRIBE,
    DESCRIBE_ALOUD,
    EXPERTS,
    block,
    hub_tools,
    picture,
    plan,
    small_agent,
    small_run,
)
from stages import FakeStage, plan_of

from jarvis_agent import (
    JarvisAgent,
    Plan,
    Settings,
    TaskSpec,
    hf_tools,
    planning_chain,
    register_task,
    response_chain,
    selection_chain,
)
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import Arg
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

pytestmark = pytest.mark.usefixtures("home")


# Tools.


@tool
def weather(city: str, days: int = 1) -> str:
    """Tell the weather of a city."""
    return f"{city}: rain for {days} days"


@tool
async def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


@tool
def fails(text: str) -> str:
    """Never works."""
    raise ToolException("the line is engaged")


def test_tools_of_the_hub_and_custom_tools_work_in_one_plan() -> None:
    """One custom tool is sync only, the other async only."""
    written = plan(
        ("image-to-text", [], {"image": "a.jpg"}),
        ("shout", [0], {"text": "<resource>-0"}),
        ("weather", [], {"city": "Oslo", "days": 3}),
        ("text-to-speech", [1, 2], {"text": "I see <resource>-1; I expect <resource>-2."}),
    )
    llm = ScriptedLLM({"plan": written, "respond": "Done."})
    tools = [*hub_tools("image-to-text", "text-to-speech", model=llm), weather, shout]
    with JarvisAgent(llm, tools=tools) as agent:
        run = agent.invoke("Describe a.jpg")
    assert [result.error for result in run.results] == [None] * 4
    loud, rain = run.results[1:3]
    assert loud.output == loud.resources[0].text == CAPTION.upper()
    assert (rain.output, rain.selection, rain.attempts) == ("Oslo: rain for 3 days", None, [])


def test_only_the_given_tools_are_planned() -> None:
    written = plan(("weather", [], {"city": "Oslo"}), ("image-to-text", [], {"image": "a.jpg"}))
    llm = ScriptedLLM({"plan": written, "repair": "[]", "respond": "Done.", "chat": "Hello!"})
    with JarvisAgent(llm, tools=[weather]) as agent:
        run = agent.invoke("The weather in Oslo, and describe a.jpg")
    assert [task.task for task in run.plan.tasks] == ["weather"]
    assert any("image-to-text" in note for note in run.plan.notes)
    assert "\n\nweather(city, days?): Tell the weather of a city.\n" in llm.calls[0].prompt
    assert "object-detection(" not in llm.calls[0].prompt
    with JarvisAgent(llm, tools=[]) as agent:
        run = agent.invoke("Describe a.jpg")
    assert run.plan.tasks == []
    assert run.plan.removed
    assert run.answer == f"Hello!\n\nNot done: {'; '.join(run.plan.removed)}"
    with pytest.raises(ConfigError, match="weather"):
        JarvisAgent(llm, tools=[weather, weather])


def test_a_tool_that_raises_fails_only_its_task_and_dependants() -> None:
    needs = ("shout", [0], {"text": "<resource>-0"})
    written = plan(("fails", [], {"text": "x"}), needs, ("weather", [], {"city": "Oslo"}))
    llm = ScriptedLLM({"plan": written, "respond": "Done."})
    with JarvisAgent(llm, tools=[fails, shout, weather]) as agent:
        run = agent.invoke("Try it")
    assert [result.status for result in run.results] == ["failed", "skipped", "ok"]
    assert "the line is engaged" in str(run.results[0].error)
    assert run.results[1].error == "it needs task 0 (fails), which failed"


def test_a_tool_receives_the_path_of_a_file_and_may_return_one() -> None:
    """The file is attached to a message, abbreviated by the planner, or the output of another task."""

    @tool
    def size_of(image: str) -> str:
        """Tell the size of a file."""
        return str(Path(image).stat().st_size)

    def draw_it(text: str) -> Any:
        return [{"type": "image", "base64": block("a.jpg")["base64"], "mime_type": "image/jpeg"}]

    draw = StructuredTool.from_function(draw_it, name="draw", description="Draw a text.")

    def written(messages: Any) -> str:
        listed = messages[-1].text.split("<files>\n")[1].split("\n</files>")[0].splitlines()
        names = [json.loads(line.partition(": ")[2]) for line in listed]
        return plan(
            ("size_of", [], {"image": names[0]}),
            ("size_of", [], {"image": "b.png"}),
            ("draw", [], {"text": "a cat"}),
            ("size_of", [2], {"image": "<resource>-2"}),
        )

    Path("deep").mkdir()
    picture(Path("deep/b.png"))
    llm = ScriptedLLM({"plan": written, "respond": "Done."})
    message = HumanMessage([{"type": "text", "text": "How large is it, and deep/b.png?"}, block("a.jpg")])
    with JarvisAgent(llm, tools=[size_of, draw]) as agent:
        run = agent.invoke([message])
    assert [result.error for result in run.results] == [None] * 4
    sizes = [str(Path(name).stat().st_size) for name in ("a.jpg", "deep/b.png", "a.jpg")]
    assert [result.output for result in run.results if result.task.task == "size_of"] == sizes
    drawn = run.results[2].resources[0]
    assert (drawn.kind, drawn.mime) == ("image", "image/jpeg")


def test_a_registered_task_type_is_planned_and_run() -> None:
    spec = TaskSpec("tidy-up", "vision", "Tidy a sketch.", (Arg("image", "image"),), ("image",))
    found = ("object-detection", [0], {"image": "<resource>-0"})
    written = plan(("tidy-up", [], {"image": "a.jpg"}), found)
    register_task(spec)
    try:
        run, llm, backend = small_run("Tidy up a.jpg", written, {"tidy-up": Image.new("RGB", (8, 8))})
    finally:
        del TASKS["tidy-up"]
    assert [result.error for result in run.results] == [None, None]
    assert "tidy-up(image) -> image: Tidy a sketch." in llm.calls[0].prompt
    assert backend.calls[1].inputs["image"].path == run.results[0].resources[0].path


# Models.


def test_a_pinned_model_makes_its_task_available() -> None:
    pins = {"image-to-text": "me/my-captioner"}
    run, _, backend = small_run("Describe a.jpg", sources=[], pins=pins, settings=Settings(offline=False))
    assert [result.error for result in run.results] == [None]
    assert backend.models() == ["me/my-captioner"]


def test_without_a_captioner_the_image_is_classified_and_the_answer_says_so() -> None:
    models = [
        fake_candidate("image-to-text", "org/reader", traits=("ocr",)),
        fake_candidate("image-classification", "org/classifier"),
    ]
    given: Any = {"sources": [FakeSource(models)], "respond": RuntimeError("down")}
    classes = {"image-classification": [{"label": "cat", "score": 0.9}]}
    run, _, _ = small_run("Describe a.jpg", experts=classes, **given)
    assert run.results[0].model == "org/classifier"
    for text in (run.results[0].all_notes[0], run.answer):
        assert "no model here describes images in words" in text


# Custom stages.


def fixed_plan() -> FakeStage:
    return FakeStage(plan_of(*Plan.parse(DESCRIBE_ALOUD).tasks))


async def statuses(inputs: Mapping[str, Any]) -> AsyncIterator[str]:
    for result in inputs["results"]:
        yield f"{result.task.task} {result.status}. "


def test_every_stage_can_be_replaced() -> None:
    stages: Any = {"planner": fixed_plan(), "responder": FakeStage(statuses)}
    stages["selector"] = lambda inputs: f"{inputs['task'].task}/b"
    run, llm, backend = small_run("Describe a.jpg", models=["a", "b"], **stages)
    assert run.answer == "image-to-text ok. text-to-speech ok. "
    assert backend.models() == ["image-to-text/b", "text-to-speech/b"]
    assert llm.calls == []


def test_other_settings_of_an_agent_are_checked() -> None:
    agent, llm, _ = small_agent(DESCRIBE)
    assert "planning failed" in agent.copy(settings={"budget": {"tokens": 1}}).plan("Describe a.jpg").notes[0]
    assert llm.calls == []
    for changes, fault in (({"task_timout": 1}, "task_timeout"), ({"policy": "none"}, "policy")):
        with pytest.raises(ConfigError, match=fault):
            agent.copy(settings=changes)


def test_with_a_custom_planner_no_language_model_is_needed() -> None:
    backend = FakeBackend(EXPERTS)
    source = FakeSource([fake_candidate("image-to-text"), fake_candidate("text-to-speech")])
    with JarvisAgent(planner=fixed_plan(), sources=[source], backends=[backend]) as agent:
        run = agent.invoke("Describe a.jpg")
    assert agent.model_name is None
    assert run.ok
    assert CAPTION in run.answer
    assert "language model" not in run.answer
    assert run.usage == {}


def keys(schema: Any) -> set[str]:
    """The properties anywhere in a JSON schema of an input, at its first level of objects."""
    found: set[str] = set(schema.get("properties", ()))
    for part in (*schema.get("anyOf", ()), *schema.get("$defs", {}).values()):
        found |= keys(part)
    return found


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        (planning_chain, {"input", "files", "chat_history", "tools"}),
        (selection_chain, {"input", "task", "candidates"}),
        (response_chain, {"input", "plan", "results", "files", "chat_history", "language"}),
    ],
)
def test_the_input_schema_of_a_chain_has_its_keys(chain: Any, expected: set[str]) -> None:
    schema = chain(ScriptedLLM({})).get_input_jsonschema()
    assert expected <= keys(schema)
    assert chain(ScriptedLLM({})).get_input_schema()


def test_the_repr_of_an_agent_says_what_it_is() -> None:
    with small_agent(settings={"policy": "local-only"})[0] as agent:
        assert repr(agent) == f"JarvisAgent(model='scripted', policy='local-only', tasks={len(TASKS)})"
        assert repr(agent | str).startswith("JarvisAgent(model=")
    with JarvisAgent("none", tools=[]) as agent:
        assert repr(agent) == "JarvisAgent(model=None, policy='local-first', tasks=0)"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_shares_the_models_and_not_the_chats(copied: Any) -> None:
    chat: Any = {"configurable": {"thread_id": "ada"}}
    agent, llm, backend = small_agent(DESCRIBE)
    with agent:
        agent.invoke("Describe a.jpg", chat)
        twin = copied(agent)
        twin.invoke("Describe a.jpg once more", chat)
        assert "Describe a.jpg\n" not in llm.calls[-2].prompt.replace("once more", "")
    assert len(backend.calls) == 2
    assert twin.stages.registry is agent.stages.registry
    expert = FakeBackend(EXPERTS)
    source = FakeSource([fake_candidate("image-to-text")])
    (tool,) = hf_tools(tasks=["image-to-text"], sources=[source], backends=[expert])
    assert copied(tool).invoke({"image": "a.jpg"}) == CAPTION
    assert len(expert.calls) == 1


def test_what_cannot_be_pickled_says_why() -> None:
    agent = small_agent()[0]
    for part, problem in (
        (agent, "a JarvisAgent cannot be pickled: it has loaded models"),
        (
            hf_tools(tasks=["translation"], sources=[], backends=[])[0],
            "the tools of hf_tools cannot be pickled",
        ),
    ):
        with pytest.raises(TypeError, match=problem):
            pickle.dumps(part)
