"""Model sources: the user's descriptions, the starter packages, the local cache, the Hub, plug-ins."""

from __future__ import annotations

from pathlib import Path

from jarvis_agent.backends.llama_cpp import CLASSIFICATION, TEXT_TASKS, LlamaCppBackend
from jarvis_agent.core.plugins import load_plugin, plugin_entries
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.llm.chat_model import local_files
from jarvis_agent.selection.ranking import GENERALIST, OWN_MODEL
from jarvis_agent.selection.sources.base import ModelSource
from jarvis_agent.selection.sources.cache import CacheSource
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.selection.sources.registered import RegisteredSource
from jarvis_agent.selection.sources.spaces import SpacesSource
from jarvis_agent.selection.sources.starter import StarterSource

ENTRY_POINTS = "jarvis_agent.model_sources"

_LANGUAGE_MODEL = "The language model of this user, which writes, translates, summarises and sorts texts."


def default_sources(settings: Settings | None = None) -> list[ModelSource]:
    """Return the sources that are used unless others are passed, the most trusted first.

        JarvisAgent(sources=[RegisteredSource(...), *default_sources()])

    Args:
        settings: `models_file` adds a RegisteredSource; None: the settings of the environment.

    Raises:
        ConfigError: the models file, a plug-in or an environment variable is invalid.
    """
    settings = read_settings(settings)
    own = [RegisteredSource.from_yaml(settings.models_file.expanduser())] if settings.models_file else []
    own += [_language_model(path) for path in local_files(settings)[:1]]
    built_in: list[ModelSource] = [StarterSource(settings), CacheSource(settings), HubSource(settings)]
    if settings.spaces == "search":
        built_in.append(SpacesSource(settings))
    return [*own, *built_in, *load_plugin_sources(settings)]


def _language_model(path: Path) -> RegisteredSource:
    """A GGUF file that the user named or installed as the language model, for the tasks that it does too."""
    about = {"id": path.name, "path": path, "backend": LlamaCppBackend.name, "description": _LANGUAGE_MODEL}
    return RegisteredSource(
        {**about, "task": "text-generation", "traits": [OWN_MODEL]},
        {**about, "tasks": [*CLASSIFICATION], "traits": [GENERALIST]},
        {**about, "tasks": [task for task in TEXT_TASKS if task not in ("text-generation", *CLASSIFICATION)]},
    )


def load_plugin_sources(settings: Settings) -> list[ModelSource]:
    """Return the sources of installed packages, each created with the settings.

    Raises:
        ConfigError: a plug-in cannot be loaded, or is not a ModelSource.
    """
    return [
        load_plugin(entry, ModelSource, "model source", settings) for entry in plugin_entries(ENTRY_POINTS)
    ]
