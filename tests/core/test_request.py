"""Requests: their forms, and the files and URLs named in their text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cost import best_time
from langchain_core.messages import AIMessage, HumanMessage

from jarvis_agent.core.content import message_text
from jarvis_agent.core.errors import InputError, TooLongError
from jarvis_agent.core.file_mentions import MOST_NAMES, mentions
from jarvis_agent.core.request import Request

TEXTS: list[tuple[str, list[str]]] = [
    ("How many objects in e1.jpg?", ["e1.jpg"]),
    ("A: a.jpg, B: b.jpg, C: c.jpg, how many zebras?", ["a.jpg", "b.jpg", "c.jpg"]),
    ("open 'my holiday photo.png' and ./x/y-z.wav.", ["my holiday photo.png", "./x/y-z.wav"]),
    ("see https://example.org/a/b.png, please", ["https://example.org/a/b.png"]),
    ("描述examples/cat.jpg里的图片", ["examples/cat.jpg"]),
    ("图片“猫.png”里有什么", ["猫.png"]),
    (r"read C:\pictures\cat.jpg", [r"C:\pictures\cat.jpg"]),
    ("a.jpg and a.jpg again", ["a.jpg"]),
    ("猫.jpg里有什么", ["猫.jpg"]),
    ("描述猫.jpg", ["描述猫.jpg"]),
    ("描述examples/cat.jpg里的图", ["examples/cat.jpg"]),
    ("用YOLO检测photos/cat.jpg", ["photos/cat.jpg"]),
    ("看看photos/照片1.jpg", ["photos/照片1.jpg"]),
    ("a.jpg和b.jpg哪个好", ["a.jpg", "b.jpg"]),
    ("고양이.jpg에 무엇이 있나요", ["고양이.jpg"]),
    ("Что на фото.jpg?", ["фото.jpg"]),
    ("Wer ist auf Müller.jpg und Mu\u0308ller.jpg?", ["Müller.jpg", "Mu\u0308ller.jpg"]),
    ("What's in 'my photo.png'?", ["my photo.png"]),
    ("图片'我的 猫.png'里有什么", ["我的 猫.png"]),
    ("看https://a.com/b.jpg（第一张）", ["https://a.com/b.jpg"]),
    ("看https://a.com/b.jpg里的猫", ["https://a.com/b.jpg"]),
    ("(see https://a.org/Foo_(bar)).", ["https://a.org/Foo_(bar)"]),
    ("How large is photo#1.png or page(1).png?", ["photo#1.png", "page(1).png"]),
    ("[see](a.png), f(b.png), (c.png), a.png&d.png", ["a.png", "b.png", "c.png", "d.png"]),
    ("see file:///tmp/a%20b.png.", ["file:///tmp/a%20b.png"]),
    ("„a b.png“, «c d.png», 「e f.png」 and ‘it’s g.png’", ["a b.png", "c d.png", "e f.png", "it’s g.png"]),
    ("Version 1.2 costs 3.50, e.g. today. See you at 5 p.m.", []),
    ("I said: \"hello there\". It's 'fine'.", []),
]


def places_of(*names: str) -> Callable[[str], list[tuple[int, int]]]:
    """Finds where a text has these names."""
    return lambda text: [(at, at + len(name)) for name in names if (at := text.find(name)) >= 0]


def test_file_names_and_urls_in_a_text_are_found() -> None:
    assert [(text, mentions(text)) for text, _ in TEXTS] == TEXTS
    # The files that exist tell where a name without spaces around it begins.
    for known in ("照片1.jpg", "1.jpg", "片1.jpg"):
        assert mentions("描述照片1.jpg里的图", places_of(known)) == [known]
    # The title of a work is no file, unless there is one of that name.
    assert mentions("朗读《Node.js 入门》和《a.txt》，再看 b.jpg", places_of("a.txt")) == ["a.txt", "b.jpg"]
    # The longest known name wins, and quotation marks tell where a name starts.
    assert mentions("see scan 2.png", places_of("scan 2.png", "2.png")) == ["scan 2.png"]
    assert mentions("see 'scan 2.png'", places_of("2.png")) == ["scan 2.png"]
    assert mentions("see '2.png, 3.png'", places_of("2.png", "3.png")) == ["2.png", "3.png"]
    many = [f"{place}.jpg" for place in range(MOST_NAMES + 10)]
    assert mentions(" ".join(many)) == many[:MOST_NAMES]
    assert mentions("a.jpg " * (MOST_NAMES + 10) + "b.jpg 'c.jpg'") == ["a.jpg", "b.jpg", "c.jpg"]


@pytest.mark.parametrize(
    "unit",
    [
        "a.jpg ",
        "a中",
        "中a.jpg",
        "`a.jpg ",
        "http://x ",
        "http://a.jp中",
        ")",
        "'",
        "a'",
        "a.ab",
        "C:/",
        "《a.b",
        "a.b#",
        "(a.png",
    ],
)
def test_the_cost_of_a_long_text_grows_as_its_length(unit: str) -> None:
    def cost(length: int) -> float:
        text = "http://a" + unit * (length // len(unit))
        return best_time(lambda: mentions(text))

    assert cost(64_000) <= 24 * cost(8_000) + 0.02


def test_text_dicts_and_messages_are_requests() -> None:
    messages = [HumanMessage("hi")]
    for value in ("hi", {"input": "hi"}, {"messages": [("human", "hi")]}, messages, messages[0]):
        assert Request.of(value).text == "hi"
    for files in ("a.jpg", Path("a.jpg"), ["a.jpg"], (Path("a.jpg"),)):
        assert Request.of({"input": "hi", "files": files}).files == ["a.jpg"]


def test_the_last_human_message_is_the_request_and_earlier_ones_are_history() -> None:
    request = Request.of({"messages": [("human", "one"), ("ai", "two"), ("human", "three")]})
    assert request.text == "three"
    assert [str(message.text) for message in request.history] == ["one", "two"]
    request = Request.of({"input": "and now?", "chat_history": [("human", "a"), AIMessage("b")]})
    assert [message.type for message in request.history] == ["human", "ai"]


def test_images_in_a_message_are_content_blocks() -> None:
    content = [
        {"type": "text", "text": "what is it?"},
        {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]
    request = Request.of({"messages": [HumanMessage(content)]})
    assert request.text == "what is it?"
    assert [block["type"] for block in request.blocks] == ["image", "image"]
    # Reported when it is opened.
    incomplete = {"type": "image", "source_type": "base64"}
    assert Request.of(HumanMessage([incomplete, {"type": "text", "text": "hi"}])).blocks == [incomplete]


ODD: list[Any] = [
    {"role": "assistant", "content": None, "refusal": "I cannot"},
    {"role": "assistant", "content": "x", "tool_calls": [{}]},
    {"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
    {"role": "assistant", "tool_calls": [], "content": [{"type": "reasoning", "summary": []}]},
    {"role": "assistant", "content": {"type": "output_text", "text": "x"}, "name": {"first": "Ada"}},
    {"role": "tool", "content": [{"type": "text", "text": "x"}]},
    {"role": "function", "name": None, "content": None},
    {"role": "user", "content": [None, 3, "x", {"type": "image_url", "image_url": None}]},
    {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "image_url"}]},
    {"role": "user", "content": []},
    {"role": "user"},
    {"role": "critic", "content": "x"},
    {"role": ["user"], "content": "x"},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_part_of_an_earlier_turn_does_not_end_a_chat(odd: Any) -> None:
    messages = [{"role": "user", "content": "one"}, odd, {"role": "user", "content": "two"}]
    request = Request.of({"messages": messages})
    assert (request.text, message_text(request.history[0])) == ("two", "one")
    history = Request.of({"input": "two", "chat_history": messages}).history
    assert [message_text(history[0]), message_text(history[-1])] == ["one", "two"]


def test_what_can_be_read_of_an_earlier_turn_is_read() -> None:
    messages = [ODD[0], ODD[1], {"role": "user", "content": "two"}]
    history = Request.of({"messages": messages}).history
    assert [message_text(message) for message in history] == ["I cannot", "x"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"input": "hi", "files": 3},
            "files: a file is a path, a URL, bytes or a PIL image, not of type int",
        ),
        ({"input": "hi", "files": [{"data": b"x" * 9_999}]}, "bytes or a PIL image, not of type dict"),
        ({"input": ["hi"]}, "input: this takes a text, not ['hi']"),
        ({"messages": "hi"}, "messages: this takes a list of messages such as"),
        ({"inptu": "hi"}, "inptu: there is no such field"),
        ({"messages": [3]}, "a message of this one cannot be read"),
        (7, "this one cannot be read"),
        ({"messages": [{"role": "tool", "content": "x"}]}, ""),
        ({"input": "hi", "chat_history": [{"role": "tool", "content": "x"}]}, ""),
        ({"messages": [{"role": "critic", "content": "x"}]}, ""),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, None]}]}, "messages: "),
        ({"input": b"\xff" * 100_000}, "input: this takes a text"),
    ],
)
def test_a_wrong_request_is_refused_with_the_field_and_the_accepted_forms(value: Any, message: str) -> None:
    with pytest.raises(InputError, match="a request is a text, or a dict") as caught:
        Request.of(value)
    assert message in str(caught.value)
    assert "://" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_the_length_of_a_request_is_that_of_its_texts_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    image = {"type": "image", "base64": "A" * 100, "mime_type": "image/png"}
    for value in (
        "é\ud800",
        {"input": "abc", "files": ["a" * 100], "chat_history": [("ai", "de")]},
        {"messages": [("human", "ab"), HumanMessage([{"type": "text", "text": "cde"}, image])]},
    ):
        request = Request.of(value)
        monkeypatch.setattr("jarvis_agent.core.request.MAX_TEXT_BYTES", 5)
        request.check_length()
        monkeypatch.setattr("jarvis_agent.core.request.MAX_TEXT_BYTES", 4)
        with pytest.raises(TooLongError):
            request.check_length()


def test_a_request_survives_json() -> None:
    request = Request.of({"input": "x", "files": ["a"], "chat_history": [("human", "q"), ("ai", "a")]})
    assert Request.model_validate_json(request.model_dump_json()) == request
