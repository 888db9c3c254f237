"""selection_chain: prompt, chat model and parser as one Runnable; the reply is checked against the list."""

from typing import Any

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate

from jarvis_agent import Settings, selection_chain
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.types import Candidate, Task
from jarvis_agent.llm.tokens import DEFAULT_WINDOW, count_tokens
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


REPLIES = [
    ('{"id": "hustvl/yolos-tiny", "reason": "It is small."}', "hustvl/yolos-tiny", "It is small."),
    ('Sure!\n```json\n{"id": "gpt2", "reason": "r"}\n```', "gpt2", "r"),
    ("{'id': 'Facebook/DETR-ResNet-50', 'reason': 'r',}", "facebook/detr-resnet-50", "r"),
    ('{"id": "detr-resnet-50"}', "facebook/detr-resnet-50", ""),
    ('{"id": "wrong-org/detr-resnet-50", "reason": "r"}', "facebook/detr-resnet-50", "r"),
    ('{"reason": "first the reason", "id": " gpt2 "}', "gpt2", "first the reason"),
    ('{"id": "gpt2", "reason": "cut o', "gpt2", "cut o"),
    ("gpt2", "gpt2", "gpt2"),
    ("I choose gpt2 for this.", "gpt2", "I choose gpt2 for this."),
    ('{"id": ["gpt2"]}', "gpt2", '{"id": ["gpt2"]}'),
]
REJECTED = [
    ('{"id": "made/up", "reason": "r"}', "made/up"),
    ('{"id": "yolos-tiny", "reason": "two have this name"}', "yolos-tiny"),
    ("Either hustvl/yolos-tiny or other/yolos-tiny.", "Either"),
    (" ", "no model"),
    ("null", "null"),
]


def test_the_parser_finds_the_choice_in_a_reply() -> None:
    parser = ModelChoiceParser(candidates=MODELS)
    choices = [parser.invoke(AIMessage(reply)) for reply, *_ in REPLIES]
    assert choices == [ModelChoice(id=chosen, reason=reason) for _, chosen, reason in REPLIES]
    long = resolve_choice({"id": "gpt2", "reason": "so good " * 200}, MODELS)
    assert len(long.reason) <= 402


def test_a_reply_that_names_no_candidate_is_rejected() -> None:
    for reply, named in REJECTED:
        with pytest.raises(OutputParserException) as caught:
            ModelChoiceParser(candidates=MODELS).invoke(reply)
        assert named in str(caught.value)
        assert "http" not in str(caught.value)


def test_a_custom_selector_may_return_a_choice_a_dict_or_an_id() -> None:
    accepted: list[Any] = [ModelChoice(id="GPT2"), {"id": "gpt2"}, "gpt2", '{"id": "gpt2"}']
    assert [resolve_choice(value, MODELS).id for value in accepted] == ["gpt2"] * 4
    for value in (None, 7, {}, {"id": None}, MODELS):
        with pytest.raises(OutputParserException, match="no model"):
            resolve_choice(value, MODELS)


def test_the_chain_asks_with_request_task_and_candidates() -> None:
    chain, llm = chain_of(CHOSEN)
    assert chain.invoke(INPUTS) == ModelChoice(id="gpt2", reason="it knows zebras")
    [call] = llm.calls
    assert call.stage == "select"
    for text in (str(INPUTS["input"]), '"image": "z.jpg"', "About other/yolos-tiny.", "count the objects"):
        assert text in call.prompt, text


def test_metadata_in_which_all_candidates_are_equal_is_not_shown() -> None:
    models = [
        Candidate(id=name, task="object-detection", license="mit", downloads=count, local=name == "a")
        for name, count in (("a", 9), ("b", 8), ("c", 9))
    ]
    chain, llm = chain_of('{"id": "a", "reason": "r"}')
    chain.invoke({**INPUTS, "candidates": models})
    assert "license" not in llm.calls[0].prompt
    assert '"metadata": {"downloads": 9, "on_this_machine": true}' in llm.calls[0].prompt
    chain, llm = chain_of('{"id": "a", "reason": "r"}')
    chain.invoke({**INPUTS, "candidates": models[:1]})
    assert '"license": "mit"' in llm.calls[0].prompt, "there is nothing to compare it with"


def test_plain_dicts_stand_for_a_task_and_candidates() -> None:
    chain, llm = chain_of(CHOSEN)
    candidates = [{"id": model.id, "task": model.task, "description": model.description} for model in MODELS]
    task = {"task": "object-detection", "id": 0, "args": {"image": "z.jpg"}}
    assert chain.invoke({"task": task, "candidates": candidates}).id == "gpt2"
    assert "About other/yolos-tiny." in llm.calls[0].prompt


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"task": {"task": "object-detection"}}, "task.id: Field required"),
        ({"candidates": [{"id": "gpt2"}]}, "candidates.0.task: Field required"),
        ({"candidates": []}, "candidates: List should have at least 1 item"),
        ({"candidates": None}, "candidates: Input should be a valid list"),
    ],
)
def test_input_that_cannot_be_used_is_named(wrong: dict[str, Any], problem: str) -> None:
    chain, llm = chain_of()
    with pytest.raises(InputError, match=problem):
        chain.invoke({**INPUTS, **wrong})
    assert llm.calls == []


def test_a_batch_makes_a_call_for_each_task_and_retry_repeats_a_bad_reply() -> None:
    chain, llm = chain_of(CHOSEN, CHOSEN)
    assert [choice.id for choice in chain.batch([INPUTS, INPUTS])] == ["gpt2", "gpt2"]
    chain, llm = chain_of('{"id": "made/up"}', CHOSEN)
    retrying = chain.with_retry(
        retry_if_exception_type=(OutputParserException,), wait_exponential_jitter=False
    )
    assert retrying.invoke(INPUTS).id == "gpt2"
    assert len(llm.calls) == 2


def test_the_prompt_can_be_inspected_and_replaced() -> None:
    chain, _ = chain_of(CHOSEN)
    [prompt] = chain.get_prompts()
    assert {"input", "task", "candidate_models"} <= set(prompt.input_variables)
    own = ChatPromptTemplate([("system", "Choose of {candidate_models}"), ("human", "{input}")])
    chain, llm = chain_of(CHOSEN, prompts=own)
    chain.invoke(INPUTS)
    assert llm.calls[0].prompt.endswith(str(INPUTS["input"]))
    paper, llm = chain_of(CHOSEN, settings=Settings(prompts="paper"))
    paper.invoke(INPUTS)
    assert "#2 Model Selection Stage - Given the user request" in llm.calls[0].prompt


def test_many_long_descriptions_fit_the_context_window() -> None:
    cards = [
        Candidate(id=f"org/m{n}", task="object-detection", description="word " * 3000) for n in range(20)
    ]
    chain, llm = chain_of('{"id": "org/m7"}')
    chain.invoke({**INPUTS, "candidates": cards, "input": "Find cats. " * 5000})
    prompt = llm.calls[0].prompt
    assert count_tokens(prompt) < DEFAULT_WINDOW
    assert all(f'"org/m{n}"' in prompt for n in range(20))
