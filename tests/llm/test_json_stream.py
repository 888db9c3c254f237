"""JsonReader: loose JSON, any chunking, limits."""

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jarvis_agent.llm.json_stream import MAX_DEPTH, JsonReader, Scanner


def read(text: str, cuts: Iterable[int] = ()) -> tuple[list[Any], list[str], str]:
    """The values, repairs and prose of a text that is cut at these places."""
    reader, found, start = JsonReader(), [], 0
    for cut in [*sorted(cuts), len(text)]:
        found += reader.feed(text[start:cut])
        start = max(start, cut)
    return found + reader.close(), reader.repairs, reader.prose


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
    found, repairs, _ = read(text)
    assert found[-1].value == [value]
    assert repairs == []


PIECES = [
    *"[]{}(),:\"'`“”‘\\/#* \n\tab01-.<>", "<think>", "</think>", '"a"', '{"a":', '", ', "true",
    "/*", "*/", "//", "x" * 401, "[{", "}]", "task: ", "\\u00e9", "\ud83d", "\ude00",
]  # fmt: skip
fragments = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@settings(max_examples=200)
@given(fragments, st.data())
def test_chunking_makes_no_difference(text: str, data: st.DataObject) -> None:
    whole = read(text)
    assert read(text, range(len(text))) == whole
    assert read(text, data.draw(st.lists(st.integers(0, len(text)), max_size=4))) == whole


LOOSE = [
    ("[{'a': 'b'}]", [{"a": "b"}]),
    ("{'a': 'what's up, doc?'}", {"a": "what's up, doc?"}),
    ("{“a”: “b”}", {"a": "b"}),
    ("{“a”：“b”，“c”：1}", {"a": "b", "c": 1}),
    ("{`a`: `b`}", {"a": "b"}),
    ('{"a": "Say "hi", then "bye""}', {"a": 'Say "hi", then "bye"'}),
    ('{"a": "a 5" nail", "b": 1}', {"a": 'a 5" nail', "b": 1}),
    ('["a "b" c", "d"]', ['a "b" c', "d"]),
    ("{id: 0, dep: [-1],}", {"id": 0, "dep": [-1]}),
    ("{a: a girl reading a book, b: <resource>-0}", {"a": "a girl reading a book", "b": "<resource>-0"}),
    ("{image: https://x.org/a.jpg}", {"image": "https://x.org/a.jpg"}),
    ("[1, 2,]", [1, 2]),
    ('[True, False, None, undefined, NaN, "None"]', [True, False, None, None, None, "None"]),
    ("{'dep': (0, 1), 'a': (2,)}", {"dep": [0, 1], "a": [2]}),
    ('{"a": 1, // one\n "b": 2 # two, or so\n}', {"a": 1, "b": 2}),
    ('{"a": /* "x", */ 1, id: 0 // first, of course\n}', {"a": 1, "id": 0}),
    ('{"a": "b"\n "c": "d"}', {"a": "b", "c": "d"}),
    ('{"a": , "b": 1}', {"a": None, "b": 1}),
    ('{"dep": [-1, "args": {"b": 3}}', {"dep": [-1], "args": {"b": 3}}),
    ('[{"a": {"b": 1}, {"c": 2}]', [{"a": {"b": 1}}, {"c": 2}]),
    ('[{"a": 1}}, {"b": 2}]', [{"a": 1}, {"b": 2}]),
    ('{"a": "line\none"}', {"a": "line\none"}),
    (r'{"a": "C:\data\cat.jpg", "b": "\u00e9\x41\uZZ"}', {"a": "C:\\data\\cat.jpg", "b": "éA\\uZZ"}),
    (r'["\ud83d\ude00"]', ["😀"]),
    ('["\\ud83d", "\ude00"]', ["�", "�"]),
    ("[1e999, -0.5, .5, 1E2, +3, 0x1]", ["1e999", -0.5, 0.5, 100.0, 3, "0x1"]),
    ("[" + "9" * 80 + "]", ["9" * 80]),
]


def test_loose_json_is_read_as_intended() -> None:
    assert [read(written)[0][-1].value for written, _ in LOOSE] == [meant for _, meant in LOOSE]


