"""JSON is read as it was meant, in pieces as at once, and in time linear in the text."""

import json

import pytest
from cost import cost_of
from hypothesis import given, settings
from hypothesis import strategies as st

from jarvis_agent.llm.json_stream import MAX_DEPTH, JsonReader
from jarvis_agent.llm.json_tokens import Scanner


def read(text, cuts=()):
    """What is found in the text when it comes cut at these places; the slips; the prose."""
    reader, found, start = JsonReader(), [], 0
    for cut in [*sorted(cuts), len(text)]:
        found += reader.feed(text[start:cut])
        start = max(start, cut)
    return found + reader.close(), reader.repairs, reader.prose


def outermost(text):
    """The last thing that is found: what stands around all the others."""
    return read(text)[0][-1].value


plain_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
    max_leaves=10,
)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(plain_json, st.sampled_from([None, 2]), st.booleans())
def test_well_formed_json_is_read_as_json_reads_it(value, indent, ascii_only):
    text = json.dumps([value], indent=indent, ensure_ascii=ascii_only)
    found, slips, _ = read(text)
    assert found[-1].value == [value]
    assert slips == []


fragments = st.lists(
    st.sampled_from(
        [*"[]{}(),:\"'`“”‘\\/#* \n\tab01-.<>", "<think>", "</think>", '"a"', '{"a":', '", ', "true"]
    )
    | st.sampled_from(["/*", "*/", "//", "x" * 401, "[{", "}]", "task: ", "\\u00e9", "\ud83d", "\ude00"]),
    max_size=30,
).map("".join)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(fragments, st.data())
def test_the_pieces_in_which_a_text_comes_make_no_difference(text, data):
    whole = read(text)
    assert read(text, range(len(text))) == whole
    assert read(text, data.draw(st.lists(st.integers(0, len(text)), max_size=4))) == whole


@pytest.mark.parametrize(
    ("written", "meant"),
    [
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
    ],
)
def test_loose_json_is_read_as_it_was_meant(written, meant):
    assert outermost(written) == meant


@pytest.mark.parametrize(
    ("written", "slip"),
    [
        ("['a']", "other quotes than JSON's"),
        ("[a]", "values without quotes"),
        ("{a: 1}", "keys without quotes"),
        ("[1,]", "a trailing comma"),
        ("[1 /* one */]", "comments"),
        ("[1", "a missing bracket"),
        ("[1}]", "a surplus bracket"),
        ('["a "b" c"]', "quotes inside a text"),
    ],
)
def test_what_is_not_json_is_named(written, slip):
    assert read(written)[1] == [slip]


def test_each_container_is_found_as_soon_as_it_is_closed():
    reader = JsonReader()
    assert reader.feed('{"tasks": [{"args": {"x"') == []
    assert [(f.value, f.path) for f in reader.feed(": 1}")] == [({"x": 1}, ("tasks", "args"))]
    assert [(f.value, f.path) for f in reader.feed("}")] == [({"args": {"x": 1}}, ("tasks",))]
    assert reader.feed(", ") == []
    assert [f.complete for f in reader.close()] == [False, False]


def test_what_is_cut_off_is_found_as_not_whole():
    found = read('[{"a": {"b": "c')[0]
    assert [(f.value, f.complete) for f in found] == [
        ({"b": "c"}, False),
        ({"a": {"b": "c"}}, False),
        ([{"a": {"b": "c"}}], False),
    ]


def test_an_object_that_lacks_its_own_bracket_alone_is_whole():
    found = read('[{"a": {"b": "c"}')[0]
    assert [(f.value, f.complete) for f in found] == [
        ({"b": "c"}, True),
        ({"a": {"b": "c"}}, True),
        ([{"a": {"b": "c"}}], False),
    ]


def test_prose_and_fences_are_passed_over_and_the_beginning_is_kept():
    found, slips, prose = read("Sure, [here] it is:\n```json\n[1]\n```\nIs (that) what you < wanted?")
    assert [f.value for f in found] == [["here"], [1]]
    assert prose.startswith("Sure, ")
    assert slips == ["values without quotes"]


def test_objects_on_lines_of_their_own_are_found():
    assert [f.value for f in read('{"a": 1}\n{"a": 2}\n')[0]] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("tag", ["think", "thinking", "THINK", "reasoning"])
def test_nothing_is_taken_from_thinking(tag):
    found, _, prose = read(f'<{tag}>maybe [{{"a": 1}}] or {{[</{tag}>[{{"b": 2}}]')
    assert [f.value for f in found] == [{"b": 2}, [{"b": 2}]]
    assert prose == ""


def test_thinking_that_never_ends_holds_nothing():
    assert read('<think>[{"a": 1}]')[0] == []


LONG_THOUGHT = "Okay, the user wants to know what is in the picture. " * 10


def test_thinking_whose_opening_tag_is_missing_is_forgotten_when_it_ends():
    found = read(LONG_THOUGHT + 'So [{"a": 1}], or [perhaps {"a": 3 </think>\n[{"b": 2}]')[0]
    assert [f.value for f in found] == [{"b": 2}, [{"b": 2}]]


def test_what_may_still_be_thinking_is_held_until_the_text_ends():
    reader = JsonReader()
    assert reader.feed(LONG_THOUGHT + "[1]") == []
    assert [f.value for f in reader.close()] == [[1]]
    assert reader.close() == []


def test_what_follows_a_polite_sentence_is_not_held():
    assert [f.value for f in JsonReader().feed("Certainly! Here is the plan: [{}]")] == [{}, [{}]]


def test_nesting_has_a_limit_and_what_follows_is_read():
    deep = "[" * 1000 + "]" * 1000
    found, slips, _ = read(f'{{"a": {deep}, "b": 1}}')
    assert found[-1].value["b"] == 1
    assert max(len(f.path) for f in found) <= MAX_DEPTH
    assert slips == [f"more than {MAX_DEPTH} levels of nesting, which were left out"]


HOSTILE = {
    "opening brackets": "[",
    "opening braces": "{",
    "both": '[{"a":',
    "quotes": '"',
    "quotes in a list": '["',
    "quotes in a text": '{"a": "b" c',
    "backslashes": '["\\',
    "tags": "<think>",
    "tag beginnings": "<",
    "comments": "[/*",
    "slashes": "[/ ",
    "blanks after a quote": '["a"' + " " * 70,
    "commas": '{"a": "b", c',
    "words": "[a ",
}


class CountingScanner(Scanner):
    """Counts the characters that are kept for later: text that would be looked at again."""

    kept = 0

    def add(self, piece):
        self.kept += len(self.text) - self.at
        super().add(piece)


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_character_is_kept_for_long_however_hostile_the_text(unit):
    text = (unit * 2000)[:2000]
    reader = JsonReader()
    reader._scanner = CountingScanner()
    for char in text:
        reader.feed(char)
    reader.close()
    assert reader._scanner.at == len(reader._scanner.text)
    assert reader._scanner.kept <= 140 * len(text)


def cost(text):
    return cost_of(lambda: read(text))


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_cost_of_a_hostile_text_grows_as_its_length(unit):
    assert cost((unit * 8000)[:8000]) <= 10 * cost((unit * 1000)[:1000])
