"""A TaskBench folder: its tools as task types, its requests, and their gold plans if it has them.

TaskBench (Shen et al., "TaskBench: Benchmarking Large Language Models for Task Automation", 2023) has one
JSON object per line in `data.json` (gold plans) and `user_requests.json`, and one object in `tool_desc.json`.
`graph_desc.json` is not read: which tools can be linked follows from `tool_desc.json`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from jarvis_agent.core.errors import InputError, words_of
from jarvis_agent.core.references import ref
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.tasks.spec import Arg, Modality, TaskSpec, split_kind
from jarvis_agent.core.types import Frozen, Task
from jarvis_agent.evaluation.predict import Prediction, named_files, read_records
from jarvis_agent.evaluation.report import EvaluationReport, Ratios, Score, report_on, score

TOOLS, GOLD, REQUESTS = "tool_desc.json", "data.json", "user_requests.json"
TYPES = ("single", "chain", "dag")

_NODE = re.compile(r"<node-(\d{1,9})>")
_KINDS: Mapping[str, Modality] = {"text": "text", "image": "image", "audio": "audio", "video": "video"}

FIGURES: Ratios[Score] = {
    "node F1": lambda scored: scored.nodes,
    "edge F1": lambda scored: scored.edges,
    "exact graph": lambda scored: (float(scored.exact), 1.0),
}


class Tool(Frozen):
    """A tool of `tool_desc.json`; tools with `parameters` (the daily life APIs) are not supported."""

    id: str
    desc: str = ""
    takes: list[str] = Field(alias="input-type")
    makes: list[str] = Field(alias="output-type")


class _ToolFile(Frozen):
    nodes: list[Tool] = Field(min_length=1)


@dataclass(frozen=True)
class Bench:
    """A folder: tools, then requests, their gold plans and TYPES by id."""

    specs: Mapping[str, TaskSpec]
    requests: Mapping[str, str]
    gold: Mapping[str, Sequence[Task]]
    types: Mapping[str, str]

    def inputs(self, limit: int | None = None) -> dict[str, dict[str, Any]]:
        """Return what a planner gets for each of the first `limit` requests, by id."""
        chosen = list(self.requests.items())[:limit]
        return {
            record: {"input": text, "files": named_files(text), "chat_history": (), "tools": self.specs}
            for record, text in chosen
        }


def read_folder(folder: Path) -> Bench:
    """Read a folder. Requests come from `user_requests.json`, otherwise from the gold records.

    Raises InputError: a file is missing or invalid; the message names it, and the line.
    """
    path = folder / TOOLS
    try:
        tools = _ToolFile.model_validate_json(path.read_text(encoding="utf-8-sig")).nodes
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValidationError as error:
        raise InputError(f"{path} does not describe tools: {words_of(error)}") from error
    gold = read_records(folder / GOLD) if (folder / GOLD).is_file() else []
    rows = read_records(folder / REQUESTS) if (folder / REQUESTS).is_file() else gold
    if not rows:
        raise InputError(f"{folder} holds no requests: {REQUESTS} and {GOLD} are missing or empty")
    try:
        plans = {str(record.get("id")): read_plan(record) for record in gold}
    except InputError as error:
        raise InputError(f"{folder / GOLD}: {error}") from error
    return Bench(
        specs={tool.id: spec_of(tool) for tool in tools},
        requests={
            str(row["id"]): str(row.get("user_request") or row.get("instruction") or "") for row in rows
        },
        gold=plans,
        types={str(record["id"]): str(record.get("type") or "") for record in gold},
    )


def read_plan(record: Mapping[str, Any]) -> list[Task]:
    """The plan of a record, whose arguments have numbers for names. Raises InputError: it is malformed."""
    nodes = record.get("task_nodes")
    if "id" not in record or not isinstance(nodes, list):
        raise InputError(f"a TaskBench plan has `id` and `task_nodes`; this one has {sorted(record)}")
    return [_task(node, place, record["id"]) for place, node in enumerate(nodes)]


def _task(node: Any, place: int, record: Any) -> Task:
    if not isinstance(node, Mapping) or not isinstance(node.get("task"), str):
        raise InputError(f"a node of the plan {record} is not an object with a `task`: {node!r}")
    items = node.get("arguments") or []
    texts = map(_argument_text, items if isinstance(items, list) else [items])
    return Task(task=node["task"], id=place, args={str(number): text for number, text in enumerate(texts)})


def _argument_text(argument: Any) -> str:
    """An argument as TaskBench reads it: a node, the first value of an object, the items of a list."""
    if isinstance(argument, Mapping):
        argument = next(iter(argument.values()), "")
    text = " ".join(map(str, argument)) if isinstance(argument, list) else str(argument)
    node = _NODE.search(text)
    return ref(int(node[1])) if node else text


def spec_of(tool: Tool) -> TaskSpec:
    """Return a tool as a task type, with the arguments of the Hub's task of its name if the kinds agree.

    Kinds that are not resources, such as "url", are text.
    """
    takes = [kind.lower() for kind in tool.takes]
    spec = find_task(tool.id)
    needed = [split_kind(arg.kind)[0] for arg in spec.inputs if arg.required] if spec else []
    if spec is not None and Counter(needed) == Counter(takes):
        inputs = tuple(arg for arg in spec.inputs if arg.required or arg.kind == "text")
    else:
        inputs = tuple(_arguments(takes))
    return TaskSpec(
        name=tool.id,
        category="tool",
        description=tool.desc or tool.id,
        inputs=inputs,
        outputs=tuple(_KINDS.get(kind.lower(), "text") for kind in tool.makes),
    )


def _arguments(kinds: list[str]) -> Iterator[Arg]:
    """One argument per input kind: text, context, text3, …"""
    seen: Counter[str] = Counter()
    for kind in kinds:
        seen[kind] += 1
        second = "context" if kind == "text" else f"{kind}2"
        name = {1: kind, 2: second}.get(seen[kind], f"{kind}{seen[kind]}")
        yield Arg(name, _KINDS.get(kind, "text"))


def score_folder(bench: Bench, predictions: Mapping[str, Prediction], name: str) -> list[EvaluationReport]:
    """Score the predictions, by id: a report on all of them, then one for each type of gold plan."""
    scored = {record: predictions[record] for record in bench.gold if record in predictions}

    def report(label: str, members: dict[str, Prediction], asked: Iterable[Prediction]) -> EvaluationReport:
        scores = [score(bench.gold[record], prediction.plan) for record, prediction in members.items()]
        empty = sum(not prediction.plan for prediction in members.values())
        return report_on(label, scores, FIGURES, [*asked], unanswered=empty)

    reports = [report(name, scored, predictions.values())]
    types = sorted({bench.types[record] for record in scored}, key=lambda kind: (*TYPES, kind).index(kind))
    for kind in types if len(types) > 1 else ():
        members = {record: prediction for record, prediction in scored.items() if bench.types[record] == kind}
        reports.append(report(kind, members, members.values()))
    return reports
