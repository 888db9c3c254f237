"""The model selector, the paper's second stage: filters and ranks candidates and lets the LLM choose.

What decides, in this order: a pin; a single candidate; the user's `selector`; for a text, their own language
model; for a plan with a preference, the ranking; the chain. The ranking decides also if there is no LLM, if
it is small, if `settings.selection` is "rank", or if the chain fails. A pin is an id of the Hub with an
optional revision, a local path, or a Gradio Space ("space:org/name", "space:http://127.0.0.1:7860").
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

from langchain_core.decisions import BaseDecisionModel
from langchain_core.exceptions import OutputParserException
from langchain_core.runnables import Runnable

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.hub import model_card
from jarvis_agent.core.concurrency import MAX_PARALLEL, run_with_timeout
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.environment import is_loopback
from jarvis_agent.core.errors import ConfigError, JarvisError, NoCandidateError, describe_error, log_error
from jarvis_agent.core.notes import Note, limit_of
from jarvis_agent.core.plugins import to_runnable
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS, known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, ChosenBy, Selection, Task
from jarvis_agent.llm.chat_model import is_small
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.selection.advice import advice, no_candidate_error, source_key
from jarvis_agent.selection.chain import (
    ModelChoice,
    SelectionChain,
    decision_selector,
    resolve_choice,
    selection_chain,
)
from jarvis_agent.selection.filters import SelectionQuery, Shortlist, make_shortlist, merge_candidates
from jarvis_agent.selection.placement import Placement
from jarvis_agent.selection.ranking import OWN_MODEL, CardVectors, has_general_data, named_languages
from jarvis_agent.selection.sources.base import ModelSource, RemoteSource, ask_source, list_candidates
from jarvis_agent.selection.store import open_store

logger = logging.getLogger(__name__)

_SPACE = "space:"

SHOWN = 8
"""Candidates that the chain chooses from."""

MAX_REMOTE_CANDIDATES, MAX_LOCAL_CANDIDATES = 30, 300
"""Candidates that a source behind a network is asked for, and one of this machine."""


class ModelSelector:
    """Selects the model for each task, from sources of which the most trusted is the first.

    `selector` replaces `selection_chain`: a Runnable or function that takes {"input", "task", "candidates",
    "files", "chat_history"} and returns a ModelChoice, an id, or {"id", "reason"}; or a decision model of
    LangChain. The chain is used unless the `llm` is small, or `settings.selection` is "rank". `pins` are
    models by task that are used without a choice. Raises ConfigError if one of them is invalid.
    """

    def __init__(
        self,
        sources: Sequence[ModelSource],
        backends: Sequence[Backend],
        settings: Settings,
        selector: Any = None,
        *,
        llm: LLMClient | None = None,
        pins: Mapping[str, str] | None = None,
    ) -> None:
        self._sources = sources
        self._backends = backends
        self._settings = settings
        if selector is None and llm is not None and settings.selection != "rank" and not is_small(llm.model):
            selector = selection_chain(llm, settings=settings)
        elif isinstance(selector, BaseDecisionModel):
            selector = decision_selector(selector)
        self._chain: Runnable[Any, Any] | None = to_runnable(selector, "selector")
        self._store = open_store()
        self._vectors = CardVectors(settings, self._store)
        self.pins = read_pins(pins or {})
        self._slots: WeakKeyDictionary[RunContext, asyncio.Semaphore] = WeakKeyDictionary()

    def copy(self, settings: Settings, pins: Mapping[str, str], *, paths: bool = True) -> Self:
        """Return a copy with these settings, and with these pins beside its own; see `read_pins`."""
        twin = copy.copy(self)
        twin._settings = settings
        twin.pins = {**self.pins, **read_pins(pins, paths=paths)}
        if settings.selection == "rank" and isinstance(self._chain, SelectionChain):
            twin._chain = None
        return twin

    async def select(self, task: Task, spec: TaskSpec, context: RunContext) -> Selection:
        """Return the candidates for a task, the chosen one first.

        Asks every source, applies the hard filters, ranks, and lets the chain choose one of the first SHOWN.
        A source has half of `settings.llm_timeout`, and its errors are recorded in `Selection.rejected`; the
        chain has what is left, else the ranking decides. Of a run, the chain makes at most MAX_PARALLEL
        choices at one time.

        Raises:
            NoCandidateError: no model passes the filters; the message has the reasons and what would help.
        """
        preference, settings = context.preference, self._settings
        if preference == "local" and settings.policy != "hosted-only":
            settings = settings.model_copy(update={"policy": "local-only"})
        query = SelectionQuery(task, spec, settings, context.hosted_price, preference=preference)
        if pin := self.pins.get(spec.name):
            return await self._select_pinned(pin, query)
        ends = asyncio.get_running_loop().time() + self._settings.llm_timeout
        candidates, failed = await self._ask_sources(spec, task)

        def rank() -> Shortlist:
            experience = self._store.experience(spec.name)
            return make_shortlist(candidates, query, self._backends, self._vectors, experience)

        shortlist = await asyncio.to_thread(rank)  # cards are embedded, and the store is read
        shortlist = replace(shortlist, rejected={**failed, **shortlist.rejected})
        if own := self._own_model(candidates, shortlist, query):
            others = [placement for placement in shortlist.placements if placement is not own]
            shortlist = replace(shortlist, placements=[own, *others])
        shortlist = replace(shortlist, placements=shortlist.placements[:SHOWN])
        if own:
            return _selection(own.primary, shortlist, Note("it is your language model"), "own", query)
        if shortlist.candidates:
            selection = await self._choose(shortlist, query, context, ends)
            if query.reads and "ocr" not in selection.candidates[0].traits:
                note = Note("no model here is made for reading text, so one that describes images is used")
                selection = selection.model_copy(update={"note": note})
            return selection
        if query.describes and (other := await self._classify_instead(task, context, shortlist.rejected)):
            return other
        wanted = task.model_copy(update={"args": {**task.args, "src_lang": None}})
        raise no_candidate_error(spec, self._settings, shortlist.rejected, named_languages(wanted))

    async def _ask_sources(
        self, spec: TaskSpec, task: Task | None = None
    ) -> tuple[list[Candidate], dict[str, str]]:
        """Return the candidates of the sources that answered, and the errors of the others."""

        def ask(source: ModelSource) -> Coroutine[Any, Any, list[Candidate]]:
            limit = MAX_REMOTE_CANDIDATES if isinstance(source, RemoteSource) else MAX_LOCAL_CANDIDATES
            return list_candidates(source, spec, limit, self._settings, task)

        answers = await asyncio.gather(*map(ask, self._sources), return_exceptions=True)
        failed: dict[str, str] = {
            source_key(source.name): describe_error(answer)
            for source, answer in zip(self._sources, answers, strict=True)
            if isinstance(answer, BaseException)
        }
        lists = [answer for answer in answers if not isinstance(answer, BaseException)]
        return merge_candidates(lists, self._settings), failed

    def _own_model(
        self, candidates: Sequence[Candidate], shortlist: Shortlist, query: SelectionQuery
    ) -> Placement | None:
        """The user's language model for a text, which needs no choice; None if there is one to make.

        There is if the user passed a selector, or if another model was made for what the planner named.
        """
        if not (self._chain is None or isinstance(self._chain, SelectionChain)):
            return None
        if query.preference in ("cheapest", "fastest", "local"):
            return None
        names = [candidate.id for candidate in candidates if OWN_MODEL in candidate.traits]
        allowed = {placement.primary.id: placement for placement in shortlist.placements}
        own = next((allowed[name] for name in names if name in allowed), None)
        if own is None or not query.task.purpose:
            return own
        others = (each for each in shortlist.placements if not has_general_data(each.primary))
        is_better = any(each.factors["purpose"] > own.factors["purpose"] for each in others)
        return None if is_better else own

    async def _choose(
        self, shortlist: Shortlist, query: SelectionQuery, context: RunContext, ends: float
    ) -> Selection:
        """Select one: the only one, the chain's choice until `ends`, or the first by rank."""
        top = shortlist.candidates
        if len(top) == 1:
            return _selection(top[0], shortlist, Note("it is the only model that can do this"), "only", query)
        by_rank = _reason_of_rank(shortlist)
        if self._chain is None or (query.preference and isinstance(self._chain, SelectionChain)):
            return _selection(top[0], shortlist, by_rank, "rank", query)
        choosing = self._ask_chain(self._chain, query, shortlist, context)
        left = ends - asyncio.get_running_loop().time()
        try:
            limit = limit_of("JARVIS_LLM_TIMEOUT")
            choice = await run_with_timeout(left, choosing, "the choice of a model", limit)
        except Exception as error:
            why: str = Note("the selector could not choose: {reason}", reason=describe_error(error))
            if isinstance(error, OutputParserException):
                why = str(error)
            elif not isinstance(error, JarvisError):
                log_error(logger, "the choice of a model failed", error)
            reason = Note("{choice}; {failure}", choice=by_rank, failure=why)
            selection = _selection(top[0], shortlist, reason, "rank", query)
            if isinstance(self._chain, SelectionChain):
                return selection
            note = Note("{reason}; the ranking chose", reason=why)
            return selection.model_copy(update={"note": note})
        chosen = next(candidate for candidate in top if candidate.id == choice.id)
        by: ChosenBy = "llm" if isinstance(self._chain, SelectionChain) else "selector"
        return _selection(chosen, shortlist, choice.reason or f"the {by} chose it", by, query)

    async def _ask_chain(
        self, chain: Runnable[Any, Any], query: SelectionQuery, shortlist: Shortlist, context: RunContext
    ) -> ModelChoice:
        remote = {source.name: source for source in self._sources if isinstance(source, RemoteSource)}

        async def described(placement: Placement) -> Candidate:
            candidate = placement.primary
            source = remote.get(candidate.source)
            about = (await source.describe(candidate) if source else "") or candidate.description
            known = {**candidate.metadata, **placement.facts}
            return candidate.model_copy(update={"metadata": known, "description": about})

        async with self._slots.setdefault(context, asyncio.Semaphore(MAX_PARALLEL)):
            inputs = {
                "input": context.request,
                "task": query.task,
                "candidates": await asyncio.gather(*map(described, shortlist.placements)),
                "files": context.files,
                "chat_history": context.turns,
            }
            return resolve_choice(await chain.ainvoke(inputs, context.config), shortlist.candidates)

    async def _classify_instead(
        self, task: Task, context: RunContext, rejected: Mapping[str, str]
    ) -> Selection | None:
        """Select a classifier where nothing describes images; None if there is none either."""
        spec = TASKS["image-classification"]
        try:
            selection = await self.select(task.model_copy(update={"task": spec.name}), spec, context)
        except NoCandidateError:
            return None
        note = Note(
            "no model here describes images in words, so the image is classified instead",
            advice=advice(self._settings, rejected),
        )
        return selection.model_copy(update={"note": note, "rejected": {**rejected, **selection.rejected}})

    async def _select_pinned(self, pin: Candidate, query: SelectionQuery) -> Selection:
        candidate, failed = await self._look_up(pin, query.spec)
        # The user chose the model, so only the settings are checked, not the request.
        bare = replace(query, task=query.task.model_copy(update={"args": {}}), pinned=True)
        shortlist = make_shortlist([candidate], bare, self._backends)
        if not shortlist.candidates:
            raise NoCandidateError(
                "the model {model}, which is pinned for {task}, cannot be used: {reason}",
                {**shortlist.rejected, **failed},
                model=candidate.id,
                task=query.spec.name,
                reason=shortlist.rejected[candidate.id],
            )
        shortlist, why = replace(shortlist, rejected=failed), Note("it was pinned by the user")
        return _selection(shortlist.candidates[0], shortlist, why, "pinned", query)

    async def _look_up(self, pin: Candidate, spec: TaskSpec) -> tuple[Candidate, dict[str, str]]:
        """Return a pinned model with what the sources know about it, and the errors of sources."""
        if pin.path or pin.backend:
            return pin, {}
        candidates, failed = await self._ask_sources(spec)
        if listed := next((each for each in candidates if each.id.lower() == pin.id.lower()), None):
            return at_revision(listed, pin.revision), failed
        remote = [source for source in self._sources if isinstance(source, RemoteSource)]
        remote = [source for source in remote if source_key(source.name) not in failed]
        for source in remote:
            lookup = source.find(spec, pin.id, pin.revision)
            try:
                if (candidate := await ask_source(source, lookup, self._settings)) is not None:
                    return at_revision(candidate, pin.revision), failed
            except Exception as error:
                failed[source_key(source.name)] = describe_error(error)
        if remote and not failed and not self._settings.offline:
            raise NoCandidateError(
                f"no source knows the model {pin.id}, which is pinned for {spec.name}; check its spelling"
            )
        return pin, failed


