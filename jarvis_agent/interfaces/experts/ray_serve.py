"""The expert server on a Ray cluster: its application is the ingress of a deployment for each size of model.

`serve run jarvis_agent.interfaces.experts:cluster` takes the sizes that fit the nodes.
Ray Serve starts and ends replicas with the calls that wait, sends a call to a replica that has its model, and
has an HTTP proxy on every node. Every node needs the extras "ray", "serve" and those of its models, and
JARVIS_API_KEYS.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import RayServeException
from starlette.responses import Response

from jarvis_agent.core import errors
from jarvis_agent.core.settings import ServerSettings, read_settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Frozen
from jarvis_agent.interfaces.experts.app import ExpertRunner, make_app
from jarvis_agent.interfaces.experts.hub_api import InferenceRequest, read_fields

GB = 10**9
SIZES_GB = (2, 4, 8, 16, 32)

_CALLS = 4
"""Calls that a replica accepts at once: some wait together for a batch, the others for more replicas."""

_MODELS = 64
"""Models of a replica that Ray Serve knows of; memory sets a lower limit."""

_SCALING: dict[str, Any] = {
    "target_ongoing_requests": 2,
    "upscale_delay_s": 0.5,
    "metrics_interval_s": 1.0,
    "look_back_period_s": 2.0,
    "downscale_delay_s": 30.0,
}


class SizeClass(Frozen):
    """A deployment for models of a size.

    A replica has memory of at least twice the weights of one of its models. Models that use torch go where
    there are GPUs, of which a replica may have a share. From `min_replicas` to `max_replicas` run at once.
    """

    memory_gb: float
    gpus: float = 0.0
    min_replicas: int = 0
    max_replicas: int = 100

    @property
    def name(self) -> str:
        """Name of the deployment."""
        return f"experts-{self.memory_gb:g}gb{'-gpu' if self.gpus else ''}"


class ExpertReplica:
    """The pool of a size class in one process."""

    def __init__(self, size: SizeClass) -> None:
        budget = int(size.memory_gb * GB / 2)
        settings = read_settings({"memory_budget": budget})
        node = ray.get_runtime_context().get_node_id()[:8]
        self._runner = ExpertRunner(settings, node=f"{ray.util.get_node_ip_address()}, {node}")

    @serve.multiplexed(max_num_models_per_replica=_MODELS)  # type: ignore[untyped-decorator]
    async def _note_model(self, model: str) -> str:
        """Tell Ray Serve that the model is here. The pool loads it."""
        return model

    async def answer(self, request: InferenceRequest) -> tuple[bytes, int, dict[str, str]]:
        """As ExpertRunner: the body, status and headers."""
        await self._note_model(serve.get_multiplexed_model_id())
        response = await self._runner.answer(request)
        return bytes(response.body), response.status_code, dict(response.headers)


class ExpertIngress(ExpertRunner):
    """The application of one ingress replica, which passes calls to the replicas of their size class."""

    def __init__(self, sizes: Sequence[SizeClass], *handles: Any) -> None:
        """`handles`: the deployment of each size."""
        super().__init__(read_settings())
        self._sizes = dict(zip(sizes, handles, strict=True))

    def __serve_build_asgi_app__(self) -> Any:
        server = ServerSettings()
        if not server.api_keys:
            raise errors.ConfigError(
                "other machines reach the replicas: set JARVIS_API_KEYS on every node, before `ray start`"
            )
        return make_app(self, server)

    def models(self) -> dict[str, Any]:
        """The size classes. What their replicas have loaded is known to Ray Serve."""
        return {"loaded": [], "classes": [size.model_dump() for size in self._sizes]}

    async def _run(self, request: InferenceRequest, folder: Path) -> Response:
        response: Any = None
        try:
            model, *_ = await self._find(request, await asyncio.to_thread(read_fields, request))
            able = (
                backend
                for backend in self._backends.values()
                if model.backend in (None, backend.name)
                and backend.mismatch(TASKS[model.task], model) is None
            )
            uses_torch = "torch" in getattr(next(able, None), "needs", ())
            size = choose_size([*self._sizes], model, on_gpu=uses_torch)
            handle = self._sizes[size].options(
                method_name="answer", multiplexed_model_id=f"{model.id}@{model.revision}"
            )
            response = handle.remote(request)
            return Response(*await response)
        except (RayError, RayServeException) as error:
            raise explain_error(error) from error
        finally:
            if response is not None:
                response.cancel()


def choose_size(sizes: Sequence[SizeClass], model: Candidate, *, on_gpu: bool) -> SizeClass:
    """The smallest class for a model, also of unknown size. OutOfMemoryError: it is too large for all."""
    needed = 2 * (model.size or 0)
    fitting = [size for size in sizes if size.memory_gb * GB >= needed]
    if not fitting:
        named = ", ".join(f"{size.memory_gb:g} GB{' with a GPU' if size.gpus else ''}" for size in sizes)
        what = f"{model.id} needs {needed / GB:.1f} GB, twice its weights"
        raise errors.OutOfMemoryError(f"{what}; the expert server has classes of {named}")
    return min(fitting, key=lambda size: (bool(size.gpus) is not on_gpu, size.memory_gb))


def explain_error(error: Exception) -> errors.ExpertError:
    """An error of Ray as one of ours. What a lost replica or node causes is transient."""
    # The message stands below the traceback of another process.
    *_, last = ["", *errors.describe_error(error).strip().splitlines()]
    what = re.sub(r"\x1b\[\d+m", "", last).strip()
    if isinstance(error, RayTaskError):
        return errors.ExpertError(f"the cluster failed: {what}")
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return errors.OutOfMemoryError("the node ran out of memory, and Ray ended the replica")
    return errors.TransientError(f"the cluster lost the replica that ran it: {what}")


def sizes_for_nodes() -> list[SizeClass]:
    """The classes that fit a node of the cluster that runs now. Raises ConfigError if there is none."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    shares = (lambda gb: 0.0, lambda gb: min(1.0, gb / 16))  # a small replica gets a share of a GPU
    wanted = [SizeClass(memory_gb=gb, gpus=share(gb)) for share in shares for gb in SIZES_GB]

    def fits(size: SizeClass, node: Mapping[str, float]) -> bool:
        least = {"CPU": 1.0, "GPU": size.gpus, "memory": size.memory_gb * GB}
        return all(node.get(name, 0.0) >= amount for name, amount in least.items())

    sizes = [size for size in wanted if any(fits(size, node) for node in nodes)]
    if not sizes:
        raise errors.ConfigError(f"no node of the cluster has a CPU and {SIZES_GB[0]} GB of memory for Ray")
    return sizes


def cluster(args: Mapping[str, Any]) -> serve.Application:
    """The application for `serve run`; args: {"sizes": [{"memory_gb": 2}, …]}, else those for the nodes."""
    sizes = [SizeClass(**row) for row in args.get("sizes", ())] or sizes_for_nodes()
    deployments = [
        serve.deployment(
            name=size.name,
            max_ongoing_requests=_CALLS,
            autoscaling_config=_SCALING | size.model_dump(include={"min_replicas", "max_replicas"}),
            request_router_config=RequestRouterConfig(max_backoff_s=0.1),
            ray_actor_options={"num_cpus": 1, "num_gpus": size.gpus, "memory": size.memory_gb * GB},
        )(ExpertReplica).bind(size)
        for size in sizes
    ]
    ingress = serve.deployment(
        name="experts",
        max_ongoing_requests=1000,
        autoscaling_config={"min_replicas": 1, "max_replicas": 100, "target_ongoing_requests": 64},
        ray_actor_options={"num_cpus": 0},
    )(serve.ingress()(ExpertIngress))
    return ingress.bind(sizes, *deployments)
