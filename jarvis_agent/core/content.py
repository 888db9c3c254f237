"""The texts and files in messages, in the forms of LangChain, OpenAI, Anthropic, Google and MCP."""

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes

from langchain_core.messages import BaseMessage

from jarvis_agent.core.errors import InputError
from jarvis_agent.core.notes import limit_of

_FIELDS = {
    **dict.fromkeys(("url", "image_url", "audio_url", "video_url", "file_url", "uri", "file_uri"), "url"),
    **dict.fromkeys(("base64", "data", "file_data", "blob", "bytes"), "base64"),
    **dict.fromkeys(("mime_type", "media_type", "mimeType", "mediaType"), "mime_type"),
    **{name: name for name in ("file_id", "filename", "format", "text")},
}
"""The names of a file's fields in all forms, with LangChain's name."""

_TEXT_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The types of parts that are texts, with the field that holds the text."""

# Browsers' recorders write several codecs with a comma and without quotes.
_BASE64_URL = re.compile(r"\s*data:([^;,]*)((?:;[^;:]*)*);\s*base64\s*,", re.IGNORECASE)
_TEXT_URL = re.compile(r"\s*data:([^;,]*)([^,]*),", re.IGNORECASE)
# Other codecs of Python, such as punycode, take a time that grows with the square of the length.
_CHARSET = re.compile(
    r';\s*charset="?((?:utf-|iso-|us-ascii|windows-|cp|gb|big5|shift_jis|euc-|koi8-)[\w-]*)', re.IGNORECASE
)
_LONGEST_HEAD = 2048
"""Most characters of a data URL before its data; the patterns take a time that grows with its square."""


def is_data_url(text: str) -> bool:
    """Whether a text is meant as a data URL; it may be malformed."""
    return text[:32].lstrip()[:5].lower() == "data:"


def read_data_url(url: str) -> tuple[str, bytes]:
    """The media type ("" if unknown) and the content of a data URL (RFC 2397); texts become UTF-8.

    Raises InputError: it has no comma, or is not valid base64.
    """
    head = _BASE64_URL.match(url, 0, _LONGEST_HEAD) or _TEXT_URL.match(url, 0, _LONGEST_HEAD)
    if head is None:
        raise InputError("the data URL has no comma before its data; write data:image/png;base64,…")
    is_base64, data = head.re is _BASE64_URL, url[head.end() :]
    content = decode_base64(data) if is_base64 else unquote_to_bytes(data)
    mime = head[1].strip().lower() or ("" if is_base64 else "text/plain")
    if mime.startswith("text/") and (charset := _CHARSET.search(head[2])):
        with suppress(LookupError, UnicodeError):
            content = content.decode(charset[1]).encode()
    return mime, content


def read_file_data(data: str, mime: str, limit: int) -> tuple[str, bytes]:
    """The media type and the content of a data URL, or of base64 with this media type.

    Raises InputError: it is malformed, or has more than `limit` bytes.
    """
    helps = limit_of("JARVIS_MAX_FILE_BYTES")
    too_large = InputError(f"an attached file has more than {limit:,} bytes", advice=helps)
    # The length is checked before decoding: base64 has 4 letters for 3 bytes, and %20 stands for one.
    if len(data) > limit * (3 if "%" in data else 3 / 2) + 256:
        raise too_large
    named, content = read_data_url(data) if is_data_url(data) else ("", decode_base64(data))
    if len(content) > limit:
        raise too_large
    return named or mime, content


def decode_base64(data: str) -> bytes:
    """The bytes in base64: wrapped, URL-safe, percent-encoded or without padding, as clients send it.

    Raises InputError: it is not valid.
    """
    try:
        letters = unquote_to_bytes(data) if "%" in data else data.encode("ascii")
        letters = letters.translate(bytes.maketrans(b"-_", b"+/"), b" \t\r\n\f\v").rstrip(b"=")
        return base64.b64decode(letters + b"=" * (-len(letters) % 4), validate=True)
    except ValueError as error:
        raise InputError("an attached file is not valid base64") from error


def message_text(message: BaseMessage) -> str:
    """The texts of a message's parts, also of OpenAI's `input_text`, `output_text` and `refusal`."""
    return "".join(text for part in _parts(message) if (text := part_text(part)) is not None)


def media_blocks(message: BaseMessage) -> list[dict[str, Any]]:
    """The parts of a message other than text: files in LangChain's standard form, the rest unchanged."""
    return [file_block(part) for part in _parts(message) if part_text(part) is None]


def file_block(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part as LangChain's standard block with its `url`, `base64`, `text` or `file_id`, else unchanged."""
    fields: dict[str, Any] = {}
    for name, value in _leaves(part):
        if name == part.get("type") in ("image", "audio", "video"):  # of Qwen's templates and Vercel's SDK
            name = "url" if ":" in value else "base64"
        if value and name in _FIELDS:
            fields.setdefault(_FIELDS[name], value)
        elif name in ("type", "source_type") and value == "text":
            fields["is_text"] = True
    if fields.pop("is_text", False) and "base64" in fields:  # the data of a document is the document itself
        fields["text"] = fields.pop("base64")
    if "mime_type" not in fields:  # then it is a thought
        fields.pop("text", None)
    if "base64" in fields:  # MCP names the file beside its bytes
        fields.pop("url", None)
    if fields.keys().isdisjoint({"url", "base64", "text", "file_id"}):
        return dict(part)
    named = str(part.get("type") or "")
    kind = next((kind for kind in ("image", "audio", "video") if kind in named), "file")
    if form := fields.pop("format", ""):
        fields.setdefault("mime_type", f"{kind}/{form}")
    return {"type": kind, **fields}


def part_text(part: Mapping[str, Any]) -> str | None:
    """The text of a part; None if it is of another type, or lacks its text."""
    text = part.get(_TEXT_FIELDS.get(str(part.get("type") or "text"), ""))
    return text if isinstance(text, str) else None


def _parts(message: BaseMessage) -> list[dict[str, Any]]:
    content = [message.content] if isinstance(message.content, str) else message.content
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]


def _leaves(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts and bytes in nested objects with their names, the outer ones first."""
    for name, value in part.items():
        if isinstance(value, str | bytes):
            yield name, value if isinstance(value, str) else base64.b64encode(value).decode()
    for value in part.values():
        if isinstance(value, Mapping):
            yield from _leaves(value)
