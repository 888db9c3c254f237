"""Gradio Spaces that the Hub finds for a task, with JARVIS_SPACES=search.

Only public Spaces that run are listed. The endpoint of a Space is the first one whose parameters take the
task's arguments by kind, all others having defaults, and that returns what the task makes. Where parameters
are left over, the language model fills them, if there is one. A Space without such an endpoint is listed too:
its backend's `unsupported_reason` says why it cannot be called.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from jarvis_agent.backends.hosted.gradio_spaces import (
    FILES,
    MESSAGE,
    component,
    described_parameters,
    read_endpoints,
)
from jarvis_agent.backends.hub.api import FAILURE_TTL_S, HubApi, Row
from jarvis_agent.core.errors import JarvisError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import Arg, TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate, Task
from jarvis_agent.selection.sources.base import RemoteSource
from jarvis_agent.selection.sources.hub import OWN_CATEGORIES

MAX_ASKED = 5
"""Spaces of a search that are asked for their endpoints."""
_ASK_S = 5.0
"""Longest wait for the endpoints of a Space."""
_TTL_S = 3600.0
_MAX_DESCRIPTION_CHARS = 300

_KINDS = {"textbox": "text", "image": "image", "audio": "audio", "video": "video"}
"""What a component of Gradio takes and gives."""
_PICTURES = {"image", "gallery"}
_TEXTS = {"textbox", "markdown"}

_Endpoints = Mapping[str, Any]


class SpacesSource(RemoteSource):
    """Searches Spaces. Their endpoints are known for an hour, that one cannot be reached for a minute."""

    name: ClassVar[str] = "spaces"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._api = HubApi(settings)
        self._known: dict[str, tuple[float, _Endpoints | str]] = {}

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """Return the Spaces for a task, the most relevant first. Raises TransientError."""
        return await self._search(spec, spec.name.replace("-", " "), limit)

    async def search(self, spec: TaskSpec, task: Task, limit: int) -> list[Candidate]:
        """Return the Spaces for the purpose of a task; [] without one. Raises as `candidates`."""
        words = f"{spec.name.replace('-', ' ')} {task.purpose}"
        return await self._search(spec, words, limit) if task.purpose else []

    def estimate(self, spec: TaskSpec) -> list[Candidate]:
        """Return a placeholder for any Space; [] if none may be called, or could do the task."""
        settings = self._settings
        if settings.offline or settings.policy == "local-only" or not _output(spec):
            return []
        return [Candidate(id="any Space", task=spec.name, backend=self.name, metadata={"space": "any"})]

    async def _search(self, spec: TaskSpec, words: str, limit: int) -> list[Candidate]:
        if not self.estimate(spec):
            return []

        def is_usable(row: Row) -> bool:
            runtime = row.get("runtime")
            stage = runtime.get("stage") if isinstance(runtime, dict) else None
            return isinstance(row.get("id"), str) and not row.get("private") and stage == "RUNNING"

        rows = await self._api.get("/api/spaces/semantic-search", {"q": words, "sdk": "gradio"})
        usable = list(filter(is_usable, rows))[: min(limit, MAX_ASKED)]
        return list(await asyncio.gather(*(self._candidate(row, spec) for row in usable)))

    async def _candidate(self, row: Row, spec: TaskSpec) -> Candidate:
        space = row["id"]
        endpoints = await self._endpoints(space)
        if isinstance(endpoints, str):
            more = {"unfit": f"its endpoints are unknown: {endpoints}"}
        else:
            more = fit(spec, endpoints)
        about = ". ".join(str(row[name]) for name in ("title", "ai_short_description") if row.get(name))
        return Candidate(
            id=f"space:{space}",
            task=spec.name,
            source=self.name,
            backend=self.name,
            description=brief_text(about, _MAX_DESCRIPTION_CHARS),
            likes=row["likes"] if isinstance(row.get("likes"), int) else 0,
            metadata={"space": space, **more},
        )

    async def _endpoints(self, space: str) -> _Endpoints | str:
        """Return the endpoints of a Space by name, or why they are unknown."""
        expires, endpoints = self._known.get(space, (0.0, ""))
        if time.monotonic() < expires:
            return endpoints
        try:
            async with asyncio.timeout(_ASK_S):
                endpoints = await read_endpoints(space, self._settings)
        except JarvisError as error:
            endpoints = str(error)
        except TimeoutError:
            endpoints = f"it did not answer within {_ASK_S:g} s"
        ttl = FAILURE_TTL_S if isinstance(endpoints, str) else _TTL_S
        self._known[space] = (time.monotonic() + ttl, endpoints)
        return endpoints


def _output(spec: TaskSpec) -> set[str]:
    """Return the components whose value is a result of a task; empty: no component's is."""
    if spec.category in OWN_CATEGORIES or not spec.outputs:
        return set()
    if spec.outputs[0] == "text":
        return _TEXTS
    if "data" in spec.outputs:
        return {"json", "label"} if "classification" in spec.name else {"json"}
    if spec.outputs == ("image",):
        return _PICTURES
    return {name for name, kind in _KINDS.items() if spec.outputs == (kind,)}


