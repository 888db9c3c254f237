"""UsageMeter: what calls may still spend while others are at work."""

from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from jarvis_agent.core.errors import BudgetError
from jarvis_agent.core.settings import Budget
from jarvis_agent.core.types import Usage
from jarvis_agent.llm.usage import STAGE_KEY, UsageMeter

PROMPT = [HumanMessage("word " * 60)]


def test_a_prompt_that_is_on_its_way_counts_for_the_budget_of_the_next() -> None:
    meter, first = UsageMeter(Budget(tokens=100)), uuid4()
    with meter.reserve(first, "plan", "m", PROMPT):
        with pytest.raises(BudgetError, match="tokens=100"), meter.reserve(uuid4(), "plan", "m", PROMPT):
            pass
        meter.on_chat_model_start({}, [PROMPT], run_id=first, metadata={STAGE_KEY: "plan"})
        with pytest.raises(BudgetError, match="tokens=100"), meter.reserve(uuid4(), "plan", "m", PROMPT):
            pass
        meter.on_llm_error(ValueError(), run_id=first)
        with meter.reserve(uuid4(), "plan", "m", PROMPT):
            pass


def test_a_limit_that_is_spent_holds_up_no_call_that_needs_none_of_it() -> None:
    meter = UsageMeter(Budget(tokens=100, hosted_calls=1))
    for _ in range(2):  # those of an earlier process, which had a larger budget
        meter.add("execute", Usage(hosted_calls=1))
    with meter.reserve(uuid4(), "respond", "m", PROMPT):
        pass
    meter.add("plan", Usage(input_tokens=200))
    with pytest.raises(BudgetError, match="hosted_calls=1"):
        meter.reserve_hosted("image-to-text", "m")


def test_what_a_provider_reports_or_a_cache_answers_is_not_priced_again() -> None:
    meter = UsageMeter(price=lambda model, stage, usage: 5.0)
    assert meter.priced("m", "plan", Usage(calls=1)).cost == 5.0
    assert meter.priced("m", "plan", Usage(calls=1, cost=2.0)).cost == 2.0
    assert meter.priced("m", "plan", Usage(cached=1)).cost == 0.0
    assert UsageMeter(price=lambda *_: None).priced("m", "plan", Usage(calls=1)).cost == 0.0


def test_a_call_without_a_stage_is_not_counted() -> None:
    meter, call = UsageMeter(), uuid4()
    meter.on_chat_model_start({}, [PROMPT], run_id=call, metadata={})
    meter.on_llm_end(LLMResult(generations=[[ChatGeneration(message=AIMessage("x"))]]), run_id=call)
    assert meter.usage == {}
