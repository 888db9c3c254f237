"""Where a model runs, here or where it is hosted, and why there.

    at = places_of(candidate, spec, backends, settings)
    at.first                # its backend; None: it can not run, and `at.refusal` says why
    at.second               # the first backend on the other side, for when that fails
    at.reason               # "it is on this machine", "hosted by fal-ai; its 4.2 GB are more than …"

The policy of the task decides. `local-first`: here, if the model is on this machine or small enough to be
downloaded (`max_download`), hosted otherwise; `hosted-first` the other way round; the `-only` policies shut
the other side out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.devices import largest_budget
from jarvis_agent.core.errors import describe_error
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

_ONLY = {"local-only": True, "hosted-only": False}

_SAFE_WEIGHTS = frozenset({"transformers", "diffusers", "sentence-transformers"})
"""The backends whose models are safetensors unless the settings allow pickles."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The backends that may run a candidate, the preferred first, and why the others do not, by name."""

    candidate: Candidate
    backends: Sequence[Backend]
    refusals: Mapping[str, str]
    reason: str = ""

    @property
    def first(self) -> Candidate | None:
        """The candidate with the backend that runs it; None if there is none."""
        return at(self.backends[0], self.candidate) if self.backends else None

    @property
    def second(self) -> Candidate | None:
        """The same model on the other side: hosted if its first place is here, and the other way round."""
        sides = [runs_here(backend, self.candidate) for backend in self.backends]
        other = next((place for place, here in enumerate(sides) if here is not sides[0]), None)
        return None if other is None else at(self.backends[other], self.candidate)

    @property
    def refusal(self) -> str:
        """Why it can not run at all."""
        if not self.refusals:
            return f"the backend {self.candidate.backend!r} is not installed"
        reasons: dict[str, list[str]] = {}
        for name, reason in self.refusals.items():
            reasons.setdefault(reason, []).append(name)
        if len(reasons) == 1:
            return next(iter(reasons))
        return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())


def places_of(
    candidate: Candidate, spec: TaskSpec, backends: Sequence[Backend], settings: Settings
) -> Placement:
    """Where the policy and the backends let a candidate run."""
    asked = [backend for backend in backends if candidate.backend in (None, backend.name)]
    local_first = not hosted_first(settings, spec)
    asked.sort(key=lambda backend: runs_here(backend, candidate) is not local_first)
    unable = {backend.name: unsupported_reason(backend, spec, candidate) for backend in asked}
    able = [backend for backend in asked if unable[backend.name] is None]
    forbidden = {backend.name: _forbidden(backend, candidate, spec, settings) for backend in able}
    usable = [backend for backend in able if forbidden[backend.name] is None]
    # Where the settings alone keep a model from running, what other backends of that side lack is no news.
    sides = {runs_here(backend, candidate) for backend in able}
    told = [one for one in asked if one in able or runs_here(one, candidate) not in sides]
    reasons = {one.name: forbidden.get(one.name) or unable[one.name] for one in told}
    refusals = _telling(reasons, candidate, spec, asked)
    why = _reason(usable[0], candidate, spec, backends, settings) if usable and spec.needs_model else ""
    return Placement(candidate, usable, refusals, why)


def unsupported_reason(backend: Backend, spec: TaskSpec, candidate: Candidate) -> str | None:
    """Why a backend can not run a candidate; None if it can. A fault of its code is a reason."""
    try:
        return backend.unsupported_reason(spec, candidate)
    except Exception as error:
        return f"the backend {backend.name} failed when it was asked: {in_words(error)}"


def _telling(
    reasons: Mapping[str, str | None], candidate: Candidate, spec: TaskSpec, backends: Sequence[Backend]
) -> dict[str, str]:
    """The reasons of those backends that could do the task with some model; of all, if there are none.

    That a backend never does such a task, or runs its own models alone, is no news of this model.
    """
    refusals = {name: reason for name, reason in reasons.items() if reason is not None}
    some_model = Candidate(id=candidate.id, task=spec.name, local=True, providers=("any",))
    able = {one.name for one in backends if _could(unsupported_reason(one, spec, some_model))}
    return {name: reason for name, reason in refusals.items() if name in able} or refusals


