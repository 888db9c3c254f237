"""Adapters of images: a picture, a depth map, frames of a video."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.backends.outputs.files import as_image, save_image
from jarvis_agent.backends.outputs.validators import UnexpectedError, counted, number, numbers, rows
from jarvis_agent.backends.outputs.adapted import Adapted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    from jarvis_agent.backends.base import Call

_DEEPEST = 65_535


def picture(raw: Any, call: Call) -> Adapted:
    """An image: PIL, an array, a file, or a dict with one of those (as of depth-estimation)."""
    found = raw[0] if isinstance(raw, list | tuple) and raw else raw
    if isinstance(found, Mapping):
        found = next((found[key] for key in ("image", "depth") if key in found), None)
    image = as_image(found)
    saved = save_image(image, call, call.spec.name)
    output = {"path": str(saved.path), "width": image.width, "height": image.height}
    return Adapted(output, f"an image of {image.width} × {image.height} pixels", (saved,))


def depth(raw: Any, call: Call) -> Adapted:
    """A depth map in colour and with 16 bits, from {predicted_depth (h, w), depth: PIL, metric?}.

    Models tell nearness (larger is nearer) or, where `metric` is true, distance (larger is farther). The
    colour map is OpenCV's INFERNO, which is even to the eye: what is near is bright in either case. The
    16-bit PNG has the model's own numbers: 0 stands for `min`, 65535 for `max`.
    """
    import numpy as np

    known: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {"depth": raw}
    given = known.get("predicted_depth")
    values = _values(known.get("depth") if given is None else given)
    low, high = float(values.min()), float(values.max())
    share = (values - low) / (high - low) if high > low else np.zeros_like(values)
    colours = _coloured(1 - share if known.get("metric") else share)
    shown = save_image(colours, call, "depth in colour, near is bright")
    exact = save_image(as_image_16(share), call, "depth in 16 bits")
    output = {
        "path": str(shown.path),
        "image": str(shown.path),
        "depth": str(exact.path),
        "width": colours.width,
        "height": colours.height,
        "min": round(low, 6),
        "max": round(high, 6),
    }
    summary = f"a depth map of {colours.width} × {colours.height} pixels, near is bright"
    return Adapted(output, summary, (shown, exact))


def as_image_16(share: NDArray[np.float64]) -> Image:
    """Numbers in 0…1, shape (height, width), as an image of mode I;16 over its full range."""
    import numpy as np
    from PIL import Image as Images

    return Images.fromarray((share * _DEEPEST).round().astype(np.uint16))


def _values(given: Any) -> NDArray[np.float64]:
    """A depth map's numbers, shape (height, width)."""
    import numpy as np
    from PIL import Image as Images

    if isinstance(given, Images.Image) and given.mode not in ("I", "I;16", "F", "L"):
        given = given.convert("L")
    values = numbers(given, "a depth map (height, width)").astype(np.float64)
    values = values.reshape(values.shape[-2:]) if values.ndim > 2 and values[..., 0, 0].size == 1 else values
    if values.ndim != 2 or not values.size:
        raise UnexpectedError("a depth map (height, width)")
    if not np.isfinite(values).all():
        raise UnexpectedError("a depth map of finite numbers")
    return values


def _coloured(brightness: NDArray[np.float64]) -> Image:
    """Numbers in 0…1 in OpenCV's colour map INFERNO: black, violet, red, yellow."""
    import numpy as np
    from PIL import Image as Images

    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError("a depth map in colour", "local") from error
    mapped = cv2.applyColorMap((brightness * 255).round().astype(np.uint8), cv2.COLORMAP_INFERNO)
    return Images.fromarray(cv2.cvtColor(mapped, cv2.COLOR_BGR2RGB))


def frames(raw: Any, call: Call) -> Adapted:
    """[{image, time}] of a video, the times in seconds: an image file each."""
    found: list[dict[str, Any]] = []
    files = []
    for row in rows(raw, "image", "time"):
        seconds = round(number(row["time"]), 3)
        files.append(save_image(as_image(row["image"]), call, f"frame at {seconds:g} s"))
        found.append({"image": str(files[-1].path), "time": seconds})
    if not found:
        raise UnexpectedError("at least one frame")
    times = ", ".join(f"{row['time']:.1f} s" for row in found)
    return Adapted(found, f"{counted(len(found), 'frame')}, at {times}", tuple(files))
