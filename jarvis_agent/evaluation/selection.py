"""Model selection, scored on our own cases: lists of invented candidates, and what is wrong with each.

    chosen = [await choose(case, llm=None) for case in read_cases()]     # None: the ranking decides
    reports = score_choices(chosen, "no model")
    reports[0].figures[0]         # Figure("right", 0.69, 0.53, 0.84)

The choice goes through the real ModelSelector with a source and backends made for the case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from jarvis_agent.backends.base import Call
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import NoCandidateError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Frozen, Task, Usage
from jarvis_agent.evaluation.predict import named_files, read_records
from jarvis_agent.evaluation.report import Ratios, Report, report_on
from jarvis_agent.evaluation.requests import data_file
from jarvis_agent.llm.usage import UsageMeter
from jarvis_agent.selection.chain import selection_chain
from jarvis_agent.selection.selector import ModelSelector

if TYPE_CHECKING:
    from jarvis_agent.llm.client import LLMClient

Fault = Literal["gate", "library", "download", "place", "language", "domain", "licence", "size"]

CANNOT_RUN: frozenset[Fault] = frozenset({"gate", "library", "download", "place"})
"""Faults of a model that cannot run; with the others it does not suit the request."""

_SETTINGS: dict[str, Any] = {
    "policy": "local-first",
    "policies": {},
    "licenses": (),
    "offline": False,
    "max_download": 5_000_000_000,
    "top_k": 5,
}
"""Used in every case, whatever the environment says."""


class Offer(Frozen):
    """A candidate, and what is wrong with it; nothing: it is a correct choice."""

    candidate: Candidate
    wrong: frozenset[Fault]


class Case(Frozen):
    """A task of a request with candidates. If all of them have faults, refusing is correct."""

    id: str
    request: str
    task: Task
    settings: dict[str, Any] = Field(default_factory=dict)
    offers: list[Offer]
    reason: str

    @property
    def right(self) -> list[str]:
        """Return the ids of the correct models."""
        return [offer.candidate.id for offer in self.offers if not offer.wrong]

    @property
    def most_downloaded(self) -> str:
        """Return the id of the most downloaded model."""
        return max((offer.candidate for offer in self.offers), key=lambda one: one.downloads).id


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choice for a case: a model id, or None if the selector refused. `by` is "llm" or "rank"."""

    case: Case
    model: str | None
    reason: str
    by: str = ""
    usage: Usage = field(default_factory=Usage)

    @property
    def faults(self) -> frozenset[Fault]:
        """Return what is wrong with the choice."""
        return next((o.wrong for o in self.case.offers if o.candidate.id == self.model), frozenset())

    @property
    def is_right(self) -> bool:
        """Whether the model is correct, or none was chosen where none is."""
        return self.model in self.case.right or (self.model is None and not self.case.right)


def read_cases() -> list[Case]:
    """Read the cases of this package."""
    return [_case(**record) for record in read_records(data_file("selection.jsonl"))]


def _case(task: str, args: dict[str, Any], candidates: list[dict[str, Any]], **fields: Any) -> Case:
    offers = [
        Offer(wrong=one.pop("wrong"), candidate=Candidate(task=task, **one)) for one in map(dict, candidates)
    ]
    return Case(task=Task(task=task, id=0, args=args), offers=offers, **fields)


async def choose(case: Case, llm: LLMClient | None) -> Chosen:
    """Let the selector choose a model for a case; without `llm` the ranking decides."""
    source = _CaseSource([offer.candidate for offer in case.offers])
    settings = _CaseSettings(**{**_SETTINGS, **case.settings})
    chain = selection_chain(llm, settings=settings) if llm is not None else None
    selector = ModelSelector([source], [_LocalBackend(), _HostedBackend()], settings, chain)
    meter = UsageMeter()
    files = tuple(named_files(case.request))
    context = RunContext(case.request, files, specs=TASKS, config={"callbacks": [meter]})
    try:
        found = await selector.select(case.task, TASKS[case.task.task], context)
    except NoCandidateError as error:
        return Chosen(case, None, str(error), usage=meter.total)
    return Chosen(case, found.model, found.reason, found.chosen_by, meter.total)


class _CaseSettings(Settings):
    @property
    def token(self) -> str | None:
        """None, so that the token of the environment changes nothing."""
        return None


@dataclass(frozen=True)
class _CaseSource:
    """A source with the candidates of a case."""

    offered: Sequence[Candidate]
    name: ClassVar[str] = "case"

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        return [one for one in self.offered if one.task == spec.name][:limit]


class _LocalBackend:
    """Runs models of transformers and diffusers, as far as the selector can tell."""

    name: ClassVar[str] = "here"
    local: ClassVar[bool] = True

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        known = candidate.library in ("transformers", "diffusers")
        return None if known else f"no backend for models of {candidate.library}"

    async def run(self, call: Call) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing to free."""


class _HostedBackend(_LocalBackend):
    """Runs models that a provider serves."""

    name = "hosted-models"
    local = False

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return None if candidate.providers else "no provider serves it"


def _without(fault: Fault) -> Callable[[Chosen], tuple[float, float]]:
    """Choices without a fault, among the cases where a model has it and another model is right."""

    def part(one: Chosen) -> tuple[float, float]:
        if not one.case.right or not any(fault in offer.wrong for offer in one.case.offers):
            return 0.0, 0.0
        return float(one.model is not None and fault not in one.faults), 1.0

    return part


def _can_run(one: Chosen) -> tuple[float, float]:
    is_choice = one.model is not None or not one.case.right
    return float(is_choice and not one.faults & CANNOT_RUN), 1.0


FIGURES: Ratios[Chosen] = {
    "right": lambda one: (float(one.is_right), 1.0),
    "runs": _can_run,
    "language": _without("language"),
    "domain": _without("domain"),
    "licence": _without("licence"),
    "size": _without("size"),
    "by the LLM": lambda one: (float(one.by == "llm"), 1.0),
}
"""The LLM chooses only where the filters leave several models, and where it answers in time."""


def score_choices(chosen: Sequence[Chosen], name: str) -> list[Report]:
    """Return a report on the choices, and one on always taking the most downloaded model."""
    popular = [Chosen(one.case, one.case.most_downloaded, "most downloads") for one in chosen]
    reports = []
    for label, choices in ((name, chosen), ("most downloaded", popular)):
        refused = sum(one.model is None and bool(one.case.right) for one in choices)
        report = report_on(label, choices, FIGURES, unanswered=refused)
        reports.append(report.model_copy(update={"usage": sum((one.usage for one in choices), Usage())}))
    return reports
