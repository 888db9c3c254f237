"""The first sheet of a workbook (XLSX, XLSB, XLS, ODS) as CSV, written by a process of its own.

python -m jarvis_agent.media.workbook sales.xlsx        # ["Sheet1", 3], the number of sheets; then rows

A workbook of one kilobyte may state a trillion cells; the library then ends the process that reads it.
"""

from __future__ import annotations

import csv
import json
import sys
from contextlib import suppress
from datetime import datetime
from typing import Any

MAX_MEMORY, MAX_SECONDS = 4 << 30, 120
"""Of the process; 20 million cells take about 2 GiB."""


def _text(cell: Any) -> str:
    """A cell as Excel writes it to a CSV file, with dates in the form of ISO 8601."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
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
    try:
        book = load_workbook(path)
        described = [sheet for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
        described.sort(key=lambda sheet: sheet.visible != SheetVisibleEnum.Visible)
        first, count = None, 0
        for sheet in described:
            read = book.get_sheet_by_name(sheet.name)
            count += bool(read.height)
            first = first or (read if read.height else None)
    except PasswordError:
        sys.exit("it is protected by a password; save it without one")
    except CalamineError as error:
        sys.exit(f"it is damaged ({error})")
    sys.stdout.write(json.dumps([first.name if first else "", count]) + "\n")
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for row in first.iter_rows() if first else ():
        texts = [_text(cell) for cell in row]
        writer.writerow(texts if any(texts) else [])


if __name__ == "__main__":
    main(sys.argv[1])
