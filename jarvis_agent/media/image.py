"""Images: their size, read from the header, and the limit on their pixels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.display import IMAGE_ERRORS
from jarvis_agent.core.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image


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
    except IMAGE_ERRORS as error:
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
