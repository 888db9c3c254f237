"""Files of JSON lines, in which evaluations keep their records: an object with an `id` a line.

for record in records_in(Path("predictions.jsonl")):
    record["id"]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from jarvis_agent.core.errors import InputError


def records_in(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file of JSON lines, or of a JSON array; empty lines do not count.

    Raises:
        InputError: the file can not be read, or a record is no object with an `id`; the message names it.
    """
    text = text_of(path)
    is_array = text.lstrip().startswith("[")
    for place, record in _array(text, path) if is_array else _lines(text, path):
        if not isinstance(record, dict) or "id" not in record:
            raise InputError(f"{path}, {place}, is no object with an `id`")
        yield record


def _lines(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    # Not splitlines: it also cuts at characters that may stand in a text, such as U+2028.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}, is no JSON: {error}") from error


def _array(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from error
    for number, record in enumerate(found, 1):
        yield f"record {number}", record


def bytes_of(path: Path) -> bytes:
    """What a file holds.

    Raises:
        InputError: it can not be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} can not be read: {error.strerror or error}") from error


def text_of(path: Path) -> str:
    """What a text file holds, without a byte order mark.

    Raises:
        InputError: it can not be read, or is no text in UTF-8.
    """
    try:
        return bytes_of(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}, is no text in UTF-8: {error.reason}") from error


def what_is_wrong(error: ValidationError) -> str:
    """What is wrong with a record, on one line."""
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What goes wrong within, while a file is written, is told with its name.

    Raises:
        InputError: the file can not be written.
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{path} can not be written: {error.strerror or error}") from error
