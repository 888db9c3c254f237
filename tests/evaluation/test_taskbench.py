"""TaskBench folders are read as they are, and what cannot be read in them is named."""

import json
from pathlib import Path

import pytest

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.types import Task
from jarvis_agent.evaluation.taskbench import read_folder, read_plan

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
    (tmp_path / "data.json").write_text("\n".join(map(json.dumps, RECORDS)))
    return tmp_path


def test_a_folder_gives_tools_requests_and_gold_plans(folder: Path) -> None:
    """Tools get the Hub's argument names where their kinds are the Hub's."""
    bench = read_folder(folder)
    assert bench.requests["1"] == "Translate 'word 1'"
    assert bench.types == {str(n): "single" for n in range(3)}
    assert bench.gold["1"] == [Task(task="Translation", id=0, args={"0": "word 1"})]
    names = {name: [arg.name for arg in spec.inputs if arg.required] for name, spec in bench.specs.items()}
    assert names == {
        "Translation": ["text"],
        "Image Editing": ["text", "image"],
        "Question Answering": ["text", "context"],
        "Tabular Classification": ["image"],
        "Compare": ["text", "context", "image"],
    }


def test_kinds_that_are_no_resource_are_texts_and_capitals_do_not_matter(folder: Path) -> None:
    tools = [
        {"id": "URL Extractor", "input-type": ["text"], "output-type": ["url"]},
        {"id": "Image Downloader", "input-type": ["url"], "output-type": ["Image"]},
        {"id": "Image Stitcher", "input-type": ["image", "image"], "output-type": ["image"]},
    ]
    (folder / "tool_desc.json").write_text(json.dumps({"nodes": tools}))
    bench = read_folder(folder)
    takes = {name: [(arg.name, arg.kind) for arg in spec.inputs] for name, spec in bench.specs.items()}
    assert takes["Image Downloader"] == [("url", "text")]
    assert takes["Image Stitcher"] == [("image", "image"), ("image2", "image")]
    assert [spec.outputs for spec in bench.specs.values()] == [("text",), ("image",), ("image",)]


def test_folders_are_read_in_every_form_and_without_gold_plans(folder: Path) -> None:
    lines = "\n".join(map(json.dumps, RECORDS))
    for text in (json.dumps(RECORDS, indent=1), f"\ufeff{lines}", lines.replace("\n", "\r\n")):
        (folder / "data.json").write_bytes(text.encode())
        bench = read_folder(folder)
        assert list(bench.requests) == list(bench.gold) == ["0", "1", "2"]
    (folder / "data.json").rename(folder / "user_requests.json")
    bench = read_folder(folder)
    assert (len(bench.requests), bench.gold) == (3, {})


def test_invalid_folders_are_reported(folder: Path) -> None:
    rows = [
        ("data.json", "", "holds no requests"),
        ("data.json", '{"id": "1", "task_nodes": []}\nnot json', "data.json, line 2"),
        ("data.json", '{"id": "7", "task_nodes": [{"tool": "x"}]}', "data.json: a node of the plan 7"),
        ("data.json", '{"id": "1"}', "a TaskBench plan has"),
        ("tool_desc.json", "{", "tool_desc.json does not describe tools: .*JSON"),
        ("tool_desc.json", "{}", "nodes: Field required"),
        ("tool_desc.json", '{"nodes": [{"desc": "?"}]}', "nodes.0.id: Field required"),
        ("tool_desc.json", '{"nodes": [{"id": "A", "output-type": []}]}', "nodes.0.input-type"),
    ]
    for file, content, message in rows:
        (folder / file).write_text(content)
        with pytest.raises(InputError, match=message):
            read_folder(folder)
    (folder / "tool_desc.json").unlink()
    with pytest.raises(InputError, match=r"tool_desc\.json cannot be read"):
        read_folder(folder)


def test_arguments_are_read_as_taskbench_reads_them() -> None:
    node = {"task": "Thing", "arguments": [{"name": "text", "value": "x"}, ["a", "b"], 7, "see <node-2>"]}
    (task,) = read_plan({"id": 1, "task_nodes": [node]})
    assert [*task.args.values()] == ["text", "a b", "7", "<resource>-2"]
