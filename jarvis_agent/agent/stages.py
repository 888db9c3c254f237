"""The stages of a run, which JarvisAgent makes of what the user passes; `RunPipeline` calls them."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Self

from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from jarvis_agent.core.errors import ConfigError, InputError
from jarvis_agent.core.settings import Budget, RunOptions, Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.execution.executor import TaskRunner
from jarvis_agent.execution.fallback import HFTaskRunner
from jarvis_agent.llm.usage import Price
from jarvis_agent.planning.inputs import PlanInput
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.chain import ResponseInput
from jarvis_agent.response.structured import ResponseFormat
from jarvis_agent.selection.chain import SelectionInput
from jarvis_agent.selection.model_registry import ModelRegistry
from jarvis_agent.tools.hf_task_tool import HFTaskTool
from jarvis_agent.tools.langchain_task import LangChainTask

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
        own_runners: what runs the tasks, by name; None: the tasks that the registry has a model for, or all.
        responder: a dict with "input", "plan", "results", "files", "chat_history" and "tools" → str, or a
            Plan of further tasks.
        structure: the input of the responder with "answer" → the answer as plain JSON of `response_format`.
        response_format: the type of structured answers; None: there are none.
        price: the price of a call; None: what providers report.
        goes_on: whether the responder may add tasks; a plan of the user's own is not changed.
        calls: numbers for calls of tasks outside a plan, of which each has a seed of its own.
    """

    settings: Settings
    planner: Runnable[Any, Plan]
    fallback_planner: Runnable[Any, Plan] | None
    registry: ModelRegistry
    own_runners: Mapping[str, TaskRunner] | None
    responder: Runnable[Any, str]
    structure: Runnable[Any, Any] | None = None
    response_format: ResponseFormat | None = None
    price: Price | None = None
    goes_on: bool = True
    calls: Iterator[int] = field(default_factory=count)

    async def find_runners(self) -> Mapping[str, TaskRunner]:
        """What runs the tasks of a run, by name."""
        if self.own_runners is not None:
            return self.own_runners
        available = await self.registry.available_tasks()
        if not any(spec.needs_model for spec in available.values()):
            available = TASKS  # those of a plan then fail with what must be installed
        return {name: HFTaskRunner(spec, self.registry) for name, spec in available.items()}

    async def callable_tools(self) -> dict[str, BaseTool]:
        """The tasks as tools to call outside a plan, of which none reads what another call produced."""
        tools: dict[str, BaseTool] = {}
        for name, runner in (await self.find_runners()).items():
            if isinstance(runner, HFTaskRunner):
                tools[name] = HFTaskTool.of(
                    runner, settings=self.settings, produced=deque(maxlen=0), calls=self.calls
                )
            elif isinstance(runner, LangChainTask):
                tools[name] = runner.tool
        return tools

    def with_options(self, options: RunOptions) -> Self:
        """These stages with what the caller of one run chooses. Raises InputError: that is not possible."""
        settings, pins = self.settings, options.get("models") or {}
        policy = options.get("policy") or settings.policy
        if settings.policy.endswith("-only") and policy != settings.policy:
            raise InputError(f"the policy {policy!r} is not possible here: the agent has {settings.policy!r}")
        budget = settings.budget.lowered(options.get("budget") or Budget())
        settings = settings.model_copy(update={"policy": policy, "budget": budget})
        try:
            registry = self.registry.copy(settings, pins, paths=settings.allow_request_paths)
        except ConfigError as error:
            raise InputError(error.note) from error
        return replace(self, settings=settings, registry=registry)

    async def aclose(self) -> None:
        """Free the models, also those of the tools."""
        own = [runner for runner in (self.own_runners or {}).values() if isinstance(runner, HFTaskRunner)]
        await asyncio.gather(self.registry.aclose(), *(runner.registry.aclose() for runner in own))


def make_runners(tools: Sequence[BaseTool]) -> dict[str, TaskRunner]:
    """What runs the tasks, by name. Raises ConfigError: one is no tool, or two have one name."""
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
