"""The cases of test_every_task.py: each task type on each kind of model that does it.

They are described in tests/data/task_cases.yaml, and their checks are functions of task_checks.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import task_checks
import yaml

TABLE = Path(__file__).parents[1] / "data" / "task_cases.yaml"


@dataclass(frozen=True)
class Case:
    """A task type on one kind of model.

    Attributes:
        task: name of the task type.
        args: arguments of the tool; "@name" is the path of a media file.
        checks: functions of task_checks and their arguments.
        model: a tiny model; None: a starter model or an algorithm does the task.
        metadata: metadata of the model's description.
        library: library of the model's description.
        needs: a module that the model needs; where it is missing, the error must name it.
    """

    task: str
    args: Mapping[str, Any]
    checks: Mapping[str, Any]
    model: str | None
    metadata: Mapping[str, Any]
    library: str | None
    needs: str | None

    @property
    def label(self) -> str:
        return f"{self.task}-{self.model}" if self.model else self.task

    def check(self, artifact: task_checks.Artifact) -> None:
        """Check what the tool returns beside its text (output, resources, model), read back from JSON."""
        for name, given in self.checks.items():
            args, options = ([], given) if isinstance(given, dict) else (given, {})
            getattr(task_checks, name)(artifact, *args, **options)


def _cases(
    task: str,
    *,
    args: Mapping[str, Any],
    check: Mapping[str, Any],
    models: Sequence[str | None] = (None,),
    steps: int = 0,
    options: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    needs: str | None = None,
) -> list[Case]:
    """The cases of a row of the table, one for each model."""
    options = {**({"num_inference_steps": steps} if steps else {}), **(options or {})}
    described = {**({"options": options} if options else {}), **(metadata or {})}
    library = "diffusers" if steps else None
    return [Case(task, args, check, model, described, library, needs) for model in models]


_ROWS = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
del _ROWS["shared"]
CASES = [case for task, rows in _ROWS.items() for row in rows for case in _cases(task, **row)]
