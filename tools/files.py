"""The files that results are written to: pictures as PNG, sounds as WAV.

resource = save_image(as_image(raw), call, "objects found")
resource, seconds = save_audio(samples, 22_050, call, "speech")

Their metadata say where they come from (see tools/provenance.py).
"""

from __future__ import annotations

import wave
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.errors import InputError
from jarvis_agent.tools.forms import UnexpectedError, told
from jarvis_agent.tools.provenance import provenance, tags
from jarvis_agent.tools.spec import MEDIA, Modality
from jarvis_agent.types import Resource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    from jarvis_agent.backends.base import Call


def as_image(value: Any) -> Image:
    """An image from PIL, from an array or tensor, or from the path of an image file.

    Arrays: shape (height, width), or with 1, 3 or 4 channels as the last axis; integers in 0…255, or bool,
    or floats in 0…1.

    Raises:
        UnexpectedError: it is something else.
    """
    from PIL import Image as Images

    if isinstance(value, Images.Image):
        return value
    if isinstance(value, str | Path) and Path(value).is_file():
        return Resource(kind="image", path=Path(value)).to_pil()
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        return _from_array(value)
    raise UnexpectedError("an image")


def _from_array(value: Any) -> Image:
    import numpy as np
    from PIL import Image as Images

    pixels = np.asarray(value)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.size == 0 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[-1] in (3, 4))):
        raise UnexpectedError("an image (height, width) or (height, width, 3)")
    if pixels.dtype.kind in "fb":
        if not np.isfinite(pixels).all():
            raise UnexpectedError("an image of finite numbers")
        pixels = pixels * 255.0
    return Images.fromarray(pixels.clip(0, 255).astype(np.uint8))


def save_image(image: Image, call: Call, name: str) -> Resource:
    """Write an image as PNG; returns its resource. Modes that PNG does not have are converted to RGB."""
    from PIL.PngImagePlugin import PngInfo

    origin = PngInfo()
    for key, value in provenance(call).items():
        origin.add_itxt(key, value)
    path = call.new_path(".png")
    writable = image if image.mode in ("L", "RGB", "RGBA", "I;16") else image.convert("RGB")
    writable.save(path, format="PNG", pnginfo=origin)
    return Resource(kind="image", path=path, mime="image/png", name=name)


def save_audio(samples: Any, rate: int, call: Call, name: str) -> tuple[Resource, float]:
    """Write sound as 16-bit mono WAV; returns its resource and its length in seconds.

    Raises:
        UnexpectedError: the samples or the rate are none.
    """
    from jarvis_agent.media import write_audio

    if rate <= 0:
        raise UnexpectedError("a sampling rate in Hz")
    path = call.new_path(".wav")
    seconds = write_audio(path, _mono(samples), rate, tags(call))
    return Resource(kind="audio", path=path, mime="audio/wav", name=name), seconds


def _mono(samples: Any) -> NDArray[np.float32]:
    """Samples in [-1, 1], shape (n,); channels, on whichever axis they are, are averaged."""
    import numpy as np

    try:
        given = np.squeeze(np.asarray(samples))
        loudest = np.iinfo(given.dtype).max if given.dtype.kind == "i" else 1.0
        sound: NDArray[np.float32] = (given / loudest).astype(np.float32)
    except (TypeError, ValueError) as error:
        raise UnexpectedError(f"samples of sound (not {told(samples)})") from error
    if sound.ndim == 2:
        sound = sound.mean(axis=int(sound.shape[1] < sound.shape[0]))
    if sound.ndim != 1 or sound.size == 0:
        raise UnexpectedError("samples of sound of shape (n,) or (channels, n)")
    if not np.isfinite(sound).all():
        raise UnexpectedError("finite samples of sound")
    return sound


def made_file(raw: Any, kind: Modality, call: Call) -> Resource:
    """The resource of a file that the backend wrote, from its path or {path}.

    Raises:
        UnexpectedError: there is no such file, or its content is of another kind.
    """
    from jarvis_agent.media import sniff

    given = raw.get("path") if isinstance(raw, Mapping) else raw
    if not isinstance(given, str | Path) or not Path(given).is_file():
        raise UnexpectedError("the path of a file")
    path = Path(given)
    try:
        found, mime = sniff(path)
    except InputError as error:
        raise UnexpectedError(f"a file that can be read ({error})") from error
    if found != kind and kind in MEDIA - {"file"}:
        raise UnexpectedError(f"a file of kind {kind} ({path.name} is {mime})")
    return Resource(kind=kind, path=path, mime=mime, name=call.spec.name)


def wav_facts(path: Path) -> tuple[int, float] | None:
    """The rate in Hz and the length in seconds of a WAV file of plain samples; None for any other file."""
    try:
        with wave.open(str(path)) as file:
            return file.getframerate(), file.getnframes() / file.getframerate()
    except (wave.Error, EOFError):
        return None
