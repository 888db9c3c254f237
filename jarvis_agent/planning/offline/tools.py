"""Tools that are not of the Hub: which of the Hub's tasks they perform, and what a step gives them.

A tool's name plays no role in recognition: types and descriptions decide. Arguments are never guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.references import ref, refs_in
from jarvis_agent.core.tasks.from_tool import REQUEST_NAMES
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec, split_kind
from jarvis_agent.core.types import Resource, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Encode = Callable[[Sequence[str]], NDArray[np.float32]]
    """Unit vectors (texts, 384) of texts."""

RECOGNISED, MEANT = 0.35, 0.42
"""Least cosine of a tool's description with the task it is recognised as, and with a step that means it."""

_STEPS = re.compile(
    r"(?:(?<=[.!?;])\s+|[。！？；\n]+|,?\s+(?:and then|then|and also|and)\s+|，(?:然后|再|并)?)"
)
_QUOTED = re.compile(r"[\"“「『](?P<double>[^\"”」』]+)[\"”」』]|(?<!\w)'(?P<single>[^']+)'(?!\w)")
REFERS_BACK = re.compile(
    r"\b(?:its?|that|this|them|their|those)\b|它|结果|这"
    r"|\bthe (?:result|answer|text|transcript|transcription|caption|description|summary|translation)\b",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(
    r"(?:^|_)(?:id|ids|number|no|code|key|to|email|address|phone|url|path|file|date|time|amount|price|count)$"
)
"""Names of arguments that hold one exact value."""
_PROPER_NAME = re.compile(r"\b(?:in|for|of|at|about|to)\s+((?:[A-Z][\w'’-]*)(?:\s+[A-Z][\w'’-]*){0,3})\W*$")


def recognise(specs: Mapping[str, TaskSpec], encode: Encode) -> dict[str, TaskSpec]:
    """The task types, where a tool that performs a task of the Hub has its name as the last alias.

    Each of the Hub's tasks is assigned to one tool at most, in the order of similarity.
    """
    tools = [spec for spec in specs.values() if spec.category == "tool" and spec.inputs]
    tools = [spec for spec in tools if all(arg.kind != "any" for arg in spec.inputs)]
    hub = [spec for spec in TASKS.values() if spec.name not in specs]

    def takes(spec: TaskSpec) -> Counter[str]:
        return Counter(split_kind(arg.kind)[0] for arg in spec.inputs if arg.required)

    pairs = [(tool, task) for tool in tools for task in hub if takes(tool) == takes(task)]
    pairs = [(tool, task) for tool, task in pairs if not tool.outputs or tool.outputs[0] in task.outputs]
    if not pairs:
        return dict(specs)
    # A task's name says as much as its description: people describe their tools by the names of the field.
    texts: dict[str, Sequence[str]] = {tool.name: (_about(tool),) for tool, _ in pairs}
    texts |= {task.name: (_words(task.name), task.description) for _, task in pairs}
    rows = iter(_vectors(encode, tuple(text for both in texts.values() for text in both)))
    vectors = {name: sum(next(rows) for _ in both) / len(both) for name, both in texts.items()}
    scored = [(float(vectors[tool.name] @ vectors[task.name]), tool.name, task.name) for tool, task in pairs]
    recognised, taken = dict(specs), set[str]()
    for score, tool, task in sorted(scored, reverse=True):
        if score >= RECOGNISED and not {tool, task} & taken:
            taken |= {tool, task}
            recognised[tool] = replace(specs[tool], aliases=(*specs[tool].aliases, task))
    return recognised


@lru_cache(maxsize=8)
def _vectors(encode: Encode, descriptions: tuple[str, ...]) -> NDArray[np.float32]:
    """The vectors of what is compared in each plan of the same tools."""
    return encode(descriptions)


def steps_of_tools(
    text: str, tools: Sequence[TaskSpec], others: Sequence[TaskSpec], encode: Encode
) -> tuple[list[tuple[str, TaskSpec]], str]:
    """The steps of a text that mean a tool, and the rest of the text.

    A step means the tool that it names, or whose description is nearest, also among the other task types.
    """
    steps = [step for step in _STEPS.split(text) if step.strip(" .,!?")]
    if not tools or not steps:
        return [], text
    specs = [*tools, *others]
    scores = encode(steps) @ _vectors(encode, tuple(map(_about, specs))).T
    meant: list[tuple[str, TaskSpec]] = []
    rest: list[str] = []
    for step, row in zip(steps, scores, strict=True):
        words = step.lower()
        named = [all(part in words for part in re.split(r"[\W_]+", spec.name.lower())) for spec in tools]
        best = max(range(len(specs)), key=lambda place: row[place] + (place < len(tools) and named[place]))
        if best < len(tools) and (row[best] >= MEANT or named[best]):
            meant.append((step.strip(" ,;"), specs[best]))
        else:
            rest.append(step)
    return meant, text if not meant else " ".join(rest)


def plan_tools(
    steps: Sequence[tuple[str, TaskSpec]],
    files: Sequence[Resource],
    tasks: Sequence[Task],
    specs: Mapping[str, TaskSpec],
) -> tuple[list[Task], list[Note]]:
    """The tasks of tools, after those of the rest of a request; and a note for each that lacks a value."""
    planned = list(tasks)
    notes: list[Note] = []
    for step, spec in steps:
        try:
            args = _arguments(spec, step, files, planned, specs)
        except PlanError as error:
            notes.append(Note("{step}: {reason}", step=f"“{step.strip(' .,!?')}”", reason=error.note))
        else:
            planned.append(Task(task=spec.name, id=len(planned), dep=refs_in(args) or [-1], args=args))
    return planned, notes


def _about(spec: TaskSpec) -> str:
    return spec.description or _words(spec.name)


def _words(name: str) -> str:
    return re.sub(r"[-_]+", " ", name)


def _arguments(
    spec: TaskSpec, step: str, files: Sequence[Resource], tasks: Sequence[Task], specs: Mapping[str, TaskSpec]
) -> dict[str, Any]:
    """The arguments of a tool that a step gives. Raises PlanError if it lacks a required one."""
    args: dict[str, Any] = {}
    named = [file for file in files if file.name and file.name in step]
    for arg in spec.inputs:
        experts = [task for task in tasks if arg.kind in MEDIA and task.task in TASKS]
        makers = [task for task in experts if TASKS[task.task].outputs[0] in split_kind(arg.kind)]
        if makers and not named:  # a step that names no file goes on with what was made
            args[arg.name] = ref(makers[-1].id)
        elif (value := _value(arg, step, named or files)) is not None:
            args[arg.name] = value
    missing = [arg for arg in spec.inputs if arg.required and arg.name not in args]
    if len(spec.required) > 1 and missing:
        names = ", ".join(spec.required)
        what = "{task} takes several arguments ({names}), which a language model must fill in"
        raise PlanError(what, task=spec.name, names=names)
    quoted, proper = _QUOTED.search(step), _PROPER_NAME.search(step)
    for arg in missing:
        name, value = arg.name.lower(), None
        if quoted:
            value = quoted["double"] or quoted["single"]
        elif arg.is_text or arg.kind == "text":
            texts = [file.name for file in named or files if file.kind == "text"]
            makers = [task for task in tasks if specs[task.task].makes("text")]
            if named:  # and not another result than theirs
                makers = [task for task in makers if any(file.name in values_of(task) for file in named)]
            if len(texts) == 1 and (named or not makers):
                value = texts[0]
            elif makers:
                value = ref(makers[-1].id)
        elif arg.kind == "any" and len(named) == 1 and (name not in REQUEST_NAMES or named[0].kind == "text"):
            value = named[0].name
        elif tasks and REFERS_BACK.search(step) and not _IDENTIFIER.search(name):
            value = ref(tasks[-1].id)
        elif name in REQUEST_NAMES and not named:
            value = step.strip(" .!?")
        elif proper and not _IDENTIFIER.search(name):
            value = proper[1]
        if value is None:
            what = "{task} needs {name}, which a language model must fill in"
            raise PlanError(what, task=spec.name, name=arg.name)
        args[arg.name] = value
    return args


def values_of(task: Task) -> list[Any]:
    """The values of the arguments, those of lists one by one."""
    return [item for value in task.args.values() for item in (value if isinstance(value, list) else [value])]


def _value(arg: Arg, step: str, files: Sequence[Resource]) -> str | None:
    """The file of the argument's kind, or the word with a digit after its name ("order 4711")."""
    if arg.kind in MEDIA:
        fitting = [file.name for file in files if file.kind in split_kind(arg.kind) or arg.kind == "file"]
        return fitting[0] if len(fitting) == 1 else None
    word = re.escape(arg.name.split("_")[0])
    pattern = rf"\b{word}\s*(?:id|number|no\.?|#|:|=)?\s*#?([\w-]*\d[\w-]*)"
    match = re.search(pattern, step, re.IGNORECASE) if _IDENTIFIER.search(arg.name.lower()) else None
    return match[1] if match else None
