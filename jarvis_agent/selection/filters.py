"""Hard filters and ranking: which candidates are allowed for a task, and in which order.

CHECKS and the placement exclude a candidate; the rest are ordered by their factors (see `ranking`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from jarvis_agent.backends.base import Backend, reads_text
from jarvis_agent.backends.languages import find_language
from jarvis_agent.core.notes import Note, limit_of
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import detect_script
from jarvis_agent.core.types import Candidate, Preference, Task
from jarvis_agent.selection.placement import Placement, place
from jarvis_agent.selection.ranking import (
    BY_SIMILARITY,
    GENERALIST,
    CardVectors,
    named_languages,
    score_candidates,
)
from jarvis_agent.selection.sources.language_model import LanguageModelSource
from jarvis_agent.selection.sources.registered import RegisteredSource
from jarvis_agent.selection.store import Experience

_OWN_SCRIPTS = {"zh", "ja", "ko"}
_LOCATION_FIELDS = ("local", "path", "revision", "size", "backend", "library", "source")


@dataclass(frozen=True, slots=True)
class SelectionQuery:
    """A task for which a model is selected, or for which the user has `pinned` one."""

    task: Task
    spec: TaskSpec
    settings: Settings
    price: Callable[[str, str], float] = lambda task, model: 0.0
    """What a hosted call costs by task and model; 0: unknown."""
    pinned: bool = False
    preference: Preference | None = None

    @property
    def reads(self) -> bool:
        """Whether the text in an image is asked for."""
        return self.spec.name == "image-to-text" and reads_text(self.task.args)

    @property
    def describes(self) -> bool:
        """Whether a description of an image is asked for."""
        return self.spec.name == "image-to-text" and not self.pinned and not self.reads


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The allowed candidates as placed, the best first, and why the others are rejected, by id."""

    placements: list[Placement]
    rejected: dict[str, str]

    @property
    def candidates(self) -> list[Candidate]:
        """The allowed candidates, each with the backend that runs it."""
        return [placement.primary for placement in self.placements]


def merge_candidates(lists: Iterable[Sequence[Candidate]], settings: Settings) -> list[Candidate]:
    """Return the candidates of all sources, each model once, in the order of the sources.

    The earlier source's description has precedence, the policy decides whose location is used, and the
    highest download and like counts are kept.
    """
    merged: dict[str, Candidate] = {}
    hosted = settings.policy.startswith("hosted")
    for candidate in chain.from_iterable(lists):
        earlier = merged.get(candidate.id)
        merged[candidate.id] = _merge(earlier, candidate, hosted) if earlier else candidate
    return list(merged.values())


def _merge(first: Candidate, other: Candidate, hosted: bool) -> Candidate:
    own = [each for each in (first, other) if each.source == LanguageModelSource.name]
    if own:
        return own[0]  # the agent's own model is at one place alone
    located = min((first, other), key=lambda each: (hosted and not each.providers, not each.local))
    own_backend = first.backend if first.source == RegisteredSource.name else None
    fields = [{name: value for name, value in candidate if value} for candidate in (other, first)]
    return Candidate(
        **{
            **fields[0],
            **fields[1],
            **{name: getattr(located, name) for name in _LOCATION_FIELDS},
            "backend": own_backend or located.backend,
            "downloads": max(first.downloads, other.downloads),
            "likes": max(first.likes, other.likes),
            "metadata": {**other.metadata, **first.metadata},
        }
    )


def make_shortlist(
    candidates: Iterable[Candidate],
    query: SelectionQuery,
    backends: Sequence[Backend],
    vectors: CardVectors | None = None,
    experience: Mapping[str, Experience] | None = None,
) -> Shortlist:
    """Filter, place and rank the candidates; see `ranking.score_candidates`."""
    placements: list[Placement] = []
    rejected: dict[str, str] = {}
    for candidate in candidates:
        reason = next((reason for check in CHECKS if (reason := check(candidate, query))), None)
        placed = reason or place(candidate, query.spec, backends, query.settings)
        if isinstance(placed, str):
            rejected[candidate.id] = placed
        else:
            placements.append(placed)
    readers = [each for each in placements if "ocr" in each.primary.traits]
    if query.reads and readers:
        reason = Note("it describes images, and their text is asked for")
        rejected |= {each.primary.id: reason for each in placements if each not in readers}
        placements = readers
    primaries, here = [each.primary for each in placements], [each.here for each in placements]
    prices = [0.0 if each.here else query.price(query.spec.name, each.primary.id) for each in placements]
    points = score_candidates(primaries, here, query.task, vectors, experience, prices, query.preference)
    ranked = list[Placement]()
    for placement, factors, price in zip(placements, points, prices, strict=True):
        past = str((experience or {}).get(placement.primary.id, ""))
        facts = {"experience": past, "price_per_call": price}
        ranked.append(replace(placement, factors=factors, facts=facts))
    ranked.sort(key=lambda placement: _rank(placement, query))
    # To sort a text by similarity is worth no download; an answer is.
    is_read = any(primary.source == LanguageModelSource.name for primary in primaries)
    if is_read or query.spec.name != "zero-shot-classification":
        ranked.sort(key=lambda placement: BY_SIMILARITY in placement.primary.traits)
    return Shortlist(ranked, rejected)


