"""Choosing models is scored on cases of our own, through the real selector."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.evaluation.selection import CANNOT_RUN, Chosen, choose, read_cases, score_choices
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.testing import ScriptedLLM

CASES = read_cases()
BY_ID = {case.id: case for case in CASES}


def replying(reply: dict[str, Any]) -> LLMClient:
    return LLMClient(ScriptedLLM({"select": json.dumps(reply)}), Settings())


def test_the_cases_are_complete_and_each_says_why() -> None:
    assert len(BY_ID) == len(CASES) >= 25
    for case in CASES:
        models = [offer.candidate.id for offer in case.offers]
        assert set(TASKS[case.task.task].required) <= case.task.args.keys(), case.id
        assert len(set(models)) == len(models) > 1, case.id
        assert any(offer.wrong for offer in case.offers), case.id
        assert case.most_downloaded not in case.right, case.id
        assert case.reason.endswith("."), case.id
    defects = {defect for case in CASES for offer in case.offers for defect in offer.wrong}
    assert defects == {*CANNOT_RUN, "language", "domain", "licence", "size"}


async def test_the_ranking_never_chooses_what_cannot_run_or_is_not_allowed() -> None:
    for case in CASES:
        chosen = await choose(case, llm=None)
        assert not chosen.defects & {*CANNOT_RUN, "licence"}, case.id
        assert (chosen.model is None) == (not case.right), case.id


async def test_the_environment_changes_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HF_TOKEN": "hf_x",
        "JARVIS_POLICY": "hosted-only",
        "JARVIS_LICENSES": "none",
    }.items():
        monkeypatch.setenv(name, value)
        assert (await choose(BY_ID["depth-estimation-1"], llm=None)).is_right, name


async def test_a_language_model_chooses_by_the_descriptions_and_its_tokens_count() -> None:
    case = BY_ID["object-detection-1"]
    chosen = await choose(case, replying({"id": case.right[0], "reason": "it knows zebras"}))
    assert (chosen.is_right, chosen.reason, chosen.by) == (True, "it knows zebras", "llm")
    assert chosen.usage.calls == 1
    chosen = await choose(case, replying({"id": "vista/face-finder", "reason": "?"}))
    assert (chosen.is_right, chosen.defects) == (False, {"domain"})


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


def test_refusing_where_a_model_fits_is_wrong_and_counted() -> None:
    (ours, _) = score_choices([Chosen(BY_ID["object-detection-1"], None, "")], "ours")
    figures = {figure.name: figure.value for figure in ours.figures}
    assert (figures["right"], figures["runs"], figures["domain"], ours.unanswered) == (0, 0, 0, 1)
