"""What comes in: a Request, and the RunContext that the stages work from.

Request.of("How many cats are in a.jpg?")
Request.of({"input": "…", "files": ["a.jpg"], "chat_history": [HumanMessage("hi"), AIMessage("hello")]})
Request.of({"messages": [HumanMessage([{"type": "text", "text": "…"}, {"type": "image", "url": "…"}])]})
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_core.runnables import RunnableConfig
from pydantic import Field, ValidationError, field_validator

from jarvis_agent.core.errors import InputError, describe_error
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Frozen, Resource, Usage

# Letters of the scripts in which words follow one another, or a name, without a space: 描述猫.jpg里的图.
_EAST = "\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = rf"[^\W{_EAST}]"
# Beside letters: marks of decomposed letters (NFD, as macOS writes them), of Indic scripts and of Thai.
_IN_PATH = r"\w.~/\\@+=\-\u0300-\u036f\u0900-\u0e7f"
_SUFFIX = r"\.[A-Za-z][A-Za-z0-9]{1,4}"
_NAME_ENDS = rf"{_SUFFIX}(?=[{_EAST}])"
_IN_URL = r"[^\s\"'<>「」，。、（）【】《》；：？！“”‘’]"
_URL = re.compile(rf"https?://(?:(?!{_NAME_ENDS}){_IN_URL})+(?:{_NAME_ENDS})?", re.IGNORECASE)
_QUOTED = re.compile(rf"\"([^\"\n]+)\"|(?<!{_LETTER})'([^'\n]+)'(?!{_LETTER})|“([^“”\n]+)”|`([^`\n]+)`")
# Letters of paths are read in runs, each once, so that a long text takes no longer than its length. A run
# ends before a script without spaces; the name in it ends with its last suffix.
_RUN = re.compile(
    rf"(?:(?<![{_IN_PATH}])[A-Za-z]:)?(?:(?!{_NAME_ENDS})[{_IN_PATH}])+(?:{_NAME_ENDS})?|{_NAME_ENDS}"
)
_PATH = re.compile(rf".*[\w~\-\u0300-\u036f\u0900-\u0e7f]{_SUFFIX}(?!\.*{_LETTER})")
_LONGEST_PATH = 1000
_ENDS_IN_SUFFIX = re.compile(rf"{_SUFFIX}\Z")
_LAST_STRETCH = re.compile(rf"(?:[{_EAST}]+|[^{_EAST}]*)$")
_STOPS = ".,;:!?"

_FORMS = 'a request is a text, or a dict such as {"input": "…", "files": ["a.jpg"]} or {"messages": […]}'
_TAKES = {
    "input": "a text",
    "files": "a path or URL, or a list of them",
    "chat_history": 'a list of messages such as {"role": "user", "content": "…"}',
    "messages": 'a list of messages such as {"role": "user", "content": "…"}',
}
_LONGEST_SHOWN = 100

MOST_NAMES = 256
"""Files and addresses that the words of a request may name: no plan has more tasks."""


class Request(Frozen):
    """A request to the agent.

    Attributes:
        input: the request in plain words.
        files: paths or http(s) URLs that come with it; a single one may stand without a list.
        chat_history: earlier messages of the chat, oldest first.
        messages: LangChain messages instead of `input`; the last human one is the request, with its image
            and audio content blocks as files, and the ones before it are the history.
    """

    input: str = ""
    files: list[str] = Field(default_factory=list)
    chat_history: list[AnyMessage] = Field(default_factory=list)
    messages: list[AnyMessage] = Field(default_factory=list)

    @field_validator("chat_history", "messages", mode="before")
    @classmethod
    def _as_messages(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        # A dict with a "type" is a dumped message, which pydantic reads; others are short forms.
        dumped = [isinstance(item, dict) and "type" in item for item in value]
        return [
            item if is_dumped else convert_to_messages([item])[0]
            for item, is_dumped in zip(value, dumped, strict=True)
        ]

    @field_validator("files", mode="before")
    @classmethod
    def _as_strings(cls, value: Any) -> Any:
        if isinstance(value, str | PurePath):
            return [str(value)]
        return [str(item) for item in value] if isinstance(value, list | tuple) else value

    @classmethod
    def of(cls, value: str | Mapping[str, Any] | Request | list[BaseMessage] | BaseMessage) -> Request:
        """Anything that `JarvisAgent.invoke` takes, as a Request.

        Raises:
            InputError: the value has another form; the message names the field, and what it takes.
        """
        if isinstance(value, Request):
            return value
        if isinstance(value, str):
            return cls(input=value)
        if isinstance(value, BaseMessage):
            value = [value]
        if isinstance(value, list):
            value = {"messages": value}
        try:
            return cls.model_validate(value)
        except (ValidationError, NotImplementedError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{_FORMS}; {_fault(error)}") from error

    @property
    def text(self) -> str:
        """The request's words, whichever field they came in."""
        if self.input.strip():
            return self.input.strip()
        last = self._last_human()
        return str(self.messages[last].text).strip() if last is not None else ""

    @property
    def history(self) -> list[BaseMessage]:
        """The messages before the request."""
        last = self._last_human() if not self.input.strip() else None
        earlier = self.messages[:last] if last is not None else self.messages
        return [*self.chat_history, *earlier]

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """Content blocks of the request's message that are not text: images, audio, video, files."""
        last = self._last_human()
        return [] if last is None or self.input.strip() else media_blocks(self.messages[last])

    def _last_human(self) -> int | None:
        places = [i for i, message in enumerate(self.messages) if isinstance(message, HumanMessage)]
        return places[-1] if places else None


