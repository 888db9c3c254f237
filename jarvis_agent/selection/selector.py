"""Model selection, the paper's second stage: filter and rank the candidates, and let the LLM choose one.

    selector = Selector(sources, backends, settings, controller)
    selection = await selector.select(task, spec, brief)
    selection.model, selection.reason      # "facebook/detr-resnet-50", "it knows zebras"
    selection.candidates                       # that one, then those that are tried if it fails

Without an LLM, or if it fails or names a model that is not in the list, the rank decides: what is on this
machine first (or what is hosted, by policy), then by downloads. `Settings.selection` says whether the LLM is
asked for each task or not at all.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from jarvis_agent.backends.base import Backend
from jarvis_agent.core.concurrency import StageTimeoutError, run_with_timeout
from jarvis_agent.core.errors import JarvisError, NoCandidateError, describe_error, format_traceback
from jarvis_agent.core.request import RunContext, UsageMeter
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS, known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Selection, Task
from jarvis_agent.llm.prompt_set import PromptSet, load_prompt_set
from jarvis_agent.selection.chain import Choice, choice_schema, read_choice
from jarvis_agent.selection.filters import SelectionQuery, Shortlist, merged, shortlist
from jarvis_agent.selection.hints import hints, script
from jarvis_agent.selection.pins import Pin, read_pins
from jarvis_agent.selection.sources.base import CardProvider, ModelLookup, ModelSource, candidates_of
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.selection.sources.recommended import recommended

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from jarvis_agent.llm.client import LLMClient

logger = logging.getLogger(__name__)

_POOL = 6
"""How many times `top_k` candidates a source is asked for: the filters leave few of them."""

_SHOWN = 4
_INSTALL = re.compile(r"pip install [^;()\n]+")
_LOCAL = 'pip install "jarvis-agent[local]"'


class Selector:
    """Chooses the expert for each task.

    Args:
        sources: where candidates come from, the most trusted first.
        backends: what can run them.
        settings: policy, limits, `top_k`.
        controller: the LLM that chooses; None: the rank does.
        prompts: the prompts; None: those that the settings name.
        pins: by task, models that are not chosen but given: "org/model", "org/model@revision", a path,
            or a Space ("space:org/name").

    Raises:
        ConfigError: a pin names an unknown task or a path that does not exist, or a policy an unknown task.
    """

    def __init__(
        self,
        sources: Sequence[ModelSource],
        backends: Sequence[Backend],
        settings: Settings,
        controller: LLMClient | None = None,
        prompts: PromptSet | None = None,
        pins: Mapping[str, str] | None = None,
    ) -> None:
        self._sources = sources
        self._backends = backends
        self._settings = _with_proper_names(settings)
        self._controller = controller if settings.selection != "rank" else None
        self._prompts = prompts or load_prompt_set(settings.prompts)
        self._pins = read_pins(pins or {})
        self._calls: WeakKeyDictionary[UsageMeter, asyncio.Semaphore] = WeakKeyDictionary()

    async def select(self, task: Task, spec: TaskSpec, brief: RunContext) -> Selection:
        """The ladder of candidates for a task, the chosen one first.

        It takes `Settings.select_timeout` at most: what is not known then of the models is left out, and the
        rank decides. `Settings.max_parallel` calls of the LLM of one run are made at once.

        Raises:
            NoCandidateError: nothing can do the task; the message says why, and what would help.
        """
        return await self._select(task, spec, brief, _clock() + self._settings.select_timeout)

    async def _select(self, task: Task, spec: TaskSpec, brief: RunContext, until: float) -> Selection:
        """As `select`, until a time of the event loop's clock."""
        case = SelectionQuery(task, spec, self._settings, hints(task, brief), script(brief.request))
        if pin := self._pins.get(spec.name):
            return await self._pinned(pin, case, until)
        listed = await self.shortlist(case)
        if listed.kept:
            selection = await self._choose(listed, case, brief, until)
            return selection.model_copy(update={"note": _note_on(selection.candidates[0], case)})
        if case.wanted.get("ocr") is False:
            other = await self._classify_instead(task, brief, listed.rejected, until)
            if other is not None:
                return other.model_copy(update={"rejected": {**listed.rejected, **other.rejected}})
        raise _nothing_left(case, listed.rejected)

    async def shortlist(self, case: SelectionQuery) -> Shortlist:
        """What the sources offer, filtered and ranked. Sources that failed are in `rejected` too."""
        lists, failed = await self._ask_sources(case.spec)
        listed = shortlist(merged(lists, self._settings), case, self._backends)
        return replace(listed, rejected={**failed, **listed.rejected})

    async def _ask_sources(self, spec: TaskSpec) -> tuple[list[list[Candidate]], dict[str, str]]:
        count = self._settings.top_k * _POOL
        answers = await asyncio.gather(
            *(candidates_of(source, spec, count, self._settings) for source in self._sources),
            return_exceptions=True,
        )
        lists: list[list[Candidate]] = []
        failed: dict[str, str] = {}
        for source, answer in zip(self._sources, answers, strict=True):
            if isinstance(answer, BaseException):
                failed[_label(source)] = str(answer) or type(answer).__name__
            else:
                lists.append(answer)
        return lists, failed

    async def _choose(
        self, listed: Shortlist, case: SelectionQuery, brief: RunContext, until: float
    ) -> Selection:
        """One of the top K: the only one, the LLM's choice, or the first by rank."""
        top = listed.kept[: self._settings.top_k]
        ranked = _selection(top[0], listed, _reason_of_rank(top), "rank", case)
        if len(top) == 1:
            return ranked.model_copy(
                update={"chosen_by": "only", "reason": "it is the only model that can do this"}
            )
        if self._controller is None:
            return ranked
        try:
            asked = self._asked(case, top, brief)
            chosen, reason = await run_with_timeout(until - _clock(), asked, "the language model's choice")
        except TimeoutError:
            late = "the LLM did not choose in time (JARVIS_SELECT_TIMEOUT)"
            return ranked.model_copy(update={"reason": f"{ranked.reason}; {late}"})
        except Exception as error:
            if not isinstance(error, JarvisError):
                logger.error("the choice of a model failed: %s", format_traceback(error))
            failed = f"the LLM could not choose: {describe_error(error)}"
            return ranked.model_copy(update={"reason": f"{ranked.reason}; {failed}"})
        if chosen is None:
            return ranked.model_copy(update={"reason": f"{ranked.reason}; {reason}"})
        chosen = next(candidate for candidate in top if candidate.id == chosen.id)
        return _selection(chosen, listed, reason, "llm", case)

    async def _described(self, top: Sequence[Candidate]) -> list[Candidate]:
        """The candidates that the LLM chooses from, with what their cards say where a source can tell."""
        tellers = {source.name: source for source in self._sources if isinstance(source, CardProvider)}

        async def described(candidate: Candidate) -> Candidate:
            teller = tellers.get(candidate.source)
            told = await teller.describe(candidate) if teller else ""
            return candidate.model_copy(update={"description": told}) if told else candidate

        return await asyncio.gather(*map(described, top))

    async def _asked(self, case: SelectionQuery, listed: Sequence[Candidate], brief: RunContext) -> Choice:
        """The LLM's choice."""
        top = await self._described(listed)
        messages = self._prompts.select_messages(brief, case.task, top, case.spec)
        return read_choice(await self._complete(messages, brief, choice_schema(top)), top)

    async def _complete(
        self, messages: Sequence[BaseMessage], brief: RunContext, schema: dict[str, Any]
    ) -> str:
        assert self._controller is not None
        async with self._turn(brief):
            reply = self._controller.complete("select", messages, brief, schema=schema)
            return await run_with_timeout(self._settings.select_timeout / 2, reply, "the language model")

    @asynccontextmanager
    async def _turn(self, brief: RunContext) -> AsyncIterator[None]:
        """A place among the calls of a run, which has one meter."""
        slots = self._calls.setdefault(brief.meter, asyncio.Semaphore(self._settings.max_parallel))
        await slots.acquire()
        try:
            yield
        finally:
            slots.release()

    async def _classify_instead(
        self, task: Task, brief: RunContext, rejected: Mapping[str, str], until: float
    ) -> Selection | None:
        """Where nothing describes images, say at least what is in one; None if nothing does that either."""
        spec = TASKS["image-classification"]
        try:
            selection = await self._select(task.model_copy(update={"task": spec.name}), spec, brief, until)
        except NoCandidateError:
            return None
        note = (
            "no model here describes images in words, so the image is classified instead; "
            f"{_advice(self._settings, rejected)}"
        )
        return selection.model_copy(update={"note": note})

    async def _pinned(self, pin: Pin, case: SelectionQuery, until: float) -> Selection:
        candidate, failed = await self._look_up(pin, case.spec, until)
        bare = SelectionQuery(case.task.model_copy(update={"args": {}}), case.spec, case.settings)
        listed = shortlist([candidate], bare, self._backends)
        if not listed.kept:
            reason = listed.rejected[candidate.id]
            raise NoCandidateError(
                f"the model {candidate.id}, which is pinned for {case.spec.name}, can not be used: {reason}",
                {**listed.rejected, **failed},
            )
        listed = replace(listed, rejected=failed)
        return _selection(listed.kept[0], listed, "it was pinned by the user", "pinned", case)

    async def _look_up(self, pin: Pin, spec: TaskSpec, until: float) -> tuple[Candidate, dict[str, str]]:
        """What the sources know of a pinned model; for one that they do not know, just its id."""
        if pin.path is not None or pin.space:
            return pin.candidate(spec), {}
        lists, failed = await self._ask_sources(spec)
        known = next((one for one in merged(lists, self._settings) if one.id.lower() == pin.id.lower()), None)
        if known is not None:
            return pin.at_revision(known), failed
        finders = [one for one in self._sources if isinstance(one, ModelLookup) and _label(one) not in failed]
        for source in finders:
            try:
                asked = source.find(spec, pin.id, pin.revision)
                found = await run_with_timeout(until - _clock(), asked, _label(source))
            except StageTimeoutError:
                failed[_label(source)] = f"it did not find {pin.id} in time (JARVIS_SELECT_TIMEOUT)"
                continue
            except Exception as error:
                failed[_label(source)] = describe_error(error)
                continue
            if found is not None:
                return pin.at_revision(found), failed
        if finders and not failed and not self._settings.offline:
            raise NoCandidateError(
                f"no source knows the model {pin.id}, which is pinned for {spec.name}; check its spelling"
            )
        return pin.candidate(spec), failed


