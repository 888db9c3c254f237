"""How a language model plans: with the paper's prompt and with ours, with and without schema and examples.

    python benchmarks/planning.py                                    # the configured model
    python benchmarks/planning.py --model gguf:qwen.gguf --only paper --only schema --every 3
    JARVIS_BASE_URL=http://localhost:8000/v1 python benchmarks/planning.py --model qwen3-8b

Every way plans the same requests at temperature 0. A plan is right when it has the tasks of one of the plans
that are accepted, in any order, with the arguments and the references that stand there, and no others that
take files. What an accepted plan leaves open (a question's words, a prompt) may be anything. Only plans that
the model wrote itself are counted; where it writes none, an agent has the offline planner plan.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel

from jarvis_agent.core.errors import JarvisError, describe_error
from jarvis_agent.core.references import ref, substitute
from jarvis_agent.core.settings import load_settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.types import Task, Usage
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.llm.chat_model import resolve_model
from jarvis_agent.llm.usage import UsageMeter
from jarvis_agent.planning.chain import PlanningChain, planning_chain
from jarvis_agent.planning.inputs import PlanInput
from jarvis_agent.planning.plan import Plan

REQUESTS = Path(__file__).parent / "data" / "plain_requests.json"


@dataclass(frozen=True, slots=True)
class Way:
    """A way to ask a model for plans; `examples` as in `planning_chain`."""

    title: str
    prompts: Literal["default", "paper"] = "default"
    structured_output: Literal["always", "never"] = "always"
    examples: Literal["default", "paper"] | None = None


WAYS = {
    "paper": Way("the paper's prompt and examples, free text", "paper", "never", "paper"),
    "paper-schema": Way("the paper's prompt and examples, schema", "paper", "always", "paper"),
    "free": Way("our prompt, no examples, free text", structured_output="never"),
    "schema": Way("our prompt, no examples, schema"),
    "examples": Way("our prompt, our examples, schema", examples="default"),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A request and the plans that are accepted for it."""

    request: str
    plans: list[list[list[Any]]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request."""

    plan: Plan
    is_right: bool
    node_f1: float
    seconds: float
    usage: Usage
    calls: int
    failure: str


def main() -> None:
    """Print a table, a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=Path, default=REQUESTS)
    parser.add_argument("--every", type=int, default=1, help="only each n-th request")
    parser.add_argument("--only", action="append", choices=WAYS, help="only these ways")
    parser.add_argument("--model", help="as JARVIS_MODEL; default: the configured model")
    parser.add_argument("--plans", action="store_true", help="print each plan too")
    given = parser.parse_args()
    model = resolve_model(given.model, load_settings())
    if model is None:
        parser.error("no language model is configured")
    cases = read_cases(given.requests)[:: given.every]
    sys.stdout.write("| way | plans | right | node F1 | prompt tokens | calls | seconds |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for name in given.only or WAYS:
        outcomes = asyncio.run(plan_cases(model, WAYS[name], cases))
        sys.stdout.write(_row(WAYS[name].title, outcomes))
        sys.stdout.flush()
        if given.plans:
            for case, outcome in zip(cases, outcomes, strict=True):
                _show(case, outcome)


async def plan_cases(model: BaseChatModel, way: Way, cases: list[Case]) -> list[Outcome]:
    """Plan requests one after the other."""
    settings = load_settings(
        prompts=way.prompts, structured_output=way.structured_output, context_window=128_000, llm_timeout=300
    )
    planner = planning_chain(model, examples=way.examples or (), settings=settings)
    return [await _outcome(case, planner) for case in cases]


def _row(title: str, outcomes: list[Outcome]) -> str:
    valid = sum(not o.failure for o in outcomes)
    right = sum(o.is_right for o in outcomes)
    return (
        f"| {title} | {valid} of {len(outcomes)} | {right} of {len(outcomes)} "
        f"| {100 * statistics.mean(o.node_f1 for o in outcomes):.0f} "
        f"| {statistics.mean(o.usage.input_tokens / max(1, o.calls) for o in outcomes):.0f} "
        f"| {statistics.mean(o.calls for o in outcomes):.2f} "
        f"| {statistics.median(o.seconds for o in outcomes):.1f} |\n"
    )


def _show(case: Case, outcome: Outcome) -> None:
    mark = "right" if outcome.is_right else "WRONG"
    notes = "".join(f"\n      ! {note}" for note in [*outcome.plan.notes, outcome.failure] if note)
    said = f"{mark} {outcome.seconds:.0f} s, {outcome.usage.input_tokens} tokens, {outcome.calls} calls"
    sys.stderr.write(f"{said}: {case.request}\n      {outcome.plan.to_json()}{notes}\n")
    sys.stderr.flush()


async def _outcome(case: Case, planner: PlanningChain) -> Outcome:
    meter, began, plan, failure = UsageMeter(), perf_counter(), Plan(), ""
    asked: PlanInput = {"input": case.request, "files": named_files(case.request)}
    try:
        plan = await planner.ainvoke(asked, {"callbacks": [meter]})
    except JarvisError as error:
        failure = describe_error(error)
    if Plan.parse(plan.to_json()).tasks != plan.tasks:
        failure = "the plan is not valid"
    usage = meter.total
    is_right = not failure and any(accepts(gold, plan.tasks) for gold in case.plans)
    best = max(node_f1(gold, plan.tasks) for gold in case.plans)
    return Outcome(plan, is_right, best, perf_counter() - began, usage, usage.calls, failure)


def accepts(gold: list[list[Any]], tasks: list[Task]) -> bool:
    """Whether the tasks are those of an accepted plan, in any order that keeps its references."""
    if Counter(name for name, _ in gold) != Counter(task.task for task in tasks):
        return False
    return any(_matches(gold, order) for order in permutations(tasks))


def _matches(gold: list[list[Any]], order: tuple[Task, ...]) -> bool:
    places = {task.id: place for place, task in enumerate(order)}
    for (name, args), task in zip(gold, order, strict=True):
        if name != task.task:
            return False
        written = substitute(task.args, lambda i: ref(places.get(i, i)))
        takes_file = {arg.name for arg in TASKS[name].inputs if arg.kind in MEDIA}
        if any(not _same(written.get(key), value) for key, value in args.items()):
            return False
        if (written.keys() & takes_file) - args.keys():
            return False
    return True


def _same(written: Any, wanted: Any) -> bool:
    return _plain(written) == _plain(wanted)


def _plain(value: Any) -> str:
    return str(value).strip().strip(".。\"'“”").casefold()


def node_f1(gold: list[list[Any]], tasks: list[Task]) -> float:
    """The F1 of the tasks' names as multisets; 1 where both are empty."""
    wanted, found = Counter(name for name, _ in gold), Counter(task.task for task in tasks)
    if not wanted and not found:
        return 1.0
    return 2 * (wanted & found).total() / (wanted.total() + found.total())


def read_cases(path: Path) -> list[Case]:
    """The requests of a file, with the `plans` that are accepted or one `plan`; none with files beside."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [Case(row["request"], row.get("plans") or [row["plan"]]) for row in rows if "files" not in row]


if __name__ == "__main__":
    main()
