"""Demonstrations: worked examples for the planner, and those of them that suit a request.

    bank = load_bank()                                       # prompts/demos/bank.json
    nearest(bank, brief, similarity, count=6)                # the likest one last, next to the request

An example suits a request whose steps are near to its tasks, and the other way round: a chain suits a chain.
What is chosen uses only tasks that are offered, by the names and with the arguments that they are offered
under, and no three show the same tasks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files as package_files
from importlib.resources.abc import Traversable
from statistics import fmean
from typing import Any

from pydantic import ValidationError

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.request import ChatTurn, mentions
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.tasks.spec import Modality, TaskSpec
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.planning.inputs import PlanRequest, kind_by_name
from jarvis_agent.planning.retrieval import Similarity

MOST_ALIKE = 2
"""How many of the chosen may show the same tasks."""


SAME_KINDS, SAME_FILES = 0.15, 0.1
"""What it is worth that an example has files of the kinds of the request's, and as many of each."""

_TASKS = 0.7
"""How much of an example's nearness is that of its tasks to the steps of the request; the rest is that of its
request."""

_NO_TASK = ("small-talk", "out-of-scope")
"""What the steps of a request are near to where an example without a task suits it."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A worked example for the planner: a request, the chat before it if there was one, and the plan.

    `files` are those that its request names.
    """

    request: str
    plan: list[dict[str, Any]]
    chat: tuple[ChatTurn, ...] = ()
    files: tuple[Resource, ...] = ()

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of its tasks, in the order of the plan."""
        return tuple(task["task"] for task in self.plan)

    @property
    def written(self) -> str:
        """The plan as the planner would write it."""
        return json.dumps(self.plan, ensure_ascii=False)

    @property
    def written_by_schema(self) -> str:
        """The plan as a planner that is held to a schema has to write it."""
        return json.dumps({"tasks": self.plan}, ensure_ascii=False)

    def uses_only(self, specs: Mapping[str, TaskSpec]) -> bool:
        """Whether every task of the plan is offered."""
        found = (find_task(name, specs) for name in self.tasks)
        return all(spec is not None and spec.name in specs for spec in found)

    def offered_as(self, specs: Mapping[str, TaskSpec]) -> Demonstration | None:
        """The same by the names on offer; None if a task is not offered, or takes other arguments."""
        plan = []
        for task in self.plan:
            spec = find_task(task["task"], specs)
            if spec is None or spec.name not in specs:
                return None
            args = {arg.name: task["args"][arg.name] for arg in spec.inputs if arg.name in task["args"]}
            if not set(spec.required) <= args.keys():
                return None
            plan.append({**task, "task": spec.name, "args": args})
        return replace(self, plan=plan)


def nearest(
    bank: Iterable[Demonstration], brief: PlanRequest, similarity: Similarity, count: int
) -> list[Demonstration]:
    """The demonstrations that suit a request, at most `count`, the likest one last.

    Those with a chat before them are for requests with a chat before them. A follow-up turn is shown one of
    them at least.
    """
    known = [demo for demo in bank if brief.turns or not demo.chat]
    near = similarity.scores(brief.request, [demo.request for demo in known])
    steps = similarity.tasks(brief)
    kinds = Counter(file.kind for file in brief.files)
    scored = [
        (_score(demo, likeness, steps, kinds), offered)
        for demo, likeness in zip(known, near, strict=True)
        if (offered := demo.offered_as(brief.specs))
    ]
    ranked = [demo for _, demo in sorted(scored, key=lambda each: -each[0])]
    if brief.turns:
        first = next((demo for demo in ranked if demo.chat), None)
        ranked.sort(key=lambda demo: demo is not first)
    chosen: list[Demonstration] = []
    shown: Counter[tuple[str, ...]] = Counter()
    for demo in ranked:
        if shown[demo.tasks] < MOST_ALIKE and len(chosen) < count:
            shown[demo.tasks] += 1
            chosen.append(demo)
    return chosen[::-1]


def _score(
    demo: Demonstration, likeness: float, steps: Sequence[Mapping[str, float]], kinds: Counter[Modality]
) -> float:
    """How well an example suits a request of such steps and files."""
    own = Counter(file.kind for file in demo.files)
    same = SAME_KINDS * (own.keys() == kinds.keys()) + SAME_FILES * (own == kinds)
    near = [[step.get(name, 0.0) for name in demo.tasks or _NO_TASK] for step in steps]
    if not near:
        return likeness + same
    asked_for = fmean(map(max, near))
    done = fmean(map(max, zip(*near, strict=True))) if demo.tasks else asked_for
    return (1 - _TASKS) * likeness + _TASKS * (asked_for + done) / 2 + same


def load_bank() -> tuple[Demonstration, ...]:
    """The bank of demonstrations that comes with the package."""
    return fixed("bank")


@lru_cache
def fixed(name: str) -> tuple[Demonstration, ...]:
    """A set of demonstrations that comes with the package: "paper", "default" or "bank"."""
    return read_demonstrations(package_files("jarvis_agent.prompts") / "demos" / f"{name}.json")


def read_demonstrations(file: Traversable) -> tuple[Demonstration, ...]:
    """The demonstrations in a JSON file: a list of `{"request": …, "plan": […]}`, with `chat` where one is.

    The plans are such as the planner writes: `{"task": …, "id": 0, "dep": [-1], "args": {…}}` for each task.

    Raises:
        ConfigError: it can not be read, or has another form.
    """
    try:
        return tuple(map(_demonstration, json.loads(file.read_text(encoding="utf-8"))))
    except OSError as error:
        raise ConfigError(f"the prompt file {file} can not be read: {error}") from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise _no_demonstrations(file, wrong) from error
    except (ValueError, KeyError, TypeError) as error:
        raise _no_demonstrations(file, repr(error)) from error


def _no_demonstrations(file: Traversable, reason: str) -> ConfigError:
    return ConfigError(
        f"the demonstrations {file} can not be read: {reason}. "
        'They are a list of {"request": …, "plan": [{"task": …, "id": 0, "dep": [-1], "args": {…}}]}.'
    )


def _demonstration(row: Mapping[str, Any]) -> Demonstration:
    plan = [Task.model_validate(task).model_dump() for task in row["plan"]]
    request = _text(row["request"])
    files = tuple(Resource(kind=kind_by_name(name), name=name) for name in mentions(request))
    return Demonstration(request, plan, tuple(map(_turn, row.get("chat", ()))), files)


def _turn(turn: Mapping[str, Any]) -> ChatTurn:
    request, answer = _text(turn["request"]), _text(turn["answer"])
    return ChatTurn(
        request, answer, tuple(Resource.model_validate(each) for each in turn.get("resources", ()))
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
