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

from jarvis_agent.core.file_mentions import LETTER, last_words, split_names
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
    rows: list[list[int]] = []
    for place in range(1, len(parts), 2):
        is_next = place > 1 and kinds[parts[place - 2]] == kinds[parts[place]]
        if is_next and _IN_ROW.fullmatch(parts[place - 1]):
            rows[-1].append(place)
        else:
            rows.append([place])
    attached = sorted((name for name in kinds if name not in parts), key=kinds.__getitem__)
    listed = [[parts[place] for place in row] for row in rows]
    listed += [list(same) for _, same in groupby(attached, kinds.__getitem__)]
    hidden = {row[1]: row[2:-1] for row in listed if len(set(row)) == len(row) > _LONGEST}
    for row in reversed(rows):
        if len(row) > _LONGEST and parts[row[1]] in hidden:
            del parts[row[2] - 1 : row[-1] - 1]
    left_out = {name for names in hidden.values() for name in names}
    files = tuple(file for file in request.files if name_of(file) not in left_out)
    return replace(request, text="".join(parts), files=files), hidden


def _with_files_of_folders(text: str, files: Sequence[Resource]) -> str:
    """The text with the names of files in place of their folder or pattern: photos/, scans/*.jpg."""
    by_kind = sorted(files, key=lambda file: file.kind)
    names = [name for name in map(name_of, by_kind) if name not in text]
    folders = {name[: max(name.rfind("/"), name.rfind("\\")) + 1] for name in names} - {""}
    folders |= {folder[:-1] for folder in folders if "/" in folder[1:-1]}
    above = {name[: slash.end()] for name in names for slash in re.finditer(r"[/\\]", name)} - folders
    places = [*map(re.escape, sorted(folders, key=len, reverse=True))]
    places += [rf"{re.escape(folder)}(?=\*\*/)" for folder in sorted(above, key=len, reverse=True)]
    places += [rf"(?<!{LETTER}){word}(?!{LETTER})" for word in last_words(text) if f"{word}/" in folders]
    places.append(f"(?={PATTERN.pattern})")

    def listed(place: re.Match[str]) -> str:
        folder, pattern = place["folder"], (place["pattern"] or "*").lower().replace("**/", "*")
        inside = [name for name in names if name.startswith(folder)]
        return (
            ", ".join(name for name in inside if fnmatchcase(name[len(folder) :].lower(), pattern))
            or place[0]
        )

    return re.sub(f"(?P<folder>{'|'.join(places)})(?P<pattern>{PATTERN.pattern})?", listed, text)


def repeat_tasks(tasks: Sequence[Task], rows: Rows) -> list[Task]:
    """The tasks; those on the second file of each row come again for those that are not shown."""
    planned = list(tasks)
    for name, others in rows.items():
        planned = _repeated(planned, [name, *others])
    return planned


def _repeated(tasks: Sequence[Task], row: Sequence[str]) -> list[Task]:
    """The tasks with new numbers. Those on the first file come again for the others; lists have all."""
    repeated: list[Task] = []
    copies: dict[int, list[str]] = {}
    for task in tasks:
        refs = refs_in(task.args)
        is_copied = row[0] in task.args.values() or (refs and all(len(copies[one]) > 1 for one in refs))
        made = {ref(one): new for one, new in copies.items()} | {row[0]: list(row)}
        for number, name in enumerate(row if is_copied else row[:1]):
            own = {
                one: new[number % len(new)] if is_copied else ", ".join(new) for one, new in copies.items()
            }
            args = {
                key: [part for item in value for part in made.get(str(item)) or [substitute(item, own.get)]]
                if isinstance(value, list)
                else substitute(name if value == row[0] else value, own.get)
                for key, value in task.args.items()
            }
            copies.setdefault(task.id, []).append(ref(len(repeated)))
            repeated.append(Task(task=task.task, id=len(repeated), dep=refs_in(args) or [-1], args=args))
    return repeated
