"""UsageMeter: a LangChain callback handler that counts LLM calls and tokens by stage.

    meter = UsageMeter()
    planning_chain(llm).invoke("Describe a.jpg", {"callbacks": [meter]})
    meter.usage     # {"plan": Usage(calls=1, input_tokens=812, output_tokens=40)}

A call belongs to the stage in its run's metadata (`jarvis_stage`), which the stages set. Others are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from jarvis_agent.core.types import Usage

STAGE_KEY = "jarvis_stage"
"""Name of the stage in the metadata of runs, and in the `additional_kwargs` of prompt messages."""


class UsageMeter(BaseCallbackHandler):
    """Counts calls and tokens by stage. Replies from a LangChain cache count as `cached`."""

    run_inline = True
    ignore_agent = ignore_chain = ignore_custom_event = ignore_retriever = ignore_retry = True

    def __init__(self) -> None:
        self.usage: dict[str, Usage] = {}
        self._stages: dict[UUID, str] = {}

    @property
    def total(self) -> Usage:
        """Calls and tokens of all stages."""
        return sum(self.usage.values(), Usage())

    def add(self, stage: str, usage: Usage) -> None:
        """Count `usage` for a stage."""
        self.usage[stage] = self.usage.get(stage, Usage()) + usage
        whole, part = _MEASURED.get()
        if part is not None and whole is self:
            part.add(stage, usage)

    @contextmanager
    def measure(self) -> Iterator[UsageMeter]:
        """A second meter that counts what the block, and coroutines started in it, add to this one."""
        part = UsageMeter()
        token = _MEASURED.set((self, part))
        try:
            yield part
        finally:
            _MEASURED.reset(token)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Remember the stage of a call."""
        if stage := (metadata or {}).get(STAGE_KEY):
            self._stages[run_id] = str(stage)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Count a finished call."""
        if stage := self._stages.pop(run_id, None):
            self.add(stage, usage_of(response))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Count a failed or cancelled call, with the tokens of its partial reply."""
        if stage := self._stages.pop(run_id, None):
            response = kwargs.get("response")
            partial = usage_of(response) if isinstance(response, LLMResult) else Usage()
            self.add(stage, partial.model_copy(update={"calls": 1, "cached": 0}))


def usage_of(response: LLMResult) -> Usage:
    """Calls and tokens of one LLM result."""
    first = next((generation for row in response.generations for generation in row), None)
    message = getattr(first, "message", None)
    counted: dict[str, Any] = getattr(message, "usage_metadata", None) or {}
    if "total_cost" in counted:  # LangChain adds it to replies from its caches.
        return Usage(cached=1)
    return Usage(
        calls=1,
        input_tokens=counted.get("input_tokens") or 0,
        output_tokens=counted.get("output_tokens") or 0,
    )


_MEASURED: ContextVar[tuple[UsageMeter | None, UsageMeter | None]] = ContextVar(
    "measured", default=(None, None)
)
