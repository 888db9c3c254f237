"""The agent as a LangGraph graph: `agent.graph`, with `messages` in its state.

The graph has one node, which runs the pipeline: between nodes, LangGraph waits until each has ended, and no
task could run while the plan is still written. With a checkpointer, of its own or of a larger graph, every
step of the pipeline is stored: the plan, the decision on it, each task's result, the answer. A killed run
resumes with `invoke(None, thread)` and repeats only steps without a stored result.

`stream_mode="messages"` streams the answer, checked, and nothing else that a language model writes; "custom"
streams each event of the run as JSON.

Of LangGraph it uses two things that are not documented: the key of the checkpointer in the config of a node,
and the separator in checkpoint namespaces.
"""

import asyncio
import base64
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from mimetypes import guess_type
from pathlib import PurePosixPath
from typing import Annotated, Any, cast
from uuid import uuid4
from weakref import WeakValueDictionary

from langchain_core.messages import AIMessageChunk, AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph.channels import EphemeralValue
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_stream_writer
from langgraph.constants import CONFIG_KEY_CHECKPOINTER, TAG_NOSTREAM
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages, push_message
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import get_runtime
from langgraph.types import Command, interrupt
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from jarvis_agent.agent.approval import ApprovalPolicy, to_json
from jarvis_agent.agent.memory import MAX_TURNS, ThreadState
from jarvis_agent.agent.pipeline import RunPipeline
from jarvis_agent.agent.stages import PipelineStages
from jarvis_agent.core.content import message_text
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import ConfigError, ForbiddenError, InputError
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.notes import limit_of
from jarvis_agent.core.request import Request
from jarvis_agent.core.settings import RunOptions, Settings, read_options
from jarvis_agent.core.sync import iterate_sync
from jarvis_agent.core.text import map_texts
from jarvis_agent.core.types import Resource
from jarvis_agent.execution.checkpointed_steps import DECISION, PROPOSAL, CheckpointedSteps, stored_steps
from jarvis_agent.execution.run import Event, Run

_TURNS = TypeAdapter(list[ChatTurn])
_MAX_SHARED = 5_000_000
"""Bytes of a file that is put into the state of a deep agent; of a larger one there is only the path."""


class RequestError(InputError, ValueError):
    """An InputError of the graph. LangGraph's server hides the message of errors that are no ValueError."""


class ForbiddenRequestError(RequestError, ForbiddenError):
    """A ForbiddenError of the graph."""


class GraphInput(TypedDict, total=False):
    """Input of the graph: `messages`, or `input` with `files` and `chat_history`.

    As a sub-agent of deepagents, `files` are those of its state by their paths. Those that the message names
    are read, and made files are added.
    """

    messages: Annotated[list[AnyMessage], add_messages]
    input: Annotated[str, EphemeralValue(str)]
    files: Annotated[list[str] | dict[str, Any], EphemeralValue(list)]
    chat_history: Annotated[list[AnyMessage], EphemeralValue(list)]


class GraphOutput(TypedDict, total=False):
    """Output of the graph: the messages with the answer, the Run as JSON, and its structured response."""

    messages: Annotated[list[AnyMessage], add_messages]
    run: dict[str, Any]
    structured_response: Any
    files: Annotated[list[str] | dict[str, Any], EphemeralValue(list)]


class GraphState(GraphInput, GraphOutput, total=False):
    """State of the graph. `turns` are the chat's turns with their files; a caller cannot set them."""

    turns: list[Any]


class JarvisGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A compiled graph whose sync methods run its async nodes in the event loop for sync calls."""

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:  # noqa: A002
        """As `astream`. A synchronous checkpointer of a larger graph is called in threads."""
        configurable = (config or {}).get("configurable", {})
        if config is not None and (saver := configurable.get(CONFIG_KEY_CHECKPOINTER)) is not None:
            config = {**config, "configurable": {**configurable, CONFIG_KEY_CHECKPOINTER: threaded(saver)}}
        yield from iterate_sync(partial(self.astream, **kwargs), input, config)


def _request_of(state: GraphState) -> dict[str, Any]:
    """The fields of the state that make a request, with the newest messages only."""
    fields: dict[str, Any] = {key: state.get(key) for key in GraphInput.__annotations__ if state.get(key)}
    if "messages" in fields:
        fields["messages"] = fields["messages"][-2 * MAX_TURNS - 1 :]
    if isinstance(files := fields.get("files"), Mapping):
        del fields["files"]
        fields["messages"] = [*fields["messages"][:-1], _with_files(fields["messages"][-1], files)]
    return fields


def _with_files(message: BaseMessage, files: Mapping[str, Any]) -> BaseMessage:
    """A message with the files of a deep agent's state that it names, as content blocks."""
    text, blocks = message_text(message), list[dict[str, Any]]()
    for path, file in files.items():
        if (name := PurePosixPath(path).name) in text:
            text, content = text.replace(path, name), file["content"]
            content = content if isinstance(content, str) else "\n".join(content)
            field = "base64" if file.get("encoding") == "base64" else "text"
            mime = guess_type(name)[0] or "text/plain"
            blocks.append({"type": "file", "filename": name, "mime_type": mime, field: content})
    return message.model_copy(update={"content": [{"type": "text", "text": text}, *blocks]})


def _made_files(run: Run) -> dict[str, dict[str, str]]:
    """The files of a run by their paths, as a deep agent keeps them; larger ones are left out."""
    paths = [part.path for part in run.resources if part.path and part.path.stat().st_size <= _MAX_SHARED]
    return {
        str(path): {"content": base64.b64encode(path.read_bytes()).decode(), "encoding": "base64"}
        for path in paths
    }


@dataclass(frozen=True, slots=True)
class _Node:
    """The node of the graph: one run of the pipeline.

    `names` are the beginnings of paths of results, and of their URLs.
    """

    stages: PipelineStages
    approve: ApprovalPolicy
    history: Sequence[ChatTurn]
    names: tuple[str, str] | None

    async def __call__(self, state: GraphState, config: RunnableConfig) -> dict[str, Any]:
        """The new messages, the run and the chat's turns."""
        turns = _TURNS.validate_python(self._find(state.get("turns") or [])) or list(self.history)
        # The key is that of ag-ui-langgraph, which reads the events of models instead of messages.
        quiet = merge_configs(config, {"tags": [TAG_NOSTREAM], "metadata": {"emit-messages": False}})
        message_id = str(uuid4())
        try:
            options = read_options(get_runtime(RunOptions).context)
            pipeline = RunPipeline(
                await asyncio.to_thread(self.stages.with_options, options),
                quiet,
                turns=tuple(turns),
                request_count=sum(isinstance(item, HumanMessage) for item in state.get("messages") or ()),
                steps=steps_of_node(config),
                ask=self._ask if self.approve else None,
                approval_policy=self.approve,
                remember=turns.append,
                language=options.get("language", ""),
            )
            request = Request.of(_request_of(state))
            if self.names:
                request = Request.of(self._find(request.model_dump(mode="json")))
            run = await self._run(pipeline, request, message_id)
        except ForbiddenError as error:
            raise ForbiddenRequestError(error.note) from error
        except InputError as error:
            raise RequestError(error.note) from error
        answer = await asyncio.to_thread(run.to_message, options.get("content", "text"))
        new: list[BaseMessage] = []
        if state.get("input"):
            new.append(HumanMessage(request.text))
        elif self.names and request.blocks:
            question = [message for message in state["messages"] if isinstance(message, HumanMessage)][-1]
            new.append(self._with_urls(question, turns[-1].resources[len(request.files) :]))
        fields = {
            "id": message_id,
            "content": self._hide(answer.content),
            "additional_kwargs": self._hide(answer.additional_kwargs),
        }
        new_state = {
            "messages": [*new, answer.model_copy(update=fields)],
            "run": self._hide(run.model_dump(mode="json")),
            "turns": self._hide(_TURNS.dump_python(turns[-MAX_TURNS:], mode="json")),
        }
        if isinstance(state.get("files"), Mapping):
            new_state["files"] = await asyncio.to_thread(_made_files, run)
        if (form := self.stages.response_format) is not None:
            structured = new_state["run"].get("structured_response")
            new_state["structured_response"] = None if structured is None else form.read(structured)
        return new_state

    async def _run(self, pipeline: RunPipeline, request: Request, message_id: str) -> Run:
        """Run the request, and stream its events and the tokens of the answer."""
        write, run = get_stream_writer(), Run()
        async with aclosing(pipeline.events(request)) as events:
            async for event in events:
                write(self._hide(event.model_dump(mode="json")))
                if event.kind == "token":
                    chunk = AIMessageChunk(content=self._hide(event.text), id=message_id)
                    push_message(chunk, state_key=None)
                run = event.run or run
        return run

    def _ask(self, proposal: Any) -> Any:
        """The decision on what is shown, from an interrupt."""
        return self._find(interrupt(self._hide(proposal)))

    def _with_urls(self, message: HumanMessage, files: Sequence[Resource]) -> HumanMessage:
        """A request whose files in base64 are URLs of the files, which the run has stored in their order."""
        stored = iter(files)
        content: list[Any] = []
        for block in message.content if isinstance(message.content, list) else ():
            file = next(stored, None) if isinstance(block, dict) and block.get("type") != "text" else None
            if isinstance(block, dict) and file is not None and not block.get("url"):
                block = {"type": block["type"], "url": self._hide(str(file.path)), "mime_type": file.mime}
            content.append(block)
        return message.model_copy(update={"content": content or message.content})

    def _hide(self, value: Any) -> Any:
        """Plain JSON with URLs instead of paths."""
        path, url = self.names or ("", "")
        return map_texts(value, lambda text: text.replace(path, url)) if url else value

    def _find(self, value: Any) -> Any:
        """Plain JSON with paths instead of URLs. A path is no permission: a run checks it like any other."""
        path, url = self.names or ("", "")
        return map_texts(value, lambda text: text.replace(url, path)) if url else value


