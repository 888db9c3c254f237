"""Our own requests with hand-made plans: over all task types, in English and Chinese, in two halves.

    for asked in read_requests("dev"):
        asked.request, asked.kind, asked.plans      # "Describe porch.jpg and …", "sequential", [[Task, Task]]
        asked.brief                                 # what a planner is given

A planner may be improved on the half "dev". The half "test" is there to be scored and not to be looked at.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from jarvis_agent.core.errors import InputError
from jarvis_agent.evaluation.plan_equality import needs_of
from jarvis_agent.evaluation.jsonl import records_in, what_is_wrong
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.core.request import RunContext, ChatTurn
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Frozen, Resource, Task

Kind = Literal["single", "sequential", "graph", "empty"]
Half = Literal["dev", "test"]

KINDS: tuple[Kind, ...] = ("single", "sequential", "graph", "empty")
LANGUAGES = {"en": "English", "zh": "Chinese"}


class Earlier(Frozen):
    """An earlier turn of the chat; `files` are those that it was given or made."""

    request: str
    answer: str
    files: list[str] = Field(default_factory=list)


class OwnRequest(Frozen):
    """A request and the plan that it should lead to.

    Attributes:
        id: its name, which never changes.
        half: "dev" or "test"; it never changes either.
        kind: one task, a chain of tasks, any other graph of tasks, or no task at all.
        language: its code; English and Chinese have figures of their own.
        files: those that it names, and those that come with it. None of them exists.
        turns: earlier turns of the chat, oldest first.
        plan: the tasks, with the arguments that matter; others may be there too.
        alternatives: further plans that are as right.
    """

    id: str
    half: Half = "dev"
    kind: Kind
    language: str = "en"
    request: str
    files: list[str] = Field(default_factory=list)
    turns: list[Earlier] = Field(default_factory=list)
    plan: list[Task]
    alternatives: list[list[Task]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _has_plans_that_can_be_run(self) -> Self:
        for plan in self.plans:
            before: set[int] = set()
            for task in plan:
                if task.task not in TASKS:
                    raise ValueError(f'there is no task type "{task.task}"')
                if not needs_of(task) <= before:
                    raise ValueError(f"task {task.id} needs a task that does not stand before it")
                before.add(task.id)
        return self

    @property
    def plans(self) -> list[list[Task]]:
        """All plans that are right, the one that a plain reader would think of first."""
        return [self.plan, *self.alternatives]

    @property
    def brief(self) -> RunContext:
        """What a planner is given."""
        turns = tuple(ChatTurn(turn.request, turn.answer, _resources(turn.files)) for turn in self.turns)
        return RunContext(self.request, files=_resources(self.files), turns=turns, specs=TASKS)


def read_requests(half: Half | Literal["all"] = "all", path: Path | None = None) -> list[OwnRequest]:
    """The requests of a half, or of both.

    Args:
        path: another file of such requests, instead of ours.

    Raises:
        InputError: the file can not be read, holds none, or one that is not such as `OwnRequest` describes.
    """
    path = path or data_file("requests.jsonl")
    read: dict[str, OwnRequest] = {}
    for record in records_in(path):
        try:
            asked = OwnRequest.model_validate(record)
        except ValidationError as error:
            raise InputError(f"{path}, the request {record['id']}: {what_is_wrong(error)}") from error
        if asked.id in read:
            raise InputError(f"{path} has two requests with the id {asked.id}")
        read[asked.id] = asked
    found = [asked for asked in read.values() if half in ("all", asked.half)]
    if not found:
        raise InputError(f"{path} holds no requests" + ("" if half == "all" else f" of the half {half}"))
    return found


def data_file(name: str) -> Path:
    """The path of a file that comes with this package."""
    return Path(str(files("jarvis_agent.evaluation") / "data" / name))


def _resources(names: list[str]) -> tuple[Resource, ...]:
    found: dict[str, Any] = {one.name: one for name in names for one in named_files(f'"{name}"')}
    return tuple(found.values())
