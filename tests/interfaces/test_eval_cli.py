"""`jarvis eval taskbench | plans | selection`: one table or one JSON object, and exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jarvis_agent.core.errors import LLMError
from jarvis_agent.evaluation.requests import read_requests
from jarvis_agent.evaluation.selection import read_cases
from jarvis_agent.interfaces.cli.app import app
from jarvis_agent.planning.plan import Plan
from jarvis_agent.testing import ScriptedLLM

TOOLS = {
    "nodes": [
        {"id": "Translation", "desc": "Translate text.", "input-type": ["text"], "output-type": ["text"]},
        {"id": "Object Detection", "desc": "Find things.", "input-type": ["image"], "output-type": ["text"]},
    ]
}
RECORDS: list[dict[str, Any]] = [
    {
        "id": "1",
        "type": "single",
        "user_request": "Translate 'Good morning' into French.",
        "task_nodes": [{"task": "Translation", "arguments": ["Good morning"]}],
    },
    {
        "id": "2",
        "type": "single",
        "user_request": "Detect the objects in 'a.jpg'.",
        "task_nodes": [{"task": "Object Detection", "arguments": ["a.jpg"]}],
    },
    {
        "id": "3",
        "type": "chain",
        "user_request": "Detect the objects in 'a.jpg', and translate what you find into French.",
        "task_nodes": [
            {"task": "Object Detection", "arguments": ["a.jpg"]},
            {"task": "Translation", "arguments": ["<node-0>"]},
        ],
    },
]
TRANSLATE = '[{"task": "Translation", "id": 0, "dep": [-1], "args": {"text": "Good morning"}}]'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tool_desc.json").write_text(json.dumps(TOOLS))
    (tmp_path / "data.json").write_text("\n".join(map(json.dumps, RECORDS)))
    return tmp_path


def called(*words: object, model: str = "none") -> Result:
    command, *rest = map(str, words)
    return CliRunner().invoke(app, ["eval", command, *rest, "--model", model])


def scripted(monkeypatch: pytest.MonkeyPatch, **replies: Any) -> ScriptedLLM:
    """Let the chat model of the command reply this."""
    model = ScriptedLLM(replies)
    monkeypatch.setattr("jarvis_agent.llm.client.resolve_model", lambda name, settings: model)
    return model


def figures(report: dict[str, Any]) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in report["figures"]}


def test_a_folder_is_planned_and_scored_in_total_and_by_type(folder: Path) -> None:
    done = called("taskbench", folder, "--json")
    assert done.exit_code == 0, done.output
    reports = json.loads(done.stdout)["reports"]
    rows = [("no model", 3), ("single", 2), ("chain", 1)]
    assert [(report["name"], report["requests"]) for report in reports] == rows
    assert figures(reports[1])["node F1"] == 1.0
    table = called("taskbench", folder).stdout
    assert re.search(r"single +2 +100\.0 \(100…100\) +–", table)
    assert len(json.loads(called("taskbench", folder, "--limit", 2, "--json").stdout)["reports"]) == 1


def test_without_gold_plans_the_requests_are_planned_and_not_scored(folder: Path) -> None:
    (folder / "data.json").rename(folder / "user_requests.json")
    out = folder / "out.jsonl"
    done = called("taskbench", folder, "--predictions", out, "--json")
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)["reports"]
    assert (report["requests"], len(report["seconds"])) == (0, 2)
    assert len(out.read_text().splitlines()) == 3
    assert re.search(r"no model +0 +–", called("taskbench", folder).stdout)


def test_failures_are_counted_and_all_failures_exit_1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["taskbench", folder, "--limit", 2]
    for mode, facts in (("strict", [2, 1, 1]), ("compat", [1, 1, 0])):
        scripted(monkeypatch, plan=[TRANSLATE, LLMError("it is down")])
        done = called(*words, "--mode", mode, "--json", model="scripted")
        assert done.exit_code == 0, done.output
        report = json.loads(done.stdout)["reports"][0]
        assert [report[fact] for fact in ("requests", "failed", "unanswered")] == facts
    scripted(monkeypatch, plan=[LLMError("it is down")] * 2)
    done = called(*words, model="scripted")
    assert done.exit_code == 1
    assert "failed at every request: it is down" in done.stderr
    assert "most frequent error: it is down" in done.stdout


def test_own_requests_are_scored_by_group(tmp_path: Path) -> None:
    out = tmp_path / "plans.jsonl"
    words = ["plans", "--half", "dev", "--limit", 2, "--predictions", out]
    done = called(*words, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["reports"][0]["requests"] == len(out.read_text().splitlines()) == 2
    assert "cannot be written" in called(*words).stderr
    assert "single" in called(*words[:-2]).stdout


def test_the_calls_of_a_language_model_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = read_requests("dev")[0]
    scripted(monkeypatch, plan=Plan(tasks=asked.plan).to_json())
    done = called("plans", "--half", "dev", "--limit", 1, "--json", model="scripted")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)["reports"][0]
    assert (figures(report)["exact plan"], report["usage"]["calls"]) == (1.0, 1)


def test_failures_show_the_expected_and_the_predicted_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = read_requests("dev")[0]
    scripted(monkeypatch, plan=["[]"] * 2)
    words = ["plans", "--half", "dev", "--limit", 1, "--failures"]
    shown = called(*words, model="scripted").stdout
    assert asked.id in shown
    assert re.search(rf"expected +0 {asked.plan[0].task}", shown)
    assert re.search(r"got +no task", shown)
    (failure,) = json.loads(called(*words, "--json", model="scripted").stdout)["failures"]
    assert (failure["id"], failure["got"]) == (asked.id, "no task")


def test_selection_is_scored_beside_the_most_downloaded() -> None:
    done = called("selection", "--json", "--failures")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [report["requests"] for report in found["reports"]] == [len(read_cases())] * 2
    assert figures(found["reports"][0])["runs"] == 1.0
    assert all(failure["got"] not in failure["expected"] for failure in found["failures"])
    shown = called("selection", "--failures").stdout
    assert "most downloaded" in shown
    assert re.search(r"defects +domain", shown)


def test_the_share_of_the_language_model_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, select='{"id": "openvision/detector-coco", "reason": "it knows animals"}')
    done = called("selection", "--json", model="scripted")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)["reports"][0]
    assert figures(report)["by the LLM"] == pytest.approx(2 / len(read_cases()), abs=1e-6)
    assert report["usage"]["calls"] > 2
    scripted(monkeypatch, select="I cannot choose.")
    done = called("selection", "--json", model="scripted")
    assert (done.exit_code, len(json.loads(done.stdout)["reports"])) == (1, 2)
    assert "scripted chose nothing" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["taskbench", "missing"], "tool_desc.json"),
        (["taskbench", ".", "--predictions", "missing/out.jsonl"], "cannot be written"),
        (["taskbench", ".", "--predictions", "."], "cannot be written"),
        (["plans", "--requests", "missing.jsonl"], "missing.jsonl cannot be read"),
        (["plans", "--half", "other"], "Invalid value"),
    ],
)
def test_bad_usage_exits_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(folder)
    done = called(*words)
    assert done.exit_code == 2
    assert said in done.stderr