def build_graph(
    stages: PipelineStages,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    *,
    approve: ApprovalPolicy = False,
    history: Sequence[ChatTurn] = (),
    files_url: str | None = None,
) -> JarvisGraph:
    """The graph of an agent.

    Args:
        stages: the agent's.
        checkpointer: None inside a larger graph or on a platform, which have their own.
        approve: stop with an interrupt that asks about the tasks for which this policy is true; see
            `agent.approval`. `Command(resume={"decisions": […]})` continues.
        history: turns with which each chat begins.
        files_url: for clients of a server: the URL of the agent's `output_dir`, which they see instead of
            paths, and instead of files in base64 too.

    Running it raises RequestError for a request, or options, that cannot be used.
    """
    folder = stages.settings.output_dir.absolute()
    names = (f"{folder}/", f"{files_url.rstrip('/')}/") if files_url else None
    builder = StateGraph(
        GraphState, context_schema=RunOptions, input_schema=GraphInput, output_schema=GraphOutput
    )
    builder.add_node("jarvis", _Node(stages, approve, history, names))
    builder.add_edge(START, "jarvis").add_edge("jarvis", END)
    saver = threaded(checkpointer) if checkpointer is not None else None
    graph = builder.compile(checkpointer=saver, name="JarvisAgent")
    return JarvisGraph(**vars(graph.copy()))


