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
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableGenerator, ensure_config
from langchain_core.runnables.graph import Graph

from jarvis_agent.core.chat_log import messages_of
from jarvis_agent.core.errors import LLMError, describe_error
from jarvis_agent.core.messages import phrases
from jarvis_agent.core.settings import Settings, load_settings
from jarvis_agent.core.sync import iterate_sync, run_sync
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
from jarvis_agent.llm.prompts import Prompts, PromptSource, fill, load_prompts
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
    templates = load_prompts(settings.prompts if prompts is None else prompts, "respond")
    return ResponseChain(open_client(llm, settings), templates, settings)


class ResponseChain(Runnable[dict[str, Any], str]):
    """See `response_chain`."""

    name = "respond"

    def __init__(self, client: LLMClient, prompts: Prompts, settings: Settings) -> None:
        self.client = client
        self.prompts = prompts
        self.window = context_window(client.model, settings)

    def invoke(self, input: dict[str, Any], config: RunnableConfig | None = None, **kwargs: Any) -> str:  # noqa: A002
        """The answer."""
        return run_sync(self.ainvoke, input, ensure_config(config))

    def stream(
        self,
        input: dict[str, Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[str]:
        """The answer in pieces."""
        yield from iterate_sync(self.astream, input, ensure_config(config))

    async def ainvoke(
        self,
        input: dict[str, Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> str:
        """The answer."""
        return "".join([piece async for piece in self.astream(input, config)])

    async def astream(
        self,
        input: dict[str, Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[str, None]:
        """The answer in pieces."""
        stage, values = self._variables(input)
        answer = _Answer(input)
        stream = self._chain(stage).astream(values, ensure_config(config))
        try:
            async with aclosing(cast("AsyncGenerator[str, None]", stream)) as pieces:
                async for piece in pieces:
                    if text := answer.feed(piece):
                        yield text
        except LLMError as error:
            for text in answer.fail(error):
                yield text
        else:
            if text := answer.finish():
                yield text

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """The graph of the chain for a plan with tasks."""
        return self._chain("respond").get_graph(config)

    def get_prompts(self, config: RunnableConfig | None = None) -> list[BasePromptTemplate[Any]]:
        """The prompt for results, and the one for an empty plan."""
        return [self.prompts.respond, self.prompts.chat]

    def _chain(self, stage: str) -> Runnable[Any, str]:
        template = self.prompts.respond if stage == "respond" else self.prompts.chat
        chain = template | self.client.for_stage(stage) | StrOutputParser()
        return chain.with_config(run_name="respond")

    def _variables(self, inputs: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The stage, "respond" or "chat" for an empty plan, and the variables of its prompt."""
        if _plan(inputs).tasks:
            return "respond", _respond_variables(self.prompts.respond, self.window, inputs)
        return "chat", _chat_variables(self.prompts.chat, self.window, inputs)


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
        missing=phrases(request.text).no_file,
        looks=not inputs.get("restricted"),
    )


def _quotable(request: PlanRequest, plan: Plan, results: Sequence[TaskResult]) -> Iterator[Any]:
    """Texts and data whose words an answer may repeat."""
    yield request.text
    yield plan.notes
    for turn in request.turns:
        yield [turn.request, turn.answer]
    for result in results:
        yield [result.task.args, result.output, result.error or "", result.notes]
        yield [resource.text or "" for resource in result.resources]
