"""Files of JSON lines, in which evaluations keep their records: an object with an `id` a line.

for record in records_in(Path("predictions.jsonl")):
    record["id"]
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jarvis_agent.errors import InputError


def records_in(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file of JSON lines; empty lines do not count.

    Raises:
        InputError: the file can not be read, or a line is no object with an `id`; the message names it.
    """
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}, is no JSON: {error}") from error
        if not isinstance(record, dict) or "id" not in record:
            raise InputError(f"{path}, line {number}, is no object with an `id`")
        yield record


def text_of(path: Path) -> str:
    """What a file holds.

    Raises:
        InputError: it can not be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} can not be read: {error.strerror or error}") from error
