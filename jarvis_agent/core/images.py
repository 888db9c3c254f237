"""Images of any format as upright pictures in 8 bits and sRGB, as tasks take them.

image, notes = open_image(Path("scan.tif"))      # in RGB, or RGBA if it is transparent
to_opaque(image)                                 # in RGB, on white or black paper
"""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from jarvis_agent.core.errors import BadInputError, MissingExtraError, describe_error
from jarvis_agent.core.notes import Note

if TYPE_CHECKING:
    from PIL.Image import Image

logger = logging.getLogger(__name__)

_PNG_MODES = ("1", "L", "LA", "I", "P", "RGB", "RGBA", "I;16")

_UNREAD = frozenset({"BUFR", "EPS", "GRIB", "HDF5", "IM", "IMT", "IPTC", "MPEG", "WMF"})
"""Formats that Pillow only names, reads with another program, or takes texts for."""

PHOTOS = ("image/jpeg", "image/heic", "image/heif")
"""Media types of photos, which lose nothing visible as JPEG."""

_PORTABLE = ("image/png", "image/jpeg", "image/webp")
"""Formats that every server and language model takes."""

_JPEG_END = b"\xff\xd9"

_PHOTOMETRIC, _COLOUR_MAP = 262, 320  # tags of TIFF; the first is 0 if 0 is white
_ORIENTATION = 0x0112  # the EXIF tag that says how a picture is to be turned; many servers ignore it

_MOST_DECODED = 30_000_000  # pixels of a picture that has to be decoded to be identified

_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


def is_pil_image(value: object) -> bool:
    """Whether a value is a PIL image. PIL, which takes long to import, is not imported."""
    return hasattr(value, "getbands")


def png_of(image: Image) -> bytes:
    """A PIL image of any mode as a PNG file."""
    buffer = io.BytesIO()
    (image if image.mode in _PNG_MODES else image.convert("RGB")).save(buffer, "PNG")
    return buffer.getvalue()


@contextmanager
def identified(file: Path | BinaryIO, name: str = "the image") -> Iterator[Image]:
    """An image of which the header alone is read at first. Errors in the block are those of its file.

    Raises:
        BadInputError: no installed library reads it as an image, it is damaged, or too large.
    """
    from PIL import Image

    name = file.name if isinstance(file, Path) else name
    Image.init()
    unread = _UNREAD if name.lower().endswith(".tga") else _UNREAD | {"TGA"}  # it has no signature
    formats = [form for form in Image.OPEN if form not in unread]
    heic = is_heic(file)
    if heic:
        with suppress(ImportError):
            import pi_heif

            pi_heif.register_heif_opener()
            formats.append("HEIF")
    try:
        try:
            image = Image.open(file, formats=formats)
        except Exception as error:  # Pillow raises errors of any type for damaged files, and for rare kinds.
            if (image := _by_ffmpeg(file, error)) is None:
                raise
        with image:
            yield image
    except FileNotFoundError as error:
        raise BadInputError(f"{name} does not exist any more") from error
    except Image.DecompressionBombError as error:
        raise BadInputError(f"{name} is too large an image", detail=error) from error
    except BadInputError:
        raise
    except Exception as error:
        reason = describe_error(error)
        if heic and "HEIF" not in formats:
            reason = MissingExtraError("a HEIC picture", "heic").note
        raise BadInputError(
            "{file} cannot be read as an image: {reason}", file=name, reason=reason
        ) from error


def _by_ffmpeg(file: Path | BinaryIO, why: Exception) -> Any:
    """An image that FFmpeg alone reads, such as EXR or a lossless JPEG; None if it does not.

    Its colours are converted when they are used, which takes longer than decoding.
    """
    from PIL import Image, ImageFile

    class Decoded(ImageFile.ImageFile):
        def _open(self) -> None:
            import av

            pictures = ",".join(name for name in av.formats_available if name.endswith(("_pipe", "iff")))
            content = self.fp or io.BytesIO()
            form = "jpeg_pipe" if content.read(2) == b"\xff\xd8" else None  # its rarer kinds are not found
            content.seek(0)
            with av.open(content, format=form, options={"format_whitelist": pictures}) as container:
                stream = container.streams.video[0]
                if stream.width * stream.height <= _MOST_DECODED:
                    self._frame = next(container.decode(video=0))
                    if container.format.name == "tiff_pipe" and self._frame.format.components[0].bits == 16:
                        raise ValueError("FFmpeg takes floats of 16 bits for whole numbers")
                    self._mode, self._size = "RGBA", (self._frame.width, self._frame.height)
                    self.format = container.format.name.removesuffix("_pipe")

        def load(self) -> Any:
            if self._im is None:
                plane = self._frame.reformat(format="rgba").planes[0]
                raw = ("raw", "RGBA", plane.line_size, 1)
                self.im = Image.frombuffer("RGBA", self.size, bytes(plane), *raw).im
            return Image.Image.load(self)

    if isinstance(why, Image.DecompressionBombError) or "truncated" in str(why).lower():
        return None  # of a header alone, FFmpeg makes a picture
    try:
        if not isinstance(file, Path):
            file.seek(0)
        return Decoded(file)
    except Exception:  # PyAV raises errors of many types, and may be missing.
        logger.debug("FFmpeg does not read the image", exc_info=True)
    return None


