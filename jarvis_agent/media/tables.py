"""Tables as columns by name, read from CSV files and workbooks as people have them, and written as plain CSV.

table = read_table(path)
table.columns            # {"zip": ["01234", "00501"], "sales": [1234, None]}
table.cells              # {"zip": ["01234", "00501"], "sales": ["1,234", "n/a"]}, as they were written
table.notes              # ["1,234 in the column sales was read as 1234"]
rows, names, notes = table_shape(path)           # (2, ["zip", "sales"])
write_table(Path("forecast.csv"), table.columns)

Titles, comments, units, totals and sources are distinguished from rows by form alone: by empty cells, and by
words where the other cells of a column are numbers or dates. A column is numeric if every cell is a number or
missing ("", "NA", …). Numbers with leading zeros (if negative, all of them) or over 15 digits stay text.
What is missing, damaged, too large, or no table is a `BadInputError`.
"""

import csv
import io
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, dropwhile, islice, pairwise, takewhile, zip_longest
from pathlib import Path
from statistics import median_high, multimode
from types import SimpleNamespace
from typing import Any

from jarvis_agent.core.encodings import decode_text
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.text import brief_text

Row = list[str]
"""The cells of a line as they were written; [] for an empty line."""

Cell = str | float | int | None
"""The value of a cell; None if it is empty."""

Columns = dict[str, list[Cell]]
"""Columns of equal length by name."""

MAX_ROWS, MAX_CELLS, MAX_LINE = 1_000_000, 20_000_000, 1_000_000
"""Maximum numbers of rows, of cells (each takes about 150 bytes of memory), and of characters in a line."""

_TITLES, _NAMED, _FOOTER, _SAMPLE, _SUMMED = 100, 20, 8, 200, 1000
"""Most lines above a header, of names with values there, of a footer, that show a form, and above a total."""

_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # how archives (XLSX, XLSB, ODS) and XLS files begin

_RULE = re.compile(r"\s*|[-=+|:\s]{3,}")
_MISSING = re.compile(
    r"|[-–—﹣－−.…:?]{1,3}|n/?a|nan|none|null|#([A-Z0-9/ÄÖÜÉ]+[!?]|N/?[AVD]|#+)", re.IGNORECASE
)
"""No value, or an error as Excel writes it in several languages."""

_DATE = re.compile(
    r"([0-9]{4}[-/][0-9]{1,2}|[0-9]{1,2}[-/][0-9]{4}|[0-9]{1,4}([-/.])[0-9]{1,2}\2[0-9]{1,4})([T ,].*)?"
    r"|[0-9]{4}年([0-9]{1,2}月([0-9]{1,2}日)?)?"
)
_FIGURES = re.compile(r"\W*[0-9]([0-9_]|[^\w;|]|[eE][+-]?[0-9])*")
_RANGE = re.compile(r"[<>≤≥] ?[0-9.,]+|[0-9.,]+ ?([-–/:] ?[0-9.,]+|\+)")
"""A range or a time of day: 0-14, 65+, < 5, 2019/2020, 8:00."""
_YEAR = re.compile("[12][0-9]{3}")
_OF_FIGURES = ("date", "number", "range")

_NUMBERS = {  # by decimal sign, with what separates thousands
    sign: re.compile(
        rf"(?=[+-]?\{sign}?[0-9])(?!\+[0-9 ]{{7,}}$)(-0*(?=[0-9])|[+-]?)"
        rf"([0-9]*(?=\{sign})|0|[1-9][0-9]{{0,14}}|[1-9][0-9]{{0,2}}([{marks}][0-9]{{2,3}}){{0,5}}[{marks}][0-9]{{3}})"
        rf"(\{sign}[0-9]*([eE][+-]?[0-9]+)?|[eE][+-][0-9]+)?"
    )
    for sign, marks in {".": ", '", ",": ". '"}.items()
}
_PLAIN = {".": str.maketrans("", "", ", '"), ",": str.maketrans(",", ".", ". '")}
_MARKS = str.maketrans("\u00a0\u202f\u2009\u2212\u2013\u2014\ufe63\uff0d\u2019", "   -----'")
"""Other spaces, dashes that stand for a minus, and the apostrophe of Swiss numbers."""

