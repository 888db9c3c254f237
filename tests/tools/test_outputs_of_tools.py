"""The output kinds of custom tools: declared, inferred or any; and the resources of their results."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool
from PIL import Image
from pydantic import BaseModel
from small_agents import block, hub_tools, plan
from typing_extensions import TypedDict

from jarvis_agent import JarvisAgent, Plan, Run
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

    del work.__annotations__["return"]
    work.__annotations__ |= {} if annotation is None else {"return": annotation}
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
]


def test_the_output_kinds_of_a_tool_are_declared_or_inferred() -> None:
    class Echo(BaseTool):
        name: str = "echo"
        description: str = "Repeat the text."

        def _run(self, text: str) -> str:
            return text

    found = [spec_of(returning(annotation, **options)).outputs for annotation, options, _ in INFERRED]
    assert found == [expected for _, _, expected in INFERRED]
    assert spec_of(Echo()).outputs == ("text", "data")
    with pytest.raises(ConfigError, match=r"the tool 'work' are \['picture'\]; give a list of text, image"):
        JarvisAgent(ScriptedLLM({}), tools=[returning(str, metadata={"outputs": ["picture"]})])


def drawing(result: Any = None, **options: Any) -> StructuredTool:
    """A tool that returns `result`, or an image as a content block."""
    options |= {"name": "draw", "description": "Draw a text.", "args_schema": Text}
    return StructuredTool.from_function(lambda text: result or [block("a.jpg")], **options)


class Text(BaseModel):
    text: str


DRAW_AND_DESCRIBE = plan(("draw", [], {"text": "a cat"}), ("image-to-text", [0], {"image": "<resource>-0"}))


def draw_and_describe(draw: BaseTool) -> Run:
    llm = ScriptedLLM({"plan": DRAW_AND_DESCRIBE, "respond": "Done."})
    with JarvisAgent(llm, tools=[draw, *hub_tools("image-to-text", model=llm)]) as agent:
        return agent.invoke("Draw a cat and describe it")


def test_the_image_of_a_tool_is_the_input_of_an_expert() -> None:
    for metadata in (None, {"outputs": ["image"]}):
        run = draw_and_describe(drawing(metadata=metadata))
        assert [result.error for result in run.results] == [None, None]
        assert run.plan.notes == []
        (image,) = run.results[0].resources
        assert image.path is not None
        assert image.path.read_bytes() == Path("a.jpg").read_bytes()


def test_a_reference_to_a_kind_that_is_not_produced_is_a_note_if_declared_or_else_an_error() -> None:
    planned = Plan.parse(DRAW_AND_DESCRIBE, tools=[drawing(metadata={"outputs": ["text"]})])
    assert [task.task for task in planned.tasks] == ["draw"]
    assert "<resource>-0 cannot be its image" in planned.notes[0]
    run = draw_and_describe(drawing("there is no paper"))
    assert [result.status for result in run.results] == ["ok", "failed"]
    assert run.results[1].error == "task 0 (draw) produced text; its image is needed here"


def test_results_keep_their_form() -> None:
    """A dict stays a dict; an artifact is the output; images and bytes become files, and no repr is shown."""
    image, content = Image.open("a.jpg"), Path("a.jpg").read_bytes()
    cmyk = Image.new("CMYK", (4, 4))
    results: dict[str, tuple[Any, Any, list[str]]] = {
        "words": ("rain", "rain", ["text"]),
        "facts": ({"rain": 0.5}, {"rain": 0.5}, ["text", "data"]),
        "model": (("three days", Forecast(days=3)), {"days": 3}, ["text", "data"]),
        "picture": (("a cat", image), "a cat", ["text", "image"]),
        "pictures": (("two", [image, block("a.jpg")]), "two", ["text", "image", "image"]),
        "image": (image, "", ["image"]),
        "mixed": (["two", cmyk, content, block("a.jpg")], "two", ["text", "image", "image", "image"]),
        "names": (["one", "two"], ["one", "two"], ["text", "data"]),
        "texts": ([{"type": "text", "text": word} for word in ("one", "two")], "one\ntwo", ["text"]),
        "nothing": (None, "", []),
        "unknown": (("an object", object()), "an object", ["text"]),
        "within": (("an object", {"n": [object()]}), {"n": ["<object>"]}, ["text", "data"]),
        "structured": (([], {"structured_content": {"rain": 0.5}}), {"rain": 0.5}, ["text", "data"]),
        "number": (([], {"structured_content": {"result": 5}}), 5, ["text"]),
        "chart": (([block("a.jpg")], {"n": [1]}), {"n": [1]}, ["image", "text", "data"]),
        "link": ([{"type": "image", "url": "https://example.org/a.png"}], "", ["text"]),
    }

    def tool_of(name: str, result: Any) -> BaseTool:
        form = BOTH if isinstance(result, tuple) else "content"
        return StructuredTool.from_function(
            lambda text: result, name=name, description="Work.", args_schema=Text, response_format=form
        )

    llm = ScriptedLLM({"plan": plan(*((name, [], {"text": "x"}) for name in results)), "respond": "Done."})
    with JarvisAgent(llm, tools=[tool_of(name, result) for name, (result, _, _) in results.items()]) as agent:
        run = agent.invoke("Do it all")
    assert [result.error for result in run.results] == [None] * len(results)
    for result in run.results:
        _, output, kinds = results[result.task.task]
        assert (result.output, [resource.kind for resource in result.resources]) == (output, kinds)
    words = {result.task.task: [one.text for one in result.resources_of("text")] for result in run.results}
    assert (words["structured"], words["number"]) == (['{"rain": 0.5}'], ["5"])
    assert all(path.is_file() for result in run.results for path in map(Path, result.paths()))
