"""Images: their size, read from the header, and their pixels."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import BadInputError, InputError
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from PIL.Image import Image

_DECODE_ERRORS = (
    OSError,
    ValueError,
    RuntimeError,
    SyntaxError,
    EOFError,
    LookupError,
    TypeError,
    struct.error,
)
"""Errors that Pillow's decoders raise for damaged files; they differ by format."""


def check_pixels(path: Path, limit: int) -> None:
    """Refuse an image with too many pixels. Only the header is read.

    Raises:
        InputError: it has more than `limit` pixels, or an unreadable header.
    """
    from PIL import Image

    try:
        with Image.open(path) as opened:
            width, height = _pixel_size(opened)
    except Image.DecompressionBombError as error:
        raise InputError(f"{path} is too large an image: {error}") from error
    except _DECODE_ERRORS as error:
        raise InputError(f"{path} cannot be read as an image: {error}") from error
    if width * height > limit:
        raise InputError(
            f"{path} has {width} x {height} pixels, more than {limit:,} (JARVIS_MAX_PIXELS); make it smaller"
        )


def _pixel_size(opened: Image) -> tuple[int, int]:
    """Width and height in pixels. An icon's header may state less than the image in it has."""
    icon: Any = getattr(opened, "ico", None)
    if icon is None:
        return opened.size
    width, height = icon.frame(icon.getentryindex(opened.size)).size
    return width, height


def open_image(resource: Resource) -> Image:
    """The image of a resource in RGB or RGBA, rotated according to its EXIF orientation.

    Raises:
        BadInputError: it has no file, or the file cannot be read as an image.
    """
    from PIL import Image, ImageOps

    if resource.path is None:
        raise BadInputError(f"an image is needed, and this is a {resource.kind} without a file")
    try:
        with Image.open(resource.path) as opened:
            upright: Image.Image = ImageOps.exif_transpose(opened)
            return upright.convert("RGBA" if "A" in upright.getbands() else "RGB")
    except FileNotFoundError as error:
        raise BadInputError(f"{resource.path} does not exist any more") from error
    except (*_DECODE_ERRORS, Image.DecompressionBombError) as error:
        raise BadInputError(f"{resource.path} cannot be read as an image: {error}") from error
