"""JsonReader: valid JSON while it is written, other JSON at the end, any chunking, limits."""

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jarvis_agent.llm.json_stream import MAX_DEPTH, MAX_REPAIRED_CHARS, JsonReader


def read(text: str, cuts: Iterable[int] = ()) -> tuple[list[Any], str, str]:
    """The values, note and excerpt of a text that is cut at these places."""
    reader, found, start = JsonReader(), [], 0
    for cut in [*sorted(cuts), len(text)]:
        found += reader.feed(text[start:cut])
        start = max(start, cut)
    return found + reader.close(), reader.note, reader.excerpt


plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
    max_leaves=10,
)


@settings(max_examples=100)
@given(plain_json, st.sampled_from([None, 2]), st.booleans())
def test_well_formed_json_is_read_as_json_reads_it(value: Any, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps([value], indent=indent, ensure_ascii=ascii_only)
    found, note, _ = read(text)
    assert found[-1].value == [value]
    assert note == ""


PIECES = [
    *"[]{}(),:\"'`“”‘\\/#* \n\tab01-.<>", "<think>", "</think>", '"a"', '{"a":', '", ', "true",
    "/*", "*/", "//", "x" * 401, "[{", "}]", "task: ", "\\u00e9", "\\udc00", '{"a": 1}', "\ud83d", "\ude00",
]  # fmt: skip
fragments = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@settings(max_examples=200)
@given(fragments, st.data())
def test_chunking_makes_no_difference(text: str, data: st.DataObject) -> None:
    whole = read(text)
    assert read(text, range(len(text))) == whole
    assert read(text, data.draw(st.lists(st.integers(0, len(text)), max_size=4))) == whole


REPAIRED = "it was not valid JSON and was repaired"
UNREAD = "a part was not read: it is not valid JSON, or nested too deeply"


def values(text: str) -> list[Any]:
    return [parsed.value for parsed in read(text)[0]]


def test_json_that_is_not_valid_is_repaired() -> None:
    written = {
        "[{'a': 'b'}]": [{"a": "b"}],
        "{“a”: “b”}": {"a": "b"},
        '{"a": "Say "hi", then "bye""}': {"a": 'Say "hi", then "bye"'},
        '{"a": "a 5" nail", "b": 1}': {"a": 'a 5" nail', "b": 1},
        "{id: 0, dep: [-1],}": {"id": 0, "dep": [-1]},
        "[a.jpg, b.jpg]": ["a.jpg", "b.jpg"],
        "[1, 2,]": [1, 2],
        "[True, False, None]": [True, False, None],
        '{"a": 1, // one\n "b": 2 # two, or so\n}': {"a": 1, "b": 2},
        '[{"a": {"b": 1}, {"a": 2}]': [{"a": {"b": 1}}, {"a": 2}],
        '{"a": "line\none"}': {"a": "line\none"},
        r'{"a": "C:\data\cat.jpg"}': {"a": "C:\\data\\cat.jpg"},
        r'["\ud83d"]': ["�"],
    }
    assert {text: values(text)[-1] for text in written} == written
    assert {read(text)[1] for text in written} == {REPAIRED}


def test_valid_values_are_returned_as_soon_as_they_are_closed() -> None:
    reader = JsonReader()
    assert reader.feed('{"tasks": [{"args": {"x"') == []
    assert [(f.value, f.path) for f in reader.feed(": 1}")] == [({"x": 1}, ("tasks", "args"))]
    assert [(f.value, f.path) for f in reader.feed("}")] == [({"args": {"x": 1}}, ("tasks",))]
    assert reader.feed(", ") == []
    assert [f.complete for f in reader.close()] == [False, False]


def test_what_follows_an_error_is_returned_once_at_the_end() -> None:
    reader = JsonReader()
    assert [parsed.value for parsed in reader.feed('[{"a": 1}, {"b": {"c": 1},}')] == [{"a": 1}, {"c": 1}]
    assert reader.feed(', {"d": 1}, {"a": 1}]') == []
    whole = [{"a": 1}, {"b": {"c": 1}}, {"d": 1}, {"a": 1}]
    assert [parsed.value for parsed in reader.close()] == [*whole[1:], whole]
    # A comment may hold a task that is not wanted.
    assert values('[/* {"a": 1}, */ {"b": 1}]') == [{"b": 1}, [{"b": 1}]]
    # A key of the last value says nothing about the next one.
    assert [parsed.path for parsed in read('{"args": 1}\n{"a": 1}')[0]] == [(), ()]


def test_a_value_is_complete_if_only_its_own_bracket_is_missing() -> None:
    for text, inner in (('[{"a": {"b": "c"}', True), ('[{"a": {"b": "c', False), ("[{'a': {'b': 'c", False)):
        assert [(value.value, value.complete) for value in read(text)[0]] == [
            ({"b": "c"}, inner),
            ({"a": {"b": "c"}}, inner),
            ([{"a": {"b": "c"}}], False),
        ]


def test_prose_and_fences_are_skipped_and_the_beginning_is_kept() -> None:
    text = "Sure, [here] it is:\n```json\n[1]\n```\nIs (that) what you < wanted?"
    assert (values(text), *read(text)[1:]) == ([[1]], "", text)
    assert values('{"a": 1}\n{"a": 2}\n') == [{"a": 1}, {"a": 2}]


LONG_THOUGHT = "Okay, the user wants to know what is in the picture. " * 10


def test_nothing_is_read_from_thinking() -> None:
    answer = '[{"b": 2}]'
    thoughts = [f'<{tag}>maybe [{{"a": 1}}] or {{[</{tag}>' for tag in ("think", "thinking", "THINK")]
    # Some chat templates swallow the opening tag.
    thoughts.append(LONG_THOUGHT + 'So [{"a": 1}], or [perhaps {"a": 3 </think>\n')
    for thought in thoughts:
        assert values(thought + answer) == [{"b": 2}, [{"b": 2}]], thought
    assert values('<think>[{"a": 1}]') == []


def test_what_follows_long_prose_is_held_until_the_text_ends_since_it_may_be_thinking() -> None:
    reader = JsonReader()
    assert reader.feed(LONG_THOUGHT + "[1]") == []
    assert [value.value for value in reader.close()] == [[1]]
    assert [value.value for value in JsonReader().feed("Here is the plan: [{}]")] == [{}, [{}]]


def test_what_is_nested_too_deeply_or_too_long_to_repair_is_read_as_far_as_it_is_valid() -> None:
    for rest in (
        "[" * MAX_DEPTH,
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000,
        "'a'," * MAX_REPAIRED_CHARS,
        "9" * 5000 + "] x",
    ):
        found, note, _ = read('[{"a": 1}, ' + rest)
        assert ([value.value for value in found], note) == ([{"a": 1}], UNREAD), rest[:10]
    assert values("[" * MAX_DEPTH + "]" * MAX_DEPTH)[0] == []
    assert values(json.dumps([{"a": "b" * MAX_REPAIRED_CHARS}]))[0] == {"a": "b" * MAX_REPAIRED_CHARS}
