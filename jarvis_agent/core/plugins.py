"""Parts that users and other packages supply: checked when they are given.

Backends and model sources are loaded by entry point; stages are Runnables or functions.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from inspect import get_annotations
from typing import TYPE_CHECKING, Any, TypeVar

from jarvis_agent.core.errors import ConfigError

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable

T = TypeVar("T")


def check_plugin(part: T, protocol: type, label: str) -> T:
    """Return `part` if it has every attribute and method of its protocol; `label` names it in messages.

    Raises ConfigError: it is a class instead of an instance, or it lacks something.
    """
    if isinstance(part, type):
        name = part.__name__
        raise ConfigError(f"{label} cannot be used: {name} is a class; give an instance of it, {name}(…)")
    members = [name for name in (*get_annotations(protocol), *vars(protocol)) if not name.startswith("_")]
    lacking = [f"`{name}`" for name in members if getattr(part, name, None) is None]
    if lacking:
        raise ConfigError(
            f"{label} cannot be used: {type(part).__name__} lacks {', '.join(lacking)}; "
            f"see the protocol {protocol.__name__} in {protocol.__module__}"
        )
    return part


@cache
def plugin_entries(group: str) -> EntryPoints:
    """The entry points of a group, read once: that opens a file of every installed package."""
    return entry_points(group=group)


def create_plugin(entry: EntryPoint, protocol: type, what: str, *args: Any) -> Any:
    """The part that an entry point makes of `args`, checked.

    Raises ConfigError: it cannot be loaded or called, or the result lacks something.
    """
    label = f"the {what} {entry.name!r} ({entry.value})"
    try:
        part = entry.load()(*args)
    except Exception as error:
        raise ConfigError(f"{label} cannot be loaded: {error}; repair or uninstall its package") from error
    return check_plugin(part, protocol, label)


def to_runnable(stage: Any, name: str) -> Runnable[Any, Any] | None:
    """A planner, selector or responder as a Runnable; None stays None.

    Raises ConfigError: it is neither a Runnable nor a function.
    """
    from langchain_core.runnables import RunnableGenerator, RunnableLambda
    from langchain_core.runnables.base import coerce_to_runnable

    if stage is None:
        return None
    try:
        runnable: Runnable[Any, Any] = coerce_to_runnable(stage)
    except TypeError as error:
        raise ConfigError(
            f"the {name} is of type {type(stage).__name__}; give a LangChain Runnable or a function, with "
            "the input and output of planning_chain, selection_chain or response_chain"
        ) from error
    if isinstance(runnable, RunnableGenerator) and not hasattr(runnable, "_atransform"):
        return RunnableLambda(runnable.invoke)  # runs in a thread; sync generators have no async methods
    return runnable
