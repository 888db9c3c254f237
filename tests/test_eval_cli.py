"""`jarvis eval`: one command plans, writes, scores and draws."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from jarvis_agent.cli import app

pytest.importorskip("numpy")

GOLD = [
    ("1", "Translate 'Good morning' into French.", [("Translation", ["Good morning"])]),
    ("2", "Detect the objects in 'a.jpg'.", [("Object Detection", ["a.jpg"])]),
]
TOOLS = {
    "nodes": [
        {"id": "Translation", "desc": "Translate text.", "input-type": ["text"], "output-type": ["text"]},
        {"id": "Object Detection", "desc": "Find things.", "input-type": ["image"], "output-type": ["text"]},
    ]
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [
        {
            "id": record,
            "type": "single",
            "user_request": request,
            "task_nodes": [{"task": task, "arguments": args} for task, args in nodes],
        }
        for record, request, nodes in GOLD
    ]
    (tmp_path / "tool_desc.json").write_text(json.dumps(TOOLS))
    (tmp_path / "data.json").write_text("\n".join(map(json.dumps, records)))
    return tmp_path


def called(*words: object) -> Result:
    return CliRunner().invoke(app, ["eval", *map(str, words)])


def test_a_folder_is_planned_and_scored_with_one_command(folder: Path) -> None:
    done = called("taskbench", folder, "--model", "none", "--mode", "strict", "--json")
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)["reports"]
    assert (report["requests"], report["unanswered"]) == (2, 0)
    assert {figure["name"]: figure["value"] for figure in report["figures"]}["node F1"] == 1.0


def test_predictions_are_kept_and_compared(folder: Path) -> None:
    one = folder / "one.jsonl"
    assert called("taskbench", folder, "--model", "none", "--predictions", one).exit_code == 0
    assert len(one.read_text().splitlines()) == 2
    worse = folder / "worse.jsonl"
    worse.write_text('{"id": "1", "task_nodes": []}\n{"id": "2", "task_nodes": []}\n')
    done = called("compare", folder, worse, one, "--json")
    assert done.exit_code == 0, done.output
    gain = json.loads(done.stdout)["differences"]["strict"][0]
    assert (gain["name"], gain["value"]) == ("node F1", 1.0)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_figures_are_drawn(folder: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    chart = folder / f"chart.{ending}"
    assert called("taskbench", folder, "--model", "none", "--chart", chart).exit_code == 0
    assert chart.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")


def test_the_table_names_figures_and_intervals(folder: Path) -> None:
    done = called("taskbench", folder, "--model", "none", "--limit", 1)
    assert "node F1" in done.stdout
    assert "100.0 (100.0 … 100.0)" in done.stdout


def test_a_folder_that_is_none_is_bad_usage(tmp_path: Path) -> None:
    done = called("taskbench", tmp_path)
    assert done.exit_code == 2
    assert "tool_desc.json" in done.output


def test_a_chart_of_another_kind_is_refused(folder: Path) -> None:
    done = called("taskbench", folder, "--model", "none", "--chart", folder / "chart.doc")
    assert done.exit_code == 2
    assert ".png or .svg" in done.output
