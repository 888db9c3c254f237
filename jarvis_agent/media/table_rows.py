"""The rows of a table in a file as people have it: its separator, its header, and what is no row.

rows = TableRows(path)
list(rows)                # [["2026-01", "1,234"], ["2026-02", "2,500"]]
rows.names, rows.notes    # ["month", "sales"], ["left out of the table: Report 2026; Total, 3,734"]

Files begin with titles, comments and units, and end with totals and sources. They are told from rows by their
form alone: by empty cells, and by words where the other cells of a column are numbers or dates.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TextIO

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.text import brief_text
from jarvis_agent.media.encodings import find_encoding

Row = list[str]
"""The cells of a row as they were written; [] for an empty line."""

MAX_LINE = 1_000_000
"""Maximum number of characters in a line."""

DELIMITERS = ",;\t|"

_HEAD, _TAIL, _SAMPLE = 1000, 8, 200
"""Rows in which header and footer are looked for; most rows of a footer; rows that tell a column's form."""

_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""How ZIP archives (XLSX, XLSB, ODS) and compound files (XLS) begin."""

_MISSING = frozenset({"", "-", "–", "—", "n/a", "na", "nan", "none", "null"})
_ERROR = re.compile(r"#([A-Z0-9/ÄÖÜÉ]+[!?]|N/?[AVD]|#+)")
"""Errors as Excel writes them in several languages."""

_DATE = re.compile(
    r"([0-9]{4}[-/][0-9]{1,2}|[0-9]{1,2}[-/][0-9]{4}|[0-9]{1,4}([-/.])[0-9]{1,2}\2[0-9]{1,4})([T ,].*)?"
    r"|[0-9]{4}年([0-9]{1,2}月([0-9]{1,2}日)?)?"
)
_FIGURES = re.compile(r"\W*[0-9]([0-9_]|[^\w;|]|[eE][+-]?[0-9])*")
_YEAR = re.compile(r"[12][0-9]{3}")


class TableRows:
    """The rows of a file, read as they come. `names` and `notes` are complete after the last one.

    Raises:
        BadInputError: the file is missing, damaged or not text, or has a line that is too long.
    """

    def __init__(self, path: Path, is_sum: Callable[[Sequence[str], str], bool]) -> None:
        self.path, self.delimiter = path, ","
        self.names: list[str] = []
        self._is_sum = is_sum
        self._forms: list[str] = []
        self._used: set[int] = set()
        self._left_out: list[Row] = []
        self._width = self._short = self._long = 0
        self._notes: list[str] = []

    def __iter__(self) -> Iterator[Row]:
        lines = self._lines()
        first = list(islice(lines, _HEAD))
        start = self._read_header(first)
        known, held = list[Row](), deque[tuple[Row, bool]]()
        for row, is_apart in self._rows(chain(first[start:], lines)):
            held.append((row, is_apart))
            known += [row] if len(known) < _HEAD else []
            if len(held) > _TAIL:
                yield self._counted(held.popleft()[0])
        footer = self._footer(known, list(held))
        for place, (row, _) in enumerate(held):
            if place < footer:
                yield self._counted(row)
            else:
                self._left_out.append(row)

    @property
    def notes(self) -> list[str]:
        """What was assumed and left out."""
        notes = list(self._notes)
        if self._left_out:
            shown = [brief_text(", ".join(filter(None, row)), 60) for row in self._left_out]
            notes.append("left out of the table: " + "; ".join([*shown[:3], *["…"][: len(shown) - 3]]))
        if self._short:
            notes.append(f"rows with fewer cells than the header, which were filled: {self._short:,}")
        if self._long:
            notes.append(f"rows with more cells than the header: {self._long:,}")
        return notes

    def unique_names(self) -> list[str | None]:
        """The names of the columns, no two of them alike; None for a column without name and cells."""
        names: list[str | None] = []
        for place, name in enumerate(self.names):
            unique, number = name, 2
            while unique in names:
                unique, number = f"{name} {number}" if name else f"column {place + 1}", number + 1
            names.append(unique if name or place in self._used or len(self.names) == 1 else None)
            if name and unique != name:
                self._notes.append(f"the column {name} occurs twice; the second is called {unique}")
        return names

    # ---- Lines

    def _lines(self) -> Iterator[Row]:
        try:
            with self.path.open("rb") as file:
                start = file.read(8)
                if start.startswith(_WORKBOOKS):
                    yield from self._sheet()
                    return
                content = start + file.read()
            encoding, self._notes = find_encoding(content)
            has_odd_quotes = content.count(b'"') % 2 == 1
            del content
            with self.path.open(encoding=encoding, errors="replace", newline="") as text:
                sample = text.read(MAX_LINE)
                stated = re.match(r'"?sep=(.)"?\r?\n', sample, re.IGNORECASE)  # Excel's own line
                self.delimiter = stated[1] if stated else _find_delimiter(sample)
                text.seek(0)
                escape = "\\" if re.search(r'[^\\]\\"[^,;\t|\r\n"]', sample) else None  # as databases write
                reader = csv.reader(
                    _limited(text, self.path.name), delimiter=self.delimiter, escapechar=escape
                )
                row: Row = []
                try:
                    for row in islice(reader, 1 if stated else 0, None):
                        yield row
                    if has_odd_quotes and row and "\n" in row[-1]:
                        raise csv.Error("a quotation mark before it is never closed")
                except csv.Error as error:
                    line = f"line {reader.line_num} of {self.path.name}"
                    raise BadInputError(f"{line} cannot be read: {error}") from error
        except OSError as error:
            raise BadInputError(f"{self.path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise BadInputError(f"{self.path.name} is not text; export the table as CSV") from error

    def _sheet(self) -> Iterator[Row]:
        """The first sheet of a workbook, read by a process of its own."""
        path = os.pathsep.join(filter(None, sys.path))
        with subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", "jarvis_agent.media.workbook", str(self.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": path, "RUST_BACKTRACE": "0"},
        ) as process:
            output, errors = process.stdout, process.stderr
            assert output is not None
            assert errors is not None
            try:
                if described := output.readline():
                    name, count = json.loads(described)
                    self._notes += [f"the sheet {name} was read, the first of {count}"] if count > 1 else []
                    yield from csv.reader(output)
                if process.wait():
                    reason = errors.read().strip()
                    if process.returncode != 1 or "\n" in reason:  # it was ended, or the library broke down
                        reason = "it is damaged, or too large"
                    raise BadInputError(f"{self.path.name} cannot be read as a workbook: {reason}")
            finally:
                process.kill()

    # ---- Header, rows and footer

    def _read_header(self, lines: list[Row]) -> int:
        """Set the names of the columns; return the place of the first line after them."""
        places = [place for place, line in enumerate(lines) if any(map(str.strip, line))]
        rows = [lines[place] for place in places]
        if not rows:
            return len(lines)
        counts = Counter(map(len, rows))
        width = min(max(counts, key=lambda one: (counts[one], one)), max(len(_trimmed(row)) for row in rows))
        at = 0
        while at + 1 < len(rows) and _is_title(rows[at:], width, places[at + 1] > places[at] + 1):
            at += 1
        header, below = [cell.strip() for cell in rows[at]], rows[at + 1 :]
        self._left_out += rows[:at]
        self._forms = _forms(below)
        if _is_row(header, below, self._forms):
            self.names = [f"column {number}" for number in range(1, width + 1)]
            self._width = width
            self._notes.append("no line names the columns; they are called " + ", ".join(self.names[:3]))
            return places[at]
        if len(header) == width - 1 and below and counts[len(header)] == 1:
            header = ["", *header]
            self._notes.append("the header has one cell fewer than the rows; the first column has no name")
        self.names, self._width = header, len(_trimmed(header))
        units = below[0] if len(below) > 3 and _names_columns(below[0], below[1:], 2, 1.0) else None
        self._left_out += [units] if units else []
        return places[at + bool(units)] + 1

    def _rows(self, lines: Iterator[Row]) -> Iterator[tuple[Row, bool]]:
        """The rows, and whether an empty line stands before each."""
        is_apart, header = False, self.names
        repeated = header if any(map(_differs, header, self._forms)) else None
        for line in lines:
            row = line if len(line) <= len(self.names) else line[: max(len(self.names), len(_trimmed(line)))]
            if row and row[0][:1].isalnum() and (repeated is None or row[0] != repeated[0]):
                yield row, is_apart  # as most of them
                is_apart = False
            elif not any(map(str.isalnum, "".join(row))) and (not row or len(header) > 1 or "\x1a" in row):
                is_apart = True
            elif self._is_comment(row) or [cell.strip() for cell in row] == repeated:
                self._left_out.append(row)
            else:
                yield row, is_apart
                is_apart = False

    def _is_comment(self, row: Row) -> bool:
        if not row[0].startswith("#") or is_missing(row[0]):
            return False
        return len(row) < self._width or (row[0][1:2] == " " and self._forms[:1] in (["date"], ["number"]))

    def _counted(self, row: Row) -> Row:
        self._short += len(row) < self._width
        self._long += len(row) > len(self.names)
        self.names += [f"column {place + 1}" for place in range(len(self.names), len(row))]
        if "" in self.names:
            self._used.update(
                place for place, cell in enumerate(row) if not self.names[place] and cell.strip()
            )
        return row

    def _footer(self, known: list[Row], held: list[tuple[Row, bool]]) -> int:
        """Where in the last rows those begin that are none, such as totals and sources."""
        above = known[: -len(held) or None] if len(known) < _HEAD else known
        for place, (row, _) in enumerate(held):
            if len(above) > 1 and all(self._is_footer(*one, above) for one in held[place:]):
                return place
            above = [*above, row]
        return len(held)

    def _is_footer(self, row: Row, is_apart: bool, above: list[Row]) -> bool:
        label, others = row[0].strip(), [place for place, cell in enumerate(row) if place and cell.strip()]
        form, column = _form(label), [line[0].strip() for line in above if line[0].strip()]
        forms = set(map(_form, column))
        if form in ("date", "number"):
            return False
        if form and forms == {"date"}:
            return True
        if form and forms == {"number"}:
            rising = sorted(column, key=lambda cell: (len(cell), cell))  # years, say
            is_key = len({*column}) == len(column) > 2 and column in (rising, rising[::-1])
            return is_apart or (form == "text" and is_key) or not (others or len(self.names) == 1)
        if form and not others and len(self.names) > 1:
            is_long = len(label) > max(map(len, column), default=0)
            return is_apart or (is_long and (len(row) == 1 or len(self.names) > 2))
        enough = len(others) * len(above) >= (3 if forms == {"mixed"} else 4)
        return (
            enough
            and len(above) < _HEAD
            and all(
                self._is_sum([line[place] for line in [*above, row] if place < len(line)], self.delimiter)
                for place in others
            )
        )


def _limited(file: TextIO, name: str) -> Iterator[str]:
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise BadInputError(f"{name} has a line of more than {MAX_LINE:,} characters; it is not a table")
        yield line


def _find_delimiter(text: str) -> str:
    """The delimiter with which most of the first rows have the same number of cells, and no other in them."""

    def fitness(delimiter: str) -> tuple[int, int, int]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        rows = list[Row]()
        with suppress(csv.Error):
            rows.extend(islice(filter(None, reader), 100))
        widths = [len(row) for row in rows]
        width = max({*widths} - {1}, key=lambda one: (widths.count(one), one), default=1)
        first = next((place for place, one in enumerate(widths) if one > 1), len(rows))
        if 0 < first == len(rows) - 1 or 2 * widths[first:].count(1) >= len(rows) - first:
            return 0, 0, 0
        others = re.compile(f"[{DELIMITERS[1:]}]".replace(delimiter, ""))
        return widths.count(width), -sum(bool(others.search(cell)) for row in rows for cell in row), width

    return max(DELIMITERS, key=fitness)


def _is_title(rows: list[Row], width: int, before_gap: bool) -> bool:
    """Whether the first of these rows stands above the header of a table of this width."""
    row, after = rows[0], rows[1:]
    cells = sum(bool(cell.strip()) for cell in row)
    filled = cells if row[0].strip() and 2 * cells <= width else len(_trimmed(row))
    if row[0].startswith("#") and (rest := [one for one in after if not one[0].startswith("#")]):
        return filled != width or rest[0] is not after[0] or _names_columns(rest[0], rest[1:])
    if filled >= width:
        spaced = [
            any(cell[:1] == " " for cell in one[1:]) for one in (row, after[0])
        ]  # a comma in a sentence
        return (before_gap if width == 1 else spaced == [True, False]) and _names_columns(after[0], after[1:])
    if any(_names_columns(one, after[place + 1 :]) for place, one in enumerate(after[:30])):
        return True
    if len(row) < width:
        lacks_one = len(row) == width - 1 and (width > 2 or _names_columns(["", *row], after))
        return before_gap or not (lacks_one or (filled > 1 and _names_columns(row, after)))
    is_header = len(_trimmed(after[0])) == width and "number" not in map(_form, after[0])
    return filled == 1 and is_header and (width > 2 or before_gap)


def _names_columns(row: Row, below: list[Row], least: int = 1, share: float = 0.75) -> bool:
    """Whether a row has words above at least so many columns of numbers or dates, and none itself."""
    forms = _forms(below, share)
    own = zip(map(_form, row), forms, strict=False)
    return sum(map(_differs, row, forms)) >= least and not any(
        one == form != "text" and form for one, form in own
    )


def _is_row(header: Row, below: list[Row], forms: list[str]) -> bool:
    """Whether the first row is one like the others: it has their types, and its numbers are no names."""
    own = [_form(cell) for cell in header]
    if any(map(_differs, header, forms)) or not forms or not {"number", "date"} & {*own}:
        return False
    sample = [[cell.strip() for cell in line] for line in below[:_SAMPLE]]
    words = [place for place, form in enumerate(own) if form == "text"]
    numbers = [int(cell) for cell in header if re.fullmatch("[0-9]{1,9}", cell)]
    if len(numbers) < len(header) - own.count("") - len(words) or any(
        line[place : place + 1] == [header[place]] for place in words for line in sample
    ):
        return True
    if {1000 < number < 3000 for number in numbers} == {True} and len({*numbers}) == len(numbers):
        return any(_YEAR.fullmatch(cell) for line in sample for cell in line)
    if len(numbers) == len(header):
        return len(numbers) == 1 or numbers != [*range(len(numbers))]
    rises = all(before < after for before, after in pairwise(numbers))
    return not (rises and (len(numbers) > 2 or numbers[0] + 1 == numbers[-1] or numbers == [0]))


def _differs(cell: str, form: str) -> bool:
    """Whether a cell has another form than the column below it, which has one."""
    own = _form(cell)
    return own != "" and (own != form if form in ("date", "number") else form == "mixed" and own == "text")


def _forms(rows: Sequence[Row], share: float = 0.75) -> list[str]:
    """The form that this share of the cells of each column has, else "text"; "" without any."""
    counts: list[Counter[str]] = []
    for row in rows[:_SAMPLE]:
        counts += [Counter() for _ in row[len(counts) :]]
        for count, cell in zip(counts, row, strict=False):
            count[_form(cell)] += 1
    forms: list[str] = []
    for count in counts:
        del count[""]
        (form, number), *_ = count.most_common(1) or [("", 0)]
        forms.append(form if number >= share * count.total() else "text")
    return forms


def _form(cell: str) -> str:
    """A "date", a "number" (no letters), "text" (no digits), "mixed" (both), or "" (neither, or missing)."""
    text = cell.strip()[:200]
    if is_missing(text):
        return ""
    if _DATE.fullmatch(text):
        return "date"
    if _FIGURES.fullmatch(text):
        return "number"
    if any(map(str.isdigit, text)):
        return "mixed"
    return "text" if any(map(str.isalpha, text)) else ""


def is_missing(text: str) -> bool:
    """Whether a cell says that it has no value."""
    return text.lower() in _MISSING or (text[0] == "#" and _ERROR.fullmatch(text) is not None)


def _trimmed(row: Row) -> Row:
    """A row without the empty cells at its end."""
    end = len(row)
    while end and not row[end - 1].strip():
        end -= 1
    return row[:end]
