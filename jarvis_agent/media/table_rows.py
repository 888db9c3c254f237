"""The lines of a table's file as lists of cells, whatever its encoding and separator; or of a workbook.

lines, delimiter, notes = read_lines(path)
list(lines)               # [["month", "sales"], [], ["2026-01", "1,234"]]
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.media.encodings import find_encoding

Row = list[str]
"""The cells of a line as they were written; [] for an empty line."""

MAX_LINE = 1_000_000
"""Maximum number of characters in a line."""

_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""How ZIP archives (XLSX, XLSB, ODS) and compound files (XLS) begin."""


def read_lines(path: Path) -> tuple[Iterator[Row], str, list[str]]:
    """The lines of a text or of the first sheet with cells, read as they come; the delimiter; and notes.

    Raises:
        BadInputError: the file is missing, damaged or not text, or has a line that is too long; also later.
    """
    try:
        content = path.read_bytes()
        if content.startswith(_WORKBOOKS):
            notes = list[str]()
            return _sheet(path, notes), ",", notes
        encoding, notes = find_encoding(content)
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path.name} is not text; export the table as CSV") from error
    text = io.TextIOWrapper(io.BytesIO(content), encoding, errors="replace", newline="")
    sample = text.read(MAX_LINE)
    text.seek(0)
    stated = re.match(r'"?sep=(.)"?\r?\n', sample, re.IGNORECASE)  # Excel's own line
    delimiter = stated[1] if stated else _find_delimiter(sample)
    escape = "\\" if re.search(r'[^\\]\\"[^,;\t|\r\n"]', sample) else None  # as databases write
    reader = csv.reader(_physical_lines(text, path.name), delimiter=delimiter, escapechar=escape)
    return (
        islice(_rows(reader, path.name, content.count(b'"') % 2 == 1), bool(stated), None),
        delimiter,
        notes,
    )


def _physical_lines(text: io.TextIOWrapper, name: str) -> Iterator[str]:
    while line := text.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise BadInputError(f"{name} has a line of more than {MAX_LINE:,} characters; it is not a table")
        yield line


def _rows(reader: Any, name: str, has_odd_quotes: bool) -> Iterator[Row]:
    row: Row = []
    try:
        for row in reader:
            yield row
        if has_odd_quotes and row and "\n" in row[-1]:
            raise csv.Error("a quotation mark before it is never closed")
    except csv.Error as error:
        raise BadInputError(f"line {reader.line_num} of {name} cannot be read: {error}") from error


def _sheet(path: Path, notes: list[str]) -> Iterator[Row]:
    """The lines of a sheet, read by a process of its own, which the library may end."""
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", str(Path(__file__).with_name("workbook.py")), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        rows = _rows(csv.reader(process.stdout), path.name, has_odd_quotes=False)
        reason, *sheet = next(rows, ["it is damaged, or too large"])
        yield from rows
    if process.returncode or not sheet:
        raise BadInputError(f"{path.name} cannot be read as a workbook: {reason}")
    if int(sheet[1]) > 1:
        notes.append(f"the sheet {sheet[0]} was read, the first of {sheet[1]}")


def _find_delimiter(text: str) -> str:
    """The delimiter with which most of the first lines have the same number of cells, or a comma."""

    def fitness(delimiter: str) -> int:
        widths = list[int]()
        with suppress(csv.Error):
            rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
            widths.extend(map(len, islice(filter(None, rows), 100)))
        below = [*dropwhile(lambda width: width == 1, widths)]
        counts = Counter(width for width in below if width > 1 and 2 * below.count(1) < len(below))
        return max([*counts.values(), 2 * (delimiter == ",")])

    if "," not in text.partition("\n")[0] and not re.search(r",(?! )|[\t|;]", text):
        return "\t"  # one column of sentences
    return max("\t|;,", key=fitness)  # the comma last: it also stands in numbers and texts