class StoredRuns:
    """The runs of an agent with a checkpointer, by thread. A second one of a thread waits for the first."""

    def __init__(self, graph: JarvisGraph, settings: Settings, *, approve: ApprovalPolicy) -> None:
        self._graph = graph
        self._settings = settings
        self._approve = approve
        self._running: WeakValueDictionary[str, Future[None]] = WeakValueDictionary()
        self._lock = fork_safe(threading.Lock())

    async def state(self, config: RunnableConfig) -> ThreadState:
        """The thread's chat and its last run."""
        saver: Any = self._graph.checkpointer
        stored: CheckpointTuple | None = await saver.aget_tuple(config)
        if stored is None:
            return ThreadState()
        snapshot = await self._graph.aget_state(config)
        # LangGraph keeps an interrupt that was answered until its node has ended.
        steps = [name.split()[0] for name in stored_steps(stored)]
        is_answered = steps.count(DECISION) >= steps.count(PROPOSAL)
        proposal = snapshot.interrupts[0].value if snapshot.interrupts and not is_answered else None
        values = stored.checkpoint["channel_values"]
        fields = {key: values[key] for key in GraphInput.__annotations__ if values.get(key)}
        request = Request.of(values.get(START) or fields) if snapshot.tasks else None
        turns = _TURNS.validate_python(snapshot.values.get("turns") or [])
        return ThreadState(tuple(turns), proposal, request)

    async def events(self, request: Any, config: RunnableConfig) -> AsyncGenerator[Event, None]:
        """The events of a run of the config's thread. "done" is last, unless the run stops for approval.

        `request` None resumes the thread's last run, or returns it if it has ended; a `Command(resume=…)`
        answers its interrupt. Raises ConfigError: no thread is named, or it has no run to resume.
        """
        thread = str(config.get("configurable", {}).get("thread_id") or "")
        if not thread:
            raise ConfigError(
                'a run with a checkpointer needs a thread: config={"configurable": {"thread_id": "…"}}'
            )
        async with self._queue(thread):
            graph_input = await self._graph_input(request, config)
            if graph_input is None and not self._approve and (await self.state(config)).waiting:
                raise ConfigError(
                    f"the plan of the thread {thread!r} waits for approval; decide with approve=True"
                )
            is_over = False
            if graph_input is not None or (await self._graph.aget_state(config)).tasks:
                stream = self._graph.astream(graph_input, config, stream_mode="custom", durability="sync")
                async with aclosing(cast("AsyncGenerator[Any, None]", stream)) as events:
                    async for event in events:
                        is_over = event["kind"] == "done"
                        yield Event.model_validate(event)
            state = await self._graph.aget_state(config)
            if is_over or state.tasks:
                return
            if not state.values.get("run"):
                raise ConfigError(f"the thread {thread!r} has no run to resume")
            yield Event(kind="done", run=Run.model_validate(state.values["run"]))

    async def _graph_input(self, request: Any, config: RunnableConfig) -> Any:
        """What the graph gets: plain JSON, which can be stored. Raises for a malformed request."""
        if request is None:
            return None
        if not isinstance(request, Command):
            made = Request.of(request)
            made.check_length()
            dumped = made.model_dump(mode="json")
            dumped["input"] = dumped["input"].replace("\0", "")  # which PostgreSQL cannot store
            return {key: value for key, value in dumped.items() if value}
        if request.resume is None:
            raise ConfigError(
                'decide on a plan with Command(resume=…): {"decisions": […]}, True, False, or another plan'
            )
        if (await self.state(config)).waiting is None:
            raise ConfigError("no plan waits for approval in this thread; None resumes its run")
        return replace(request, resume=to_json(request.resume))

    @asynccontextmanager
    async def _queue(self, thread: str) -> AsyncIterator[None]:
        """A block for one run of a thread at a time: two of them would mix their steps."""
        # Several event loops may share the agent, so this is no asyncio.Lock.
        before, mine, seconds = Future[None](), Future[None](), self._settings.budget.run_seconds
        before.set_result(None)
        mine.set_running_or_notify_cancel()
        with self._lock:
            before = self._running.get(thread, before)
            self._running[thread] = mine
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wrap_future(before)
            yield
        except TimeoutError as error:
            if before.done():
                raise
            raise ConfigError(
                f"another run of the thread {thread!r} was still running after {seconds:g} s; "
                "end it, or use another thread",
                advice=limit_of("JARVIS_BUDGET"),
            ) from error
        finally:  # a waiter that gives up passes the end of the run before on
            before.add_done_callback(lambda _: mine.set_result(None))


def steps_of_node(config: RunnableConfig) -> CheckpointedSteps:
    """The steps of the node that runs now, stored by its graph's checkpointer, if that has one."""
    saver = config["configurable"].get(CONFIG_KEY_CHECKPOINTER)
    node = get_runtime().execution_info
    if saver is None or node is None:
        return CheckpointedSteps()
    graph, _, _ = node.checkpoint_ns.rpartition("|")
    place = {"thread_id": node.thread_id, "checkpoint_ns": graph, "checkpoint_id": node.checkpoint_id}
    return CheckpointedSteps(threaded(saver), {"configurable": place})


def threaded(saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    """The checkpointer itself if it has async methods, else one that calls it in threads."""
    is_sync = type(saver).aput_writes is BaseCheckpointSaver.aput_writes
    return ThreadedSaver(saver) if is_sync else saver


class ThreadedSaver(BaseCheckpointSaver[Any]):
    """A synchronous checkpointer, called in threads."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        for name in ("get_tuple", "list", "put", "put_writes", "delete_thread", "get_next_version"):
            setattr(self, name, getattr(saver, name))
        for name in ("get_tuple", "put", "put_writes", "delete_thread"):
            setattr(self, f"a{name}", partial(asyncio.to_thread, getattr(saver, name)))

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        for checkpoint in await asyncio.to_thread(lambda: [*self.list(config, **options)]):
            yield checkpoint
