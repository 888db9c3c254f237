"""Facts of a file of any kind, read without a model.

    media_info(resource, notes)
    # {"name": "cat.jpg", "format": "JPEG", "bytes": 89120, "width": 640, "height": 480}

Images, audio and video are not decoded: their headers and packets are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jarvis_agent.core.errors import BadInputError, InputError, MissingExtraError
from jarvis_agent.core.text import count_words
from jarvis_agent.core.types import Resource
from jarvis_agent.media.audio import probe_audio
from jarvis_agent.media.detect import DOCX, EPUB, OLE, PDF, detect_media_type
from jarvis_agent.media.documents import count_pages, load_text
from jarvis_agent.media.tables import table_shape
from jarvis_agent.media.video import probe_video

_FORMATS = {
    DOCX: "DOCX",
    EPUB: "EPUB",
    OLE: "old Office file",
    "application/msword": "DOC",
    "audio/mpeg": "MP3",
    "image/svg+xml": "SVG",
    "model/gltf-binary": "GLB",
    "text/markdown": "Markdown",
    "text/plain": "plain text",
    "text/tab-separated-values": "TSV",
    "video/quicktime": "MOV",
    "video/x-matroska": "MKV",
}
"""Names of formats that are not the end of their media type."""

_SIDEWAYS = (5, 6, 7, 8)
"""Values of the EXIF tag `Orientation` for which width and height are exchanged."""

_ORIENTATION = 0x0112


def media_info(resource: Resource, notes: list[str]) -> dict[str, Any]:
    """The facts of a file as plain JSON. Blocks while it reads.

    Always name, format, and bytes; by kind also width and height (pixels, upright), fps, duration (seconds),
    sampling_rate (Hz), and the numbers of frames, channels, pages, words, lines, characters, rows and
    entries, and the names of columns.

    Args:
        resource: has a path.
        notes: receives why the content could not be read; the other facts are returned.

    Raises:
        BadInputError: it has no file.
        InputError: it is missing, empty, or of an unknown type.
    """
    path = resource.path
    if path is None:
        raise BadInputError(f"a file is needed, and this is a {resource.kind} without one")
    kind, mime = resource.kind, resource.mime
    if mime is None:
        kind, mime = detect_media_type(path)
    name = _FORMATS.get(mime) or mime.partition("/")[2].removeprefix("x-").upper()
    info = {"name": resource.name or path.name, "format": name, "bytes": path.stat().st_size}
    try:
        if read := _READERS.get(kind):
            info |= read(path)
        elif kind in ("text", "data"):
            info |= {"pages": count_pages(path)} if mime == PDF else {}
            info |= _text(kind, load_text(path) if info["bytes"] else "")
    except (BadInputError, InputError, MissingExtraError) as error:
        notes.append(str(error))
    return info


def _image(path: Path) -> dict[str, Any]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            width, height = image.size
            if image.getexif().get(_ORIENTATION) in _SIDEWAYS:
                width, height = height, width
            frames = getattr(image, "n_frames", 1)
    except Exception as error:  # Pillow raises errors of any type for damaged files.
        raise BadInputError(f"{path} cannot be read as an image: {error}") from error
    return {"width": width, "height": height, **({"frames": frames} if frames > 1 else {})}


def _audio(path: Path) -> dict[str, Any]:
    facts = probe_audio(path)
    return {
        "duration": round(facts.duration, 3),
        "sampling_rate": facts.rate,
        "channels": facts.channels,
    }


def _video(path: Path) -> dict[str, Any]:
    try:
        facts = probe_video(path)
    except BadInputError:  # Browsers record sound alone as WebM or MP4.
        return _audio(path)
    return {
        "width": facts.width,
        "height": facts.height,
        "fps": round(facts.fps, 3),
        "duration": round(facts.duration, 3),
        "frames": facts.frames,
    }


def _table(path: Path) -> dict[str, Any]:
    rows, columns = table_shape(path)
    return {"rows": rows, "columns": columns}


def _text(kind: str, text: str) -> dict[str, Any]:
    if kind == "text":
        return {"words": count_words(text), "lines": len(text.splitlines()), "characters": len(text)}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"it is not valid JSON: {error}") from error
    return {"entries": len(data)} if isinstance(data, list | dict) else {}


_READERS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "image": _image,
    "audio": _audio,
    "video": _video,
    "table": _table,
}
"""By kind."""
