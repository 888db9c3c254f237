"""The table of model sources, nearest first: what is installed, what is downloaded, what the Hub has.

make_sources(settings)      # [StarterSource, CacheSource, HubSource, …those of plug-ins]
"""

from __future__ import annotations

from jarvis_agent.catalog import ModelSource, discover_sources
from jarvis_agent.settings import Settings
from jarvis_agent.sources.cache import CacheSource
from jarvis_agent.sources.hub import HubSource
from jarvis_agent.sources.starter import StarterSource


def make_sources(settings: Settings) -> list[ModelSource]:
    """Every source, those of plug-ins last."""
    return [StarterSource(settings), CacheSource(settings), HubSource(settings), *discover_sources(settings)]