def _selection(
    chosen: Candidate, shortlist: Shortlist, reason: str, chosen_by: ChosenBy, query: SelectionQuery
) -> Selection:
    """The selection: the chosen model, the rest of the list, then these on their other sides.

    The other sides come last, because the policy names the preferred one: another model there is tried before
    the same model where it may cost a download or money.
    """
    placed = sorted(shortlist.placements, key=lambda placement: placement.primary.id != chosen.id)
    return Selection(
        model=chosen.id,
        reason=reason,
        chosen_by=chosen_by,
        placement=placed[0].reason,
        candidates=[
            *(placement.primary for placement in placed),
            *(placement.alternate for placement in placed if placement.alternate),
        ],
        factors={placement.primary.id: dict(placement.factors) for placement in placed},
        rejected=shortlist.rejected,
        task=query.spec.name,
    )


def _reason_of_rank(shortlist: Shortlist) -> Note:
    first, second = (placement.factors for placement in shortlist.placements[:2])
    leads = {name: points - second[name] for name, points in first.items()}
    factor, count = max(leads, key=leads.__getitem__), len(shortlist.placements)
    if leads[factor] <= 0:
        return Note("it is the first of {number} candidates", number=count)
    lead = Note(f"largest lead: {factor}")
    return Note("it is the first of {number} candidates ({lead})", number=count, lead=lead)


