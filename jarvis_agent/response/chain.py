"""response_chain: stage 4 of HuggingGPT as a Runnable. The plan and its results go in, the answer comes out.

    chain = response_chain("openai:gpt-5-mini")
    for piece in chain.stream({"input": "What is in a.jpg?", "plan": plan, "results": results}): ...
    chain.with_fallbacks([template_responder()], exception_key="error")

The chain is prompt template | chat model | StrOutputParser | path check. An empty plan is answered as plain
conversation. Every file path in an answer is checked; failures that it omits are appended. If the model fails
after its first words, the report of the results is appended; before them, its LLMError is raised.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableGenerator, RunnableLambda, RunnablePassthrough

from jarvis_agent.core.chat_log import messages_of
from jarvis_agent.core.errors import LLMError, describe_error
from jarvis_agent.core.messages import phrases
from jarvis_agent.core.settings import Settings, load_settings
from jarvis_agent.core.types import Task, TaskResult
from jarvis_agent.llm.budget import (
    context_window,
    shorten_data,
    shorten_lines,
    shorten_rows,
    shorten_text,
    to_json_line,
    truncate_json,
)
from jarvis_agent.llm.chat_history import shorten_history
from jarvis_agent.llm.client import open_client
from jarvis_agent.llm.prompts import PromptSource, fill, load_prompts
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.path_checker import PathChecker
from jarvis_agent.response.report import report, troubles
from jarvis_agent.response.results import model_assignment, predictions, totals

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from jarvis_agent.llm.client import LLMClient

_TROUBLE = re.compile(
    r"fail|error|unable|sorry|unfortunately|skip|not (?:able|possible)|(?:could|can|did)(?: ?not|n['’]t)"
    r"|失败|无法|未能|没能|不能|跳过|出错|错误|抱歉",
    re.IGNORECASE,
)
"""Words with which an answer admits a failure."""


def response_chain(
    llm: BaseChatModel | LLMClient | str | None,
    *,
    prompts: PromptSource | None = None,
    settings: Settings | None = None,
) -> Runnable[dict[str, Any], str]:
    """A Runnable that writes the answer from what the tasks produced. Its run is named "respond".

    Its input is a dict with "input" (the request), "plan" (a Plan), "results" (TaskResults), and optionally
    "files" and "chat_history".

    Args:
        llm: a chat model, an `init_chat_model` string, or an LLMClient; None: the configured model.
        prompts: a set's name, a directory, or a template; None: as configured.
        settings: None: from the environment.

    Raises:
        ConfigError: the model or a prompt cannot be used.
    """
    settings = settings or load_settings()
    client = open_client(llm, settings)
    templates = load_prompts(settings.prompts if prompts is None else prompts, "respond")
    window = context_window(client.model, settings)

    def stage(name: str, template: BasePromptTemplate[Any], variables: Callable[..., Any]) -> Any:
        values = RunnableLambda(partial(variables, template, window), name="variables")
        return values | template | client.for_stage(name) | StrOutputParser()

    respond = stage("respond", templates.respond, _respond_variables)
    chat = stage("chat", templates.chat, _chat_variables)

    def write(inputs: Mapping[str, Any]) -> Runnable[Any, str]:
        return respond if _plan(inputs).tasks else chat  # type: ignore[no-any-return]

    answer = RunnablePassthrough.assign(answer=RunnableLambda(write))
    return (answer | RunnableGenerator(_check, _acheck)).with_config(run_name="respond")


def template_responder(*, model_missing: bool = False) -> Runnable[dict[str, Any], str]:
    """A Runnable like `response_chain` without an LLM: a report in fixed words.

    Args:
        model_missing: end an empty plan's report with how to configure a language model.
    """

    def write(values: Iterator[Any]) -> Iterator[str]:
        for inputs in values:
            words = phrases(inputs["input"])
            note = words.set_up if model_missing else ""
            if error := inputs.get("error"):
                note = words.no_answer.format(error=describe_error(error))
            yield from report(inputs["input"], _plan(inputs), inputs.get("results") or (), note)

    async def awrite(values: AsyncIterator[Any]) -> AsyncIterator[str]:
        async for inputs in values:
            for piece in write(iter([inputs])):
                yield piece

    return RunnableGenerator(write, awrite, name="respond")


def report_after_failure(inputs: Mapping[str, Any], begun: bool, error: str) -> Iterator[str]:
    """The report that completes an answer whose writer failed.

    Args:
        begun: whether a part of the answer was shown.
        error: why the writer failed.
    """
    words = phrases(inputs["input"])
    if begun:
        yield f"\n\n{words.broke_off.format(error=error)}\n\n"
    note = "" if begun else words.no_answer.format(error=error)
    yield from report(inputs["input"], _plan(inputs), inputs.get("results") or (), note)


class _Answer:
    """One answer as it streams: its paths are checked, and omitted failures are appended."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = inputs
        self._plan = _plan(inputs)
        self._results: Sequence[TaskResult] = inputs.get("results") or ()
        self._text = ""
        self._checker = _path_checker(inputs) if self._plan.tasks else None

    def feed(self, piece: str) -> str:
        """The text that can be shown after this piece."""
        shown = self._checker.feed(piece) if self._checker else piece
        self._text += shown
        return shown

    def finish(self) -> str:
        """The rest of the answer."""
        rest = self._checker.finish() if self._checker else ""
        more = self._omitted(self._text + rest)
        return f"{rest}\n\n{more}" if more else rest

    def fail(self, error: LLMError) -> Iterator[str]:
        """The report that completes the answer. Raises `error` if nothing was shown yet."""
        if not self._text:
            raise error
        yield self._checker.finish() if self._checker else ""
        yield from report_after_failure(self._inputs, True, str(error))

    def _omitted(self, text: str) -> str:
        """What the answer must say but does not: that nothing was run, or what failed."""
        words = phrases(self._inputs["input"])
        if not self._plan.tasks:
            return words.not_run.format(notes="; ".join(self._plan.notes)) if self._plan.notes else ""
        return "" if _TROUBLE.search(text) else troubles(self._plan, self._results, words)


