"""What comes in: every form of a request, and the files that its words name."""

from __future__ import annotations

from pathlib import Path
from time import thread_time

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.file_mentions import MOST_NAMES, mentions
from jarvis_agent.core.request import Request


@pytest.mark.parametrize(
    ("text", "names"),
    [
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
        ("Version 1.2 costs 3.50, e.g. today. See you at 5 p.m.", []),
        ("I said: \"hello there\". It's 'fine'.", []),
    ],
)
def test_the_files_and_addresses_that_a_request_names_are_found(text, names):
    assert mentions(text) == names


@pytest.mark.parametrize(
    ("known", "name"), [("照片1.jpg", "照片1.jpg"), ("1.jpg", "1.jpg"), ("片1.jpg", "片1.jpg")]
)
def test_words_before_a_name_are_told_from_it_by_the_files_that_there_are(known, name):
    assert mentions("描述照片1.jpg里的图", {known}.__contains__) == [name]


@pytest.mark.parametrize(
    "unit",
    ["a.jpg ", "a中", "中a.jpg", "`a.jpg ", "http://x ", "http://a.jp中", ")", "'", "a'", "a.ab", "C:/"],
)
def test_the_cost_of_a_long_text_grows_as_its_length(unit: str) -> None:
    def cost(length: int) -> float:
        text = "http://a" + unit * (length // len(unit))
        best = float("inf")
        for _ in range(3):
            started = thread_time()
            mentions(text)
            best = min(best, thread_time() - started)
        return best

    assert cost(64_000) <= 24 * cost(8_000) + 0.02


def test_a_listing_of_files_names_no_more_than_a_plan_can_use() -> None:
    names = [f"{place}.jpg" for place in range(MOST_NAMES + 10)]
    assert mentions(" ".join(names)) == names[:MOST_NAMES]


def test_a_text_a_dict_and_messages_are_requests():
    assert Request.of("hi").text == "hi"
    assert Request.of({"input": "hi", "files": ["a.jpg"]}).files == ["a.jpg"]
    assert Request.of({"messages": [("human", "hi")]}).text == "hi"
    assert Request.of([HumanMessage("hi")]).text == "hi"
    assert Request.of(HumanMessage("hi")).text == "hi"


def test_the_last_human_message_is_the_request_and_the_ones_before_are_history():
    request = Request.of({"messages": [("human", "one"), ("ai", "two"), ("human", "three")]})
    assert request.text == "three"
    assert [str(message.text) for message in request.history] == ["one", "two"]


def test_pictures_in_a_message_come_as_blocks():
    content = [
        {"type": "text", "text": "what is it?"},
        {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]
    request = Request.of({"messages": [HumanMessage(content)]})
    assert request.text == "what is it?"
    assert [block["type"] for block in request.blocks] == ["image", "image"]


def test_chat_history_may_be_tuples_or_messages():
    request = Request.of({"input": "and now?", "chat_history": [("human", "a"), AIMessage("b")]})
    assert [message.type for message in request.history] == ["human", "ai"]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "tool", "content": "x"},
        {"role": "assistant", "content": "x", "tool_calls": [{}]},
        {"role": "assistant", "content": "x", "tool_calls": [3]},
    ],
)
@pytest.mark.parametrize("field", ["chat_history", "messages"])
def test_a_message_that_lacks_a_part_is_refused(field, message):
    with pytest.raises(InputError, match="a request is a text, or a dict"):
        Request.of({"input": "hi", field: [message]})


def test_a_block_that_lacks_a_part_is_kept_for_whoever_opens_it():
    block = {"type": "image", "source_type": "base64"}
    assert Request.of(HumanMessage([block, {"type": "text", "text": "hi"}])).blocks == [block]


@pytest.mark.parametrize("value", [{"inptu": "hi"}, 7, {"messages": "hi there"}, {"files": 3}])
def test_another_form_is_refused_with_the_forms_that_there_are(value):
    with pytest.raises(InputError, match="a request is a text, or a dict"):
        Request.of(value)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"input": "hi", "files": 3}, "files: this takes a path or URL, or a list of them, not 3"),
        ({"input": ["hi"]}, "input: this takes a text, not ['hi']"),
        ({"messages": "hi"}, "messages: this takes a list of messages such as"),
        ({"inptu": "hi"}, "inptu: there is no such field"),
        ({"messages": [3]}, "a message of this one cannot be read"),
        (7, "this one cannot be read"),
    ],
)
def test_what_is_wrong_with_a_request_is_told_by_its_field_and_without_addresses(value, told):
    with pytest.raises(InputError) as caught:
        Request.of(value)
    assert told in str(caught.value)
    assert "://" not in str(caught.value)


def test_what_is_wrong_is_shown_in_short():
    with pytest.raises(InputError) as caught:
        Request.of({"input": b"\xff" * 100_000})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("files", ["a.jpg", Path("a.jpg"), ["a.jpg"], (Path("a.jpg"),)])
def test_a_single_file_needs_no_list(files):
    assert Request.of({"input": "hi", "files": files}).files == ["a.jpg"]


def test_a_request_survives_json():
    request = Request.of({"input": "x", "files": ["a"], "chat_history": [("human", "q"), ("ai", "a")]})
    assert Request.model_validate_json(request.model_dump_json()) == request