def _clock() -> float:
    """Seconds by the event loop."""
    return asyncio.get_running_loop().time()


def _label(source: ModelSource) -> str:
    """The name under which the failure of a source is recorded."""
    return f"source {source.name}"


def _with_proper_names(settings: Settings) -> Settings:
    """The settings with their policies by the proper names of the tasks, as pins are."""
    named = {known_task(name).name: policy for name, policy in settings.policies.items()}
    return settings.model_copy(update={"policies": named})


def _selection(chosen: Candidate, listed: Shortlist, reason: str, by: Any, case: SelectionQuery) -> Selection:
    return Selection(
        model=chosen.id,
        reason=reason,
        chosen_by=by,
        placement=listed.places.get(chosen.id, ""),
        candidates=listed.ladder(chosen, case.settings.top_k),
        rejected=listed.rejected,
        task=case.spec.name,
    )


def _reason_of_rank(top: Sequence[Candidate]) -> str:
    first, others = top[0], f"{len(top)} candidates"
    if first.local and not all(candidate.local for candidate in top):
        return f"of {others} it is on this machine already"
    if first.downloads > 0:
        return f"of {others} it has the most downloads ({first.downloads:,})"
    return f"it is the first of {others}"


def _note_on(chosen: Candidate, case: SelectionQuery) -> str:
    """What the user should know of a choice for want of a better one."""
    if case.wanted.get("ocr") and "ocr" not in chosen.traits:
        return "no model here is made for reading text, so one that describes images is asked"
    return ""


