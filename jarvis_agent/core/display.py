"""How a resource shows itself in a notebook: as HTML, by its kind.

html_of(Resource(kind="table", path=Path("sales.csv")))      # a <table> of the first rows, and the path

What a file holds is escaped; pictures, sounds and videos are put into the page.
"""

from __future__ import annotations

import base64
import csv
import html
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jarvis_agent.core.types import Resource

ROWS, COLUMNS = 10, 12
"""How much of a table is shown."""
_LONGEST_CELL = 80

LARGEST = 20_000_000
"""Bytes of a file that is put into the page; a larger one is named only."""


def html_of(resource: Resource) -> str:
    """A resource as a piece of HTML; one without a file, or whose file is gone, as its text."""
    path = resource.path
    if path is None or not path.is_file():
        return f"<pre>{html.escape(resource.as_text())}</pre>"
    caption = f"<figcaption><code>{html.escape(str(path))}</code></figcaption>"
    if resource.kind == "table":
        return f"<figure>{_table(resource)}{caption}</figure>"
    if path.stat().st_size > LARGEST:
        return f"<figure>{caption}</figure>"
    label = html.escape(resource.name or path.name)
    shown = {
        "image": '<img src="{source}" alt="{label}" style="max-width:480px">',
        "audio": '<audio controls src="{source}"></audio>',
        "video": '<video controls src="{source}" style="max-width:480px"></video>',
        "3d": '<a download="{file}" href="{source}">{label}</a>',
    }.get(resource.kind, "")
    source = _source(resource) if shown else ""
    return (
        f"<figure>{shown.format(source=source, label=label, file=html.escape(path.name))}{caption}</figure>"
    )


def _source(resource: Resource) -> str:
    """The file as a data URL."""
    assert resource.path is not None
    content = base64.b64encode(resource.path.read_bytes()).decode()
    return f"data:{html.escape(resource.mime or 'application/octet-stream')};base64,{content}"


def _table(resource: Resource) -> str:
    """The first rows of a CSV file, its first line as the head; "" if it can not be read."""
    assert resource.path is not None
    tabs = (resource.mime or "").endswith("tab-separated-values")
    try:
        with resource.path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            lines = list(itertools.islice(csv.reader(file, delimiter="\t" if tabs else ","), ROWS + 2))
    except (OSError, csv.Error):
        return ""
    if not lines:
        return ""
    head, *rows = (_cells(line) for line in lines)
    if len(rows) > ROWS:
        rows[ROWS:] = [["…"]]
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>{body}</table>"


def _cells(line: list[str]) -> list[str]:
    cells = [html.escape(cell if len(cell) <= _LONGEST_CELL else cell[:_LONGEST_CELL] + "…") for cell in line]
    return cells if len(cells) <= COLUMNS else [*cells[:COLUMNS], "…"]