async def _acheck(chunks: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[str]:
    """The checked answer. The chunks are the inputs, then pieces of the answer."""
    inputs: dict[str, Any] = {}
    answer: _Answer | None = None
    try:
        async for chunk in chunks:
            inputs |= {key: value for key, value in chunk.items() if key != "answer"}
            if "answer" in chunk:
                answer = answer or _Answer(inputs)
                if text := answer.feed(chunk["answer"]):
                    yield text
    except LLMError as error:
        for piece in (answer or _Answer(inputs)).fail(error):
            yield piece
        return
    if answer and (text := answer.finish()):
        yield text


def _check(chunks: Iterator[Mapping[str, Any]]) -> Iterator[str]:
    """As `_acheck`."""
    inputs: dict[str, Any] = {}
    answer: _Answer | None = None
    try:
        for chunk in chunks:
            inputs |= {key: value for key, value in chunk.items() if key != "answer"}
            if "answer" in chunk:
                answer = answer or _Answer(inputs)
                if text := answer.feed(chunk["answer"]):
                    yield text
    except LLMError as error:
        yield from (answer or _Answer(inputs)).fail(error)
        return
    if answer and (text := answer.finish()):
        yield text


def _plan(inputs: Mapping[str, Any]) -> Plan:
    plan = inputs.get("plan")
    return Plan() if plan is None else plan


def _respond_variables(
    template: BasePromptTemplate[Any], window: int, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    results, plan = list(inputs.get("results") or ()), _plan(inputs)
    values = {
        "input": shorten_text(inputs["input"]),
        "predictions": shorten_rows(lambda budget: predictions(results, budget)),
        "totals": shorten_data(totals(results)),
        "model_assignment": shorten_data(model_assignment(results)),
        "tasks": shorten_data([_task(task) for task in plan.tasks]),
    }
    return fill(template, values | _shared_variables(inputs), window)


def _chat_variables(
    template: BasePromptTemplate[Any], window: int, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    return fill(template, {"input": shorten_text(inputs["input"])} | _shared_variables(inputs), window)


def _shared_variables(inputs: Mapping[str, Any]) -> dict[str, Any]:
    turns = PlanRequest.of({**inputs, "tools": None}).turns
    return {
        "notes": shorten_lines(f"- {to_json_line(note)}" for note in _plan(inputs).notes),
        "chat_log": shorten_history(turns),
        "chat_history": messages_of(turns),
    }


def _task(task: Task) -> dict[str, Any]:
    return task.model_dump() | {"args": truncate_json(task.args, 150)}


def _path_checker(inputs: Mapping[str, Any]) -> PathChecker:
    request = PlanRequest.of({**inputs, "tools": None})
    results: Sequence[TaskResult] = inputs.get("results") or ()
    return PathChecker(
        made=[resource for result in results for resource in result.resources],
        known=[*request.files, *(resource for turn in request.turns for resource in turn.resources)],
        quoted=list(_quotable(request, _plan(inputs), results)),
        missing=phrases(request.request).no_file,
        looks=not inputs.get("restricted"),
    )


def _quotable(request: PlanRequest, plan: Plan, results: Sequence[TaskResult]) -> Iterator[Any]:
    """Texts and data whose words an answer may repeat."""
    yield request.request
    yield plan.notes
    for turn in request.turns:
        yield [turn.request, turn.answer]
    for result in results:
        yield [result.task.args, result.output, result.error or "", result.notes]
        yield [resource.text or "" for resource in result.resources]
