"""One call for all models of a plan, one a task, or none at all; and choices that were made before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_agents import BOXES, CAPTION, plan, small_agent

from jarvis_agent import Settings
from jarvis_agent.core.errors import LLMError
from jarvis_agent.execution.run import Run
from jarvis_agent.selection.joint import read_choices

TWO = plan(("image-to-text", [], {"image": "{picture}"}), ("object-detection", [], {"image": "{picture}"}))
BOTH = json.dumps(
    {
        "choices": [
            {"task": 0, "id": "image-to-text/b", "reason": "it describes"},
            {"task": 1, "id": "object-detection/b", "reason": "it finds cats"},
        ]
    }
)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    return tmp_path / "a.jpg"


async def run_with(picture: Path, replies: Mapping[str, Any], **settings: Any) -> tuple[Run, list[str]]:
    """The run of a plan of two tasks with two candidates each, and the stages that asked the LLM."""
    agent, llm, _ = small_agent(
        TWO.replace("{picture}", str(picture)),
        {"image-to-text": CAPTION, "object-detection": BOXES},
        models=("a", "b"),
        settings=Settings(output_dir=picture.parent / "out", **settings),
    )
    llm.replies.update(replies)
    async with agent:
        run = await agent.ainvoke({"input": "What is in it?", "files": [str(picture)]})
    return run, llm.stages()


def chosen(run: Run) -> list[tuple[str, str]]:
    return [(r.selection.model, r.selection.by) for r in run.results if r.selection]


async def test_joint_selection_is_one_call_for_the_whole_plan(picture: Path) -> None:
    run, stages = await run_with(picture, {"joint": BOTH}, selection="joint")
    assert stages == ["plan", "joint", "respond"]
    assert chosen(run) == [("image-to-text/b", "llm"), ("object-detection/b", "llm")]
    assert run.usage["select"].calls == 1
    assert run.ok


async def test_what_a_joint_reply_lacks_or_makes_up_falls_to_the_rank(picture: Path) -> None:
    said = '[{"task": 0, "id": "org/invented", "reason": "x"}]'
    run, _ = await run_with(picture, {"joint": said}, selection="joint")
    assert chosen(run) == [("image-to-text/a", "rank"), ("object-detection/a", "rank")]
    reasons = [result.selection.reason for result in run.results if result.selection]
    assert "not in the list" in reasons[0]
    assert "chose nothing for this task" in reasons[1]


async def test_a_joint_call_that_fails_is_not_made_again_for_the_next_task(picture: Path) -> None:
    run, stages = await run_with(picture, {"joint": LLMError("no")}, selection="joint")
    assert stages.count("joint") == 1
    assert [by for _, by in chosen(run)] == ["rank", "rank"]
    assert run.ok


async def test_a_joint_call_that_is_late_is_not_made_again_for_the_next_task(picture: Path) -> None:
    """It drips words, so that no silence is too long; each task alone would still have time to ask again."""
    drip = tuple(part for _ in range(2000) for part in ("…", 0.02))
    run, stages = await run_with(picture, {"joint": drip}, selection="joint", select_timeout=0.6)
    assert stages.count("joint") == 1
    assert [by for _, by in chosen(run)] == ["rank", "rank"]
    assert run.ok


async def test_by_rank_no_call_is_made(picture: Path) -> None:
    run, stages = await run_with(picture, {}, selection="rank")
    assert stages == ["plan", "respond"]
    assert chosen(run) == [("image-to-text/a", "rank"), ("object-detection/a", "rank")]


async def test_a_choice_that_was_made_is_not_asked_for_again(picture: Path, tmp_path: Path) -> None:
    kept = tmp_path / "choices"
    await run_with(picture, {"joint": BOTH}, selection="joint", selection_cache=kept)
    for way in ("joint", "per-task"):
        run, stages = await run_with(picture, {}, selection=way, selection_cache=kept)
        assert stages == ["plan", "respond"]
        assert chosen(run) == [("image-to-text/b", "llm"), ("object-detection/b", "llm")]
        assert all("chosen before" in r.selection.reason for r in run.results if r.selection)


@pytest.mark.parametrize(
    "said",
    [
        '[{"task": 0, "id": "m", "reason": "r"}]',
        'Here:\n```json\n{"choices": [{"task": "0", "id": "m", "reason": "r"}]}\n```',
        '{"0": {"id": "m", "reason": "r"}}',
        '{"choices": [{"task": 0, "id": "m", "reason": "r"}, {"task": 1, "id"',
    ],
)
def test_replies_are_understood_in_several_forms(said: str) -> None:
    assert json.loads(read_choices(said)[0]) == {"id": "m", "reason": "r"}


@pytest.mark.parametrize("said", ["", "I can not.", '{"task": 0}', '[{"task": -1, "id": "m"}]', "[[[["])
def test_what_is_no_choice_is_left_out(said: str) -> None:
    assert read_choices(said) == {}
