"""Gateway: the actor through which drivers reach the deployments of a cluster; there is one in a cluster.

It starts a deployment when it is first needed, and passes calls on. Drivers outside the cluster, which use
Ray Client, cannot call deployments themselves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import ray
from ray import serve
from ray.exceptions import RayError, RayTaskError
from ray.serve.config import RequestRouterConfig
from ray.serve.exceptions import RayServeException

from jarvis_agent import __version__
from jarvis_agent.backends.ray.protocol import last_line, write_reply
from jarvis_agent.backends.ray.replica import REPORT_S, ExpertReplica
from jarvis_agent.backends.ray.wire import Parts
from jarvis_agent.core.errors import (
    ExpertError,
    OutOfMemoryError,
    TransientError,
    UnsupportedError,
    describe_error,
)

logger = logging.getLogger(__name__)

GB = 10**9
BASE_MEMORY = 2 * GB
"""Memory of a replica for small models; the next sizes are twice, four times, … as large."""

GPU_MEMORY = 16 * GB
"""Memory of a replica that gets a whole GPU; a smaller one gets a share."""

CALLS = 4
"""Calls that a replica accepts at once: some wait together for a batch, the others for more replicas."""

MAX_BACKOFF_S = 0.1
"""Seconds after which a call that no replica accepts is offered again."""

CHECK_S = 5.0
"""Seconds between looks at the cluster while calls wait."""

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
        name: id of the model.
        model: what tells loaded models apart.
        size: bytes of the model's weights, if known.
        gpu: whether it uses a GPU, if the cluster has one.
    """

    family: str
    backend: str
    name: str
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
    def resources(self) -> dict[str, float]:
        """What a replica takes of a node; of a GPU a share, in proportion to its memory."""
        share = min(1.0, self.memory / GPU_MEMORY) if self.gpu else 0.0
        return {"CPU": 1, "GPU": share, "memory": self.memory}

    @property
    def deployment(self) -> str:
        """Name of the deployment, one for each family and size."""
        size = f"{self.memory // GB}gb{'-gpu' if self.gpu else ''}"
        return f"jarvis-{__version__}-{self.family}-{size}"


@dataclass(eq=False, slots=True)
class Deployment:
    """A deployment, the calls that wait for it by model, and why it cannot answer them."""

    place: Place
    handle: Any
    waiting: Counter[str] = field(default_factory=Counter)
    fault: asyncio.Future[ExpertError] = field(default_factory=asyncio.Future)
    is_starting: bool = False


