"""Model selection on requests of others: the Hugging Face part of APIBench (Patil et al., 2023).

    python benchmarks selection apibench --half test
    python benchmarks selection apibench --limit 60 --model openai:gpt-5-mini

The candidates for a request are all models of its domain, and go through the real ModelSelector. Downloads
are unknown, so that only purpose counts. "dev" are the odd lines of the requests, "test" the even ones.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal, NamedTuple

from typer import Argument, Option

from jarvis_agent.backends.hub import model_card
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.tasks.registry import TASKS, find_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Task
from jarvis_agent.evaluation.predict import Prediction, read_records
from jarvis_agent.evaluation.report import EvaluationReport, report_on
from jarvis_agent.llm.chat_model import resolve_model
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.llm.usage import UsageMeter
from jarvis_agent.selection.chain import selection_chain
from jarvis_agent.selection.selector import ModelSelector
from jarvis_agent.testing import FakeBackend, FakeSource

Half = Literal["dev", "test", "all"]
Models = Mapping[str, Mapping[str, Candidate]]
"""The models of each domain, by their ids."""
_REQUESTS, _MODELS = "huggingface_eval.json", "huggingface_api.jsonl"
_INSTRUCTION = re.compile(r"Instruction:\s*(.*?)\s*(?:###\s*)?Output", re.DOTALL)


class SelectionRequest(NamedTuple):
    """A request with its domain and the id of the model that fits; `line` counts from 1."""

    line: int
    request: str
    domain: str
    model: str


class Ranked(NamedTuple):
    """The models in the order of a selection, at most SHOWN."""

    asked: SelectionRequest
    order: tuple[str, ...]
    cost: Prediction


def read_folder(folder: Path, half: Half = "all") -> tuple[list[SelectionRequest], Models]:
    """The requests that have an instruction. Raises InputError: a file is not of APIBench; it says where."""
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
            requests.append(SelectionRequest(line, instruction[1], domain, name))
    return requests, models


def _candidate(record: Mapping[str, Any]) -> Candidate:
    """A description of APIBench as a candidate, as if its card had the same parts."""
    name, task = str(record["api_name"]), _spec(str(record.get("domain"))).name
    performance = record.get("performance")
    value = performance.get("dataset") if isinstance(performance, dict) else None
    entries = list(value) if isinstance(value, list | dict) else [value]
    datasets = [_text(one.get("name") if isinstance(one, dict) else one) for one in entries]
    return Candidate(
        id=name,
        task=task,
        source="fake",
        local=True,
        description=_text(record.get("description")),
        traits=model_card.capabilities(task, name, ()) if task == "translation" else (),
        tags=(
            *filter(None, [_text(record.get("functionality"))]),
            *(f"dataset:{name}" for name in datasets if name and not name.lower().startswith("not ")),
        ),
        metadata={"examples": _text(record.get("example_code"))},
    )


def _text(value: Any) -> str:
    text = str(value or "").strip()
    return "" if text.lower() in ("n/a", "none", "null") else text


def _spec(domain: str) -> TaskSpec:
    """The task type with whose name a domain ends, or one of that name without arguments."""
    words = domain.split()
    for start in range(len(words)):
        if known := find_task(" ".join(words[start:])):
            return known
    return TaskSpec(name=domain, category="tool", description=domain, inputs=(), outputs=("any",))


async def rank(
    requests: Sequence[SelectionRequest], models: Models, settings: Settings, llm: LLMClient | None = None
) -> list[Ranked]:
    """Let the selector order the models of each request's domain; without `llm` the ranking decides."""
    # Whatever the environment says:
    settings = settings.model_copy(update={"policy": "local-first", "licenses": (), "offline": False})
    ranked = []
    chain = selection_chain(llm, settings=settings) if llm is not None else None
    backend = FakeBackend({_spec(domain).name: None for domain in models})
    selectors = {
        domain: ModelSelector([FakeSource(known.values())], [backend], settings, chain)
        for domain, known in models.items()
    }
    for asked in requests:
        spec, meter = _spec(asked.domain), UsageMeter()
        context = RunContext(asked.request, specs=TASKS, config={"callbacks": [meter]})
        task = Task(task=spec.name, id=0, purpose=asked.request)
        start = perf_counter()
        found = await selectors[asked.domain].select(task, spec, context)
        cost = Prediction(id=str(asked.line), seconds=perf_counter() - start, usage=meter.total)
        order = tuple(candidate.id for candidate in found.candidates)
        ranked.append(Ranked(asked, order, cost))
    return ranked


def selection_report(name: str, ranked: Sequence[Ranked]) -> EvaluationReport:
    """How often the right model is first, among five and among eight, with the time of a selection."""

    def among(count: int) -> Callable[[Ranked], tuple[float, float]]:
        return lambda one: (float(one.asked.model in one.order[:count]), 1.0)

    ratios = {"first": among(1), "among 5": among(5), "among 8": among(8)}
    return report_on(name, ranked, ratios, [one.cost for one in ranked])


def main(
    folder: Annotated[Path, Argument(help=f"with requests, {_REQUESTS}, and models, {_MODELS}")],
    half: Annotated[Half, Option()] = "all",
    limit: Annotated[int | None, Option(help="only the first requests")] = None,
    model: Annotated[str, Option(help="a chat model that chooses in place of the ranking")] = "none",
) -> None:
    """Print how often the right model is chosen, and how long a selection takes."""
    settings, (requests, models) = read_settings(), read_folder(folder, half)
    chat_model = resolve_model(model, settings)
    llm = LLMClient(chat_model, settings) if chat_model else None
    ranking = rank(requests[:limit], models, settings, llm)
    report = selection_report(model if llm else "ranking", asyncio.run(ranking))
    print(f"{report.name}, half {half}: {report.requests} requests")
    for figure in report.figures:
        print(f"{figure.name:9} {figure.value or 0:6.1%} ({figure.low or 0:.0%}…{figure.high or 0:.0%})")
    print(f"median and 95th percentile: {' / '.join(f'{1000 * time:.0f} ms' for time in report.seconds)}")
    print(f"{report.usage.calls} calls, {report.usage.input_tokens} + {report.usage.output_tokens} tokens")
