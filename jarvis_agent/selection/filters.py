"""Which candidates stay for a task, why the others go, and in which order the rest is tried.

    listed = shortlist(merged(lists, settings), SelectionQuery(task, spec, settings, wanted={"ocr": True}), backends)
    listed.kept         # the best first, each with the backend that runs it
    listed.rejected     # {"org/model": "it is gated: …"}
    listed.ladder(listed.kept[0], 5)      # what is tried: that one, then four others, then both elsewhere

Filters come first (CHECKS, then where a model may run), matters of degree last (the rank).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jarvis_agent.backends.base import Backend
from jarvis_agent.selection.sources.base import RegisteredSource
from jarvis_agent.selection.hints import language_gap
from jarvis_agent.core.languages import find_language
from jarvis_agent.selection.placement import Placement, hosted_first, places_of, runs_here
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Task

_PLACE = ("local", "path", "revision", "size", "backend", "library", "source")


@dataclass(frozen=True, slots=True)
class SelectionQuery:
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
    """The candidates that stay, the best first, and why others do not, by id.

    `places` says why each runs where it does, and `elsewhere` is what can run on the other side too, by id.
    """

    kept: list[Candidate]
    rejected: dict[str, str]
    places: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, Candidate] = field(default_factory=dict)

    def ladder(self, chosen: Candidate, longest: int) -> list[Candidate]:
        """The chosen one, the others of the best `longest`, and last the same models on the other side.

        Last, since the policy names the side that the user prefers: another model there comes before the
        same model where it may cost a download, or money.
        """
        top = [chosen, *(one for one in self.kept[:longest] if one is not chosen)]
        return [*top, *(self.elsewhere[one.id] for one in top if one.id in self.elsewhere)]


def merged(lists: Iterable[Sequence[Candidate]], settings: Settings) -> list[Candidate]:
    """The candidates of all sources, each model once, in the order of the sources.

    What several sources say of a model is put together: the earlier source's words come first, the place is
    the one where the policy has it run, and the counts are the Hub's.
    """
    found: dict[str, Candidate] = {}
    for candidate in (one for listed in lists for one in listed):
        hosted = settings.policy_for(candidate.task).startswith("hosted")
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


def shortlist(candidates: Iterable[Candidate], case: SelectionQuery, backends: Sequence[Backend]) -> Shortlist:
    """Filter and rank the candidates. Those that stay have their `backend` filled in."""
    found: list[Placement] = []
    rejected: dict[str, str] = {}
    for candidate in candidates:
        reason = refusal(candidate, case)
        if reason is not None:
            rejected[candidate.id] = reason
            continue
        places = places_of(candidate, case.spec, backends, case.settings)
        if places.backends:
            found.append(places)
        else:
            rejected[candidate.id] = places.refusal
    if case.wanted.get("ocr") and any("ocr" in one.candidate.traits for one in found):
        others = [one.candidate.id for one in found if "ocr" not in one.candidate.traits]
        rejected |= dict.fromkeys(others, "it describes images, and text is to be read")
        found = [one for one in found if one.candidate.id not in rejected]
    found.sort(key=lambda places: _rank(places, case))
    return Shortlist(
        [places.first for places in found if places.first is not None],
        rejected,
        {places.candidate.id: places.reason for places in found},
        {places.candidate.id: places.second for places in found if places.second is not None},
    )


def refusal(candidate: Candidate, case: SelectionQuery) -> str | None:
    """Why a model is not to be used for a task, wherever it runs; None if it may be."""
    return next((reason for check in CHECKS if (reason := check(candidate, case))), None)


def _license(candidate: Candidate, case: SelectionQuery) -> str | None:
    allowed = {name.lower() for name in case.settings.licenses}
    if not allowed or not case.spec.needs_model or (candidate.license or "").lower() in allowed:
        return None
    has = f"its licence is {candidate.license}" if candidate.license else "it names no licence"
    return f"{has}, and only {', '.join(sorted(allowed))} may be used (JARVIS_LICENSES)"


def _gate(candidate: Candidate, case: SelectionQuery) -> str | None:
    if not candidate.gated or candidate.local or case.settings.token:
        return None
    return f"it is gated: accept its terms at https://huggingface.co/{candidate.id} and set HF_TOKEN"


def _language(candidate: Candidate, case: SelectionQuery) -> str | None:
    return language_gap(candidate.languages, case.task, case.spec)


def _direction(candidate: Candidate, case: SelectionQuery) -> str | None:
    """Why a translator of one direction ("from:en", "to:fr") is not the one that is asked for."""
    for prefix, name in (("from:", "src_lang"), ("to:", "tgt_lang")):
        asked = find_language(str(case.task.args.get(name) or ""))
        does = next(
            (trait.removeprefix(prefix) for trait in candidate.traits if trait.startswith(prefix)), None
        )
        if asked and does and asked.code != does:
            return f"it translates {prefix.rstrip(':')} {does}, and not {prefix.rstrip(':')} {asked.code}"
    return None


def _purpose(candidate: Candidate, case: SelectionQuery) -> str | None:
    if case.wanted.get("ocr") is False and _only_reads(candidate):
        return "it only reads text, and a description is asked for"
    return None


CHECKS: tuple[Callable[[Candidate, SelectionQuery], str | None], ...] = (
    _license,
    _gate,
    _language,
    _direction,
    _purpose,
)
"""The filters that do not depend on where a model runs."""


def _only_reads(candidate: Candidate) -> bool:
    return "ocr" in candidate.traits and "caption" not in candidate.traits


def _rank(places: Placement, case: SelectionQuery) -> tuple[bool, bool, bool, int]:
    """Where a candidate stands; smaller is better."""
    candidate, here = places.candidate, runs_here(places.backends[0], places.candidate)
    return (
        not case.wanted and _only_reads(candidate),
        _speaks_otherwise(candidate, case),
        here if hosted_first(case.settings, case.spec) else not (here and candidate.local),
        -candidate.downloads,
    )


def _speaks_otherwise(candidate: Candidate, case: SelectionQuery) -> bool:
    """Whether a model does not know the request's language, which a recording is likely to be in."""
    if not case.language or case.spec.arg("audio") is None or not candidate.languages:
        return False
    return case.language not in candidate.languages
