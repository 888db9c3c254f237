"""JSON in replies: read while it is written as long as it is valid, any chunking, limits."""

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jarvis_agent.llm.replies import MAX_DEPTH, MAX_REPAIRED_CHARS, JsonReader, read_json


def read(text: str, cuts: Iterable[int] = ()) -> tuple[list[Any], str, str]:
    """The parts, note and excerpt of a text that is cut at these places."""
    reader, parts, start = JsonReader(), [], 0
    for cut in [*sorted(cuts), len(text)]:
        parts += reader.feed(text[start:cut])
        start = max(start, cut)
    return parts + reader.close(), reader.note, reader.excerpt


def values(text: str) -> list[Any]:
    return [part.value for part in read_json(text)]


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
    parts, note, _ = read(json.dumps({"a": value}, indent=indent, ensure_ascii=ascii_only))
    assert (parts[-1].value, note) == ({"a": value}, "")


PIECES = [
    *"[]{}(),:\"'`“”‘\\/#* \n\tab01-.<>", "<think>", "</think>", '"a"', '{"a":', '", ', "true", '{"tasks": [',
    "/*", "*/", "//", "x" * 401, "[{", "}]", "task: ", "\\u00e9", "\\udc00", '{"a": 1}', "\ud83d", "\ude00",
]  # fmt: skip
fragments = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@settings(max_examples=200)
@given(fragments, st.data())
def test_chunking_makes_no_difference(text: str, data: st.DataObject) -> None:
    whole = read(text)
    assert read(text, range(len(text))) == whole
    assert read(text, data.draw(st.lists(st.integers(0, len(text)), max_size=4))) == whole


def test_json_that_is_not_valid_is_repaired() -> None:
    written = {
        "[{'a': 'b'}]": [{"a": "b"}],
        "{“a”: “b”}": {"a": "b"},
        '{"a": "Say "hi", then "bye""}': {"a": 'Say "hi", then "bye"'},
        "{id: 0, dep: [-1],}": {"id": 0, "dep": [-1]},
        "[1, 2,]": [1, 2],
        '{"a": 1, // one\n "b": 2 # two, or so\n}': {"a": 1, "b": 2},
        '[{"a": {"b": 1}, {"a": 2}]': [{"a": {"b": 1}}, {"a": 2}],
        '{"a": "line\none"}': {"a": "line\none"},
        r'{"a": "C:\data\cat.jpg"}': {"a": "C:\\data\\cat.jpg"},
        '[/* {"a": 1}, */ {"b": 1}]': [{"b": 1}],
    }
    assert {text: values(text)[-1] for text in written} == written
    assert {read(text)[1] for text in written} == {"it was not valid JSON and was repaired"}
    assert values(r'["\ud83d"]') == [["�"]]


def test_the_objects_of_a_list_are_returned_as_soon_as_they_are_closed() -> None:
    for begin in ("[", 'Sure:\n```json\n{"tasks": ['):
        reader = JsonReader()
        assert reader.feed(begin + '{"args": {"x": 1}') == []
        closed = [(part.value, part.path) for part in reader.feed("}")]
        assert closed == [({"x": 1}, ("args",)), ({"args": {"x": 1}}, ())]
        # What follows an error is returned once, at the end.
        assert reader.feed(", {'b': 1}") == []
        assert [part.value for part in reader.close()] == [{"b": 1}, [{"b": 1}]]
    assert [part.path for part in read_json('{"args": 1}\n{"a": 1}')] == [(), ()]


def test_a_value_is_complete_if_only_brackets_are_missing() -> None:
    for text, is_complete in (('[{"a": {"b": "c"}', True), ('[{"a": {"b": "c', False), ("[{'a': 'b", False)):
        assert {part.is_complete for part in read_json(text)} == {is_complete}, text


def test_prose_and_fences_are_skipped_and_the_beginning_is_kept() -> None:
    text = "Sure, [here] it is:\n```json\n[1]\n```\nIs (that) what you < wanted?"
    assert (values(text), *read(text)[1:]) == ([[1]], "", text)
    assert values('{"a": 1}\n{"a": 2}\n') == [{"a": 1}, {"a": 2}]


LONG_THOUGHT = "Okay, the user wants to know what is in the picture. " * 10


def test_nothing_is_read_from_thinking() -> None:
    thoughts = [f'<{tag}>maybe [{{"a": 1}}] or {{[</{tag}>' for tag in ("think", "thinking", "THINK")]
    # Some chat templates swallow the opening tag.
    thoughts.append(LONG_THOUGHT + 'So [{"a": 1}], or [perhaps {"a": 3 </think>\n')
    for thought in thoughts:
        assert values(thought + '[{"b": 2}]') == [{"b": 2}, [{"b": 2}]], thought
    assert values('<think>[{"a": 1}]') == []
    reader = JsonReader()
    assert reader.feed(LONG_THOUGHT + '[{"a": 1}]') == []
    assert [part.value for part in reader.close()] == [{"a": 1}, [{"a": 1}]]


def test_what_is_nested_too_deeply_or_too_long_to_repair_is_read_as_far_as_it_is_valid() -> None:
    unread = "a part was not read: it is not valid JSON, or nested too deeply"
    for rest in ("[" * MAX_DEPTH, "[" * 100_000, '{"a":' * 100_000, "'a'," * MAX_REPAIRED_CHARS):
        parts, note, _ = read('[{"a": 1}, ' + rest)
        assert ([part.value for part in parts], note) == ([{"a": 1}], unread), rest[:10]
    assert values("[" * MAX_DEPTH + "]" * MAX_DEPTH)[0] == []
    assert values(json.dumps([{"a": "b" * MAX_REPAIRED_CHARS}]))[0] == {"a": "b" * MAX_REPAIRED_CHARS}
