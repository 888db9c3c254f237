"""PromptSet: the messages of the stages that are not chains yet. To be removed with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from jarvis_agent.llm.budget import (
    DEFAULT_WINDOW,
    shorten_data,
    shorten_lines,
    shorten_rows,
    shorten_text,
    to_json_line,
    truncate_json,
)
from jarvis_agent.llm.chat_history import shorten_history
from jarvis_agent.llm.prompts import Prompts, PromptSource, fill, load_prompts
from jarvis_agent.response.results import model_assignment, predictions, totals

if TYPE_CHECKING:
    from jarvis_agent.core.request import RunContext
    from jarvis_agent.core.types import Task, TaskResult
    from jarvis_agent.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Fills the templates of the selection and response stages."""

    prompts: Prompts
    window: int = DEFAULT_WINDOW

    def respond_messages(
        self, brief: RunContext, plan: Plan, results: Sequence[TaskResult]
    ) -> list[BaseMessage]:
        """Ask for the answer to the request, given what was done."""
        return self._messages(
            self.prompts.respond,
            input=shorten_text(brief.request),
            predictions=shorten_rows(lambda share: predictions(results, share)),
            totals=shorten_data(totals(results)),
            model_assignment=shorten_data(model_assignment(results)),
            tasks=shorten_data([_task(task) for task in plan.tasks]),
            notes=shorten_lines(f"- {to_json_line(note)}" for note in plan.notes),
            chat_log=shorten_history(brief.turns),
        )

    def chat_messages(self, brief: RunContext, notes: Sequence[str] = ()) -> list[BaseMessage]:
        """Ask for a plain answer, without experts."""
        return self._messages(
            self.prompts.chat,
            input=shorten_text(brief.request),
            notes=shorten_lines(f"- {to_json_line(note)}" for note in notes),
            chat_log=shorten_history(brief.turns),
        )

    def _messages(self, template: Any, **values: str | Callable[[int], str]) -> list[BaseMessage]:
        messages: list[BaseMessage] = template.invoke(fill(template, values, self.window)).to_messages()
        return messages


def load_prompt_set(source: PromptSource, window: int = DEFAULT_WINDOW, stage: str = "plan") -> PromptSet:
    """The prompt set of that name or directory; a template is that of `stage`."""
    return PromptSet(load_prompts(source, stage), window)


def _task(task: Task) -> dict[str, Any]:
    return {"task": task.task, "id": task.id, "dep": task.dep, "args": truncate_json(task.args, 150)}
