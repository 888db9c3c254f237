"""Which candidates stay for a task, why the others go, and in which order the rest is tried.

    listed = shortlist(merged(lists, settings), Case(task, spec, settings, wanted={"ocr": True}), backends)
    listed.kept         # the best first, each with the backend that runs it
    listed.rejected     # {"org/model": "it is gated: …"}

Filters come first (CHECKS, then where a model may run), matters of degree last (the rank).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jarvis_agent.backends.base import Backend
from jarvis_agent.catalog import RegisteredSource
from jarvis_agent.selection.hints import language_gap
from jarvis_agent.selection.languages import find_language
from jarvis_agent.settings import Settings
from jarvis_agent.tools.spec import TaskSpec
from jarvis_agent.types import Candidate, Task

_PLACE = ("local", "path", "revision", "size", "backend", "library", "source")
_ONLY = {"local-only": True, "hosted-only": False}


@dataclass(frozen=True, slots=True)
class Case:
    """What a model is looked for: the task, its type, the user's settings, and the hints in the request.

    `language` is the language of the request, as `hints.script` tells it.
    """

    task: Task
    spec: TaskSpec
    settings: Settings
    wanted: Mapping[str, Any] = field(default_factory=dict)
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The candidates that stay, the best first, and why others do not, by id."""

    kept: list[Candidate]
    rejected: dict[str, str]


def merged(lists: Iterable[Sequence[Candidate]], settings: Settings) -> list[Candidate]:
    """The candidates of all sources, each model once, in the order of the sources.

    What several sources say of a model is put together: the earlier source's words come first, the place is
    the one where the policy has it run, and the counts are the Hub's.
    """
    hosted = settings.policy.startswith("hosted")
    found: dict[str, Candidate] = {}
    for candidate in (one for listed in lists for one in listed):
        known = found.get(candidate.id)
        found[candidate.id] = _merged(known, candidate, hosted) if known else candidate
    return list(found.values())


def _merged(first: Candidate, other: Candidate, hosted: bool) -> Candidate:
    placed = min((first, other), key=lambda one: (hosted and not one.providers, not one.local))
    own_backend = first.backend if first.source == RegisteredSource.name else None
    return Candidate(
        **{
            **_said(other),
            **_said(first),
            **{name: getattr(placed, name) for name in _PLACE},
            "backend": own_backend or placed.backend,
            "downloads": max(first.downloads, other.downloads),
            "likes": max(first.likes, other.likes),
            "metadata": {**other.metadata, **first.metadata, **placed.metadata},
        }
    )


def _said(candidate: Candidate) -> dict[str, Any]:
    return {name: value for name, value in candidate if value}


def shortlist(candidates: Iterable[Candidate], case: Case, backends: Sequence[Backend]) -> Shortlist:
    """Filter and rank the candidates. Those that stay have their `backend` filled in."""
    kept: list[tuple[Candidate, Backend]] = []
    rejected: dict[str, str] = {}
    for candidate in candidates:
        reason = refusal(candidate, case)
        backend = None
        if reason is None:
            backend, reason = backend_for(candidate, case.spec, backends, case.settings)
        if backend is None:
            rejected[candidate.id] = reason or ""
        else:
            kept.append((candidate.model_copy(update={"backend": backend.name}), backend))
    if case.wanted.get("ocr") and any("ocr" in candidate.traits for candidate, _ in kept):
        others = [candidate.id for candidate, _ in kept if "ocr" not in candidate.traits]
        rejected |= dict.fromkeys(others, "it describes images, and text is to be read")
        kept = [pair for pair in kept if pair[0].id not in rejected]
    kept.sort(key=lambda pair: _rank(pair[0], pair[1], case))
    return Shortlist([candidate for candidate, _ in kept], rejected)


def refusal(candidate: Candidate, case: Case) -> str | None:
    """Why a model is not to be used for a task, wherever it runs; None if it may be."""
    return next((reason for check in CHECKS if (reason := check(candidate, case))), None)


