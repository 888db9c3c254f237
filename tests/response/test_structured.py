"""structured_chain and ResponseFormat: an answer as a value of the user's type."""

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from pydantic import BaseModel
from typing_extensions import TypedDict

from jarvis_agent.core.errors import ConfigError, LLMError
from jarvis_agent.core.types import Resource, Task, TaskResult
from jarvis_agent.planning.plan import Plan
from jarvis_agent.response.structured import ResponseFormat, structured_chain
from jarvis_agent.testing import ScriptedLLM

TASK = Task(task="object-detection", id=0, args={"image": "street.jpg"})
RESULT = TaskResult(
    task=TASK,
    status="ok",
    resources=[Resource(kind="text", text="2 objects: 2 dogs")],
    output=[{"label": "dog", "score": 0.9}, {"label": "dog", "score": 0.8}],
)
INPUTS = {
    "input": "How many dogs are in street.jpg?",
    "plan": Plan(tasks=[TASK]),
    "results": [RESULT],
    "answer": "There are two dogs.",
}


class Count(BaseModel):
    """Animals that were counted."""

    animal: str
    number: int
    seen: date | None = None


@dataclass
class CountData:
    animal: str
    number: int


class CountDict(TypedDict):
    animal: str
    number: int


SCHEMA = {
    "title": "Count",
    "type": "object",
    "properties": {"animal": {"type": "string"}, "number": {"type": "integer"}},
    "required": ["animal", "number"],
}
REPLY = '{"animal": "dog", "number": 2}'
FORMS = [
    (Count, Count(animal="dog", number=2)),
    (CountData, CountData("dog", 2)),
    (CountDict, {"animal": "dog", "number": 2}),
    (SCHEMA, {"animal": "dog", "number": 2}),
    (ToolStrategy(Count), Count(animal="dog", number=2)),
    (ProviderStrategy(Count), Count(animal="dog", number=2)),
]


@pytest.mark.parametrize(("form", "expected"), FORMS)
def test_the_forms_of_create_agent_are_taken(form: Any, expected: Any) -> None:
    llm = ScriptedLLM({"structure": f"```json\n{REPLY}\n```"})
    value = structured_chain(llm, ResponseFormat(form)).invoke(INPUTS)
    assert value == {"animal": "dog", "number": 2}
    assert ResponseFormat(form).read(value) == expected
    prompt = "".join(str(message.text) for message in llm.calls[0].messages)
    assert all(
        text in prompt for text in ("There are two dogs.", "2 objects: 2 dogs", '"integer"', "street.jpg")
    )


def test_a_reply_that_does_not_fit_goes_back_once_with_the_error() -> None:
    llm = ScriptedLLM({"structure": ['{"animal": "dog", "number": "two"}', REPLY]})
    assert structured_chain(llm, ResponseFormat(Count)).invoke(INPUTS)["number"] == 2
    assert "number" in str(llm.calls[1].messages[-1].text)


@pytest.mark.parametrize("reply", ["two dogs", "[]", '{"animal": "dog"}', '{"animal": 7, "number": 2}'])
@pytest.mark.parametrize("form", [Count, SCHEMA])
def test_what_never_fits_is_an_error(form: Any, reply: str) -> None:
    llm = ScriptedLLM({"structure": [reply, reply, REPLY]})
    with pytest.raises(LLMError, match="no structured answer that fits"):
        structured_chain(llm, ResponseFormat(form)).invoke(INPUTS)
    assert len(llm.calls) == 2


def test_json_has_dates_as_texts() -> None:
    assert ResponseFormat(Count).read({"animal": "dog", "number": 2, "seen": "2026-01-31"}).seen == date(
        2026, 1, 31
    )


@pytest.mark.parametrize("form", ["Count", 7, {"type": "nothing"}, object()])
def test_another_form_is_refused(form: Any) -> None:
    with pytest.raises(ConfigError, match="response_format is"):
        ResponseFormat(form)


class Label(BaseModel):
    label: str = ""
    score: float = 0.0


@pytest.mark.parametrize(
    ("form", "value", "fits"),
    [
        (Count, {"animal": "dog", "number": 2}, True),
        (Count, {"animal": "dog", "number": "2"}, False),
        (Label, {"label": "dog"}, True),
        (Label, {"text": "dog"}, False),
        (Label, [{"label": "dog"}], False),
        (SCHEMA, {"animal": "dog", "number": 2}, True),
        (SCHEMA, {"animal": "dog"}, False),
    ],
)
def test_an_output_fits_without_conversion_or_not_at_all(form: Any, value: Any, fits: bool) -> None:
    assert ResponseFormat(form).fits(value) is fits


def test_an_output_is_read_as_a_type_of_huggingface_hub() -> None:
    from huggingface_hub import ImageClassificationOutputElement

    labels = RESULT.output_as(list[ImageClassificationOutputElement])
    assert [(row.label, row.score) for row in labels] == [("dog", 0.9), ("dog", 0.8)]
    with pytest.raises(ValueError, match="list"):
        RESULT.model_copy(update={"output": None}).output_as(list[ImageClassificationOutputElement])
