"""Choosing models is scored on cases of our own, through the real selector."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.evaluation.selection import (
    CANNOT_RUN,
    Chosen,
    choose,
    read_cases,
    score_choices,
)
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.testing import ScriptedLLM

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
    assert faults == {*CANNOT_RUN, "language", "domain", "licence", "size"}


def test_downloads_alone_never_choose_right_so_that_a_right_choice_has_a_reason() -> None:
    assert not [case.id for case in CASES if case.most_downloaded in case.right]


# The choice


async def test_the_ranking_never_chooses_what_cannot_run_or_is_not_allowed() -> None:
    for case in CASES:
        chosen = await choose(case, llm=None)
        assert not chosen.defects & {*CANNOT_RUN, "licence"}, case.id
        assert (chosen.model is None) == (not case.right), case.id


async def test_a_token_in_the_environment_opens_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    assert (await choose(BY_ID["depth-estimation-1"], llm=None)).is_right


async def test_the_users_own_settings_change_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_POLICY", "hosted-only")
    monkeypatch.setenv("JARVIS_LICENSES", "none-at-all")
    assert (await choose(BY_ID["depth-estimation-1"], llm=None)).is_right


async def test_a_language_model_chooses_by_the_descriptions_and_its_tokens_count() -> None:
    case = BY_ID["object-detection-1"]
    chosen = await choose(case, saying({"id": case.right[0], "reason": "it knows zebras"}))
    assert (chosen.is_right, chosen.reason, chosen.by) == (True, "it knows zebras", "llm")
    assert chosen.usage.calls == 1


async def test_a_wrong_choice_has_the_faults_of_the_model() -> None:
    chosen = await choose(BY_ID["object-detection-1"], saying({"id": "vista/face-finder", "reason": "?"}))
    assert (chosen.is_right, chosen.defects) == (False, {"domain"})


# The figures, by hand


def test_figures_agree_with_hand_computed_ones() -> None:
    zebras, refused = BY_ID["object-detection-1"], BY_ID["summarization-2"]
    depth, small = BY_ID["depth-estimation-1"], BY_ID["automatic-speech-recognition-2"]
    ours, popular = score_choices(
        [
            Chosen(zebras, zebras.right[0], ""),
            Chosen(refused, None, ""),
            Chosen(depth, "deep/depth-pro", ""),
            Chosen(small, "hear/many-tongues-medium", "", by="llm"),
        ],
        "ours",
    )
    figures = {figure.name: figure.value for figure in ours.figures}
    fits = {"language": None, "domain": 1, "licence": None, "size": 0}
    assert figures == {"right": 0.5, "runs": 0.75, **fits, "by the LLM": 0.25}
    assert (popular.name, popular.figures[0].value, popular.requests) == ("most downloaded", 0.0, 4)


def test_to_refuse_where_a_model_is_right_is_wrong_and_counted() -> None:
    (ours, _) = score_choices([Chosen(BY_ID["object-detection-1"], None, "")], "ours")
    figures = {figure.name: figure.value for figure in ours.figures}
    assert (figures["right"], figures["runs"], figures["domain"], ours.unanswered) == (0, 0, 0, 1)
