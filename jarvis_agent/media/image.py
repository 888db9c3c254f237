"""Images: their size, read from the header, and their pixels."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import BadInputError, InputError
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from PIL.Image import Image

_DAMAGE = (OSError, ValueError, RuntimeError, SyntaxError, EOFError, LookupError, TypeError, struct.error)
"""What the readers of pictures raise for a file that is not as it should be; each format has its own ways."""


def check_pixels(path: Path, limit: int) -> None:
    """Refuse an image that would fill the memory; only its header is read.

    Raises:
        InputError: it has more than `limit` pixels, or no header that can be read.
    """
    from PIL import Image

    try:
        with Image.open(path) as opened:
            width, height = _size_in(opened)
    except Image.DecompressionBombError as error:
        raise InputError(f"{path} is too large an image: {error}") from error
    except _DAMAGE as error:
        raise InputError(f"{path} can not be read as an image: {error}") from error
    if width * height > limit:
        raise InputError(
            f"{path} has {width} x {height} pixels, more than {limit:,} (JARVIS_MAX_PIXELS); make it smaller"
        )


def _size_in(opened: Image) -> tuple[int, int]:
    """Width and height of an opened image. The header of an icon may tell less than the picture in it."""
    icon: Any = getattr(opened, "ico", None)
    if icon is None:
        return opened.size
    width, height = icon.frame(icon.getentryindex(opened.size)).size
    return width, height


def open_image(resource: Resource) -> Image:
    """The image of a resource, turned upright, in RGB or RGBA.

    Raises:
        BadInputError: it has no file, or the file can not be read as an image.
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
    except (*_DAMAGE, Image.DecompressionBombError) as error:
        raise BadInputError(f"{resource.path} can not be read as an image: {error}") from error
