"""The table of backends, in the order in which they are asked. A new one is a row, or an entry point.

[project.entry-points."jarvis_agent.backends"]
my-backend = "my_package:MyBackend"        # called with (settings, pool)

JarvisAgent(backends=[MyBackend, *default_backends()])      # one's own besides all others
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.errors import ConfigError, JarvisError, in_words
from jarvis_agent.parts import brought, checked
from jarvis_agent.settings import Settings

Factory = Callable[[Settings, ModelPool], Backend]
"""What makes a backend, of the settings of an agent and the pool of the process: its class, say."""

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


def default_backends() -> list[Factory]:
    """What makes every backend that is asked unless others are given, those of installed plug-ins last."""
    ours: list[Factory] = [partial(_ours, home, make) for home, make in _BUILTIN.items()]
    entries = entry_points(group="jarvis_agent.backends")
    return [*ours, *(partial(brought, entry, Backend, "backend") for entry in entries)]


def make_backends(
    settings: Settings, pool: ModelPool, given: Iterable[Backend | Factory] | None = None
) -> list[Backend]:
    """The backends that are given, made where they are not yet; None: all of `default_backends`.

    Raises:
        ConfigError: one of them can not be loaded or made, or is no backend.
    """
    return [_made(one, settings, pool) for one in (default_backends() if given is None else given)]


def _made(given: Backend | Factory, settings: Settings, pool: ModelPool) -> Backend:
    if not callable(given):
        return checked(given, Backend, "a backend")
    name = getattr(given, "__name__", repr(given))
    try:
        backend = given(settings, pool)
    except JarvisError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the backend {name} can not be made of the settings and the pool: {in_words(error)}; "
            "give an instance of it, or take these two"
        ) from error
    return checked(backend, Backend, f"what {name} makes as a backend")


def _ours(
    home: str, make: Callable[[Any, Settings, ModelPool], Backend], settings: Settings, pool: ModelPool
) -> Backend:
    module, name = home.split(":")
    return make(getattr(import_module(f"jarvis_agent.backends.{module}"), name), settings, pool)
