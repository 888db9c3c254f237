"""`jarvis eval`: one command plans, writes, scores and draws."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jarvis_agent.core.errors import LLMError, MissingExtraError
from jarvis_agent.evaluation.predictions import Prediction
from jarvis_agent.interfaces.cli.app import app
from jarvis_agent.testing import ScriptedLLM

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


def test_each_type_of_plan_has_its_own_figures(folder: Path) -> None:
    chain = {
        "id": "3",
        "type": "chain",
        "user_request": "Detect the objects in 'a.jpg', and translate what you find into French.",
        "task_nodes": [
            {"task": "Object Detection", "arguments": ["a.jpg"]},
            {"task": "Translation", "arguments": ["<node-0>"]},
        ],
    }
    with (folder / "data.json").open("a") as file:
        file.write("\n" + json.dumps(chain))
    words = ["taskbench", folder, "--model", "none"]
    found = json.loads(called(*words, "--json").stdout)["by_type"]
    assert [(report["name"], report["requests"]) for report in found] == [("single", 2), ("chain", 1)]
    assert re.search(r"^chain +1 +100\.0", called(*words).stdout, re.MULTILINE)
    assert "by_type" not in json.loads(called(*words, "--limit", 2, "--json").stdout)


def test_predictions_are_kept(folder: Path) -> None:
    out = folder / "out.jsonl"
    assert called("taskbench", folder, "--model", "none", "--predictions", out).exit_code == 0
    assert [json.loads(line)["planner"] for line in out.read_text().splitlines()] == ["no model"] * 2


def test_without_gold_plans_the_requests_are_planned_all_the_same(folder: Path) -> None:
    (folder / "data.json").rename(folder / "user_requests.json")
    done = called("taskbench", folder, "--model", "none", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["reports"], found["planned"], found["failed"]) == ([], 2, 0)
    assert len(found["seconds"]) == 2
    told = called("taskbench", folder, "--model", "none").stderr
    assert re.search(r"2 plans were made, in \d+ / \d+ ms a request", told)


# Failures


def scripted(monkeypatch: pytest.MonkeyPatch, *replies: Any) -> ScriptedLLM:
    """Let the language model of the commands say this; it is shown what takes no embeddings to find."""
    monkeypatch.setenv("JARVIS_CONTEXT_WINDOW", "128000")
    model = ScriptedLLM({"plan": list(replies)})
    monkeypatch.setattr("jarvis_agent.llm.client.resolve_model", lambda name, settings: model)
    return model


@pytest.mark.parametrize("command", ["taskbench", "plans"])
def test_a_planner_that_always_fails_is_no_result(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    scripted(monkeypatch, *[LLMError("it is down")] * 4)
    words = [
        command,
        *([folder] if command == "taskbench" else []),
        "--model",
        "scripted",
    ]
    words += ["--limit", 2]
    done = called(*words, "--json")
    assert done.exit_code == 1
    assert "failed at every request, mostly so: it is down" in done.stderr
    report = json.loads(done.stdout)["reports"][0]
    assert (report["failed"], report["reason"]) == (2, "it is down")
    assert report["figures"][0]["value"] == 0.0
    assert "scripted" in (table := called(*words).stdout)
    assert "failed mostly so: it is down" in table


def test_failures_are_counted_beside_what_went_well(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = '[{"task": "Translation", "id": 0, "dep": [-1], "args": {"text": "Good morning"}}]'
    scripted(monkeypatch, plan, LLMError("it is down"))
    words = ["--model", "scripted", "--concurrency", 1, "--json"]
    done = called("taskbench", folder, *words)
    assert done.exit_code == 0, done.output
    strict, compat = json.loads(done.stdout)["reports"]
    facts = ("requests", "left_out", "failed", "unanswered")
    assert [strict[fact] for fact in facts] == [2, 0, 1, 1]
    assert [compat[fact] for fact in facts] == [1, 1, 1, 0]
    assert compat["figures"][0]["value"] == 1.0


def test_a_package_that_is_missing_stops_the_evaluation(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(settings: object) -> None:
        raise MissingExtraError("this", "starter")

    monkeypatch.setattr("jarvis_agent.planning.offline.classifier.load_embedder", missing)
    done = called("taskbench", folder, "--model", "none", "--json")
    assert done.exit_code == 2
    assert 'pip install "jarvis-agent[starter]"' in done.stderr
    assert not done.stdout


def test_the_language_model_is_shown_as_much_as_in_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "word " * 9000
    (folder / "user_requests.json").write_text(
        json.dumps({"id": "1", "user_request": f"Translate this: {text}"})
    )
    monkeypatch.setenv("JARVIS_CONTEXT_WINDOW", "50000")
    model = scripted(monkeypatch, "[]")
    called("taskbench", folder, "--model", "scripted")
    assert text in model.calls[0].prompt


def test_other_settings_of_the_planner_make_another_planner(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, *["[]"] * 2)
    words = ["taskbench", folder, "--model", "scripted"]
    words += ["--predictions", folder / "out.jsonl"]
    assert called(*words).exit_code == 0
    monkeypatch.setenv("JARVIS_STRUCTURED_OUTPUT", "always")
    refused = called(*words)
    assert refused.exit_code == 2
    assert 'this planner is "scripted, structured_output=always"' in refused.stderr


@pytest.mark.parametrize("out", ["missing/out.jsonl", "."])
def test_predictions_that_can_not_be_written_are_bad_usage(folder: Path, out: str) -> None:
    done = called("taskbench", folder, "--model", "none", "--predictions", folder / out)
    assert done.exit_code == 2
    assert "can not be written" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model", "none"], {"concurrency": 1, "warm": True, "name": "no model"}),
        (["--model", "none", "--concurrency", "3"], {"concurrency": 3, "warm": True, "name": "no model"}),
        (
            ["--model", "scripted"],
            {"concurrency": 4, "warm": False, "name": "scripted"},
        ),
    ],
)
def test_a_planner_without_a_model_plans_one_at_a_time_after_loading(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: dict[str, Any]
) -> None:
    given: dict[str, Any] = {}

    async def noted(*args: Any, **options: Any) -> AsyncIterator[Prediction]:
        given.update(options)
        return
        yield

    if "scripted" in words:
        scripted(monkeypatch)
    monkeypatch.setattr("jarvis_agent.evaluation.predict.predict", noted)
    called("taskbench", folder, *words)
    assert {name: given[name] for name in expected} == expected


# Charts and tables


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


@pytest.mark.parametrize("chart", ["chart.doc", "missing/chart.png", "chart.png"])
@pytest.mark.parametrize("command", ["taskbench", "plans"])
def test_a_chart_that_can_not_be_drawn_is_told_before_anything_is_planned(
    folder: Path, command: str, chart: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as if it were not installed
    out = folder / "out.jsonl"
    words = [command, *([folder] if command == "taskbench" else []), "--model", "none", "--limit", 1]
    done = called(*words, "--predictions", out, "--chart", folder / chart)
    assert done.exit_code == 2
    assert not out.exists()
