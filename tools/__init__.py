"""The task types of the Hub as LangChain tools. Names are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jarvis_agent.core.tasks.registry import TASKS as TASKS
    from jarvis_agent.core.tasks.registry import register_task as register_task
    from jarvis_agent.core.tasks.spec import Arg as Arg
    from jarvis_agent.core.tasks.spec import Modality as Modality
    from jarvis_agent.core.tasks.spec import TaskSpec as TaskSpec
    from jarvis_agent.tools.hf_task_tool import HFTaskTool as HFTaskTool
    from jarvis_agent.tools.middleware import hf_tools_middleware as hf_tools_middleware
    from jarvis_agent.tools.toolkit import JarvisToolkit as JarvisToolkit
    from jarvis_agent.tools.toolkit import hf_tools as hf_tools

_HOME = {
    "Arg": "jarvis_agent.core.tasks.spec",
    "HFTaskTool": "jarvis_agent.tools.hf_task_tool",
    "JarvisToolkit": "jarvis_agent.tools.toolkit",
    "Modality": "jarvis_agent.core.tasks.spec",
    "TASKS": "jarvis_agent.core.tasks.registry",
    "TaskSpec": "jarvis_agent.core.tasks.spec",
    "hf_tools": "jarvis_agent.tools.toolkit",
    "hf_tools_middleware": "jarvis_agent.tools.middleware",
    "register_task": "jarvis_agent.core.tasks.registry",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
