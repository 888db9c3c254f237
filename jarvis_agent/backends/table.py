"""The table of backends, in the order in which they are asked. A new one is a row, or an entry point.

[project.entry-points."jarvis_agent.backends"]
my-backend = "my_package:MyBackend"        # called with (settings, pool)
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.errors import ConfigError
from jarvis_agent.settings import Settings

Factory = Callable[[Settings, ModelPool], Backend]

_BUILTIN: dict[str, Callable[[Any, Settings, ModelPool], Backend]] = {
    "starter:StarterBackend": lambda backend, settings, pool: backend(pool),
    "media.opencv:OpenCVBackend": lambda backend, settings, pool: backend(pool),
    "media.media_tools:MediaToolsBackend": lambda backend, settings, pool: backend(pool),
    "sentence_transformers:SentenceTransformersBackend": lambda backend, settings, pool: backend(
        pool, settings
    ),
    "transformers.backend:TransformersBackend": lambda backend, settings, pool: backend(pool, settings),
    "tabular.sklearn:SklearnBackend": lambda backend, settings, pool: backend(pool, settings),
    "tabular.chronos:ChronosBackend": lambda backend, settings, pool: backend(pool, settings),
    "diffusers.backend:DiffusersBackend": lambda backend, settings, pool: backend(pool, settings),
    "remote.hosted:HostedBackend": lambda backend, settings, pool: backend(settings),
    "remote.openai_compatible:OpenAIBackend": lambda backend, settings, pool: backend(settings),
    "remote.spaces:SpacesBackend": lambda backend, settings, pool: backend(settings),
}
"""Module and class of each backend of ours, and how it is made."""


def make_backends(settings: Settings, pool: ModelPool) -> list[Backend]:
    """Every backend, those of installed plug-ins last.

    Raises:
        ConfigError: a plug-in's can not be loaded, or is no backend.
    """
    made: list[Backend] = []
    for home, make in _BUILTIN.items():
        module, name = home.split(":")
        made.append(make(getattr(import_module(f"jarvis_agent.backends.{module}"), name), settings, pool))
    for entry in entry_points(group="jarvis_agent.backends"):
        origin = f"the backend {entry.name!r} ({entry.value})"
        try:
            factory: Factory = entry.load()
            backend = factory(settings, pool)
        except Exception as error:
            raise ConfigError(
                f"{origin} can not be loaded: {error}; mend or uninstall its package"
            ) from error
        if not isinstance(backend, Backend):
            raise ConfigError(f"{origin} is no backend: see the protocol in jarvis_agent.backends.base")
        made.append(backend)
    return made