class Gateway:
    """Passes calls to deployments. Errors of Ray Serve are in the replies, as those of replicas are."""

    def __init__(self) -> None:
        self._deployments: dict[str, asyncio.Task[Deployment]] = {}
        self._busy: set[Deployment] = set()
        self._gpus: tuple[float, bool] = (0.0, False)
        self._lock = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._reports: dict[str, tuple[float, Mapping[str, str]]] = {}

    async def run(self, place: Mapping[str, Any], method: Literal["run", "load"], request: Parts) -> Parts:
        """Call a method of a replica at a `Place`. A cancelled call is cancelled in the replica too."""
        where = Place(**place)
        try:
            return await self._call(replace(where, gpu=where.gpu and await self._has_gpus()), method, request)
        except Exception as error:
            return write_reply("", error=error)

    async def report(self, replica: str, activities: Mapping[str, str]) -> None:
        """Take what a replica downloads or writes now, by model."""
        now = time.monotonic()
        kept = {name: one for name, one in self._reports.items() if now - one[0] < 3 * REPORT_S}
        self._reports = {**kept, replica: (now, activities)}

    async def activities(self, models: Iterable[str]) -> list[tuple[str, str]]:
        """What the replicas of some models do now, as models and lines."""
        now = time.monotonic()
        recent = [lines for at, lines in self._reports.values() if now - at < 3 * REPORT_S]
        found = [(model, lines[model]) for model in models for lines in recent if model in lines]
        delayed = {name for one in self._busy if one.is_starting for name in one.waiting}
        return found + [(name, f"{name}: waits for a replica") for name in delayed.intersection(models)]

    async def _call(self, place: Place, method: str, request: Parts) -> Parts:
        name = place.deployment
        if name not in self._deployments:
            self._deployments[name] = asyncio.create_task(self._start(place))
        try:
            # A cancelled call must not end the start that others wait for.
            deployment = await asyncio.shield(self._deployments[name])
            handle = deployment.handle.options(method_name=method, multiplexed_model_id=place.model)
            response = handle.remote(request)
            try:
                return await self._wait(response, deployment, place.name)
            except BaseException:
                response.cancel()
                raise
        except (RayError, RayServeException) as error:
            self._deployments.pop(name, None)  # it may have been removed
            raise explain_error(error) from error

    async def _wait(self, response: Any, deployment: Deployment, model: str) -> Parts:
        """The response of a replica. Ray Serve would wait forever for one that cannot start."""
        if self._watching is None or self._watching.done():  # done: Ray failed meanwhile
            self._watching = asyncio.create_task(self._watch())
        running = asyncio.ensure_future(response)
        self._busy.add(deployment)
        deployment.waiting[model] += 1
        try:
            await asyncio.wait([running, deployment.fault], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                fault = deployment.fault.result()
                raise type(fault)(str(fault))  # one raised repeatedly would keep the frames of all callers
            return cast(Parts, running.result())
        finally:
            running.cancel()
            deployment.waiting -= Counter([model])  # removes it at 0
            if not deployment.waiting:
                self._busy.discard(deployment)

    async def _start(self, place: Place) -> Deployment:
        try:
            async with self._lock:
                return Deployment(place, await asyncio.to_thread(_deploy, place))
        except BaseException:
            self._deployments.pop(place.deployment, None)
            raise

    async def _watch(self) -> None:
        """Look at the deployments that calls wait for."""
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                applications = await asyncio.to_thread(lambda: serve.status().applications)
            except RayError as error:
                logger.warning("Ray Serve was shut down: %s", last_line(str(error)))
                applications = {}
            for deployment in list(self._busy):
                await self._check(deployment, applications.get(deployment.place.deployment))

    async def _check(self, deployment: Deployment, app: Any) -> None:
        """End the wait for replicas that fit no node, or fail to start twice; their deployment is removed."""
        place = deployment.place
        status = app and app.deployments.get(place.family)
        if status and status.replica_states.get("RUNNING"):
            deployment.is_starting = False
            return
        fault: ExpertError | None
        if not status:
            fault = TransientError(f"the deployment of {place.family} was removed")
        elif status.status_trigger == "REPLICA_STARTUP_FAILED":
            fault = UnsupportedError(f"the cluster cannot start {place.family}: {last_line(status.message)}")
        else:
            deployment.is_starting = True
            fault = await asyncio.to_thread(_find_misfit, place)
        if fault is None:
            return
        self._deployments.pop(place.deployment, None)
        if status:
            await asyncio.to_thread(serve.delete, place.deployment)
        if not deployment.fault.done():
            deployment.fault.set_result(fault)

    async def _has_gpus(self) -> bool:
        until, found = self._gpus
        if time.monotonic() >= until:
            found = "GPU" in await asyncio.to_thread(ray.cluster_resources)
            self._gpus = (time.monotonic() + CHECK_S, found)
        return found


def _deploy(place: Place) -> Any:
    """Start the deployment, unless another gateway did: to deploy it again would restart its replicas."""
    if misfit := _find_misfit(place):
        raise misfit
    serve.start()  # again, if somebody has shut it down
    if place.deployment in serve.status().applications:
        return serve.get_app_handle(place.deployment)
    taken = place.resources
    deployment = serve.deployment(
        name=place.family,
        max_ongoing_requests=CALLS,
        max_constructor_retry_count=2,
        autoscaling_config=_SCALING,
        request_router_config=RequestRouterConfig(max_backoff_s=MAX_BACKOFF_S),
        ray_actor_options={"num_cpus": taken["CPU"], "num_gpus": taken["GPU"], "memory": taken["memory"]},
    )(ExpertReplica)
    app = deployment.bind(place.backend, place.memory // 2)
    return serve.run(app, name=place.deployment, route_prefix=None)


def _find_misfit(place: Place) -> OutOfMemoryError | None:
    """The error if no node that runs now is large enough."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(name, 0) >= least for name, least in place.resources.items()) for node in nodes):
        return None
    needed, largest = place.memory / GB, max((node.get("memory", 0) for node in nodes), default=0) / GB
    gpu = " and a GPU" if place.gpu else ""
    return OutOfMemoryError(
        f"it needs a node with a CPU{gpu} and {needed:.0f} GB of memory, and the largest node of the cluster "
        f"has {largest:.1f} GB for Ray"
    )


def explain_error(error: Exception) -> ExpertError:
    """An error of Ray as one of ours. What a lost replica or node causes is transient."""
    what = last_line(describe_error(error))
    if isinstance(error, RayTaskError):
        return ExpertError(f"the cluster failed: {what}")
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return OutOfMemoryError("the node ran out of memory, and Ray ended the replica")
    return TransientError(f"the cluster lost the replica that ran it: {what}")
