"""The benchmarks compute the makespans that they compare with, and judge answers by what they contain."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import comparison
import planning
import pytest
import scheduling

from jarvis_agent import hf_tools
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.testing import ScriptedLLM


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [
        ([([-1], 1.2, False), ([-1], 3.0, False), ([0], 3.0, False), ([1], 1.0, False)], 4.2),
        ([([-1], 1.0, True), ([0], 9.0, False), ([1], 9.0, False)], 1.0),
    ],
    ids=["parallel", "after a failure"],
)
def test_makespans_are_computed(rows: list[tuple[list[int], float, bool]], seconds: float) -> None:
    tasks = [
        Task(task="sleep", id=n, dep=dep, args={"seconds": length, "fails": fails})
        for n, (dep, length, fails) in enumerate(rows)
    ]
    assert scheduling.makespan(tasks) == pytest.approx(seconds)


@pytest.mark.starter
async def test_requests_are_measured_with_a_language_model(capsys: pytest.CaptureFixture[str]) -> None:
    def plan(name: str) -> str:
        return json.dumps([{"task": "media-info", "id": 0, "dep": [-1], "args": {"file": name}}])

    answers = ["451.", "It is 720.", "720", "I cannot see how wide it is.", "451", "It is 300."]
    plans = [plan("cat.jpg"), *[plan("street.jpg")] * 3, *[plan("cat.jpg")] * 2]
    llm = ScriptedLLM({"plan": plans, "respond": answers})
    outcomes = await planning.measure(llm, [1, 3, 3, 3, 23])
    verdicts = "; ".join(one.verdict for one in outcomes)
    assert verdicts == "right; WRONG; WRONG; wrong, says so; wrong, not bare"
    assert outcomes[-1].answer == "It is 300."
    totals = planning.totals(outcomes)
    assert (totals["right answers"], totals["false without a word"], totals["calls"]) == ("1 of 5", "2", "12")
    printed = capsys.readouterr().out
    assert " 1 right " in printed
    assert 'it is not just "768": It is 720.' in printed


def test_answers_are_judged_by_whole_words_and_numbers() -> None:
    rows = [
        ("It is 9,480.", "9480|9,480", True),
        ("It is 19,480", "9,480", False),
        ("1,970 or 970.5", "970", False),
        ("在27日", "27", True),
        ("A category", "cat", False),
        ("A Cat.", "dog|cat", True),
        ("I can’t.", "can't", True),
    ]
    assert not [row for row in rows if planning.contains(*row[:2]) is not row[2]]


def test_made_files_are_compared_with_those_that_are_wanted(tmp_path: Path) -> None:
    planning.write_files(tmp_path)
    small = Resource(kind="image", path=tmp_path / "cat.jpg")
    large = Resource(kind="image", path=tmp_path / "street.jpg")
    sound = Resource(kind="audio", path=tmp_path / "speech.wav")
    rows = [
        (None, [small], []),
        (["image 451 × 300"], [small, sound], []),
        (["image 451 × 300"], [small, large], ["made image 451 × 300, image 768 × 576"]),
        (["image 451 × 300"], [], ["made no such file"]),
        (["image"] * 2, [small, large], []),
        ([], [sound], ["made audio"]),
    ]
    for wanted, made, faults in rows:
        case = planning.Case(["?"], has=["yes"], lacks="no", files=wanted)
        assert list(planning.faults_of(case, "Yes", made)) == faults
    assert list(planning.faults_of(case, "No", [])) == ['has no "yes"', 'has "no"']


def test_the_requests_are_two_dozen_and_each_can_fail() -> None:
    assert len(planning.CASES) == 24
    assert all(list(planning.faults_of(case, "", [])) for case in planning.CASES)


@pytest.mark.starter
@pytest.mark.parametrize(
    "run", [comparison.run_agent, comparison.run_create_agent, comparison.run_smolagents]
)
def test_agents_are_compared_on_steps_that_depend_on_results(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "LATENCY_S", 0.0)
    monkeypatch.chdir(tmp_path)
    planning.write_files(tmp_path)
    plans = dict(zip(itertools.chain(*comparison.CHATS), comparison.PLANS, strict=True))
    chat = next(
        [(turn, plans[turn]) for turn in turns] for turns in comparison.CHATS if "most pixels" in turns[0]
    )
    read, written = run(chat, hf_tools(tasks=["media-info", "resize-image"]))
    assert (len(read), written[-1]) == (3, comparison.ANSWER)
    assert "resize-image" in written[1]
    assert re.search(r"resize-image\.(jpg|png)", read[-1])
