"""What a real small language model plans, with the paper's prompt and with ours.

    python benchmarks/planning.py                                    # SmolLM2-135M, served on this machine
    python benchmarks/planning.py --only paper --only schema         # some of the ways
    python benchmarks/planning.py --every 3                          # only each third request
    python benchmarks/planning.py --url http://localhost:8000/v1 --model qwen3-8b

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from time import perf_counter
from typing import Any

from small_llm import INSTALL, WEIGHTS, served

from jarvis_agent.core.errors import JarvisError, describe_error
from jarvis_agent.core.references import ref, substitute
from jarvis_agent.core.settings import load_settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA
from jarvis_agent.core.types import Task, Usage
from jarvis_agent.evaluation.predict import named_files
from jarvis_agent.llm.usage import UsageMeter
from jarvis_agent.planning.chain import PlanningChain, planning_chain
from jarvis_agent.planning.offline import OfflinePlanner
from jarvis_agent.planning.plan import Plan

REQUESTS = Path(__file__).parent / "data" / "plain_requests.json"

OURS = {"structured_output": "never", "prompts": "default", "context_window": 128_000}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "paper": ("the paper's prompt, free text", {**OURS, "prompts": "paper"}),
    "default": ("our prompt, nearest demonstrations, free text", OURS),
    "narrow": ("+ narrowed tools", {**OURS, "context_window": 8192}),
    "schema": (
        "+ schema of the request",
        {"structured_output": "always", "prompts": "default", "context_window": 8192},
    ),
    "small": (
        "the small prompt, nearest demonstrations, free text",
        {"structured_output": "never", "prompts": "small"},
    ),
    "small-schema": (
        "+ schema of the examples",
        {"structured_output": "always", "prompts": "small"},
    ),
    "schema-paper": (
        "the paper's prompt with the schema",
        {"structured_output": "always", "prompts": "paper", "context_window": 128_000},
    ),
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
    parser.add_argument("--url", help="an OpenAI-compatible server instead of SmolLM2")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--plans", action="store_true", help="print each plan too")
    given = parser.parse_args()
    cases = read_cases(given.requests)[:: given.every]
    sys.stdout.write("| way | plans | right | node F1 | prompt tokens | calls | seconds |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for name in given.only or WAYS:
        with server(given.url) as url:
            asyncio.run(_row(name, cases, url, given.model, given.plans))


async def _row(name: str, cases: list[Case], url: str, model: str, show: bool) -> None:
    title, fields = WAYS[name]
    settings = load_settings(base_url=url, model=model, llm_timeout=300, **fields)
    planner = planning_chain(None, hints=OfflinePlanner(settings=settings), settings=settings)
    outcomes = []
    for case in cases:
        outcomes.append(await _outcome(case, planner))
        if show:
            _show(case, outcomes[-1])
    valid = sum(not o.failure for o in outcomes)
    right = sum(o.is_right for o in outcomes)
    sys.stdout.write(
        f"| {title} | {valid} of {len(cases)} | {right} of {len(cases)} "
        f"| {100 * statistics.mean(o.node_f1 for o in outcomes):.0f} "
        f"| {statistics.mean(o.usage.input_tokens / max(1, o.calls) for o in outcomes):.0f} "
        f"| {statistics.mean(o.calls for o in outcomes):.2f} "
        f"| {statistics.median(o.seconds for o in outcomes):.1f} |\n"
    )
    sys.stdout.flush()


def _show(case: Case, outcome: Outcome) -> None:
    mark = "right" if outcome.is_right else "WRONG"
    notes = "".join(f"\n      ! {note}" for note in [*outcome.plan.notes, outcome.failure] if note)
    said = f"{mark} {outcome.seconds:.0f} s, {outcome.usage.input_tokens} tokens, {outcome.calls} calls"
    sys.stderr.write(f"{said}: {case.request}\n      {outcome.plan.to_json()}{notes}\n")
    sys.stderr.flush()


async def _outcome(case: Case, planner: PlanningChain) -> Outcome:
    meter, began, plan, failure = UsageMeter(), perf_counter(), Plan(), ""
    asked = {"input": case.request, "files": named_files(case.request)}
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


@contextmanager
def server(url: str | None) -> Iterator[str]:
    """The address of the server: the one given, or one of SmolLM2 that runs meanwhile."""
    if url:
        yield url
        return
    if WEIGHTS is None:
        sys.exit(INSTALL)
    with served(longest=256, threads=1) as address:
        yield address


if __name__ == "__main__":
    main()
