"""response_chain: stage 4 of HuggingGPT as a Runnable. The plan and its results go in, the answer comes out.

    chain = response_chain("openai:gpt-5-mini")   # prompt | chat model; the paths are checked
    for piece in chain.stream({"input": "What is in a.jpg?", "plan": plan, "results": results}): ...

The answer is the model's own. Two lines may be added: the made files, and the failed tasks, that it does not
mention. If the model fails after its first words, the report of the results is appended; before them, its
LLMError is raised. With "tools", the model may write further tasks instead of an answer, where a step of the
request depends on the results, or a task failed. What begins as tasks is held back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Required, cast

from langchain_core.messages import BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.graph import Graph
from typing_extensions import TypedDict

from jarvis_agent.core.concurrency import run_cpu_bound
from jarvis_agent.core.context import messages_of
from jarvis_agent.core.errors import ForbiddenError, InputError, JarvisError, LLMError
from jarvis_agent.core.file_mentions import split_names
from jarvis_agent.core.notes import Note, template_of
from jarvis_agent.core.phrases import Phrases, phrases
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.sync import AsyncRunnable
from jarvis_agent.core.tasks.registry import TASKS, canonical
from jarvis_agent.core.text import brief_text, map_texts
from jarvis_agent.core.types import Resource, TaskResult
from jarvis_agent.llm.chat_model import is_small
from jarvis_agent.llm.client import LanguageModel, LLMClient, open_client
from jarvis_agent.llm.prompts import Prompts, PromptSource, fill, format_chat_history, load_prompts, uses
from jarvis_agent.llm.tokens import clip_rows, to_json_line
from jarvis_agent.media.documents import load_text
from jarvis_agent.planning.chain import read_further_tasks
from jarvis_agent.planning.inputs import PlanRequest, Tools, name_of
from jarvis_agent.planning.messages import list_files, task_variables
from jarvis_agent.planning.plan import NO_MODEL, NOTHING_ASKED, Plan
from jarvis_agent.response.path_checker import PathChecker
from jarvis_agent.response.report import plan_of, report
from jarvis_agent.response.results import file_names, input_files, model_assignment, predictions, totals

_MAX_REASON_CHARS = 200
_PART_SHARE = 12
"""Totals, the chat history, … take at most a twelfth of the window each; results and texts two."""
_MAX_FILES = 5
"""Files that are listed; of more, the first ones, the last one, and their number."""
_TEXT_KINDS = ("text", "table", "file")
"""Kinds of files whose content is a text."""
_TASKS = ('{"tasks":[', '[{"task":', '[{"id":')
"""How further tasks begin, without white space."""


def response_chain(
    llm: LanguageModel,
    *,
    prompts: PromptSource | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Runnable[ResponseInput, str]:
    """A Runnable that writes the answer from what the tasks produced. Its run is named "respond".

    Its input is a dict with "input" (the request), "plan" (a Plan), "results" (TaskResults), and optionally
    "files", "chat_history", "language", that of the answer, and "tools". With "tools" its only chunk may be a
    Plan of further tasks; with a prompt that has no place for them, it never is.

    A model whose name states less than 2 billion parameters only converses. Of results, it gives the report.

    Args:
        llm: a chat model, an `init_chat_model` string, or an LLMClient; None: the configured model.
        prompts: a set's name, a directory, or a template; None: as configured.
        settings: a dict of some is enough; None: from the environment.

    Raises:
        ConfigError: the model or a prompt cannot be used.
    """
    settings = read_settings(settings)
    client = open_client(llm, settings)
    return ResponseChain(client, load_prompts(prompts or settings.prompts, "respond"), settings)


class ResponseInput(TypedDict, total=False):
    """The input of a responder.

    Attributes:
        input: the request.
        plan: the plan; an empty one is answered as plain conversation.
        results: what its tasks made.
        files, chat_history: as in PlanInput.
        tools: the task types of further tasks; None: there can be none.
        available: the task types that can run.
        language: of the answer, by its name, if it is not the request's.
        restricted: whether the request is untrusted, and must not learn which files exist here.
    """

    input: Required[str]
    plan: Plan
    results: Sequence[TaskResult]
    files: Sequence[Any]
    chat_history: Any
    tools: Tools
    available: Sequence[str]
    language: str
    restricted: bool


@dataclass(eq=False, repr=False)
class ResponseChain(AsyncRunnable[ResponseInput, str]):
    """See `response_chain`."""

    name = "respond"

    client: LLMClient
    prompts: Prompts
    settings: Settings

    async def astream(
        self,
        input: ResponseInput,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Any, None]:
        """The answer in pieces, or a Plan of further tasks."""
        stage = "respond" if plan_of(input).tasks else "chat"
        if stage == "respond" and is_small(self.client.model):
            for text in report(input):
                yield text
            return
        request, template = PlanRequest.of(input), getattr(self.prompts, stage)
        may_go_on = input.get("tools") is not None and uses(template, "available_tasks")
        window = await self.client.window()
        texts = await run_cpu_bound(response_texts, input, request, window)
        specs = request.specs if may_go_on else {}
        whole = task_variables(specs, window, brief=True) | {"chat_history": messages_of(request.turns)}
        stream = self._chain(stage).astream(fill(template, texts, window, **whole), config)
        checker = await run_cpu_bound(self._path_checker, input, request)
        shown, held, further = list[str](), "", None if may_go_on else False
        try:
            async with aclosing(cast("AsyncGenerator[str, None]", stream)) as pieces:
                async for piece in pieces:
                    held += piece
                    if further is None:
                        further = _begins_tasks(held)
                    if further is False:
                        # Paths in a conversation are not checked: they may be on any machine.
                        text, held = (checker.feed(held) if stage == "respond" else held), ""
                        if text:  # an empty piece would commit `with_fallbacks` to this chain
                            shown.append(text)
                            yield text
        except LLMError as error:
            if not shown:
                raise
            yield checker.feed("", final=True)
            for text in report_after_failure(input, True, error.note):
                yield text
            return
        # An answer in JSON may begin alike.
        if further and ('"args"' in held or '"tasks":[]' in "".join(held.split())):
            results = list(input.get("results") or ())
            yield read_further_tasks(held, request, plan_of(input), results, self.settings)
            return
        rest = checker.feed(held, final=True)
        omitted = _omitted("".join([*shown, rest]), input)
        yield f"{rest}\n\n{omitted}" if omitted else rest

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """The graph of the chain for a plan with tasks."""
        return self._chain("respond").get_graph(config)

    def get_prompts(self, config: RunnableConfig | None = None) -> list[BasePromptTemplate[Any]]:
        """The prompt for results, and the one for an empty plan."""
        return [self.prompts.respond, self.prompts.chat]

    def _path_checker(self, inputs: Mapping[str, Any], request: PlanRequest) -> PathChecker:
        outputs = [resource for result in inputs.get("results") or () for resource in result.resources]
        earlier = [resource for turn in request.turns for resource in turn.resources]
        return PathChecker(
            {name: path for path, name in file_names(inputs.get("results") or ()).items()},
            str(self.settings.output_dir.absolute()),
            [str(resource.path) for resource in (*outputs, *request.files, *earlier) if resource.path],
            phrases(request.text).no_file,
        )

    def _chain(self, stage: str) -> Runnable[Any, str]:
        chain: Runnable[Any, str] = getattr(self.prompts, stage) | self.client.for_stage(stage) | TextPieces()
        return chain.with_config(run_name="respond")


def response_texts(inputs: Mapping[str, Any], request: PlanRequest, window: int) -> dict[str, str]:
    """The texts of the prompts, the most important first. Blocks: reads text files."""
    results, plan = list(inputs.get("results") or ()), plan_of(inputs)
    names = file_names(results)

    def named(value: Any) -> Any:
        # Paths differ between runs. With names, an identical run has an identical prompt for LLM caches.
        return map_texts(value, lambda text: names.get(text, text), keys=True)

    language = f"\n\n(Answer in {inputs['language']}.)" if inputs.get("language") else ""
    read, part = _texts_read(request.files, results), window // _PART_SHARE
    counted = named(totals(results))
    return {
        "predictions": clip_rows(named(predictions(results)), 2 * part),
        "input": inputs["input"] + language,
        "texts": clip_rows([{name: text} for name, text in read.items()], 2 * part),
        "totals": clip_rows([counted], part) if counted else "",
        "model_assignment": clip_rows([model_assignment(results)], part),
        "tasks": clip_rows([[task.model_dump() for task in plan.tasks]], part),
        "notes": "\n".join(f"- {to_json_line(note)}" for note in plan.notes),
        "files": list_files(request.files),
        "chat_log": format_chat_history(request.turns, part),
    }


class TextPieces(StrOutputParser):
    """A StrOutputParser that reads each piece at once instead of in a thread."""

    name: str | None = "StrOutputParser"

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[str]:  # noqa: A002
        async for piece in input:
            yield piece if isinstance(piece, str) else str(piece.text)


def template_responder(
    *, model_missing: bool = False, advice: Sequence[str] = ()
) -> Runnable[dict[str, Any], str]:
    """A Runnable like `response_chain` without an LLM: a report in fixed words.

    With `model_missing`, an answer without tasks says how to configure a language model. `advice`, on what
    would make more models available, is shown if a task has none.
    """

    def write(inputs: dict[str, Any]) -> Iterator[str]:
        plan, is_own = plan_of(inputs), not inputs.get("restricted")
        # A client of a server can neither install anything nor set a model up.
        lacks_model = is_own and NO_MODEL in map(template_of, plan.notes)
        hint = phrases(inputs["input"]).set_up if is_own and model_missing and not plan.tasks else ""
        yield from report(inputs, hint, advice if lacks_model else ())

    async def awrite(inputs: dict[str, Any]) -> AsyncIterator[str]:
        for piece in write(inputs):
            yield piece

    return RunnableLambda(write, awrite, name="respond")


def report_after_failure(inputs: Mapping[str, Any], begun: bool, error: str) -> Iterator[str]:
    """The report that completes an answer, of which a part was shown if it had `begun`."""
    words, plan = phrases(inputs["input"]), plan_of(inputs)
    error = Note.of(error).public if inputs.get("restricted") else error
    # The same error often ended the planning too.
    notes = [note for note in plan.notes if Note.of(error).message not in note]
    inputs = {**inputs, "plan": plan.model_copy(update={"notes": notes})}
    if begun:
        yield f"\n\n{words.broke_off.format(error=error)}\n\n"
    yield from report(inputs, "" if begun else words.no_answer.format(error=error))


def _begins_tasks(text: str) -> bool | None:
    """Whether a reply is a list of tasks and no answer; None: its first characters do not decide yet."""
    start = "".join(text.strip(" \n`").split())
    if text.lstrip().startswith("`"):
        start = "" if "json".startswith(start) else start.removeprefix("json")
    if any(start.startswith(tasks) for tasks in _TASKS):
        return True
    return None if any(tasks.startswith(start) for tasks in _TASKS) else False


def _texts_read(files: Sequence[Resource], results: Sequence[TaskResult]) -> dict[str, str]:
    """The texts of the request's files that its tasks name, by name. Blocks."""
    by_name = {name_of(file): file.path for file in files if file.path and file.kind in _TEXT_KINDS}
    given, texts = list[str](), dict[str, str]()
    map_texts([result.task.args for result in results], given.append)
    for name in sorted({name for text in given for name in split_names(text, by_name)[1::2]}):
        with suppress(JarvisError, OSError):  # the task that reads it says what is wrong
            texts[name] = load_text(by_name[name])[0]
    return texts


