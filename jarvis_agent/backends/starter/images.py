"""Starter models for images: EfficientNet-Lite0 classifies photos, PP-OCRv6 reads printed text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.jobs import closed_error, is_cancelled
from jarvis_agent.backends.starter.backend import load_network
from jarvis_agent.core.images import count_frames, identified
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings

if TYPE_CHECKING:
    from PIL.Image import Image


BEST = 5
SIDE = 224


def load_classifier(weights: Path, settings: Settings) -> Expert:
    """EfficientNet-Lite0 (Tan and Le, 2019): the five best of ImageNet's classes, [{label, score}]."""
    probabilities, labels = load_network(weights), imagenet_classes()

    def expert(call: Call) -> list[dict[str, Any]]:
        import numpy as np
        from PIL.Image import Resampling

        image = call.image()
        edge = min(image.size) * SIDE / (SIDE + 32)  # the middle: 7/8 of the shorter side
        left, top = (image.width - edge) / 2, (image.height - edge) / 2
        square = image.resize((SIDE, SIDE), Resampling.BICUBIC, box=(left, top, left + edge, top + edge))
        values = (np.asarray(square, np.float32) - 127.0) / 128.0
        scores = probabilities(values.transpose(2, 0, 1)[None])[0]
        best = scores.argsort()[: -BEST - 1 : -1]
        return [{"label": labels[place], "score": float(scores[place])} for place in best]

    return expert


@lru_cache(maxsize=1)
def imagenet_classes() -> tuple[str, ...]:
    """The names of ImageNet's 1,000 classes, in the order of the network's outputs."""
    text = files("jarvis_agent.backends.starter").joinpath("data/imagenet_classes.txt").read_text("utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


_DETECTOR, _DIRECTION = "PP-OCRv6_det_small.onnx", "ch_ppocr_mobile_v2.0_cls_mobile.onnx"
_SURE = 0.8
"""The mean score that the lines of a printed text have at least; what has less is often no text."""
_MOST_PAGES, _GAP = 100, 15
"""Pages that are read, and pixels between the lines or words where a long image is cut."""
_LONGEST = 2000
"""Pixels of the longest side of what is read at once."""
_CJK = re.compile(r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")


def load_text_reader(weights: Path, settings: Settings) -> Expert:
    """PP-OCRv6 through RapidOCR: {generated_text, lines: [{text, score, box}]}, without columns.

    For document-question-answering, the lines that fit a question: [{answer, similarity}].
    """
    from rapidocr import RapidOCR

    from jarvis_agent.backends.starter.embeddings import lines_that_fit

    engine = RapidOCR(
        params={
            "Global.log_level": "critical",
            # All models are given, so that none is downloaded.
            "Det.model_path": str(weights.with_name(_DETECTOR)),
            "Cls.model_path": str(weights.with_name(_DIRECTION)),
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
    find_directions, upside_down = engine.cls_and_rotate, list[bool]()

    def turn_whole_pages(lines: list[Any]) -> Any:
        """Turn all lines if most are upside down: of one page, single ones are often mistaken."""
        _, directions = find_directions(lines)
        is_turned = sum(label == "180" for label, _ in directions.cls_res) > len(lines) / 2
        upside_down.append(is_turned)
        return [line[::-1, ::-1].copy() for line in lines] if is_turned else lines, directions

    engine.cls_and_rotate = turn_whole_pages

    def expert(call: Call) -> dict[str, Any] | list[dict[str, Any]]:
        texts, printed, lines = list[str](), list[str](), list[dict[str, Any]]()
        for number in range(min(count := _count_pages(call), _MOST_PAGES)):
            image = call.image(frame=number if count > 1 else None)
            upside_down.clear()
            page = [line for part in _parts(image) for line in _read(engine, *part)]
            is_turned = sum(upside_down) > len(upside_down) / 2
            rows = _rows([_turned(line) for line in page] if is_turned else page)
            texts.append(running_text(_page(rows)))
            printed += [" ".join(line["text"] for line in row) for row in rows]
            lines += [_turned(line) if is_turned else line for row in rows for line in row]
        if count > _MOST_PAGES:
            read = "the first {number} of {total} pages were read"
            call.notes.append(Note(read, number=_MOST_PAGES, total=count))
        if lines and sum(line["score"] for line in lines) / len(lines) < _SURE:
            call.notes.append(Note("the reading is uncertain: the image may have no text"))
        if call.spec.name == "document-question-answering":
            return lines_that_fit(call, "\n".join(printed), settings)
        return {"generated_text": "\n\n".join(filter(None, texts)), "lines": lines}

    return expert


def _count_pages(call: Call) -> int:
    """The pages of a TIFF file; of an animation only the first frame is read."""
    with identified(call.inputs["image"].path) as image:
        return count_frames(image) if image.format == "TIFF" else 1


def _parts(image: Image) -> Iterator[tuple[tuple[int, int], Any]]:
    """The parts of an image with their places (left, top) in pixels. Long ones are cut between lines.

    The reader shrinks an image to `_LONGEST` pixels, which makes the letters of a long one illegible.
    """
    import numpy as np

    is_wide = image.width > 4 * image.height
    pixels, start = np.asarray(image).swapaxes(0, 1) if is_wide else np.asarray(image), 0
    size = max(_LONGEST, 2 * min(image.size))
    while max(image.size) > 2 * min(image.size) and len(pixels) - start > size:
        # Of the last quarter, the middle of the rows or columns with the least change along them.
        earliest = start + 3 * size // 4
        last = pixels[earliest : start + size].astype(np.int16)
        changes = np.abs(np.diff(last, axis=1)).sum(axis=(1, 2))
        end = earliest + int(np.convolve(changes, np.ones(_GAP), "valid").argmin()) + _GAP // 2
        part = pixels[start:end]
        yield ((start, 0), part.swapaxes(0, 1)) if is_wide else ((0, start), part)
        start = end
    rest = pixels[start:]
    yield ((start, 0), rest.swapaxes(0, 1)) if is_wide else ((0, start), rest)


def _read(engine: Any, place: tuple[int, int], rgb: Any) -> list[dict[str, Any]]:
    """The lines of a part of an image."""
    import numpy as np

    reading = engine(rgb[:, :, ::-1])
    if reading.txts is None:
        return []
    lines = []
    for text, score, corners in zip(
        reading.txts, reading.scores, np.asarray(reading.boxes) + place, strict=True
    ):
        sides = [round(side) for side in (*corners.min(axis=0).tolist(), *corners.max(axis=0).tolist())]
        box = dict(zip(("xmin", "ymin", "xmax", "ymax"), sides, strict=True))
        lines.append({"text": text.strip(), "score": float(score), "box": box})
    return lines


def _rows(lines: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows of lines side by side, from top to bottom; RapidOCR's `to_markdown` divides some of them."""
    rows: list[list[dict[str, Any]]] = []
    below = 0.0
    for line in sorted(lines, key=_middle):
        if rows and _middle(line) < below:
            rows[-1].append(line)
        else:
            rows.append([line])
        below = line["box"]["ymax"]
    return [sorted(row, key=lambda line: line["box"]["xmin"]) for row in rows]


def _turned(line: dict[str, Any]) -> dict[str, Any]:
    """The line of a page that is turned by 180°, around the corner of the page."""
    box = line["box"]
    turned = {"xmin": -box["xmax"], "ymin": -box["ymax"], "xmax": -box["xmin"], "ymax": -box["ymin"]}
    return {**line, "box": turned}


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
