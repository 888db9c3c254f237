"""PlanRequest: the input of a planning chain.

PlanRequest.of("Describe a.jpg")
PlanRequest.of([HumanMessage("hi"), AIMessage("hello"), HumanMessage("Describe a.jpg")])
PlanRequest.of({"input": "Describe it", "files": ["a.jpg"], "chat_history": [HumanMessage("hi")]}, specs)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Required

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages.utils import convert_to_messages
from typing_extensions import TypedDict

from jarvis_agent.core.content import is_data_url
from jarvis_agent.core.context import ChatTurn, turns_of
from jarvis_agent.core.errors import InputError, PlanError
from jarvis_agent.core.file_mentions import NameIndex, mentions, split_pages
from jarvis_agent.core.notes import Note
from jarvis_agent.core.request import Request
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.from_tool import spec_of
from jarvis_agent.core.tasks.registry import TASKS, find_task, known_task
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Resource
from jarvis_agent.media.access import QUOTES
from jarvis_agent.media.detect import kind_by_name

Tools = Iterable[Any] | Mapping[str, Any] | None
"""Task types: names, TaskSpecs or LangChain tools, or a mapping of them by name. None: all of the Hub's."""


class PlanInput(TypedDict, total=False):
    """The input of a planner.

    Attributes:
        input: the request.
        files: its files: Resources, paths or URLs.
        chat_history: earlier messages or ChatTurns, or a BaseChatMessageHistory.
        tools: the task types that the plan may use (see Tools).
    """

    input: Required[str]
    files: Sequence[Any]
    chat_history: Any
    tools: Any