def _omitted(answer: str, inputs: Mapping[str, Any]) -> str:
    """What the answer does not mention: made files, and what failed or was left out of the plan."""
    words, plan = phrases(inputs["input"]), plan_of(inputs)
    results: Sequence[TaskResult] = inputs.get("results") or ()
    specs = [(result, TASKS.get(result.task.task)) for result in results if result.status == "ok"]
    # Other files only illustrate a result in words.
    makers = [
        result for result, spec in specs if not (spec.makes("text") if spec else result.resource("text"))
    ]
    files = [str(path) for result in makers for path in result.paths()]
    files = [path for path in dict.fromkeys(files) if path not in answer]
    if len(files) > _MAX_FILES:
        files = [*files[: _MAX_FILES - 1], f"… {files[-1]} ({len(files)})"]
    failed = [result for result in results if result.status == "failed" and not _says_failed(answer, result)]
    causes = dict.fromkeys(f"{result.task.task}: {_reason(result, words)}" for result in failed)
    left_out = [note for note in plan.removed if template_of(note) != NOTHING_ASKED]
    said = [name for name in TASKS if _names_task(answer, name)]
    left_out = [note for note in left_out if not any(name in note for name in said)]
    missing = [words.translated(text) for text in (*causes, *left_out)]
    lines = (words.made.format(files=words.comma.join(files)), words.not_done.format(what="; ".join(missing)))
    return "\n".join(line for line, listed in zip(lines, (files, missing), strict=True) if listed)


def _says_failed(answer: str, result: TaskResult) -> bool:
    """Whether an answer names a failed task, one of its models, or the file that cannot be used."""
    is_file = result.failure in (InputError.__name__, ForbiddenError.__name__)
    names = [*(attempt.model for attempt in result.attempts), *(input_files(result.task) if is_file else ())]
    return _names_task(answer, result.task.task) or any(name in answer for name in names)


def _names_task(answer: str, task: str) -> bool:
    """Whether an answer names a task type. "translation" is also a word, so it counts in backticks alone."""
    return f"`{task}`" in answer or ("-" in task and task in canonical(answer))


def _reason(result: TaskResult, words: Phrases) -> str:
    """Why a task failed, and the first advice; clients of a server have no advice."""
    error = result.error or ""
    reason = brief_text(Note.of(error).message.rstrip("."), _MAX_REASON_CHARS)
    helps = (words.helps.format(advice=words.translated(advice)) for advice in Note.of(error).advice[:1])
    return ". ".join([reason, *helps])