def test_each_repair_is_named() -> None:
    named = {
        "['a']": "other quotes than JSON's",
        "[a]": "values without quotes",
        "{a: 1}": "keys without quotes",
        "[1,]": "a trailing comma",
        "[1 /* one */]": "comments",
        "[1": "a missing bracket",
        "[1}]": "a surplus bracket",
        '["a "b" c"]': "quotes inside a text",
    }
    assert {text: read(text)[1] for text in named} == {text: [repair] for text, repair in named.items()}


def test_each_value_is_returned_as_soon_as_it_is_closed() -> None:
    reader = JsonReader()
    assert reader.feed('{"tasks": [{"args": {"x"') == []
    assert [(f.value, f.path) for f in reader.feed(": 1}")] == [({"x": 1}, ("tasks", "args"))]
    assert [(f.value, f.path) for f in reader.feed("}")] == [({"args": {"x": 1}}, ("tasks",))]
    assert reader.feed(", ") == []
    assert [f.complete for f in reader.close()] == [False, False]


def test_a_value_is_complete_if_only_its_own_bracket_is_missing() -> None:
    for text, inner in (('[{"a": {"b": "c"}', True), ('[{"a": {"b": "c', False)):
        assert [(value.value, value.complete) for value in read(text)[0]] == [
            ({"b": "c"}, inner),
            ({"a": {"b": "c"}}, inner),
            ([{"a": {"b": "c"}}], False),
        ]


def test_prose_and_fences_are_skipped_and_the_beginning_is_kept() -> None:
    found, repairs, prose = read("Sure, [here] it is:\n```json\n[1]\n```\nIs (that) what you < wanted?")
    assert [value.value for value in found] == [["here"], [1]]
    assert prose.startswith("Sure, ")
    assert repairs == ["values without quotes"]
    assert [value.value for value in read('{"a": 1}\n{"a": 2}\n')[0]] == [{"a": 1}, {"a": 2}]


LONG_THOUGHT = "Okay, the user wants to know what is in the picture. " * 10


def test_nothing_is_read_from_thinking() -> None:
    answer = '[{"b": 2}]'
    thoughts = [f'<{tag}>maybe [{{"a": 1}}] or {{[</{tag}>' for tag in ("think", "thinking", "THINK")]
    # Some chat templates swallow the opening tag.
    thoughts.append(LONG_THOUGHT + 'So [{"a": 1}], or [perhaps {"a": 3 </think>\n')
    for thought in thoughts:
        found, _, prose = read(thought + answer)
        assert ([value.value for value in found], prose) == ([{"b": 2}, [{"b": 2}]], ""), thought
    assert read('<think>[{"a": 1}]')[0] == []


def test_long_prose_is_held_until_the_text_ends_since_it_may_be_thinking() -> None:
    reader = JsonReader()
    assert reader.feed(LONG_THOUGHT + "[1]") == []
    assert [value.value for value in reader.close()] == [[1]]
    assert reader.close() == []
    assert [value.value for value in JsonReader().feed("Here is the plan: [{}]")] == [{}, [{}]]


def test_nesting_has_a_limit() -> None:
    deep = "[" * 1000 + "]" * 1000
    found, repairs, _ = read(f'{{"a": {deep}, "b": 1}}')
    assert found[-1].value["b"] == 1
    assert max(len(f.path) for f in found) <= MAX_DEPTH
    assert repairs == [f"more than {MAX_DEPTH} levels of nesting, which were left out"]


class CountingScanner(Scanner):
    """Counts the characters that are kept for later, which would be looked at again."""

    kept = 0

    def add(self, piece: str) -> None:
        self.kept += len(self.text) - self.at
        super().add(piece)


def test_text_that_has_been_read_is_dropped_however_hostile_it_is() -> None:
    units = ["[", "{", '[{"a":', '"', '["', '{"a": "b" c', '["\\', "<think>", "<", "[/*", "[/ "]
    for unit in [*units, '["a"' + " " * 70, '{"a": "b", c', "[a "]:
        reader = JsonReader()
        reader._scanner = CountingScanner()
        for char in (unit * 2000)[:2000]:
            reader.feed(char)
        reader.close()
        assert reader._scanner.at == len(reader._scanner.text), unit
        assert reader._scanner.kept <= 140 * 2000, unit
