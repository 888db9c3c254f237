"""Every tool passes the standard suites of langchain-tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests
from PIL import Image

from jarvis_agent import Settings, TaskSpec, hf_tools
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate
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
    return {arg.name: [EXAMPLE_OF[arg.kind]] if arg.many else EXAMPLE_OF[arg.kind] for arg in spec.inputs}


@pytest.fixture(scope="module")
def every_tool() -> Iterator[dict[str, HFTaskTool]]:
    tools = {tool.name: tool for tool in hf_tools(sources=[], backends=[])}
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
        made: Any
        (made,) = hf_tools(
            tasks=[self.task],
            sources=[FakeSource([fake_candidate(self.task)])],
            backends=[FakeBackend({self.task: EXPERTS[self.task].raw})],
            settings=Settings(output_dir=tmp_path, allowed_dirs=(EXAMPLES,)),
        )
        self.made = made
        yield
        made.close()

    @property
    def tool_constructor(self) -> BaseTool:
        return self.made

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        spec = TASKS[self.task]
        return {name: value for name, value in example_args(spec).items() if name in spec.required}

    def test_the_content_says_what_the_expert_found(self) -> None:
        assert EXPERTS[self.task].says in self.made.invoke(self.tool_invoke_params_example)


def test_arguments_are_accepted_in_several_forms() -> None:
    """Numbers, boxes and lists of one file."""
    accepted: dict[str, dict[str, list[Any]]] = {
        "crop-image": {"box": [[1, 2, 3, 4], "1, 2, 3, 4", {"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}]},
        "resize-image": {"width": [512, "512"]},
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
