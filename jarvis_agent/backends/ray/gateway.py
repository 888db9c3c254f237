"""Gateway: the actor through which drivers reach the deployments of a cluster; there is one in a cluster.

It starts a deployment when it is first needed, and passes calls on. Drivers outside the cluster, which use
Ray Client, cannot call deployments themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import ray
from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.exceptions import RayServeException

from jarvis_agent import __version__
from jarvis_agent.backends import circuit_breaker as breaker
from jarvis_agent.backends.ray.protocol import last_line, write_reply
from jarvis_agent.backends.ray.replica import ExpertReplica
from jarvis_agent.backends.ray.wire import Parts
from jarvis_agent.core.errors import (
    ExpertError,
    OutOfMemoryError,
    TransientError,
    UnsupportedError,
    describe_error,
)

GB = 10**9
BASE_MEMORY = 2 * GB
"""Memory of a replica for small models; the next sizes are twice, four times, … as large."""

GPU_MEMORY = 16 * GB
"""Memory of a replica that gets a whole GPU; a smaller one gets a share."""

CALLS = 8
"""Calls that a replica accepts at once, so that some wait together for a batch."""

CHECK_S = 5.0
"""Seconds between looks at a deployment that does not answer."""

_SCALING = {
    "min_replicas": 0,
    "max_replicas": 1000,  # the resources of the nodes are the limit
    "target_ongoing_requests": 2,
    "upscale_delay_s": 0.5,
    "look_back_period_s": 2.0,
    "downscale_delay_s": 30.0,
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call runs.

    Attributes:
        family: name of the backend.
        backend: import path of its class.
        model: what tells models apart.
        size: bytes of the model's weights, if known.
        gpu: whether it may use a GPU.
    """

    family: str
    backend: str
    model: str
    size: int | None
    gpu: bool

    @property
    def memory(self) -> int:
        """Bytes of the replica: twice the weights, rounded up to a size class."""
        memory = BASE_MEMORY
        while memory < 2 * (self.size or 0):
            memory *= 2
        return memory

    @property
    def gpus(self) -> float:
        """The share of a GPU; 0 if the cluster has none."""
        if not (self.gpu and ray.cluster_resources().get("GPU")):
            return 0.0
        return min(1.0, self.memory / GPU_MEMORY)

    @property
    def deployment(self) -> str:
        """Name of the deployment, one for each family and size."""
        size = f"{self.memory // GB}gb{'-gpu' if self.gpus else ''}"
        return f"jarvis-{__version__}-{self.family}-{size}"


class Gateway:
    """Passes calls to deployments. Errors of Ray Serve are in the replies, as those of replicas are."""

    def __init__(self) -> None:
        self._handles: dict[str, Any] = {}
        self._starting = asyncio.Lock()

    async def run(self, place: Mapping[str, Any], method: Literal["run", "load"], request: Parts) -> Parts:
        """Call a method of a replica at a `Place`. A cancelled call is cancelled in the replica too.

        A model that repeatedly loses its replica is not called for a while, by any driver.
        """
        where = Place(**place)
        try:
            with breaker.shared.call((where.family, where.model)):
                return await self._call(where, method, request)
        except Exception as error:
            return write_reply("", error=error)

    async def _call(self, place: Place, method: str, request: Parts) -> Parts:
        try:
            handle = await self._handle(place)
            response = handle.options(method_name=method, multiplexed_model_id=place.model).remote(request)
            try:
                return await self._wait(response, place)
            except BaseException:
                response.cancel()
                raise
        except (RayError, RayServeException) as error:
            self._handles.pop(place.deployment, None)  # the deployment may have been removed
            raise _explain(error) from error

    async def _wait(self, response: Any, place: Place) -> Parts:
        """The response of a replica. Ray Serve would wait forever for one that cannot start."""
        running = asyncio.ensure_future(response)
        while not running.done():
            await asyncio.wait([running], timeout=CHECK_S)
            if not running.done() and (fault := await asyncio.to_thread(_find_fault, place)):
                self._handles.pop(place.deployment, None)  # the next call starts it again
                running.cancel()
                raise UnsupportedError(f"the cluster cannot start {place.family}: {fault}")
        return cast(Parts, running.result())

    async def _handle(self, place: Place) -> Any:
        """The deployment for the place, started if it does not exist."""
        async with self._starting:
            if place.deployment not in self._handles:
                _check_fit(place)
                self._handles[place.deployment] = await asyncio.to_thread(_deploy, place)
        return self._handles[place.deployment]


def _deploy(place: Place) -> Any:
    """Start the deployment, unless another gateway did: to deploy it again would restart its replicas."""
    if place.deployment in serve.status().applications:
        return serve.get_app_handle(place.deployment)
    deployment = serve.deployment(
        name=place.family,
        max_ongoing_requests=CALLS,
        max_constructor_retry_count=2,
        autoscaling_config=_SCALING,
        ray_actor_options={"num_cpus": 1, "num_gpus": place.gpus, "memory": place.memory},
    )(ExpertReplica)
    app = deployment.bind(place.backend, place.memory // 2)
    return serve.run(app, name=place.deployment, route_prefix=None)


def _check_fit(place: Place) -> None:
    largest = max((node["Resources"].get("memory", 0) for node in ray.nodes() if node["Alive"]), default=0)
    if place.memory > largest:
        raise OutOfMemoryError(
            f"it needs {place.memory / GB:.0f} GB of memory, and the largest node of the cluster has "
            f"{largest / GB:.1f} GB for Ray"
        )


def _find_fault(place: Place) -> str:
    """Why no replica of a deployment can start, after two tries, and is removed; "" as long as one may."""
    app = serve.status().applications.get(place.deployment)
    deployment = app and app.deployments.get(place.family)
    if not deployment:
        return "it was removed"
    if deployment.status_trigger != "REPLICA_STARTUP_FAILED":
        return ""
    serve.delete(place.deployment)
    return last_line(deployment.message)


def _explain(error: Exception) -> ExpertError:
    """An error of Ray as one of ours. What a lost replica or node causes is transient."""
    what = last_line(describe_error(error))
    if isinstance(error, RayTaskError):
        return ExpertError(f"the cluster failed: {what}")
    return TransientError(f"the cluster lost the replica that ran it: {what}")
