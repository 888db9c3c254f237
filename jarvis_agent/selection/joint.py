"""One call of the language model for the models of a whole plan (`Settings.selection = "joint"`).

    joint = JointChoice(ask, candidates_of_task)
    chosen, why = await joint.choice(task, candidates, brief)      # waits until the plan is complete

Every task of the plan asks as soon as it is known, and all of them wait for `brief.announced`. The first one
to wake asks the language model for all tasks that have several candidates; the others find their answers
there. Tasks that come later (in the place of ones that failed) are no part of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from jarvis_agent.core.concurrency import uncounted
from jarvis_agent.core.errors import LLMError, describe_error
from jarvis_agent.llm.json_stream import JsonReader
from jarvis_agent.core.request import Announced, RunContext
from jarvis_agent.selection.chain import Choice, read_choice
from jarvis_agent.core.types import Candidate, Task

Question = tuple[Task, Sequence[Candidate]]
"""A task, and the models that it may have."""

Ask = Callable[[Sequence[Question], RunContext], Awaitable[str]]
"""Has the language model answer all questions at once; gives its reply."""


@dataclass(slots=True)
class _Round:
    """The one call of a run: nobody asks while another does, nor once there is an answer.

    What went wrong is made anew for each task: an exception that was raised holds the frames it came through,
    the run's among them, and the run would stay.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    said: Mapping[int, str] | None = None
    failure: Callable[[], Exception] | None = None


class JointChoice:
    """The language model's choices for whole plans, by run.

    Args:
        ask: asks the language model.
        candidates: gives what a task of a plan may choose from; fewer than two are no question.
    """

    def __init__(self, ask: Ask, candidates: Callable[[Task, RunContext], Awaitable[Sequence[Candidate]]]) -> None:
        self._ask = ask
        self._candidates = candidates
        self._rounds: WeakKeyDictionary[Announced, _Round] = WeakKeyDictionary()

    async def choice(self, task: Task, candidates: Sequence[Candidate], brief: RunContext) -> Choice | None:
        """The chosen candidate and why, or None and what was wrong; None alone where the plan lacks the task.

        Raises:
            TimeoutError: the language model was late.
            Exception: what `ask` raised; the other tasks of the plan are told it as an LLMError.
        """
        if brief.announced is None:
            return None
        with uncounted():
            planned = await brief.announced.tasks()
        if task not in planned:
            return None
        turn = self._rounds.setdefault(brief.announced, _Round())
        async with turn.lock:
            if turn.said is None and turn.failure is None:
                await self._answer(turn, planned, brief)
        if turn.failure is not None:
            raise turn.failure()
        said = (turn.said or {}).get(task.id)
        if said is None:
            return None, "the language model chose nothing for this task"
        return read_choice(said, candidates)

    async def _answer(self, turn: _Round, planned: Sequence[Task], brief: RunContext) -> None:
        lists = await asyncio.gather(*(self._candidates(task, brief) for task in planned))
        open_questions = [(task, found) for task, found in zip(planned, lists, strict=True) if len(found) > 1]
        try:
            turn.said = read_choices(await self._ask(open_questions, brief)) if open_questions else {}
        except (TimeoutError, asyncio.CancelledError):
            # Its time is over, by its own limit or that of the task which asks for all: nobody asks again.
            turn.failure = TimeoutError
            raise
        except Exception as error:
            turn.failure = partial(LLMError, describe_error(error))
            raise


def joint_schema(questions: Sequence[Question]) -> dict[str, Any]:
    """The JSON schema of the reply: for each task one of its ids, and a reason."""
    ids = list(dict.fromkeys(one.id for _, candidates in questions for one in candidates))
    choice = {
        "type": "object",
        "properties": {
            "task": {"type": "integer", "enum": [task.id for task, _ in questions]},
            "id": {"type": "string", "enum": ids},
            "reason": {"type": "string"},
        },
        "required": ["task", "id", "reason"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {"choices": {"type": "array", "items": choice}},
        "required": ["choices"],
        "additionalProperties": False,
    }


def read_choices(said: str) -> dict[int, str]:
    """By task id, the choice that a reply makes for it, as `read_choice` takes it; the first one counts.

    Both `[{"task": 0, "id": …}]` and `{"0": {"id": …}}` are understood; what is neither is left out.
    """
    reader = JsonReader()
    choices: dict[int, str] = {}
    for found in [*reader.feed(said), *reader.close()]:
        for number, choice in _choices(found.value, found.path):
            choices.setdefault(number, choice)
    return choices


def _choices(value: Any, path: Sequence[str]) -> Iterator[tuple[int, str]]:
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return
    number = str(value.get("task", path[-1] if path else ""))
    if number.isdecimal():
        yield int(number), json.dumps({"id": value["id"], "reason": str(value.get("reason") or "")})
