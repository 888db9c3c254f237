"""planning_chain: stage 1 of HuggingGPT as a Runnable. A request goes in, a Plan comes out.

    chain = planning_chain("openai:gpt-5-mini", tools=["object-detection", my_tool])
    chain.invoke({"input": "How many cats are there?", "files": ["a.jpg"]})     # Plan
    for plan in chain.stream("Describe a.jpg"): ...                             # tasks as they become final
    chain.with_fallbacks([OfflinePlanner()])

For each request it composes `prompt | chat model | PlanOutputParser`. Tasks that rules cannot repair are sent
back to the model once, with the errors, and so are files of the request that no task uses (`find_gaps`).

    more = replanning_chain(llm).invoke({"input": "…", "files": […], "plan": plan, "results": results})
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast

from langchain_core.embeddings import Embeddings
from langchain_core.example_selectors import BaseExampleSelector
from langchain_core.messages import BaseMessage
from langchain_core.output_parsers.transform import BaseTransformOutputParser
from langchain_core.outputs import Generation
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, ensure_config
from langchain_core.runnables.graph import Graph
from pydantic import ConfigDict, Field

from jarvis_agent.core import errors
from jarvis_agent.core.concurrency import run_cpu_bound
from jarvis_agent.core.errors import BadInputError, BudgetError, JarvisError, LLMError, policy_for
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.sync import AsyncRunnable, run_sync
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.llm.budget import context_window, count_tokens, prompt_budget
from jarvis_agent.llm.chat_model import is_small
from jarvis_agent.llm.client import LanguageModel, LLMClient, open_client
from jarvis_agent.llm.prompts import Prompts, PromptSource, load_prompts, prompts_for
from jarvis_agent.planning.example_selector import open_selector
from jarvis_agent.planning.examples import Example, available_names
from jarvis_agent.planning.inputs import FileNames, PlanInput, PlanRequest, Tools, task_specs
from jarvis_agent.planning.messages import (
    lists_tasks,
    plan_variables,
    repair_variables,
    replan_variables,
    task_lines,
)
from jarvis_agent.planning.normalise import WHAT_IT_NEEDS
from jarvis_agent.planning.parser import PlanParseError, StreamingPlanParser
from jarvis_agent.planning.plan import Plan, PlanDraft, RequestHints
from jarvis_agent.planning.retrieval import LONG_CONTEXT, TextSimilarity, select_tools
from jarvis_agent.planning.schema import files_by_kind, plan_schema

_LARGER_MODEL = " Use a larger model; for one of about 1 billion parameters, JARVIS_PROMPTS=small may help."

Repair = Callable[[list[PlanParseError]], Awaitable[Any]]


class PlanOutputParser(BaseTransformOutputParser[Plan]):
    """Parses a plan while it streams.

    Attributes:
        specs: the task types that the plan may use, by name.
        files: the files that the plan may name; None: any.
        needed: the files of the request. Tasks for those that the plan leaves out are asked for.
        repair: asked once, with a list of PlanParseErrors, to write again what rules cannot repair, and what
            is left out. Returns text or a message. None: what is broken is left out, with a note.

    Raises:
        LLMError: the model failed before its first task, or wrote nothing usable. A failure after the first
            task becomes a note.

        chain = prompt | model | PlanOutputParser()
        for plan in chain.stream({...}):      # each chunk holds the tasks that became final
            ...

    The sum of the chunks is the plan; `invoke` returns it at once.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    specs: Mapping[str, TaskSpec] = Field(default=TASKS, exclude=True)
    files: FileNames | None = Field(default=None, exclude=True)
    needed: Sequence[Resource] = Field(default=(), exclude=True)
    repair: Runnable[Any, Any] | None = Field(default=None, exclude=True)

    @property
    def _type(self) -> str:
        return "plan"

    def parse(self, text: str) -> Plan:
        """Parse a whole text; see `Plan.parse`."""
        return self.parse_result([Generation(text=text)])

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Plan:
        """Parse the first generation of a result."""
        return sum(self._transform(iter([result[0].text])), Plan())

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Plan]:  # noqa: A002
        async def chunks() -> AsyncIterator[str | BaseMessage]:
            for chunk in input:
                yield chunk

        async def repair(errors: list[PlanParseError]) -> Any:
            return self.repair.invoke(errors) if self.repair else ""

        return _iterate(self._plans(chunks(), repair))

    def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Plan]:  # noqa: A002
        async def repair(errors: list[PlanParseError]) -> Any:
            return await self.repair.ainvoke(errors) if self.repair else ""

        return self._plans(input, repair)

    async def _plans(self, chunks: AsyncIterator[str | BaseMessage], repair: Repair) -> AsyncIterator[Plan]:
        parser = StreamingPlanParser(self.specs, files=self.files, needed=self.needed)
        can_repair = self.repair is not None
        try:
            async for chunk in chunks:
                if tasks := parser.feed(_text(chunk)):
                    yield Plan(tasks=tasks)
            rest = parser.finish()
        except LLMError as error:
            rest = parser.finish()
            if not parser.tasks:
                raise
            parser.note(f"the language model stopped before its plan was complete: {error}", is_removal=True)
            can_repair = False
        if rest:
            yield Plan(tasks=rest)
        more: list[Task] = []
        if can_repair and (errors := parser.errors):
            try:
                more = parser.apply_repair(_text(await repair(errors)))
            except LLMError as error:
                parser.note(f"the language model could not repair its plan: {error}")
        if parser.errors and not parser.tasks:
            is_weak = any(WHAT_IT_NEEDS not in one.error for one in parser.errors)
            raise LLMError(f"{'; '.join(parser.notes)}.{_LARGER_MODEL if is_weak else ''}")
        yield Plan(tasks=more, notes=parser.notes, removed=parser.removed)


