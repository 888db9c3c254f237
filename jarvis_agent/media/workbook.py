"""The first sheet of a workbook (XLSX, XLSB, XLS, ODS) as CSV, written by a process of its own.

python workbook.py sales.xlsx   # the reason if it ends early, the sheet and how many there are; then rows

A workbook of one kilobyte may state a trillion cells; the library then ends the process that reads it.
"""

import csv
import sys
from contextlib import suppress
from datetime import datetime
from typing import Any

MAX_MEMORY, MAX_SECONDS = 4 << 30, 120
"""Of the process; 20 million cells take about 2 GiB."""


def _text(cell: Any) -> str:
    """A cell as Excel writes it to a CSV file, with dates in the form of ISO 8601."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) <= 2**53:
        return str(int(cell))
    if isinstance(cell, datetime):
        return cell.isoformat(" ").removesuffix(" 00:00:00")
    return str(cell).upper() if isinstance(cell, bool) else str(cell)


def main(path: str) -> None:
    """Write the first visible sheet that has cells, or else the first that has any."""
    from python_calamine import CalamineError, PasswordError, SheetTypeEnum, SheetVisibleEnum, load_workbook

    with suppress(ImportError, ValueError):  # Windows has no such limits.
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    sys.stdout.reconfigure(encoding="utf-8", errors="replace", newline="")  # type: ignore[union-attr]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    try:
        book = load_workbook(path)
        described = [sheet for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
        described.sort(key=lambda sheet: sheet.visible != SheetVisibleEnum.Visible)
        sheets = [sheet for one in described if (sheet := book.get_sheet_by_name(one.name)).height]
    except PasswordError:
        writer.writerow(["it is protected by a password; save it without one"])
    except CalamineError as error:
        writer.writerow([f"it is damaged ({error})"])
    else:
        # Should the process end, the first cell is the reason.
        writer.writerow(["it is damaged, or too large", sheets[0].name if sheets else "", len(sheets)])
        for row in sheets[0].iter_rows() if sheets else ():
            texts = [_text(cell) for cell in row]
            writer.writerow(texts if any(texts) else [])


if __name__ == "__main__":
    main(sys.argv[1])
