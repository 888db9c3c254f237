"""PromptSet: the messages of the stages that are not chains yet. To be removed with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from jarvis_agent.backends.hub.model_card import first_tokens
from jarvis_agent.core.tasks.registry import find_task
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
    from jarvis_agent.core.tasks.spec import TaskSpec
    from jarvis_agent.core.types import Candidate, Task, TaskResult
    from jarvis_agent.planning.plan import Plan

_CARD_TOKENS = 100


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Fills the templates of the selection and response stages."""

    prompts: Prompts
    window: int = DEFAULT_WINDOW

    def select_messages(
        self, brief: RunContext, task: Task, candidates: Sequence[Candidate], spec: TaskSpec | None = None
    ) -> list[BaseMessage]:
        """Ask for the best of the candidates for a task."""
        spec = spec or find_task(task.task, brief.specs)
        return self._messages(
            self.prompts.select,
            input=shorten_text(brief.request),
            task=to_json_line(_task(task)),
            task_description=spec.description if spec else "",
            candidate_models=shorten_rows(lambda share: [candidate_card(one, share) for one in candidates]),
        )

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


def candidate_card(candidate: Candidate, limit: int = _CARD_TOKENS) -> dict[str, Any]:
    """A candidate as the LLM is shown it: id, metadata, description of at most `limit` tokens."""
    known = {
        "downloads": candidate.downloads,
        "likes": candidate.likes,
        "license": candidate.license,
        "languages": list(candidate.languages),
        "megabytes": round(candidate.size / 1e6) if candidate.size else None,
        "on_this_machine": candidate.local,
        "good_for": list(candidate.traits),
        "tags": list(candidate.tags[:8]),
    }
    return {
        "model_id": candidate.id,
        "metadata": {name: value for name, value in known.items() if value not in (None, [], 0)},
        "description": first_tokens(candidate.description, min(limit, _CARD_TOKENS)),
    }
