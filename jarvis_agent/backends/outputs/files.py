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

from jarvis_agent.core.errors import BadInputError, InputError
from jarvis_agent.backends.outputs.validators import UnexpectedError, existing, numbers, told
from jarvis_agent.backends.outputs.provenance import provenance, tags
from jarvis_agent.core.tasks.spec import MEDIA, Modality
from jarvis_agent.core.types import Resource

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
    if (path := existing(value)) is not None:
        try:
            return Resource(kind="image", path=path).to_pil()
        except BadInputError as error:
            raise UnexpectedError(f"an image that can be read ({error})") from error
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        return _from_array(value)
    raise UnexpectedError("an image")


def _from_array(value: Any) -> Image:
    import numpy as np
    from PIL import Image as Images

    pixels = numbers(value, "an image (height, width) or (height, width, 3)")
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.size == 0 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[-1] in (3, 4))):
        raise UnexpectedError("an image (height, width) or (height, width, 3)")
    if pixels.dtype.kind in "fb":
        if not np.isfinite(pixels).all():
            raise UnexpectedError("an image of finite numbers")
        pixels = pixels * 255.0
    elif pixels.dtype == np.uint16:
        pixels = pixels / 257
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
    from jarvis_agent.media.files import write_audio

    if rate <= 0:
        raise UnexpectedError("a sampling rate in Hz")
    path = call.new_path(".wav")
    seconds = write_audio(path, _mono(samples), rate, tags(call))
    return Resource(kind="audio", path=path, mime="audio/wav", name=name), seconds


def _mono(samples: Any) -> NDArray[np.float32]:
    """Samples in [-1, 1], shape (n,); channels, on whichever axis they are, are averaged."""
    import numpy as np

    given = np.squeeze(numbers(samples, f"samples of sound (not {told(samples)})"))
    middle = (np.iinfo(given.dtype).max + 1) // 2 if given.dtype.kind == "u" else 0
    loudest = middle or (np.iinfo(given.dtype).max if given.dtype.kind == "i" else 1.0)
    sound: NDArray[np.float32] = ((given - float(middle)) / loudest).astype(np.float32)
    if sound.ndim == 2:
        sound = sound.mean(axis=int(sound.shape[1] < sound.shape[0]))
    if sound.ndim != 1 or sound.size == 0:
        raise UnexpectedError("samples of sound of shape (n,) or (channels, n)")
    if not np.isfinite(sound).all():
        raise UnexpectedError("finite samples of sound")
    return sound


_ALSO = frozenset({("video", "image/gif")})
"""Media types of files that are taken for another kind than their own."""


def made_file(raw: Any, kind: Modality, call: Call) -> Resource:
    """The resource of a file that the backend wrote, from its path or {path}.

    Raises:
        UnexpectedError: there is no such file, or its content is of another kind.
    """
    from jarvis_agent.media.files import sniff

    path = existing(raw.get("path") if isinstance(raw, Mapping) else raw)
    if path is None:
        raise UnexpectedError("the path of a file")
    try:
        found, mime = sniff(path)
    except InputError as error:
        raise UnexpectedError(f"a file that can be read ({error})") from error
    if found != kind and kind in MEDIA - {"file"} and (kind, mime) not in _ALSO:
        raise UnexpectedError(f"a file of kind {kind} ({path.name} is {mime})")
    return Resource(kind=kind, path=path, mime=mime, name=call.spec.name)


def wav_facts(path: Path) -> tuple[int, float] | None:
    """The rate in Hz and the length in seconds of a WAV file of plain samples; None for any other file.

    None as well where the head tells of more samples than there are, as it does in what was streamed.
    """
    try:
        with wave.open(str(path)) as file:
            size = file.getnframes() * file.getnchannels() * file.getsampwidth()
            if not 0 < size <= path.stat().st_size:
                return None
            return file.getframerate(), file.getnframes() / file.getframerate()
    except (wave.Error, EOFError):
        return None


def signed_wav(file: Resource, call: Call) -> Resource:
    """A WAV file with the provenance in its metadata: the file itself if it has it, else a copy."""
    from jarvis_agent.media.files import tag_wav

    assert file.path is not None
    wanted, content = tags(call), file.path.read_bytes()
    if wanted["comment"].encode() in content:
        return file
    path = call.new_path(".wav")
    path.write_bytes(content)
    tag_wav(path, wanted)
    return Resource(kind="audio", path=path, mime="audio/wav", name=file.name)