def is_heic(file: Path | BinaryIO) -> bool:
    """Whether a file, read from its beginning, states to be a picture in HEIC."""
    if isinstance(file, Path):
        with suppress(OSError), file.open("rb") as opened:
            return is_heic(opened)
        return False
    file.seek(0)
    head = file.read(12)
    file.seek(0)
    return head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS


def open_image(path: Path, frame: int | None = None) -> tuple[Image, list[str]]:
    """A frame or page of an image, upright, in sRGB with 8 bits: RGBA if parts are transparent, else RGB.

    Returns:
        The image, and notes on what was left out or assumed.

    Raises:
        BadInputError: the file cannot be read as an image.
    """
    from PIL import Image, ImageOps

    with identified(path) as image:
        count, notes = count_frames(image), list[str]()
        if count > 1 and frame is None:
            notes.append(Note("the first of {count} frames or pages was used", count=count))
        if frame:
            image.seek(frame)
            if image.width * image.height > (Image.MAX_IMAGE_PIXELS or 0):  # Pillow checks the first one only
                raise ValueError(f"frame {frame + 1} has {image.width} x {image.height} pixels")
        decoded = _decoded(image, path, notes)
        colours = getattr(decoded, "tag_v2", {}).get(_COLOUR_MAP) if decoded.mode == "P" else None
        if colours and max(colours) < 256:  # some scanners write 8 of the 16 bits
            decoded.putpalette(bytes(colours), "RGB;L")
        upright = ImageOps.exif_transpose(decoded)
        if upright.mode in ("I", "F") or upright.mode.startswith("I;16"):
            grey = _to_eight_bits(upright, notes)
            is_negative = getattr(decoded, "tag_v2", {}).get(_PHOTOMETRIC) == 0  # Pillow inverts 8 bits only
            return (ImageOps.invert(grey) if is_negative else grey).convert("RGB"), notes
        return _to_srgb(upright), notes


def _decoded(image: Any, path: Path, notes: list[str]) -> Any:
    """A decoded image. Of a file that is damaged or cut off, the part that it has is kept, with a note.

    Pillow has `LOAD_TRUNCATED_IMAGES` for that, which would change how all code of the process reads images.
    """
    damage: Exception | None = None
    marks = [_JPEG_END] if image.format in ("JPEG", "MPO") else []
    if has_end := bool(marks):  # without a mark of its end, the decoder of JPEG shows less or nothing
        read = image.load_read
        image.load_read = lambda size: read(size) or (marks.pop() if marks else b"")
    try:
        image.load()
        if has_end and not marks and _needs_more(image, path):
            damage = OSError("image file is truncated")
    except Exception as error:  # as of `Image.open`
        damage, image.tile = error, []
    if damage is None:
        return image
    if not _has_content(image):
        image = None if image.tell() else _by_ffmpeg(path, damage)  # which reads the first page alone
        if image is None or not _has_content(image):
            raise damage
    notes.append(Note("the file is damaged or cut off, and a part of the picture is missing"))
    return image


def _has_content(image: Image) -> bool:
    with suppress(OSError):  # nothing was decoded
        return not image.convert("RGB").getcolors(1)
    return False


def _needs_more(image: Image, path: Path) -> bool:
    """Whether a JPEG file without a mark of its end lacks more: then what follows changes the picture."""
    from PIL import Image as Images

    with Images.open(io.BytesIO(path.read_bytes() + bytes(range(255)) + _JPEG_END)) as longer:
        return longer.tobytes() != image.tobytes()


def count_frames(image: Image) -> int:
    """The frames of an animation, or the pages of a document. Layers and previews do not count."""
    try:
        return 1 if image.format in ("MPO", "PSD") else getattr(image, "n_frames", 1)
    except SyntaxError:  # a later page is of a kind that Pillow does not read, such as the mask of a map
        count = image.tell() + 1
        image.seek(0)
        return count


