"""A run that survives: the same stages as a LangGraph graph, every finished task stored before others use it.

    async with AsyncSqliteSaver.from_conn_string("runs.sqlite") as saver:
        durable = DurableAgent(JarvisAgent(), saver)
        run = await durable.ainvoke("Transcribe a.wav", {"configurable": {"thread_id": "7"}})
    # It was killed meanwhile? In a new process, with the same file and thread:
        run = await durable.ainvoke(None, {"configurable": {"thread_id": "7"}})

Planning is one stored step, and execution starts after it: a plan that is replayed could be another one. A
task whose result is stored is not done again; one that was running when the process died is. A thread's
earlier turns are kept in the checkpointer, too.

`make_graph` gives the bare graph, for larger LangGraph applications. langgraph.json names serve/graph.py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.core.errors import ConfigError, ForbiddenError, InputError, MissingExtraError
from jarvis_agent.core.request import Request
from jarvis_agent.core.sync import run_sync
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.media.store import ResourceStore
from jarvis_agent.planning.plan import Plan

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.pregel import Pregel


class RequestError(InputError, ValueError):
    """An InputError of the graph; a ValueError, for LangGraph's server hides what most other errors say."""


class ForbiddenRequestError(RequestError, ForbiddenError):
    """A ForbiddenError of the graph."""


def make_graph(
    agent: JarvisAgent, checkpointer: BaseCheckpointSaver[Any] | None = None, *, approve: bool = False
) -> Pregel[Any, Any, Any, Any]:
    """The agent's run as a graph of LangGraph's functional API.

    Its input is what `JarvisAgent.invoke` takes, as text or plain JSON; its output is a Run as JSON; with
    `stream_mode="custom"` it streams `Event`s as JSON.

    Args:
        checkpointer: None where the platform that serves the graph brings its own. (Only with one given here
            do tasks wait until the results that they build on are stored.)
        approve: stop before execution with an interrupt that shows the plan. `Command(resume=…)` goes on:
            True runs it, False rejects it, and a list of tasks (or its JSON) takes its place.

    A request that can not be used ends it with a RequestError.

    Raises:
        MissingExtraError: langgraph is not installed.
    """
    try:
        from langgraph.config import get_stream_writer
        from langgraph.func import entrypoint
        from langgraph.types import interrupt
    except ImportError as error:
        raise MissingExtraError("a durable run", "durable") from error
    from jarvis_agent.agent.checkpoints import CheckpointedSteps, CommitAwareSaver
    from jarvis_agent.agent.durable_session import DurableSession, turns_from, turns_to

    teller = CommitAwareSaver(checkpointer) if checkpointer is not None else None

    def begin() -> dict[str, Any]:
        return {"directory": str(ResourceStore(agent.settings).directory), "seconds": time.time()}

    async def jarvis(given: Any, *, previous: Any = None, config: RunnableConfig) -> Any:
        steps = CheckpointedSteps(teller if teller is not None and teller.hears(config) else None)
        begun = await steps.once("begin", partial(asyncio.to_thread, begin))
        session = DurableSession(
            agent.stages,
            config,
            Path(begun["directory"]),
            steps=steps,
            began=begun["seconds"],
            turns=turns_from(previous),
            ask=interrupt if approve else None,
        )
        tell, run = get_stream_writer(), Run()
        try:
            async with aclosing(session.events(Request.of(given))) as events:
                async for event in events:
                    tell(event.model_dump(mode="json"))
                    run = event.run or run
        except ForbiddenError as error:
            raise ForbiddenRequestError(*error.args) from error
        except InputError as error:
            raise RequestError(*error.args) from error
        return entrypoint.final(value=run.model_dump(mode="json"), save=turns_to(session.turns))

    # LangGraph takes schemas from the signature, where annotations of this module are only texts.
    jarvis.__annotations__ |= {"given": Request, "return": entrypoint.final[Run, Any]}
    return entrypoint(checkpointer=teller)(jarvis)


