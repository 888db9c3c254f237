"""The agent over HTTP as an application of Ray Serve, with several replicas on the nodes of a cluster.

    serve run jarvis_agent.interfaces.ray:app

It is the server of `jarvis serve`, configured by the same variables, which every node needs:
JARVIS_CHECKPOINTS is a PostgreSQL database and JARVIS_OUTPUT_DIR a directory that all nodes share, so that
any replica answers for a thread; JARVIS_API_KEYS are the keys of its clients. JARVIS_EXPERTS may be the
expert server of the same cluster. Needs the extras "ray", "serve" and "postgres".
"""

from fastapi import FastAPI
from ray import serve

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import ServerSettings, read_settings
from jarvis_agent.interfaces.server import create_app

_WHERE = "on every node, before `ray start`"

# A run goes on after the request that started it, so replicas that seem idle are kept for a while.
_SCALING = {"min_replicas": 2, "max_replicas": 100, "target_ongoing_requests": 8, "downscale_delay_s": 1200.0}


def make_app() -> FastAPI:
    """The application of one replica. ConfigError: a variable is missing on this node, or invalid."""
    server, settings = ServerSettings(), read_settings()
    if not (server.checkpoints or "").startswith("postgres"):
        raise ConfigError(f"replicas share threads in PostgreSQL: set JARVIS_CHECKPOINTS to its URL {_WHERE}")
    if not server.api_keys:
        raise ConfigError(f"other machines reach the replicas: set JARVIS_API_KEYS {_WHERE}")
    if "output_dir" not in settings.model_fields_set:
        raise ConfigError(f"replicas share their files: set JARVIS_OUTPUT_DIR to a common directory {_WHERE}")
    return create_app(JarvisAgent(settings=settings), server)


app = serve.deployment(
    name="server",
    max_ongoing_requests=64,
    autoscaling_config=_SCALING,
    ray_actor_options={"num_cpus": 0.25},
)(serve.ingress(make_app)()).bind()
"""The application for `serve run`."""
