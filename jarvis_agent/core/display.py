"""Files as HTML for notebooks."""

import base64
import csv
import html
import io
import itertools
import sys
import wave
from array import array
from pathlib import Path

from jarvis_agent.core.encodings import decode_text

ROWS, COLUMNS = 10, 12
"""Limits of a table that is shown."""
_MAX_CELL_CHARS = 80

MAX_EMBEDDED_BYTES = 20_000_000
"""Of a larger file only the path is shown."""

_ELEMENTS = {
    "image": '<img src="{source}" alt="{label}" style="max-width:320px">',
    "audio": '{drawn}<audio controls src="{source}"></audio>',
    "video": '<video controls src="{source}" style="max-width:320px"></video>',
    "3d": '<a download="{file}" href="{source}">{label}</a>',
}


def to_html(path: Path | None, kind: str, *, mime: str | None = None, label: str = "", text: str = "") -> str:
    """A file as HTML; `text` if there is no file, or if it was deleted."""
    if path is None or not path.is_file():
        return f"<pre>{html.escape(text)}</pre>"
    caption = f"<figcaption><code>{html.escape(str(path))}</code></figcaption>"
    if kind == "table":
        return f"<figure>{_table(path)}{caption}</figure>"
    if kind not in _ELEMENTS or path.stat().st_size > MAX_EMBEDDED_BYTES:
        return f"<figure>{caption}</figure>"
    content = base64.b64encode(path.read_bytes()).decode()
    element = _ELEMENTS[kind].format(
        source=f"data:{html.escape(mime or 'application/octet-stream')};base64,{content}",
        label=html.escape(label or path.name),
        file=html.escape(path.name),
        drawn=_waveform(path) if kind == "audio" else "",
    )
    return f"<figure>{element}{caption}</figure>"


def _waveform(path: Path) -> str:
    """The peaks of a WAV file of 16 bits over time, as a picture; "" for other files."""
    try:
        with wave.open(str(path)) as sound:
            content = sound.readframes(sound.getnframes()) if sound.getsampwidth() == 2 else b""
    except (wave.Error, EOFError):
        return ""
    samples = array("h", content[: len(content) // 2 * 2])
    if sys.byteorder == "big":
        samples.byteswap()
    bounds = [len(samples) * place // 160 for place in range(161)]
    parts = [samples[start:end] or [0] for start, end in itertools.pairwise(bounds)]
    peaks = [24 * max(max(part), -min(part)) / 32_768 for part in parts]
    lines = "".join(f"M{place} {24 - peak:.0f}V{24 + peak:.0f}" for place, peak in enumerate(peaks))
    return (
        f'<svg viewBox="0 0 160 48" width="320" style="display:block"><path d="{lines}" stroke="gray"/></svg>'
    )


def _table(path: Path) -> str:
    """The header and first rows of a CSV file; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            text, _ = decode_text(file.read(65_536))
        delimiter = max(",;\t|", key=text.partition("\n")[0].count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        lines = list(itertools.islice(filter(None, reader), ROWS + 2))
    except (OSError, UnicodeDecodeError, csv.Error):
        return ""
    if len(lines) > ROWS + 1:
        lines[ROWS + 1 :] = [["…"]]
    rows = ""
    for place, line in enumerate(lines):
        tag = "td" if place else "th"
        cells = [cell if len(cell) <= _MAX_CELL_CHARS else f"{cell[:_MAX_CELL_CHARS]}…" for cell in line]
        cells[COLUMNS:] = ["…"] if len(cells) > COLUMNS else []
        rows += f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"
    return f"<table>{rows}</table>"
