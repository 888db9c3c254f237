"""response_chain: stage 4 of HuggingGPT as a Runnable. The plan and its results go in, the answer comes out.

    chain = response_chain("openai:gpt-5-mini")
    for piece in chain.stream({"input": "What is in a.jpg?", "plan": plan, "results": results}): ...
    chain.with_fallbacks([template_responder()], exception_key="error")

The chain is prompt template | chat model | StrOutputParser | path check. An empty plan is answered as plain
conversation. Every file path in an answer is checked. Final results and failures that it omits are appended.
If the model fails after its first words, the report of the results is appended; before them, its LLMError is
raised.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Required, cast

from langchain_core.messages import BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableGenerator
from langchain_core.runnables.graph import Graph
from typing_extensions import TypedDict

from jarvis_agent.core.context import messages_of
from jarvis_agent.core.errors import LLMError, describe_error
from jarvis_agent.core.messages import phrases
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.sync import AsyncRunnable
from jarvis_agent.core.text import map_texts
from jarvis_agent.core.types import TaskResult
from jarvis_agent.llm.budget import (
    context_window,
    shorten_data,
    shorten_lines,
    shorten_rows,
    shorten_text,
    to_json_line,
    truncate_json,
)
from jarvis_agent.llm.chat_model import is_small
from jarvis_agent.llm.client import LanguageModel, LLMClient, open_client
from jarvis_agent.llm.prompts import Prompts, PromptSource, fill, prompts_for, shorten_history
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.plan import NO_MODEL, NOTHING_ASKED, Plan
from jarvis_agent.response.answer_checker import contains_result, language
from jarvis_agent.response.path_checker import PathChecker
from jarvis_agent.response.report import (
    describe_failures,
    describe_outcome,
    is_unavailable,
    report,
)
from jarvis_agent.response.results import (
    file_names,
    input_files,
    model_assignment,
    predictions,
    totals,
)


def response_chain(
    llm: LanguageModel,
    *,
    prompts: PromptSource | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Runnable[ResponseInput, str]:
    """A Runnable that writes the answer from what the tasks produced. Its run is named "respond".

    Its input is a dict with "input" (the request), "plan" (a Plan), "results" (TaskResults), and optionally
    "files", "chat_history", and "language", that of the answer.

    Args:
        llm: a chat model, an `init_chat_model` string, or an LLMClient; None: the configured model.
        prompts: a set's name, a directory, or a template; None: as configured.
        settings: a dict of some is enough; None: from the environment.

    Raises:
        ConfigError: the model or a prompt cannot be used.
    """
    settings = read_settings(settings)
    client = open_client(llm, settings)
    templates = prompts_for(client.model, settings.prompts if prompts is None else prompts, "respond")
    return ResponseChain(client, templates, settings)


class ResponseInput(TypedDict, total=False):
    """The input of a responder.

    Attributes:
        input: the request.
        plan: the plan; an empty one is answered as plain conversation.
        results: what its tasks made.
        files, chat_history: as in PlanInput.
        language: of the answer, by its name, if it is not the request's.
        restricted: whether the request is untrusted, and must not learn which files exist here.
    """

    input: Required[str]
    plan: Plan
    results: Sequence[TaskResult]
    files: Sequence[Any]
    chat_history: Any
    language: str
    restricted: bool


class ResponseChain(AsyncRunnable[ResponseInput, str]):
    """See `response_chain`."""

    name = "respond"

    def __init__(self, client: LLMClient, prompts: Prompts, settings: Settings) -> None:
        self.client = client
        self.prompts = prompts
        self.window = context_window(client.model, settings)

    async def astream(
        self,
        input: ResponseInput,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[str, None]:
        """The answer in pieces."""
        stage = "respond" if _plan(input).tasks else "chat"
        if is_small(self.client.model) and _says_all(input):
            for text in _report(input, ""):
                yield text
            return
        request = PlanRequest.of({**input, "tools": None})
        values = fill(getattr(self.prompts, stage), _variables(input, request), self.window)
        stream = self._chain(stage).astream(values, config)
        checker = _path_checker(input, request)
        shown: list[str] = []
        try:
            async with aclosing(cast("AsyncGenerator[str, None]", stream)) as pieces:
                async for piece in pieces:
                    # Paths in a conversation are not checked: they may be on any machine.
                    text = checker.feed(piece) if stage == "respond" else piece
                    if text:  # an empty piece would commit `with_fallbacks` to this chain
                        shown.append(text)
                        yield text
        except LLMError as error:
            if not shown:
                raise
            yield checker.finish()
            for text in report_after_failure(input, True, str(error)):
                yield text
        else:
            rest = checker.finish()
            omitted = _omitted("".join([*shown, rest]), input)
            yield f"{rest}\n\n{omitted}" if omitted else rest

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """The graph of the chain for a plan with tasks."""
        return self._chain("respond").get_graph(config)

    def get_prompts(self, config: RunnableConfig | None = None) -> list[BasePromptTemplate[Any]]:
        """The prompt for results, and the one for an empty plan."""
        return [self.prompts.respond, self.prompts.chat]

    def _chain(self, stage: str) -> Runnable[Any, str]:
        chain: Runnable[Any, str] = getattr(self.prompts, stage) | self.client.for_stage(stage) | TextPieces()
        return chain.with_config(run_name="respond")


class TextPieces(StrOutputParser):
    """A StrOutputParser that reads each piece at once instead of in a thread."""

    name: str | None = "StrOutputParser"

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[str]:  # noqa: A002
        async for piece in input:
            yield piece if isinstance(piece, str) else str(piece.text)


def template_responder(*, model_missing: bool = False, advice: str = "") -> Runnable[dict[str, Any], str]:
    """A Runnable like `response_chain` without an LLM: a report in fixed words.

    Args:
        model_missing: tell each user once how to configure a language model.
        advice: what would make more models available; shown if a task has none.
    """

    def write(values: Iterator[Any]) -> Iterator[str]:
        for inputs in values:
            if error := inputs.get("error"):
                yield from report_after_failure(inputs, False, describe_error(error))
            else:
                words, is_own = phrases(inputs["input"]), not inputs.get("restricted")
                # A client of a server can neither install anything nor set a model up.
                lacks_model = is_own and advice and NO_MODEL in str(_plan(inputs).notes)
                helps = words.helps.format(advice=words.translated(advice)) if lacks_model else ""
                hint = words.set_up if is_own and model_missing and _is_first_hint() else ""
                yield from _report(inputs, "\n\n".join(filter(None, (helps, hint))))

    async def awrite(values: AsyncIterator[Any]) -> AsyncIterator[str]:
        async for inputs in values:
            for piece in write(iter([inputs])):
                yield piece

    return RunnableGenerator(write, awrite, name="respond")


def _is_first_hint() -> bool:
    """Whether this user was never told how to configure a language model; from now on they were.

    False also where that cannot be remembered: `jarvis doctor` says it too.
    """
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "jarvis_agent"
        state.mkdir(parents=True, exist_ok=True)
        (state / "told-how-to-set-up-a-model").touch(exist_ok=False)
    except (OSError, RuntimeError):  # `Path.home` raises RuntimeError
        return False
    return True


def report_after_failure(inputs: Mapping[str, Any], begun: bool, error: str) -> Iterator[str]:
    """The report that completes an answer whose writer failed.

    Args:
        begun: whether a part of the answer was shown.
        error: why the writer failed.
    """
    words, plan = phrases(inputs["input"]), _plan(inputs)
    # The same error often ended the planning too.
    notes = [note for note in plan.notes if error not in note]
    inputs = {**inputs, "plan": plan.model_copy(update={"notes": notes})}
    if begun:
        yield f"\n\n{words.broke_off.format(error=error)}\n\n"
    yield from _report(inputs, "" if begun else words.no_answer.format(error=error))


def _report(inputs: Mapping[str, Any], note: str) -> Iterator[str]:
    return report(inputs["input"], _plan(inputs), inputs.get("results") or (), note)


def _says_all(inputs: Mapping[str, Any]) -> bool:
    """Whether the report is in the request's language, and a small model could only say the same or guess."""
    if inputs.get("language") or language(inputs["input"]) not in ("en", "zh"):
        return False
    return bool(_plan(inputs).tasks) or is_unavailable(_plan(inputs))


