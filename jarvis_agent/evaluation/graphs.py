"""Plans as TaskBench writes them, and what there is to compare in two of them.

    graph = read_graph({"id": "7", "task_nodes": [{"task": "Translation", "arguments": ["Hi"]},
                                                  {"task": "Text-to-Speech", "arguments": ["<node-0>"]}]})
    links(graph)      # [("Translation", "Text-to-Speech")]
    graph_of(plan, specs, "7")    # one of our plans in that form

A link is what an argument `<node-j>` says: the node takes what node j (counted from 0) makes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jarvis_agent.core.errors import InputError
from jarvis_agent.planning.plan import Plan
from jarvis_agent.core.references import refs_in
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Frozen

_NODE = re.compile(r"<node-(\d{1,9})>")

_ENDINGS = {
    "image": ("jpg", "png", "jpeg", "gif", "bmp", "tiff", "svg", "ico"),
    "audio": ("mp3", "wav", "wma", "ogg", "aac", "flac", "aiff", "au"),
    "video": ("mp4", "avi", "mov", "flv", "wmv", "mkv", "webm", "m4v", "mpg", "mpeg"),
}
"""By what is found anywhere in an argument, TaskBench tells what it holds; in this order."""


class Node(Frozen):
    """A tool, and its arguments in their order: values as they are written, or `<node-j>`."""

    task: str
    arguments: tuple[str, ...] = ()


class PlanGraph(Frozen):
    """The plan of one request. `kind` is TaskBench's type of it: "single", "chain" or "dag"."""

    id: str
    nodes: tuple[Node, ...] = ()
    kind: str = ""


class Argument(Frozen):
    """What there is to compare of an argument: its kind, its value, and the node that it refers to."""

    kind: str
    value: str
    node: int | None = None


def read_graph(record: Mapping[str, Any]) -> PlanGraph:
    """A plan out of a record of TaskBench's: a gold one, or a prediction (where `result` holds the nodes).

    Raises:
        InputError: it has no `id`, or its nodes are not such as TaskBench writes.
    """
    held = record.get("result")
    nodes = (held if isinstance(held, Mapping) else record).get("task_nodes")
    if "id" not in record or not isinstance(nodes, list):
        raise InputError(f"a plan of TaskBench has `id` and `task_nodes`; this one has {sorted(record)}")
    return PlanGraph(
        id=str(record["id"]),
        nodes=tuple(_node(node, record["id"]) for node in nodes),
        kind=str(record.get("type") or ""),
    )


def _node(node: Any, record: Any) -> Node:
    if not isinstance(node, Mapping) or not isinstance(node.get("task"), str):
        raise InputError(f"a node of the plan {record} is no object with a `task`: {node!r}")
    given = node.get("arguments") or []
    listed = given if isinstance(given, list) else [given]
    return Node(task=node["task"], arguments=tuple(_text(value) for value in listed))


def _text(argument: Any) -> str:
    """An argument as text: of an object its first value, of a list its items in a row."""
    if isinstance(argument, Mapping):
        argument = next(iter(argument.values()), "")
    if isinstance(argument, list):
        return " ".join(map(str, argument))
    return str(argument)


def arguments(graph: PlanGraph, makes: Mapping[str, str]) -> list[list[Argument]]:
    """For each node its arguments.

    Args:
        makes: what each tool makes first, by its name ("none": nothing); a reference has that kind, and the
            name of the tool as its value. A reference to no node is a text like any other.
    """
    return [[_argument(value, graph, makes) for value in node.arguments] for node in graph.nodes]


def _argument(value: str, graph: PlanGraph, makes: Mapping[str, str]) -> Argument:
    place = referred(value)
    if place is None or place >= len(graph.nodes):
        return Argument(kind=kind_of(value), value=value, node=place)
    source = graph.nodes[place].task
    return Argument(kind=makes.get(source, "other"), value=source, node=place)


def referred(value: str) -> int | None:
    """The number in the first `<node-j>` of an argument; None if it has none."""
    found = _NODE.search(value)
    return int(found[1]) if found else None


def kind_of(value: str) -> str:
    """What an argument holds, by TaskBench's rule: the first ending that is found in it, else "text"."""
    bare = value.strip("'")
    return next((kind for kind, ends in _ENDINGS.items() if any(f".{end}" in bare for end in ends)), "text")


def links(graph: PlanGraph) -> list[tuple[str, str]]:
    """The links by the names of their tools; what refers to no other node of the plan stays as written."""
    return list(_links(graph))


def _links(graph: PlanGraph) -> Iterator[tuple[str, str]]:
    for place, node in enumerate(graph.nodes):
        for value in node.arguments:
            source = referred(value)
            if source is None:
                continue
            is_node = source < len(graph.nodes) and source != place
            yield (graph.nodes[source].task if is_node else f"<node-{source}>", node.task)


def graph_of(plan: Plan, specs: Mapping[str, TaskSpec], record: str) -> PlanGraph:
    """One of our plans in TaskBench's form; arguments in the order of the task's specification."""
    places = {task.id: place for place, task in enumerate(plan.tasks)}
    nodes = []
    for task in plan.tasks:
        known = [arg.name for arg in specs[task.task].inputs] if task.task in specs else []
        names = [*(name for name in known if name in task.args), *(n for n in task.args if n not in known)]
        written = [text for name in names for text in _written(task.args[name], places)]
        nodes.append(Node(task=task.task, arguments=tuple(written)))
    return PlanGraph(id=record, nodes=tuple(nodes))


def _written(value: Any, places: Mapping[int, int]) -> Iterator[str]:
    """An argument of ours as TaskBench's: a reference is the whole argument, a list is several."""
    if isinstance(value, list):
        for item in value:
            yield from _written(item, places)
    elif referred_ids := [ref for ref in refs_in(value) if ref in places]:
        yield from (f"<node-{places[ref]}>" for ref in referred_ids)
    elif value is not None:
        yield str(value)


def to_record(graph: PlanGraph, request: str = "") -> dict[str, Any]:
    """A prediction as TaskBench's script reads it (`result`), with the same nodes at its top too."""
    held: dict[str, Any] = {
        "task_nodes": [{"task": node.task, "arguments": list(node.arguments)} for node in graph.nodes],
        "task_links": [{"source": source, "target": target} for source, target in links(graph)],
    }
    return {"id": graph.id, "user_request": request, **held, "result": {"task_steps": [], **held}}