_CURRENCY = "$£¥฿\u20a0-\u20cf"
_UNIT = re.compile(rf" ?[%{_CURRENCY}](?! ?[0-9])|(?<![0-9])(?<![0-9] )[%{_CURRENCY}] ?")
_NEGATIVE = re.compile(r"^\( ?(.+?) ?\)$|^(.*[.,].*)-$")
"""As accountants write negative numbers; but "5-" may be a grade."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the values of its columns, its cells as they were written, and notes on what was assumed."""

    columns: Columns
    cells: dict[str, list[str]]
    notes: list[str]


def read_table(path: Path) -> Table:
    """Read a CSV file, or the first sheet of a workbook that has cells."""
    cells, rest, delimiter, notes = _read(path)
    rows = len(next(iter(cells.values()), []))
    if rest or rows > MAX_ROWS:
        limits = f"{MAX_ROWS:,} rows or {MAX_CELLS:,} cells"
        raise BadInputError(f"{path.name} has more than {limits}; give a part of it")
    if not cells:
        raise BadInputError(f"{path.name} is empty; its first line must name the columns")
    if not rows:
        raise BadInputError(f"{path.name} has no rows after its first line, which names the columns")
    return Table(_values(cells, delimiter, notes), cells, notes)


def table_shape(path: Path) -> tuple[int, list[str], list[str]]:
    """The number of rows of a table of any size, the names of its columns, and notes on lines left out."""
    cells, rest, _, notes = _read(path)
    return len(next(iter(cells.values()), [])) + rest, [*cells], notes


def to_csv(columns: Mapping[str, Sequence[Cell]]) -> str:
    """Columns, of equal length, as CSV: commas, a header line, and empty cells for None."""
    lines = list[str]()
    # A "\r" is quoted only if it ends lines.
    csv.writer(SimpleNamespace(write=lines.append)).writerows([columns, *zip(*columns.values(), strict=True)])
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


def write_table(path: Path, columns: Mapping[str, Sequence[Cell]]) -> None:
    """Write columns as `to_csv`, in UTF-8. Raises OSError."""
    path.write_text(to_csv(columns), encoding="utf-8", newline="")


def _read(path: Path) -> tuple[dict[str, list[str]], int, str, list[str]]:
    """The columns as they were written, the number of lines beyond the limits, the delimiter, and notes."""
    notes, delimiter = list[str](), ","
    try:
        content = path.read_bytes()
        if content.startswith(_WORKBOOKS):
            read = _sheet(path, notes)
        else:
            text, notes = decode_text(content)
            read, delimiter = _lines_of_text(text, path.name)
    except OSError as error:
        raise BadInputError(f"{path.name} cannot be read", detail=error.strerror or error) from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path.name} is not text; export the table as CSV") from error
    lines, cells, is_apart = list[Row](), 0, False
    apart = set[int]()  # the identities of the rows after an empty line
    for line in read:
        is_empty = line != [""] and all(map(_RULE.fullmatch, line))
        if not is_empty:
            lines.append(line)
            cells += len(line)
            apart |= {id(line)} if is_apart else set()
        is_apart = is_empty
        if len(lines) > MAX_ROWS + _TITLES or cells > MAX_CELLS:
            break
    rest = sum(map(any, read))
    if not any(map(any, lines)):
        return {}, rest, delimiter, notes
    header, rows = _split(lines, apart, delimiter, notes)
    return _by_name(header, rows, notes), rest, delimiter, notes


