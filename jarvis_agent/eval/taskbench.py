"""A TaskBench folder: its tools as task types, its requests, and their gold plans if they are there.

    bench = read_folder(Path("data_huggingface"))
    bench.requests["57993067"]         # "I need to identify and label objects in …"
    bench.specs["Object Detection"]    # a TaskSpec, for any planner

TaskBench (Shen et al., "TaskBench: Benchmarking Large Language Models for Task Automation", 2023) writes one
JSON object a line in `data.json` (gold plans) and `user_requests.json`, and one object in `tool_desc.json`
and `graph_desc.json`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jarvis_agent.errors import InputError
from jarvis_agent.eval.graphs import PlanGraph, read_graph
from jarvis_agent.eval.lines import records_in, text_of
from jarvis_agent.tools.spec import Arg, TaskSpec
from jarvis_agent.tools.table import find_task
from jarvis_agent.types import Frozen

TOOLS, LINKS, GOLD, REQUESTS = "tool_desc.json", "graph_desc.json", "data.json", "user_requests.json"

_KINDS = ("text", "image", "audio", "video")


class Bench(Frozen):
    """What a folder holds.

    Attributes:
        specs: its tools as task types, under the tools' own names.
        makes: by tool, the kind that it makes first; "none" if it makes nothing.
        links: which tool can feed which, as (source, target).
        requests: by id.
        gold: the gold plans; empty if the folder has none.
    """

    specs: dict[str, Any]
    makes: dict[str, str]
    links: frozenset[tuple[str, str]]
    requests: dict[str, str]
    gold: tuple[PlanGraph, ...]


def read_folder(folder: Path) -> Bench:
    """Read a folder. Requests come from `user_requests.json`, or else from the gold records.

    Raises:
        InputError: a file is missing or can not be read; the message names it, and the line.
    """
    tools = _object(folder / TOOLS).get("nodes")
    if not isinstance(tools, list) or not tools:
        raise InputError(f"{folder / TOOLS} describes no tools: it should be an object with `nodes`")
    gold = list(records_in(folder / GOLD)) if (folder / GOLD).is_file() else []
    asked = list(records_in(folder / REQUESTS)) if (folder / REQUESTS).is_file() else gold
    if not asked:
        raise InputError(
            f"{folder} holds no requests: neither {REQUESTS} nor {GOLD} is there, or both are empty"
        )
    links = _object(folder / LINKS).get("links", []) if (folder / LINKS).is_file() else []
    return Bench(
        specs={tool["id"]: spec_of(tool) for tool in tools},
        makes={tool["id"]: next(iter(tool["output-type"]), "none") for tool in tools},
        links=frozenset((link["source"], link["target"]) for link in links),
        requests={str(record["id"]): _request(record) for record in asked},
        gold=tuple(read_graph(record) for record in gold),
    )


def _request(record: Mapping[str, Any]) -> str:
    return str(record.get("user_request") or record.get("instruction") or "")


def spec_of(tool: Mapping[str, Any]) -> TaskSpec:
    """A tool as a task type; its arguments are those of the Hub's task of its name, where the kinds agree."""
    kinds = [kind for kind in tool["input-type"] if kind in _KINDS]
    known = find_task(tool["id"])
    if known is not None and Counter(arg.kind for arg in known.inputs if arg.required) == Counter(kinds):
        inputs = tuple(arg for arg in known.inputs if arg.required or arg.kind == "text")
    else:
        inputs = tuple(_arguments(kinds))
    return TaskSpec(
        name=tool["id"],
        category="tool",
        description=str(tool.get("desc") or tool["id"]),
        inputs=inputs,
        outputs=tuple(kind for kind in tool["output-type"] if kind in _KINDS),
    )


def _arguments(kinds: list[str]) -> Iterator[Arg]:
    seen: Counter[str] = Counter()
    for kind in kinds:
        seen[kind] += 1
        name = (
            kind
            if seen[kind] == 1
            else "context"
            if kind == "text" and seen[kind] == 2
            else f"{kind}{seen[kind]}"
        )
        yield Arg(name, kind)  # type: ignore[arg-type]


def read_predictions(path: Path) -> dict[str, PlanGraph]:
    """Predictions by id, one JSON object a line; a later one of the same id counts.

    Raises:
        InputError: the file can not be read; the message names the line.
    """
    return {graph.id: graph for graph in map(read_graph, records_in(path))}


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(text_of(path))
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} is no JSON object")
    return found
