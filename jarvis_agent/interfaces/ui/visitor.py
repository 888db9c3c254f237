"""One visitor of the page: the chat, its files, and the agent that may read them and no others.

visitor = Visitor([agent], Path("outputs/ui"))
turn = visitor.ask("What animal is this?", [Path("cat.jpg")], Choices())
async for _ in visitor.run(): ...           # `turn` has changed
async for _ in visitor.decide(True): ...    # answers `turn.proposal`
"""

from __future__ import annotations

import asyncio
import filecmp
import logging
import re
import secrets
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from pydantic import TypeAdapter

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.agent.memory import ChatMemory
from jarvis_agent.backends.jobs import activities
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import JarvisError, format_traceback
from jarvis_agent.core.messages import CHINESE, ENGLISH
from jarvis_agent.core.redaction import redact
from jarvis_agent.core.settings import Policy
from jarvis_agent.execution.run import Event, Run
from jarvis_agent.interfaces.cli.progress import RunProgress
from jarvis_agent.interfaces.server.path_filter import PathRedactor, private_directories

logger = logging.getLogger(__name__)

_TICK_S = 1.0
"""The page is drawn this often while nothing happens, for the running times."""
_PAUSE_S = 0.05
"""Events of this time are drawn at once."""

_TURNS = TypeAdapter(list[ChatTurn])
_FOLDER = re.compile(r"/outputs/(?:\d{8}-\d{6}-\w+/)?")
"""What PathRedactor leaves of the folder of an upload, or of a run's file."""
_COMMAND = r"(?:`jarvis |pip install |hf download )"
_HELPS = "|".join(re.escape(words.helps.removesuffix("{advice}")) for words in (ENGLISH, CHINESE))
_ADVICE = re.compile(
    rf" ?(?:{_HELPS})[^\n]*| ?[(（][^()（）;；:：\n]*{_COMMAND}[^()（）\n]*[)）]"
    rf"|(?:; download it with)?[;；:：][^()（）;；:：\n]*{_COMMAND}[^()（）;；\n]*"
)
"""Advice for who runs the server: a visitor can install and set nothing."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a visitor may set: the place of the agent in the list, the policy (None: the agent's), ...

    `seconds` is the longest run; `ask_first` stops each plan until the visitor decides on it.
    """

    agent: int = 0
    policy: Policy | None = None
    seconds: float | None = None
    ask_first: bool = False