def _lines_of_text(text: str, name: str) -> tuple[Iterator[Row], str]:
    """The lines of a text, read as they come, and the delimiter."""
    if max(map(len, io.StringIO(text, newline="")), default=0) > MAX_LINE:
        raise BadInputError(f"{name} has a line of more than {MAX_LINE:,} characters; it is not a table")
    lines = io.StringIO(text, newline="")
    if stated := re.match(r'"?sep=(.)"?\r?\n', text, re.IGNORECASE):  # Excel's own line
        lines.readline()
    delimiter = stated[1] if stated else _find_delimiter(text[:MAX_LINE])
    escape = "\\" if re.search(r'[^\\]\\"[^,;\t|\r\n"]', text[:MAX_LINE]) else None  # as databases write
    is_spaced = delimiter == " " or f'{delimiter} "' in text[:MAX_LINE]  # a, "b, c"
    reader = csv.reader(lines, delimiter=delimiter, escapechar=escape, skipinitialspace=is_spaced)
    return _rows(reader, name, text.count('"') % 2 == 1), delimiter


def _rows(reader: Any, name: str, has_odd_quotes: bool) -> Iterator[Row]:
    row: Row = []
    try:
        for row in reader:
            yield row
        if has_odd_quotes and row and "\n" in row[-1]:
            raise csv.Error("a quotation mark before it is never closed")
    except csv.Error as error:
        raise BadInputError(f"line {reader.line_num} of {name} cannot be read", detail=error) from error


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
        lines = [*islice(filter(None, map(str.split, io.StringIO(text))), 100)]
        forms = [*map(_form, chain.from_iterable(lines[1:]))]
        is_even = len({*map(len, lines)}) == 1 and min(len(lines), len(lines[0])) > 2 and '"' not in text
        is_number = all(re.fullmatch("[0-9]{1,3}( [0-9]{3})+", " ".join(line)) for line in lines[1:])
        is_log = is_even and not is_number and 2 * forms.count("number") > len(forms)
        return " " if is_log else "\t"  # one column of sentences
    return max("\t|;,", key=fitness)  # the comma last: it also stands in numbers and texts


def _sheet(path: Path, notes: list[str]) -> Iterator[Row]:
    """The lines of a sheet, read by a process of its own, which the library may end."""
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", str(Path(__file__).with_name("workbook.py")), str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    ) as process:
        rows = _rows(csv.reader(process.stdout or []), path.name, has_odd_quotes=False)
        reason, *sheet = next(rows, ["it is damaged, or too large"])
        yield from rows
    if process.returncode or not sheet:
        raise BadInputError(f"{path.name} cannot be read as a workbook: {reason}")
    if (number := int(sheet[1])) > 1:
        notes.append(Note("the sheet {name} was read, the first of {number}", name=sheet[0], number=number))
    if number := int(sheet[2]):
        empty = "formulas with an error or without a stored value, which are empty: {number:,}"
        notes.append(Note(empty, number=number))


