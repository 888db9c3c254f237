"""Backends and model sources of other packages: loaded by entry point, and checked against their protocol."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from inspect import get_annotations
from typing import Any, TypeVar

from jarvis_agent.core.errors import ConfigError

T = TypeVar("T")


def check_plugin(part: T, protocol: type, label: str) -> T:
    """Return `part` if it has every attribute and method of its protocol; `label` names it in messages.

    Raises:
        ConfigError: it is a class instead of an instance, or it lacks something.
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


def load_plugin(entry: EntryPoint, protocol: type, what: str, *args: Any) -> Any:
    """Load an entry point, call it with `args`, and check the result.

    Raises:
        ConfigError: it cannot be loaded or called, or the result lacks something.
    """
    label = f"the {what} {entry.name!r} ({entry.value})"
    try:
        part = entry.load()(*args)
    except Exception as error:
        raise ConfigError(f"{label} cannot be loaded: {error}; repair or uninstall its package") from error
    return check_plugin(part, protocol, label)
