"""JarvisAgent: a request goes in, a Run comes out. It is a LangChain Runnable.

agent = JarvisAgent(model="openai:gpt-5-mini")
run = agent.invoke("How many objects are in examples/street.jpg?")
for chunk in agent.stream({"input": "Describe it", "files": ["a.jpg"]}): ...
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import patch_config
from langchain_core.tools import BaseTool

from jarvis_agent.agent.memory import ChatMemory
from jarvis_agent.agent.pipeline import PipelineStages, RunPipeline
from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.registry import Factory
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.plugins import checked
from jarvis_agent.core.request import Request
from jarvis_agent.core.settings import Settings, load_settings
from jarvis_agent.core.sync import iterate_sync, run_sync
from jarvis_agent.execution.executor import TaskRunner
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.llm.budget import context_window
from jarvis_agent.llm.client import LLMClient, describe_model, resolve_model
from jarvis_agent.llm.prompt_set import load_prompt_set
from jarvis_agent.planning.chain import LLMPlanner, Planner
from jarvis_agent.planning.plan import Plan
from jarvis_agent.planning.replanner import LLMReplanner
from jarvis_agent.response.chain import LLMResponder, ReportResponder, Responder
from jarvis_agent.selection.registry import ModelRegistry
from jarvis_agent.selection.sources.base import ModelSource
from jarvis_agent.tools.hf_task_tool import HFTaskRunner, HFTaskTool
from jarvis_agent.tools.langchain_task import LangChainTask

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


Input = str | dict[str, Any] | Request
"""What the agent takes; messages and lists of messages too."""


class JarvisAgent(Runnable[Any, Run]):
    """Plans a request as a graph of tasks, picks an expert model for each, runs them, and answers.

    Args:
        model: the language model: a chat model, a string for `init_chat_model`, or None for the first one
            that the environment offers. Without any it plans, selects and reports without one.
        tools: exactly these LangChain tools are the tasks; None: every task of the Hub that something here
            can run.
        models: pinned experts by task, `{"object-detection": "facebook/detr-resnet-50@revision"}`.
        planner, selector, responder: instead of the stages that the model gives.
        sources, backends: instead of those that the settings give. A backend is given as it is, or as what
            makes it of the settings and the process's pool (see `default_backends`).
        settings: limits, policies, places; a dict of some of them, or None: the others from the environment.

    Raises:
        ConfigError: the model, a setting, a tool, a pinned model or one of the other parts can not be used.
    """

    def __init__(
        self,
        model: BaseChatModel | str | None = None,
        tools: Sequence[BaseTool] | None = None,
        *,
        models: Mapping[str, str] | None = None,
        planner: Planner | None = None,
        selector: Any = None,
        responder: Responder | None = None,
        sources: Iterable[ModelSource] | None = None,
        backends: Iterable[Backend | Factory] | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
    ) -> None:
        from jarvis_agent.planning.offline import OfflinePlanner

        self.settings = _settings(settings)
        self._given = None if tools is None else _workers(tools)
        if planner is not None:
            checked(planner, Planner, "the planner")
        if responder is not None:
            checked(responder, Responder, "the responder")
        self.model = resolve_model(model, self.settings)
        window = context_window(self.model, self.settings)
        prompts = load_prompt_set(self.settings.prompts, window)
        controller = LLMClient(self.model, self.settings) if self.model is not None else None
        self.registry = ModelRegistry(
            self.settings,
            sources=sources,
            backends=backends,
            selector=selector,
            llm=controller,
            pins=models,
        )
        offline = OfflinePlanner(settings=self.settings)
        report = ReportResponder(model_missing=controller is None)
        by_llm: Planner | None = None
        if controller is not None:
            by_llm = LLMPlanner(controller, self.settings, prompts.prompts)
        self.stages = PipelineStages(
            workers=self._workers,
            planner=planner or by_llm or offline,
            replanner=LLMReplanner(controller, prompts.prompts) if controller and not planner else None,
            fallback=offline if planner or by_llm else None,
            responder=responder
            or (LLMResponder(controller, self.settings, prompts) if controller else report),
            report=report,
            settings=self.settings,
            memory=ChatMemory(),
        )

    @property
    def model_name(self) -> str | None:
        """The language model, for people; None without one."""
        return describe_model(self.model) if self.model is not None else None

    @property
    def InputType(self) -> Any:  # noqa: N802 - LangChain's name
        """What `invoke` takes."""
        return Input

    @property
    def OutputType(self) -> type[Run]:  # noqa: N802 - LangChain's name
        """What `invoke` gives."""
        return Run

    def plan(self, request: Any, config: RunnableConfig | None = None) -> Plan:
        """The plan of a request, which is not run."""
        return run_sync(self.aplan, request, config)

    async def aplan(self, request: Any, config: RunnableConfig | None = None) -> Plan:
        """As `plan`."""
        return await RunPipeline(self.stages, ensure_config(config)).plan(Request.of(request))

    async def events(self, request: Any, config: RunnableConfig | None = None) -> AsyncGenerator[Event, None]:
        """Everything that happens in a run, as it happens; the last event is "done" and carries the Run.

        Closing it before its end (`contextlib.aclosing`) cancels the run.
        """
        session = RunPipeline(self.stages, ensure_config(config))
        async with aclosing(session.events(Request.of(request))) as events:
            async for event in events:
                yield event

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Run:  # noqa: A002
        """Run a request to its end.

        Raises:
            InputError: the request is empty or malformed, one of its files can not be used, or the output
                directory can not be written. What fails later is told in the Run.
        """
        return run_sync(partial(self.ainvoke, **kwargs), input, config)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Run:  # noqa: A002
        """As `invoke`."""
        return await self._acall_with_config(self._whole, input, config, **kwargs)

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Run]:  # noqa: A002
        """Chunks whose sum is the Run: the plan, results as tasks end, the answer's tokens, the usage."""
        yield from iterate_sync(partial(self.astream, **kwargs), input, config)

    async def astream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Run]:
        """As `stream`."""

        async def once() -> AsyncIterator[Any]:
            yield input

        streamed = self._atransform_stream_with_config(once(), self._chunks_of_first, config, **kwargs)
        async with aclosing(cast("AsyncGenerator[Run, None]", streamed)) as found:
            async for chunk in found:
                yield chunk

    def confined(self, *dirs: Path, output_dir: Path | None = None) -> Self:
        """This agent for the requests of strangers: what they name is not read, only what is below `dirs`.

        The directories that the settings allow stay allowed. Its runs write below `output_dir`, by default
        where those of this agent do. It shares the models with this one, which is the one to close, and
        remembers its own chats.
        """
        changed = {
            "allow_request_paths": False,
            "allowed_dirs": (*self.settings.allowed_dirs, *dirs),
            "output_dir": output_dir or self.settings.output_dir,
        }
        settings = self.settings.model_copy(update=changed)
        twin = copy.copy(self)
        twin.settings = settings
        twin.stages = replace(self.stages, settings=settings, memory=ChatMemory())
        return twin

    def close(self) -> None:
        """Free the models and threads that the agent holds; files that runs made stay."""
        run_sync(self.aclose)

    async def aclose(self) -> None:
        """As `close`."""
        await self.registry.aclose()
        await asyncio.gather(
            *(w.registry.aclose() for w in (self._given or {}).values() if isinstance(w, HFTaskRunner))
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _workers(self) -> Mapping[str, TaskRunner]:
        if self._given is not None:
            return self._given
        offered = await self.registry.available_tasks()
        return {name: HFTaskRunner(spec, self.registry) for name, spec in offered.items()}

    async def _whole(self, value: Any, run_manager: Any, config: RunnableConfig) -> Run:
        config = patch_config(config, callbacks=run_manager.get_child())
        run = Run()
        async with aclosing(self.events(value, config)) as events:
            async for event in events:
                run = event.run or run
        return run

    async def _chunks_of_first(
        self, values: AsyncIterator[Any], run_manager: Any, config: RunnableConfig
    ) -> AsyncIterator[Run]:
        config = patch_config(config, callbacks=run_manager.get_child())
        async for value in values:
            async with aclosing(self.events(value, config)) as events, aclosing(chunks(events)) as found:
                async for chunk in found:
                    yield chunk


async def chunks(events: AsyncIterator[Event]) -> AsyncGenerator[Run, None]:
    """The chunks of a run from its events. Results that come before the whole plan wait for it."""
    early: list[Run] = []
    planned = False
    async for event in events:
        if event.kind == "finished" and event.result is not None:
            chunk = Run(results=[event.result])
            if planned:
                yield chunk
            else:
                early.append(chunk)
        elif event.kind == "planned" and event.plan is not None:
            planned = True
            yield Run(plan=event.plan)
            for chunk in early:
                yield chunk
        elif event.kind == "token":
            yield Run(answer=event.text)
        elif event.kind == "done" and event.run is not None:
            yield Run(usage=event.run.usage, timings=event.run.timings)


def _settings(given: Any) -> Settings:
    if isinstance(given, Settings):
        return given
    if given is None or isinstance(given, Mapping):
        return load_settings(**(given or {}))
    raise ConfigError(
        f"the settings are of type {type(given).__name__}; give Settings(…) or a dict of its fields"
    )


def _workers(tools: Sequence[BaseTool]) -> dict[str, TaskRunner]:
    """What does the tasks, by name."""
    workers: dict[str, TaskRunner] = {}
    for tool in tools:
        if not isinstance(tool, BaseTool):
            raise ConfigError(
                f"{tool!r} is no LangChain tool; `langchain_core.tools.tool` makes one of a function"
            )
        if tool.name in workers:
            raise ConfigError(f"two tools have the name {tool.name!r}; a plan could not tell them apart")
        workers[tool.name] = tool.runner if isinstance(tool, HFTaskTool) else LangChainTask(tool)
    return workers
