"""What calls share in this process, or, with `settings.cluster`, in the whole cluster.

rows = await hub_api(settings).get("/api/models", {"pipeline_tag": "object-detection"})
async with circuit_breaker(settings).call(("hf-inference", "org/model")): ...
"""

from __future__ import annotations

from typing import Any

from jarvis_agent.backends import circuit_breaker as breaker
from jarvis_agent.backends.circuit_breaker import CircuitBreaker
from jarvis_agent.backends.hub.api import HubApi
from jarvis_agent.backends.ray.shared import SharedHubApi, shared_breaker
from jarvis_agent.core.settings import Settings


def hub_api(settings: Settings, **options: Any) -> HubApi:
    """The Hub, with the options of HubApi. Each HubApi of this process keeps answers of its own."""
    return (SharedHubApi if settings.cluster else HubApi)(settings, **options)


def circuit_breaker(settings: Settings) -> CircuitBreaker:
    """The circuit breaker of this process, or of the cluster."""
    return shared_breaker(settings.cluster) if settings.cluster else breaker.shared
