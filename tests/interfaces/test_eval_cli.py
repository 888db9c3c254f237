"""`jarvis eval taskbench | plans`: one table or one JSON object, and exit codes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import Printed, jarvis

from jarvis_agent.core.errors import LLMError
from jarvis_agent.evaluation.requests import read_requests
from jarvis_agent.planning.plan import Plan
from jarvis_agent.testing import ScriptedLLM

TOOLS = {"Translation": "text", "Object Detection": "image"}
RECORDS = [
    ("single", "Translate 'Good morning' into French.", {"Translation": "Good morning"}),
    ("single", "Detect the objects in 'a.jpg'.", {"Object Detection": "a.jpg"}),
    (
        "chain",
        "Detect the objects in 'a.jpg', and translate what you find into French.",
        {"Object Detection": "a.jpg", "Translation": "<node-0>"},
    ),
]
TRANSLATE = '[{"task": "Translation", "id": 0, "dep": [-1], "args": {"text": "Good morning"}}]'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tools = [{"id": tool, "input-type": [kind], "output-type": ["text"]} for tool, kind in TOOLS.items()]
    (tmp_path / "tool_desc.json").write_text(json.dumps({"nodes": tools}))
    lines = []
    for place, (kind, request, plan) in enumerate(RECORDS):
        nodes = [{"task": task, "arguments": [argument]} for task, argument in plan.items()]
        record = {"id": str(place), "type": kind, "user_request": request, "task_nodes": nodes}
        lines.append(json.dumps(record))
    (tmp_path / "data.json").write_text("\n".join(lines))
    return tmp_path


def called(*words: object, model: str = "none") -> Printed:
    return jarvis("eval", *map(str, words), "--model", model)


def found(*words: object, model: str = "none", code: int = 0) -> dict[str, Any]:
    """The JSON that a command prints, with this exit code."""
    done = called(*words, "--json", model=model)
    assert done.exit_code == code, done.output
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def scripted(monkeypatch: pytest.MonkeyPatch, **replies: Any) -> None:
    """Let the chat model of the command reply this."""
    model = ScriptedLLM(replies)
    monkeypatch.setattr("jarvis_agent.llm.chat_model.resolve_model", lambda name, settings: model)


def figures(report: dict[str, Any]) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in report["figures"]}


def test_a_folder_is_planned_and_scored_in_total_and_by_type(folder: Path) -> None:
    reports = found("taskbench", folder)["reports"]
    rows = [("no model", 3), ("single", 2), ("chain", 1)]
    assert [(report["name"], report["requests"]) for report in reports] == rows
    assert figures(reports[1])["node F1"] == 1.0
    assert re.search(r"single +2 +100\.0 \(100…100\) +–", called("taskbench", folder).stdout)
    assert len(found("taskbench", folder, "--limit", 2)["reports"]) == 1
    (folder / "data.json").rename(folder / "user_requests.json")  # requests without gold plans
    (report,) = found("taskbench", folder)["reports"]
    assert (report["requests"], len(report["seconds"])) == (0, 2)
    assert re.search(r"no model +0 +–", called("taskbench", folder).stdout)


def test_failures_are_counted_and_all_failures_exit_1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["taskbench", folder, "--limit", 2]
    scripted(monkeypatch, plan=[TRANSLATE, LLMError("it is down")])
    report = found(*words, model="scripted")["reports"][0]
    assert [report[fact] for fact in ("requests", "failed", "unanswered")] == [2, 1, 1]
    scripted(monkeypatch, plan=[LLMError("it is down")] * 2)
    done = called(*words, model="scripted")
    assert done.exit_code == 1
    assert "failed at every request: it is down" in done.stderr
    (folder / "data.json").rename(folder / "user_requests.json")  # requests without gold plans
    scripted(monkeypatch, plan=[LLMError("it is down")] * 2)
    assert called(*words, model="scripted").exit_code == 1
    assert "most frequent error: it is down" in done.stdout


@pytest.mark.slow
def test_own_requests_are_scored_with_calls_and_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["plans", "--half", "dev", "--limit", 2]
    assert found(*words)["reports"][0]["requests"] == 2
    done = called(*words)
    assert "single" in done.stdout
    assert "has learned" in done.stderr
    asked = read_requests("dev")[0]
    words = ["plans", "--half", "dev", "--limit", 1, "--failures"]
    scripted(monkeypatch, plan=Plan(tasks=asked.plan).to_json())
    report = found(*words, model="scripted")["reports"][0]
    assert (figures(report)["exact plan"], report["usage"]["calls"]) == (1.0, 1)
    scripted(monkeypatch, plan=["[]"] * 2)
    done = called(*words, model="scripted")
    shown = done.stdout
    assert "has learned" not in done.stderr
    assert asked.id in shown
    assert re.search(rf"expected +0 {asked.plan[0].task}", shown)
    (failure,) = found(*words, model="scripted")["failures"]
    assert (failure["id"], failure["got"]) == (asked.id, "no task")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["taskbench", "missing"], "tool_desc.json"),
        (["plans", "--requests", "missing.jsonl"], "missing.jsonl"),
        (["plans", "--half", "other"], "--half"),
    ],
)
def test_bad_use_exits_2(folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str) -> None:
    monkeypatch.chdir(folder)
    done = called(*words)
    assert (done.exit_code, said in done.stderr) == (2, True), done.output