def fit(spec: TaskSpec, endpoints: _Endpoints) -> dict[str, Any]:
    """Return the endpoint that does a task as `metadata` of a Candidate.

    "unfit" says why its parameters cannot be mapped by kind, or, without "api_name", why there is none.
    """
    outputs = {name: _made(spec, endpoint) for name, endpoint in endpoints.items()}
    able = sorted((name for name, places in outputs.items() if places), key=lambda name: outputs[name][0])
    for name in able:
        inputs = _inputs(spec.inputs, described_parameters(endpoints[name]))
        if inputs is not None:
            return {"api_name": name, "inputs": inputs, "strict": True}
    takes = " and ".join(_kind(arg) for arg in spec.inputs if arg.required) or "nothing"
    unfit = {"unfit": f"none of its endpoints takes {takes} and gives {spec.outputs[0]}"}
    kinds = {_kind(arg) for arg in spec.inputs if arg.required} - {"text"}
    for name in able:
        components = {component(row) for row in described_parameters(endpoints[name]).values()}
        if components and (
            components & {"file", MESSAGE} or kinds <= {_KINDS.get(each) for each in components}
        ):
            return {"api_name": name, **unfit}
    return unfit


def _made(spec: TaskSpec, endpoint: Mapping[str, Any]) -> list[int]:
    """Return the places of an endpoint's results that are what a task makes."""
    returns = endpoint.get("returns")
    rows = [row for row in returns if isinstance(row, dict)] if isinstance(returns, list) else []
    kinds = _output(spec)
    if kinds == _TEXTS and any(component(row) == MESSAGE for row in described_parameters(endpoint).values()):
        kinds = kinds | {"json"}  # what a chat replies
    return [place for place, row in enumerate(rows) if component(row) in kinds]


def _inputs(
    args: Iterable[Arg], parameters: Mapping[str, Mapping[str, Any]]
) -> dict[str, str | list[str]] | None:
    """Return what each parameter that gets something gets; None if arguments or parameters are left over."""
    left = sorted(args, key=lambda arg: not arg.required)
    inputs: dict[str, str | list[str]] = {}
    for name, parameter in parameters.items():
        has_default, kind = bool(parameter.get("parameter_has_default")), component(parameter)
        if kind == MESSAGE:  # of a chat, with one text, and the required files
            taken = [arg for arg in left if arg.kind == "text"][:1]
            taken += [arg for arg in left if arg.required and arg.kind in FILES]
        else:
            usable = (arg for arg in left if arg.required or has_default)
            taken = [arg for arg in usable if _kind(arg) == _KINDS.get(kind)][:1]
        left = [arg for arg in left if arg not in taken]
        if taken:
            inputs[name] = [arg.name for arg in taken] if kind == MESSAGE else taken[0].name
        elif not has_default:
            return None
    return None if any(arg.required for arg in left) else inputs


def _kind(arg: Arg) -> str:
    """Return the kind of an argument as a component takes it: labels are a text with commas."""
    return "text" if arg.kind == "data" else arg.kind