def _split(lines: list[Row], apart: set[int], delimiter: str, notes: list[str]) -> tuple[Row, list[Row]]:
    """The names of the columns, and the rows; notes say what was assumed and left out."""
    sample = lines[:_SAMPLE]
    width = min(max(multimode(map(len, sample))), max(map(_length, sample)))
    at = _find_header(lines, apart, width)
    header, below = [cell.strip() for cell in lines[at]], lines[at + 1 : at + 1 + _SAMPLE]
    forms, start = _forms(below or [header]), at + 1
    differing, alike = _compare(header, forms)
    is_row = alike > 0 == differing and not _count_up(header, below)
    has_title = " " in header[0] or (header[0] and below and _filled(below[0]) < 2)  # above two columns
    is_title = _filled(header) == 1 < width != len(header) + 1 and (width > 2 or has_title)
    if is_row or is_title:
        header = [f"column {number}" for number in range(1, width + 1)]
        start = at if is_row else next((place for place, row in enumerate(lines) if _filled(row) > 1), at)
        while is_row and start and _compare(lines[start - 1], forms)[1] and id(lines[start]) not in apart:
            start -= 1
        names = ", ".join(header[:3])
        notes.append(Note("no line names the columns; they are called {names}", names=names))
        at = start
    elif len(header) == width - 1:
        header = ["", *header]
        notes.append(Note("the header has one cell fewer than the rows; the first column has no name"))
    else:
        for place in range(at, max(at - 3, 0), -1):  # the header may have several lines
            above, is_full = lines[place - 1], 2 * _filled(header) >= width
            if len(above) != len(header) or _filled(above) < 2 or (is_full and id(lines[place]) in apart):
                break
            header = [name or group.strip() for name, group in zip(header, above, strict=True)]
    if start > at and len(below) > 3 and _names(below[0], _forms(below[1:], 1.0), least=2):
        start += 1  # units
    left_out, rows = lines[:at] + lines[at + 1 : start], list[Row]()
    repeated = lines[at] if start > at and _compare(header, forms)[0] else None
    is_figure = forms[0] in ("date", "number")
    for row in lines[start:]:
        is_comment = row[0].startswith("#") and (len(row) < width or (is_figure and row[0][1:2] == " "))
        (left_out if row == repeated or (is_comment and _form(row[0])) else rows).append(row)
    end = _find_footer(rows, apart, delimiter)
    if row := _second_table(rows[:end], apart, forms):
        begins = "another table seems to begin with the line: {line}"
        notes.append(Note(begins, line=brief_text(", ".join(filter(None, row)), 60)))
    if left_out := [*left_out, *rows[end:]]:
        texts = [brief_text(", ".join(filter(None, row)), 60) for row in left_out[:3]]
        several = "{number:,} lines were left out of the table, such as: {lines}"
        left = several if len(left_out) > 3 else "left out of the table: {lines}"
        notes.append(Note(left, lines=texts, number=len(left_out)))
    return header, rows[:end]


def _by_name(header: Row, rows: list[Row], notes: list[str]) -> dict[str, list[str]]:
    """The cells of the columns by unique names, without columns that have neither name nor cells."""
    columns, copies = dict[str, list[str]](), Counter[str]()
    for number, (written, *cells) in enumerate(zip_longest(header, *rows, fillvalue=""), 1):
        if written or any(map(str.strip, cells)):
            stem = written or f"column {number}"
            name, is_noted = written if number <= len(header) else stem, stem in copies
            while name in columns:
                copies[stem] += 1
                name = f"{stem} {copies[stem]}" if copies[stem] > 1 else stem
            if written and name != written and not is_noted:
                twice = "the column {name} occurs twice; the second is called {unique}"
                notes.append(Note(twice, name=written, unique=name))
            columns[name] = cells
    named = _length(header)
    if short := sum(len(row) < named for row in rows):
        filled = "rows with fewer cells than the header, which were filled: {number:,}"
        notes.append(Note(filled, number=short))
    if long := sum(len(row) > len(header) and _length(row) > len(header) for row in rows):
        notes.append(Note("rows with more cells than the header: {number:,}", number=long))
    return columns


