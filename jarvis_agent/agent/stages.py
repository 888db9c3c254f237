"""The stages of a run, made from what the user passes; `RunPipeline` calls them.

stages = make_stages(model, settings, planner=planner, selector=selector, responder=responder)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.registry import Factory
from jarvis_agent.core.errors import ConfigError, FallbackOn, InputError
from jarvis_agent.core.plugins import to_runnable
from jarvis_agent.core.settings import Budget, RunOptions, Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.execution.executor import TaskRunner
from jarvis_agent.execution.fallback import HFTaskRunner
from jarvis_agent.llm.chat_model import NO_MODEL, is_small, with_own_model
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.llm.usage import Price
from jarvis_agent.planning.chain import planning_chain
from jarvis_agent.planning.inputs import PlanInput
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.chain import ResponseInput, response_chain, template_responder
from jarvis_agent.response.structured import ResponseFormat, last_fitting_output, structured_chain
from jarvis_agent.selection.advice import advice
from jarvis_agent.selection.chain import SelectionInput
from jarvis_agent.selection.model_registry import ModelRegistry
from jarvis_agent.selection.sources.base import ModelSource
from jarvis_agent.tools.hf_task_tool import HFTaskTool
from jarvis_agent.tools.langchain_task import LangChainTask

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

Planner = Runnable[PlanInput, Plan] | Callable[[PlanInput], Any]
Selector = Runnable[SelectionInput, Any] | Callable[[Any], Any]
Responder = Runnable[ResponseInput, str] | Callable[[ResponseInput], Any]
"""What takes the place of a stage: a Runnable, or a function, generator or coroutine function.

A selector returns the id of a model, or a ModelChoice.
"""


@dataclass(frozen=True, slots=True)
class PipelineStages:
    """The parts of an agent, one or two for each stage.

    Attributes:
        settings: limits and policies.
        planner: a dict with "input", "files", "chat_history" and "tools" → Plan.
        fallback_planner: asked if the planner fails before its first task.
        registry: selects the models (`registry.selector`) and has the backends that run them.
        tools: what runs the tasks, by name; None: every task that the registry has a model for.
        responder: a dict with "input", "plan", "results", "files", "chat_history" and "tools" → str, or a
            Plan of further tasks.
        structure: the input of the responder with "answer" → the answer as plain JSON of `response_format`.
        response_format: the type of structured answers; None: there are none.
        price: the price of a call; None: what providers report.
        goes_on: whether the responder may add tasks; a plan of the user's own is not changed.
    """

    settings: Settings
    planner: Runnable[Any, Plan]
    fallback_planner: Runnable[Any, Plan] | None
    registry: ModelRegistry
    tools: Mapping[str, TaskRunner] | None
    responder: Runnable[Any, str]
    structure: Runnable[Any, Any] | None = None
    response_format: ResponseFormat | None = None
    price: Price | None = None
    goes_on: bool = True

    async def runners(self) -> Mapping[str, TaskRunner]:
        """What runs the tasks of a run, by name.

        Without any model these are all tasks, so that those of a plan fail with what must be installed.
        """
        if self.tools is not None:
            return self.tools
        available = await self.registry.available_tasks()
        if not any(spec.needs_model for spec in available.values()):
            available = TASKS
        return {name: HFTaskRunner(spec, self.registry) for name, spec in available.items()}

    async def callable_tools(self) -> dict[str, BaseTool]:
        """The tasks as tools to call outside a plan, under these settings.

        None reads what another call produced, unless it lies in a directory that the settings allow.
        """
        made: dict[str, BaseTool] = {}
        for name, runner in (await self.runners()).items():
            if isinstance(runner, HFTaskRunner):
                made[name] = HFTaskTool.of(runner.spec, runner.registry, (), deque(maxlen=0), self.settings)
            elif isinstance(runner, LangChainTask):
                made[name] = runner.tool
        return made

    def with_options(self, options: RunOptions) -> Self:
        """These stages with what the caller of one run chooses. Raises InputError: that is not possible."""
        settings, pins = self.settings, options.get("models") or {}
        policy = options.get("policy") or settings.policy
        if settings.policy.endswith("-only") and policy != settings.policy:
            raise InputError(f"the policy {policy!r} is not possible here: the agent has {settings.policy!r}")
        budget = settings.budget.lowered(options.get("budget") or Budget())
        settings = settings.model_copy(update={"policy": policy, "budget": budget})
        try:
            registry = self.registry.with_settings(settings)
            registry = registry.with_pins(pins, paths=settings.allow_request_paths)
        except ConfigError as error:
            raise InputError(error.note) from error
        return replace(self, settings=settings, registry=registry)

    async def aclose(self) -> None:
        """Free the models, also those of the tools."""
        own = [runner for runner in (self.tools or {}).values() if isinstance(runner, HFTaskRunner)]
        await asyncio.gather(self.registry.aclose(), *(runner.registry.aclose() for runner in own))


def make_stages(
    model: BaseChatModel | None,
    settings: Settings,
    *,
    planner: Planner | None = None,
    selector: Selector | None = None,
    responder: Responder | None = None,
    tools: Sequence[BaseTool] | None = None,
    models: Mapping[str, str] | None = None,
    sources: Iterable[ModelSource] | None = None,
    backends: Iterable[Backend | Factory] | None = None,
    fallback_on: FallbackOn | None = None,
    price: Price | None = None,
    response_format: Any = None,
) -> PipelineStages:
    """The given stages, else those of the language model, else those without one.

    The arguments are those of JarvisAgent, and so are the errors.
    """
    from jarvis_agent.planning.offline import OfflinePlanner

    own_planner, own_responder = to_runnable(planner, "planner"), to_runnable(responder, "responder")
    runners = None if tools is None else _make_runners(tools)
    client = LLMClient(model, settings) if model is not None else None
    own = with_own_model(settings, model)
    offline = OfflinePlanner(settings=own)
    plans = client is not None and not is_small(client.model)
    default_planner: Runnable[Any, Plan] = planning_chain(client, settings=settings) if plans else offline
    default_responder: Runnable[Any, str] = (
        response_chain(client, settings=settings)
        if client
        else template_responder(model_missing=settings.model != NO_MODEL, advice=advice(settings, {}))
    )
    form, structure = None, None
    if response_format is not None:
        form = ResponseFormat.of(response_format)
        structure = structured_chain(client, form, settings=settings) if plans else last_fitting_output(form)
    return PipelineStages(
        settings=settings,
        planner=own_planner or default_planner,
        fallback_planner=offline if plans or own_planner else None,
        registry=ModelRegistry(
            own,
            sources=sources,
            backends=backends,
            selector=selector,
            llm=client,
            pins=models,
            fallback_on=fallback_on,
        ),
        tools=runners,
        responder=own_responder or default_responder,
        structure=structure,
        response_format=form,
        price=price,
        goes_on=own_planner is None,
    )


def _make_runners(tools: Sequence[BaseTool]) -> dict[str, TaskRunner]:
    """What runs the tasks, by name."""
    runners: dict[str, TaskRunner] = {}
    for tool in tools:
        if not isinstance(tool, BaseTool):
            raise ConfigError(
                f"{tool!r} is not a LangChain tool; `langchain_core.tools.tool` makes one from a function"
            )
        if tool.name in runners:
            raise ConfigError(f"two tools have the name {tool.name!r}; names must be unique in a plan")
        runners[tool.name] = tool.runner if isinstance(tool, HFTaskTool) else LangChainTask(tool)
    return runners
