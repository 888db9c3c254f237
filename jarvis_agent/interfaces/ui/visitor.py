"""A visitor of the page, in one chat."""

import asyncio
import filecmp
import itertools
import logging
import re
import shutil
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BeforeValidator, ValidationError

from jarvis_agent.agent.agent import JarvisAgent
from jarvis_agent.backends.jobs import activities
from jarvis_agent.core import errors
from jarvis_agent.core.concurrency import batches
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.notes import STORED
from jarvis_agent.core.redaction import redact
from jarvis_agent.core.settings import Policy
from jarvis_agent.core.types import Frozen
from jarvis_agent.execution.run import Run
from jarvis_agent.interfaces.common.locks import BusyError, hold
from jarvis_agent.interfaces.common.progress import RunProgress, TaskProgress
from jarvis_agent.interfaces.common.uploads_and_outputs import PublicNames
from jarvis_agent.planning.plan import Plan

logger = logging.getLogger(__name__)

CHAT_FILE = "chat.jsonl"
"""The turns of a chat, in its directory; the first line has the first request."""


@dataclass(slots=True)
class PageTurn:
    """One request and what became of it.

    Attributes:
        proposal: the plan that waits for the visitor, as `ThreadState.waiting` has it.
        trouble: why there is no Run; an exception that is no JarvisError is only named by its class.
        memory: what later turns know of this one, once its run has ended.
        messages: the turn as messages of the chat, once it is over.
    """

    request: str
    files: list[Path]
    agent: JarvisAgent
    progress: RunProgress = field(default_factory=RunProgress)
    proposal: dict[str, Any] | None = None
    trouble: Exception | None = None
    is_begun: bool = False
    is_stopped: bool = False
    memory: ChatTurn | None = None
    messages: list[Any] | None = None

    @property
    def run(self) -> Run:
        """The Run, or what is known of it so far."""
        return self.progress.run

    @property
    def is_answered(self) -> bool:
        """Whether its run has ended."""
        return self.progress.done is not None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen."""
        return self.is_stopped or self.is_answered or self.trouble is not None


class StoredTurn(Frozen, from_attributes=True):
    """A PageTurn that is over, as a line of the file of its chat."""

    request: str
    files: list[Path]
    run: Run
    is_answered: bool
    trouble: Annotated[
        str | None,
        BeforeValidator(lambda why: errors.public_message(why) if isinstance(why, Exception) else why),
    ]
    memory: ChatTurn | None

    def restored(self, agent: JarvisAgent) -> PageTurn:
        """The turn of the page."""
        progress = RunProgress.of(self.run)
        progress.done = self.run if self.is_answered else None
        turn = PageTurn(self.request, self.files, agent, progress, memory=self.memory)
        turn.trouble = None if self.trouble is None else errors.JarvisError(self.trouble)
        turn.is_stopped = not self.is_answered and self.trouble is None
        return turn


def stored_turns(file: Path) -> Iterator[StoredTurn]:
    """The turns in the file of a chat, without those that cannot be read."""
    # Not `splitlines`: JSON of pydantic has U+2028 and its like as they are.
    lines = file.read_text("utf-8", errors="replace").split("\n") if file.is_file() else []
    for number, line in enumerate(filter(None, lines), 1):
        try:
            yield StoredTurn.model_validate_json(line)
        except ValidationError as error:
            logger.error("turn %d of %s cannot be read: %s", number, file, errors.describe_error(error))


class Visitor:
    """One chat: its turns, its files below `directory`, and the agent that may read them and no others.

    turn = visitor.ask("What animal is this?", [Path("cat.jpg")])
    async for _ in visitor.run(): ...           # `turn` has changed
    """

    def __init__(self, agents: Sequence[JarvisAgent], directory: Path) -> None:
        """`agents` are those that a visitor can choose from."""
        self.directory = directory.absolute()
        self._agents = agents
        self._uploads, self._runs = self.directory / "uploads", self.directory / "runs"
        self._file = self.directory / CHAT_FILE
        self.turns = [turn.restored(agents[0]) for turn in stored_turns(self._file)]
        self._config = RunnableConfig(configurable={"thread_id": self.directory.name})
        self._names = PublicNames({self._uploads: ""}, agents)
        self._run_folder = re.compile(rf"{re.escape(str(self._runs))}[/\\][\w-]+[/\\]")

    def clean(self, text: str) -> str:
        """The text as a visitor may see it: file names in place of paths, no keys."""
        return self._run_folder.sub("", str(self._names.of(redact(text)))).replace(f'"{errors.CLONE}', '".')

    @property
    def file_names(self) -> list[str]:
        """The files of the chat, which a plan may use: uploads, and what earlier runs made."""
        runs = [turn.run for turn in self.turns if turn.is_answered]
        paths = [file.path for run in runs for file in run.resources if file.path is not None]
        return list(dict.fromkeys(path.name for path in [*(f for t in self.turns for f in t.files), *paths]))

    def ask(
        self,
        request: str,
        files: Sequence[Path],
        agent: int = 0,
        policy: Policy | None = None,
        ask_first: bool = False,
        *,
        plan: Plan | None = None,
        models: Mapping[str, str] | None = None,
    ) -> PageTurn:
        """Add a turn. The files are copied, so that the agent needs to read no common directory. Blocks.

        `agent` is a place in the list of agents; `policy` None: the agent's. `ask_first` stops the plan until
        the visitor decides on it. `plan` and `models` are those of `JarvisAgent.copy`.
        """
        self._uploads.mkdir(parents=True, exist_ok=True)
        self._uploads.touch()  # The files of a chat are kept while it is used.
        kept = [self._keep(file) for file in files]
        chosen = self._agents[agent]
        own = chosen.copy(
            settings={"policy": policy or chosen.settings.policy, "output_dir": self._runs},
            restricted_to=[self._uploads],
            plan=plan,
            models=models,
            history=[turn.memory for turn in self.turns if turn.memory is not None],
            checkpointer=InMemorySaver() if ask_first else False,
            approve=ask_first,
        )
        for waiting in self.turns[-1:]:
            waiting.is_stopped = waiting.is_stopped or waiting.proposal is not None
            waiting.proposal = None
        self.turns.append(PageTurn(request, kept, own))
        return self.turns[-1]

    @property
    def running(self) -> PageTurn | None:
        """The turn that is not over and does not wait for a decision."""
        last = self.turns[-1] if self.turns else None
        return None if last is None or last.is_over or last.proposal is not None else last

    def repeat(self, number: int, task: int, model: str, *choices: Any) -> None:
        """Run a task of an earlier turn again in a new turn, with another candidate, or raise InputError.

        `choices` are the agent and what follows it in `ask`.
        """
        turn = self.turns[number] if 0 <= number < len(self.turns) else None
        row = turn.progress.tasks.get(task) if turn is not None else None
        if turn is None or not turn.is_answered or row is None or model not in models_of(row):
            raise errors.InputError("this task cannot be run again with this model")
        request = f"{turn.request}\n\n↻ {task} {row.task.task}: {model}"
        plan, models = turn.run.repeating(task), {row.task.task: model}
        self.ask(request, turn.files, *choices, plan=plan, models=models)

    def rewind(self, message: int) -> PageTurn:
        """Drop the turns since the one with this message of the chat, and return that one."""
        number = self._number_of(message)
        turn = self.turns[number]
        del self.turns[number:]
        return turn

    def rate(self, message: int, good: bool) -> None:
        """Rate the models of the turn with this message. InputError: it has none, or ratings are off."""
        turn = self.turns[self._number_of(message)]
        turn.run.rate(good=good, owner=self.directory.name.split("-")[0])

    def _number_of(self, message: int) -> int:
        """The number of the turn with this message of the chat."""
        ends = itertools.accumulate(len(turn.messages or ()) for turn in self.turns[:-1])
        return next((number for number, end in enumerate(ends) if message < end), len(self.turns) - 1)

    def resume(self) -> None:
        """Go on in another session. A run of the earlier one is stopped."""
        if (turn := self.running) is not None:
            turn.is_stopped = True

    async def run(self, decision: Any = None) -> AsyncGenerator[None, None]:
        """Run the turn that was asked, and yield whenever it changes. Closing the generator cancels it.

        With a decision, True, False or another plan as a list, go on with the turn whose plan waits.
        """
        turn = self.running if decision is None else self.turns[-1]
        if turn is None or (turn.is_begun if decision is None else turn.proposal is None):
            return  # Two tabs may show one chat.
        inputs: Any = {"input": turn.request, "files": [file.name for file in turn.files]}
        turn.is_begun, turn.proposal = True, None
        request = inputs if decision is None else Command(resume=decision)
        activities.set(turn.progress.activities)  # for the task that runs the agent
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(hold(self.directory / "chat.lock"))
                held.callback(self._save)
                # Events of 0.05 s are drawn at once; every second, running times are.
                batched = batches(turn.agent.aevents(request, self._config), 0.05, 1.0)
                async for events in await held.enter_async_context(aclosing(batched)):
                    for event in events:
                        turn.progress.update(event)
                    yield
                    if turn.is_stopped:
                        return
                state = await turn.agent.aget_state(self._config)
                turn.proposal = state.waiting
                turn.memory = state.turns[-1] if turn.is_answered else None
            except (asyncio.CancelledError, GeneratorExit):
                turn.is_stopped = True
                raise
            except BusyError:
                why = "another process works on this chat; open it again in a moment"
                turn.trouble = errors.InputError(why)
            except Exception as error:
                if not isinstance(error, errors.JarvisError):
                    logger.error("a run of the page failed: %s", errors.format_traceback(error))
                turn.trouble = error
        yield

    def _save(self) -> None:
        """Store the turns that are over, unless the chat was deleted meanwhile."""
        if self._uploads.is_dir():
            stored = [StoredTurn.model_validate(turn) for turn in self.turns if turn.is_over]
            lines = [turn.model_dump_json(context=STORED) for turn in stored]
            part = self._file.with_suffix(".part")
            part.write_text("\n".join(lines), "utf-8")
            part.replace(self._file)

    def _keep(self, file: Path) -> Path:
        """Copy a file to the uploads. Another file with the same name gets a number."""
        if file.parent == self._uploads:
            return file
        place, number = self._uploads / file.name, 1
        while place.exists() and not filecmp.cmp(place, file, shallow=False):
            number += 1
            place = self._uploads / f"{file.stem}-{number}{file.suffix}"
        return Path(shutil.copy(file, place))


def models_of(row: TaskProgress) -> list[str]:
    """The models that could do a task which has run: the one that did it first, then the other candidates."""
    if row.result is None or row.result.model is None or row.selection is None:
        return []
    return list(dict.fromkeys([row.result.model, *(candidate.id for candidate in row.selection.candidates)]))