def _find_header(rows: list[Row], apart: set[int], width: int) -> int:
    """The line of names: the first of the usual length, or one beside it with words above numbers."""

    def filled(row: Row) -> int:
        return _filled(row) if 2 * _filled(row) <= width else _length(row)

    def is_data(at: int) -> bool:
        return "number" in map(_form, rows[at]) and not _count_up(rows[at], rows[at + 1 : at + _SAMPLE])

    lines, lengths, top = rows[:_TITLES], [*map(_length, rows[:_SAMPLE])], 0
    counts = [0 if row[0].startswith("#") else filled(row) for row in lines]
    usual = max(multimode(length for length in lengths if length > 1), default=1)
    full = next(at for at, count in enumerate(counts) if count >= min(width, usual, max(counts)))
    for at, row in enumerate(lines[full + 1 : full + _NAMED], full + 1):  # below names with values
        is_apart, is_named = id(row) in apart, "mixed" not in map(_form, lines[full])
        is_second = is_apart and is_named and _names(lines[full], _forms(lines[full + 1 : at], 1.0))
        below = (max if is_apart else median_high)(lengths[at + 1 :] or [1])
        if min(counts[at], below) > max(lengths[:at]) and not (is_second or is_data(at)):
            full = top = at
    words = takewhile(lambda line: "number" not in map(_form, line), lines[full + 1 : full + 4])
    for at, row in enumerate(words, full + 1):  # below titles of several cells
        full = at if 2 * _filled(row) > 3 * _filled(lines[full]) else full
    gaps = [id(row) in apart for row in rows[1 : full + 2]]
    spaced = [any(cell.startswith(" ") for cell in row[1:]) for row in lines[full : full + 2]]
    is_title = gaps[full:] == [True] or spaced == [True, False]  # a sentence has blanks
    naming = (
        at
        for at in range(full + is_title, top - 1, -1)
        if (at <= full and _has_years(*rows[at : at + 4])) or _names(rows[at], _forms(rows[at + 1 :]))
    )
    short = (at for at in range(full) if filled(rows[at]) >= max(2, width - 1) and not any(gaps[at:full]))
    return next(naming, next(short, 0 if is_data(full) else full))


def _count_up(row: Row, below: list[Row]) -> bool:
    """Whether the figures of a row name columns: they are years or count up, and those below do not."""
    places = [place for place, cell in enumerate(row) if _form(cell) in _OF_FIGURES]
    figures = [row[place].strip() for place in places]
    if _has_years(row, *below[:3]):  # whatever stands further below
        return True
    if figures and all(map(_YEAR.fullmatch, figures)):
        is_year = len(figures) > 1 or figures[0][:2] in ("19", "20")
        return is_year and not any(_YEAR.fullmatch(cell.strip()) for line in below for cell in line)
    if len(figures) < (2 if row[0].strip() else 1):
        return False
    first = 1 if len(figures) < len(row) and figures[0] == "1" else 0
    column = [figures[0], *(line[places[0]].strip() for line in below[:2] if places[0] < len(line))]
    counted = [str(first + place) for place in range(max(len(figures), len(column)))]
    return figures == counted[: len(figures)] and (len(column) == 2 or column != counted[: len(column)])


def _has_years(row: Row, *below: Row) -> bool:
    """Whether the figures of a row are years, most in equal steps, unlike those of each next row."""
    figures = [cell.strip() for cell in row if _form(cell) in _OF_FIGURES]
    if len(figures) < 3 or not all(_YEAR.fullmatch(year) and "1900" <= year <= "2100" for year in figures):
        return False
    steps = Counter(int(later) - int(year) for year, later in pairwise(figures))
    (step, count), *_ = steps.most_common(1)
    is_like = bool(below) and all(map(_has_years, below))
    return step != 0 and 4 * count >= 3 * steps.total() and not is_like


def _find_footer(rows: list[Row], apart: set[int], delimiter: str) -> int:
    """Where those of the last rows begin that are none, such as totals and sources."""
    for start in range(max(2, len(rows) - _FOOTER), len(rows)):
        above = rows[max(0, start - _SUMMED) : start]
        below = rows[start + 1 :] if sum(map(bool, rows[start])) > 1 else []  # a total, with remarks
        remarks = {id(row) for row in below if sum(map(bool, row)) == 1 < len(row)}
        gaps = remarks if {*map(id, above[-2:])} <= apart else apart | remarks  # none where all are apart
        if all(_is_footer(row, above, id(row) in gaps, delimiter) for row in rows[start:]):
            return start
    return len(rows)


