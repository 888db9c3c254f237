"""The first sheet of a workbook (XLSX, XLSB, XLS, ODS) as CSV, written by a process of its own.

python workbook.py sales.xlsx   # the reason if it ends early, the sheet and how many there are; then rows

A workbook of one kilobyte may state a trillion cells; the library then ends the process that reads it.
"""

import csv
import io
import posixpath
import re
import sys
import zipfile
from contextlib import suppress
from datetime import date, datetime, timedelta
from itertools import count, product
from string import ascii_uppercase
from typing import Any
from xml.etree import ElementTree

MAX_MEMORY, MAX_SECONDS = 4 << 30, 120  # of the process; 20 million cells take about 2 GiB

_CODE = re.compile(r'(?=.*0.*0)(?:0|\\.|"[^"]*"|[ ()/-])+')
"""A format that shows each digit of a number, as of a postal code (00000) or a telephone number."""

_CELL = re.compile(r'<(?:\w+:)?c (?=[^>]*\br="([A-Z]+[0-9]+)")(?=[^>]*\bs="([0-9]+)")(?![^>]*\bt="[^n])')
"""A cell of a number: its place and the number of its style."""

_NO_VALUE = re.compile(
    r'<(?:\w+:)?c(?: [^>]*\bt="e"|(?![^>]*\bt="str")(?: [^>]*)?>'
    r"<(?:\w+:)?f(?: [^>]*)?(?:/>|>[^<]*</(?:\w+:)?f>)"
    r"(?:<(?:\w+:)?v ?/>|<(?:\w+:)?v></(?:\w+:)?v>)?</(?:\w+:)?c>)"
)
"""A cell with an error, or a formula without a value, as programs write it that compute nothing."""

_DAY = timedelta(days=1)
_COLUMNS = ["".join(name) for count in (1, 2, 3) for name in product(ascii_uppercase, repeat=count)]


def _text(cell: Any, form: str | None) -> str:
    """A cell as Excel writes it to a CSV file, with dates in the form of ISO 8601."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) <= 2**53:
        whole = str(int(cell))
        if not form or cell < 0:
            return whole
        form = "0" * (len(whole) - form.count("0")) + form
        digits = iter(whole.zfill(form.count("0")))
        return "".join(next(digits) if mark == "0" else mark for mark in form)
    if isinstance(cell, timedelta):
        hours, rest = str(abs(cell) % _DAY).split(":", 1)
        return f"{'-' * (cell.days < 0)}{abs(cell) // _DAY * 24 + int(hours)}:{rest}"
    if isinstance(cell, datetime):
        return cell.isoformat(" ").removesuffix(" 00:00:00")
    return str(cell).upper() if isinstance(cell, bool) else str(cell)


def _read_markup(path: str, sheet: str) -> tuple[dict[str, str], int]:
    """What the library ignores: formats with leading zeros by cell ("B7"); how many formulas have none."""
    with suppress(KeyError, StopIteration, ValueError, zipfile.BadZipFile, ElementTree.ParseError):
        book = zipfile.ZipFile(path)
        styles, names, links = (
            # Expat limits how far entities expand, and reads no external ones.
            ElementTree.fromstring(book.read(f"xl/{part}"))  # noqa: S314
            for part in ("styles.xml", "workbook.xml", "_rels/workbook.xml.rels")
        )
        codes = {row.get("numFmtId"): row.get("formatCode") for row in styles.iterfind("{*}numFmts/*")}
        used = (codes.get(row.get("numFmtId")) or "" for row in styles.iterfind("{*}cellXfs/*"))
        coded = {str(number): code for number, code in enumerate(used) if _CODE.fullmatch(code)}
        described = next(row for row in names.iterfind("{*}sheets/*") if row.get("name") == sheet)
        link = next(value for name, value in described.items() if name.endswith("}id"))
        target = next(row.get("Target", "") for row in links if row.get("Id") == link)
        forms, without_value, rest = dict[str, str](), 0, ""
        with io.TextIOWrapper(book.open(posixpath.join("/xl", target)[1:]), "utf-8") as sheet_file:
            while part := sheet_file.read(1_000_000):
                rows, _, rest = (rest + part).rpartition("row>")
                cells = _CELL.findall(rows) if coded else ()
                forms |= {cell: re.sub(r'[\\"]', "", coded[style]) for cell, style in cells if style in coded}
                without_value += len(_NO_VALUE.findall(rows))
        return forms, without_value
    return {}, 0


def main(path: str) -> None:
    """Write the first visible sheet that has cells, or else the first that has any."""
    from python_calamine import CalamineError, PasswordError, SheetTypeEnum, SheetVisibleEnum, load_workbook

    with suppress(ImportError, ValueError):  # Windows has no such limits.
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    sys.stdout.reconfigure(encoding="utf-8", errors="replace", newline="")  # type: ignore[union-attr]
    writer = csv.writer(sys.stdout)
    try:
        book = load_workbook(path)
        described = [sheet for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
        described.sort(key=lambda sheet: sheet.visible != SheetVisibleEnum.Visible)
        sheets = [sheet for entry in described if (sheet := book.get_sheet_by_name(entry.name)).height]
    except PasswordError:
        writer.writerow(["it is protected by a password; save it without one"])
    except CalamineError as error:
        writer.writerow([f"it is damaged, or protected by a password ({error})"])
    else:
        name = sheets[0].name if sheets else ""
        forms, without_value = _read_markup(path, name)
        # Should the process end, the first cell is the reason.
        writer.writerow(["it is damaged, or too large", name, len(sheets), without_value])
        for sheet in sheets[:1]:
            (first, left), above = sheet.start or (0, 0), list[str]()
            tall = {
                (row, at - left)
                for (top, at), (end, _) in sheet.merged_cell_ranges or ()
                if top > first  # else it is a name of a column
                for row in range(top + 2, min(end, sheet.total_height) + 2)
            }
            columns = _COLUMNS[left:]
            for number, row in enumerate(sheet.iter_rows(), 1):
                texts = [_text(cell, forms.get(f"{at}{number}")) for at, cell in zip(columns, row)]  # noqa: B905
                labels = next(place for place in count() if (number, place) not in tall)  # of several rows
                writer.writerow([*above[:labels], *texts[labels:]] if any(texts) else [])
                # An amount of several rows is counted once; a number in the first column is a label.
                for place, cell in enumerate(row[labels:], labels):
                    texts[place] *= not place or isinstance(cell, str | date)
                above = [*above[:labels], *texts[labels:]]


if __name__ == "__main__":
    main(sys.argv[1])