def _could(reason: str | None) -> bool:
    return reason is None or "needs the extra" in reason


def runs_here(backend: Backend, candidate: Candidate) -> bool:
    """Whether a backend runs the candidate on the user's side.

    A candidate that is here and names its backend is run here, such as one on a server of this machine.
    """
    return backend.local or (candidate.local and candidate.backend == backend.name)


def hosted_first(settings: Settings, spec: TaskSpec) -> bool:
    """Whether the policy for a task prefers what others host."""
    return settings.policy_for(spec.name).startswith("hosted")


def at(backend: Backend, candidate: Candidate) -> Candidate:
    """The candidate as that backend runs it: what is hosted is not on this machine."""
    here = {} if runs_here(backend, candidate) else {"local": False, "path": None}
    return candidate.model_copy(update={"backend": backend.name, **here})


def _forbidden(backend: Backend, candidate: Candidate, spec: TaskSpec, settings: Settings) -> str | None:
    """What the settings have against running a candidate there."""
    policy, here = settings.policy_for(spec.name), runs_here(backend, candidate)
    # What needs no model is computed here whatever the policy, and sent elsewhere only where it may be.
    if _ONLY.get(policy, here) is not here and (spec.needs_model or not here):
        return f"the policy is {policy}"
    if not here:
        return None
    return (
        _too_far(candidate, settings)
        or (_too_large(candidate, settings) if backend.local else None)
        or (_unsafe(candidate, settings) if backend.name in _SAFE_WEIGHTS else None)
    )


def _too_large(candidate: Candidate, settings: Settings) -> str | None:
    """Why a model may not be loaded on this machine."""
    limit = largest_budget(settings) if candidate.size else None
    if limit is None or not candidate.size or candidate.size <= limit:
        return None
    return (
        f"its {candidate.size:,} bytes are more than the {limit:,} that loaded models may take "
        "(JARVIS_MEMORY_BUDGET, JARVIS_GPU_MEMORY_BUDGET)"
    )


def _unsafe(candidate: Candidate, settings: Settings) -> str | None:
    """Why a model of the Hub that would have to be unpickled is not even downloaded."""
    known = candidate.source == "hub" and not candidate.local and bool(candidate.tags)
    if settings.allow_pickle or not known or "safetensors" in candidate.tags or candidate.size:
        return None
    return "the Hub lists no safetensors of it, and other weights are not loaded (JARVIS_ALLOW_PICKLE)"


def _too_far(candidate: Candidate, settings: Settings) -> str | None:
    """Why a model that is not on this machine may not be downloaded."""
    if candidate.local:
        return None
    if settings.offline:
        return "it is not on this machine, and offline mode is on"
    if settings.max_download == 0:
        return "it is not on this machine, and downloads are off (JARVIS_MAX_DOWNLOAD=0)"
    if candidate.size and candidate.size > settings.max_download:
        return f"its {candidate.size:,} bytes are more than may be downloaded (JARVIS_MAX_DOWNLOAD)"
    return None


def _reason(
    backend: Backend, candidate: Candidate, spec: TaskSpec, backends: Sequence[Backend], settings: Settings
) -> str:
    """Why a model runs there: what the choice of each task records."""
    if runs_here(backend, candidate):
        if candidate.local:
            return "it is on this machine"
        return f"it is downloaded to this machine{_amount(candidate)}"
    hosts = f"hosted by {', '.join(candidate.providers) or backend.name}"
    if hosted_first(settings, spec):
        return f"{hosts}, as the policy is {settings.policy_for(spec.name)}"
    if (why := _too_far(candidate, settings) or _too_large(candidate, settings)) is not None:
        return f"{hosts}; {why}"
    return f"{hosts}; nothing here can run it"


def _amount(candidate: Candidate) -> str:
    return f" ({candidate.size / 1e9:.1f} GB)" if candidate.size else ""