def _is_footer(row: Row, above: list[Row], is_apart: bool, delimiter: str) -> bool:
    """Whether a row has words below dates or years, or one long cell, or the sums of the columns."""
    label, others = row[0].strip(), [place for place, cell in enumerate(row) if place and cell.strip()]
    if (form := _form(label)) in _OF_FIGURES:
        return False
    column = [line[0].strip() for line in above if line[0].strip()]
    (kind,), width = _forms([line[:1] for line in above], 1.0), max(len(row), len(above[0]))
    is_dated = kind == "date" or (column and all(map(_YEAR.fullmatch, column)))
    is_alone = width > 1 and not others
    if form and ((form == "text" and is_dated) or (is_apart and (is_dated or kind == "number" or is_alone))):
        return True
    if form and is_alone:
        return len(label) > max(map(len, column), default=0) and (width > 2 or len(row) == 1)
    if others and not label and _form(row[others[0]]) == "text":
        others = others[1:]  # the label stands further right
    rows, sums = (2, 3) if is_apart and form else (3, 4 if kind == "text" else 3)
    if len(above) == _SUMMED or len(above) < rows or len(others) * len(above) < sums:
        return False
    block = [*above, row]
    return all(_is_sum([line[at] for line in block if at < len(line)], delimiter) for at in others)


def _is_sum(column: Sequence[str], delimiter: str) -> bool:
    """Whether the last of these cells is the sum of the others, and more than each of them."""
    cells = [cell for cell in _values({"": column}, delimiter, [])[""] if cell is not None]
    numbers = [float(cell) for cell in cells if not isinstance(cell, str)]
    if len(numbers) < max(2, len(cells)) or numbers[-1] <= max(numbers[:-1]):
        return False
    return math.isclose(numbers[-1], math.fsum(numbers[:-1]), abs_tol=0.01)


def _second_table(rows: list[Row], apart: set[int], forms: list[str]) -> Row:
    """The line with which another table seems to begin: it has names, or fills other columns; [] if none."""
    starts = [place for place, row in enumerate(rows) if place == 0 or id(row) in apart]
    first, *others = [rows[start:end] for start, end in pairwise([*starts, len(rows)])] or [[]]
    always, ever = _filled_columns(first)
    for block in others:
        if line := next((row for row in block[:3] if _names(row, forms, least=2)), []):
            return line
        here, anywhere = _filled_columns(block)
        lost, new = always - anywhere, here - ever
        is_other = len(lost) + len(new) > 2 or (new and _names(block[0], _forms(block[1:])))
        if is_other and min(len(first), len(block)) > 1:
            return block[0]
    return []


def _filled_columns(rows: list[Row]) -> tuple[set[int], set[int]]:
    """The columns that each of these rows fills, and those that any does."""
    counts = Counter(place for row in rows[:_SAMPLE] for place, cell in enumerate(row) if cell.strip())
    return {place for place, count in counts.items() if count == len(rows[:_SAMPLE])}, {*counts}


def _names(row: Row, forms: list[str], least: int = 1) -> bool:
    """Whether a row, no title, has words in at least so many columns of numbers or dates, and none itself."""
    differing, alike = _compare(row, forms)
    return differing >= least and not alike and _filled(row) >= min(2, len(forms))


def _compare(row: Row, forms: list[str]) -> tuple[int, int]:
    """How many cells have another form than their column, and how many are figures like it."""
    differing = alike = 0
    for cell, form in zip(row, forms, strict=False):
        if form in (*_OF_FIGURES, "mixed") and (own := _form(cell)):
            alike += own == form != "mixed"
            differing += own == "text" if form == "mixed" else own != form
    return differing, alike


def _forms(rows: Sequence[Row], share: float = 0.75) -> list[str]:
    """The form that this share of the cells of each column has, else "text"; "" without any."""
    forms: list[str] = []
    for column in zip_longest(*rows[:_SAMPLE], fillvalue=""):
        counts = Counter(filter(None, map(_form, column)))
        (form, count), *_ = counts.most_common(1) or [("", 0)]
        is_form = count >= share * counts.total() or (share < 1 < count == counts.total() - 1)
        forms.append(form if is_form else "text")
    return forms


