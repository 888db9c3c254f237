"""TaskBench folders are read as they are, and planned request by request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.errors import InputError, LLMError
from jarvis_agent.eval.predict import named_files, planned, predict
from jarvis_agent.eval.taskbench import Bench, read_folder, read_predictions
from jarvis_agent.plan import Plan
from jarvis_agent.request import Brief
from jarvis_agent.types import Task

TOOLS = [
    {"id": "Translation", "desc": "Translate.", "input-type": ["text"], "output-type": ["text"]},
    {"id": "Image Editing", "desc": "Edit.", "input-type": ["text", "image"], "output-type": ["image"]},
    {"id": "Question Answering", "desc": "Answer.", "input-type": ["text", "text"], "output-type": ["text"]},
    {"id": "Tabular Classification", "desc": "Classify.", "input-type": ["image"], "output-type": ["text"]},
    {"id": "Compare", "desc": "Compare.", "input-type": ["text", "text", "image"], "output-type": []},
]
RECORDS = [
    {"id": str(n), "type": "single", "user_request": f"Translate 'word {n}'",
     "task_nodes": [{"task": "Translation", "arguments": [f"word {n}"]}]}
    for n in range(3)
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tool_desc.json").write_text(json.dumps({"nodes": TOOLS}))
    (tmp_path / "graph_desc.json").write_text(
        json.dumps({"links": [{"source": "Translation", "target": "Image Editing", "type": "text"}]})
    )
    (tmp_path / "data.json").write_text("\n".join(map(json.dumps, RECORDS)))
    return tmp_path


def test_a_folder_gives_tools_links_requests_and_gold_plans(folder: Path) -> None:
    bench = read_folder(folder)
    assert bench.makes == {
        "Translation": "text",
        "Image Editing": "image",
        "Question Answering": "text",
        "Tabular Classification": "text",
        "Compare": "none",
    }
    assert bench.links == {("Translation", "Image Editing")}
    assert bench.requests["1"] == "Translate 'word 1'"
    assert [(graph.id, graph.kind) for graph in bench.gold] == [(str(n), "single") for n in range(3)]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Image Editing", ["text", "image"]),
        ("Question Answering", ["text", "context"]),
        ("Tabular Classification", ["image"]),
        ("Compare", ["text", "context", "image"]),
    ],
)
def test_a_tool_has_the_hubs_argument_names_where_its_kinds_are_the_hubs(
    folder: Path, tool: str, arguments: list[str]
) -> None:
    assert [arg.name for arg in read_folder(folder).specs[tool].inputs if arg.required] == arguments


def test_a_folder_without_gold_plans_has_requests(folder: Path) -> None:
    asked = [{"id": record["id"], "user_request": record["user_request"]} for record in RECORDS]
    (folder / "user_requests.json").write_text("\n".join(map(json.dumps, asked)))
    (folder / "data.json").unlink()
    bench = read_folder(folder)
    assert (len(bench.requests), bench.gold) == (3, ())


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("tool_desc.json", None, "tool_desc.json can not be read"),
        ("tool_desc.json", "{", "tool_desc.json is no JSON"),
        ("tool_desc.json", "{}", "describes no tools"),
        ("data.json", '{"id": "1", "task_nodes": []}\nnot json', "data.json, line 2"),
        ("data.json", "", "holds no requests"),
    ],
)
def test_what_can_not_be_read_is_named(folder: Path, file: str, content: str | None, told: str) -> None:
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_text(content)
    with pytest.raises(InputError, match=told):
        read_folder(folder)


class Planned:
    """A planner that writes one plan for everything, or fails."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.asked: list[str] = []

    async def plan(self, brief: Brief, on_task: Callable[[Task], None]) -> Plan:
        self.asked.append(brief.request)
        if self.failing and self.failing in brief.request:
            raise LLMError("it is down")
        return Plan(tasks=[Task(task="Translation", id=0, args={"text": brief.request.split("'")[1]})])


async def predicted(bench: Bench, planner: Planned, out: Path) -> list[Any]:
    return [one async for one in predict(bench.requests, bench.specs, planner, out=out, concurrency=2)]


async def test_predictions_are_written_as_taskbench_writes_them(folder: Path) -> None:
    bench, out = read_folder(folder), folder / "out.jsonl"
    found = await predicted(bench, Planned(), out)
    assert {one.graph.id for one in found} == {"0", "1", "2"}
    written = json.loads(out.read_text().splitlines()[0])
    assert written["task_nodes"] == written["result"]["task_nodes"]
    assert written["task_nodes"][0]["arguments"][0].startswith("word ")
    assert {graph.nodes for graph in read_predictions(out).values()} == {graph.nodes for graph in bench.gold}


async def test_what_was_planned_already_is_not_planned_again(folder: Path) -> None:
    bench, out = read_folder(folder), folder / "out.jsonl"
    await predicted(bench, Planned(), out)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text(lines[0] + lines[1][:20])  # broken off while it was written
    again = Planned()
    await predicted(bench, again, out)
    assert len(again.asked) == 2
    assert planned(out) == {"0", "1", "2"}


async def test_a_planner_that_fails_gives_an_empty_plan_and_the_reason(folder: Path) -> None:
    bench, out = read_folder(folder), folder / "out.jsonl"
    found = {one.graph.id: one for one in await predicted(bench, Planned(failing="word 1"), out)}
    assert found["1"].graph.nodes == ()
    assert "it is down" in str(found["1"].error)
    assert found["0"].error is None


def test_the_files_that_a_request_names_are_known_by_their_endings() -> None:
    files = named_files("Read 'example.txt', describe example.jpg and dub a.mp4 with b.wav, then c.csv.")
    assert [(file.name, file.kind) for file in files] == [
        ("example.txt", "text"),
        ("example.jpg", "image"),
        ("a.mp4", "video"),
        ("b.wav", "audio"),
        ("c.csv", "table"),
    ]
