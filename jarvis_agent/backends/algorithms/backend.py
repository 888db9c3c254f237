"""Algorithms, which do a task without a model: images by Pillow and OpenCV, sounds and videos by PyAV.

A new algorithm is a function (from a Call to the raw output of its task) and a row of ALGORITHMS.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.algorithms.boxes import read_box
from jarvis_agent.backends.algorithms.control_maps import canny, control_map, lines, scribble, soft_edges
from jarvis_agent.backends.base import Call, Expert, whole_number
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.errors import BadInputError, InputError, MissingExtraError
from jarvis_agent.core.images import count_frames, identified, to_opaque
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import count_words
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.media import limits
from jarvis_agent.media.detect import MARKDOWN, OLE, PDF, SRT, SUFFIXES, TEXTS, detect_media_type
from jarvis_agent.media.documents import count_pages, load_text
from jarvis_agent.media.recordings import SOUND_CODECS, probe_audio, probe_video, to_mp4, write_sound
from jarvis_agent.media.tables import table_shape

if TYPE_CHECKING:
    from PIL.Image import Image


FRAMES = 8
"""Frames that are extracted by default."""

MAX_FRAMES = 64


def combine(call: Call) -> dict[str, Any]:
    """Replace the sound of a video (inputs: video, audio): {path} of an MP4 with H.264 and AAC."""
    target = call.new_path(".mp4")
    to_mp4(call.inputs["video"].path, target, call.inputs["audio"].path)
    return {"path": target}


def extract_audio(call: Call) -> dict[str, Any]:
    """The sound of a video or recording: {path} of a file in a `format`; WAV, 16-bit, if none is given."""
    target = call.new_path(f".{_suffix(call.inputs.get('format') or 'wav', SOUND_CODECS, 'recordings')}")
    write_sound(call.inputs["video"].path, target, call.notes)
    return {"path": target}


def extract_frames(call: Call) -> list[dict[str, Any]]:
    """`count` frames (default 8) spread evenly over a video: [{image: PIL, time in seconds}]."""
    count = whole_number(call, "count", MAX_FRAMES) or FRAMES
    return [{"image": image, "time": seconds} for seconds, image in call.frames(count)]


_FLIPS = {
    **dict.fromkeys(("horizontal", "horizontally", "left-right", "mirror"), "FLIP_LEFT_RIGHT"),
    **dict.fromkeys(("vertical", "vertically", "top-bottom", "upside down"), "FLIP_TOP_BOTTOM"),
}
_FORMATS = ("png", "jpg", "jpeg", "webp", "gif", "bmp", "tif", "tiff")
"""Image formats that are written."""

_QUALITY = 92
"""Of JPEG and WebP files."""

_TURN = re.compile(r"(?:(?P<degrees>[+-]?[0-9]{1,6}(?:\.[0-9]{1,6})?) *(?:°|degrees?)?)? *(?P<way>[a-z -]*)")
_CLOCKWISE = frozenset({"", "clockwise", "right", "to the right"})
_COUNTERCLOCKWISE = frozenset(
    {"counterclockwise", "counter-clockwise", "anticlockwise", "left", "to the left"}
)


def resize(call: Call) -> Image:
    """Resize to `width` and `height` in pixels (one keeps the aspect ratio), or to a `scale` in percent."""
    from PIL import Image as Images

    limit = limits.MAX_PIXELS
    wide, high = whole_number(call, "width", limit), whole_number(call, "height", limit)
    scale = _percent(call, "scale", 10_000)
    if (scale is None) == (wide is None and high is None):
        raise BadInputError(
            "resize-image needs either a width or a height in pixels, such as 512, or a scale in percent"
        )
    image = call.editable_image()
    if scale is not None:
        wide, high = (max(1, round(side * scale)) for side in image.size)
    width = wide or max(1, round(image.width * (high or 0) / image.height))
    height = high or max(1, round(image.height * width / image.width))
    _check_pixels(width, height)
    return image.resize((width, height), Images.Resampling.LANCZOS)


def _percent(call: Call, name: str, most: int) -> float | None:
    """An argument from 1 to `most` percent as a share, also from text ("50%"); None if it is missing."""
    value = call.inputs.get(name)
    if value is None or value == "":
        return None
    try:
        percent = math.nan if isinstance(value, bool) else float(str(value).strip().removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 1 <= percent <= most:
        raise BadInputError(
            f"{call.spec.name} needs {name} as a number from 1 to {most} in percent, not {str(value)[:80]!r}"
        )
    return percent / 100


def _check_pixels(width: int, height: int) -> None:
    if width * height > limits.MAX_PIXELS:
        size = f"an image of {width} × {height} pixels"
        raise BadInputError(f"{size} has more than {limits.MAX_PIXELS:,}; use a smaller size")


def crop(call: Call) -> Image:
    """The part of an image inside `box`, in any of the forms that `read_box` takes."""
    image = call.editable_image()
    box, notes = read_box(call.inputs.get("box"), *image.size)
    call.notes.extend(notes)
    left, top = (max(0, math.floor(side)) for side in box[:2])
    right, bottom = min(image.width, math.ceil(box[2])), min(image.height, math.ceil(box[3]))
    if left >= right or top >= bottom:
        size = f"{image.width} × {image.height} pixels"
        raise BadInputError(f"the box {list(box)} lies outside the image ({size})")
    return image.crop((left, top, right, bottom))


def edit(call: Call) -> Image | dict[str, Any]:
    """Turn, mirror, colour, frame and convert an image, in this order; {path} of a file for a `format`."""
    from PIL import Image as Images
    from PIL import ImageEnhance, ImageOps

    names = [arg.name for arg in call.spec.inputs[1:]]
    edits = {name: call.inputs[name] for name in names if call.inputs.get(name) not in (None, "")}
    if not edits:
        raise BadInputError(f"edit-image needs one of {', '.join(names)}, such as rotate: 90")
    brightness, border = _percent(call, "brightness", 1000), whole_number(call, "border", 10_000) or 0
    degrees = _degrees(edits["rotate"]) if "rotate" in edits else 0.0
    image = call.editable_image()
    if degrees:
        sine, cosine = abs(math.sin(math.radians(degrees))), abs(math.cos(math.radians(degrees)))
        width, height = image.size
        _check_pixels(math.ceil(width * cosine + height * sine), math.ceil(width * sine + height * cosine))
        corners = "white" if image.mode == "RGB" else (0, 0, 0, 0)
        image = image.rotate(-degrees, Images.Resampling.BICUBIC, expand=True, fillcolor=corners)
    if "flip" in edits:
        direction = _FLIPS.get(str(edits["flip"]).strip().lower())
        if direction is None:
            raise BadInputError(
                f'{str(edits["flip"])[:80]!r} is not a way to flip; give "horizontal" or "vertical"'
            )
        image = image.transpose(Images.Transpose[direction])
    if brightness is not None:
        image = ImageEnhance.Brightness(image).enhance(brightness)
    if str(edits.get("greyscale") or "").strip().lower() not in ("", "0", "false", "no", "none"):
        image = image.convert("LA").convert("RGBA") if image.mode == "RGBA" else image.convert("L")
    if border:
        _check_pixels(image.width + 2 * border, image.height + 2 * border)
        image = ImageOps.expand(image, border, "white")
        call.notes.append(Note("the border is white"))
    return _converted(image, str(edits["format"]), call) if "format" in edits else image


def _degrees(angle: Any) -> float:
    """Degrees clockwise, from a number or a text ("90°", "90 degrees to the left", "left")."""
    turn = None if isinstance(angle, bool) else _TURN.fullmatch(str(angle)[:60].strip().lower())
    way = turn["way"].strip() if turn else "?"
    if turn is None or way not in _CLOCKWISE | _COUNTERCLOCKWISE or not (turn["degrees"] or way):
        raise BadInputError(
            f"{str(angle)[:80]!r} is not a rotation; give degrees clockwise, such as 90 or -90"
        )
    degrees = float(turn["degrees"] or 90) % 360
    return -degrees if way in _COUNTERCLOCKWISE else degrees


def _converted(image: Image, wanted: str, call: Call) -> Image | dict[str, Any]:
    from PIL import Image as Images

    suffix = _suffix(wanted, _FORMATS, "images")
    name = Images.registered_extensions()[f".{suffix}"]
    if name in ("JPEG", "BMP"):  # They have no transparency, or none that programs show.
        image = image if image.mode == "L" else to_opaque(image)
    path = call.new_path(f".{suffix}")
    try:
        image.save(path, format=name, **({"quality": _QUALITY} if name in ("JPEG", "WEBP") else {}))
    except (ValueError, OSError) as error:
        raise BadInputError(f"the image cannot be written as {name}", detail=error) from error
    return {"path": path}


def _suffix(wanted: Any, known: Iterable[str], what: str) -> str:
    """The ending of file names of a format ("PNG", ".png", "image/png"). Raises BadInputError."""
    suffix = str(wanted).strip().lower().rpartition("/")[2].removeprefix(".")
    if suffix not in known:
        raise BadInputError(
            f"{what} cannot be written as {str(wanted)[:80]!r}; give one of {', '.join(known)}"
        )
    return suffix


_FORMAT_NAMES = {
    OLE: "old Office file",
    MARKDOWN: "Markdown",
    "image/jpeg": "JPEG",
    "audio/mpeg": "MP3",
    "audio/webm": "WEBM",
    "text/plain": "plain text",
    "video/quicktime": "MOV",
}
"""Names of formats that are neither an ending of file names nor the end of their media type."""


def info(call: Call) -> dict[str, Any]:
    """The facts of a file of any kind (input: file), from its headers and packets.

    Always name, format, and bytes; by kind also width and height (pixels, upright), fps, duration (seconds),
    sampling_rate (Hz), and the numbers of frames, channels, pages, words, lines, characters, rows and
    entries, and the names of columns. A note says why the content could not be read.
    """
    file: Resource = call.inputs["file"]
    path, kind, mime = Path(str(file.path)), file.kind, file.mime
    if mime is None:
        kind, mime = detect_media_type(path)
    usual, own = SUFFIXES.get(mime, mime.partition("/")[2]), path.suffix.lower()
    ending = own if TEXTS.get(own) == mime else usual  # one type may be that of several formats
    name = _FORMAT_NAMES.get(mime) or ending.lstrip(".").removeprefix("x-").upper()
    facts = {"name": file.name or path.name, "format": name, "bytes": path.stat().st_size}
    try:
        if kind == "table":
            facts["rows"], facts["columns"], notes = table_shape(path)
            call.notes.extend(notes)
        elif kind == "image":
            facts |= _image_facts(path)
        elif kind == "audio":
            facts |= asdict(probe_audio(path))
        elif kind == "video":
            facts |= asdict(probe_video(path))
        elif kind in ("text", "data") and facts["bytes"]:
            facts |= {"pages": count_pages(path)} if mime == PDF else {}
            text, notes = load_text(path, with_markup=mime != SRT)  # times are no words
            call.notes.extend(notes)
            facts |= _text_facts(kind, text.strip())
    except (BadInputError, InputError, MissingExtraError) as error:
        call.notes.append(error.note)
    return facts


def _image_facts(path: Path) -> dict[str, Any]:
    from PIL.ExifTags import Base

    with identified(path) as image:
        width, height = image.size
        if image.getexif().get(Base.Orientation) in (5, 6, 7, 8):  # it lies on its side
            width, height = height, width
        frames = count_frames(image)
    return {"width": width, "height": height, **({"frames": frames} if frames > 1 else {})}


def _text_facts(kind: str, text: str) -> dict[str, Any]:
    if kind == "text":
        return {"words": count_words(text), "lines": len(text.splitlines()), "characters": len(text)}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("it is not valid JSON", detail=error) from error
    return {"entries": len(data)} if isinstance(data, list | dict) else {}


_LICENSES = {"cv2": "apache-2.0", "av": "bsd-3-clause", "PIL": "mit-cmu"}
_EXTRAS = {"cv2": "starter", "av": "local", "PIL": "local"}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One algorithm; `library` is the module that it needs."""

    id: str
    library: str
    description: str
    run: Callable[[Call], Any]

    @property
    def license(self) -> str:
        """The licence of its library."""
        return _LICENSES[self.library]


