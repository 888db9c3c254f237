"""Two runs side by side, of a TaskBench folder or of our own requests; nothing is left out silently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jarvis_agent.interfaces.cli.app import app

pytest.importorskip("numpy")

TOOLS = [{"id": "Translation", "input-type": ["text"], "output-type": ["text"]}]
NODES = [{"task": "Translation", "arguments": ["Hi"]}]
PLAN = [{"task": "translation", "id": 0, "dep": [-1], "args": {"text": "Hi", "tgt_lang": "fr"}}]


def called(*words: object) -> Result:
    return CliRunner().invoke(app, ["eval", "compare", *map(str, words)])


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tool_desc.json").write_text(json.dumps({"nodes": TOOLS}))
    gold = [{"id": str(n), "user_request": "Translate 'Hi'", "task_nodes": NODES} for n in range(4)]
    written(tmp_path / "data.json", *gold)
    return tmp_path


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    asked = {"kind": "single", "request": "Translate 'Hi' into French.", "plan": PLAN}
    return written(tmp_path / "mine.jsonl", *({"id": str(n), **asked} for n in range(4)))


def node_f1(done: Result) -> list[float]:
    assert done.exit_code == 0, done.output
    return [report["figures"][0]["value"] for report in json.loads(done.stdout)["reports"]]


def test_the_second_run_is_better_by_the_difference(folder: Path) -> None:
    worse = written(folder / "worse.jsonl", *({"id": str(n), "task_nodes": []} for n in range(4)))
    better = written(folder / "better.jsonl", *({"id": str(n), "task_nodes": NODES} for n in range(4)))
    done = called(folder, worse, better, "--json")
    assert node_f1(done) == [0.0, 1.0]
    gain = json.loads(done.stdout)["differences"]["strict"][0]
    assert (gain["name"], gain["low"], gain["value"], gain["high"]) == ("node F1", 1.0, 1.0, 1.0)


def test_strictly_what_one_of_them_has_not_planned_is_an_empty_plan(folder: Path) -> None:
    one = written(folder / "one.jsonl", {"id": "0", "task_nodes": NODES}, {"id": "1", "task_nodes": NODES})
    other = written(folder / "other.jsonl", *({"id": str(n), "task_nodes": NODES} for n in range(3)))
    done = called(folder, one, other, "--mode", "both", "--json")
    # Strictly 2 of the 3 requests that one or the other has planned; else those that both have.
    assert node_f1(done) == [0.8, 1.0, 1.0, 1.0]
    reports = json.loads(done.stdout)["reports"]
    assert [report["requests"] for report in reports] == [3, 3, 2, 2]
    assert [report["left_out"] for report in reports] == [1, 1, 2, 2]
    assert "left out" in called(folder, one, other).stdout


@pytest.mark.parametrize(
    "broken",
    [
        {"id": "1", "task_nodes": [{"tool": "x"}]},
        {"id": "1", "task_nodes": [], "error": "it was down"},
    ],
    ids=["a record without a plan", "a failure"],
)
def test_what_holds_no_plan_is_an_empty_plan_strictly_and_left_out_else(
    folder: Path, broken: dict[str, Any]
) -> None:
    one = written(folder / "one.jsonl", {"id": "0", "task_nodes": NODES}, broken)
    other = written(folder / "other.jsonl", *({"id": str(n), "task_nodes": NODES} for n in range(2)))
    done = called(folder, one, other, "--mode", "both", "--json")
    assert node_f1(done) == [pytest.approx(2 / 3, abs=1e-6), 1.0, 1.0, 1.0]
    reports = json.loads(done.stdout)["reports"]
    assert [report["requests"] for report in reports] == [2, 2, 1, 1]
    assert [report["failed"] for report in reports] == [1, 0, 0, 0]


def test_plans_of_our_own_requests_are_compared_without_a_folder(requests: Path) -> None:
    plans = [{"id": str(n), "task_nodes": [], "plan": PLAN} for n in range(3)]
    one = written(requests.parent / "one.jsonl", *plans[:2], {"id": "2", "task_nodes": [], "plan": []})
    other = written(requests.parent / "other.jsonl", *plans[:1])
    done = called(one, other, "--requests", requests, "--json")
    found = json.loads(done.stdout)
    assert node_f1(done) == [pytest.approx(2 / 3, abs=1e-6), pytest.approx(1 / 3, abs=1e-6)]
    facts = [(r["requests"], r["left_out"], r["unanswered"]) for r in found["reports"]]
    assert facts == [(3, 1, 1), (3, 1, 2)]
    gain = found["differences"]["strict"][0]
    assert (gain["name"], gain["value"]) == ("exact plan", pytest.approx(-1 / 3, abs=1e-6))
    assert gain["low"] < gain["value"] < gain["high"]
    assert "exact plan" in called(one, other, "--requests", requests).stdout


def test_predictions_of_another_program_are_no_plans_of_our_own_requests(requests: Path) -> None:
    one = written(requests.parent / "one.jsonl", {"id": "1", "task_nodes": NODES})
    done = called(one, one, "--requests", requests)
    assert done.exit_code == 2
    assert "the prediction 1 holds no `plan`" in done.stderr


def test_files_of_the_same_name_are_told_apart(folder: Path) -> None:
    runs = [written(folder / run / "plans.jsonl", {"id": "0", "task_nodes": NODES}) for run in ("a", "b")]
    done = called(folder, *runs, "--json")
    one, other = (report["name"] for report in json.loads(done.stdout)["reports"])
    assert (str(runs[0]) in one, str(runs[1]) in other) == (True, True)
    names = [
        report["name"] for report in json.loads(called(folder, runs[0], runs[0], "--json").stdout)["reports"]
    ]
    assert len(set(names)) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["one"], "two files"),
        (["a", "b", "c", "d"], "two files"),
        (["dir", "one", "other", "--half", "dev"], "without a folder"),
        (["dir", "one", "other", "--requests", "mine"], "without a folder"),
        (["one", "other", "--mode", "compat"], "leave out --mode"),
    ],
)
def test_what_can_not_be_compared_is_bad_usage(words: list[str], told: str) -> None:
    done = called(*words)
    assert done.exit_code == 2
    assert told in done.stderr


def test_a_line_that_is_no_record_is_named(folder: Path) -> None:
    one = folder / "one.jsonl"
    one.write_text('{"id": "0", "task_nodes": []}\n{"x": 1}\n')
    done = called(folder, one, one)
    assert done.exit_code == 2
    assert f"{one}, line 2, is no object with an `id`" in done.stderr
