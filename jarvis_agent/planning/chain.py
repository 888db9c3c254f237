"""planning_chain: stage 1 of HuggingGPT as a Runnable. A request goes in, a Plan comes out.

    chain = planning_chain("openai:gpt-5-mini", tools=["object-detection", my_tool])
    chain.invoke({"input": "How many cats are there?", "files": ["a.jpg"]})     # Plan
    for plan in chain.stream("Describe a.jpg"): ...                             # tasks as they become final
    chain.with_fallbacks([OfflinePlanner()])

For each request it composes `prompt | chat model | PlanOutputParser`. The system message and the JSON schema
are the same for every request. What rules cannot repair is sent back to the model once, with the errors.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.example_selectors import BaseExampleSelector
from langchain_core.messages import BaseMessage
from langchain_core.output_parsers.transform import BaseTransformOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, ensure_config
from langchain_core.runnables.graph import Graph
from pydantic import ConfigDict, Field

from jarvis_agent.core.concurrency import run_cpu_bound
from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.references import ref, refs_in, substitute
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.sync import AsyncRunnable
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Task, TaskResult
from jarvis_agent.llm.chat_model import needs_examples
from jarvis_agent.llm.client import LanguageModel, LLMClient, open_client
from jarvis_agent.llm.prompts import Prompts, PromptSource, load_prompts
from jarvis_agent.planning import messages
from jarvis_agent.planning.inputs import FileNames, PlanInput, PlanRequest, Tools, task_specs
from jarvis_agent.planning.normalise import WHAT_IT_NEEDS
from jarvis_agent.planning.parser import StreamingPlanParser
from jarvis_agent.planning.plan import Plan

_LARGER_MODEL = Note("use a larger model")


class PlanOutputParser(BaseTransformOutputParser[Plan]):
    """Parses a plan while it streams: each chunk holds the tasks that became final; their sum is the plan.

        chain = prompt | model | PlanOutputParser()

    Raises LLMError if the model failed before its first task, or wrote nothing usable. A failure after the
    first task becomes a note.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    specs: Mapping[str, TaskSpec] = Field(default=TASKS, exclude=True)
    """The task types that the plan may use, by name."""
    files: FileNames | None = Field(default=None, exclude=True)
    """The files that the plan may name; None: any."""
    repair: Runnable[Any, Any] | None = Field(default=None, exclude=True)
    """Asked once, with "errors" and valid "tasks", to write again what rules cannot repair; returns text or a
    message. None: what is broken is left out, with a note."""

    @property
    def _type(self) -> str:
        return "plan"

    def parse(self, text: str) -> Plan:
        """Parse a whole text; see `Plan.parse`."""
        return sum(self._transform(iter([text])), Plan())

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Plan]:  # noqa: A002
        async def chunks() -> AsyncIterator[str | BaseMessage]:
            for chunk in input:
                yield chunk

        plans = self._plans(chunks(), is_sync=True)
        while True:  # it awaits nothing but its sync input
            try:
                next(plans.__anext__().__await__())
            except StopIteration as step:
                yield step.value
            except StopAsyncIteration:
                return

    def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Plan]:  # noqa: A002
        return self._plans(input, is_sync=False)

    async def _plans(self, chunks: AsyncIterator[str | BaseMessage], *, is_sync: bool) -> AsyncIterator[Plan]:
        """The chunks of the plan; if `is_sync`, nothing but the input is awaited."""
        parser, repair = StreamingPlanParser(self.specs, files=self.files), self.repair
        try:
            async for chunk in chunks:
                if tasks := parser.feed(_text(chunk)):
                    yield Plan(tasks=tasks, preference=parser.preference)
            rest = parser.finish()
        except LLMError as error:
            rest = parser.finish()
            if not parser.tasks:
                raise
            stopped = "the language model stopped before its plan was complete: {error}"
            parser.note(Note(stopped, error=error.note), is_removal=True)
            repair = None
        if rest:
            yield Plan(tasks=rest, preference=parser.preference)
        more: list[Task] = []
        if repair is not None and (errors := parser.errors):
            defects = {"errors": errors, "tasks": parser.tasks}
            try:
                reply = repair.invoke(defects) if is_sync else await repair.ainvoke(defects)
                more = parser.apply_repair(_text(reply))
            except LLMError as error:
                parser.note(Note("the language model could not repair its plan: {error}", error=error.note))
        if parser.errors and not parser.tasks:
            is_weak = any(WHAT_IT_NEEDS not in Note.of(problem.error).advice for problem in parser.errors)
            raise LLMError("{notes}", notes=parser.notes, advice=_LARGER_MODEL if is_weak else ())
        yield Plan(tasks=more, notes=parser.notes, removed=parser.removed)


def _text(chunk: str | BaseMessage) -> str:
    return chunk if isinstance(chunk, str) else str(chunk.text)


STOP_AFTER = 32
"""Number of tasks after which a model is stopped; for many files, four per file. Some never end a plan."""


