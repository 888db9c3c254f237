"""Every tool passes the standard suites of langchain-tests."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from PIL import Image
from small_agents import hub_tools

from jarvis_agent import Settings, TaskSpec, hf_tools
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import split_kind
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.testing.hub import HubRequest, Reply, ReplyServer, json_reply
from jarvis_agent.tools.hf_task_tool import HFTaskTool, args_schema_of

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE_OF = {
    "text": "The hall was full.",
    "data": "music",
    "image": str(EXAMPLES / "cat.jpg"),
    "audio": str(EXAMPLES / "speech.wav"),
    "video": str(EXAMPLES / "clip.mp4"),
    "table": "rows.csv",
    "file": "rows.csv",
}


def example_args(spec: TaskSpec) -> dict[str, Any]:
    """All arguments of a task, also the optional ones."""
    examples = {arg: EXAMPLE_OF[split_kind(arg.kind)[0]] for arg in spec.inputs}
    return {arg.name: [example] if arg.many else example for arg, example in examples.items()}


@pytest.fixture(scope="module")
def every_tool() -> Iterator[dict[str, HFTaskTool]]:
    tools = {tool.name: tool for tool in hf_tools(sources=[], backends=[], available_only=False)}
    yield tools  # type: ignore[misc]
    tools["translation"].close()  # type: ignore[attr-defined]


class TestEveryTool(ToolsUnitTests):
    """Each tool of `hf_tools()`."""

    @pytest.fixture(autouse=True, params=list(TASKS))
    def _of_task(self, request: pytest.FixtureRequest, every_tool: dict[str, HFTaskTool]) -> None:
        self.task = request.param
        self.made = every_tool[self.task]

    @property
    def tool_constructor(self) -> BaseTool:
        return self.made

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return example_args(TASKS[self.task])


@dataclass(frozen=True)
class Expert:
    """The raw output of an expert, and a part of the tool's content."""

    raw: Any
    says: str


EXPERTS = {
    "text-classification": Expert([{"label": "calm", "score": 0.9}], "calm (0.90)"),
    "translation": Expert([{"translation_text": "Der Saal war voll."}], "Der Saal war voll."),
    "sentence-similarity": Expert([0.25], "The hall was full. (0.25)"),
    "image-to-text": Expert([{"generated_text": "a tabby cat"}], "a tabby cat"),
    "object-detection": Expert(
        [{"label": "cat", "score": 0.9, "box": {"xmin": 1, "ymin": 1, "xmax": 99, "ymax": 99}}], "1 cat"
    ),
    "visual-question-answering": Expert([{"answer": "a cat", "score": 0.8}], "a cat"),
    "canny-control": Expert(Image.new("L", (8, 8)), "image: "),
    "text-to-speech": Expert({"audio": [0.0] * 800, "sampling_rate": 8000}, "audio: "),
    "automatic-speech-recognition": Expert({"text": "and Mr. Dashwood"}, "and Mr. Dashwood"),
}


