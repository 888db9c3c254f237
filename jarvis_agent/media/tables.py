"""Tables as columns by name, read from CSV files and workbooks as people have them, and written as plain CSV.

table = read_table(path)
table.columns            # {"zip": ["01234", "00501"], "sales": [1234, None]}
table.cells              # {"zip": ["01234", "00501"], "sales": ["1,234", "n/a"]}, as they were written
table.notes              # ["1,234 in the column sales was read as 1234"]
rows, names = table_shape(path)           # (2, ["zip", "sales"])
write_table(Path("forecast.csv"), table.columns)

A column is numeric if every cell is a number or missing ("", "NA", "null", …). Identifiers stay text: numbers
with leading zeros, of more than 15 digits, or with the plus sign of a telephone number.
"""

from __future__ import annotations

import csv
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.media.table_rows import Row, TableRows, is_missing

Cell = str | float | int | None
"""The value of a cell; None if it is empty."""

Columns = dict[str, list[Cell]]
"""Columns of equal length by name."""

MAX_ROWS, MAX_CELLS = 1_000_000, 20_000_000
"""Maximum numbers of rows and of cells; each takes about 150 bytes of memory."""

_SIMPLE = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_MARKS = str.maketrans("\u00a0\u202f\u2009\u2212\u2019", "   -'")
"""Other spaces, the minus sign, and the apostrophe of Swiss numbers."""

_GROUPS = {".": ", '", ",": ". '"}
"""What separates thousands, by decimal sign."""

_PLAIN = {".": str.maketrans("", "", ", '"), ",": str.maketrans(",", ".", ". '")}


def _pattern(sign: str) -> re.Pattern[str]:
    """Numbers with this decimal sign."""
    decimal, group = re.escape(sign), r"(?:\.[0-9]{3})+" if sign == "," else "(?:,[0-9]{2,3})*,[0-9]{3}"
    grouped = rf"[1-9][0-9]{{0,2}}(?:{group}|(?:[ '][0-9]{{3}})+)"
    whole = rf"0|[1-9][0-9]{{0,14}}|{grouped}"
    fraction = rf"(?:{grouped}|[0-9]*){decimal}[0-9]+|[0-9]+{decimal}"
    return re.compile(rf"(?!\+[0-9 ]{{7,}}$)[+-]?(?:{whole}|{fraction})(?:[eE][+-]?[0-9]+)?")


_NUMBERS = {sign: _pattern(sign) for sign in ".,"}


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the values of its columns, its cells as they were written, and notes on what was assumed."""

    columns: Columns
    cells: dict[str, list[str]]
    notes: list[str]


def read_table(path: Path) -> Table:
    """Read a CSV file, or the first sheet of a workbook that has cells.

    Raises:
        BadInputError: the file is missing, empty, too large, damaged, or not a table.
    """
    source, rows = TableRows(path, _is_sum), list[Row]()
    for row in source:
        rows.append(row)
        if len(rows) > MAX_ROWS or len(rows) * len(row) > MAX_CELLS:
            raise BadInputError(
                f"{path.name} has more than {MAX_ROWS:,} rows or {MAX_CELLS:,} cells; give a part of it"
            )
    if not source.names:
        raise BadInputError(f"{path.name} is empty; its first line must name the columns")
    if not rows:
        raise BadInputError(f"{path.name} has no rows after its first line, which names the columns")
    names = source.unique_names()
    columns = zip(*(row + [""] * (len(names) - len(row)) for row in rows), strict=True)
    cells = {name: [*column] for name, column in zip(names, columns, strict=True) if name is not None}
    values, notes = _values(cells, source.delimiter)
    return Table(values, cells, [*source.notes, *notes])


def table_shape(path: Path) -> tuple[int, list[str]]:
    """The number of rows of a table of any size, and the names of its columns. No table is built.

    Raises:
        BadInputError: the file is missing, damaged or not text, or has a line that is too long.
    """
    source = TableRows(path, _is_sum)
    return sum(1 for _ in source), [name for name in source.unique_names() if name is not None]


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


def _values(cells: Mapping[str, Sequence[str]], delimiter: str) -> tuple[Columns, list[str]]:
    """The values of all columns, and notes on numbers that could be read in two ways.

    A column whose numbers allow both decimal signs has that of the others, else the usual one of such files.
    """
    columns: Columns = {name: [cell.strip() or None for cell in column] for name, column in cells.items()}
    numeric = {name: number for name, column in cells.items() if (number := _numbers(column))}
    certain = {signs for _, signs in numeric.values() if len(signs) == 1}
    usual = min(certain) if len(certain) == 1 else "," if delimiter == ";" else "."
    notes: list[str] = []
    for name, (bare, signs) in numeric.items():
        sign = signs if len(signs) == 1 else usual
        marks = set("".join(bare))
        plain = [text.translate(_PLAIN[sign]) for text in bare] if marks & {",", *_GROUPS[sign]} else bare
        convert = float if marks & {sign, "e", "E"} else int
        values = [convert(text) if text else None for text in plain]
        if not all(map(math.isfinite, filter(None, values))):
            continue
        columns[name] = [*values]
        doubtful = "" if len(signs) == 1 else _GROUPS[sign] + ("," if len(certain) != 1 else "")
        for written, text, value in zip(cells[name], bare, values, strict=True):
            if any(mark in text for mark in doubtful) or (text != written and re.search("[%(]", written)):
                notes.append(f"{written.strip()} in the column {name} was read as {value}")
                break
    return columns, notes


def _numbers(column: Sequence[str]) -> tuple[list[str], str] | None:
    """A column as bare numbers, "" for a missing one, and the decimal signs that fit; None if it is text."""
    bare, signs = list[str](), ".,"
    for cell in column:
        text = "" if is_missing(cell.strip()) else _bare(cell.strip())
        bare.append(text)
        if text:
            signs = "".join(sign for sign in signs if _NUMBERS[sign].fullmatch(text))
            if not signs:
                return None
    return (bare, signs) if any(bare) else None


def _bare(text: str) -> str:
    """A number without a currency or per cent sign, and with its minus before it; other texts as they are."""
    if _SIMPLE.fullmatch(text):
        return text
    bare = text.translate(_MARKS)
    units = [mark for mark in bare if mark == "%" or unicodedata.category(mark) == "Sc"]
    if len(units) == 1 and not re.search(rf"[0-9] ?{re.escape(units[0])} ?[0-9]", bare):
        bare = bare.replace(units[0], "").strip()
    if bare.startswith("(") and bare.endswith(")"):  # as accountants write negative numbers
        bare = f"-{bare[1:-1].strip()}"
    elif bare.endswith("-"):
        bare = f"-{bare[:-1].strip()}"
    return bare.replace("- ", "-", 1)


def _is_sum(column: Sequence[str], delimiter: str) -> bool:
    """Whether the last of these cells is the sum of the others, and more than each of them."""
    cells = [cell for cell in _values({"": column}, delimiter)[0][""] if cell is not None]
    numeric = [float(cell) for cell in cells if not isinstance(cell, str)]
    if len(numeric) < 2 or len(numeric) < len(cells):
        return False
    *numbers, total = numeric
    return total > max(numbers) and math.isclose(total, math.fsum(numbers), abs_tol=0.01)
