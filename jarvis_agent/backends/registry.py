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
from jarvis_agent.core.errors import ConfigError, JarvisError, describe_error
from jarvis_agent.core.plugins import brought, checked
from jarvis_agent.core.settings import Settings

Factory = Callable[[Settings, ModelPool], Backend]
"""What makes a backend, of the settings of an agent and the pool of the process: its class, say."""

_HERE = (
    "starter:StarterBackend",
    "media.opencv:OpenCVBackend",
    "media.media_tools:MediaToolsBackend",
    "sentence_transformers:SentenceTransformersBackend",
    "transformers.backend:TransformersBackend",
    "tabular.sklearn:SklearnBackend",
    "tabular.chronos:ChronosBackend",
    "diffusers.backend:DiffusersBackend",
)
"""Module and class of each backend of ours that loads models on this machine."""

_HOSTED = (
    "remote.hosted:HostedBackend",
    "remote.openai_compatible:OpenAIBackend",
    "remote.spaces:SpacesBackend",
)
"""Those that ask others to run them."""


def default_backends() -> list[Factory]:
    """What makes every backend that is asked unless others are given, those of installed plug-ins last."""
    ours: list[Factory] = [
        *(partial(_local, home) for home in _HERE),
        *(partial(_hosted, home) for home in _HOSTED),
    ]
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


def _local(home: str, settings: Settings, pool: ModelPool) -> Backend:
    backend: Backend = _class_at(home)(pool, settings)
    return backend


def _hosted(home: str, settings: Settings, pool: ModelPool) -> Backend:
    backend: Backend = _class_at(home)(settings)
    return backend


def _class_at(home: str) -> Any:
    module, name = home.split(":")
    return getattr(import_module(f"jarvis_agent.backends.{module}"), name)
