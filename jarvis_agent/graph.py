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
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.agent import JarvisAgent
from jarvis_agent.errors import ConfigError, MissingExtraError
from jarvis_agent.plan import Plan
from jarvis_agent.request import Request
from jarvis_agent.resources import ResourceStore
from jarvis_agent.run import Event, Run

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.pregel import Pregel


def make_graph(
    agent: JarvisAgent, checkpointer: BaseCheckpointSaver[Any] | None = None, *, approve: bool = False
) -> Pregel[Any, Any, Any, Any]:
    """The agent's run as a graph of LangGraph's functional API.

    Its input is what `JarvisAgent.invoke` takes, as text or plain JSON; its output is a Run as JSON; with
    `stream_mode="custom"` it streams `Event`s as JSON.

    Args:
        checkpointer: an asynchronous one; None where the platform that serves the graph brings its own. (Only
            with one given here do tasks wait until the results that they build on are stored.)
        approve: stop before execution with an interrupt that shows the plan. `Command(resume=…)` goes on:
            True runs it, False rejects it, and a list of tasks (or its JSON) takes its place.

    Raises:
        MissingExtraError: langgraph is not installed.
    """
    try:
        from langgraph.config import get_stream_writer
        from langgraph.func import entrypoint
        from langgraph.types import interrupt
    except ImportError as error:
        raise MissingExtraError("a durable run", "durable") from error
    from jarvis_agent.durable.session import DurableSession, turns_from, turns_to
    from jarvis_agent.durable.steps import CommitTeller, Steps

    teller = CommitTeller(checkpointer) if checkpointer is not None else None

    def begin() -> dict[str, Any]:
        return {"directory": str(ResourceStore(agent.settings).directory), "seconds": time.time()}

    @entrypoint(checkpointer=teller)
    async def jarvis(given: Any, *, previous: Any = None, config: RunnableConfig) -> Any:
        steps = Steps(teller if teller is not None and teller.hears(config) else None)
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
        async with aclosing(session.events(Request.of(given))) as events:
            async for event in events:
                tell(event.model_dump(mode="json"))
                run = event.run or run
        return entrypoint.final(value=run.model_dump(mode="json"), save=turns_to(session.turns))

    return jarvis


class DurableAgent:
    """An agent whose runs can be resumed, by the thread id in the config.

    Raises:
        MissingExtraError: langgraph is not installed.
    """

    def __init__(
        self, agent: JarvisAgent, checkpointer: BaseCheckpointSaver[Any], *, approve: bool = False
    ) -> None:
        """The parameters are those of `make_graph`; the agent is closed with this one."""
        self.agent = agent
        self._saver = checkpointer
        self.graph = make_graph(agent, checkpointer, approve=approve)

    @property
    def model_name(self) -> str | None:
        """The language model, for people; None without one."""
        return self.agent.model_name

    async def aplan(self, request: Any, config: RunnableConfig | None = None) -> Plan:
        """The plan of a request, which is not run and not stored."""
        return await self.agent.aplan(request, config)

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
        if not config.get("configurable", {}).get("thread_id"):
            raise ConfigError('a durable run wants a thread: config={"configurable": {"thread_id": "…"}}')
        state = await self.graph.aget_state(config)
        if request is None and not state.next:
            if not state.values:
                raise ConfigError(
                    f"the thread {config['configurable']['thread_id']!r} has no run to go on with"
                )
            run = Run.model_validate(state.values)
            yield Event(kind="done", run=run)
            return
        given = request.model_dump(mode="json") if isinstance(request, Request) else request
        async with aclosing(
            self.graph.astream(given, config, stream_mode="custom", durability="sync")  # type: ignore[type-var]
        ) as told:
            async for event in told:
                yield Event.model_validate(event)

    async def unfinished(self, config: RunnableConfig) -> Request | None:
        """What the thread's last run was asked, if it is not over; None if it is, or there is none."""
        from langgraph.constants import START

        found = await self._saver.aget_tuple(config)
        asked = found.checkpoint["channel_values"].get(START) if found is not None else None
        return None if asked is None else Request.of(asked)

    async def waiting(self, config: RunnableConfig) -> dict[str, Any] | None:
        """The plan that waits for a decision, as {request, plan, notes}; None if none does.

        After a decision that was none it has its `problem` too, and the decision itself as `given`.
        """
        interrupts = (await self.graph.aget_state(config)).interrupts
        return interrupts[0].value if interrupts else None

    async def aclose(self) -> None:
        """Free the agent's models and threads; the checkpointer is its owner's to close."""
        await self.agent.aclose()