class DurableAgent:
    """An agent whose runs can be resumed, by the thread id in the config.

    Runs of one thread follow each other: who comes while another is under way here waits for it.

    Raises:
        MissingExtraError: langgraph is not installed.
    """

    def __init__(
        self, agent: JarvisAgent, checkpointer: BaseCheckpointSaver[Any], *, approve: bool = False
    ) -> None:
        """The parameters are those of `make_graph`; the agent is closed with this one."""
        self.agent = agent
        self._approve = approve
        self.graph = make_graph(agent, checkpointer, approve=approve)
        self._turns: WeakValueDictionary[str, Future[None]] = WeakValueDictionary()
        self._lock = threading.Lock()

    @property
    def model_name(self) -> str | None:
        """The language model, for people; None without one."""
        return self.agent.model_name

    async def aplan(self, request: Any, config: RunnableConfig | None = None) -> Plan:
        """The plan of a request, which is not run and not stored."""
        return await self.agent.aplan(request, config)

    def invoke(self, request: Any, config: RunnableConfig) -> Run:
        """As `ainvoke`. The checkpointer is used in the event loop that serves sync calls."""
        return run_sync(self.ainvoke, request, config)

    async def ainvoke(self, request: Any, config: RunnableConfig) -> Run:
        """Run a request. None goes on with the thread's last one, or returns it if it is over; a `Command`
        answers its interrupt.

        Raises:
            ConfigError: the config names no thread, or there is nothing to go on with.
            InputError: as `JarvisAgent.invoke`.
        """
        run = None
        async with aclosing(self.events(request, config)) as events:
            async for event in events:
                run = event.run or run
        if run is None:
            waiting = await self.waiting(config)
            problem = f"{waiting['problem']}; " if waiting and "problem" in waiting else ""
            raise ConfigError(
                f"{problem}the run waits for a decision on its plan; give one with Command(resume=…)"
            )
        return run

    async def events(self, request: Any, config: RunnableConfig) -> AsyncGenerator[Event, None]:
        """What happens in a run; "done" is last, unless the run stops for a decision. Raises as `ainvoke`."""
        thread = str(config.get("configurable", {}).get("thread_id") or "")
        if not thread:
            raise ConfigError('a durable run wants a thread: config={"configurable": {"thread_id": "…"}}')
        async with self._turn(thread):
            given = await self._given(request, config)
            if given is None and not self._approve and await self.waiting(config):
                raise ConfigError(
                    f"the plan of the thread {thread!r} waits for approval; decide with approve=True"
                )
            state = await self.graph.aget_state(config)
            if given is None and not state.next:
                if not state.values:
                    raise ConfigError(f"the thread {thread!r} has no run to go on with")
                run = Run.model_validate(state.values)
                yield Event(kind="done", run=run)
                return
            async with aclosing(
                self.graph.astream(given, config, stream_mode="custom", durability="sync")  # type: ignore[type-var]
            ) as told:
                async for event in told:
                    yield Event.model_validate(event)

    async def _given(self, request: Any, config: RunnableConfig) -> Any:
        """What the graph is given, as plain JSON, which can be stored; what is malformed is not."""
        from langgraph.types import Command

        from jarvis_agent.agent.durable_session import as_json

        if request is None:
            return None
        if not isinstance(request, Command):
            return Request.of(request).model_dump(mode="json")
        if request.resume is None:
            raise ConfigError("a plan is decided on with Command(resume=…): True, False, or another plan")
        if await self.waiting(config) is None:
            raise ConfigError("no plan waits for a decision in this thread; None goes on with its run")
        return replace(request, resume=as_json(request.resume))

    @asynccontextmanager
    async def _turn(self, thread: str) -> AsyncIterator[None]:
        """A block for one run of a thread at a time: two that go on with the same one would mix its steps."""
        # Several event loops may share the agent: an asyncio lock would wake none but its own.
        mine: Future[None] = Future()
        mine.set_running_or_notify_cancel()
        with self._lock:
            before = self._turns.get(thread)
            self._turns[thread] = mine
        if before is not None:
            await self._wait_for(before, mine, thread)
        try:
            yield
        finally:
            mine.set_result(None)

    async def _wait_for(self, before: Future[None], mine: Future[None], thread: str) -> None:
        """Wait for the end of the run before. Who gives up hands that end on to those who wait for it."""
        seconds = self.agent.settings.run_timeout
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wrap_future(before)
        except BaseException as error:
            before.add_done_callback(lambda _: mine.set_result(None))
            if not isinstance(error, TimeoutError):
                raise
            raise ConfigError(
                f"another run of the thread {thread!r} was still under way after {seconds:g} s "
                "(JARVIS_RUN_TIMEOUT); end it, or take another thread"
            ) from error

    async def unfinished(self, config: RunnableConfig) -> Request | None:
        """What the thread's last run was asked, if it is not over; None if it is, or there is none."""
        from langgraph.constants import START

        found = await self._stored(config)
        asked = found.checkpoint["channel_values"].get(START) if found is not None else None
        return None if asked is None else Request.of(asked)

    async def waiting(self, config: RunnableConfig) -> dict[str, Any] | None:
        """The plan that waits for a decision, as {request, plan, notes}; None if none does.

        After a decision that was none it has its `problem` too, and the decision itself as `given`.
        """
        from jarvis_agent.agent.checkpoints import is_answered

        interrupts = (await self.graph.aget_state(config)).interrupts
        stored = await self._stored(config)
        return interrupts[0].value if interrupts and stored and not is_answered(stored) else None

    async def _stored(self, config: RunnableConfig) -> CheckpointTuple | None:
        saver: Any = self.graph.checkpointer
        found: CheckpointTuple | None = await saver.aget_tuple(config)
        return found

    async def aclose(self) -> None:
        """Free the agent's models and threads; the checkpointer is its owner's to close."""
        await self.agent.aclose()

    def close(self) -> None:
        """As `aclose`."""
        run_sync(self.aclose)
