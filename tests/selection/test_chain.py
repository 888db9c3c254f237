"""The language model's choice: looked up in the list, whatever it wrote."""

import pytest

from jarvis_agent.selection.chain import choice_schema, read_choice
from jarvis_agent.core.types import Candidate

MODELS = [
    Candidate(id=name, task="object-detection")
    for name in ("facebook/detr-resnet-50", "hustvl/yolos-tiny", "other/yolos-tiny", "gpt2")
]


@pytest.mark.parametrize(
    ("said", "chosen", "why"),
    [
        ('{"id": "hustvl/yolos-tiny", "reason": "It is small."}', "hustvl/yolos-tiny", "It is small."),
        ('Sure!\n```json\n{"id": "gpt2", "reason": "r"}\n```', "gpt2", "r"),
        ("{'id': 'Facebook/DETR-ResNet-50', 'reason': 'r',}", "facebook/detr-resnet-50", "r"),
        ('{"id": "detr-resnet-50"}', "facebook/detr-resnet-50", "the language model chose it"),
        ('{"id": "wrong-org/detr-resnet-50", "reason": "r"}', "facebook/detr-resnet-50", "r"),
        ('{"reason": "first the reason", "id": " gpt2 "}', "gpt2", "first the reason"),
        ('{"id": "gpt2", "reason": "cut o', "gpt2", "cut o"),
        ("gpt2", "gpt2", "gpt2"),
        ("I take gpt2, for its wit.", "gpt2", "I take gpt2, for its wit."),
        ('{"id": ["gpt2"]}', "gpt2", '{"id": ["gpt2"]}'),
    ],
)  # fmt: skip
def test_a_choice_is_found_in_the_reply(said: str, chosen: str, why: str) -> None:
    found, reason = read_choice(said, MODELS)
    assert found is not None
    assert (found.id, reason) == (chosen, why)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ('{"id": "made/up", "reason": "r"}', "made/up"),
        ('{"id": "yolos-tiny", "reason": "two have this name"}', "yolos-tiny"),
        ("Either hustvl/yolos-tiny or other/yolos-tiny.", "Either"),
        (" ", "no model"),
        ("null", "null"),
    ],
)
def test_what_is_not_in_the_list_is_no_choice(said: str, named: str) -> None:
    found, reason = read_choice(said, MODELS)
    assert found is None
    assert named in reason


def test_a_long_reason_is_cut() -> None:
    _, reason = read_choice('{"id": "gpt2", "reason": "' + "so good " * 200 + '"}', MODELS)
    assert len(reason) <= 402


def test_the_schema_allows_the_listed_ids_alone() -> None:
    schema = choice_schema(MODELS)
    assert schema["properties"]["id"]["enum"] == [model.id for model in MODELS]
    assert schema["additionalProperties"] is False
