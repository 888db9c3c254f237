"""Texts and files in the messages of clients, and data URLs as browsers and programs write them."""

import base64
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from jarvis_agent.core.content import file_block, is_data_url, media_blocks, message_text, read_data_url
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.redaction import redact

BYTES = bytes(range(256))
PLAIN = base64.b64encode(BYTES).decode()
WRAPPED = base64.encodebytes(BYTES).decode()
URL_SAFE = base64.urlsafe_b64encode(BYTES).decode().rstrip("=")

FILES: dict[str, str] = {
    f"data:image/png;base64,{PLAIN}": "image/png",
    f"DATA:IMAGE/PNG;BASE64,{PLAIN}": "image/png",
    f" data:image/png;base64,{WRAPPED}": "image/png",
    f"data:image/png;base64, {PLAIN[:40]} {PLAIN[40:]}": "image/png",
    f"data:image/png;base64,{WRAPPED}".replace("\n", "\r\n"): "image/png",
    f"data:image/png;base64,{URL_SAFE}": "image/png",
    f"data:image/png;base64,{PLAIN.rstrip('=')}": "image/png",
    f"data:image/png;base64,{PLAIN.replace('+', '%2B').replace('/', '%2f').replace('=', '%3D')}": "image/png",
    f"data:;base64,{PLAIN}": "",
    f"data:audio/webm;codecs=opus;base64,{PLAIN}": "audio/webm",
    f'data:video/webm;codecs="vp8, opus";base64,{PLAIN}': "video/webm",
    f"data:video/webm;codecs=vp8,opus;base64,{PLAIN}": "video/webm",
    f"data:video/x-matroska;codecs=avc1.64001f,opus;base64,{PLAIN}": "video/x-matroska",
    f"data:image/svg+xml;charset=utf-8;name=a%20b.svg;base64,{PLAIN}": "image/svg+xml",
    f"data:application/pdf;filename=a.pdf;base64,{PLAIN}": "application/pdf",
    "data:application/octet-stream," + "".join(f"%{byte:02x}" for byte in BYTES): "application/octet-stream",
}
TEXTS: dict[str, tuple[str, str]] = {
    "data:,A%20brief%20note": ("text/plain", "A brief note"),
    "data:text/plain,hello, world": ("text/plain", "hello, world"),
    "data:text/html;charset=utf-8,%3Ch1%3E1;2%3C/h1%3E": ("text/html", "<h1>1;2</h1>"),
    "data:text/plain;charset=iso-8859-7,%be%d3%be": ("text/plain", "ΎΣΎ"),
    "data:;charset=UTF-8,caf%C3%A9": ("text/plain", "café"),
    "data:text/plain;charset=utf-16;base64," + base64.b64encode("né".encode("utf-16")).decode(): (
        "text/plain",
        "né",
    ),
    "data:text/plain;charset=no-such-one,abc": ("text/plain", "abc"),
    "data:text/plain;base64," + base64.b64encode("日本".encode()).decode(): ("text/plain", "日本"),
    "data:text/csv,a,b%0A1,2": ("text/csv", "a,b\n1,2"),
}


def test_a_data_url_is_read_in_every_form() -> None:
    for url, mime in FILES.items():
        assert is_data_url(url), url
        assert read_data_url(url) == (mime, BYTES), url[:60]
    for url, (mime, text) in TEXTS.items():
        assert read_data_url(url) == (mime, text.encode()), url


@pytest.mark.parametrize("data", ["image/png;base64", "image/png;base64,$$$", "image/png;base64,A", "a"])
def test_a_malformed_data_url_is_refused_without_its_data(data: str) -> None:
    with pytest.raises(InputError, match=r"no comma|not valid base64") as refused:
        read_data_url(f"data:{data}")
    assert len(str(refused.value)) < 100


@pytest.mark.parametrize("url", [*FILES, f"data:image/png;base64,{PLAIN * 500}"])
def test_an_error_has_the_beginning_of_a_data_url(url: str) -> None:
    shown = redact(f"{url.strip()!r} is not a box, and '{url.strip()}' no file")
    assert shown.endswith("no file")
    assert len(shown) < 260 + 2 * len(url.partition(",")[0])
    assert "data:" in shown.lower()
    assert redact("the data: 12, 13 and data:,abc") == "the data: 12, 13 and data:,abc"


