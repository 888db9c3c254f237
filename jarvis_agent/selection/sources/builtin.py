"""The table of model sources, nearest first: the user's own, what is installed, downloaded, on the Hub.

default_sources(settings)      # [RegisteredSource, StarterSource, CacheSource, HubSource, …those of plug-ins]

JarvisAgent(sources=[RegisteredSource(…), *default_sources()])      # models of one's own besides all others
"""

from __future__ import annotations

from jarvis_agent.selection.sources.base import ModelSource, RegisteredSource, discover_sources
from jarvis_agent.core.settings import Settings, load_settings
from jarvis_agent.selection.sources.cache import CacheSource
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.backends.starter.models import StarterSource


def default_sources(settings: Settings | None = None) -> list[ModelSource]:
    """Every source that is asked unless others are given: the models of `settings.models_file` come first,
    those of plug-ins last.

    Args:
        settings: None: those of the environment.

    Raises:
        ConfigError: the models file or a plug-in can not be used, or a setting of the environment.
    """
    settings = settings or load_settings()
    own = [RegisteredSource.from_yaml(settings.models_file.expanduser())] if settings.models_file else []
    ours: list[ModelSource] = [StarterSource(settings), CacheSource(settings), HubSource(settings)]
    return [*own, *ours, *discover_sources(settings)]