def planning_chain(
    llm: LanguageModel,
    *,
    tools: Tools = None,
    prompts: PromptSource | None = None,
    examples: Any = None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> PlanningChain:
    """A Runnable that plans a request as a graph of tasks.

    Its input is the request as a string, messages or a prompt value; or a dict with "input" and optionally
    "files" (paths, URLs or Resources), "chat_history" (messages or a BaseChatMessageHistory) and "tools".
    Its chunks are Plans, whose sum is the plan.

    Args:
        llm: a chat model, an `init_chat_model` string, or an LLMClient; None: the configured model.
        tools: the task types that a plan may use: LangChain tools, TaskSpecs or names. None: all task
            types of the Hub.
        prompts: a set's name ("default", "paper"), a directory, or a template; None: as configured.
        examples: "paper", "default", a list of examples, or a BaseExampleSelector, such as LangChain's
            SemanticSimilarityExampleSelector. None: those of the prompt set, else "default" for a model whose
            name states less than 10 billion parameters, and none for others.
        settings: a dict of some is enough; None: from the environment.

    Raises:
        ConfigError: the model, a prompt or an example cannot be used, or a name is no task type. Running the
            chain raises InputError for malformed input, and LLMError if the model fails before its first task
            or writes nothing usable.
    """
    settings = read_settings(settings)
    client = open_client(llm, settings)
    templates = load_prompts(prompts or settings.prompts)
    if examples is None:
        examples = templates.examples or ("default" if needs_examples(client.model) else ())
    return PlanningChain(client, templates, task_specs(tools), messages.open_examples(examples), settings)


@dataclass(eq=False, repr=False)
class PlanningChain(AsyncRunnable[str | PlanInput, Plan]):
    """See `planning_chain`."""

    name = "plan"

    client: LLMClient
    prompts: Prompts
    specs: Mapping[str, TaskSpec]
    examples: messages.Examples
    settings: Settings

    async def astream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Plan, None]:
        """Plan a request; each chunk has the tasks that became final."""
        config = ensure_config(config)
        request = PlanRequest.of(input, self.specs)
        chain, values = await run_cpu_bound(self._compose, request, await self.client.window())
        chunks = cast("AsyncGenerator[Plan, None]", chain.astream(values, config, **kwargs))
        most, count = max(STOP_AFTER, 4 * len(request.files)), 0
        async with aclosing(chunks):
            async for chunk in chunks:
                if count + len(chunk) > most:
                    note = Note("the model was stopped after {number} tasks", number=most)
                    yield Plan(tasks=chunk.tasks[: most - count], notes=[note], preference=chunk.preference)
                    return
                count += len(chunk)
                yield chunk

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """The graph of the chain, without what depends on the request."""
        chain = self.prompts.plan | self.client | PlanOutputParser(specs=self.specs)
        return chain.get_graph(config)

    def get_prompts(self, config: RunnableConfig | None = None) -> list[BasePromptTemplate[Any]]:
        """The planning prompt and the repair prompt."""
        return [self.prompts.plan, self.prompts.repair]

    def _compose(self, request: PlanRequest, window: int) -> tuple[Runnable[Any, Plan], dict[str, Any]]:
        """The chain for one request, and the variables of its prompt."""
        prompts = self.prompts
        schema = messages.plan_schema(request.specs)
        examples = self.examples
        if isinstance(examples, BaseExampleSelector):
            examples = tuple(map(messages.Example.of, examples.select_examples({"input": request.text})))
        values = messages.plan_variables(prompts.plan, request, examples, window=window)

        def defects(broken: Mapping[str, Any]) -> dict[str, Any]:
            tasks, errors = broken["tasks"], broken["errors"]
            return messages.repair_variables(prompts.repair, request, tasks, errors, window)

        repair = RunnableLambda(defects) | prompts.repair | self.client.for_stage("repair", schema=schema)
        files = FileNames.of(request, self.settings)
        parser = PlanOutputParser(specs=request.specs, files=files, repair=repair)
        chain = prompts.plan | self.client.for_stage("plan", schema=schema) | parser
        return chain.with_config(run_name="plan"), values


def read_further_tasks(
    reply: str, request: PlanRequest, plan: Plan, results: Sequence[TaskResult], settings: Settings
) -> Plan:
    """The tasks that a language model adds to a plan after it has seen the results; at most STOP_AFTER.

    They may refer to finished tasks, and name files of the request, of its chat and of the results. A task
    that was run or is written already, or needs one that failed, is left out. Ids in use are replaced.
    """
    outputs = [resource for result in results for resource in result.resources if resource.path]
    files = FileNames.of(request, settings).with_files(outputs)
    parser = StreamingPlanParser(
        request.specs,
        [result.task for result in results if result.status == "ok"],
        [task.id for task in plan.tasks],
        files,
    )

    def call_of(task: Task) -> str:
        """The task and its arguments as planned: a run for one of several results counts as one for all."""
        return json.dumps([task.task, substitute(task.args, ref)], sort_keys=True)

    calls, repeated = {call_of(result.task) for result in results}, set[int]()
    new: list[Task] = []
    for task in (*parser.feed(reply), *parser.finish()):
        call = call_of(task)
        if call in calls or not repeated.isdisjoint({*task.deps, *refs_in(task.args)}):
            repeated.add(task.id)
        else:
            calls.add(call)
            new.append(task)
    return Plan(tasks=new[:STOP_AFTER], notes=parser.notes, removed=parser.removed)