def _text(chunk: str | BaseMessage) -> str:
    return chunk if isinstance(chunk, str) else str(chunk.text)


def _iterate(plans: AsyncIterator[Plan]) -> Iterator[Plan]:
    """The items of an async generator that awaits nothing but its sync input."""
    while True:
        try:
            next(plans.__anext__().__await__())
        except StopIteration as step:
            yield step.value
        except StopAsyncIteration:
            return


EXAMPLES_SHOWN, EXAMPLES_ALONE = 6, 3
"""Number of nearest examples: beside the list of tasks, and instead of it."""

_LIST_SHARE = 3
"""The list of task types takes at most a third of the prompt's budget."""

MAX_TASKS = 32
"""Number of tasks after which a model is stopped; for many files, four per file. Some never end a plan."""
MAX_COPIES = 4
"""Number of equal tasks after which a model is stopped."""


def planning_chain(
    llm: LanguageModel,
    *,
    tools: Tools = None,
    prompts: PromptSource | None = None,
    examples: Any = None,
    embeddings: Embeddings | None = None,
    hints: RequestHints | None = None,
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
        prompts: a set's name ("default", "paper", "small"), a directory, or a template; None: as configured,
            otherwise "small" if the model's name states less than 2 billion parameters, else "default".
        examples: "paper", "default", "nearest", a BaseExampleSelector, or a list of examples. None: those of
            the prompt set, or else the nearest ones.
        embeddings: compare requests with examples and task types. None: MiniLM if its weights are installed,
            or else shared words.
        hints: a planner without a language model, such as `OfflinePlanner()`. What it finds in a request
            selects the examples.
        settings: a dict of some is enough; None: from the environment.

    Raises:
        ConfigError: the model, a prompt or an example cannot be used, or a name is no task type. Running the
            chain raises InputError for malformed input, and LLMError if the model fails before its first task
            or writes nothing usable.
    """
    settings = read_settings(settings)
    client = open_client(llm, settings)
    prompts = prompts_for(client.model, prompts or settings.prompts, "plan")
    similarity = TextSimilarity(embeddings, settings)
    selector = open_selector(
        prompts.examples if examples is None else examples,
        similarity,
        count=EXAMPLES_SHOWN if lists_tasks(prompts.plan) else EXAMPLES_ALONE,
    )
    return PlanningChain(client, prompts, task_specs(tools), selector, similarity, hints, settings)


class PlanningChain(AsyncRunnable[str | PlanInput, Plan]):
    """See `planning_chain`."""

    name = "plan"

    def __init__(
        self,
        client: LLMClient,
        prompts: Prompts,
        specs: Mapping[str, TaskSpec],
        selector: BaseExampleSelector,
        similarity: TextSimilarity,
        hints: RequestHints | None,
        settings: Settings,
    ) -> None:
        self.client = client
        self.prompts = prompts
        self.specs = specs
        self.selector = selector
        self.similarity = similarity
        self.hints = hints
        self.settings = settings
        self.window = context_window(client.model, settings)
        self.is_small = is_small(client.model)

    async def astream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Plan, None]:
        """Plan a request; each chunk has the tasks that became final."""
        config = ensure_config(config)
        request = PlanRequest.of(input, self.specs)
        draft = await run_cpu_bound(self.hints.draft, request) if self.hints else None
        if draft and self._takes(draft, request):
            yield draft.plan
            return
        chain, values = await run_cpu_bound(self._compose, request, draft)
        chunks = cast("AsyncGenerator[Plan, None]", chain.astream(values, config, **kwargs))
        most, copies = max(MAX_TASKS, 4 * len(request.files)), Counter[str]()
        async with aclosing(chunks):
            async for chunk in chunks:
                for place, task in enumerate(chunk.tasks):
                    call = f"{task.task} {task.args}"
                    if copies.total() == most or copies[call] == MAX_COPIES:
                        note = f"the model was stopped after {copies.total()} tasks"
                        yield Plan(tasks=chunk.tasks[:place], notes=[note])
                        return
                    copies[call] += 1
                yield chunk

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """The graph of the chain, without what depends on the request."""
        chain = self.prompts.plan | self.client | PlanOutputParser(specs=self.specs)
        return chain.get_graph(config)

    def get_prompts(self, config: RunnableConfig | None = None) -> list[BasePromptTemplate[Any]]:
        """The planning prompt and the repair prompt."""
        return [self.prompts.plan, self.prompts.repair]

    def _takes(self, draft: PlanDraft, request: PlanRequest) -> bool:
        """Whether a draft is the plan: the model is too small to write a better one."""
        is_of_hub = all(spec.category != "tool" for spec in request.specs.values())
        return self.is_small and (draft.is_sure or is_of_hub)

    def _compose(
        self, request: PlanRequest, draft: PlanDraft | None
    ) -> tuple[Runnable[Any, Plan], dict[str, Any]]:
        """The chain for one request, and the variables of its prompt."""
        examples = self._select_examples(request, draft)
        drafted = draft.plan.tasks if draft else ()
        shown = replace(request, specs=self._shown_specs(request, examples, drafted))
        prompts, window = self.prompts, self.window
        has_purpose = '"purpose"' in repr(prompts.plan)
        schema = plan_schema(shown.specs, files_by_kind(shown), has_purpose=has_purpose)
        values = plan_variables(
            prompts.plan, shown, examples, window=window, as_object=self.client.supports_schema
        )

        def repair_values(errors: Sequence[PlanParseError]) -> dict[str, Any]:
            return repair_variables(prompts.repair, errors, shown.specs, window)

        repair = (
            RunnableLambda(repair_values) | prompts.repair | self.client.for_stage("repair", schema=schema)
        )
        files = FileNames.of(request, self.settings)
        parser = PlanOutputParser(specs=request.specs, files=files, needed=request.files, repair=repair)
        chain = prompts.plan | self.client.for_stage("plan", schema=schema) | parser
        return chain.with_config(run_name="plan"), values

    def _select_examples(self, request: PlanRequest, draft: PlanDraft | None) -> list[Example]:
        value: dict[str, Any] = {"input": request.text, "files": request.files, "draft": draft}
        value["chat_history"] = request.turns
        value["tools"] = self.hints.recognise(request.specs) if self.hints else request.specs
        return list(map(Example.of, self.selector.select_examples(value)))

    def _shown_specs(
        self, request: PlanRequest, examples: Sequence[Example], draft: Sequence[Task]
    ) -> dict[str, TaskSpec]:
        """The task types that the model is shown: those of the examples, and the likely ones."""
        used = {name for example in examples for name in available_names(example.tasks, request.specs)}
        used |= {task.task for task in draft}
        if not lists_tasks(self.prompts.plan):
            return {name: spec for name, spec in request.specs.items() if name in used}
        budget = prompt_budget(self.window) // _LIST_SHARE
        if self.window < LONG_CONTEXT or count_tokens(task_lines(request.specs.values())) > budget:
            return dict(select_tools(request, self.similarity, used, budget))
        return dict(request.specs)


def replanning_chain(
    llm: LanguageModel,
    *,
    settings: Settings | None = None,
) -> Runnable[Mapping[str, Any], Plan]:
    """A Runnable that plans again after failures, knowing what failed and why.

    Its input is that of `planning_chain` with "plan" (the Plan so far) and "results" (TaskResults).
    It returns the tasks to add with a note; they may refer to finished tasks. The Plan is empty if nothing
    can change, as if the run's budget has refused something. If the model fails, it returns a note.

    The prompt has the errors but not the results, so that words in an image or a recording cannot become
    tasks.
    """
    settings = read_settings(settings)
    client = open_client(llm, settings)
    prompt, window = load_prompts(settings.prompts, "replan").replan, context_window(client.model, settings)

    async def replan(value: Mapping[str, Any], config: RunnableConfig) -> Plan:
        request, results = PlanRequest.of(value, TASKS), list(value["results"])
        failed = [result for result in results if _another_plan_may_help(result)]
        if not failed or any(result.failure == BudgetError.__name__ for result in results):
            return Plan()
        chain = prompt | client.for_stage("replan", schema=plan_schema(request.specs))
        try:
            reply = await chain.ainvoke(replan_variables(prompt, request, results, window), config)
        except LLMError as error:
            return Plan(notes=[f"the language model could not plan again: {error}"])
        parser = StreamingPlanParser(
            request.specs,
            [result.task for result in results if result.status == "ok"],
            [task.id for task in value["plan"].tasks],
            FileNames.of(request, settings),
        )
        return _added(str(reply.text), parser, results, failed)

    def replan_sync(value: Mapping[str, Any], config: RunnableConfig) -> Plan:
        return run_sync(lambda: replan(value, config))

    return RunnableLambda(replan_sync, replan, name="replan")


def _added(
    reply: str, parser: StreamingPlanParser, results: Sequence[TaskResult], failed: Sequence[TaskResult]
) -> Plan:
    """The tasks of a reply that are new, and a note on them."""
    written = [*parser.feed(reply), *parser.finish()]
    new = list(_new_tasks(written, [result.task for result in results if result.status == "failed"]))
    notes, removed = (parser.notes, parser.removed) if written else ([], [])
    return Plan(tasks=new, notes=[_replan_note(failed, new), *notes], removed=removed)


def _another_plan_may_help(result: TaskResult) -> bool:
    """Whether a task failed for another reason than a missing model or an unusable file of the user."""
    if result.status != "failed":
        return False
    kind = getattr(errors, result.failure or "", JarvisError)
    if issubclass(kind, BadInputError) and not refs_in(result.task.args):
        return False
    return policy_for(kind).replan


def _new_tasks(written: Sequence[Task], failed: Sequence[Task]) -> Iterator[Task]:
    """The tasks that do not repeat a failed one, and do not depend on one that does."""
    known = {_call(task) for task in failed}
    left_out: set[int] = set()
    for task in written:
        if _call(task) in known or not left_out.isdisjoint(task.deps):
            left_out.add(task.id)
        else:
            yield task


def _call(task: Task) -> str:
    return json.dumps([task.task, task.args], sort_keys=True)


def _replan_note(failed: Sequence[TaskResult], new: Sequence[Task]) -> str:
    names = ", ".join(f"task {result.task.id} ({result.task.task})" for result in failed)
    instead = ", ".join(f"{task.id} ({task.task})" for task in new)
    if not new:
        return f"{names} failed, and the language model found no other way"
    return f"{names} failed, so the language model planned again and added {instead}"
