"""JarvisAgent: a request goes in, a Run comes out. It is a LangChain Runnable.

agent = JarvisAgent(model="openai:gpt-5-mini")
run = agent.invoke("How many objects are in examples/street.jpg?")
for chunk in agent.stream({"input": "Describe it", "files": ["a.jpg"]}): ...
chain = prompt | agent | str                    # str(run) is the answer
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, ensure_config
from langchain_core.runnables.config import merge_configs, patch_config
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from jarvis_agent.agent.approval import ApprovalPolicy, check_policy
from jarvis_agent.agent.memory import MAX_TURNS, ChatMemory, ThreadState, read_history, update_history
from jarvis_agent.agent.pipeline import RunPipeline
from jarvis_agent.agent.stages import PipelineStages, Planner, Responder, Selector, make_runners
from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.registry import Factory
from jarvis_agent.core.context import ChatTurn, turns_of
from jarvis_agent.core.errors import ConfigError, FallbackOn, InputError
from jarvis_agent.core.forks import cached_property
from jarvis_agent.core.plugins import to_runnable
from jarvis_agent.core.request import Request
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.sync import AsyncRunnable, run_sync
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.execution.run import Event, Run, run_chunks
from jarvis_agent.llm.chat_model import NO_MODEL, describe_model, is_small, resolve_model, with_own_model
from jarvis_agent.llm.client import NO_STREAM, LLMClient
from jarvis_agent.llm.content import ContentForm, message_content
from jarvis_agent.llm.usage import Price
from jarvis_agent.planning.chain import planning_chain
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.chain import response_chain, template_responder
from jarvis_agent.response.structured import ResponseFormat, last_fitting_output, structured_chain
from jarvis_agent.selection.advice import advice
from jarvis_agent.selection.model_registry import ModelRegistry
from jarvis_agent.selection.sources.base import ModelSource

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from jarvis_agent.agent.graph import JarvisGraph, StoredRuns

Input = str | dict[str, Any] | Request
"""What the agent takes; also a message, a list of messages, a PromptValue, or a Plan to be run."""

Observer = Callable[[AsyncGenerator[Event, None]], AsyncGenerator[Event, None]]
"""Passes on the events of a run."""

REPLAY_REQUEST = "Run the plan."
"""The request of a run of a given plan."""

_TOOL_DESCRIPTION = (
    "Works on images, audio, video and text with expert models: describe, detect, read, transcribe, speak, "
    "translate, summarise, draw. `request` says in words what to do; `files` are paths or URLs."
)


def _check_approval(approve: ApprovalPolicy, checkpointer: BaseCheckpointSaver[Any] | None) -> None:
    check_policy(approve)
    if approve and checkpointer is None:
        raise ConfigError(
            "approve=True needs a checkpointer, which keeps the plan until you decide: "
            "JarvisAgent(checkpointer=InMemorySaver(), approve=True). In a larger graph, which has its "
            "own, use agent.copy(approve=True).graph"
        )


class JarvisAgent(AsyncRunnable[Any, Run]):
    """Plans a request as a graph of tasks, selects a model for each, runs them, and answers.

    Args:
        model: a chat model, an `init_chat_model` string, or None for the first one that the environment
            provides. Without any, a small network plans, the ranking selects, and a report answers. One
            below 2 billion parameters plans and selects nothing.
        tools: exactly these LangChain tools are the tasks; None: every task of the Hub that can run here.
        models: pinned models by task, `{"object-detection": "facebook/detr-resnet-50@revision"}`.
        planner, selector, responder: Runnables or functions that replace the stages; they take and return
            what `planning_chain`, `selection_chain` and `response_chain` do. If one fails, the offline
            planner, the ranking or the report takes its place.
        sources, backends: instead of those in the settings. A backend is an instance, or a factory that takes
            the settings and the process's model pool (see `default_backends`).
        fallback_on: the errors of a model (see `core.errors`) after which the next candidate is tried: an
            error class, a tuple of them, or a function of the error. None: by ERROR_POLICIES.
        response_format: the type of `run.structured_response`, as in `create_agent`: a pydantic model, a
            dataclass, a TypedDict or a JSON schema. Without a language model it is the last output of that
            type. If there is none, a note says why.
        price: the price of a call, `price(model, stage or task, usage)`, for the budget and usage of runs;
            None: what providers report.
        settings: limits, policies, directories; a dict of some of them; None: from the environment.
        checkpointer: a LangGraph checkpointer. Runs then need a thread id and can be resumed: `invoke(None,
            config)` continues the thread's last run.
        approve: stop before execution until `invoke(Command(resume=True), config)`; needs a checkpointer. A
            function, such as `agent.approval.hosted`, says which tasks need approval.

    Raises:
        ConfigError: the model, a setting, a tool, a pinned model or another part cannot be used.
    """

    def __init__(
        self,
        model: BaseChatModel | str | None = None,
        tools: Sequence[BaseTool] | None = None,
        *,
        models: Mapping[str, str] | None = None,
        planner: Planner | None = None,
        selector: Selector | None = None,
        responder: Responder | None = None,
        sources: Iterable[ModelSource] | None = None,
        backends: Iterable[Backend | Factory] | None = None,
        fallback_on: FallbackOn | None = None,
        response_format: Any = None,
        price: Price | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        approve: ApprovalPolicy = False,
    ) -> None:
        from jarvis_agent.planning.offline import OfflinePlanner

        _check_approval(approve, checkpointer)
        settings = read_settings(settings)
        if model == NO_MODEL:
            settings = settings.model_copy(update={"model": NO_MODEL})
        self.model = resolve_model(model, settings)
        client = LLMClient(self.model, settings) if self.model is not None else None
        is_planner = client is not None and not is_small(client.model)
        own_settings = with_own_model(settings, self.model)
        offline = OfflinePlanner(settings=own_settings)
        default_planner = planning_chain(client, settings=settings) if is_planner else offline
        default_responder = (
            response_chain(client, settings=settings)
            if client
            else template_responder(model_missing=settings.model != NO_MODEL, advice=advice(settings, {}))
        )
        form = ResponseFormat(response_format) if response_format is not None else None
        writer = structured_chain(client, form, settings) if form and is_planner else None
        self.stages = PipelineStages(
            settings=settings,
            planner=to_runnable(planner, "planner") or default_planner,
            fallback_planner=offline if is_planner or planner is not None else None,
            own_runners=None if tools is None else make_runners(tools),
            responder=to_runnable(responder, "responder") or default_responder,
            structure=writer or (last_fitting_output(form) if form else None),
            response_format=form,
            price=price,
            goes_on=planner is None,
            registry=ModelRegistry(
                own_settings,
                sources=sources,
                backends=backends,
                selector=selector,
                llm=client,
                pins=models,
                fallback_on=fallback_on,
            ),
        )
        self.checkpointer = checkpointer
        self.approve = approve
        self._memory = ChatMemory()

    InputType: Any = Input
    _history: tuple[ChatTurn, ...] = ()
    _observer: Observer | None = None

    def __repr__(self) -> str:
        count = len(TASKS if self.stages.own_runners is None else self.stages.own_runners)
        return f"JarvisAgent(model={self.model_name!r}, policy={self.settings.policy!r}, tasks={count})"

    def __copy__(self, memo: Any = None) -> Self:
        """A copy with a chat memory of its own. Both share loaded models; close one of them."""
        return self._copy()

    __deepcopy__ = __copy__

    def __reduce__(self) -> Any:
        """Raise TypeError: an agent cannot be pickled."""
        raise TypeError(
            "a JarvisAgent cannot be pickled: it has loaded models, threads and connections. Make one in "
            "each process, from its arguments; copy.copy(agent) shares its models within this process"
        )

    @property
    def model_name(self) -> str | None:
        """The language model's name; None without one."""
        return describe_model(self.model) if self.model is not None else None

    @property
    def settings(self) -> Settings:
        """Limits, policies and directories."""
        return self.stages.settings

    @cached_property
    def graph(self) -> JarvisGraph:
        """The agent as a LangGraph graph, sync and async, with `messages` in its state."""
        from jarvis_agent.agent.graph import build_graph

        return build_graph(self.stages, self.checkpointer, approve=self.approve, history=self._history)

    def plan(self, request: Any, config: RunnableConfig | None = None) -> Plan:
        """The plan of a request; nothing is run."""
        return run_sync(self.aplan, request, config)

    async def aplan(self, request: Any, config: RunnableConfig | None = None) -> Plan:
        """As `plan`."""
        request, _ = await read_history(request)
        turns = self._turns(_thread(ensure_config(config)))
        return await RunPipeline(self.stages, config, turns=turns).plan(Request.of(request))

    async def aevents(
        self, request: Any, config: RunnableConfig | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of a run as they happen, which `invoke` and `stream` read; "done" is last, with the Run.

        Closing the generator (`contextlib.aclosing`) cancels the run. With a checkpointer, `request` may be
        None or a `Command`, and a run that stops for approval ends without "done".
        """
        if isinstance(request, Plan):
            replayed = {"input": REPLAY_REQUEST, "files": request.inputs}
            async with aclosing(self._replaying(request).aevents(replayed, config)) as events:
                async for event in events:
                    yield event
            return
        request, history = await read_history(request)
        config = ensure_config(config)
        if self.checkpointer is not None or self.approve:
            events = self._stored_runs.events(request, config)
        else:
            thread = _thread(config)
            remember = partial(self._memory.add, thread) if thread else None
            pipeline = RunPipeline(self.stages, config, turns=self._turns(thread), remember=remember)
            events = pipeline.events(Request.of(request))
        async with aclosing(self._observer(events) if self._observer else events) as events:
            async for event in events:
                form, run = self.stages.response_format, event.run
                if form is not None and run is not None and run.structured_response is not None:
                    typed = form.read(run.structured_response)  # it is plain JSON so far
                    run = run.model_copy(update={"structured_response": typed})
                    event = event.model_copy(update={"run": run})
                if run is not None and history is not None:
                    message = HumanMessage(Request.of(request).text)
                    await update_history(history, [message, run.to_message()])
                yield event

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Run:  # noqa: A002
        """Run a request to its end.

        Args:
            input: a text, a Request, a dict with "input" (and "files", "chat_history") or "messages",
                messages, or the value of a prompt template. A Plan, such as a saved or approved one, is run
                as it is, without any language model: the answer is a report, no one is asked, and nothing is
                stored. With a checkpointer also None, to resume, or a `Command(resume=…)`, to approve.
            config: LangChain's. A `thread_id` names a chat.

        Returns:
            The Run. If it stops for approval, the Run has the plan and no answer (see `waiting`).

        Raises:
            InputError: the request is empty or malformed, one of its files cannot be used, or the output
                directory cannot be written. Later failures are in the Run.
            ConfigError: a checkpointer's run has no thread, or nothing to resume.
            DeadlineError: its files could not be read within the seconds of the budget.
        """
        return run_sync(partial(self.ainvoke, **kwargs), input, config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Run:  # noqa: A002
        """As `invoke`."""
        return await self._acall_with_config(self._ainvoke, input, config, **kwargs)

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Run]:  # noqa: A002
        """Chunks whose sum is the Run: the plan, results as tasks end, the answer's tokens, the usage."""
        return super().stream(input, config, **kwargs)

    async def astream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[Run, None]:
        """As `stream`."""

        async def single() -> AsyncIterator[Any]:
            yield input

        streamed = self._atransform_stream_with_config(single(), self._atransform, config, **kwargs)
        async with aclosing(cast("AsyncGenerator[Run, None]", streamed)) as chunks:
            async for chunk in chunks:
                yield chunk

    def as_tool(  # type: ignore[override]
        self,
        *,
        name: str = "jarvis",
        description: str = _TOOL_DESCRIPTION,
        content: ContentForm = "text",
    ) -> BaseTool:
        """This agent as a tool for another one. The content is the answer, the artifact is the Run.

        With `content="blocks"`, the files of the run follow the answer as content blocks.

        A request or file that cannot be used is a tool error, whose message goes to the other agent's model.
        A run is no turn of the other agent's thread, and is not stored.

        Raises:
            ConfigError: the agent asks for approval, which a tool cannot.
        """
        if self.approve:
            raise ConfigError(
                "a tool cannot ask for the approval of its plan; use `agent.graph` as a node, or "
                "HumanInTheLoopMiddleware on the tool of `agent.copy(checkpointer=False)`"
            )
        agent = self.copy(checkpointer=False)

        async def arun(request: str, files: list[str] | None = None) -> tuple[Any, Run]:
            # The other agent streams its own words alone; this answer comes checked, in the message.
            config = merge_configs(ensure_config(), {"tags": [NO_STREAM]})
            config["configurable"] = {}
            try:
                answered = await agent.ainvoke({"input": request, "files": files or []}, config)
            except InputError as error:
                is_local = self.settings.allow_request_paths
                raise ToolException(error.note if is_local else error.note.public) from error
            shown = await asyncio.to_thread(message_content, answered.answer, answered.resources, content)
            return shown, answered

        def run(request: str, files: list[str] | None = None) -> tuple[Any, Run]:
            return run_sync(arun, request, files)

        return StructuredTool.from_function(
            run,
            arun,
            name=name,
            description=description,
            response_format="content_and_artifact",
            handle_tool_error=True,
        )

    async def aget_state(self, config: RunnableConfig) -> ThreadState:
        """The turns of a thread, and what waits for approval or can be resumed there."""
        if self.checkpointer is None:
            return ThreadState(self._turns(_thread(config)))
        state = await self._stored_runs.state(config)
        return state if state.turns else replace(state, turns=self._history)

    def copy(
        self,
        *,
        settings: Mapping[str, Any] | None = None,
        restricted_to: str | Path | Iterable[str | Path] | None = None,
        plan: Plan | None = None,
        models: Mapping[str, str] | None = None,
        history: Iterable[ChatTurn | BaseMessage] | None = None,
        checkpointer: BaseCheckpointSaver[Any] | Literal[False] | None = None,
        approve: ApprovalPolicy | None = None,
        observer: Observer | None = None,
    ) -> Self:
        """Return this agent with changes. None leaves a part as it is.

        The copy has its own chat memory. It shares loaded models with this agent: close this one.
        `agent.copy(plan=run.repeating(2), models={"text-to-speech": "org/model"})` runs a task again.

        Args:
            settings: other limits of runs, policies or directories. Settings of the language model and of
                the backends stay.
            restricted_to: for untrusted requests, e.g. behind a server: local paths in a request, also in
                its `files`, are read below this directory, or these, alone; bytes, images and URLs are
                read too. `Settings.allowed_dirs` are for the owner of this machine.
            plan: the plan of every request.
            models: further pinned models, by task.
            history: turns or messages with which its chats begin, e.g. those of a stored chat.
            checkpointer: another checkpointer, which approves nothing without `approve`; False: none.
            approve: as for the agent. True without a checkpointer is for `graph` inside a larger graph.
            observer: passes the events of each run on, e.g. to count them.

        Raises:
            ConfigError: there is no such setting, task or pinned path, or its value is invalid; or `approve`
                is no policy.
        """
        changed = dict(settings or {})
        if restricted_to is not None:
            dirs = [restricted_to] if isinstance(restricted_to, str | Path) else restricted_to
            changed |= {"allow_request_paths": False, "allowed_dirs": tuple(dirs)}
        stages, parts = self.stages, dict[str, Any]()
        if changed:
            checked = Settings(**changed)
            new = self.settings.model_copy(update={name: getattr(checked, name) for name in changed})
            stages = replace(stages, settings=new, registry=stages.registry.copy(new, {}))
        if models:
            stages = replace(stages, registry=stages.registry.copy(None, models))
        if plan is not None:
            planner: Runnable[Any, Plan] = RunnableLambda(lambda _: plan)
            stages = replace(stages, planner=planner, fallback_planner=None, goes_on=False)
        if history is not None:
            parts["_history"] = turns_of(history)
        if checkpointer is not None:
            parts |= {"checkpointer": checkpointer or None, "approve": False}
        if approve is not None:
            check_policy(approve)
            parts["approve"] = approve
        if observer is not None:
            parts["_observer"] = observer
        return self._copy(stages=stages, **parts)

    def _replaying(self, plan: Plan) -> Self:
        """This agent for a plan that is run as it is: no model and no person is asked."""
        agent = self.copy(settings={"selection": "rank"}, plan=plan, checkpointer=False)
        form = agent.stages.response_format
        structure = last_fitting_output(form) if form else None
        stages = replace(agent.stages, responder=template_responder(), structure=structure)
        return agent._copy(model=None, stages=stages)

    def _copy(self, **changes: Any) -> Self:
        """Return a copy with these attributes, and a chat memory and a graph of its own."""
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        vars(twin).update(_memory=ChatMemory(), **changes)
        for cached in ("graph", "_stored_runs"):
            vars(twin).pop(cached, None)
        return twin

    def close(self) -> None:
        """Free the models and threads that the agent holds. Files that runs produced stay."""
        run_sync(self.aclose)

    async def aclose(self) -> None:
        """As `close`."""
        await self.stages.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @cached_property
    def _stored_runs(self) -> StoredRuns:
        if self.checkpointer is None:
            raise ConfigError("this needs a checkpointer: JarvisAgent(checkpointer=…)")
        from jarvis_agent.agent.graph import StoredRuns

        return StoredRuns(self.graph, self.settings, approve=self.approve)

    def _turns(self, thread: str) -> tuple[ChatTurn, ...]:
        return (*self._history, *self._memory.turns(thread))[-MAX_TURNS:]

    async def _ainvoke(self, value: Any, run_manager: Any, config: RunnableConfig) -> Run:
        config = patch_config(config, callbacks=run_manager.get_child())
        run = None
        async with aclosing(self.aevents(value, config)) as events:
            async for event in events:
                run = event.run or run
        return run or await self._waiting_run(config)

    async def _waiting_run(self, config: RunnableConfig) -> Run:
        """The Run of a plan that waits for approval. Raises ConfigError after an invalid decision."""
        proposal = (await self._stored_runs.state(config)).waiting or {}
        if problem := proposal.get("problem"):
            raise ConfigError(f"{problem}; decide with Command(resume=…)")
        return Run(
            plan=Plan.model_validate({"tasks": proposal.get("plan", []), "notes": proposal.get("notes", [])})
        )

    async def _atransform(
        self, values: AsyncIterator[Any], run_manager: Any, config: RunnableConfig
    ) -> AsyncIterator[Run]:
        config = patch_config(config, callbacks=run_manager.get_child())
        async for value in values:
            is_empty = True
            async with (
                aclosing(self.aevents(value, config)) as events,
                aclosing(run_chunks(events)) as chunks,
            ):
                async for chunk in chunks:
                    is_empty = False
                    yield chunk
            if is_empty:
                yield await self._waiting_run(config)


def _thread(config: RunnableConfig) -> str:
    return str(config.get("configurable", {}).get("thread_id") or "")