def _form(cell: str) -> str:
    """A "date", "range", "number" (no letters), "text" (words or a unit), "mixed" (both), or "" (neither)."""
    text = cell.strip()[:200]
    if _MISSING.fullmatch(text):
        return ""
    if _DATE.fullmatch(text):
        return "date"
    if _FIGURES.fullmatch(text):
        return "range" if _RANGE.fullmatch(text) else "number"
    if any(map(str.isdigit, text)):
        return "mixed"
    return "text" if any(map(str.isalpha, text)) or re.search(f"[%‰°{_CURRENCY}]", text) else ""


def _filled(row: Row) -> int:
    return sum(bool(cell.strip()) for cell in row)


def _length(row: Row) -> int:
    """The number of cells without the empty ones at the end."""
    return max((place for place, cell in enumerate(row, 1) if cell.strip()), default=0)


def _values(cells: Mapping[str, Sequence[str]], delimiter: str, notes: list[str]) -> Columns:
    """The values of all columns. Numbers that could be read in two ways are noted.

    A column whose numbers allow both decimal signs has that of the others, else the usual one of such files.
    """
    columns: Columns = {}
    most, spoilt = len(next(iter(cells.values()), [])) // 10, list[str]()  # cells that are no numbers
    odd = {name: {sign: list[str]() for sign in ".,"} for name in cells}
    numeric = {
        name: {sign: numbers for sign in ".," if (numbers := _numbers(column, sign, odd[name][sign], most))}
        for name, column in cells.items()
    }
    certain = {sign for readings in numeric.values() if len(readings) == 1 for sign in readings}
    usual = min(certain) if len(certain) == 1 else "," if delimiter == ";" else "."
    for place, (name, readings) in enumerate(numeric.items(), 1):
        if not readings:
            columns[name] = [cell.strip() or None for cell in cells[name]]
            if few := min(filter(None, odd[name].values()), key=len, default=[]):
                spoilt.append(f"{name or f'column {place}'} ({len(few)}: {brief_text(few[0], 60)})")
            continue
        values = columns[name] = readings.get(usual) or next(iter(readings.values()))
        for written, value, *others in zip(cells[name], values, *readings.values(), strict=True):
            is_doubtful = isinstance(value, int) and any(other != value for other in others)
            if is_doubtful or (value is not None and re.search("[%(]", written)):
                read = "{text} in the column {name} was read as {number}"
                if name in ("", f"column {place}"):
                    read = "{text} in column {place} was read as {number}"
                notes.append(Note(read, text=written.strip(), name=name, place=place, number=value))
                break
    if spoilt:
        because = "columns were read as text because of a few cells: {columns}"
        notes.append(Note(because, columns=[*spoilt[:3], *["…"][: len(spoilt) - 3]]))
    return columns


def _numbers(column: Sequence[str], sign: str, odd: list[str], most: int) -> list[Cell] | None:
    """The numbers of a column with this decimal sign, and None for missing ones; None if it is text.

    `odd` gets cells that are no numbers or of another unit, if fewer than the numbers and at most so many.
    """
    others = {unit for unit, _ in Counter(re.findall(f"[%{_CURRENCY}]", " ".join(column))).most_common()[1:]}
    plain: list[str] = []
    for text in map(str.strip, column):
        if _MISSING.fullmatch(text):
            plain.append("")
            continue
        bare = text
        if not text.isdecimal():
            bare = _NEGATIVE.sub(r"-\1\2", _UNIT.sub("", text.translate(_MARKS), 1)).replace("- ", "-", 1)
        if others.isdisjoint(text) and _NUMBERS[sign].fullmatch(bare):
            plain.append(bare.translate(_PLAIN[sign]))
            continue
        odd.append(text)
        if len(odd) > min(most, _SAMPLE + len(plain)):  # it is text
            plain = []
            break
    if odd or all(re.fullmatch("(-0[0-9]+)?", text) for text in plain):
        odd *= len(odd) < sum(map(bool, plain)) and len({*map(len, column)}) > 1  # codes have one length
        return None
    convert = int if {*"".join(plain)}.isdisjoint(".eE") else float
    values = [convert(text) if text else None for text in plain]
    return [*values] if all(map(math.isfinite, filter(None, values))) else None
