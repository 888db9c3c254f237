"""A well-known Hub model for each task type, from recommended.csv.

They appear in docs/tasks.md and in the error for a task without a model; the selector does not prefer them.
Some are larger than `Settings.max_download`, and some have no safetensors.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jarvis_agent.core.tasks.spec import TaskSpec


@dataclass(frozen=True, slots=True)
class RecommendedModel:
    """A model's id on the Hub, and its licence as the Hub spells it.

    `size` are the bytes to download, and `safetensors` tells whether its weights come as such. None: unknown.
    """

    id: str
    license: str
    size: int | None
    safetensors: bool | None


@cache
def recommended_models() -> dict[str, RecommendedModel]:
    """Return the recommended model of each task that has a small, free one."""
    text = files(__package__).joinpath("recommended.csv").read_text(encoding="utf-8")
    return {
        row["task"]: RecommendedModel(
            row["model"],
            row["license"],
            int(row["megabytes"]) * 1_000_000 if row["megabytes"] else None,
            {"yes": True, "no": False}.get(row["safetensors"]),
        )
        for row in csv.DictReader(text.splitlines())
    }


def recommended(spec: TaskSpec) -> RecommendedModel | None:
    """Return the recommended model for a task, or for the task whose models it shares; None without one."""
    return recommended_models().get(spec.models_of or spec.name)