@dataclass(slots=True)
class PageTurn:
    """One request and what became of it.

    Attributes:
        files: the uploads, as the visitor named them.
        proposal: the plan that waits for the visitor, as `JarvisAgent.waiting` returns it.
        trouble: why there is no Run; an exception that is no JarvisError is only named by its class.
        messages: the turn as messages of the chat, once it is over.
    """

    request: str
    files: list[Path]
    agent: JarvisAgent
    config: RunnableConfig
    progress: RunProgress = field(default_factory=RunProgress)
    run: Run | None = None
    proposal: dict[str, Any] | None = None
    trouble: Exception | None = None
    is_begun: bool = False
    is_stopped: bool = False
    messages: list[Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.is_stopped or self.run is not None or self.trouble is not None


class Visitor:
    """See the module. Files are below `directory`, in a folder with a random name."""

    def __init__(self, agents: Sequence[JarvisAgent], directory: Path, login: str | None = None) -> None:
        """`agents` are those that a visitor can choose from; `login` is the name at the login."""
        self.login, self.key, self.sessions = login, secrets.token_urlsafe(32), 1
        self.directory = directory.absolute() / secrets.token_hex(16)
        self.turns: list[PageTurn] = []
        self._agents = agents
        self._uploads, self._runs = self.directory / "uploads", self.directory / "runs"
        self._memory = ChatMemory()
        self._thread = self.directory.name
        self._redactor = PathRedactor(self.directory, self.directory, private_directories(agents[0]))

    def clean(self, text: str) -> str:
        """The text as a visitor may see it: file names in place of paths, no keys, no commands to type."""
        return _ADVICE.sub("", _FOLDER.sub("", self._redactor.clean(redact(text))))

    @property
    def file_names(self) -> list[str]:
        """The files of the chat, which a plan may use: uploads, and what earlier runs made."""
        runs = [turn.run for turn in self.turns if turn.run is not None]
        made = [file.path for run in runs for file in run.resources if file.path is not None]
        return list(dict.fromkeys(path.name for path in [*(f for t in self.turns for f in t.files), *made]))

    def ask(self, request: str, files: Sequence[Path], choices: Choices) -> PageTurn:
        """Add a turn. The files are copied, so that the agent needs to read no common directory. Blocks."""
        self._uploads.mkdir(parents=True, exist_ok=True)
        self._uploads.touch()  # The files of a chat are kept while it is used.
        kept = [self._keep(file) for file in files]
        changes = {"policy": choices.policy, "run_timeout": choices.seconds}
        agent = self._agents[choices.agent].with_settings(**{k: v for k, v in changes.items() if v})
        agent = agent.with_checkpointer(None).restricted(self._uploads, output_dir=self._runs)
        agent.memory, config = self._memory, RunnableConfig(configurable={"thread_id": self._thread})
        if choices.ask_first:
            from langgraph.checkpoint.memory import InMemorySaver

            # The run has a checkpoint of its own, which starts with the turns of the chat.
            agent = agent.with_checkpointer(InMemorySaver(), approve=True)
            turns = _TURNS.dump_python(list(self._memory.turns(self._thread)), mode="json")
            agent.graph.update_state(config, {"turns": turns}, as_node="jarvis")
        for waiting in self.turns[-1:]:
            waiting.is_stopped = waiting.is_stopped or waiting.proposal is not None
            waiting.proposal = None
        turn = PageTurn(request, kept, agent, config)
        self.turns.append(turn)
        return turn

    @property
    def running(self) -> PageTurn | None:
        """The turn that is not over and does not wait for a decision."""
        last = self.turns[-1] if self.turns else None
        return None if last is None or last.is_over or last.proposal is not None else last

    @property
    def failed_request(self) -> dict[str, Any] | None:
        """The last request, as gr.MultimodalTextbox takes it, if nothing came of it."""
        last = self.turns[-1] if self.turns else None
        if last is None or last.trouble is None:
            return None
        return {"text": last.request, "files": last.files}

    def resume(self) -> None:
        """Go on in another session. A run of the earlier one is stopped."""
        self.sessions += 1
        if (turn := self.running) is not None:
            turn.is_stopped = True

    async def run(self) -> AsyncGenerator[None, None]:
        """Run the turn that was asked, and yield whenever it changes. Closing the generator cancels it."""
        turn = self.running
        if turn is None or turn.is_begun:  # Two tabs may show one chat.
            return
        turn.is_begun = True
        given = {"input": turn.request, "files": [file.name for file in turn.files]}
        async with aclosing(self._follow(turn, given)) as steps:
            async for _ in steps:
                yield

    async def decide(self, decision: Any) -> AsyncGenerator[None, None]:
        """Go on with the turn whose plan waits. The decision is True, False, or another plan as a list."""
        from langgraph.types import Command

        turn = self.turns[-1]
        if turn.proposal is None:
            return
        turn.proposal = None
        async with aclosing(self._follow(turn, Command(resume=decision))) as steps:
            async for _ in steps:
                yield

    async def _follow(self, turn: PageTurn, given: Any) -> AsyncGenerator[None, None]:
        activities.set(turn.progress.activities)  # for the task that runs the agent
        try:
            async with aclosing(_batches(turn.agent.events(given, turn.config))) as batches:
                async for events in batches:
                    for event in events:
                        turn.progress.update(event)
                        turn.run = event.run or turn.run
                    yield
                    if turn.is_stopped:
                        return
            if turn.agent.approve:
                await self._after_approval(turn)
        except (asyncio.CancelledError, GeneratorExit):
            turn.is_stopped = True
            raise
        except Exception as error:
            if not isinstance(error, JarvisError):
                logger.error("a run of the page failed: %s", format_traceback(error))
            turn.trouble = error
        yield

    async def _after_approval(self, turn: PageTurn) -> None:
        """Keep the plan that waits, or the turn that has ended."""
        if turn.run is None:
            turn.proposal = await turn.agent.waiting(turn.config)
        else:
            state = await turn.agent.graph.aget_state(turn.config)
            self._memory.add(self._thread, _TURNS.validate_python(state.values["turns"])[-1])

    def _keep(self, file: Path) -> Path:
        """Copy a file to the uploads. Another file with the same name gets a number."""
        place, number = self._uploads / file.name, 1
        while place.exists() and not filecmp.cmp(place, file, shallow=False):
            number += 1
            place = self._uploads / f"{file.stem}-{number}{file.suffix}"
        return Path(shutil.copy(file, place))


async def _batches(events: AsyncGenerator[Event, None]) -> AsyncGenerator[list[Event], None]:
    """The events as they come, those of a short time together; an empty list after a second without any."""
    queue: asyncio.Queue[Event | None] = asyncio.Queue()

    async def read() -> None:
        async with aclosing(events):
            async for event in events:
                queue.put_nowait(event)

    reading, is_over = asyncio.create_task(read()), False
    reading.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while not is_over:
            found: list[Event | None] = []
            try:
                async with asyncio.timeout(_TICK_S):
                    found.append(await queue.get())
                await asyncio.sleep(_PAUSE_S)
            except TimeoutError:
                pass
            while not queue.empty():
                found.append(queue.get_nowait())
            is_over = None in found
            yield [event for event in found if event is not None]
        await reading
    finally:
        reading.cancel()
        await asyncio.wait([reading])
