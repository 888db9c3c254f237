"""UsageMeter: a LangChain callback handler that counts LLM calls and tokens by stage, within a budget.

A call belongs to the stage in its run's metadata (`jarvis_stage`), which the stages set. Others are ignored.
LLMClient uses `reserve` around each call: LangChain would log what a callback raises as the callback's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from jarvis_agent.core.errors import BudgetError
from jarvis_agent.core.notes import limit_of
from jarvis_agent.core.settings import Budget
from jarvis_agent.core.types import Usage
from jarvis_agent.llm.tokens import count_tokens

STAGE_KEY = "jarvis_stage"
"""Name of the stage in the metadata of runs, and in the `additional_kwargs` of prompt messages."""

_PARTS: ContextVar[dict[UsageMeter, UsageMeter]] = ContextVar("parts")
"""The meters of the blocks that `measure`, by the meter of the whole."""

Price = Callable[[str, str, Usage], float | None]
"""The price of what a model did at a stage or task: `price("gpt-5-mini", "plan", Usage(calls=1, …))`."""


class UsageMeter(BaseCallbackHandler):
    """Counts calls and tokens by stage. Replies from a LangChain cache count as `cached`.

    Args:
        budget: what all calls together may spend.
        price: the price of calls whose provider reports none.
    """

    run_inline = raise_error = True
    ignore_agent = ignore_chain = ignore_custom_event = ignore_retriever = ignore_retry = True

    def __init__(self, budget: Budget | None = None, price: Price | None = None) -> None:
        self.usage: dict[str, Usage] = {}
        self.budget = budget or Budget()
        self.price = price
        self._reserved: dict[UUID, Usage] = {}
        self._running: dict[UUID, tuple[str, str, Usage]] = {}

    @property
    def total(self) -> Usage:
        """Calls and tokens of all stages."""
        return sum(self.usage.values(), Usage())

    def add(self, stage: str, usage: Usage) -> None:
        """Count `usage` for a stage."""
        self.usage[stage] = self.usage.get(stage, Usage()) + usage
        if part := _PARTS.get({}).get(self):
            part.add(stage, usage)

    def priced(self, model: str, stage: str, usage: Usage) -> Usage:
        """The usage with its price, unless it has one."""
        if self.price is None or usage.cost or usage.cached:
            return usage
        return usage.model_copy(update={"cost": self.price(model, stage, usage) or 0.0})

    def hosted_price(self, task: str, model: str) -> float:
        """What a call of a hosted expert costs; 0: unknown."""
        return self.priced(model, task, Usage(hosted_calls=1)).cost

    def reserve_hosted(self, task: str, model: str) -> None:
        """Count a call of a hosted expert, before it is made. Raises BudgetError if there is none left."""
        self.add("execute", self._within_budget(self.priced(model, task, Usage(hosted_calls=1))))

    def _within_budget(self, planned: Usage) -> Usage:
        """The usage of a call, if it can still be paid. Raises BudgetError."""
        running = (usage for _, _, usage in self._running.values())
        spent = sum((*self._reserved.values(), *running), self.total)
        after = spent + planned
        tokens = after.input_tokens + after.output_tokens
        for what, limit, used, needed in (
            ("tokens", self.budget.tokens, spent.input_tokens + spent.output_tokens, tokens),
            ("hosted_calls", self.budget.hosted_calls, spent.hosted_calls, after.hosted_calls),
            ("money", self.budget.money, spent.cost, after.cost),
        ):
            if limit is not None and needed > limit and needed > used:
                raise BudgetError(
                    "the run's budget is {limit}, and this call would make it {number:,.10g}",
                    limit=f"{what}={limit:,.10g}",
                    number=needed,
                    advice=limit_of("JARVIS_BUDGET"),
                )
        return planned

    @contextmanager
    def reserve(self, run_id: UUID, stage: str, model: str, prompt: Iterable[BaseMessage]) -> Iterator[None]:
        """Count the prompt of the LLM call that the block makes. Raises BudgetError if it is too long."""
        if self.budget != Budget():
            planned = Usage(input_tokens=sum(count_tokens(str(message.text)) for message in prompt))
            self._reserved[run_id] = self._within_budget(self.priced(model, stage, planned))
        try:
            yield
        finally:
            self._reserved.pop(run_id, None)

    @contextmanager
    def measure(self) -> Iterator[UsageMeter]:
        """A second meter that counts what the block, and coroutines started in it, add to this one."""
        part = UsageMeter()
        token = _PARTS.set({self: part})
        try:
            yield part
        finally:
            _PARTS.reset(token)

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
        if stage := str((metadata or {}).get(STAGE_KEY) or ""):
            model = str((metadata or {}).get("ls_model_name") or "")
            self._running[run_id] = stage, model, self._reserved.pop(run_id, Usage())

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Count a finished call."""
        self._count(run_id, usage_of(response))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Count a failed or cancelled call, with the tokens of its partial reply."""
        response = kwargs.get("response")
        partial = usage_of(response) if isinstance(response, LLMResult) else Usage()
        self._count(run_id, partial.model_copy(update={"calls": 1, "cached": 0}))

    def _count(self, run_id: UUID, usage: Usage) -> None:
        if running := self._running.pop(run_id, None):
            stage, model, _ = running
            self.add(stage, self.priced(model, stage, usage))


def usage_of(response: LLMResult) -> Usage:
    """Calls and tokens of one LLM result."""
    first = next((generation for row in response.generations for generation in row), None)
    message = getattr(first, "message", None)
    counted: dict[str, Any] = getattr(message, "usage_metadata", None) or {}
    cost = counted.get("total_cost")
    if cost == 0:  # LangChain adds it to replies from its caches.
        return Usage(cached=1)
    return Usage(
        calls=1,
        input_tokens=counted.get("input_tokens") or 0,
        output_tokens=counted.get("output_tokens") or 0,
        cost=cost or 0.0,
    )
