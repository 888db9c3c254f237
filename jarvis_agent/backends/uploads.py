"""Files as other machines get them: pictures upright, so that boxes that come back fit what is shown."""

from __future__ import annotations

import io
from contextlib import suppress

from jarvis_agent.core.types import Resource

_ORIENTATION = 0x0112
"""The EXIF tag that says how a picture is to be turned; many servers ignore it."""


def upload(file: Resource) -> tuple[bytes, str | None]:
    """The content and the media type of a file. Only a picture that has to be turned is written again.

    Raises:
        OSError: the file cannot be read.
    """
    assert file.path is not None
    if not is_turned(file):
        return file.path.read_bytes(), file.mime
    content, kind = io.BytesIO(), "jpeg" if file.mime == "image/jpeg" else "png"
    file.to_pil().save(content, kind, **({"quality": 95} if kind == "jpeg" else {}))
    return content.getvalue(), f"image/{kind}"


def is_turned(file: Resource) -> bool:
    """Whether a file is a picture whose EXIF tag says that it is stored turned or mirrored."""
    if file.kind != "image" or file.path is None:
        return False
    from PIL import Image

    with suppress(Exception), Image.open(file.path) as image:  # what cannot be read is sent as it is
        return bool(image.getexif().get(_ORIENTATION, 1) != 1)
    return False
