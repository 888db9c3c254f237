"""langchain-hugginggpt: HuggingGPT as a LangChain toolkit.

    from jarvis_agent import JarvisAgent

    agent = JarvisAgent(model="openai:gpt-5-mini")
    print(agent.invoke("How many objects are in examples/street.jpg?").answer)

Names are imported when they are first used, so that `import jarvis_agent` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jarvis_agent.agent.agent import JarvisAgent as JarvisAgent
    from jarvis_agent.backends.registry import default_backends as default_backends
    from jarvis_agent.core.request import Request as Request
    from jarvis_agent.core.settings import Settings as Settings
    from jarvis_agent.core.tasks.registry import register_task as register_task
    from jarvis_agent.core.tasks.spec import TaskSpec as TaskSpec
    from jarvis_agent.core.types import Resource as Resource
    from jarvis_agent.core.types import Task as Task
    from jarvis_agent.core.types import TaskResult as TaskResult
    from jarvis_agent.execution.run import Run as Run
    from jarvis_agent.planning.chain import planning_chain as planning_chain
    from jarvis_agent.planning.offline import OfflinePlanner as OfflinePlanner
    from jarvis_agent.planning.plan import Plan as Plan
    from jarvis_agent.response.chain import response_chain as response_chain
    from jarvis_agent.selection.chain import selection_chain as selection_chain
    from jarvis_agent.selection.sources import default_sources as default_sources
    from jarvis_agent.selection.sources.registered import RegisteredSource as RegisteredSource
    from jarvis_agent.tools.toolkit import JarvisToolkit as JarvisToolkit
    from jarvis_agent.tools.toolkit import hf_tools as hf_tools

_HOME = {
    "JarvisAgent": "agent.agent",
    "JarvisToolkit": "tools.toolkit",
    "OfflinePlanner": "planning.offline",
    "Plan": "planning.plan",
    "RegisteredSource": "selection.sources.registered",
    "Request": "core.request",
    "Resource": "core.types",
    "Run": "execution.run",
    "Settings": "core.settings",
    "Task": "core.types",
    "TaskResult": "core.types",
    "TaskSpec": "core.tasks.spec",
    "default_backends": "backends.registry",
    "default_sources": "selection.sources",
    "hf_tools": "tools.toolkit",
    "planning_chain": "planning.chain",
    "register_task": "core.tasks.registry",
    "response_chain": "response.chain",
    "selection_chain": "selection.chain",
}
__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
