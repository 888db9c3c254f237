"""FileNames: the files that a plan may name, and the one that a slightly different name means.

    names = FileNames.of(request, settings)
    names.find("examples.jpg", "image")     # "example.jpg": one letter differs
    names.find("zoo.jpg", "image")          # PlanError: there is no file "zoo.jpg"; the files are …

A name only ever becomes that of a file of the request or its chat. Whether that may be read is decided when a
task runs (`jarvis_agent.media.access`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import PurePosixPath

from jarvis_agent.core.errors import PlanError
from jarvis_agent.core.file_mentions import mentions
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.media.access import QUOTES
from jarvis_agent.media.detect import kind_by_name
from jarvis_agent.planning.inputs import PlanRequest

_MAX_LISTED = 20
_MIN_STEM = 3
"""Minimum length of a name without its extension for a letter to be wrong: a.jpg is not b.jpg."""

_ACCEPTED = {"audio": {"audio", "video", "file"}, "text": {"text", "table", "data", "file"}}
"""Kinds of files by kind of argument, where they are not only the same kind and unknown ones."""

_NO_TEXTS = ("image", "audio", "video")
"""Kinds of files that are not read as texts."""


@dataclass(frozen=True, slots=True)
class FileNames:
    """The names of available files with their kinds.

    Attributes:
        kinds: the kind of each file by its name in a plan.
        given: names of the files of the request itself.
        others: further spellings of them.
        is_closed: whether a plan may name no other files.
    """

    kinds: Mapping[str, str]
    given: frozenset[str]
    others: frozenset[str]
    is_closed: bool

    @classmethod
    def of(cls, request: PlanRequest, settings: Settings) -> FileNames:
        """The files of a request, and those of its chat. With `allowed_dirs`, a plan may name others."""
        files = [*request.files, *(made for turn in request.turns for made in turn.resources)]
        written = [name for turn in request.turns for name in mentions(f"{turn.request}\n{turn.answer}")]
        files += [Resource(kind=kind_by_name(name), name=name) for name in written]
        kinds: dict[str, str] = {}
        for file in files:
            kinds.setdefault(name_of(file), file.kind)
        return cls(
            kinds,
            frozenset(map(name_of, request.files)),
            frozenset(_bare(spelling) for file in files for spelling in (file.name, str(file.path or ""))),
            not settings.allowed_dirs and (request.has_all_files or bool(kinds)),
        )

    def find(self, name: str, kind: str) -> str:
        """The name of the available file that is meant; `name` itself if it is known, or may be.

        Raises:
            PlanError: there is no such file, nor exactly one of this kind with nearly the same name; or a
                picture or a recording stands where a text is needed.
        """
        if kind == "text" and (its := self.kinds.get(name)) in _NO_TEXTS:
            raise PlanError(f'"{name}" is only the name of the {its}, and not a text')
        if name in self.kinds or _bare(name) in self.others or name.startswith("data:"):
            return name
        close = [known for known in self._of_kind(kind) if _is_close(_bare(name), _bare(known))]
        if len(close) == 1:
            return close[0]
        if kind == "text" or not self.is_closed:
            return name
        raise PlanError(f'there is no file "{name[:80]}"; {self._listed()}')

    def only(self, kind: str) -> str | None:
        """The only file of this kind that the request itself has."""
        found = [name for name, its in self.kinds.items() if name in self.given and its == kind]
        return found[0] if len(found) == 1 else None

    def _of_kind(self, kind: str) -> Iterable[str]:
        accepted = _ACCEPTED.get(kind, {kind, "file"})
        return (name for name, its in self.kinds.items() if kind == "file" or its in accepted)

    def _listed(self) -> str:
        listed = ", ".join(f'"{name}"' for name in list(self.kinds)[:_MAX_LISTED])
        return f"the files are {listed}" if listed else "the request has no files"


def name_of(file: Resource) -> str:
    """The spelling of a file in a plan."""
    return file.name or str(file.path or "")


def _bare(name: str) -> str:
    return PurePosixPath(name.strip(QUOTES).replace("\\", "/")).name


def _is_close(name: str, other: str) -> bool:
    """Whether two names differ by extension, case, or one letter."""
    a, b = PurePosixPath(name.lower()), PurePosixPath(other.lower())
    return a.stem == b.stem or (
        min(len(a.stem), len(b.stem)) >= _MIN_STEM and _differ_by_letter(a.name, b.name)
    )


def _differ_by_letter(a: str, b: str) -> bool:
    """Whether one letter is added, left out or replaced. Digits count as numbers: e1.jpg is not e2.jpg."""
    if abs(len(a) - len(b)) > 1:
        return False
    edits = [edit for edit in SequenceMatcher(None, a, b, autojunk=False).get_opcodes() if edit[0] != "equal"]
    rests = [rest for _, i, j, k, end in edits for rest in (a[i:j], b[k:end]) if rest]
    return len(edits) == 1 and all(len(rest) == 1 and rest.isalpha() for rest in rests)