_FORMS = 'a planner takes a text, messages, or a dict such as {"input": "…", "files": ["a.jpg"]}'


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request to be planned: its text, earlier turns of the chat, and the task types by name."""

    text: str
    files: tuple[Resource, ...] = ()
    """`name` is their spelling in the plan. One without a path, but for a URL, is missing."""
    turns: tuple[ChatTurn, ...] = ()
    specs: Mapping[str, TaskSpec] = field(default_factory=lambda: TASKS)
    has_all_files: bool = False
    """Whether the files were given, and not only found in the text."""

    @classmethod
    def of(cls, value: Any, specs: Mapping[str, TaskSpec] | None = None) -> PlanRequest:
        """Read the input of a planning chain: a PlanInput, a string, messages, a prompt value or a Request.

        Other keys are ignored. Without "files", those that the request names are used; without "tools",
        `specs`, or all task types of the Hub. Raises InputError for another form, ConfigError for a tool.
        """
        if isinstance(value, PlanRequest):
            return value
        inputs = _inputs(value)
        text, files, tools = inputs["input"].strip(), inputs.get("files"), inputs.get("tools")
        named = mentions(text) if files is None else files
        if isinstance(named, str | Resource) or not isinstance(named, Iterable):
            named = [named]
        if tools is not None or specs is None:
            specs = task_specs(tools)
        turns = _turns(inputs.get("chat_history") or ())
        return cls(text, tuple(map(_resource, named)), turns, specs, has_all_files=files is not None)


def task_specs(tools: Tools, *, any_name: bool = False) -> Mapping[str, TaskSpec]:
    """The task types of tools, by name; all task types of the Hub for None.

    With `any_name`, a name that is no task type is a tool with unknown arguments and outputs. Otherwise it
    raises ConfigError, whose message has similar names.
    """
    if tools is None:
        return TASKS
    if isinstance(tools, Mapping):
        tools = [name if tool is None else tool for name, tool in tools.items()]

    def spec(tool: Any) -> TaskSpec:
        own = tool if isinstance(tool, TaskSpec) else getattr(tool, "spec", None)
        if isinstance(own, TaskSpec):
            return own
        if not isinstance(tool, str):
            return find_task(tool.name) or spec_of(tool)
        if any_name:
            return find_task(tool) or TaskSpec(tool, "tool", "", (), ())
        return known_task(tool)

    return {each.name: each for each in map(spec, [tools] if isinstance(tools, str) else tools)}


def _inputs(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping) and isinstance(value.get("input"), str):
        return value
    if isinstance(value, Mapping) and not value.get("messages"):
        raise InputError(f"{_FORMS}, not {str(value)[:100]!r}")
    try:
        request = Request.of(value)
    except InputError as error:
        raise InputError(f"{_FORMS}, not {str(value)[:100]!r}") from error
    if request.blocks:
        raise InputError('a planner reads text only; name images and other files in "files"')
    return {"input": request.text, "files": request.files or None, "chat_history": request.history}


def _resource(file: Any) -> Resource:
    if isinstance(file, Resource):
        return file
    if not isinstance(file, str | PurePath):
        raise InputError(f"a file is given as a path, a URL or a Resource, not as {type(file).__name__}")
    name = str(file)
    return Resource(kind=kind_by_name(name), path=None if "://" in name[:8] else Path(file), name=name)


def _turns(history: Any) -> tuple[ChatTurn, ...]:
    if isinstance(history, BaseChatMessageHistory):
        history = history.messages
    try:
        if isinstance(history, str | Mapping):
            raise TypeError
        turns = [turn if isinstance(turn, ChatTurn) else convert_to_messages([turn])[0] for turn in history]
    except (NotImplementedError, ValueError, KeyError, TypeError) as error:
        raise InputError(f'"chat_history" is a list of messages, not {str(history)[:100]!r}') from error
    return turns_of(turns)


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

        names = FileNames.of(request, settings)
        names.find("examples.jpg", "image")     # "example.jpg": one letter differs
        names.find("zoo.jpg", "image")          # PlanError: there is no file "zoo.jpg"; the files are …

    A name only ever becomes that of a file of the request or its chat. Whether that may be read is decided
    when a task runs (`jarvis_agent.media.access`).
    """

    kinds: Mapping[str, str]
    """The kind of each file by its name in a plan."""
    others: frozenset[str]
    """Further spellings of all files, without their folders."""
    is_closed: bool
    """Whether a plan may name no other files."""
    is_final: bool = False
    """Whether that holds for texts that are names, too."""

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
            frozenset(_bare(spelling) for file in files for spelling in (file.name, str(file.path or ""))),
            not settings.allowed_dirs and (request.has_all_files or bool(kinds)),
        )

    def with_files(self, files: Iterable[Resource]) -> FileNames:
        """These names, and the paths of files that a run has made. A plan may name no other file."""
        paths = {str(file.path): file.kind for file in files}
        kinds, others = {**self.kinds, **paths}, self.others | set(map(_bare, paths))
        return replace(self, kinds=kinds, others=others, is_closed=True, is_final=True)

    def find(self, name: str, kind: str) -> str:
        """The name of the available file that is meant; `name` itself if it is known, or may be.

        Raises PlanError without such a file, or exactly one of this kind with nearly the same name; or if a
        picture or a recording stands where a text is needed.
        """
        whole, pages = split_pages(plain := name.strip(QUOTES))
        if pages is not None and name not in self.kinds:
            return self.find(whole, kind) + plain.removeprefix(whole)
        if kind == "text" and (its := self.kinds.get(name)) in _NO_TEXTS:
            raise PlanError(f'"{name}" is only the name of the {its}, and not a text')
        if name in self.kinds or _bare(name) in self.others or is_data_url(name):
            return name
        alike = NameIndex(((_bare(known), known) for known in self.kinds), loose=True).find(_bare(name))
        accepted = set(self.kinds.values()) if kind == "file" else _ACCEPTED.get(kind, {kind, "file"})
        of_kind = (known for known, its in self.kinds.items() if its in accepted)
        close = alike or [known for known in of_kind if _is_close(_bare(name), _bare(known))]
        if len(close) == 1:
            return close[0]
        if not self.is_final and (kind == "text" or not self.is_closed):
            return name
        listed = ", ".join(f'"{known}"' for known in list(self.kinds)[:_MAX_LISTED])
        others = Note("the files are {files}", files=listed) if listed else Note("the request has no files")
        raise PlanError("there is no file {file}; {others}", file=f'"{name[:80]}"', others=others)


def name_of(file: Resource) -> str:
    """The spelling of a file in a plan."""
    return file.name or str(file.path or "")


def _bare(name: str) -> str:
    return PurePosixPath(name.strip(QUOTES).replace("\\", "/")).name


def _is_close(name: str, other: str) -> bool:
    """Whether two names differ by extension, case, or one letter. Digits count: e1.jpg is not e2.jpg."""
    a, b = PurePosixPath(name.lower()), PurePosixPath(other.lower())
    if a.stem == b.stem:
        return True
    if min(len(a.stem), len(b.stem)) < _MIN_STEM or abs(len(a.name) - len(b.name)) > 1:
        return False
    matcher = SequenceMatcher(None, a.name, b.name, autojunk=False)
    edits = [edit for edit in matcher.get_opcodes() if edit[0] != "equal"]
    rests = [rest for _, i, j, k, end in edits for rest in (a.name[i:j], b.name[k:end]) if rest]
    return len(edits) == 1 and all(len(rest) == 1 and rest.isalpha() for rest in rests)
