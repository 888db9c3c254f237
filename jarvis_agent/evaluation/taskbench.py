"""A TaskBench folder: its tools as task types, its requests, and their gold plans if they are there.

    bench = read_folder(Path("data_huggingface"))
    bench.requests["57993067"]         # "I need to identify and label objects in …"
    bench.specs["Object Detection"]    # a TaskSpec, for any planner

TaskBench (Shen et al., "TaskBench: Benchmarking Large Language Models for Task Automation", 2023) writes one
JSON object a line in `data.json` (gold plans) and `user_requests.json`, and one object in `tool_desc.json`.
`graph_desc.json` is not read: it holds the pairs of tools of which one makes what the other takes, and that
`tool_desc.json` says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jarvis_agent.core.errors import InputError
from jarvis_agent.evaluation.graphs import PlanGraph, read_graph
from jarvis_agent.evaluation.jsonl import records_in, text_of
from jarvis_agent.core.tasks.spec import Arg, Modality, TaskSpec
from jarvis_agent.core.tasks.registry import find_task
from jarvis_agent.core.types import Frozen

TOOLS, GOLD, REQUESTS = "tool_desc.json", "data.json", "user_requests.json"

_KINDS: Mapping[str, Modality] = {"text": "text", "image": "image", "audio": "audio", "video": "video"}


class Bench(Frozen):
    """What a folder holds.

    Attributes:
        specs: its tools as task types, under the tools' own names.
        makes: by tool, the kind that it makes first; "none" if it makes nothing.
        requests: by id.
        gold: the gold plans; empty if the folder has none.
    """

    specs: dict[str, Any]
    makes: dict[str, str]
    requests: dict[str, str]
    gold: tuple[PlanGraph, ...]


def read_folder(folder: Path) -> Bench:
    """Read a folder. Requests come from `user_requests.json`, or else from the gold records.

    Raises:
        InputError: a file is missing or can not be read; the message names it, and the line.
    """
    tools = _tools(folder / TOOLS)
    gold = list(records_in(folder / GOLD)) if (folder / GOLD).is_file() else []
    asked = list(records_in(folder / REQUESTS)) if (folder / REQUESTS).is_file() else gold
    if not asked:
        raise InputError(
            f"{folder} holds no requests: neither {REQUESTS} nor {GOLD} is there, or both are empty"
        )
    try:
        plans = tuple(map(read_graph, gold))
    except InputError as error:
        raise InputError(f"{folder / GOLD}: {error}") from error
    return Bench(
        specs={tool["id"]: spec_of(tool) for tool in tools},
        makes={tool["id"]: next(iter(tool["output-type"]), "none") for tool in tools},
        requests={str(record["id"]): _request(record) for record in asked},
        gold=plans,
    )


def _tools(path: Path) -> list[dict[str, Any]]:
    tools = _object(path).get("nodes")
    if not isinstance(tools, list) or not tools:
        raise InputError(f"{path} describes no tools: it should be an object with `nodes`")
    for number, tool in enumerate(tools, 1):
        if not isinstance(tool, dict) or not isinstance(tool.get("id"), str):
            raise InputError(f"{path}, tool {number}, is no object with an `id`")
        if "parameters" in tool and "input-type" not in tool:
            raise InputError(
                f'{path}: the tool "{tool["id"]}" has `parameters`, and not what it takes and makes. '
                "Only plans of tools that hand on what they make can be scored (TaskBench's Hugging Face and "
                "multimedia tools), not of those that follow each other in time (its daily life APIs)"
            )
        for kinds in ("input-type", "output-type"):
            if not _is_texts(tool.get(kinds)):
                raise InputError(f'{path}: the tool "{tool["id"]}" has no `{kinds}`, a list of kinds')
    return tools


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _request(record: Mapping[str, Any]) -> str:
    return str(record.get("user_request") or record.get("instruction") or "")


def spec_of(tool: Mapping[str, Any]) -> TaskSpec:
    """A tool as a task type; its arguments are those of the Hub's task of its name, where the kinds agree.

    Kinds that are no resource of ours, such as "url", are texts; small and capital letters are the same.
    """
    takes = [kind.lower() for kind in tool["input-type"]]
    known = find_task(tool["id"])
    if known is not None and Counter(arg.kind for arg in known.inputs if arg.required) == Counter(takes):
        inputs = tuple(arg for arg in known.inputs if arg.required or arg.kind == "text")
    else:
        inputs = tuple(_arguments(takes))
    return TaskSpec(
        name=tool["id"],
        category="tool",
        description=str(tool.get("desc") or tool["id"]),
        inputs=inputs,
        outputs=tuple(_KINDS.get(kind.lower(), "text") for kind in tool["output-type"]),
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
        yield Arg(name, _KINDS.get(kind, "text"))


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(text_of(path))
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} is no JSON object")
    return found
