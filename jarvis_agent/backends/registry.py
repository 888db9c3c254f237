"""The backends of an agent: a table of ours, and the entry points of installed packages.

[project.entry-points."jarvis_agent.backends"]
my-backend = "my_package:MyBackend"        # called with (settings, pool)

JarvisAgent(backends=[MyBackend, *default_backends()])
"""

from collections.abc import Callable, Iterable
from functools import partial
from pkgutil import resolve_name

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.remote_experts import RemoteBackend, find_server
from jarvis_agent.core.errors import ConfigError, JarvisError, describe_error
from jarvis_agent.core.plugins import check_plugin, create_plugin, plugin_entries
from jarvis_agent.core.settings import Settings

Factory = Callable[[Settings, ModelPool], Backend]
"""Makes a backend from the settings of an agent and the shared pool, for example its class."""

_LOCAL = (
    "starter.backend:StarterBackend",
    "chat_model:ChatModelBackend",
    "algorithms.backend:AlgorithmsBackend",
    "sentence_transformers:SentenceTransformersBackend",
    "transformers.backend:TransformersBackend",
    "tabular:SklearnBackend",
    "tabular:ChronosBackend",
    "diffusers:DiffusersBackend",
)
"""Module and class of each backend that may load models on this machine, in the order of preference."""

_HOSTED = ("hosted.inference_providers:HostedBackend", "hosted.gradio_spaces:SpacesBackend")
"""Module and class of each backend that calls models over the network."""


def default_backends() -> list[Factory]:
    """Factories of all built-in backends, followed by those of installed plug-ins."""
    built_in = [partial(_built_in, home) for home in (*_LOCAL, *_HOSTED)]
    entries = plugin_entries("jarvis_agent.backends")
    return [*built_in, *(partial(create_plugin, entry, Backend, "backend") for entry in entries)]


def make_backends(
    settings: Settings, pool: ModelPool, given: Iterable[Backend | Factory] | None = None
) -> list[Backend]:
    """The given backends, where factories are called; None: all of `default_backends`.

    Those that an expert server may run are wrapped, if there is one. ConfigError: one cannot be made.
    """
    parts = default_backends() if given is None else given
    backends = [_make_backend(part, settings, pool) for part in parts]
    served = [backend for backend in backends if isinstance(backend, LocalBackend) and backend.is_served]
    if not served or (server := find_server(settings)) is None:
        return backends
    return [RemoteBackend(backend, server) if backend in served else backend for backend in backends]


def _make_backend(given: Backend | Factory, settings: Settings, pool: ModelPool) -> Backend:
    if not callable(given):
        return check_plugin(given, Backend, "a backend")
    name = getattr(given, "__name__", repr(given))
    try:
        backend = given(settings, pool)
    except JarvisError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the backend {name} cannot be made from (settings, pool): {describe_error(error)}; "
            "pass an instance, or a factory that accepts these two arguments"
        ) from error
    return check_plugin(backend, Backend, f"what {name} makes as a backend")


def _built_in(home: str, settings: Settings, pool: ModelPool) -> Backend:
    factory = resolve_name(f"jarvis_agent.backends.{home}")
    backend: Backend = factory(settings, pool) if home in _LOCAL else factory(settings)
    return backend
