"""The table of backends, in the order in which they are asked. A new one is a row, or an entry point.

[project.entry-points."jarvis_agent.backends"]
my-backend = "my_package:MyBackend"        # called with (settings, pool)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.settings import Settings

Factory = Callable[[Settings, ModelPool], Backend]

_BUILTIN: tuple[tuple[str, str, bool], ...] = (
    # module, class, whether it loads models into the pool
    ("jarvis_agent.backends.starter", "StarterBackend", True),
    ("jarvis_agent.backends.opencv", "OpenCVBackend", True),
    ("jarvis_agent.backends.transformers", "TransformersBackend", True),
    ("jarvis_agent.backends.hosted", "HostedBackend", False),
)


def make_backends(settings: Settings, pool: ModelPool) -> list[Backend]:
    """Every backend, those of installed plug-ins last."""
    made: list[Backend] = []
    for module, name, pooled in _BUILTIN:
        backend = getattr(import_module(module), name)
        made.append(backend(pool) if pooled else backend(settings))
    for entry in entry_points(group="jarvis_agent.backends"):
        factory: Factory = entry.load()
        made.append(factory(settings, pool))
    return made
