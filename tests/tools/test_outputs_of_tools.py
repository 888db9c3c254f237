"""The output kinds of custom tools: declared, inferred, or any; and what their results become."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool
from PIL import Image
from pydantic import BaseModel
from small_agents import block, hub_tools, plan
from typing_extensions import TypedDict

from jarvis_agent import JarvisAgent, Plan
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.tasks.from_tool import spec_of
from jarvis_agent.testing import ScriptedLLM

pytestmark = pytest.mark.usefixtures("home")


class Weather(TypedDict):
    rain: float


class Forecast(BaseModel):
    days: int


@dataclass
class Report:
    text: str


def returning(annotation: Any, **options: Any) -> BaseTool:
    def work(text: str) -> Any:
        return text

    if annotation is not None:
        work.__annotations__["return"] = annotation
    else:
        del work.__annotations__["return"]
    return StructuredTool.from_function(work, name="work", description="Work.", **options)


BOTH = "content_and_artifact"
INFERRED: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
    (str, {}, ("text", "data")),
    (int, {}, ("text", "data")),
    (dict[str, Any], {}, ("data", "text")),
    (Weather, {}, ("data", "text")),
    (Forecast, {}, ("data", "text")),
    (Report, {}, ("data", "text")),
    (tuple[str, Image.Image], {"response_format": BOTH}, ("image", "text", "data")),
    (tuple[str, Any], {"response_format": BOTH}, ("text", "any")),
    (list[dict[str, Any]], {}, ("text", "any")),
    (Any, {}, ("text", "any")),
    (None, {}, ("text", "any")),
    (str, {"metadata": {"outputs": ["image", "text"]}}, ("image", "text")),
    (Any, {"metadata": {"output_schema": {"type": "object"}}}, ("data", "text")),
]


def test_the_output_kinds_of_a_tool_are_declared_or_inferred() -> None:
    found = [spec_of(returning(annotation, **options)).outputs for annotation, options, _ in INFERRED]
    assert found == [expected for _, _, expected in INFERRED]


def test_a_tool_with_only_a_run_method_is_read_too() -> None:
    class Echo(BaseTool):
        name: str = "echo"
        description: str = "Say it again."

        def _run(self, text: str) -> str:
            return text

    assert spec_of(Echo()).outputs == ("text", "data")


def test_a_declared_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the tool 'work' are \['picture'\]; give a list of text, image"):
        JarvisAgent(ScriptedLLM({}), tools=[returning(str, metadata={"outputs": ["picture"]})])


def drawing(**options: Any) -> StructuredTool:
    """A tool that returns an image as a content block."""

    def draw(text: str) -> Any:
        return [{"type": "image", "base64": block("a.jpg")["base64"], "mime_type": "image/jpeg"}]

    return StructuredTool.from_function(draw, name="draw", description="Draw a text.", **options)


DRAW_AND_DESCRIBE = plan(("draw", [], {"text": "a cat"}), ("image-to-text", [0], {"image": "<resource>-0"}))


@pytest.mark.parametrize("metadata", [None, {"outputs": ["image"]}], ids=["any", "declared"])
def test_the_image_of_a_tool_is_the_input_of_an_expert(metadata: Any) -> None:
    llm = ScriptedLLM({"plan": DRAW_AND_DESCRIBE, "respond": "Done."})
    tools = [drawing(metadata=metadata), *hub_tools(llm, "image-to-text")]
    with JarvisAgent(llm, tools=tools) as agent:
        run = agent.invoke("Draw a cat and describe it")
    assert [result.error for result in run.results] == [None, None]
    assert run.plan.notes == []
    (image,) = run.results[0].resources
    assert image.path is not None
    assert image.path.read_bytes() == base64.b64decode(block("a.jpg")["base64"])


def test_a_reference_to_a_kind_that_a_tool_does_not_declare_is_mended_or_refused() -> None:
    made = Plan.parse(DRAW_AND_DESCRIBE, tools=[drawing(metadata={"outputs": ["text"]})])
    assert [task.task for task in made.tasks] == ["draw"]
    assert "<resource>-0 cannot be its image" in made.notes[0]


def test_a_wrong_guess_is_reported_when_the_result_is_used() -> None:
    @tool
    def draw(text: str) -> Any:
        """Draw a text."""
        return "there is no paper"

    llm = ScriptedLLM({"plan": DRAW_AND_DESCRIBE, "respond": "Done."})
    with JarvisAgent(llm, tools=[draw, *hub_tools(llm, "image-to-text")]) as agent:
        run = agent.invoke("Draw a cat and describe it")
    assert [result.status for result in run.results] == ["ok", "failed"]
    assert run.results[1].error == "task 0 (draw) produced text; its image is needed here"


def test_results_keep_their_form() -> None:
    """A dict stays a dict; an artifact is the output, and its images become files."""
    image = Image.open("a.jpg")
    results: dict[str, tuple[Any, Any, list[str]]] = {
        "words": ("rain", "rain", ["text"]),
        "facts": ({"rain": 0.5}, {"rain": 0.5}, ["text", "data"]),
        "model": (("three days", Forecast(days=3)), {"days": 3}, ["text", "data"]),
        "picture": (("a cat", image), "a cat", ["text", "image"]),
        "pictures": (("two", [image, block("a.jpg")]), "two", ["text", "image", "image"]),
        "link": ([{"type": "image", "url": "https://example.org/a.png"}], "", ["text"]),
    }

    def tool_of(name: str, result: Any) -> BaseTool:
        form = BOTH if isinstance(result, tuple) else "content"
        return StructuredTool.from_function(
            lambda text: result, name=name, description="Work.", args_schema=Text, response_format=form
        )

    class Text(BaseModel):
        text: str

    llm = ScriptedLLM({"plan": plan(*((name, [], {"text": "x"}) for name in results)), "respond": "Done."})
    with JarvisAgent(llm, tools=[tool_of(name, result) for name, (result, _, _) in results.items()]) as agent:
        run = agent.invoke("Do it all")
    assert [result.error for result in run.results] == [None] * len(results)
    for result in run.results:
        _, output, kinds = results[result.task.task]
        assert (result.output, [resource.kind for resource in result.resources]) == (output, kinds)
    assert all(path.is_file() for result in run.results for path in map(Path, result.paths()))
