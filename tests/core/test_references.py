"""References are found, replaced, and brought into one spelling, whatever a language model made of them."""

import pytest

from jarvis_agent.core.references import is_nameless, listed_refs, ref, refs_in, substitute, tidy, whole_ref


def test_references_are_found_however_deep_in_their_order_and_once():
    value = {"a": ["<resource>-2", {"b": "of <resource>-0 and <resource>-2"}], "c": 7}
    assert refs_in(value) == [2, 0]


def test_a_whole_reference_becomes_what_it_stands_for_whatever_its_type():
    made = {0: {"boxes": [1]}, 1: ["a", "b"]}
    assert substitute({"x": "<resource>-0", "y": [" <resource>-1 "]}, made.__getitem__) == {
        "x": {"boxes": [1]},
        "y": [["a", "b"]],
    }


def test_a_reference_inside_a_text_is_put_as_text():
    assert substitute("Read this: <resource>-0!", {0: 42}.__getitem__) == "Read this: 42!"


def test_what_holds_no_reference_stays_as_it_is():
    assert substitute({"n": 1, "t": "resource", "none": None}, {}.__getitem__) == {
        "n": 1,
        "t": "resource",
        "none": None,
    }


def test_the_replacement_is_put_in_to_the_letter():
    assert (
        substitute("say <resource>-0", {0: r"\1 {x} <resource>-5"}.__getitem__) == r"say \1 {x} <resource>-5"
    )


@pytest.mark.parametrize(
    "spelling",
    [
        "<resource>-3",
        "<GENERATED>-3",
        "<resource-3>",
        "<Resource>_3",
        "<node-3>",
        "<node 3>",
        "<task_3>",
        "<resource>-<3>",
        "<resource>-task_3",
        "<resource>-task_id_3",
        "<resource> - 3",
        "<resource>3",
        "<image>-3",
        "<output-3>",
        "resource-3",
        "RESOURCE_3",
        "generated-3",
        "<task3>",
        "<resource>-3.text",
        "<resource>-3.summary_text",
        '<resource>-3[0]["text"][1][2][3]',
    ],
)
def test_every_usual_spelling_is_understood(spelling):
    assert tidy(spelling) == ref(3)
    assert tidy({"text": ["see " + spelling + "."]}) == {"text": ["see <resource>-3."]}


@pytest.mark.parametrize(
    "text",
    [
        "resource-3.jpg",
        "my-resource-3",
        "data/resource-3",
        "https://example.org/resource-3/a.png",
        "resource-3-final",
        "resources",
        "<b>-3",
        "<resource>-",
        "text-3",
        "the 3 <tasks>",
    ],
)
def test_file_names_and_plain_words_are_no_references(text):
    assert tidy(text) == text


@pytest.mark.parametrize(
    "text", ["<h3>", "<resource>-3.text.jpg", "<resource>-3.textbook", "<resource>-3 [1]"]
)
def test_what_follows_a_reference_and_is_no_field_stays(text):
    assert tidy(text) == text


@pytest.mark.parametrize("text", ["output of task 3", "The result from task 3.", "{text of node_3}"])
def test_words_for_a_reference_count_where_they_stand_alone(text):
    assert tidy(text) == ref(3)
    assert tidy(f"Say: {text}") == f"Say: {text}"


def test_a_reference_without_a_number_is_told_from_other_texts():
    assert all(
        map(is_nameless, ["<resource>", " <resource-dep_id>", "<GENERATED>-task_id", "<resource>-<dep_id>"])
    )
    assert not any(map(is_nameless, ["<resource>-0", "a <resource>", "resource", "<b>", ""]))


def test_digits_that_follow_do_not_become_part_of_the_id():
    assert refs_in(tidy("<resource-1>2 apples")) == [1]


def test_a_whole_reference_is_told_from_a_text_around_one():
    assert whole_ref(" <resource>-4\n") == 4
    assert whole_ref("the <resource>-4") is None


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("<resource>-0", [0]),
        ("<resource>-0,<resource>-1", [0, 1]),
        ("<resource>-0, <resource>-1, and <resource>-2", [0, 1, 2]),
        ("<resource>-0 & <resource>-1", [0, 1]),
        ("<resource>-0 <resource>-1", []),
        ("compare <resource>-0, <resource>-1", []),
        ("", []),
    ],
)
def test_a_list_of_references_is_told_from_a_text(text, ids):
    assert listed_refs(text) == ids