def at_revision(candidate: Candidate, revision: str | None) -> Candidate:
    """Return a candidate at a revision; it is local only if that revision is downloaded."""
    if revision in (None, candidate.revision):
        return candidate
    path = candidate.metadata.get("revisions", {}).get(revision)
    location = {"local": path is not None, "path": Path(path) if path else None}
    return candidate.model_copy(update={"revision": revision, **location})


def read_pins(pins: Mapping[str, str], *, paths: bool = True) -> dict[str, Candidate]:
    """Return the pinned models by task name, with what their ids or files tell.

    Without `paths`, all are ids of the Hub. Raises ConfigError.
    """
    models = {known_task(name).name: _read_pin(text, paths) for name, text in pins.items()}
    return {name: Candidate(task=name, source="pinned", **fields) for name, fields in models.items()}


def _read_pin(text: str, paths: bool) -> dict[str, Any]:
    name, _, revision = text.partition("@")
    if not paths:  # of a client, who would learn which paths exist
        from huggingface_hub.errors import HFValidationError
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

        try:
            validate_repo_id(name)
        except HFValidationError as error:
            raise ConfigError(f"{text!r} is no id of a model on the Hub, such as 'org/name'") from error
    elif text.startswith(_SPACE) and text != _SPACE:
        space = text.removeprefix(_SPACE)
        return {"id": space, "backend": "spaces", "local": is_loopback(space), "metadata": {"space": space}}
    elif text.strip() and (path := Path(text).expanduser()).exists():
        return {"id": text, **model_card.model_at(path), "path": path.absolute()}
    elif not text.strip() or text.startswith(("/", ".", "~")):
        raise ConfigError(f"the pinned model {text!r} is neither an id of the Hub nor an existing path")
    return {"id": name, "revision": revision or None}
