"""Model selection, scored: cases of our own, with lists of candidates and what is wrong with each.

    chosen = [await choose(case, controller=None) for case in read_cases()]     # None: the rank decides
    reports = report_on_choices(chosen, "no model")
    reports[0].figures[0]         # Figure("right", 0.69, 0.53, 0.84)

The choice goes through the real ModelSelector. Sources and backends are stand-ins: a case gives the same
result on every machine. The candidates are invented.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import CircuitOpenError, NoCandidateError
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Frozen, Task, Usage
from jarvis_agent.evaluation.jsonl import records_in
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.evaluation.report import Part, Report, Share, figures_of
from jarvis_agent.evaluation.requests import data_file
from jarvis_agent.selection.chain import selection_chain
from jarvis_agent.selection.selector import ModelSelector

if TYPE_CHECKING:
    from jarvis_agent.llm.client import LLMClient

Fault = Literal["gate", "library", "download", "place", "language", "domain", "licence", "size"]

RUNS: frozenset[Fault] = frozenset({"gate", "library", "download", "place"})
"""Faults for which a model can not run; the others are those for which it does not fit the request."""

_LIBRARIES = ("transformers", "diffusers")
_SETTINGS: dict[str, Any] = {
    "policy": "local-first",
    "policies": {},
    "licenses": (),
    "offline": False,
    "max_download": 5_000_000_000,
    "top_k": 5,
}


class Offer(Frozen):
    """A model of a case, and what is wrong with it there; nothing: it may be chosen."""

    candidate: Candidate
    wrong: frozenset[Fault]


class Case(Frozen):
    """A task of a request, models to choose from, and why the right ones are right.

    Attributes:
        settings: what the user set; the other settings that matter are the same in every case.
        offers: the models. If something is wrong with each of them, to refuse is right.
    """

    id: str
    request: str
    task: Task
    settings: dict[str, Any] = Field(default_factory=dict)
    offers: list[Offer]
    reason: str

    @property
    def right(self) -> list[str]:
        """The ids of the models that may be chosen."""
        return [offer.candidate.id for offer in self.offers if not offer.wrong]

    @property
    def most_downloaded(self) -> str:
        """What is chosen by who looks at nothing but downloads."""
        return max((offer.candidate for offer in self.offers), key=lambda one: one.downloads).id


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen for a case: the id of a model, or None where the selector refused; and by whom."""

    case: Case
    model: str | None
    reason: str
    by: str = ""
    usage: Usage = field(default_factory=Usage)

    @property
    def faults(self) -> frozenset[Fault]:
        """What is wrong with the choice."""
        return next((o.wrong for o in self.case.offers if o.candidate.id == self.model), frozenset())

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong with it; where no model is right, whether there is no choice."""
        return self.model in self.case.right or (self.model is None and not self.case.right)


def read_cases() -> list[Case]:
    """The cases that come with this package."""
    return [_case(record) for record in records_in(data_file("selection.jsonl"))]


def _case(record: dict[str, Any]) -> Case:
    name = record["task"]
    offers = [_offer(dict(offer), name) for offer in record["candidates"]]
    task = Task(task=name, id=0, args=record["args"])
    return Case.model_validate({**_without(record, "args", "candidates"), "task": task, "offers": offers})


def _offer(record: dict[str, Any], task: str) -> Offer:
    wrong = record.pop("wrong")
    return Offer(candidate=Candidate(task=task, **record), wrong=wrong)


def _without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


async def choose(case: Case, controller: LLMClient | None) -> Chosen:
    """Have the selector choose for a case.

    Args:
        controller: the language model that chooses; None: the rank does.
    """
    offered = [offer.candidate for offer in case.offers]
    settings = _CaseSettings(**{**_SETTINGS, **case.settings})
    chain = selection_chain(controller, settings=settings) if controller is not None else None
    selector = ModelSelector([_Offered(offered)], [_Here(), _Hosted()], settings, chain)
    brief = RunContext(case.request, files=tuple(named_files(case.request)), specs=TASKS)
    try:
        found = await selector.select(case.task, TASKS[case.task.task], brief)
    except NoCandidateError as error:
        return Chosen(case, None, str(error), usage=_usage(brief))
    return Chosen(case, found.model, found.reason, found.chosen_by, _usage(brief))


def _usage(brief: RunContext) -> Usage:
    return sum(brief.meter.usage.values(), Usage())


class _CaseSettings(Settings):
    """Settings of a case: whoever runs it, no token is set."""

    @property
    def token(self) -> str | None:
        """None."""
        return None


@dataclass(frozen=True)
class _Offered:
    """A source that lists the models of a case."""

    offered: Sequence[Candidate]
    name: ClassVar[str] = "case"

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """All of them."""
        return [one for one in self.offered if one.task == spec.name][:limit]


class _StandIn:
    """A backend that says what it would run, and runs nothing."""

    async def run(self, call: Call) -> Any:
        """Raises UnavailableError."""
        raise CircuitOpenError(f"nothing is run here, {call.candidate.id} neither")

    async def close(self) -> None:
        """Nothing is held."""


class _Here(_StandIn):
    name: ClassVar[str] = "here"
    local: ClassVar[bool] = True

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if it is of a library that runs here."""
        return None if candidate.library in _LIBRARIES else f"nothing runs models of {candidate.library}"


class _Hosted(_StandIn):
    name: ClassVar[str] = "hosted-models"
    local: ClassVar[bool] = False

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if somebody serves it."""
        return None if candidate.providers else "nobody serves it"


def _free_of(fault: Fault) -> Share[Chosen]:
    """Choices without that fault, among the cases in which some model has it and another is right."""

    def share(one: Chosen) -> Part:
        if not one.case.right or not any(fault in offer.wrong for offer in one.case.offers):
            return Part(0.0, 0.0)
        return Part(float(one.model is not None and fault not in one.faults))

    return share


def _runs(one: Chosen) -> Part:
    is_choice = one.model is not None or not one.case.right
    return Part(float(is_choice and not one.faults & RUNS))


FIGURES: dict[str, Share[Chosen]] = {
    "right": lambda one: Part(float(one.is_right)),
    "runs": _runs,
    "language": _free_of("language"),
    "domain": _free_of("domain"),
    "licence": _free_of("licence"),
    "size": _free_of("size"),
    "by the LLM": lambda one: Part(float(one.by == "llm")),
}
"""All in all; whether it can run; whether it fits, where a choice could fail to; and whose choice it was.

The language model chooses only where the filters leave several, and where it answers in time.
"""


def report_on_choices(chosen: Sequence[Chosen], name: str) -> list[Report]:
    """The choices, and for comparison what the number of downloads alone would choose."""
    popular = [Chosen(one.case, one.case.most_downloaded, "it has the most downloads") for one in chosen]
    return [_report(name, chosen), _report("the most downloaded", popular)]


def _report(name: str, chosen: Sequence[Chosen]) -> Report:
    return Report(
        name=name,
        mode="strict",
        requests=len(chosen),
        unanswered=sum(one.model is None and bool(one.case.right) for one in chosen),
        figures=figures_of(chosen, FIGURES),
        usage=sum((one.usage for one in chosen), Usage()),
    )
