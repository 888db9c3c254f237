"""PlanOutputParser: a LangChain output parser whose chunks are Plans.

    chain = prompt | model | PlanOutputParser()
    for plan in chain.stream({...}):      # each chunk holds the tasks that became final
        ...

The sum of the chunks is the plan; `invoke` returns it at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.output_parsers.transform import BaseTransformOutputParser
from langchain_core.outputs import Generation
from langchain_core.runnables import Runnable
from pydantic import ConfigDict, Field

from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Task
from jarvis_agent.planning.coverage import Coverage
from jarvis_agent.planning.file_names import FileNames
from jarvis_agent.planning.normalise import WHAT_IT_NEEDS, shorten
from jarvis_agent.planning.parser import PlanParseError, StreamingPlanParser
from jarvis_agent.planning.plan import Plan

_LARGER_MODEL = " Use a larger model; for one of about 1 billion parameters, JARVIS_PROMPTS=small may help."

Repair = Callable[[list[PlanParseError]], Awaitable[Any]]


class PlanOutputParser(BaseTransformOutputParser[Plan]):
    """Parses a plan while it streams.

    Attributes:
        specs: the task types that the plan may use, by name.
        files: the files that the plan may name; None: any.
        coverage: what the request asks for. Tasks for what the plan leaves out are asked for, and then added.
            The default compares the plan with nothing.
        repair: asked once, with a list of PlanParseErrors, to write again what rules cannot repair, and what
            is left out. Returns text or a message. None: what is broken is left out, with a note.

    Raises:
        LLMError: the model failed before its first task, or wrote nothing usable. A failure after the first
            task becomes a note.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    specs: Mapping[str, TaskSpec] = Field(default=TASKS, exclude=True)
    files: FileNames | None = Field(default=None, exclude=True)
    coverage: Coverage = Field(default=Coverage(), exclude=True)
    repair: Runnable[Any, Any] | None = Field(default=None, exclude=True)

    @property
    def _type(self) -> str:
        return "plan"

    def parse(self, text: str) -> Plan:
        """Parse a whole text; see `Plan.parse`."""
        return self.parse_result([Generation(text=text)])

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Plan:
        """Parse the first generation of a result."""
        return sum(self._transform(iter([result[0].text])), Plan())

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Plan]:  # noqa: A002
        async def chunks() -> AsyncIterator[str | BaseMessage]:
            for chunk in input:
                yield chunk

        async def repair(errors: list[PlanParseError]) -> Any:
            return self.repair.invoke(errors) if self.repair else ""

        return _iterate(self._plans(chunks(), repair))

    def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Plan]:  # noqa: A002
        async def repair(errors: list[PlanParseError]) -> Any:
            return await self.repair.ainvoke(errors) if self.repair else ""

        return self._plans(input, repair)

    async def _plans(self, chunks: AsyncIterator[str | BaseMessage], repair: Repair) -> AsyncIterator[Plan]:
        parser = StreamingPlanParser(self.specs, files=self.files)
        can_repair = self.repair is not None
        try:
            async for chunk in chunks:
                if tasks := parser.feed(_text(chunk)):
                    yield Plan(tasks=tasks)
            rest = parser.finish()
        except LLMError as error:
            rest = parser.finish()
            if not parser.tasks:
                raise
            parser.note(f"the language model stopped before its plan was complete: {error}", is_removal=True)
            can_repair = False
        if rest:
            yield Plan(tasks=rest)
        more: list[Task] = []
        gaps = self.coverage.find_errors(parser.tasks)
        errors = [*parser.errors, *gaps]
        if can_repair and errors:
            try:
                reply = _text(await repair(errors))
                more = parser.apply_repair(reply, lambda draft: self.coverage.lacks(draft, parser.tasks))
            except LLMError as error:
                parser.note(f"the language model could not repair its plan: {error}")
        if parser.errors and not parser.tasks:
            is_weak = any(WHAT_IT_NEEDS not in one.error for one in parser.errors)
            raise LLMError(f"{'; '.join(parser.notes)}.{_LARGER_MODEL if is_weak else ''}")
        if gaps or more:
            for task in parser.add(self.coverage.additions(parser.tasks)):
                parser.note(f"task {task.id} ({task.task}) was added: the request asks for it")
                more.append(task)
            for gap in self.coverage.find_errors(parser.tasks):
                parser.note(f"“{shorten(gap.raw)}” is not planned", is_removal=True)
        yield Plan(tasks=more, notes=parser.notes, removed=parser.removed)


def _text(chunk: str | BaseMessage) -> str:
    return chunk if isinstance(chunk, str) else str(chunk.text)


def _iterate(plans: AsyncIterator[Plan]) -> Iterator[Plan]:
    """The items of an async generator that awaits nothing but its sync input."""
    while True:
        try:
            next(plans.__anext__().__await__())
        except StopIteration as step:
            yield step.value
        except StopAsyncIteration:
            return
