"""The parts of an agent: its stages, models and task runners, made from what the user passes.

stages = make_stages(runners, client, settings, planner, responder)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import Runnable, RunnableGenerator, RunnableLambda
from langchain_core.runnables.base import coerce_to_runnable
from langchain_core.tools import BaseTool

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings
from jarvis_agent.execution.executor import TaskRunner
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.planning.chain import planning_chain
from jarvis_agent.planning.plan import Plan
from jarvis_agent.planning.replanner import replanning_chain
from jarvis_agent.response.chain import response_chain, template_responder
from jarvis_agent.tools.hf_task_tool import HFTaskTool
from jarvis_agent.tools.langchain_task import LangChainTask


@dataclass(frozen=True, slots=True)
class PipelineStages:
    """The parts of an agent.

    Attributes:
        runners: returns what runs the tasks, by task name; called once per run.
        planner: a dict with "input", "files", "chat_history" and "tools" → Plan.
        responder: a dict with "input", "plan", "results", "files" and "chat_history" → str.
        settings: limits and policies.
        fallback_planner: asked if the planner fails before its first task.
        replanner: the planner's dict with "plan" and "results" → Plan to add; None: no replanning.
    """

    runners: Callable[[], Awaitable[Mapping[str, TaskRunner]]]
    planner: Runnable[dict[str, Any], Plan]
    responder: Runnable[dict[str, Any], str]
    settings: Settings
    fallback_planner: Runnable[Any, Plan] | None = None
    replanner: Runnable[Any, Plan] | None = None


def make_stages(
    runners: Any,
    client: LLMClient | None,
    settings: Settings,
    planner: Runnable[Any, Any] | None,
    responder: Runnable[Any, Any] | None,
) -> PipelineStages:
    """The given stages, else those of the language model, else those without one."""
    from jarvis_agent.planning.offline import OfflinePlanner

    offline = OfflinePlanner(settings=settings)
    if client is not None:
        return PipelineStages(
            runners=runners,
            planner=planner or planning_chain(client, settings=settings),
            responder=responder or response_chain(client, settings=settings),
            settings=settings,
            fallback_planner=offline,
            replanner=None if planner else replanning_chain(client, settings=settings),
        )
    responder = responder or template_responder(model_missing=True)
    fallback = offline if planner else None
    return PipelineStages(runners, planner or offline, responder, settings, fallback_planner=fallback)


def make_runners(tools: Sequence[BaseTool]) -> dict[str, TaskRunner]:
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


def checked_stage(stage: Any, name: str) -> Runnable[Any, Any] | None:
    """A planner or responder as a Runnable. Raises ConfigError if it is neither a Runnable nor a function."""
    if stage is None:
        return None
    try:
        runnable: Runnable[Any, Any] = coerce_to_runnable(stage)
    except TypeError as error:
        raise ConfigError(
            f"the {name} is of type {type(stage).__name__}; give a LangChain Runnable, such as those of "
            "planning_chain or response_chain, or a function"
        ) from error
    if isinstance(runnable, RunnableGenerator) and not hasattr(runnable, "_atransform"):
        return RunnableLambda(runnable.invoke)  # runs in a thread; sync generators have no async methods
    return runnable
