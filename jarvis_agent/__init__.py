"""jarvis-agent: HuggingGPT as a LangChain toolkit.

    from jarvis_agent import JarvisAgent

    agent = JarvisAgent(model="openai:gpt-5-mini")
    print(agent.invoke("How many objects are in examples/street.jpg?").answer)

Names are imported when they are first used, so that `import jarvis_agent` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jarvis_agent.agent import JarvisAgent as JarvisAgent
    from jarvis_agent.backends.table import default_backends as default_backends
    from jarvis_agent.catalog import RegisteredSource as RegisteredSource
    from jarvis_agent.plan import Plan as Plan
    from jarvis_agent.request import Request as Request
    from jarvis_agent.run import Run as Run
    from jarvis_agent.settings import Settings as Settings
    from jarvis_agent.sources.table import default_sources as default_sources
    from jarvis_agent.tools.spec import TaskSpec as TaskSpec
    from jarvis_agent.tools.table import register_task as register_task
    from jarvis_agent.tools.toolkit import JarvisToolkit as JarvisToolkit
    from jarvis_agent.tools.toolkit import hf_tools as hf_tools
    from jarvis_agent.types import Resource as Resource
    from jarvis_agent.types import Task as Task
    from jarvis_agent.types import TaskResult as TaskResult

_HOME = {
    "JarvisAgent": "agent",
    "JarvisToolkit": "tools.toolkit",
    "Plan": "plan",
    "RegisteredSource": "catalog",
    "Request": "request",
    "Resource": "types",
    "Run": "run",
    "Settings": "settings",
    "Task": "types",
    "TaskResult": "types",
    "TaskSpec": "tools.spec",
    "default_backends": "backends.table",
    "default_sources": "sources.table",
    "hf_tools": "tools.toolkit",
    "register_task": "tools.table",
}
__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
