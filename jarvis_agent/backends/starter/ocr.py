"""Reader of PP-OCRv6 through RapidOCR: image-to-text of printed text.

Raw output: {"generated_text": str, "lines": [{"text", "score", "box": {"xmin", "ymin", "xmax", "ymax"}}]},
boxes in pixels of the upright image.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.hub.packaged import packaged_file
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings

_DETECTOR = ("models/PP-OCRv6_det_small.onnx", "090f04abcd9d9a74")
_DIRECTION = ("models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", "e47acedf663230f8")
_CJK = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of text on one line; its box in pixels."""

    text: str
    score: float
    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        """Height of its box."""
        return self.bottom - self.top


def load(weights: Path, settings: Settings) -> Expert:
    """RapidOCR with `weights` as its recogniser; all models are given, so that none is downloaded."""
    from rapidocr import RapidOCR

    engine = RapidOCR(
        params={
            "Global.log_level": "critical",
            "Det.model_path": _model(*_DETECTOR),
            "Cls.model_path": _model(*_DIRECTION),
            "Rec.model_path": str(weights),
        }
    )

    def expert(call: Call) -> dict[str, Any]:
        import numpy as np

        rgb = np.asarray(call.inputs["image"].to_pil().convert("RGB"))
        lines = in_reading_order(_lines(engine(rgb[:, :, ::-1])))
        return {"generated_text": as_text(lines), "lines": [_plain(line) for line in lines]}

    return expert


def in_reading_order(lines: list[Line]) -> list[Line]:
    """From top to bottom, and from left to right within a row. Columns are not detected."""
    return [line for row in _rows(lines) for line in row]


def as_text(lines: list[Line]) -> str:
    """The lines as running text.

    A line that reaches the right margin continues in the next one; other lines end with a line break, or with
    a blank line before a wider gap. Hyphenated words are joined.
    """
    rows = _rows(lines)
    if not rows:
        return ""
    left, right = min(line.left for line in lines), max(line.right for line in lines)
    usual = median(line.height for line in lines)
    text = _row_text(rows[0])
    for above, below in pairwise(rows):
        gap = min(line.top for line in below) - max(line.bottom for line in above)
        is_full = max(line.right for line in above) - left > 0.8 * (right - left)
        if gap > 1.2 * usual:
            text += "\n\n" + _row_text(below)
        elif not is_full:
            text += "\n" + _row_text(below)
        else:
            text = _join(text, _row_text(below))
    return text


def _rows(lines: list[Line]) -> list[list[Line]]:
    """Lines grouped into rows of lines side by side."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: line.top + line.bottom):
        if rows:
            beside = rows[-1][-1]
            shared = min(line.bottom, beside.bottom) - max(line.top, beside.top)
            if shared > 0.5 * min(line.height, beside.height):
                rows[-1].append(line)
                continue
        rows.append([line])
    return [sorted(row, key=lambda line: line.left) for row in rows]


def _row_text(row: list[Line]) -> str:
    return reduce(_append, (line.text for line in row))


def _join(text: str, following: str) -> str:
    if re.search(r"[a-z]-$", text) and following[:1].islower():
        return text[:-1] + following
    return _append(text, following)


def _append(before: str, after: str) -> str:
    """Two texts with a space between them, unless Chinese characters meet."""
    space = "" if _CJK.match(before[-1:]) and _CJK.match(after[:1]) else " "
    return before + space + after


def _lines(found: Any) -> list[Line]:
    if found.txts is None:
        return []
    return [
        Line(text.strip(), float(score), *box.min(axis=0).tolist(), *box.max(axis=0).tolist())
        for text, score, box in zip(found.txts, found.scores, found.boxes, strict=True)
        if text.strip()
    ]


def _plain(line: Line) -> dict[str, Any]:
    box = {"xmin": line.left, "ymin": line.top, "xmax": line.right, "ymax": line.bottom}
    return {"text": line.text, "score": line.score, "box": {side: round(at) for side, at in box.items()}}


def _model(file: str, sha256: str) -> str:
    path = packaged_file("rapidocr", file, sha256)
    if path is None:
        raise ConfigError(f'rapidocr lacks its {file}: pip install --force-reinstall "rapidocr==3.10.0"')
    return str(path)
