"""Model selection, scored on our own cases: invented candidates, and the defects of each.

    chosen = [await choose(case, llm=None) for case in read_cases()]     # None: the ranking decides
    reports = score_choices(chosen, "no model")
    reports[0].figures[0]         # Figure("right", 0.69, 0.53, 0.84)

The choice goes through the real ModelSelector, with a source and backends made for the case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import NoCandidateError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Frozen, Task, Usage
from jarvis_agent.evaluation.predict import named_files, read_records
from jarvis_agent.evaluation.report import EvaluationReport, Ratios, report_on
from jarvis_agent.evaluation.requests import data_file
from jarvis_agent.llm.usage import UsageMeter
from jarvis_agent.selection.chain import selection_chain
from jarvis_agent.selection.selector import ModelSelector
from jarvis_agent.testing.backend import FakeBackend, FakeSource

if TYPE_CHECKING:
    from jarvis_agent.llm.client import LLMClient

Defect = Literal["gate", "library", "download", "place", "language", "domain", "licence", "size"]

CANNOT_RUN: frozenset[Defect] = frozenset({"gate", "library", "download", "place"})
"""Defects of a model that cannot run; with the others it does not suit the request."""

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
    """A candidate with its defects; one without any is a correct choice."""

    candidate: Candidate
    wrong: frozenset[Defect]


class SelectionCase(Frozen):
    """A task of a request with candidates. If all of them have defects, refusing is correct."""

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

    case: SelectionCase
    model: str | None
    reason: str
    by: str = ""
    usage: Usage = field(default_factory=Usage)

    @property
    def defects(self) -> frozenset[Defect]:
        """Return the defects of the chosen model."""
        return next((o.wrong for o in self.case.offers if o.candidate.id == self.model), frozenset())

    @property
    def is_right(self) -> bool:
        """Whether the model is correct, or none was chosen where none is."""
        return self.model in self.case.right or (self.model is None and not self.case.right)

    def as_failure(self) -> dict[str, Any]:
        """Return the choice beside the expected one, as `--failures` lists it."""
        case = self.case
        expected, got = [*case.right, case.reason], self.model or "a refusal"
        found = {"id": case.id, "request": case.request, "expected": expected, "got": got}
        return {**found, "defects": sorted(self.defects), "reason": self.reason}


def read_cases() -> list[SelectionCase]:
    """Read the cases of this package."""
    return [_case(**record) for record in read_records(data_file("selection.jsonl"))]


def _case(task: str, args: dict[str, Any], candidates: list[dict[str, Any]], **fields: Any) -> SelectionCase:
    offers = [
        Offer(wrong=one.pop("wrong"), candidate=Candidate(task=task, **one)) for one in map(dict, candidates)
    ]
    return SelectionCase(task=Task(task=task, id=0, args=args), offers=offers, **fields)


async def choose(case: SelectionCase, llm: LLMClient | None) -> Chosen:
    """Let the selector choose a model for a case; without `llm` the ranking decides."""
    settings = _CaseSettings(**{**_SETTINGS, **case.settings})
    selector = ModelSelector(
        [FakeSource(offer.candidate for offer in case.offers)],
        [_LocalModels({}, "local models"), _HostedModels({}, "hosted models", local=False)],
        settings,
        selection_chain(llm, settings=settings) if llm is not None else None,
    )
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
        """None, so that a token of the environment opens no gated model."""
        return None


class _LocalModels(FakeBackend):
    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None for models of transformers and diffusers."""
        known = candidate.library in ("transformers", "diffusers")
        return None if known else f"no backend for models of {candidate.library}"


class _HostedModels(FakeBackend):
    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None for models that a provider serves."""
        return None if candidate.providers else "no provider serves it"


def _without(defect: Defect) -> Callable[[Chosen], tuple[float, float]]:
    """Choices without a defect, among the cases where a model has it and another model is right."""

    def part(one: Chosen) -> tuple[float, float]:
        if not one.case.right or not any(defect in offer.wrong for offer in one.case.offers):
            return 0.0, 0.0
        return float(one.model is not None and defect not in one.defects), 1.0

    return part


def _can_run(one: Chosen) -> tuple[float, float]:
    is_choice = one.model is not None or not one.case.right
    return float(is_choice and not one.defects & CANNOT_RUN), 1.0


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


def score_choices(chosen: Sequence[Chosen], name: str) -> list[EvaluationReport]:
    """Return a report on the choices, and one on always taking the most downloaded model."""
    popular = [Chosen(one.case, one.case.most_downloaded, "most downloads") for one in chosen]
    reports = []
    for label, choices in ((name, chosen), ("most downloaded", popular)):
        refused = sum(one.model is None and bool(one.case.right) for one in choices)
        report = report_on(label, choices, FIGURES, unanswered=refused)
        reports.append(report.model_copy(update={"usage": sum((one.usage for one in choices), Usage())}))
    return reports
