"""Linking: the tasks of a plan while it is built, each once, with references to those before it.

linker = PlanLinker(masked, request, specs)
linker.emit(TASKS["image-to-text"], {"image": ["page.png"]})         # ["<resource>-0"]
linker.emit(TASKS["text-to-speech"], {"text": ["<resource>-0"]})     # ["<resource>-1"]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.references import ref, refs_in
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Task
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.normalise import MAX_TASKS
from jarvis_agent.planning.offline.coreference import Discourse
from jarvis_agent.planning.offline.masking import MaskedText
from jarvis_agent.planning.offline.phrases import bank_name

_LEFT_OUT = re.compile(r"<left-out>-([\w-]+)")


class PlanLinker:
    """Builds the tasks of a plan.

    Attributes:
        tasks: the tasks so far, each after its dependencies.
        left_out: the number of tasks beyond the limit of a plan.
        discourse: what the request has mentioned so far.
        reads: whether an image-to-text task of the step reads text; None: as one before on the same image.
        offered: the task types that may be used, by their name in the phrase bank, else their own.
    """

    def __init__(self, masked: MaskedText, request: PlanRequest, specs: Mapping[str, TaskSpec]) -> None:
        self.tasks: list[Task] = []
        self.left_out = 0
        self.reads: bool | None = None
        self.discourse = Discourse(masked, request)
        self.offered: Mapping[str, TaskSpec] = {bank_name(s) or s.name: s for s in specs.values()}

    def missing(self, name: str) -> str:
        """The name of a task that is not offered, and why it is not."""
        if any(spec.category == "tool" for spec in self.offered.values()):
            return f"{name}, which is not one of the tools"
        return f"{name}, but no model for it is available here (see `jarvis models {name}`)"

    def leave_out(self, spec: TaskSpec) -> None:
        """Make the results of a task known that is not planned: no later step takes others for them."""
        self.discourse.make(spec, [f"<left-out>-{spec.name}"])

    def check(self, values: object) -> None:
        """Raise PlanError if a result of a task that was left out is among the values."""
        if missing := _LEFT_OUT.search(str(values)):
            raise PlanError(f"it depends on {missing[1]}, which is left out")

    def emit(self, spec: TaskSpec, args: Mapping[str, list[Any]]) -> list[str]:
        """Add a task for each set of arguments: several values of an argument are several tasks.

        An equal task is reused. Tasks beyond the limit of a plan are left out.

        Raises:
            PlanError: the plan is full, or a value is a result of a task that was left out.
        """
        self.check(args)
        if spec.name == "image-to-text" and self.reads:
            args = {**args, "text": ["read"]}
        runs = max((len(values) for values in args.values()), default=1)
        found = [self._task(spec.name, _nth(args, number)) for number in range(runs)]
        references = [reference for reference in found if reference is not None]
        if not references:
            raise PlanError(f"a plan has at most {MAX_TASKS} tasks")
        self.left_out += len(found) - len(references)
        self.discourse.make(spec, references)
        self.discourse.note_fed(spec, args)
        return references

    def _task(self, name: str, args: dict[str, Any]) -> str | None:
        """The reference to a task with these arguments; None if it is new and the plan is full."""
        equal = [args]
        if name == "image-to-text" and self.reads is None:
            equal = [{"image": args["image"]}, {**args, "text": "read"}]
        for task in self.tasks:
            if task.task == name and task.args in equal:
                return ref(task.id)
        number = len(self.tasks)
        if number == MAX_TASKS:
            return None
        self.tasks.append(Task(task=name, id=number, dep=refs_in(args) or [-1], args=args))
        return ref(number)


def _nth(args: Mapping[str, list[Any]], number: int) -> dict[str, Any]:
    return {name: values[min(number, len(values) - 1)] for name, values in args.items()}
