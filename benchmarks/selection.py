"""Model selection on requests of others: the Hugging Face part of APIBench (Patil et al., 2023).

    python benchmarks selection apibench --half test
    python benchmarks selection apibench --limit 60 --model openai:gpt-5-mini

A folder holds `huggingface_eval.json`, requests with the model that fits each, and `huggingface_api.jsonl`,
descriptions of models by domain. The candidates for a request are all models of its domain. They go through
the real ModelSelector. Downloads are unknown, so that only purpose counts. "dev" are the odd lines of the
requests, "test" the even ones.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from jarvis_agent.backends.hub import model_card
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.tasks.registry import TASKS, find_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Frozen, Task, Usage
from jarvis_agent.evaluation.predict import Prediction, read_records
from jarvis_agent.evaluation.report import EvaluationReport, Ratios, report_on
from jarvis_agent.llm.chat_model import resolve_model
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.llm.usage import UsageMeter
from jarvis_agent.selection.chain import selection_chain
from jarvis_agent.selection.selector import ModelSelector
from jarvis_agent.testing.backend import FakeBackend, FakeSource

_REQUESTS, _MODELS = "huggingface_eval.json", "huggingface_api.jsonl"
_INSTRUCTION = re.compile(r"Instruction:\s*(.*?)\s*(?:###\s*)?Output", re.DOTALL)
_UNKNOWN = {"", "n/a", "none", "null"}
_SETTINGS: dict[str, Any] = {
    "policy": "local-first",
    "licenses": (),
    "offline": False,
}
"""Used for every request, whatever the environment says."""


class SelectionRequest(Frozen):
    """A request with its domain and the id of the model that fits; `line` counts from 1."""

    line: int
    request: str
    domain: str
    model: str


@dataclass(frozen=True, slots=True)
class SelectionBench:
    """The requests, and the models of each domain."""

    requests: list[SelectionRequest]
    models: Mapping[str, list[Candidate]]


@dataclass(frozen=True, slots=True)
class Ranked:
    """The models in the order of a selection, at most SHOWN; `by` is "rank", "only" or "llm"."""

    asked: SelectionRequest
    order: tuple[str, ...]
    by: str
    seconds: float
    usage: Usage

    def among(self, count: int) -> tuple[float, float]:
        """Whether the right model is among the first, as a part of a ratio."""
        return float(self.asked.model in self.order[:count]), 1.0


def read_folder(folder: Path, half: Literal["dev", "test", "all"] = "all") -> SelectionBench:
    """Read a folder of APIBench.

    Lines without an instruction are skipped.

    Raises:
        InputError: a file cannot be read or is not of APIBench; the message names it and its line.
    """
    models: dict[str, dict[str, Candidate]] = {}
    for record in read_records(folder / _MODELS, "api_name"):
        domain, name = str(record.get("domain")), str(record["api_name"])
        models.setdefault(domain, {}).setdefault(name, _candidate(record))
    requests = []
    for line, record in enumerate(read_records(folder / _REQUESTS, "code"), 1):
        gold = record.get("api_data")
        gold = gold if isinstance(gold, dict) else {}
        domain, name = str(gold.get("domain")), str(gold.get("api_name"))
        if name not in models.get(domain, {}):
            raise InputError(f"{folder / _REQUESTS}, line {line}, names a model that {_MODELS} does not have")
        instruction = _INSTRUCTION.search(str(record["code"]))
        if instruction and half in ("all", "dev" if line % 2 else "test"):
            requests.append(SelectionRequest(line=line, request=instruction[1], domain=domain, model=name))
    return SelectionBench(requests, {domain: list(known.values()) for domain, known in models.items()})


def _candidate(record: Mapping[str, Any]) -> Candidate:
    """Return a description of APIBench as a candidate, as if its card had the same parts."""
    name, task = str(record["api_name"]), _spec(str(record.get("domain"))).name
    function = _text(record.get("functionality"))
    datasets = [f"dataset:{name}" for name in _datasets(record.get("performance"))]
    return Candidate(
        id=name,
        task=task,
        source="fake",
        local=True,
        description=_text(record.get("description")),
        traits=model_card.capabilities(task, name, ()) if task == "translation" else (),
        tags=(*([function] if function else []), *datasets),
        metadata={"examples": _text(record.get("example_code"))},
    )


def _text(value: Any) -> str:
    text = str(value or "").strip()
    return "" if text.lower() in _UNKNOWN else text


def _datasets(performance: Any) -> list[str]:
    """Return the names of data sets in any of the forms that APIBench has for them."""
    value = performance.get("dataset") if isinstance(performance, dict) else None
    entries = list(value) if isinstance(value, list | dict) else [value]
    names = [_text(one.get("name") if isinstance(one, dict) else one) for one in entries]
    return [name for name in names if name and not name.lower().startswith("not ")]


def _spec(domain: str) -> TaskSpec:
    """Return the task type with whose name a domain ends, or one of that name without arguments."""
    words = domain.split()
    found = (find_task(" ".join(words[start:])) for start in range(len(words)))
    known = next(filter(None, found), None)
    return known or TaskSpec(name=domain, category="tool", description=domain, inputs=(), outputs=("any",))


class ModelRanker:
    """Lets the selector order the models of a request's domain; without `llm` the ranking decides."""

    def __init__(self, bench: SelectionBench, settings: Settings, llm: LLMClient | None = None) -> None:
        settings = settings.model_copy(update=_SETTINGS)
        chain = selection_chain(llm, settings=settings) if llm is not None else None
        self._selectors = {
            domain: ModelSelector(
                [_AllModels(models)], [FakeBackend({models[0].task: None})], settings, chain
            )
            for domain, models in bench.models.items()
        }

    async def __call__(self, asked: SelectionRequest) -> Ranked:
        """Return the order for a request."""
        spec, meter = _spec(asked.domain), UsageMeter()
        context = RunContext(asked.request, specs=TASKS, config={"callbacks": [meter]})
        start = perf_counter()
        found = await self._selectors[asked.domain].select(
            Task(task=spec.name, id=0, purpose=asked.request), spec, context
        )
        seconds = perf_counter() - start
        order = tuple(candidate.id for candidate in found.candidates)
        return Ranked(asked, order, found.chosen_by, seconds, meter.total)