def _license(candidate: Candidate, case: Case) -> str | None:
    allowed = {name.lower() for name in case.settings.licenses}
    if not allowed or not case.spec.needs_model or (candidate.license or "").lower() in allowed:
        return None
    has = f"its licence is {candidate.license}" if candidate.license else "it names no licence"
    return f"{has}, and only {', '.join(sorted(allowed))} may be used (JARVIS_LICENSES)"


def _gate(candidate: Candidate, case: Case) -> str | None:
    if not candidate.gated or candidate.local or case.settings.token:
        return None
    return f"it is gated: accept its terms at https://huggingface.co/{candidate.id} and set HF_TOKEN"


def _language(candidate: Candidate, case: Case) -> str | None:
    return language_gap(candidate.languages, case.task, case.spec)


def _direction(candidate: Candidate, case: Case) -> str | None:
    """Why a translator of one direction ("from:en", "to:fr") is not the one that is asked for."""
    for prefix, name in (("from:", "src_lang"), ("to:", "tgt_lang")):
        asked = find_language(str(case.task.args.get(name) or ""))
        does = next(
            (trait.removeprefix(prefix) for trait in candidate.traits if trait.startswith(prefix)), None
        )
        if asked and does and asked.code != does:
            return f"it translates {prefix.rstrip(':')} {does}, and not {prefix.rstrip(':')} {asked.code}"
    return None


def _purpose(candidate: Candidate, case: Case) -> str | None:
    if case.wanted.get("ocr") is False and _only_reads(candidate):
        return "it only reads text, and a description is asked for"
    return None


CHECKS: tuple[Callable[[Candidate, Case], str | None], ...] = (
    _license,
    _gate,
    _language,
    _direction,
    _purpose,
)
"""The filters that do not depend on where a model runs."""


def _only_reads(candidate: Candidate) -> bool:
    return "ocr" in candidate.traits and "caption" not in candidate.traits


def backend_for(
    candidate: Candidate, spec: TaskSpec, backends: Sequence[Backend], settings: Settings
) -> tuple[Backend | None, str | None]:
    """The backend that runs a candidate under the policy, or None and the reasons why there is none."""
    asked = [backend for backend in backends if candidate.backend in (None, backend.name)]
    if not asked:
        return None, f"the backend {candidate.backend!r} is not installed"
    local_first = not settings.policy.startswith("hosted")
    reasons: list[str] = []
    for backend in sorted(asked, key=lambda backend: backend.local is not local_first):
        reason = _forbidden(backend, candidate, spec, settings) or backend.why_not(spec, candidate)
        if reason is None:
            return backend, None
        reasons.append(reason if len(asked) == 1 else f"{backend.name}: {reason}")
    return None, "; ".join(reasons)


def _forbidden(backend: Backend, candidate: Candidate, spec: TaskSpec, settings: Settings) -> str | None:
    """What the settings have against running a candidate there."""
    if spec.needs_model and _ONLY.get(settings.policy, backend.local) is not backend.local:
        return f"the policy is {settings.policy}"
    if not backend.local or candidate.local:
        return None
    if settings.offline:
        return "it is not on this machine, and offline mode is on"
    if settings.max_download == 0:
        return "it is not on this machine, and downloads are off (JARVIS_MAX_DOWNLOAD=0)"
    if candidate.size and candidate.size > settings.max_download:
        return f"its {candidate.size:,} bytes are more than may be downloaded (JARVIS_MAX_DOWNLOAD)"
    return None


def _rank(candidate: Candidate, backend: Backend, case: Case) -> tuple[bool, bool, bool, int]:
    """Where a candidate stands; smaller is better."""
    hosted_first = case.settings.policy.startswith("hosted")
    return (
        not case.wanted and _only_reads(candidate),
        _speaks_otherwise(candidate, case),
        backend.local if hosted_first else not candidate.local,
        -candidate.downloads,
    )


def _speaks_otherwise(candidate: Candidate, case: Case) -> bool:
    """Whether a model does not know the request's language, which a recording is likely to be in."""
    if not case.language or case.spec.arg("audio") is None or not candidate.languages:
        return False
    return case.language not in candidate.languages
