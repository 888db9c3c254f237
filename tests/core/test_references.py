"""References in plans: finding, replacing and normalising `<resource>-N`."""

from typing import Any

from jarvis_agent.core.references import (
    is_nameless,
    listed_refs,
    normalise_references,
    ref,
    refs_in,
    split_refs,
    substitute,
    substitute_results,
)

SPELLINGS = """
<resource>-3 | <GENERATED>-3 | <resource-3> | <Resource>_3 | <node-3> | <node 3> | <task_3> |
<resource>-<3> | <resource>-task_3 | <resource>-task_id_3 | <resource> - 3 | <resource>3 | <image>-3 |
<output-3> | resource-3 | RESOURCE_3 | generated-3 | <task3> | <resource>-3.text |
<resource>-3.summary_text | <resource>-3[0]["text"][1][2][3]
"""

NO_REFERENCES = """
resource-3.jpg | my-resource-3 | data/resource-3 | https://example.org/resource-3/a.png |
resource-3-final | resources | <b>-3 | <resource>- | text-3 | the 3 <tasks> | <h3> |
<resource>-3.text.jpg | <resource>-3.textbook | <resource>-3 [1]
"""


def test_references_in_nested_values_are_found_in_order_and_replaced() -> None:
    value = {"a": ["<resource>-2", {"b": "of <resource>-0 and <resource>-2"}], "c": 7}
    assert refs_in(value) == [2, 0]
    made = {0: {"boxes": [1]}, 1: ["a", "b"], 2: 42, 3: r"\1 {x} <resource>-5"}
    cases: list[tuple[Any, Any]] = [
        ({"x": "<resource>-0", "y": [" <resource>-1 "]}, {"x": {"boxes": [1]}, "y": [["a", "b"]]}),
        ("Read this: <resource>-2!", "Read this: 42!"),
        ("say <resource>-3", r"say \1 {x} <resource>-5"),
        ({"n": 1, "t": "resource", "none": None}, {"n": 1, "t": "resource", "none": None}),
    ]
    for value, expected in cases:
        assert substitute(value, made.__getitem__) == expected


def test_a_reference_may_mean_one_of_several_results() -> None:
    second = ref(3, 2)
    assert second == "<resource>-3[2]"
    assert refs_in([second, "of <resource>-3 and <resource>-1"]) == [3, 1]
    assert substitute_results(f"{second}, <resource>-1", lambda *found: found) == "(3, 2), (1, 0)"
    assert substitute(f"{second}, <resource>-1", str) == "3, 1"
    assert split_refs(f"see {second}!") == ["see ", (3, 2), "!"]
    assert split_refs(f" {second}\n") == [(3, 2)]
    assert normalise_references(second) == ref(3)


def test_common_spellings_are_normalised() -> None:
    for spelling in map(str.strip, SPELLINGS.split("|")):
        assert normalise_references(spelling) == ref(3)
        text = f"see {spelling}."
        assert normalise_references({"text": [text]}) == {"text": ["see <resource>-3."]}, spelling


def test_file_names_and_other_text_are_not_references() -> None:
    for text in map(str.strip, NO_REFERENCES.split("|")):
        assert normalise_references(text) == text
    assert refs_in(normalise_references("<resource-1>2 apples")) == [1]


def test_references_without_an_id_are_recognised() -> None:
    for text in ("<resource>", " <resource-dep_id>", "<GENERATED>-task_id", "<resource>-<dep_id>"):
        assert is_nameless(text), text
    for text in ("<resource>-0", "a <resource>", "resource", "<b>", "", "<resource>是什么", "<resource>.jpg"):
        assert not is_nameless(text), text


def test_texts_that_are_only_references_are_recognised() -> None:
    lists = {
        " <resource>-0\n": [0],
        "the <resource>-4": [],
        "<resource>-0,<resource>-1": [0, 1],
        "<resource>-0, <resource>-1, and <resource>-2": [0, 1, 2],
        "<resource>-0 & <resource>-1": [0, 1],
        "<resource>-0 <resource>-1": [],
        "compare <resource>-0, <resource>-1": [],
        "": [],
    }
    assert {text: listed_refs(text) for text in lists} == lists
