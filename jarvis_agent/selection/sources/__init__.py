"""Model sources: the user's descriptions, the starter packages, the local cache, the Hub, plug-ins."""

from jarvis_agent.core.plugins import create_plugin, plugin_entries
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.llm.chat_model import local_files
from jarvis_agent.selection.sources.base import ModelSource
from jarvis_agent.selection.sources.cache import CacheSource
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.selection.sources.language_model import LanguageModelSource
from jarvis_agent.selection.sources.registered import RegisteredSource
from jarvis_agent.selection.sources.spaces import SpacesSource
from jarvis_agent.selection.sources.starter import StarterSource

ENTRY_POINTS = "jarvis_agent.model_sources"


def default_sources(settings: Settings | None = None) -> list[ModelSource]:
    """Return the sources that are used unless others are passed, the most trusted first.

        JarvisAgent(sources=[RegisteredSource(...), *default_sources()])

    The language model is among them if it is a GGUF file of the settings or of `jarvis setup`. An agent adds
    another one as `LanguageModelSource(model)`.

    Args:
        settings: `models_file` adds a RegisteredSource; None: the settings of the environment.

    Raises:
        ConfigError: the models file, a plug-in or an environment variable is invalid.
    """
    settings = read_settings(settings)
    own: list[ModelSource] = []
    if settings.models_file:
        own.append(RegisteredSource.from_yaml(settings.models_file.expanduser()))
    own += map(LanguageModelSource, local_files(settings)[:1])
    built_in: list[ModelSource] = [StarterSource(settings), CacheSource(settings), HubSource(settings)]
    if settings.spaces == "search":
        built_in.append(SpacesSource(settings))
    entries = plugin_entries(ENTRY_POINTS)
    plugins = [create_plugin(entry, ModelSource, "model source", settings) for entry in entries]
    return [*own, *built_in, *plugins]
