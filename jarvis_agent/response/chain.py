"""The last stage: the answer. LLMResponder has the language model write it, ReportResponder needs none.

    async for piece in LLMResponder(controller, settings).respond(brief, plan, results):
        print(piece, end="")

Whatever happens, there is an answer, and an honest one: where the language model fails, the report takes its
place or goes on after it; and what it keeps silent about (a failure, a plan that came to nothing) is added.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.messages import Phrases, phrases
from jarvis_agent.llm.prompt_set import PromptSet, load_prompt_set
from jarvis_agent.response.path_checker import PathChecker
from jarvis_agent.response.report import report, troubles

if TYPE_CHECKING:
    from jarvis_agent.core.request import RunContext
    from jarvis_agent.core.settings import Settings
    from jarvis_agent.core.types import TaskResult
    from jarvis_agent.llm.client import LLMClient
    from jarvis_agent.planning.plan import Plan

_TROUBLE = re.compile(
    r"fail|error|unable|sorry|unfortunately|skip|not (?:able|possible)|(?:could|can|did)(?: ?not|n['’]t)"
    r"|失败|无法|未能|没能|不能|跳过|出错|错误|抱歉",
    re.IGNORECASE,
)
"""Words by which an answer owns up to a failure, however it is put."""

__all__ = ["LLMResponder", "ReportResponder", "Responder"]


class Responder(Protocol):
    """Writes the answer."""

    def respond(self, brief: RunContext, plan: Plan, results: Sequence[TaskResult]) -> AsyncIterator[str]:
        """The answer in pieces, from what really happened. A failing language model raises nothing here."""
        ...


class ReportResponder:
    """Writes a report, always the same for the same run.

    Args:
        model_missing: whether the report ends by saying that no language model is set up, and how to have
            one.
    """

    def __init__(self, model_missing: bool = False) -> None:
        self.model_missing = model_missing

    async def respond(
        self, brief: RunContext, plan: Plan, results: Sequence[TaskResult]
    ) -> AsyncGenerator[str, None]:
        """The report, paragraph by paragraph."""
        note = phrases(brief.request).set_up if self.model_missing else ""
        for piece in report(brief, plan, results, note):
            yield piece


class LLMResponder:
    """Has the language model write the answer, and checks every file path in it.

    An empty plan is answered as plain conversation, in which paths are not checked: it is about no files.
    """

    def __init__(self, controller: LLMClient, settings: Settings, prompts: PromptSet | None = None) -> None:
        self.controller = controller
        self.prompts = prompts or load_prompt_set(settings.prompts)

    async def respond(
        self, brief: RunContext, plan: Plan, results: Sequence[TaskResult]
    ) -> AsyncGenerator[str, None]:
        """The answer as the language model writes it; the report where it fails."""
        stage = "respond" if plan.tasks else "chat"
        messages = (
            self.prompts.respond_messages(brief, plan, results)
            if plan.tasks
            else self.prompts.chat_messages(brief, plan.notes)
        )
        words = phrases(brief.request)
        guard = _guard(brief, plan, results, words.no_file) if plan.tasks else _Unguarded()
        said = ""
        try:
            async with aclosing(self.controller.stream_text(stage, messages, brief)) as pieces:
                async for piece in pieces:
                    if text := guard.feed(piece):
                        said += text
                        yield text
            if text := guard.finish():
                said += text
                yield text
            if more := _left_out(said, plan, results, words):
                yield f"\n\n{more}"
            return
        except LLMError as error:
            failure = str(error)
        if said:
            yield guard.finish()
            yield f"\n\n{words.broke_off.format(error=failure)}\n\n"
        note = "" if said else words.no_answer.format(error=failure)
        for piece in report(brief, plan, results, note):
            yield piece


class _Unguarded:
    """In place of a PathChecker: the answer passes as it is."""

    def feed(self, text: str) -> str:
        return text

    def finish(self) -> str:
        return ""


def _left_out(said: str, plan: Plan, results: Sequence[TaskResult], words: Phrases) -> str:
    """What an answer must tell and this one does not: that nothing was run, or what did not work."""
    if not plan.tasks:
        return words.not_run.format(notes="; ".join(plan.notes)) if plan.notes else ""
    return "" if _TROUBLE.search(said) else troubles(plan, results, words)


def _guard(brief: RunContext, plan: Plan, results: Sequence[TaskResult], missing: str) -> PathChecker:
    return PathChecker(
        made=[resource for result in results for resource in result.resources],
        known=[*brief.files, *(resource for turn in brief.turns for resource in turn.resources)],
        quoted=list(_quotable(brief, plan, results)),
        missing=missing,
        looks=not brief.confined,
    )


def _quotable(brief: RunContext, plan: Plan, results: Sequence[TaskResult]) -> Iterator[Any]:
    """Everything whose words an answer may repeat."""
    yield brief.request
    yield plan.notes
    for turn in brief.turns:
        yield [turn.request, turn.answer]
    for result in results:
        yield [result.task.args, result.output, result.error or "", result.notes]
        yield [resource.text or "" for resource in result.resources]