def _fault(error: Exception) -> str:
    """What is wrong with a value that is no request, for people."""
    if not isinstance(error, ValidationError):
        # LangChain adds an address of its manual in the lines below the first.
        return f"a message of this one can not be read: {_shown(describe_error(error).splitlines()[0])}"
    first = error.errors(include_url=False)[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    if field in _TAKES:
        return f"{field}: this takes {_TAKES[field]}, not {_shown(repr(first['input']))}"
    if field:
        return f"{field}: there is no such field"
    return f"this one can not be read: {first['msg']}"


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def media_blocks(message: BaseMessage) -> list[dict[str, Any]]:
    """The content blocks of a message that are not text, in LangChain's standard form if they have one."""
    try:
        blocks: list[Any] = list(message.content_blocks)
    except (KeyError, TypeError, ValueError):
        # A block that lacks a part of its form: whoever opens it can say so.
        blocks = [block for block in message.content if isinstance(block, dict)]
    return [dict(block) for block in blocks if block.get("type") != "text"]


def mentions(text: str, is_file: Callable[[str], bool] = lambda name: False) -> list[str]:
    """The URLs and file names that a text names, in its order, each once.

    File names are words with an extension ("e1.jpg", "./a/b.wav"), or quoted text that has one
    ("my photo.png"). Where words stand before a name without a space ("描述照片1.jpg"), it is the longest
    that `is_file` knows; if there is none, letters and digits end where another script begins ("1.jpg").
    Of a text that names more than `MOST_NAMES` the first ones count.
    """
    found: list[tuple[int, str, bool]] = []
    taken = bytearray(len(text))
    for pattern in (_URL, _QUOTED, _RUN):
        for match in pattern.finditer(text):
            word = _name_in(match, pattern)
            if word is None or taken[match.start()]:
                continue
            taken[match.start() : match.end()] = b"\1" * len(match.group())
            found.append((match.start(), word, pattern is _RUN))
    names: dict[str, None] = {}
    for word, is_run in dict.fromkeys((word, is_run) for _, word, is_run in sorted(found)):
        if len(names) == MOST_NAMES:
            break
        names[_name_at_end(word, is_file) if is_run else _without_stops(word)] = None
    return list(names)


def _name_in(match: re.Match[str], pattern: re.Pattern[str]) -> str | None:
    """What a match names; None if that is nothing."""
    if pattern is _RUN:
        path = _PATH.match(match.group())
        return path.group() if path and path.end() <= _LONGEST_PATH else None
    word = next((group for group in match.groups() if group), match.group())
    return word if pattern is _URL or _ENDS_IN_SUFFIX.search(word) else None


def _name_at_end(run: str, is_file: Callable[[str], bool]) -> str:
    """The file name at the end of a run of characters that may begin with words of the request."""
    words = re.match(rf".*[{_EAST}]", run)
    if words is None:
        return run
    known = next((run[i:] for i in range(words.end() + 1) if is_file(run[i:])), None)
    if known is not None:
        return known
    first = re.split(r"[/\\]", run, maxsplit=1)[0]
    is_bare = first == run
    if is_bare:
        first = run[: run.rindex(".")]
    stretch = _LAST_STRETCH.search(first)
    assert stretch is not None
    cut = stretch.start() if is_bare or not re.match(rf"[{_EAST}]", stretch.group()) else len(first)
    return run[cut:]


def _without_stops(word: str) -> str:
    """A word without the punctuation after it; a bracket that it opens itself is a part of it."""
    end = len(word.rstrip(_STOPS))
    surplus = word.count(")") - word.count("(")
    while surplus > 0 and word[end - 1] == ")":
        surplus -= 1
        end -= 1
        while word[end - 1] in _STOPS:
            end -= 1
    return word[:end]


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """An earlier turn of the chat: what was asked, what was answered, what was made or given.

    `blocks` are content blocks of its message that are no files of this machine yet.
    """

    request: str
    answer: str
    resources: tuple[Resource, ...] = ()
    blocks: tuple[Mapping[str, Any], ...] = ()


class UsageMeter:
    """Counts the language model's calls and tokens by stage, for one run."""

    def __init__(self) -> None:
        self.usage: dict[str, Usage] = {}

    def add(self, stage: str, usage: Usage) -> None:
        """Count `usage` for a stage."""
        self.usage[stage] = self.usage.get(stage, Usage()) + usage
        whole, part = _PART.get()
        if part is not None and whole is self:
            part.add(stage, usage)

    @contextmanager
    def part(self) -> Iterator[UsageMeter]:
        """A meter of what is counted in the block, by coroutines that are started there too."""
        part = UsageMeter()
        token = _PART.set((self, part))
        try:
            yield part
        finally:
            _PART.reset(token)


_PART: ContextVar[tuple[UsageMeter | None, UsageMeter | None]] = ContextVar("part", default=(None, None))


@dataclass(frozen=True, slots=True)
class RunContext:
    """All that the stages know of a request.

    Attributes:
        request: its words.
        files: its files, those that its words name too. `name` is the spelling by which the request (and
            so the plan) names each of them.
        turns: earlier turns of the chat, oldest first.
        specs: the task types that the plan may use, by name.
        meter: counts the language model's tokens.
        config: LangChain's config of the run, for callbacks and tracing.
        confined: whether somebody asks who may not learn which files there are on this machine.
    """

    request: str
    files: tuple[Resource, ...] = ()
    turns: tuple[ChatTurn, ...] = ()
    specs: Mapping[str, TaskSpec] = field(default_factory=dict)
    meter: UsageMeter = field(default_factory=UsageMeter)
    config: RunnableConfig | None = None
    confined: bool = False
