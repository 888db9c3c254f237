"""Text is made encodable and shortened, so that any run can be stored and sent."""

from pathlib import Path

import pytest
from cost import best_time

from jarvis_agent import Request
from jarvis_agent.core.text import (
    brief_text,
    detect_script,
    replace_surrogates,
    replace_surrogates_in,
    split_list,
)
from jarvis_agent.core.types import Resource, TaskResult

HALF = "a \ud83d cat"


def test_surrogates_are_joined_or_replaced() -> None:
    texts = {"plain": "plain", "猫 😀": "猫 😀", "\ud83d\ude00": "😀", HALF: "a \ufffd cat"}
    assert {text: replace_surrogates(text) for text in texts} == texts
    data, whole = {HALF: [HALF, 1, None, (HALF,)], "path": Path("a")}, texts[HALF]
    assert replace_surrogates_in(data) == {whole: [whole, 1, None, (whole,)], "path": Path("a")}


def test_texts_are_shortened_on_one_line_at_the_end_of_a_word() -> None:
    assert [brief_text("one\ntwo three", limit) for limit in (300, 9)] == ["one two three", "one two …"]
    assert brief_text("a " + "物" * 500) == f"a {'物' * 298} …"
    assert brief_text("\x1b[1mone\x07") == "one"


def test_requests_resources_and_results_have_no_lone_surrogates() -> None:
    task = {"task": HALF, "id": 0, "args": {"text": HALF}}
    for value in (
        Request(input=HALF, files=[HALF]),
        Request.of({"messages": [{"role": "user", "content": HALF}]}),
        Resource(kind="data", text=HALF, data={"label": [HALF]}, name=HALF),
        TaskResult.model_validate({"task": task, "status": "ok"}),
    ):
        assert "\ufffd" in value.model_dump_json()


LISTS: list[tuple[str, list[str]]] = [
    ("cat, dog", ["cat", "dog"]),
    ("cat", ["cat"]),
    ("Labels:\n- cat\n- dog", ["Labels:", "cat", "dog"]),
    ("1. cat\n2. dog", ["cat", "dog"]),
    ("[" * 600 + "1" + "]" * 600, ["1"]),
    ("Open since 2019. Hats.\nA - B\n12. Mai", ["Open since 2019. Hats.", "A - B", "12. Mai"]),
    ("cat,", ["cat"]),
    (" , ", []),
    ("", []),
    ('["Paris, France", "Rome"]', ["Paris, France", "Rome"]),
    ("['Paris, France', 'Rome']", ["Paris, France", "Rome"]),
    ("('Paris, France', 'Rome')", ["Paris, France", "Rome"]),
    ("{'Rome', 'Paris', 'Oslo'}", ["Rome", "Paris", "Oslo"]),
    ("(cat, dog)", ["cat", "dog"]),
    ("(see below)", ["(see below)"]),
    ("(a) cat, (b) dog", ["(a) cat", "(b) dog"]),
    ("a cat\ta dog, a big one", ["a cat", "a dog, a big one"]),
    ("[1, 2.5, true]", ["1", "2.5", "True"]),
    ("[cat, dog]", ["cat", "dog"]),
    ('"Paris, France", Rome', ["Paris, France", "Rome"]),
    ("“Paris, France”, “Rome”", ["Paris, France", "Rome"]),
    ("'Paris, France'; Rome, Italy", ["Paris, France", "Rome, Italy"]),
    ("rock 'n' roll, don't, can't", ["rock 'n' roll", "don't", "can't"]),
    ('a 6" pipe, an 8" pipe', ['a 6" pipe', 'an 8" pipe']),
    ("Paris, France\nRome; Italy\n", ["Paris, France", "Rome; Italy"]),
    ("- cat\r\n- dog", ["cat", "dog"]),
    ("1. cat\n2) dog", ["cat", "dog"]),
    ("猫；狗、鸟;fish", ["猫", "狗", "鸟", "fish"]),
    ("猫，狗", ["猫", "狗"]),
    ("قطة، كلب", ["قطة", "كلب"]),
    ("cat | dog, big", ["cat", "dog, big"]),
    ("salt and pepper, oil", ["salt and pepper", "oil"]),
    ("[" * 100_000 + "]", ["[" * 99_999]),
]


def test_a_list_in_one_text_is_divided_at_its_strongest_separators() -> None:
    assert [(text, split_list(text)) for text, _ in LISTS] == LISTS


@pytest.mark.parametrize("unit", ['"a', "'", "a ", 'a",', '",', "\n ", "“", "a'b, "])
def test_the_cost_of_a_list_grows_as_its_length(unit: str) -> None:
    def cost(length: int) -> float:
        text = f"a{' ' * length}{unit * (length // len(unit))}b"
        return best_time(lambda: split_list(text))

    assert cost(64_000) <= 24 * cost(8_000) + 0.02


def test_the_script_of_a_text_gives_its_language() -> None:
    scripts = {"你好": "zh", "こんにちは世界": "ja", "안녕": "ko", "Hello": "", "1 !?": None, "": None}
    assert {text: detect_script(text) for text in scripts} == scripts