def _to_eight_bits(image: Image, notes: list[str]) -> Image:
    """A deep image in mode L. Whole numbers above 255 are 16 bits, and other ranges are stretched."""
    deep = image.convert("I") if image.mode.startswith("I;16") else image
    low, high = _range(deep)
    if image.mode == "F" and low >= 0 and high <= 1:
        low, high = 0, 1
    elif low >= 0 and 32_768 <= high <= 65_535:
        low, high = 0, 65_535
    elif low >= 0 and (2 if image.mode == "F" else 0) <= high <= 255:
        low, high = 0, 255
    else:
        notes.append(Note("the brightness was stretched from {low:g}–{high:g}", low=low, high=high))
    scale = 255 / ((high - low) or 1)
    return deep.point(lambda value: value * scale - low * scale).convert("L")


def _range(image: Image) -> tuple[float, float]:
    """The least and the largest number in an image of one band."""
    low, high = map(float, image.getextrema())  # type: ignore[arg-type]
    if not math.isfinite(high - low):
        raise ValueError("it has values that are not finite numbers")
    return low, high


def _to_srgb(image: Image) -> Image:
    """RGBA if a part is transparent, else RGB. Colours of a profile become those of sRGB."""
    has_alpha = image.has_transparency_data
    profile: Any = image.info.get("icc_profile")
    plain = image
    if image.mode in ("P", "PA", "La", "RGBa", "1", "LA") or (has_alpha and image.mode in ("L", "RGB")):
        plain = image.convert("RGBA" if has_alpha else "RGB")
    if profile or image.mode == "LAB":
        plain = _converted(plain, profile)
    if plain.mode not in ("RGB", "RGBA"):
        plain = plain.convert("RGB")
    alpha: Any = plain.getchannel("A").getextrema() if plain.mode == "RGBA" else None
    if alpha == (255, 255) or (alpha == (0, 0) and _has_content(plain)):  # games leave it empty
        plain = plain.convert("RGB")
    plain.info = {}  # what the file says of its own colours and compression is no longer true
    return plain


def _converted(image: Image, profile: bytes | None) -> Image:
    """An image in RGB, its alpha kept, by its colour profile; unchanged if the profile does not fit."""
    from PIL import ImageCms

    colours = image.convert("RGB") if image.mode == "RGBA" else image
    with suppress(ImageCms.PyCMSError, OSError):
        own = ImageCms.ImageCmsProfile(io.BytesIO(profile)) if profile else ImageCms.createProfile("LAB")
        srgb = ImageCms.profileToProfile(colours, own, ImageCms.createProfile("sRGB"), outputMode="RGB")
        if image.mode == "RGBA" and srgb is not None:
            srgb.putalpha(image.getchannel("A"))
        return srgb or image
    return image


def to_opaque(image: Image) -> Image:
    """An image in RGB: what is transparent is white, or black if what is seen is light.

    Text is mostly dark on light paper, and logos in white are meant for dark pages.
    """
    from PIL import Image as Images
    from PIL import ImageStat

    if image.mode == "RGB":
        return image
    seen = image.convert("RGBA")
    alpha = seen.getchannel("A")
    light = ImageStat.Stat(seen.convert("L"), alpha.point(lambda value: 255 * (value > 127)))
    paper = "black" if light.count[0] and light.mean[0] > 200 else "white"
    return Images.alpha_composite(Images.new("RGBA", seen.size, paper), seen).convert("RGB")


def _is_whole(content: bytes, mime: str) -> bool:
    """Whether a file of `_PORTABLE` has its end, which is faster than to decode it."""
    if mime == "image/webp":
        return int.from_bytes(content[4:8], "little") + 8 <= len(content)
    return (b"IEND" if mime == "image/png" else _JPEG_END) in content[-1024:]


def to_portable(
    path: Path, mime: str | None, longest: int = 1_000_000, notes: list[str] | None = None
) -> tuple[bytes, str]:
    """An image as other machines and models take it: upright, opaque, in a common format.

    No side is longer than `longest` pixels. What was left out is added to `notes`.

    Returns:
        The content and its media type: those of the file itself, if it is all of that.

    Raises:
        BadInputError: the file cannot be read as an image.
    """
    with identified(path) as header:
        if mime in _PORTABLE and max(header.size) <= longest and count_frames(header) == 1:
            sent, is_deep = path.read_bytes(), header.mode.startswith(("I", "F"))
            is_plain = _is_whole(sent, mime) and not (is_deep or header.has_transparency_data)
            if is_plain and header.getexif().get(_ORIENTATION, 1) == 1:
                return sent, mime
    image, left_out = open_image(path)
    if notes is not None:
        notes.extend(left_out)
    image = to_opaque(image)
    is_lossy = mime in PHOTOS or max(image.size) > longest
    image.thumbnail((longest, longest))
    content, name = io.BytesIO(), "jpeg" if is_lossy else "png"
    image.save(content, name, quality=95)
    return content.getvalue(), f"image/{name}"
