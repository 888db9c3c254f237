"""PlanOutputParser: a LangChain output parser whose chunks are Plans.

    chain = prompt | model | PlanOutputParser()
    for plan in chain.stream({...}):      # each chunk holds the tasks that became final
        ...

The sum of the chunks is the plan; `invoke` returns it at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
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
from jarvis_agent.planning.parser import StreamingPlanParser
from jarvis_agent.planning.plan import Plan


class PlanOutputParser(BaseTransformOutputParser[Plan]):
    """Parses a plan while it streams.

    Attributes:
        specs: the task types that the plan may use, by name.
        repair: asked once, with a list of PlanParseErrors, to write again what rules cannot repair. Returns
            text or a message. None: what is broken is left out, with a note.

    Raises:
        LLMError: the model failed before its first task, or wrote nothing usable. A failure after the first
            task becomes a note.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    specs: Mapping[str, TaskSpec] = Field(default=TASKS, exclude=True)
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

    async def aparse_result(self, result: list[Generation], *, partial: bool = False) -> Plan:
        """Parse the first generation of a result."""
        plan = Plan()
        async for chunk in self._atransform(_single(result[0].text)):
            plan += chunk
        return plan

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Plan]:  # noqa: A002
        parser = StreamingPlanParser(self.specs)
        try:
            for chunk in input:
                yield from _plans(parser.feed(_text(chunk)))
        except LLMError as error:
            yield _interrupted(parser, error)
            return
        yield from _plans(parser.finish())
        if self.repair is not None and parser.errors:
            try:
                yield from _plans(parser.apply_repair(_text(self.repair.invoke(parser.errors))))
            except LLMError as error:
                parser.note(f"the language model could not repair its plan: {error}")
        yield _conclusion(parser)

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Plan]:  # noqa: A002
        parser = StreamingPlanParser(self.specs)
        try:
            async for chunk in input:
                for plan in _plans(parser.feed(_text(chunk))):
                    yield plan
        except LLMError as error:
            yield _interrupted(parser, error)
            return
        for plan in _plans(parser.finish()):
            yield plan
        if self.repair is not None and parser.errors:
            try:
                for plan in _plans(parser.apply_repair(_text(await self.repair.ainvoke(parser.errors)))):
                    yield plan
            except LLMError as error:
                parser.note(f"the language model could not repair its plan: {error}")
        yield _conclusion(parser)


def _plans(tasks: list[Task]) -> Iterator[Plan]:
    if tasks:
        yield Plan(tasks=tasks)


def _interrupted(parser: StreamingPlanParser, error: LLMError) -> Plan:
    """The last chunk after a failure of the model. Raises the error if there is no task."""
    rest = parser.finish()
    if not parser.tasks:
        raise error
    parser.note(f"the language model stopped before its plan was complete: {error}")
    return Plan(tasks=rest, notes=parser.notes)


def _conclusion(parser: StreamingPlanParser) -> Plan:
    """The last chunk: the notes."""
    if parser.errors and not parser.tasks:
        raise LLMError(
            f"{'; '.join(parser.notes)}. "
            "Use a larger model; for one of about 1 billion parameters, JARVIS_PROMPTS=small may help."
        )
    return Plan(notes=parser.notes)


def _text(chunk: str | BaseMessage) -> str:
    return chunk if isinstance(chunk, str) else str(chunk.text)


async def _single(text: str) -> AsyncIterator[str]:
    yield text
