"""Choosing models is scored on cases of our own, through the real selector."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from jarvis_agent.interfaces.cli.app import app
from jarvis_agent.evaluation.selection import RUNS, SelectionQuery, Chosen, choose, read_cases, report_on_choices
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.core.settings import Settings
from jarvis_agent.testing import ScriptedLLM
from jarvis_agent.core.tasks.registry import TASKS

pytest.importorskip("numpy")

CASES = read_cases()
BY_ID = {case.id: case for case in CASES}


def saying(reply: dict[str, Any]) -> LLMClient:
    return LLMClient(ScriptedLLM({"select": json.dumps(reply)}), Settings())


# The set


def test_there_are_enough_cases_and_each_says_why() -> None:
    assert len(CASES) >= 25
    assert len(BY_ID) == len(CASES)
    assert all(case.reason.endswith(".") for case in CASES)


def test_a_case_has_a_real_task_and_a_choice_to_make() -> None:
    for case in CASES:
        models = [offer.candidate.id for offer in case.offers]
        assert set(TASKS[case.task.task].required) <= case.task.args.keys(), case.id
        assert len(set(models)) == len(models) > 1, case.id
        assert any(offer.wrong for offer in case.offers), case.id


def test_every_fault_is_there() -> None:
    faults = {fault for case in CASES for offer in case.offers for fault in offer.wrong}
    assert faults == {*RUNS, "language", "domain", "licence", "size"}


def test_downloads_alone_never_choose_right_so_that_a_right_choice_has_a_reason() -> None:
    assert not [case.id for case in CASES if case.most_downloaded in case.right]


# The choice


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_the_rank_never_chooses_what_can_not_run_or_is_not_allowed(case: SelectionQuery) -> None:
    chosen = await choose(case, controller=None)
    assert not chosen.faults & {*RUNS, "licence"}
    assert (chosen.model is None) == (not case.right)


async def test_whoever_runs_it_no_token_opens_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    assert (await choose(BY_ID["depth-estimation-1"], controller=None)).is_right


async def test_the_users_own_settings_change_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_POLICY", "hosted-only")
    monkeypatch.setenv("JARVIS_LICENSES", "none-at-all")
    assert (await choose(BY_ID["depth-estimation-1"], controller=None)).is_right


async def test_a_language_model_chooses_by_the_descriptions_and_its_tokens_count() -> None:
    case = BY_ID["object-detection-1"]
    chosen = await choose(case, saying({"id": case.right[0], "reason": "it knows zebras"}))
    assert (chosen.is_right, chosen.reason, chosen.by) == (True, "it knows zebras", "llm")
    assert chosen.usage.calls == 1


async def test_a_wrong_choice_has_the_faults_of_the_model() -> None:
    chosen = await choose(BY_ID["object-detection-1"], saying({"id": "vista/face-finder", "reason": "?"}))
    assert (chosen.is_right, chosen.faults) == (False, {"domain"})


# The figures, by hand


def test_figures_agree_with_hand_computed_ones() -> None:
    zebras, refused = BY_ID["object-detection-1"], BY_ID["summarization-2"]
    depth, small = BY_ID["depth-estimation-1"], BY_ID["automatic-speech-recognition-2"]
    ours, popular = report_on_choices(
        [
            Chosen(zebras, zebras.right[0], ""),
            Chosen(refused, None, ""),
            Chosen(depth, "deep/depth-pro", ""),
            Chosen(small, "hear/many-tongues-medium", "", by="llm"),
        ],
        "ours",
    )
    figures = {figure.name: figure.value for figure in ours.figures}
    fits = {"language": 1, "domain": 1, "licence": 1, "size": 0}
    assert figures == {"right": 0.5, "runs": 0.75, **fits, "by the LLM": 0.25}
    assert (popular.name, popular.figures[0].value, popular.requests) == ("the most downloaded", 0.0, 4)


def test_to_refuse_where_a_model_is_right_is_wrong_and_counted() -> None:
    (ours, _) = report_on_choices([Chosen(BY_ID["object-detection-1"], None, "")], "ours")
    figures = {figure.name: figure.value for figure in ours.figures}
    assert (figures["right"], figures["runs"], figures["domain"], ours.unanswered) == (0, 0, 0, 1)


# The command


def called(*words: object) -> Result:
    return CliRunner().invoke(app, ["eval", "selection", "--model", "none", *map(str, words)])


def test_one_command_scores_the_choices_beside_the_most_downloaded() -> None:
    done = called("--json", "--failures")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [report["requests"] for report in found["reports"]] == [len(CASES)] * 2
    runs = next(figure for figure in found["reports"][0]["figures"] if figure["name"] == "runs")
    assert runs["value"] == 1.0
    assert all(failure["got"] not in failure["expected"] for failure in found["failures"])


def test_a_language_models_share_of_the_choices_and_its_calls_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = ScriptedLLM({"select": '{"id": "openvision/detector-coco", "reason": "it knows animals"}'})
    monkeypatch.setattr("jarvis_agent.llm.client.resolve_model", lambda name, settings: model)
    done = CliRunner().invoke(app, ["eval", "selection", "--model", "scripted", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)["reports"][0]
    share = {figure["name"]: figure["value"] for figure in report["figures"]}["by the LLM"]
    assert share == pytest.approx(2 / len(CASES), abs=1e-6)
    assert report["usage"]["calls"] > 2


def test_a_language_model_that_chose_nothing_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedLLM({"select": "I can not choose."})
    monkeypatch.setattr("jarvis_agent.llm.client.resolve_model", lambda name, settings: model)
    done = CliRunner().invoke(app, ["eval", "selection", "--model", "scripted", "--json"])
    assert (done.exit_code, len(json.loads(done.stdout)["reports"])) == (1, 2)
    assert "scripted chose nothing" in done.stderr


def test_failures_name_what_was_wrong_with_the_choice() -> None:
    done = called("--failures")
    assert done.exit_code == 0, done.output
    assert "the most downloaded" in done.stdout
    assert "(wrong: domain)" in done.stdout