def _plan(inputs: Mapping[str, Any]) -> Plan:
    plan = inputs.get("plan")
    return Plan() if plan is None else plan


def _omitted(answer: str, inputs: Mapping[str, Any]) -> str:
    """What the answer must say but does not: that nothing was run, a result, or what failed."""
    words, plan = phrases(inputs["input"]), _plan(inputs)
    if not plan.tasks:
        notes = [words.translated(note) for note in plan.notes if NOTHING_ASKED not in note]
        return words.not_run.format(notes="; ".join(notes)) if notes else ""
    results: Sequence[TaskResult] = inputs.get("results") or ()
    done = [result for result in results if result.status == "ok"]
    used = {i for result in done for i in refs_in(result.task.args)}
    final = [result for result in done if result.task.id not in used]
    missing = [result for result in final if not contains_result(answer, result, inputs["input"])]
    failed = [result for result in results if result.status != "ok"]
    causes = [result for result in failed if result.status == "failed"] or failed
    if all(result.task.task in answer for result in causes):
        failed = []
    if not missing:
        return describe_failures(plan, failed, words)
    return "\n\n".join(filter(None, describe_outcome(plan, [*missing, *failed], words)))


def _variables(inputs: Mapping[str, Any], request: PlanRequest) -> dict[str, Any]:
    """The values of the prompts' variables, the most important first."""
    results, plan = list(inputs.get("results") or ()), _plan(inputs)
    names = file_names(results)

    def named(value: Any) -> Any:
        # Paths differ between runs. With names, an identical run has an identical prompt for LLM caches.
        return map_texts(value, lambda text: names.get(text, text), keys=True)

    outcome = describe_outcome(plan, results, phrases(inputs["input"])) if plan.tasks else ()
    findings = "\n\n".join(filter(None, outcome))
    if len(plan.tasks) == 1:  # the report of one task does not say what it is about
        findings = f"{', '.join(input_files(plan.tasks[0]))}: {findings}".removeprefix(": ")
    for path, name in names.items():
        findings = findings.replace(path, name)
    tasks = [task.model_dump() | {"args": truncate_json(task.args, 150)} for task in plan.tasks]
    language = f"\n\n(Answer in {inputs['language']}.)" if inputs.get("language") else ""
    return {
        "input": shorten_text(inputs["input"] + language),
        "predictions": shorten_rows(lambda budget: named(predictions(results, budget))),
        "findings": shorten_text(findings),
        "totals": shorten_data(named(totals(results))),
        "model_assignment": shorten_data(model_assignment(results)),
        "tasks": shorten_data(tasks),
        "notes": shorten_lines(f"- {to_json_line(note)}" for note in plan.notes),
        "chat_log": shorten_history(request.turns),
        "chat_history": messages_of(request.turns),
    }


def _path_checker(inputs: Mapping[str, Any], request: PlanRequest) -> PathChecker:
    results: Sequence[TaskResult] = inputs.get("results") or ()
    resources = [resource for result in results for resource in result.resources]
    quoted = [
        request.text,
        _plan(inputs).notes,
        [(turn.request, turn.answer) for turn in request.turns],
        [(result.task.args, result.output, result.error or "", result.notes) for result in results],
        [resource.text or "" for resource in resources],
    ]
    return PathChecker(
        made=resources,
        names={name: path for path, name in file_names(results).items()},
        known=[*request.files, *(resource for turn in request.turns for resource in turn.resources)],
        quoted=quoted,
        missing=phrases(request.text).no_file,
        looks=not inputs.get("restricted"),
    )
