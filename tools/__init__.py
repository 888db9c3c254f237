"""The task types of the Hub as LangChain tools. Names are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jarvis_agent.tools.spec import Arg as Arg
    from jarvis_agent.tools.spec import Modality as Modality
    from jarvis_agent.tools.spec import TaskSpec as TaskSpec
    from jarvis_agent.tools.table import TASKS as TASKS
    from jarvis_agent.tools.table import register_task as register_task
    from jarvis_agent.tools.task_tool import HFTaskTool as HFTaskTool
    from jarvis_agent.tools.toolkit import JarvisToolkit as JarvisToolkit
    from jarvis_agent.tools.toolkit import hf_tools as hf_tools

_HOME = {
    "Arg": "spec",
    "HFTaskTool": "task_tool",
    "JarvisToolkit": "toolkit",
    "Modality": "spec",
    "TASKS": "table",
    "TaskSpec": "spec",
    "hf_tools": "toolkit",
    "register_task": "table",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
