"""Reader of PP-OCRv6 through RapidOCR: image-to-text of printed text.

Raw output: {"generated_text": str, "lines": [{"text", "score", "box": {"xmin", "ymin", "xmax", "ymax"}}]},
boxes in pixels of the upright image. Columns are not detected.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.hub.packaged import packaged_file
from jarvis_agent.backends.jobs import closed_error, is_cancelled
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings

_DETECTOR = ("models/PP-OCRv6_det_small.onnx", "090f04abcd9d9a74")
_DIRECTION = ("models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", "e47acedf663230f8")
_SURE = 0.8
"""The score that the best line of a printed text has at least; what has less is often no text."""
_CJK = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")


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
    recogniser = engine._load_rec_model()
    recognise = recogniser.session

    def recognise_unless_cancelled(lines: Any) -> Any:
        # It is called for every six lines, of which a full page has hundreds.
        if is_cancelled():
            raise closed_error("stopped")
        return recognise(lines)

    recogniser.session = recognise_unless_cancelled

    def expert(call: Call) -> dict[str, Any]:
        import numpy as np

        rgb = np.asarray(call.inputs["image"].to_pil().convert("RGB"))
        found = engine(rgb[:, :, ::-1])
        if found.txts is None:
            return {"generated_text": "", "lines": []}
        if max(found.scores) < _SURE:
            call.notes.append("the reading is uncertain: the image may have no text")
        rows = _rows([_line(*row) for row in zip(found.txts, found.scores, found.boxes, strict=True)])
        return {"generated_text": running_text(_page(rows)), "lines": [line for row in rows for line in row]}

    return expert


def _rows(lines: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Lines grouped into rows of lines side by side, from top to bottom."""
    rows: list[list[dict[str, Any]]] = []
    below = 0.0
    for line in sorted(lines, key=_middle):
        if rows and _middle(line) < below:
            rows[-1].append(line)
        else:
            rows.append([line])
        below = line["box"]["ymax"]
    return [sorted(row, key=lambda line: line["box"]["xmin"]) for row in rows]


def _middle(line: dict[str, Any]) -> float:
    return float(line["box"]["ymin"] + line["box"]["ymax"]) / 2


def _page(rows: list[list[dict[str, Any]]]) -> str:
    """A line of text for each row, and a blank line where a row or more would fit between two."""
    text, last = "", None
    for row in rows:
        box = row[0]["box"]
        if last is not None:
            wide = box["ymin"] - last["ymax"] > 1.2 * (box["ymax"] - box["ymin"])
            text += "\n\n" if wide else "\n"
        text += " ".join(line["text"] for line in row)
        last = box
    return text


def running_text(page: str) -> str:
    """The lines of a page as running text: a line of nearly full length continues in the next one.

    Hyphenated words are joined. Blank lines, which separate paragraphs, are kept.
    """
    rows = page.strip().splitlines()
    full = 0.8 * max(map(len, rows), default=0)
    text = "".join(rows[:1])
    for above, below in pairwise(rows):
        if not below or len(above) < full:
            text += "\n" + below
        elif re.search(r"[a-z]-$", above) and below[0].islower():
            text = text[:-1] + below
        else:
            text += ("" if _CJK.match(above[-1]) and _CJK.match(below) else " ") + below
    return text


def _line(text: str, score: float, corners: Any) -> dict[str, Any]:
    sides = [round(side) for side in (*corners.min(axis=0).tolist(), *corners.max(axis=0).tolist())]
    box = dict(zip(("xmin", "ymin", "xmax", "ymax"), sides, strict=True))
    return {"text": text.strip(), "score": float(score), "box": box}


def _model(file: str, sha256: str) -> str:
    path = packaged_file("rapidocr", file, sha256)
    if path is None:
        raise ConfigError(f'rapidocr lacks its {file}: pip install --force-reinstall "rapidocr==3.10.0"')
    return str(path)
