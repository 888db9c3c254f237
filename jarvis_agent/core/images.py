"""Images of any format as upright pictures in 8 bits and sRGB, as tasks take them.

image, notes = open_image(Path("scan.tif"))      # in RGB, or RGBA if it is transparent
to_opaque(image)                                 # in RGB, on white or black paper
"""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
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

_BITS, _PHOTOMETRIC, _PLANES, _COLOUR_MAP = 258, 262, 284, 320  # tags of TIFF; the second is 0 if 0 is white
_ORIENTATION = 0x0112  # the EXIF tag that says how a picture is to be turned; many servers ignore it

_DAMAGED = "the file is damaged or cut off, and a part of the picture is missing"

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

    Raises BadInputError: no installed library reads it as an image, it is damaged, or too large.
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
            if (image := _by_ffmpeg(file, error, errors="explode")) is None:
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


def _by_ffmpeg(file: Path | BinaryIO, why: Exception, errors: str = "crccheck") -> Any:
    """An image that FFmpeg alone reads, such as EXR or a lossless JPEG; None if it does not.

    `errors` is FFmpeg's option `err_detect`; by default a damaged image is read in part.
    """
    from PIL import Image

    if isinstance(why, Image.DecompressionBombError) or "truncated" in str(why).lower():
        return None  # of a header alone, FFmpeg makes a picture
    try:
        import av

        pictures = ",".join(name for name in av.formats_available if name.endswith(("_pipe", "iff")))
        form = "jpeg_pipe" if _bytes_of(file, 2) == b"\xff\xd8" else None  # its rarer kinds are not found
        with av.open(file, "r", format=form, options={"format_whitelist": pictures}) as container:
            stream, name = container.streams.video[0], container.format.name
            if stream.width * stream.height > _MOST_DECODED:
                return None
            stream.codec_context.options = {"err_detect": errors}
            frame = next(container.decode(video=0))
        if name == "tiff_pipe" and frame.format.components[0].bits == 16:
            return None  # FFmpeg takes floats of 16 bits for whole numbers
        plane = frame.reformat(format="rgba").planes[0]
        raw = ("raw", "RGBA", plane.line_size, 1)
        image = Image.frombuffer("RGBA", (frame.width, frame.height), bytes(plane), *raw)
        image.format = name.removesuffix("_pipe")
        return image
    except Exception:  # PyAV raises errors of many types, and may be missing.
        logger.debug("FFmpeg does not read the image", exc_info=True)
    return None


def is_heic(file: Path | BinaryIO) -> bool:
    """Whether a file states to be a picture in HEIC."""
    with suppress(OSError):
        head = _bytes_of(file, 12)
        return head[4:8] == b"ftyp" and head[8:] in _HEIC_BRANDS
    return False


def _bytes_of(file: Path | BinaryIO, size: int = -1) -> bytes:
    """The first bytes of a file, or all."""
    with file.open("rb") if isinstance(file, Path) else nullcontext(file) as opened:
        opened.seek(0)
        content = opened.read(size)
        opened.seek(0)
        return content


def open_image(path: Path, frame: int | None = None) -> tuple[Image, list[str]]:
    """A frame or page of an image, upright, in sRGB with 8 bits: RGBA if parts are transparent, else RGB.

    Returned with it are notes on what was left out or assumed. Raises BadInputError: it is no image.
    """
    from PIL import Image, ImageOps

    with identified(path) as image:
        notes = list[str]()
        count = count_frames(image, notes)
        if count > 1 and frame is None:
            notes.append(Note("the first of {count} frames or pages was used", count=count))
        if frame:
            image.seek(frame)
            if image.width * image.height > (Image.MAX_IMAGE_PIXELS or 0):  # Pillow checks the first one only
                raise ValueError(f"frame {frame + 1} has {image.width} x {image.height} pixels")
        tags = getattr(image, "tag_v2", {})
        decoded = _decoded(image, path, notes)
        colours = tags.get(_COLOUR_MAP) if decoded.mode == "P" else None
        if colours and max(colours) < 256:  # some scanners write 8 of the 16 bits
            decoded.putpalette(bytes(colours), "RGB;L")
        upright = ImageOps.exif_transpose(decoded)
        if upright.mode in ("I", "F") or upright.mode.startswith("I;16"):
            grey = _to_eight_bits(upright, notes)
            is_negative = tags.get(_PHOTOMETRIC) == 0  # Pillow inverts 8 bits only
            return (ImageOps.invert(grey) if is_negative else grey).convert("RGB"), notes
        return _to_srgb(upright), notes


def _decoded(image: Any, path: Path, notes: list[str]) -> Any:
    """A decoded image. Of a file that is damaged or cut off, the part that it has is kept, with a note.

    Pillow has `LOAD_TRUNCATED_IMAGES` for that, which would change how all code of the process reads images.
    """
    damage: Exception | None = None
    tags: Any = getattr(image, "tag_v2", {})
    if tags.get(_PLANES) == 2 and tags.get(_BITS, (8,))[0] == 16:  # Pillow reads 8 of them if uncompressed
        order = "B" if tags.prefix == b"MM" else "N"  # native: Pillow has no "L" for grey
        image.tile = [
            tile._replace(args=(f"{tile.args[0]};16{order}", *tile.args[1:]))
            if tile.codec_name == "raw"
            else tile
            for tile in image.tile
        ]
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
    notes[:] = dict.fromkeys((*notes, Note(_DAMAGED)))
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


def count_frames(image: Image, notes: list[str] | None = None) -> int:
    """The frames of an animation, or the pages of a document. Layers and previews do not count.

    Neither do pages behind damage; that is added to `notes`.
    """
    try:
        return 1 if image.format in ("MPO", "PSD") else getattr(image, "n_frames", 1)
    except SyntaxError:  # a later page is of a kind that Pillow does not read, such as the mask of a map
        count = image.tell() + 1
    except Exception:  # the file is cut off
        count = max(1, image.tell())
        if notes is not None:
            notes.append(Note(_DAMAGED))
    image.seek(0)
    return count


def _to_eight_bits(image: Image, notes: list[str]) -> Image:
    """A deep image in mode L. Whole numbers above 255 are 16 bits, and other ranges are stretched."""
    deep = image.convert("I") if image.mode.startswith("I;16") else image
    low, high = map(float, deep.getextrema())  # type: ignore[arg-type]
    if not math.isfinite(high - low):
        raise ValueError("it has values that are not finite numbers")
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

    No side is longer than `longest` pixels. What was left out is added to `notes`. The content and its media
    type are those of the file itself, if it is all of that. Raises BadInputError: it is no image.
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
