"""Tables as columns by name, read from CSV dialects and written as plain CSV.

columns = read_table(resource)            # {"month": [1, 2], "city": ["Oslo", None], "sales": [3.5, 4.0]}
rows, names = table_shape(path)           # (2, ["month", "city", "sales"])
write_table(Path("forecast.csv"), columns)

The delimiter (comma, semicolon, tab or bar) is detected, and so is the encoding: UTF-8, UTF-16 with a byte
order mark, else Windows-1252. A column is numeric if every cell is a number or missing ("", "NA", "null", …).
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from jarvis_agent.core.errors import BadInputError

if TYPE_CHECKING:
    from jarvis_agent.core.types import Resource

Cell = str | float | int | None
"""The value of a cell; None if it is empty."""

Columns = dict[str, list[Cell]]
"""Columns of equal length by name."""

MAX_ROWS, MAX_CELLS, MAX_LINE = 1_000_000, 20_000_000, 1_000_000
"""Maximum numbers of rows, of cells (each takes about 50 bytes of memory), and of characters in a line."""

_DELIMITERS = ",;\t|"
_SAMPLE = 20
_START = 8192
"""Bytes that tell the encoding."""
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MISSING = frozenset({"", "-", "n/a", "na", "nan", "none", "null"})


def read_table(resource: Resource) -> Columns:
    """Read a CSV file whose first line names the columns.

    Raises:
        BadInputError: the file is missing, empty, too large, not text, or has rows of different lengths;
            the message names the line.
    """
    path = resource.path
    if path is None:
        raise BadInputError("a table must be a file; give the path or URL of a CSV file")
    rows: list[list[str]] = []
    with _reader(path) as reader:
        header, lines = _header(reader)
        for row in lines:
            if len(row) != len(header):
                raise BadInputError(
                    f"line {reader.line_num} of {path.name} has {len(row)} cells, but its first line names "
                    f"{len(header)} columns"
                )
            rows.append(row)
            if len(rows) > MAX_ROWS or len(rows) * len(row) > MAX_CELLS:
                raise BadInputError(
                    f"{path.name} has more than {MAX_ROWS:,} rows or {MAX_CELLS:,} cells; give a part of it"
                )
    if not header:
        raise BadInputError(f"{path.name} is empty; its first line must name the columns")
    if twice := [column for column, count in Counter(header).items() if count > 1]:
        raise BadInputError(f"line 1 of {path.name} names a column twice: {', '.join(map(repr, twice))}")
    if not rows:
        raise BadInputError(f"{path.name} has no rows after its first line, which names the columns")
    columns = zip(header, zip(*rows, strict=True), strict=True)
    return {column: _typed(cells, reader.dialect.delimiter) for column, cells in columns}


def table_shape(path: Path) -> tuple[int, list[str]]:
    """The number of rows of a CSV file of any size, and the names of its columns. No table is built.

    Raises:
        BadInputError: the file is missing or not text, or has a line that is too long.
    """
    with _reader(path) as reader:
        header, lines = _header(reader)
        return sum(1 for _ in lines), header


def _header(reader: Iterator[list[str]]) -> tuple[list[str], Iterator[list[str]]]:
    """The names of the columns, and the rows after them that are not empty."""
    lines = filter(None, reader)
    return [name.strip() for name in next(lines, [])], lines


@contextmanager
def _reader(path: Path) -> Iterator[Any]:
    """A csv.reader of a file; what is wrong with the file becomes a BadInputError."""
    try:
        with path.open(encoding=_encoding(path), errors="replace", newline="") as file:
            delimiter = _delimiter(file.read(MAX_LINE))
            file.seek(0)
            reader = csv.reader(_lines(file, path.name), delimiter=delimiter)
            try:
                yield reader
            except csv.Error as error:
                line = f"line {reader.line_num} of {path.name}"
                raise BadInputError(f"{line} cannot be read: {error}") from error
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}") from error


def _lines(file: TextIO, name: str) -> Iterator[str]:
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise BadInputError(f"{name} has a line of more than {MAX_LINE:,} characters; it is not a table")
        yield line


def _encoding(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(_START)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\0" in start:
        raise BadInputError(f"{path.name} is not text; export the table as CSV")
    try:
        with path.open(encoding="utf-8-sig") as text:
            while text.read(MAX_LINE):
                pass
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"


def write_table(path: Path, columns: Mapping[str, Sequence[Cell]]) -> None:
    """Write columns as CSV: UTF-8, commas, a header line, and empty cells for None.

    Raises:
        ValueError: the columns differ in length.
        OSError: the file cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _delimiter(text: str) -> str:
    """The delimiter with which most of the first rows have as many cells as the header (at least two)."""

    def fitness(delimiter: str) -> tuple[int, int]:
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
            rows = list(filter(None, islice(reader, _SAMPLE)))
        except csv.Error:
            return (0, 0)
        width = len(rows[0]) if rows else 0
        return (sum(len(row) == width for row in rows), width) if width > 1 else (0, 0)

    return max(_DELIMITERS, key=fitness)


def _typed(cells: Sequence[str], delimiter: str) -> list[Cell]:
    """The cells as numbers if all of them are numbers, else as text."""
    texts = [cell.strip() for cell in cells]
    present = [text for text in texts if text.lower() not in _MISSING]
    if delimiter == ";":  # Such files may use decimal commas.
        present = [text.replace(",", ".") for text in present]
    if not present or not all(_NUMBER.fullmatch(text) and math.isfinite(float(text)) for text in present):
        return [text or None for text in texts]
    numbers = iter(map(int if all(map(_WHOLE.fullmatch, present)) else float, present))
    return [None if text.lower() in _MISSING else next(numbers) for text in texts]