def _nothing_left(case: SelectionQuery, rejected: dict[str, str]) -> NoCandidateError:
    told = [f"{name}: {reason}" for name, reason in rejected.items()]
    more = [f"and {len(told) - _SHOWN} more"] if len(told) > _SHOWN else []
    reasons = "; ".join(told[:_SHOWN] + more) or "no source lists any"
    known = recommended(case.spec)
    first = f", and a model to begin with is {known.id}" if known else ""
    return NoCandidateError(
        f"no model can do {case.spec.name} here ({reasons}). What helps: {_advice(case.settings, rejected)}; "
        f"`jarvis models {case.spec.name}` lists what there is{first}",
        rejected,
    )


def _advice(settings: Settings, rejected: Mapping[str, str]) -> str:
    """What would bring more models; `rejected` tells what they lack, and which sources failed."""
    found = (command for reason in rejected.values() for command in _INSTALL.findall(reason))
    advice = list(dict.fromkeys(command.strip() for command in found))
    if _LOCAL not in advice and (find_spec("torch") is None or find_spec("transformers") is None):
        advice.append(f"{_LOCAL} runs models of the Hub on this machine")
    if settings.offline:
        advice.append("without HF_HUB_OFFLINE models can be found on the Hub")
    elif f"source {HubSource.name}" in rejected:
        advice.append("with a network (see HTTPS_PROXY, HF_ENDPOINT) models can be found on the Hub")
    elif settings.token is None:
        advice.append("with HF_TOKEN set, models that others host can be asked")
    return ", ".join(advice) or "RegisteredSource adds models of your own"
