"""Parts that others write: those given to an agent, and those that installed packages bring.

checked(planner, Planner, "the planner")              # the planner, if it has what a planner needs
brought(entry, ModelSource, "model source", settings)  # what the entry point of a package makes
"""

from __future__ import annotations

from importlib.metadata import EntryPoint
from inspect import get_annotations
from typing import Any, TypeVar

from jarvis_agent.core.errors import ConfigError

T = TypeVar("T")


def checked(part: T, protocol: type, label: str) -> T:
    """The part, which has every attribute and method of its protocol.

    Args:
        label: name of the part in messages, such as "the planner".

    Raises:
        ConfigError: it is a class instead of an instance of it, or it lacks something.
    """
    if isinstance(part, type):
        name = part.__name__
        raise ConfigError(f"{label} cannot be used: {name} is a class; give an instance of it, {name}(…)")
    lacking = [f"`{name}`" for name in _members(protocol) if getattr(part, name, None) is None]
    if lacking:
        raise ConfigError(
            f"{label} cannot be used: {type(part).__name__} lacks {', '.join(lacking)}; "
            f"see the protocol {protocol.__name__} in {protocol.__module__}"
        )
    return part


def brought(entry: EntryPoint, protocol: type, what: str, *given: Any) -> Any:
    """The part that the entry point of an installed package makes of `given`.

    Raises:
        ConfigError: it cannot be loaded or made, or it lacks something.
    """
    label = f"the {what} {entry.name!r} ({entry.value})"
    try:
        part = entry.load()(*given)
    except Exception as error:
        raise ConfigError(f"{label} cannot be loaded: {error}; repair or uninstall its package") from error
    return checked(part, protocol, label)


def _members(protocol: type) -> list[str]:
    return [name for name in (*get_annotations(protocol), *vars(protocol)) if not name.startswith("_")]
