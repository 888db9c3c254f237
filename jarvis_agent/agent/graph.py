"""The agent as a LangGraph graph: `agent.graph`, with `messages` in its state.

    agent = JarvisAgent(llm, checkpointer=SqliteSaver(...), approve=True)
    thread = {"configurable": {"thread_id": "7"}}
    agent.graph.invoke({"messages": [HumanMessage("Transcribe a.wav")]}, thread)    # stops at an interrupt
    agent.graph.invoke(Command(resume=True), thread)["messages"][-1]                # the answer

The graph has one node, which runs the pipeline. With a checkpointer, of its own or of a larger graph, every
step of the pipeline is stored: the plan, the decision on it, each task's result, the answer. A killed run
resumes with `invoke(None, thread)` and repeats only steps without a stored result. Each event of the run is
streamed as JSON with `stream_mode="custom"`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated, Any, cast

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import EphemeralValue
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from jarvis_agent.agent.memory import MAX_TURNS
from jarvis_agent.agent.pipeline import RunPipeline
from jarvis_agent.agent.stages import PipelineStages
from jarvis_agent.agent.steps import Steps
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import ForbiddenError, InputError
from jarvis_agent.core.request import Request
from jarvis_agent.core.sync import iterate_sync
from jarvis_agent.execution.run import Run

SAVER_KEY = "__pregel_checkpointer"
"""LangGraph's name in its config for the checkpointer of a run, nested or not."""

_TURNS = TypeAdapter(list[ChatTurn])


class RequestError(InputError, ValueError):
    """An InputError of the graph. LangGraph's server hides the message of errors that are no ValueError."""


class ForbiddenRequestError(RequestError, ForbiddenError):
    """A ForbiddenError of the graph."""


class GraphInput(TypedDict, total=False):
    """Input of the graph: `messages`, or `input` with `files` and `chat_history`."""

    messages: Annotated[list[AnyMessage], add_messages]
    input: Annotated[str, EphemeralValue(str)]
    files: Annotated[list[str], EphemeralValue(list)]
    chat_history: Annotated[list[AnyMessage], EphemeralValue(list)]


class GraphOutput(TypedDict, total=False):
    """Output of the graph: the messages with the answer, and the Run as JSON."""

    messages: Annotated[list[AnyMessage], add_messages]
    run: dict[str, Any]


class GraphState(GraphInput, GraphOutput, total=False):
    """State of the graph. `turns` are the chat's turns with their files; a caller cannot set them."""

    turns: list[Any]


class ThreadedSaver(BaseCheckpointSaver[Any]):
    """A synchronous checkpointer, called in threads."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver
        for name in ("get_tuple", "list", "put", "put_writes", "delete_thread", "get_next_version"):
            setattr(self, name, getattr(saver, name))

    @classmethod
    def of(cls, saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
        """The checkpointer itself, if it has async methods."""
        is_sync = type(saver).aput_writes is BaseCheckpointSaver.aput_writes
        return cls(saver) if is_sync else saver

    @property
    def config_specs(self) -> list[Any]:
        """As the wrapped checkpointer's."""
        return self._saver.config_specs

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        for found in await asyncio.to_thread(lambda: [*self.list(config, **options)]):
            yield found

    async def aput(self, *given: Any) -> Any:
        """As `put`."""
        return await asyncio.to_thread(self.put, *given)

    async def aput_writes(self, *given: Any) -> None:
        """As `put_writes`."""
        await asyncio.to_thread(self.put_writes, *given)

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await asyncio.to_thread(self.delete_thread, thread_id)


class JarvisGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A compiled graph whose sync methods run its async nodes in the event loop for sync calls."""

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:  # noqa: A002
        """As `astream`. A synchronous checkpointer of a larger graph is called in threads."""
        configurable = dict((config or {}).get("configurable", {}))
        if saver := configurable.get(SAVER_KEY):
            config = {**(config or {}), "configurable": configurable | {SAVER_KEY: ThreadedSaver.of(saver)}}
        yield from iterate_sync(lambda: self.astream(input, config, **kwargs))


def _request_of(state: GraphState) -> dict[str, Any]:
    """The fields of the state that make a request, with the newest messages only."""
    given: dict[str, Any] = {key: state.get(key) for key in GraphInput.__annotations__ if state.get(key)}
    if "messages" in given:
        given["messages"] = given["messages"][-2 * MAX_TURNS - 1 :]
    return given


def build_graph(
    stages: PipelineStages, checkpointer: BaseCheckpointSaver[Any] | None = None, *, approve: bool = False
) -> JarvisGraph:
    """The graph of an agent.

    Args:
        stages: the agent's.
        checkpointer: None inside a larger graph or on a platform, which have their own.
        approve: stop with an interrupt that shows the plan. `Command(resume=…)` continues: True runs the
            plan, False rejects it, a list of tasks replaces it.

    Running it raises RequestError for a request that cannot be used.
    """

    async def jarvis(state: GraphState, config: RunnableConfig) -> dict[str, Any]:
        turns = _TURNS.validate_python(state.get("turns") or [])
        saver = config["configurable"].get(SAVER_KEY)
        steps = Steps(ThreadedSaver.of(saver), config) if saver is not None else Steps()
        ask = interrupt if approve else None
        pipeline = RunPipeline(
            stages, config, turns=tuple(turns), steps=steps, ask=ask, remember=turns.append
        )
        given = _request_of(state)
        write, run = get_stream_writer(), Run()
        try:
            request = Request.of(given)
            async with aclosing(pipeline.events(request)) as events:
                async for event in events:
                    write(event.model_dump(mode="json"))
                    run = event.run or run
        except ForbiddenError as error:
            raise ForbiddenRequestError(*error.args) from error
        except InputError as error:
            raise RequestError(*error.args) from error
        new: list[BaseMessage] = [HumanMessage(request.text)] if state.get("input") else []
        return {
            "messages": [*new, *run.messages],
            "run": run.model_dump(mode="json"),
            "turns": _TURNS.dump_python(turns[-MAX_TURNS:], mode="json"),
        }

    builder = StateGraph(GraphState, input_schema=GraphInput, output_schema=GraphOutput)
    builder.add_node("jarvis", jarvis)
    builder.add_edge(START, "jarvis")
    builder.add_edge("jarvis", END)
    saver = ThreadedSaver.of(checkpointer) if checkpointer is not None else None
    graph = builder.compile(checkpointer=saver, name="JarvisAgent")
    graph.__class__ = JarvisGraph
    return cast("JarvisGraph", graph)
