"""Lists of labels and sentences, as language models send them."""

import json
from pathlib import Path
from typing import Any

import pytest
from result_bench import a_call

from jarvis_agent.backends.base import labels_of, sentences_of
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.planning.plan import Plan

LABELS: list[tuple[Any, list[str], bool]] = [
    (["Paris, France", "Rome"], ["Paris, France", "Rome"], False),
    ('["Paris, France", "Rome"]', ["Paris, France", "Rome"], False),
    ("cat, dog, cat", ["cat", "dog"], False),
    (["cat, dog"], ["cat", "dog"], False),
    ("Paris, France; Rome", ["Paris, France", "Rome"], True),
    ("猫；狗，鸟", ["猫", "狗，鸟"], True),
    ("cat\ndog", ["cat", "dog"], False),
    ("```\ncat\ndog\n```", ["cat", "dog"], False),
    ('```json\n["cat", "dog"]\n```', ["cat", "dog"], False),
    ("`cat`, `dog`", ["cat", "dog"], False),
    ('{"labels": ["cat", "dog, wild"]}', ["cat", "dog, wild"], False),
    ({"first": "cat", "second": "dog"}, ["cat", "dog"], False),
    ([{"label": "cat", "score": 0.5}, ["dog", None]], ["cat", "dog"], False),
    ({"cat": 0.5, "dog": 0.2}, ["cat", "dog"], False),
    ("（猫，狗）", ["猫", "狗"], False),
    ("[cat, dog (wild)]", ["cat", "dog (wild)"], False),
    ('["cat", "dog"', ["cat", "dog"], False),
    ("cats and dogs", ["cats and dogs"], True),
    ("cat/dog", ["cat/dog"], True),
    (["rock and roll"], ["rock and roll"], True),
]


@pytest.mark.parametrize(("value", "labels", "is_noted"), LABELS, ids=str)
def test_labels_are_read_from_one_text_with_a_note_where_it_may_mean_something_else(
    tmp_path: Path, value: Any, labels: list[str], is_noted: bool
) -> None:
    call = a_call(TASKS["zero-shot-classification"], tmp_path, text="x", labels=value)
    assert [labels_of(call), labels_of(call)] == [labels, labels]
    assert len(call.notes) == is_noted
    assert all(label in note for note in call.notes for label in labels)


def test_sentences_keep_their_commas(tmp_path: Path) -> None:
    for value, sentences, notes in (
        ("It is warm, really.", ["It is warm, really."], 0),
        ('["It is warm, really.", "No"]', ["It is warm, really.", "No"], 0),
        ("It is warm, really.\nNo", ["It is warm, really.", "No"], 1),
        (["It is; warm", "No"], ["It is; warm", "No"], 0),
    ):
        call = a_call(TASKS["text-ranking"], tmp_path, text="x", sentences=value)
        assert sentences_of(call) == sentences
        assert len(call.notes) == notes


@pytest.mark.parametrize(
    ("task", "name", "value", "items"),
    [
        ("zero-shot-classification", "labels", '["Paris, France", "Rome"]', ["Paris, France", "Rome"]),
        ("zero-shot-classification", "labels", "猫；狗、鸟", ["猫", "狗", "鸟"]),
        ("sentence-similarity", "sentences", "It is warm, really.", ["It is warm, really."]),
        ("sentence-similarity", "sentences", "It is warm, really.\nNo", ["It is warm, really.", "No"]),
        ("visual-document-retrieval", "image", "a.png, b.png", ["a.png", "b.png"]),
    ],
)
def test_a_list_in_one_text_of_a_plan_is_divided(task: str, name: str, value: str, items: list[str]) -> None:
    plan = Plan.parse(json.dumps([{"task": task, "id": 0, "dep": [-1], "args": {"text": "x", name: value}}]))
    assert plan.tasks[0].args[name] == items