class _AllModels(FakeSource):
    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        """All of them, however few are asked for."""
        return self._candidates


FIGURES: Ratios[Ranked] = {
    "first": lambda one: one.among(1),
    "among 5": lambda one: one.among(5),
    "among 8": lambda one: one.among(8),
}


def selection_report(name: str, ranked: Sequence[Ranked]) -> EvaluationReport:
    """Return how often the right model is first, among five and among eight, with the time of a selection."""
    timed = [Prediction(id=str(one.asked.line), seconds=one.seconds) for one in ranked]
    usage = sum((one.usage for one in ranked), Usage())
    return report_on(name, ranked, FIGURES, timed).model_copy(update={"usage": usage})


def main(arguments: Sequence[str]) -> None:
    """Print how often the right model is chosen, and how long a selection takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help=f"with {_REQUESTS} and {_MODELS}")
    parser.add_argument("--half", choices=("dev", "test", "all"), default="all")
    parser.add_argument("--limit", type=int, help="only the first requests")
    parser.add_argument("--model", help="a chat model that chooses; default: the ranking does")
    given = parser.parse_args(arguments)
    settings, bench = read_settings(), read_folder(given.folder, given.half)
    model = resolve_model(given.model, settings) if given.model else None
    rank = ModelRanker(bench, settings, LLMClient(model, settings) if model else None)

    async def rank_all() -> list[Ranked]:
        return [await rank(asked) for asked in bench.requests[: given.limit]]

    report = selection_report(given.model or "ranking", asyncio.run(rank_all()))
    print(f"{report.name}, half {given.half}: {report.requests} requests")
    for figure in report.figures:
        print(f"{figure.name:9} {figure.value or 0:6.1%} ({figure.low or 0:.0%}…{figure.high or 0:.0%})")
    print(f"median and 95th percentile: {' / '.join(f'{1000 * time:.0f} ms' for time in report.seconds)}")
    print(f"{report.usage.calls} calls, {report.usage.input_tokens} + {report.usage.output_tokens} tokens")
