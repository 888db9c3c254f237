"""StoredRuns: runs of an agent with a checkpointer, by thread id. They can be resumed and approved.

runs = StoredRuns(graph, settings)
async for event in runs.events("Transcribe a.wav", thread): ...
async for event in runs.events(None, thread): ...                   # resume after a crash
async for event in runs.events(Command(resume=True), thread): ...   # approve the plan
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, cast
from weakref import WeakValueDictionary

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.constants import START
from langgraph.types import Command

from jarvis_agent.agent.approval import ApprovalPolicy, to_json
from jarvis_agent.agent.graph import GraphInput, JarvisGraph, turns_in
from jarvis_agent.agent.memory import ThreadState
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.notes import limit_of
from jarvis_agent.core.request import Request
from jarvis_agent.core.settings import Settings
from jarvis_agent.execution.checkpointed_steps import DECISION, PROPOSAL, stored_steps
from jarvis_agent.execution.run import Event, Run


class StoredRuns:
    """Runs of one thread follow each other; a second one waits for the first."""

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
        shown = snapshot.interrupts[0].value if snapshot.interrupts and not is_answered else None
        values = stored.checkpoint["channel_values"]
        given = {key: values[key] for key in GraphInput.__annotations__ if values.get(key)}
        request = Request.of(values.get(START) or given) if snapshot.tasks else None
        return ThreadState(tuple(turns_in(snapshot.values)), shown, request)

    async def events(self, request: Any, config: RunnableConfig) -> AsyncGenerator[Event, None]:
        """The events of a run. "done" is last, unless the run stops for approval.

        Args:
            request: what `JarvisAgent.invoke` takes; None resumes the thread's last run, or returns it if it
                has ended; a `Command(resume=…)` answers its interrupt.
            config: names the thread.

        Raises:
            ConfigError: no thread is named, or it has no run to resume.
            InputError: as `JarvisAgent.invoke`.
        """
        thread = str(config.get("configurable", {}).get("thread_id") or "")
        if not thread:
            raise ConfigError(
                'a run with a checkpointer needs a thread: config={"configurable": {"thread_id": "…"}}'
            )
        async with self._queue(thread):
            given = await self._graph_input(request, config)
            if given is None and not self._approve and (await self.state(config)).waiting:
                raise ConfigError(
                    f"the plan of the thread {thread!r} waits for approval; decide with approve=True"
                )
            is_over = False
            if given is not None or (await self._graph.aget_state(config)).tasks:
                stream = self._graph.astream(given, config, stream_mode="custom", durability="sync")
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
        before, mine, seconds = Future[None](), Future[None](), self._settings.run_timeout
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
                advice=limit_of("JARVIS_RUN_TIMEOUT"),
            ) from error
        finally:  # a waiter that gives up passes the end of the run before on
            before.add_done_callback(lambda _: mine.set_result(None))