ALGORITHMS: dict[str, Algorithm] = {
    "canny-control": Algorithm("opencv/canny", "cv2", "Canny edges.", partial(control_map, canny)),
    "hed-control": Algorithm("opencv/soft-edge", "cv2", "Soft edges.", partial(control_map, soft_edges)),
    "mlsd-control": Algorithm("opencv/lines", "cv2", "Straight lines.", partial(control_map, lines)),
    "scribble-control": Algorithm("opencv/scribble", "cv2", "Bold strokes.", partial(control_map, scribble)),
    "combine-video-audio": Algorithm("pyav/combine", "av", "Replaces a video's sound.", combine),
    "extract-audio": Algorithm("pyav/audio", "av", "Extracts or converts sound.", extract_audio),
    "extract-frames": Algorithm("pyav/frames", "av", "Extracts frames.", extract_frames),
    "resize-image": Algorithm("pillow/resize", "PIL", "Resizes an image.", resize),
    "crop-image": Algorithm("pillow/crop", "PIL", "Crops an image.", crop),
    "edit-image": Algorithm("pillow/edit", "PIL", "Edits an image.", edit),
    "media-info": Algorithm("pillow/info", "PIL", "Reads facts of a file.", info),
}
"""By task. Control maps of depth, normals, poses and segments need a model."""


class AlgorithmsBackend(LocalBackend):
    """Runs the algorithms."""

    name = "algorithms"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        algorithm = ALGORITHMS.get(spec.name)
        if algorithm is None or algorithm.id != candidate.id:
            return f"{candidate.id} is not an algorithm for {spec.name}"
        if find_spec(algorithm.library) is None:
            return str(MissingExtraError(candidate.id, _EXTRAS[algorithm.library]))
        return None

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        return ALGORITHMS[spec.name].run
