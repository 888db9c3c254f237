"""Of invented models, each with its defects, none is chosen that cannot run or is not allowed."""

import json
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import NoCandidateError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Task
from jarvis_agent.selection.selector import ModelSelector
from jarvis_agent.testing import FakeBackend, FakeSource

FORBIDDEN = {"gate", "library", "download", "place", "licence"}
"""Defects that filters know; the others, such as "domain" and "size", are up to the ranking."""

CASES = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data/selection.jsonl").read_text().splitlines()
]


class LocalModels(FakeBackend):
    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        known = candidate.library in ("transformers", "diffusers")
        return None if known else f"no backend for models of {candidate.library}"


class HostedModels(FakeBackend):
    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return None if candidate.providers else "no provider serves it"


async def choose(case: dict[str, Any]) -> set[str] | None:
    """The defects of the model that is chosen, or None if all are refused."""
    models = [dict(one) for one in case["candidates"]]
    defects = {one["id"]: set(one.pop("wrong")) for one in models}
    selector = ModelSelector(
        [FakeSource(Candidate(task=case["task"], **one) for one in models)],
        [LocalModels({}, "local models"), HostedModels({}, "hosted models", local=False)],
        Settings(**{"offline": False, "max_download": 5_000_000_000, **case["settings"]}),
    )
    task = Task(task=case["task"], id=0, args=case["args"])
    try:
        found = await selector.select(task, TASKS[case["task"]], RunContext(case["request"], specs=TASKS))
    except NoCandidateError:
        return None
    return defects[found.model]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_no_model_is_chosen_that_cannot_run_or_is_not_allowed(case: dict[str, Any]) -> None:
    chosen = await choose(case)
    allowed = any(not one["wrong"] for one in case["candidates"])
    assert (chosen is not None) == allowed
    assert not (chosen or set()) & FORBIDDEN
