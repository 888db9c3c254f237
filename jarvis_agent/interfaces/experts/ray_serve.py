"""The expert server on a Ray cluster: `serve run jarvis_agent.interfaces.experts:cluster`.

Each replica is the whole server, with a pool of its own. Ray Serve starts and ends replicas with the calls
that wait, sends a call to a replica that has its model, and has an HTTP proxy on every node. What a replica
takes of a node is configured as that of any deployment. Every node needs the extras "ray", "serve" and those
of its models, and JARVIS_API_KEYS.
"""

from typing import Any

import ray
from ray import serve
from ray.serve.config import RequestRouterConfig

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import ServerSettings, read_settings
from jarvis_agent.core.types import Candidate
from jarvis_agent.interfaces.experts.app import ExpertRunner, make_app
from jarvis_agent.interfaces.experts.hub_api import Fields, InferenceRequest

_MODELS = 64
"""Models of a replica that Ray Serve knows of; memory sets a lower limit."""

_SCALING: dict[str, Any] = {
    "min_replicas": 1,
    "max_replicas": 100,
    "target_ongoing_requests": 2,
    "upscale_delay_s": 0.5,
    "metrics_interval_s": 1.0,
    "look_back_period_s": 2.0,
    "downscale_delay_s": 30.0,
}


class ExpertReplica(ExpertRunner):
    """The server in a process of the cluster. Half of the memory that Ray gives it is for weights."""

    def __init__(self) -> None:
        memory = ray.get_runtime_context().get_assigned_resources().get("memory", 0)
        super().__init__(read_settings({"memory_budget": int(memory / 2)} if memory else {}))

    def __serve_build_asgi_app__(self) -> Any:
        server = ServerSettings()
        if not server.api_keys:
            raise ConfigError(
                "other machines reach the replicas: set JARVIS_API_KEYS on every node, before `ray start`"
            )
        return make_app(self, server)

    @serve.multiplexed(max_num_models_per_replica=_MODELS)  # type: ignore[untyped-decorator]
    async def _note_model(self, model: str) -> str:
        """Tell Ray Serve that the model is here. The pool loads it."""
        return model

    async def _find(self, request: InferenceRequest, fields: Fields) -> tuple[Candidate, Fields, Fields]:
        """As ExpertRunner; the model that was found is noted."""
        found = await super()._find(request, fields)
        await self._note_model(request.model)
        return found


cluster = serve.deployment(
    name="experts",
    # Some calls wait together for a batch, the others for more replicas: what one has taken stays there, and
    # the one that has the model would take every call of it.
    max_ongoing_requests=4,
    autoscaling_config=_SCALING,
    request_router_config=RequestRouterConfig(max_backoff_s=0.1),
    ray_actor_options={"num_cpus": 1, "memory": 4 * 10**9},
)(serve.ingress()(ExpertReplica)).bind()
"""The application for `serve run`."""