def _check_license(candidate: Candidate, query: SelectionQuery) -> str | None:
    allowed = {name.lower() for name in query.settings.licenses}
    is_free = not query.spec.needs_model or candidate.source == LanguageModelSource.name
    if not allowed or is_free or (candidate.license or "").lower() in allowed:
        return None
    named = f"its licence is {candidate.license}" if candidate.license else "it names no licence"
    only = f"{named}, and only {', '.join(sorted(allowed))} may be used"
    return Note(only, advice=limit_of("JARVIS_LICENSES"))


def _check_gate(candidate: Candidate, query: SelectionQuery) -> str | None:
    if not candidate.gated or candidate.local or query.settings.token:
        return None
    page = f"https://huggingface.co/{candidate.id}"
    return Note("it is gated", advice=Note("accept its terms at {page} and set HF_TOKEN", page=page))


def _check_languages(candidate: Candidate, query: SelectionQuery) -> str | None:
    languages, spec = frozenset(candidate.languages), query.spec
    wanted = named_languages(query.task)
    # A recording may be in another language than its planner thinks, so that this only ranks.
    if languages and wanted - languages and not spec.arg("audio"):
        only, missing = ", ".join(candidate.languages), ", ".join(sorted(wanted - languages))
        return Note("its card names the languages {known}, and not {missing}", known=only, missing=missing)
    texts = [str(query.task.args.get(arg.name) or "") for arg in spec.inputs if arg.kind == "text"]
    is_latin = any(detect_script(text) == "" for text in texts if not refs_in(text))
    if is_latin and not wanted and languages and languages <= _OWN_SCRIPTS:
        return Note("it knows only {languages}", languages=", ".join(candidate.languages))
    return None


def _check_direction(candidate: Candidate, query: SelectionQuery) -> str | None:
    """Check the traits of a translator with one direction ("from:en", "to:fr")."""
    for side, argument, why in (
        ("from", "src_lang", "it translates from {one}, and not from {other}"),
        ("to", "tgt_lang", "it translates to {one}, and not to {other}"),
    ):
        language = find_language(str(query.task.args.get(argument) or ""))
        does = next((t.partition(":")[2] for t in candidate.traits if t.startswith(f"{side}:")), None)
        if language and does and language.code != does:
            return Note(why, one=does, other=language.code)
    return None


def _check_purpose(candidate: Candidate, query: SelectionQuery) -> str | None:
    if query.describes and "ocr" in candidate.traits and "caption" not in candidate.traits:
        return Note("it only reads text, and a description is asked for")
    if query.task.purpose and query.spec.name == "text-classification" and GENERALIST in candidate.traits:
        return Note("it tells the sentiment alone, and something else is asked for")
    return None


def _check_for_tests(candidate: Candidate, query: SelectionQuery) -> str | None:
    """Check for models with random weights, which the tests of libraries need."""
    is_asked_for = query.pinned or candidate.source == RegisteredSource.name
    owner, _, name = candidate.id.lower().rpartition("/")
    if is_asked_for or not ("tiny-random" in name or owner.endswith("internal-testing")):
        return None
    return Note("it is for tests of libraries, and has learned nothing")


CHECKS: tuple[Callable[[Candidate, SelectionQuery], str | None], ...] = (
    _check_license,
    _check_gate,
    _check_languages,
    _check_direction,
    _check_purpose,
    _check_for_tests,
)
"""The filters that do not depend on where a model runs."""


def _rank(placement: Placement, query: SelectionQuery) -> tuple[bool, bool, float]:
    """Return the sort key of a candidate; smaller is better."""
    languages = frozenset(placement.primary.languages)
    wanted = named_languages(query.task) if query.spec.arg("audio") else frozenset()
    lacks_language = bool(languages and wanted and not languages & wanted)
    return (
        lacks_language,
        placement.here and query.settings.policy.startswith("hosted"),
        -sum(placement.factors.values()),
    )
