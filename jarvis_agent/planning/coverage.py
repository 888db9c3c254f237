"""Coverage: whether a plan does all that the request asks for.

    coverage = Coverage(request.files, request.specs, hints.steps(request), hints.unlearned)
    coverage.find_errors(tasks)   # [PlanParseError("make a canny edge image of it", "no task does this; …")]
    coverage.additions(tasks)     # [{"task": "canny-control", …}]: the expected tasks for the gaps

A gap is a file that no task uses, or a step for which the hints expect a task and no task of the plan may be
meant. Another task than the expected one may be meant if it is likely for the step, takes and makes the same
kinds, answers questions about the same kind, or is unlearned and uses the same files. Empty plans, as of
conversation, have no gaps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import count
from typing import Any

from jarvis_agent.core.languages import find_language
from jarvis_agent.core.references import ref, refs_in, substitute
from jarvis_agent.core.tasks.spec import MEDIA, TaskSpec
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.planning.hints import PlannedStep
from jarvis_agent.planning.normalise import TaskDraft
from jarvis_agent.planning.parser import PlanParseError

_UNDERSTOOD, _CERTAIN = 0.6, 0.7
"""Scores of a step's task: with less, the step is no gap; with less, nothing is added for it."""

_FAR, _FAR_FOR_TOOLS, _NEAR = 0.35, 0.7, 0.2
"""How far below the likeliest task another one may score and be meant for the step instead; how far it may be
if it is also meant for another step."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What a request names and asks for.

    Attributes:
        files: the files of the request.
        specs: the task types that a plan may use, by name.
        steps: its steps with the tasks that are expected for them.
        unlearned: the task types that are never expected (see `RequestHints`).
    """

    files: Sequence[Resource] = ()
    specs: Mapping[str, TaskSpec] = field(default_factory=dict)
    steps: Sequence[PlannedStep] = ()
    unlearned: Collection[str] = ()

    def find_errors(self, tasks: Sequence[Task]) -> list[PlanParseError]:
        """What the request names or asks for, and no task uses or does."""
        if not tasks:
            return []
        _, left_out = self._compared(tasks)
        add = f"add a task for it to the tasks {', '.join(f'{task.id} ({task.task})' for task in tasks)}"
        files = [f for f in self._present() if not any(_is_in(_names(f), task) for task in tasks)]
        steps = [step for step in self.steps if any(task in left_out for task in step.tasks)]
        return [
            *(PlanParseError(f.name, f"no task uses this {f.kind} of the request; {add}") for f in files),
            *(PlanParseError(s.text, f"the request asks for this, no task does it; {add}") for s in steps),
        ]

    def lacks(self, draft: TaskDraft, tasks: Sequence[Task]) -> bool:
        """Whether a task fills a gap of a plan."""
        task = Task(task=draft.spec.name, id=-1, dep=[], args=dict(draft.args))
        return len(self.find_errors([*tasks, task])) < len(self.find_errors(tasks))

    def additions(self, tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
        """The expected tasks for the gaps that are certain. They refer to the plan's tasks.

        Tools are never added, and no task that makes what an unexpected task of the plan may stand for.
        """
        twins, left_out = self._compared(tasks) if tasks else ({}, [])
        expected = {task.task for step in self.steps for task in step.tasks}
        unexpected = {self._made(task) for task in tasks if task.task not in expected}
        ids = count(max((task.id for task in tasks), default=-1) + 1)
        for step in self.steps:
            for task in step.tasks if _score(step) >= _CERTAIN else ():
                is_safe = self.specs[task.task].category != "tool" and self._made(task) not in unexpected
                if task in left_out and is_safe and twins.keys() >= {*refs_in(task.args)}:
                    twins[task.id] = next(ids)
                    args = substitute(task.args, lambda number: ref(twins[number]))
                    yield {"task": task.task, "id": twins[task.id], "dep": refs_in(args), "args": args}

    def _compared(self, tasks: Sequence[Task]) -> tuple[dict[int, int], list[Task]]:
        """By id, the plan's task for each expected one, and the expected ones that have none."""
        pairs = [(step, task) for step in self.steps for task in step.tasks]
        free, twins = list(tasks), dict[int, int]()

        def match(pool: Sequence[Task], is_twin: Callable[[PlannedStep, Task, Task], bool]) -> None:
            alone = [(step, task) for step, task in pairs if task.id not in twins]
            found = [(step, task, one) for step, task in alone for one in pool if is_twin(step, task, one)]
            for _, task, one in sorted(found, key=lambda each: -_likeness(each[1], each[2])):
                if task.id not in twins and (one in free or pool is tasks):
                    twins[task.id] = one.id
                    free[:] = [other for other in free if other is not one]

        match(free, lambda _, task, one: task.task == one.task and self._used(task) == self._used(one))
        match(free, lambda _, task, one: task.task == one.task and not (self._used(task) and self._used(one)))
        match(free, self._may_be_meant)
        match(tasks, lambda step, task, one: task.task != one.task and _is_likely(step, one, _NEAR))
        absent = [file.name for file in self.files if file not in self._present()]
        left = [task for step, task in pairs if step.note is None and _score(step) >= _UNDERSTOOD]
        return twins, [task for task in left if task.id not in twins and not _is_in(absent, task)]

    def _may_be_meant(self, step: PlannedStep, task: Task, other: Task) -> bool:
        """Whether a task of the plan may be meant where another one is expected."""
        mine, its = self.specs.get(task.task), self.specs.get(other.task)
        if mine is None or its is None:
            return False
        if other.task in self.unlearned:
            return self._used(task) == self._used(other)
        is_likely = _is_likely(step, other, _FAR_FOR_TOOLS if its.category == "tool" else _FAR)
        takes, answers = _takes(mine), "text" in its.required and {"text"} <= {*mine.outputs} & {*its.outputs}
        return is_likely or (
            takes == _takes(its) and bool(mine.outputs == its.outputs or (takes and answers))
        )

    def _present(self) -> list[Resource]:
        """The files of a known kind that exist, as far as that is known."""
        is_known = any(file.path for file in self.files)
        return [
            f for f in self.files if f.kind != "file" and (f.path or not is_known or "://" in (f.name or ""))
        ]

    def _used(self, task: Task) -> set[str]:
        """The names of the request's files in a task."""
        return {name for file in self.files for name in _names(file) if _is_in([name], task)}

    def _made(self, task: Task) -> object:
        spec = self.specs.get(task.task)
        return spec.outputs[:1] if spec else task.task


def _score(step: PlannedStep) -> float:
    return max(step.scores.values(), default=0.0)


def _is_likely(step: PlannedStep, task: Task, far: float) -> bool:
    return step.scores.get(task.task, 0.0) >= _score(step) - far


def _takes(spec: TaskSpec) -> set[str]:
    return {arg.kind for arg in spec.inputs if arg.kind in MEDIA}


def _names(file: Resource) -> list[str]:
    names = [name for name in (file.name, str(file.path or "")) if name]
    return [*dict.fromkeys([*names, *(name.rpartition("/")[2] or name for name in names)])]


def _is_in(names: Iterable[str], task: Task) -> bool:
    written = json.dumps(task.args, ensure_ascii=False)
    return any(json.dumps(name, ensure_ascii=False)[1:-1] in written for name in names)


def _likeness(task: Task, other: Task) -> float:
    """How similar the arguments of two tasks are; languages count by their codes."""

    def text(args: Mapping[str, Any]) -> str:
        found = {name: find_language(str(args[name])) for name in args if name.endswith("_lang")}
        codes = {name: language.code for name, language in found.items() if language}
        return json.dumps({**args, **codes}, ensure_ascii=False, sort_keys=True)

    return SequenceMatcher(None, text(task.args), text(other.args)).ratio()
