"""selection_chain: prompt, chat model and parser as one Runnable; the reply is checked against the list."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage

from jarvis_agent import selection_chain
from jarvis_agent.core.types import Candidate, Task
from jarvis_agent.selection.chain import ModelChoice, ModelChoiceParser, resolve_choice
from jarvis_agent.testing import ScriptedLLM

MODELS = [
    Candidate(id=name, task="object-detection", description=f"About {name}.")
    for name in ("facebook/detr-resnet-50", "hustvl/yolos-tiny", "other/yolos-tiny", "gpt2")
]
INPUTS = {
    "input": "Find the zebras {in} z.jpg",
    "task": Task(task="object-detection", id=0, args={"image": "z.jpg"}),
    "candidates": MODELS,
}
CHOSEN = '{"id": "gpt2", "reason": "it knows zebras"}'


def chain_of(*replies: Any, **options: Any) -> tuple[Any, ScriptedLLM]:
    llm = ScriptedLLM(list(replies))
    return selection_chain(llm, **options), llm


@pytest.mark.parametrize(
    ("reply", "chosen", "reason"),
    [
        ('{"id": "hustvl/yolos-tiny", "reason": "It is small."}', "hustvl/yolos-tiny", "It is small."),
        ('Sure!\n```json\n{"id": "gpt2", "reason": "r"}\n```', "gpt2", "r"),
        ("{'id': 'Facebook/DETR-ResNet-50', 'reason': 'r',}", "facebook/detr-resnet-50", "r"),
        ('{"id": "detr-resnet-50"}', "facebook/detr-resnet-50", ""),
        ('{"id": "wrong-org/detr-resnet-50", "reason": "r"}', "facebook/detr-resnet-50", "r"),
        ('{"reason": "first the reason", "id": " gpt2 "}', "gpt2", "first the reason"),
        ('{"id": "gpt2", "reason": "cut o', "gpt2", "cut o"),
        ("gpt2", "gpt2", "gpt2"),
        ("I take gpt2, for its wit.", "gpt2", "I take gpt2, for its wit."),
        ('{"id": ["gpt2"]}', "gpt2", '{"id": ["gpt2"]}'),
    ],
)  # fmt: skip
def test_the_parser_finds_the_choice_in_a_reply(reply: str, chosen: str, reason: str) -> None:
    parser = ModelChoiceParser(candidates=MODELS)
    assert parser.invoke(AIMessage(reply)) == ModelChoice(id=chosen, reason=reason)


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ('{"id": "made/up", "reason": "r"}', "made/up"),
        ('{"id": "yolos-tiny", "reason": "two have this name"}', "yolos-tiny"),
        ("Either hustvl/yolos-tiny or other/yolos-tiny.", "Either"),
        (" ", "no model"),
        ("null", "null"),
    ],
)
def test_a_reply_that_names_no_candidate_is_rejected(reply: str, named: str) -> None:
    with pytest.raises(OutputParserException) as caught:
        ModelChoiceParser(candidates=MODELS).invoke(reply)
    assert named in str(caught.value)
    assert "http" not in str(caught.value)


@pytest.mark.parametrize("value", [ModelChoice(id="GPT2"), {"id": "gpt2"}, "gpt2", '{"id": "gpt2"}'])
def test_a_replacement_may_return_a_choice_a_dict_or_an_id(value: Any) -> None:
    assert resolve_choice(value, MODELS).id == "gpt2"


@pytest.mark.parametrize("value", [None, 7, {}, {"id": None}, MODELS])
def test_other_values_of_a_replacement_are_rejected(value: Any) -> None:
    with pytest.raises(OutputParserException, match="no model"):
        resolve_choice(value, MODELS)


def test_a_long_reason_is_shortened() -> None:
    assert len(resolve_choice({"id": "gpt2", "reason": "so good " * 200}, MODELS).reason) <= 402


async def test_the_run_is_named_select_and_contains_the_model() -> None:
    chain, _ = chain_of(CHOSEN)
    events = [event async for event in chain.astream_events(INPUTS, version="v2")]
    assert events[0]["name"] == "select"
    assert events[-1]["data"]["output"].id == "gpt2"
    assert "on_chat_model_end" in {event["event"] for event in events}
