"""Rows of many files, of which the network sees three.

short, rows = shorten_rows(request)        # "Describe 1.jpg, …, 9.jpg" → "Describe 1.jpg, 2.jpg, 9.jpg"
tasks = repeat_tasks(tasks, rows)          # those of 2.jpg are repeated for 3.jpg to 8.jpg

The network learned from rows of up to five files. Of longer ones it leaves out files, or takes some twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

from jarvis_agent.core.file_mentions import split_names
from jarvis_agent.core.references import ref, refs_in, substitute
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.media.access import PATTERN
from jarvis_agent.planning.inputs import PlanRequest, name_of

_LONGEST = 5
_IN_ROW = re.compile(r"\W*\w{0,3}\W*")
"""What stands between two files of a row: at most one short word."""

Rows = Mapping[str, Sequence[str]]
"""By the second file of each row, those that are not shown."""


def shorten_rows(request: PlanRequest) -> tuple[PlanRequest, Rows]:
    """The request with files in place of their folder, and of each long row the first two and the last."""
    kinds = {name_of(file): file.kind for file in request.files}
    parts = split_names(_with_files_of_folders(request.text, request.files), kinds)
    text, names, gaps = parts[0], parts[1::2], parts[2::2]
    listed: list[list[int]] = []
    for number, name in enumerate(names):
        goes_on = number and kinds[names[number - 1]] == kinds[name] and _IN_ROW.fullmatch(gaps[number - 1])
        listed = [*listed[:-1], [*listed[-1], number]] if goes_on else [*listed, [number]]
    rows: dict[str, Sequence[str]] = {}
    for row in listed:
        shown = row
        if len({names[number] for number in row}) == len(row) > _LONGEST:
            rows[names[row[1]]] = [names[number] for number in row[2:-1]]
            shown = [*row[:2], row[-1]]
        text += "".join(names[n] if n == row[0] else gaps[n - 1] + names[n] for n in shown) + gaps[row[-1]]
    attached = sorted((name for name in kinds if name not in names), key=kinds.__getitem__)
    for _, same in groupby(attached, kinds.__getitem__):
        if len(row_of_kind := list(same)) > _LONGEST:
            rows[row_of_kind[1]] = row_of_kind[2:-1]
    hidden = {name for row in rows.values() for name in row}
    files = tuple(file for file in request.files if name_of(file) not in hidden)
    return replace(request, text=text, files=files), rows


def repeat_tasks(tasks: Sequence[Task], rows: Rows) -> list[Task]:
    """The tasks; those on the second file of each row come again for those that are not shown."""
    planned = list(tasks)
    for name, others in rows.items():
        planned = _repeated(planned, name, others)
    return planned


def _with_files_of_folders(text: str, files: Sequence[Resource]) -> str:
    """The text with the names of files in place of their folder or pattern: photos/, scans/*.jpg."""
    folders: dict[str, list[Resource]] = {}
    for file in files:
        if (name := name_of(file)) not in text:
            folders.setdefault(name[: max(name.rfind("/"), name.rfind("\\")) + 1], []).append(file)
    for folder, inside in folders.items():
        start = end = text.find(folder) if folder else -1
        if start >= 0:
            end = start + len(folder)
        elif folder[1:-1].count("/"):
            start, end = (place := text.find(folder[:-1])), place + len(folder) - 1
        pattern = PATTERN.match(text, end) if folder else PATTERN.search(text)
        if pattern and fnmatchcase(name_of(inside[0]).lower(), f"{folder}{pattern[0]}".lower()):
            start, end = (start if folder else pattern.start()), pattern.end()
        if start >= 0:
            names = ", ".join(map(name_of, sorted(inside, key=lambda file: file.kind)))
            text = text[:start] + names + text[end:]
    return text


def _repeated(tasks: Sequence[Task], name: str, others: Sequence[str]) -> list[Task]:
    """The tasks, numbered anew. Those on a file come again for the others; a list with it has them all."""
    repeated: list[Task] = []
    copies: dict[int, list[str]] = {}

    def add(args: Mapping[str, Any], task: Task) -> None:
        copies.setdefault(task.id, []).append(ref(len(repeated)))
        repeated.append(Task(task=task.task, id=len(repeated), dep=refs_in(args) or [-1], args=dict(args)))

    def with_others(value: Any) -> Any:
        if not isinstance(value, list):
            return substitute(value, lambda one: ", ".join(copies[one]))
        made = {ref(one): refs for one, refs in copies.items()} | {name: [name, *others]}
        return [one for item in value for one in made.get(item, [with_others(item)])]

    for task in tasks:
        refs = refs_in(task.args)
        if name in task.args.values() or (refs and all(len(copies[one]) > 1 for one in refs)):
            for number, other in enumerate((name, *others)):
                args = {key: other if value == name else value for key, value in task.args.items()}
                own = {one: refs[number % len(refs)] for one, refs in copies.items() if refs}
                add(substitute(args, own.__getitem__), task)
        else:
            add({key: with_others(value) for key, value in task.args.items()}, task)
    return repeated