IMAGE = {"type": "image", "base64": PLAIN, "mime_type": "image/png"}
DATA_URL = f"data:image/png;base64,{PLAIN}"
LINKED = {"type": "image", "url": DATA_URL}
PDF = {"type": "file", "base64": PLAIN, "mime_type": "application/pdf"}
PARTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (IMAGE, IMAGE),
    ({"type": "image", "source_type": "base64", "data": PLAIN, "mime_type": "image/png"}, IMAGE),
    ({"type": "image", "source_type": "url", "url": DATA_URL}, LINKED),
    ({"type": "image_url", "image_url": {"url": DATA_URL, "detail": "auto"}}, LINKED),
    ({"type": "image_url", "image_url": DATA_URL}, LINKED),
    ({"type": "image", "image": DATA_URL}, LINKED),
    ({"type": "image", "image": PLAIN, "mediaType": "image/png"}, IMAGE),
    ({"type": "image_url", "image": "thumb", "image_url": {"url": DATA_URL}}, LINKED),
    ({"type": "video", "video": "http://a/b"}, {"type": "video", "url": "http://a/b"}),
    ({"type": "input_image", "image_url": DATA_URL, "detail": "low", "file_id": None}, LINKED),
    ({"type": "image", "data": PLAIN, "mimeType": "image/png"}, IMAGE),
    ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PLAIN}}, IMAGE),
    ({"type": "image", "source": {"type": "url", "url": DATA_URL}}, LINKED),
    (
        {"type": "input_audio", "input_audio": {"data": PLAIN, "format": "wav"}},
        {"type": "audio", "base64": PLAIN, "mime_type": "audio/wav"},
    ),
    ({"type": "audio_url", "audio_url": {"url": "http://a/b"}}, {"type": "audio", "url": "http://a/b"}),
    ({"type": "video_url", "video_url": {"url": "http://a/b"}}, {"type": "video", "url": "http://a/b"}),
    (
        {"type": "file", "file": {"file_data": DATA_URL, "filename": "a.png"}},
        {"type": "file", "base64": DATA_URL, "filename": "a.png"},
    ),
    (
        {"type": "input_file", "file_data": DATA_URL, "filename": "a.png"},
        {"type": "file", "base64": DATA_URL, "filename": "a.png"},
    ),
    ({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PLAIN}}, PDF),
    ({"type": "media", "mime_type": "application/pdf", "data": PLAIN}, PDF),
    ({"type": "media", "mime_type": "application/pdf", "data": BYTES}, PDF),
    ({"inline_data": {"mime_type": "application/pdf", "data": PLAIN}}, PDF),
    ({"type": "resource", "resource": {"uri": "x://a", "mimeType": "application/pdf", "blob": PLAIN}}, PDF),
    (
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
        {"type": "file", "text": "hi", "mime_type": "text/plain"},
    ),
    ({"type": "file", "file_id": "f-1"}, {"type": "file", "file_id": "f-1"}),
]
UNREADABLE: list[dict[str, Any]] = [
    {"type": "image_url", "image_url": None},
    {"type": "image_url", "image_url": {}},
    {"type": "thinking", "thinking": "hm", "signature": "x"},
    {"type": "reasoning", "text": "hm"},
    {"type": "text", "text": None},
    {"type": "tool_result", "content": [{"type": "text", "text": "x"}]},
    {"type": "nobody-knows"},
    {},
]


@pytest.mark.parametrize(
    ("part", "block"), PARTS, ids=[json.dumps(part, default=str)[:50] for part, _ in PARTS]
)
def test_a_file_in_any_form_is_a_standard_block(part: dict[str, Any], block: dict[str, Any]) -> None:
    assert file_block(part) == block
    assert media_blocks(HumanMessage([part, {"type": "text", "text": "hi"}])) == [block]


@pytest.mark.parametrize("part", UNREADABLE, ids=str)
def test_a_part_without_text_or_file_stays_as_it_is(part: dict[str, Any]) -> None:
    message = HumanMessage([part, {"type": "text", "text": "hi"}])
    assert (media_blocks(message), message_text(message)) == ([part], "hi")


def test_texts_of_other_interfaces_are_texts() -> None:
    parts: list[Any] = [
        "a",
        {"type": "text", "text": "b", "image_url": None},
        {"type": "input_text", "text": "c"},
        {"type": "output_text", "text": "d", "annotations": []},
        {"type": "refusal", "refusal": "e"},
        {"type": "thinking", "thinking": "x"},
    ]
    assert message_text(AIMessage(parts)) == "abcde"
    assert message_text(HumanMessage("hi")) == "hi"


@pytest.mark.parametrize(
    "head", ["data:" + ";codecs=a" * 20_000, "data:" + " " * 100_000, "data:text/plain" + "; base64" * 20_000]
)
def test_a_long_head_is_refused_at_once(head: str) -> None:
    with pytest.raises(InputError, match="no comma"):
        read_data_url(f"{head};base64")


def test_codecs_that_are_no_encodings_are_not_used() -> None:
    assert read_data_url("data:text/plain;charset=punycode,Mnchen-3ya") == ("text/plain", b"Mnchen-3ya")
    assert read_data_url("data:text/plain;charset=iso-8859-1,caf%e9") == ("text/plain", "café".encode())
