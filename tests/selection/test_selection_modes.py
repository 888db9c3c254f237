"""One call for all models of a plan, one a task, or none at all; and choices that were made before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_agents import BOXES, CAPTION, plan, small_agent

from jarvis_agent import Settings
from jarvis_agent.execution.run import Run

TWO = plan(("image-to-text", [], {"image": "{picture}"}), ("object-detection", [], {"image": "{picture}"}))


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


async def test_by_rank_no_call_is_made(picture: Path) -> None:
    run, stages = await run_with(picture, {}, selection="rank")
    assert stages == ["plan", "respond"]
    assert chosen(run) == [("image-to-text/a", "rank"), ("object-detection/a", "rank")]
