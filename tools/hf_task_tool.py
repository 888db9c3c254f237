"""HFTaskTool: a task type of the Hub as a LangChain tool, which selects a model and runs it.

A tool that is called alone reports progress, in LangGraph's custom streams and LangChain's custom events:

    for piece in create_agent(llm, hf_tools()).stream(request, stream_mode="custom"):
        print(piece["text"])        # "text-to-image: org/model: 1.2 of 3.4 GB downloaded"
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self, cast

from langchain_core.callbacks import adispatch_custom_event
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.tools import BaseTool, InjectedToolArg, ToolException
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from typing_extensions import TypedDict

from jarvis_agent.backends.jobs import Activity, activities
from jarvis_agent.core.concurrency import repeating, run_in_daemon_thread, run_with_timeout
from jarvis_agent.core.content import message_text
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import JarvisError
from jarvis_agent.core.notes import as_public, limit_of
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.sync import run_sync
from jarvis_agent.core.tasks.spec import MEDIA, Arg, TaskSpec
from jarvis_agent.core.text import read_literal
from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.execution.fallback import HFTaskRunner
from jarvis_agent.execution.inputs import TaskCall, bind_inputs
from jarvis_agent.llm.content import ContentForm, message_content
from jarvis_agent.media.run_directory import RUN_ID
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.selection.model_registry import ModelRegistry

if TYPE_CHECKING:
    from langchain.tools import ToolRuntime
else:  # LangGraph, which injects it by its name, takes 0.5 s to import.
    ToolRuntime = Annotated[Any, InjectedToolArg]

MAX_PRODUCED = 1000
"""Files that a set of tools can read because it produced them: the latest, of all threads together."""


class HFTaskTool(BaseTool):
    """One task type as a tool. It reads the working directory, `allowed_dirs` and `files`.

    It also reads public URLs, data URIs, and what tools have produced in the same thread: those made together
    with it, and those whose results are in the messages of the graph's state. Without a thread, it reads what
    tools made together with it produced outside a graph. `settings` replace the registry's; with
    `allow_request_paths=False`, for untrusted callers, it does not read the working directory.

    The content is a short text for a language model, and files in the form `content` (see `hf_tools`). The
    artifact is plain JSON: `output` in the shape of huggingface_hub's inference types, `resources`, `model`,
    `reason`, `placement` and `attempts`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    runner: HFTaskRunner = Field(exclude=True, repr=False)
    settings: Settings | None = Field(default=None, exclude=True, repr=False)
    files: tuple[str, ...] = ()
    content: ContentForm = "text"
    # The latest files that tools have produced, each with its thread; "" where no thread exists.
    produced: Any = Field(default_factory=lambda: deque(maxlen=MAX_PRODUCED), exclude=True, repr=False)
    # Numbers for calls outside of a chat, of which each has a seed of its own.
    calls: Any = Field(default_factory=count, exclude=True, repr=False)
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True

    @classmethod
    def of(cls, runner: HFTaskRunner, **fields: Any) -> Self:
        """The tool of a runner's task type; tools that share `produced` read each other's files."""
        spec = runner.spec
        return cls(
            name=spec.name,
            description=spec.description,
            args_schema=args_schema_of(spec),
            runner=runner,
            metadata={"category": spec.category, "outputs": list(spec.outputs)},
            **fields,
        )

    @property
    def spec(self) -> TaskSpec:
        """The task type."""
        return self.runner.spec

    @property
    def registry(self) -> ModelRegistry:
        """The models, sources and backends, shared with the tools made together with this one."""
        return self.runner.registry

    @property
    def func(self) -> Callable[..., Any]:
        """The function from whose annotations LangGraph learns that it can inject `runtime`."""
        return self._run

    def _run(
        self,
        runtime: ToolRuntime = None,  # type: ignore[assignment]
        **args: Any,
    ) -> tuple[Any, dict[str, Any]]:
        return run_sync(self._answer, runtime, args, ensure_config())

    async def _arun(
        self,
        runtime: ToolRuntime = None,  # type: ignore[assignment]
        **args: Any,
    ) -> tuple[Any, dict[str, Any]]:
        return await self._answer(runtime, args, ensure_config())

    async def _answer(
        self, runtime: ToolRuntime | None, args: Mapping[str, Any], config: RunnableConfig
    ) -> tuple[Any, dict[str, Any]]:
        """Select and run outside a plan, below the tool's run in traces.

        Raises ToolException: it failed; the message goes to the caller's model.
        """
        seconds, limit = self.registry.settings.task_timeout, limit_of("JARVIS_TASK_TIMEOUT")
        is_local = (self.settings or self.registry.settings).allow_request_paths
        try:
            result = await run_with_timeout(seconds, self._result(runtime, args, config), self.name, limit)
        except JarvisError as error:
            raise ToolException(error.note if is_local else error.note.public) from error
        result = result if is_local else as_public(result)
        if result.status != "ok":
            raise ToolException(result.error)
        text = content_of(result)
        content = await asyncio.to_thread(message_content, text, result.resources, self.content)
        return content, artifact_of(result)

    async def _result(
        self, runtime: ToolRuntime | None, args: Mapping[str, Any], config: RunnableConfig
    ) -> TaskResult:
        settings = self.settings or self.registry.settings
        # The program gives these files, not the caller, so they are read whatever callers may name.
        dirs = (*settings.allowed_dirs, *map(Path, self.files))
        settings = settings.model_copy(update={"allowed_dirs": dirs})
        store = ResourceStore(settings, for_tool=True)
        thread = str(config.get("configurable", {}).get("thread_id") or "")
        if thread or runtime is None:
            store.grant_resources(file for owner, file in tuple(self.produced) if owner == thread)
        store.grant_resources(await asyncio.to_thread(files_in, _messages_in(runtime), settings))
        task = Task(
            task=self.spec.name,
            id=next(self.calls) if runtime is None else _call_number(runtime),
            args={k: v for k, v in args.items() if v is not None},
        )
        context = RunContext(request=_last_human_message(runtime), config=config)
        try:
            for name in self.files:
                # A folder is one of the allowed directories now. Path.is_dir raises on a data URL.
                if not await asyncio.to_thread(os.path.isdir, name):
                    await store.grant(name)
            async with reporting(self.name, runtime, config) as report:
                await report("selecting")
                selection = await self.runner.select(task, context)
                notes: list[str] = []
                call = TaskCall(
                    task=task,
                    inputs=await bind_inputs(task, self.spec, {}, store, notes),
                    context=context,
                    new_path=lambda suffix: store.directory.new_path(suffix, self.spec.name),
                    settings=settings,
                )
                await report("running", model=selection.model)
                result = await self.runner.run_candidates(selection, call, config)
                result = result.model_copy(update={"notes": [*notes, *result.notes]})
            self.produced.extend((thread, file) for file in result.resources if file.path is not None)
            return result
        finally:
            # A disk that does not answer must not block the event loop.
            await run_in_daemon_thread(store.directory.close)

    @property
    def args(self) -> dict[str, Any]:
        """The arguments with one `type` each, which smolagents needs; schemas for models have "anyOf"."""
        listed: dict[str, Any] = super().args
        for about in listed.values():
            if options := about.pop("anyOf", None):
                about.update(options[0], type=[options[0]["type"], "null"])
        return listed

    def close(self) -> None:
        """Free the models that this tool, and those made together with it, have loaded."""
        run_sync(self.registry.aclose)

    def __reduce__(self) -> Any:
        """Raise TypeError: the models of a tool cannot be pickled."""
        raise TypeError(
            "the tools of hf_tools cannot be pickled: they share loaded models, threads and connections. "
            "Call hf_tools in each process; copies within this process share the models"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@lru_cache(maxsize=512)
def args_schema_of(spec: TaskSpec) -> type[BaseModel]:
    """A pydantic model of a task's arguments: media are paths or URLs, lists are lists."""
    fields: dict[str, Any] = {}
    for arg in spec.inputs:
        kind = _python_type(arg)
        described = f"path or http(s) URL of the {arg.kind}" if arg.kind in MEDIA else f"the {arg.name}"
        description = arg.description or described
        if arg.required:
            fields[arg.name] = (kind, Field(description=description))
        else:
            # As a factory the default is not in the schema, which OpenAI refuses in strict mode.
            fields[arg.name] = (kind | None, Field(default_factory=type(None), description=description))
    name = "".join(word.capitalize() for word in spec.name.split("-"))
    return create_model(name, __base__=_Arguments, __doc__=spec.description, **fields)


class _Arguments(BaseModel):
    """The arguments of a call. LangGraph passes `runtime` beside them, and BaseTool hands it over."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    @model_validator(mode="before")
    @classmethod
    def _without_runtime(cls, args: Any) -> Any:
        if not isinstance(args, dict):
            return args
        return {name: value for name, value in args.items() if name != "runtime"}


def _python_type(arg: Arg) -> Any:
    """One type that every API of tools knows; what models send instead is converted, or read by the task."""
    if arg.many:
        return Annotated[list[str], BeforeValidator(_as_list)]
    if arg.kind == "data":
        return Annotated[Any, WithJsonSchema({"type": arg.type})]
    return Annotated[str, BeforeValidator(_only_item)]


def _as_list(value: Any) -> Any:
    """A list in one text, or a single value, as a list. A text or path may contain commas."""
    listed = read_literal(value) if isinstance(value, str) and value.lstrip()[:1] == "[" else value
    return listed if isinstance(listed, list | tuple) else [value]


def _only_item(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _messages_in(runtime: Any) -> Sequence[Any]:
    """The messages in the state of an injected ToolRuntime: of a mapping, an object, or a list of them."""
    state = getattr(runtime, "state", None)
    messages = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", state)
    return messages or ()


def _last_human_message(runtime: Any) -> str:
    """The text of the last human message in an injected ToolRuntime's state; "" without one."""
    messages = (message for message in reversed(_messages_in(runtime)) if isinstance(message, HumanMessage))
    return next((message_text(message) for message in messages), "")


def _call_number(runtime: Any) -> int:
    """The number of the call of an injected ToolRuntime among the tool calls of the messages, from 0."""
    messages = (message for message in _messages_in(runtime) if isinstance(message, AIMessage))
    calls = [call for message in messages for call in message.tool_calls]
    own = getattr(runtime, "tool_call_id", None)  # some models count from one again in each message
    return max((number for number, call in enumerate(calls) if call["id"] == own), default=0)


def files_in(messages: Iterable[Any], settings: Settings) -> list[Resource]:
    """The files that the tool messages of a conversation say were produced in it. Blocks.

    A client of a server may send such messages too, so only files in directories of runs count, whose names
    cannot be guessed.
    """
    root, files = settings.output_dir.expanduser().resolve(), list[Resource]()
    for message in messages:
        artifact = message.artifact if isinstance(message, ToolMessage) else None
        for resource in artifact.get("resources") or () if isinstance(artifact, Mapping) else ():
            with suppress(ValidationError):
                file = Resource.model_validate(resource)
                real = file.path.resolve() if file.path is not None else root
                if real.parent.parent == root and RUN_ID.fullmatch(real.parent.name):
                    files.append(file)
    return files


def content_of(result: TaskResult) -> str:
    """A result as a short text for a language model: its text, and the paths of its files."""
    text = result.resource("text")
    lines = [text.as_text()] if text else []
    lines += [f"{r.kind}: {r.path}" for r in result.resources if r.path is not None]
    lines += result.all_notes
    return "\n".join(lines) or "done"


def artifact_of(result: TaskResult) -> dict[str, Any]:
    """A result as plain JSON for programs."""
    dumped = result.model_dump(mode="json")
    selection = result.selection
    return {
        "output": dumped["output"],
        "resources": dumped["resources"],
        "model": result.model,
        "revision": next((attempt.revision for attempt in reversed(result.attempts) if attempt.ok), None),
        "reason": selection.reason if selection else "",
        "placement": selection.placement if selection else "",
        "attempts": dumped["attempts"],
        "notes": result.all_notes,
    }


EVENT = "jarvis_progress"
"""Name of the custom events, as in `astream_events`."""

_INTERVAL_S = 0.5


class ToolProgress(TypedDict):
    """What a tool does now. `done` and `total`: bytes of a download, or tokens of a text."""

    tool: str
    tool_call_id: str | None
    state: str
    """selecting, running, downloading, loading or writing."""
    text: str
    model: NotRequired[str]
    done: NotRequired[int]
    total: NotRequired[int]


@asynccontextmanager
async def reporting(
    tool: str, runtime: ToolRuntime | None, config: RunnableConfig
) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Report on a call: within the block, also what is done on its models, as often as that changes.

    The value takes a state, and optionally a text and the further fields of ToolProgress.
    """
    call = getattr(runtime, "tool_call_id", None)
    write = getattr(runtime, "stream_writer", None) or (lambda piece: None)

    async def report(state: str, text: str = "", **more: Any) -> None:
        message = f"{tool}: {text or state}"
        progress = {"tool": tool, "tool_call_id": call, "state": state, "text": message}
        piece = cast("ToolProgress", {**progress, **more})
        write(piece)
        await adispatch_custom_event(EVENT, piece, config=config)

    running: list[Activity] = []
    last: dict[int, str] = {}

    async def report_changes() -> None:
        for work in [*running]:  # it grows meanwhile
            if last.get(id(work)) != str(work):
                last[id(work)] = str(work)
                counts = {key: getattr(work, key) for key in ("done", "total") if hasattr(work, key)}
                await report(work.state, str(work), model=work.model, **counts)

    token = activities.set(running)
    try:
        async with repeating(report_changes, _INTERVAL_S, f"the report of {tool}"):
            yield report
    finally:
        activities.reset(token)
