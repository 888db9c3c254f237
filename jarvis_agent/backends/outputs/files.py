"""The files of results: images as PNG with their origin in text chunks, sounds as WAV, files of a backend.

resource = save_image(to_image(raw), call, "objects found")
resource, seconds = save_audio(samples, 22_050, call, "speech")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.validators import UnexpectedError, describe_value, existing_file, to_array
from jarvis_agent.core.errors import BadInputError, InputError
from jarvis_agent.core.redaction import redact
from jarvis_agent.core.tasks.spec import MEDIA, ArgKind
from jarvis_agent.core.types import Resource
from jarvis_agent.media.audio import write_audio
from jarvis_agent.media.detect import detect_media_type

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

MAX_PROMPT = 2_000
"""Characters of a prompt in the metadata of an image."""


def to_image(value: Any) -> Image:
    """An image from PIL, from an array or tensor, or from the path of an image file.

    Arrays: shape (height, width), or with 1, 3 or 4 channels as the last axis; integers in 0…255, or bool,
    or floats in 0…1. Anything else raises UnexpectedError.
    """
    from PIL import Image as Images

    if isinstance(value, Images.Image):
        return value
    if (path := existing_file(value)) is not None:
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

    what = "an image (height, width) or (height, width, 3)"
    pixels = to_array(value, what)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.size == 0 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[-1] in (3, 4))):
        raise UnexpectedError(what)
    if pixels.dtype.kind in "fb":
        pixels = pixels * 255.0
    return Images.fromarray(pixels.clip(0, 255).astype(np.uint8))


def save_image(image: Image, call: Call, name: str) -> Resource:
    """Write an image as PNG; modes that PNG does not have are converted to RGB."""
    from PIL.PngImagePlugin import PngInfo

    origin = PngInfo()
    for key, value in _provenance(call).items():
        origin.add_itxt(key, value)
    path = call.new_path(".png")
    writable = image if image.mode in ("L", "RGB", "RGBA", "I;16") else image.convert("RGB")
    writable.save(path, format="PNG", pnginfo=origin)
    return Resource(kind="image", path=path, mime="image/png", name=name)


def _provenance(call: Call) -> dict[str, str]:
    """Task, model, prompt (if any, without secrets) and seed of a call, for an image's metadata."""
    prompt = call.inputs.get("text")
    known = {
        "task": call.spec.name,
        "model": call.candidate.id,
        "prompt": redact(prompt)[:MAX_PROMPT] if isinstance(prompt, str) else "",
        "seed": str(call.settings.seed),
    }
    # PNG text is UTF-8 without NUL; a prompt may have NUL or half of a surrogate pair.
    return {
        key: value.encode("utf-8", "replace").decode().replace("\0", " ")
        for key, value in known.items()
        if value
    }


def save_audio(samples: Any, rate: int, call: Call, name: str) -> tuple[Resource, float]:
    """Write samples as a 16-bit mono WAV file; returns it and its length in seconds.

    Samples: shape (n,), or (channels, n) or (n, channels), which are averaged. Floats are in [-1, 1].

    Raises:
        UnexpectedError: the samples or the rate are invalid.
    """
    if rate <= 0:
        raise UnexpectedError("a sampling rate in Hz")
    path = call.new_path(".wav")
    seconds = write_audio(path, _mono(samples), rate)
    return Resource(kind="audio", path=path, mime="audio/wav", name=name), seconds


def _mono(samples: Any) -> NDArray[np.float32]:
    """Samples in [-1, 1], shape (n,); channels, on either axis, are averaged."""
    import numpy as np

    given = np.squeeze(to_array(samples, f"samples of sound (not {describe_value(samples)})"))
    if given.dtype.kind in "iu":
        limits = np.iinfo(given.dtype)
        middle = (limits.min + limits.max + 1) / 2
        given = (given - middle) / (limits.max - middle)
    sound: NDArray[np.float32] = given.astype(np.float32)
    if sound.ndim == 2:
        sound = sound.mean(axis=int(sound.shape[1] < sound.shape[0]))
    if sound.ndim != 1 or sound.size == 0:
        raise UnexpectedError("samples of sound of shape (n,) or (channels, n)")
    return sound


def written_file(raw: Any, kind: ArgKind, call: Call) -> Resource:
    """The resource of a file that the backend wrote, from its path or {path}.

    Raises:
        UnexpectedError: there is no such file, or its content is of another kind.
    """
    path = existing_file(raw.get("path") if isinstance(raw, Mapping) else raw)
    if path is None:
        raise UnexpectedError("the path of a file")
    try:
        found, mime = detect_media_type(path)
    except InputError as error:
        raise UnexpectedError(f"a file that can be read ({error})") from error
    animated = (kind, mime) == ("video", "image/gif")
    if found != kind and kind in MEDIA - {"file"} and not animated:
        raise UnexpectedError(f"a file of kind {kind} ({path.name} is {mime})")
    return Resource(kind=kind, path=path, mime=mime, name=call.spec.name)