class TestToolsAtWork(ToolsIntegrationTests):
    """Tools that are called, with experts whose output is known."""

    @pytest.fixture(autouse=True, params=list(EXPERTS))
    def _of_task(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
        self.task = request.param
        experts = {self.task: EXPERTS[self.task].raw}
        settings = Settings(output_dir=tmp_path, allowed_dirs=(EXAMPLES,))
        (self.made,) = hub_tools(self.task, experts=experts, settings=settings)
        yield
        self.made.close()

    @property
    def tool_constructor(self) -> BaseTool:
        return self.made

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        spec = TASKS[self.task]
        return {name: value for name, value in example_args(spec).items() if name in spec.required}

    def test_the_content_says_what_the_expert_found(self) -> None:
        assert EXPERTS[self.task].says in self.made.invoke(self.tool_invoke_params_example)


_TYPES = ({"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"})
_LIST = {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize("strict", [False, True], ids=["plain", "strict"])
def test_each_argument_has_one_type_that_every_api_of_tools_knows(strict: bool) -> None:
    """Gemini's converter makes objects of an `anyOf` with more than one type beside null."""
    wrong = []
    tools: list[Any] = hf_tools(available_only=False)
    for tool in tools:
        schema = convert_to_openai_tool(tool, strict=strict)["function"]["parameters"]
        Draft202012Validator.check_schema(schema)
        for name, about in schema["properties"].items():
            kept = {key: part for key, part in about.items() if key not in ("description", "title")}
            is_optional = name not in tool.spec.required
            kinds = kept.pop("anyOf", [kept]) if is_optional else [kept]
            if kinds[0] not in (*_TYPES, _LIST) or kinds[1:] != [{"type": "null"}] * is_optional:
                wrong.append((tool.name, name, about))
    assert wrong == []


@pytest.mark.slow
def test_gemini_gets_a_type_for_each_argument_and_each_item() -> None:
    genai = pytest.importorskip("langchain_google_genai")
    content = {"role": "model", "parts": [{"text": "Hi"}]}
    reply = {"candidates": [{"content": content, "finishReason": "STOP"}]}
    asked: list[Any] = []

    def answer(request: HubRequest) -> Reply:
        asked.append(request.json)
        return json_reply(reply)

    tools: list[Any] = hf_tools(available_only=False)
    with ReplyServer(answer) as server:
        options = {"google_api_key": "any", "base_url": server.url}
        model = genai.ChatGoogleGenerativeAI(model="gemini-2.5-flash", **options)
        assert model.bind_tools(tools).invoke("Hello").text == "Hi"
    declared = [one for part in asked[0]["tools"] for one in part["functionDeclarations"]]
    assert [one["name"] for one in declared] == [tool.name for tool in tools]
    assert sum("parameters" not in function for function in declared) == sum(not tool.args for tool in tools)
    for function in declared:
        for name, about in function.get("parameters", {}).get("properties", {}).items():
            where = function["name"], name
            assert about["type"] in ("STRING", "INTEGER", "NUMBER", "BOOLEAN", "ARRAY"), where
            assert about.get("items", {}).get("type") == ("STRING" if about["type"] == "ARRAY" else None)


def test_what_models_send_instead_is_converted() -> None:
    labels = args_schema_of(TASKS["zero-shot-classification"])
    for value in (["a, b", "c"], '["a, b", "c"]', "['a, b', 'c']"):
        assert labels(text="x", labels=value).model_dump()["labels"] == ["a, b", "c"]
    assert labels(text=[5], labels="cat, dog").model_dump() == {"text": "5", "labels": ["cat, dog"]}
    assert labels(text="x", labels=[1, 2.5]).model_dump()["labels"] == ["1", "2.5"]


def test_arguments_are_accepted_in_several_forms() -> None:
    """Numbers, boxes and lists of one file."""
    accepted: dict[str, dict[str, list[Any]]] = {
        "crop-image": {"box": [[1, 2, 3, 4], "1, 2, 3, 4", {"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}]},
        "resize-image": {"width": [512, "512", None]},
        "edit-image": {"greyscale": [True, 1, "yes"], "rotate": [90, "90 degrees to the left"]},
    }
    for task, values in accepted.items():
        for name, forms in values.items():
            for value in forms:
                assert args_schema_of(TASKS[task])(image="a.jpg", **{name: value}).model_dump()[name] == value
    schema = args_schema_of(TASKS["visual-document-retrieval"])
    for images, expected in (("a.png", ["a.png"]), (["a.png", "b.png"], ["a.png", "b.png"])):
        assert schema(text="How to pay?", image=images).model_dump()["image"] == expected
    assert schema.model_json_schema()["properties"]["image"]["type"] == "array"
    assert args_schema_of(TASKS["unconditional-image-generation"])().model_dump() == {}


@pytest.mark.usefixtures("home")
def test_smolagents_takes_and_calls_the_tools() -> None:
    smolagents = pytest.importorskip("smolagents")
    tools = hub_tools("image-to-text", "translation", model=ScriptedLLM("[]"))
    named: list[Any] = [tool.model_copy(update={"name": tool.name.replace("-", "_")}) for tool in tools]
    look, translate = map(smolagents.Tool.from_langchain, named)
    agent = smolagents.CodeAgent(tools=[look, translate], model=smolagents.Model())
    assert {"image_to_text", "translation"} <= agent.tools.keys()
    assert look(image="a.jpg") == "a cat on a mat"
    assert translate(text="a sentence", tgt_lang="fr") == "une phrase"


def test_all_tools_have_names_and_types_that_smolagents_takes(every_tool: dict[str, HFTaskTool]) -> None:
    smolagents = pytest.importorskip("smolagents")
    for tool in every_tool.values():
        renamed: Any = tool.model_copy(update={"name": tool.name.replace("-", "_")})
        assert smolagents.Tool.from_langchain(renamed).name.isidentifier()
