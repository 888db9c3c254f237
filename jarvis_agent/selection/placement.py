"""Placement: whether a model runs on this machine or hosted, with which backend, and why.

`local-first` prefers this machine if the model is on it or within `max_download`; `hosted-first` is the
reverse; the `-only` policies exclude the other side.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.chat_model import ChatModelBackend
from jarvis_agent.backends.devices import largest_budget
from jarvis_agent.backends.remote_experts import ExpertServer, RemoteBackend
from jarvis_agent.core.errors import describe_error
from jarvis_agent.core.notes import Note, limit_of
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

_SIDE_OF_POLICY = {"local-only": True, "hosted-only": False}

_SAFETENSORS_BACKENDS = frozenset({"transformers", "diffusers", "sentence-transformers"})
"""Backends that load only safetensors unless `allow_pickle` is set."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a candidate runs: `here`, on this machine, or hosted."""

    primary: Candidate
    """The candidate with its preferred backend."""
    alternate: Candidate | None
    """The candidate on the other side, hosted or on this machine; None if it runs on one only."""
    here: bool
    reason: str
    """Why it runs there; "" for algorithms."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """What its rank is the sum of (see `ranking`)."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What no card says: experience, and the price of a call."""


def place(
    candidate: Candidate, spec: TaskSpec, backends: Sequence[Backend], settings: Settings
) -> Placement | str:
    """Return where the policy and the backends allow a candidate to run, or why nothing may run it.

    The reason is that of the backend that comes nearest to running it; of several, the policy's first.
    """
    local_first = not settings.policy.startswith("hosted")
    answers = list(answers_of(candidate, spec, backends))
    answers.sort(key=lambda answer: runs_here(answer[0], candidate) is not local_first)
    reasons = [why or _forbidden(backend, candidate, spec, settings) for backend, why in answers]
    usable = [backend for (backend, _), reason in zip(answers, reasons, strict=True) if reason is None]
    if not usable:

        def distance(number: int) -> tuple[bool, bool]:
            backend, unsupported = answers[number]
            return unsupported is not None, not _can_do(backend, spec)

        nearest = min(range(len(answers)), key=distance, default=None)
        missing = f"the backend {candidate.backend!r} is not installed"
        return missing if nearest is None else reasons[nearest] or missing
    here = runs_here(usable[0], candidate)
    other = next((backend for backend in usable if runs_here(backend, candidate) is not here), None)
    return Placement(
        primary=_on(usable[0], candidate),
        alternate=_on(other, candidate) if other else None,
        here=here,
        reason=_reason(usable[0], candidate, spec, settings) if spec.needs_model else "",
    )


def answers_of(
    candidate: Candidate, spec: TaskSpec, backends: Iterable[Backend]
) -> Iterator[tuple[Backend, str | None]]:
    """Yield each backend that a candidate allows, and why it cannot run it; None: it can.

    An exception counts as a reason.
    """
    for backend in backends:
        if candidate.backend in (None, backend.name):
            reason: str | None
            try:
                reason = backend.unsupported_reason(spec, candidate)
            except Exception as error:
                failed = "the backend {name} failed to check the model: {reason}"
                reason = Note(failed, name=backend.name, reason=describe_error(error))
            yield backend, reason


def _can_do(backend: Backend, spec: TaskSpec) -> bool:
    """Whether a backend does a task with some model, or would with an extra."""
    any_model = Candidate(id="any", task=spec.name, local=True, providers=("any",))
    ((_, reason),) = answers_of(any_model, spec, [backend])
    return reason is None or "needs the extra" in reason


def runs_here(backend: Backend, candidate: Candidate) -> bool:
    """Whether a backend runs the candidate on this machine: a local one, or a server of this machine."""
    return backend.local or (candidate.local and candidate.backend == backend.name)


def _on(backend: Backend, candidate: Candidate) -> Candidate:
    """Return the candidate as that backend runs it: a hosted one is not on this machine."""
    here = {} if runs_here(backend, candidate) else {"local": False, "path": None}
    return candidate.model_copy(update={"backend": backend.name, **here})


def _forbidden(backend: Backend, candidate: Candidate, spec: TaskSpec, settings: Settings) -> str | None:
    """Return why the settings forbid a candidate on a backend."""
    policy, here = settings.policy, runs_here(backend, candidate)
    # An algorithm runs here under every policy, and is hosted only where that is allowed.
    if _SIDE_OF_POLICY.get(policy, here) is not here and (spec.needs_model or not here):
        return Note("the policy is {policy}", policy=policy)
    if not here:
        return None
    unsafe = _unsafe(candidate, settings) if backend.name in _SAFETENSORS_BACKENDS else None
    if _server(backend, candidate):
        return unsafe
    too_large = _too_large(candidate, settings) if backend.local else None
    return _download_forbidden(candidate, settings) or too_large or unsafe


def _server(backend: Backend, candidate: Candidate) -> ExpertServer | None:
    """The expert server on which a backend runs a candidate."""
    return backend.server_for(candidate) if isinstance(backend, RemoteBackend) else None


def _too_large(candidate: Candidate, settings: Settings) -> str | None:
    limit = largest_budget(settings) if candidate.size else None
    if limit is None or not candidate.size or candidate.size <= limit:
        return None
    return Note(
        "its {number:,} bytes are more than the {limit:,} that loaded models may take",
        number=candidate.size,
        limit=limit,
        advice=limit_of("JARVIS_MEMORY_BUDGET"),
    )


def _unsafe(candidate: Candidate, settings: Settings) -> str | None:
    listed = candidate.source == "hub" and not candidate.local and bool(candidate.tags)
    if settings.allow_pickle or not listed or "safetensors" in candidate.tags or candidate.size:
        return None
    unsafe = "the Hub lists no safetensors of it, and other weights are not loaded"
    return Note(unsafe, advice="JARVIS_ALLOW_PICKLE=1 allows them")


def _download_forbidden(candidate: Candidate, settings: Settings) -> str | None:
    if candidate.local:
        return None
    if settings.offline:
        return Note("it is not on this machine, and offline mode is on")
    if settings.max_download == 0:
        off = "it is not on this machine, and downloads are off"
        return Note(off, advice=limit_of("JARVIS_MAX_DOWNLOAD"))
    if candidate.size and candidate.size > settings.max_download:
        large = "its {number:,} bytes are more than may be downloaded"
        return Note(large, number=candidate.size, advice=limit_of("JARVIS_MAX_DOWNLOAD"))
    return None


def _reason(backend: Backend, candidate: Candidate, spec: TaskSpec, settings: Settings) -> str:
    """Return why a model runs on a backend, for `Selection.placement`."""
    if runs_here(backend, candidate):
        if server := _server(backend, candidate):
            return f"it runs on the expert server {server.address}"
        if candidate.local:
            return Note("it is on this machine")
        if not candidate.size:
            return Note("it is downloaded to this machine")
        return Note("it is downloaded to this machine ({size:.1f} GB)", size=candidate.size / 1e9)
    if backend.name == ChatModelBackend.name:
        return Note("its own server runs it")
    hosts = ", ".join(candidate.providers) or backend.name
    if settings.policy.startswith("hosted"):
        return Note("hosted by {hosts}, as the policy is {policy}", hosts=hosts, policy=settings.policy)
    obstacle = _download_forbidden(candidate, settings) or _too_large(candidate, settings)
    why = obstacle or Note("nothing here can run it")
    return Note("hosted by {hosts}; {reason}", hosts=hosts, reason=why)
