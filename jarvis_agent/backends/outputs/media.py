"""Adapters of media, and the files that they write: images with what was found in them, sounds, videos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.draw import Skeleton, draw_boxes, draw_masks, draw_skeletons
from jarvis_agent.backends.outputs.validators import (
    Adapted,
    Index,
    Number,
    Score,
    Seconds,
    Text,
    UnexpectedError,
    best_first,
    check,
    describe_value,
    existing_file,
    plural,
    quantity,
    read_rows,
    to_array,
    to_builtin,
    to_list,
    to_matrix,
)
from jarvis_agent.core.errors import BadInputError, InputError, MissingExtraError
from jarvis_agent.core.images import PHOTOS
from jarvis_agent.core.tasks.spec import MEDIA, ArgKind
from jarvis_agent.core.types import Resource
from jarvis_agent.media.detect import detect_media_type
from jarvis_agent.media.limits import MAX_SHOWN_S
from jarvis_agent.media.recordings import (
    decode_audio,
    is_mp4,
    opened,
    probe_video,
    to_mp4,
    write_audio,
    write_video,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image


_FACTS = {
    "format": "{format}",
    "width": "{width} × {height} pixels",
    "duration": "{duration:.1f} s{clock}",
    "fps": "{fps:g} frames a second",
    "sampling_rate": "{sampling_rate} Hz",
}

_COUNTED = ("frame", "channel", "page", "word", "line", "character", "row", "entry")
"""Facts of a file in a sentence."""


def picture(raw: Any, call: Call) -> Adapted:
    """An image: PIL, an array, a file, or a dict with one of those (as of depth-estimation).

    {path} keeps its format, all others become PNG. Of a list, the first is the output, the rest further
    files.
    """
    images: list[Image] = []
    files: list[Resource] = []
    for value in raw if isinstance(raw, list | tuple) and raw else [raw]:
        if isinstance(value, Mapping) and "path" in value:
            files.append(written_file(value, "image", call))
            images.append(to_image(files[-1].path))
            continue
        if isinstance(value, Mapping):
            value = next((value[key] for key in ("image", "depth") if key in value), None)
        images.append(to_image(value))
        files.append(save_image(images[-1], call, call.spec.name))
    width, height = images[0].size
    more = f", and {quantity(len(files) - 1, 'other')}" if files[1:] else ""
    output = {"path": str(files[0].path), "width": width, "height": height}
    return Adapted(output, f"an image of {width} × {height} pixels{more}", tuple(files))


def file_info(raw: Any, call: Call) -> Adapted:
    """Facts of a file, as of `algorithms.backend.info`. The summary has all of them but names."""
    info = to_builtin(raw)
    info = {name: fact for name, fact in info.items() if fact is not None} if isinstance(info, dict) else {}
    if not {"name", "format", "bytes"} <= info.keys():
        raise UnexpectedError("{name, format, bytes, …}")
    seconds = info.get("duration", 0)
    clock = f" ({timedelta(seconds=int(seconds))})" if 60 <= seconds < MAX_SHOWN_S else ""
    facts = [template.format(**info, clock=clock) for name, template in _FACTS.items() if name in info]
    facts += [quantity(info[plural(noun)], noun) for noun in _COUNTED if plural(noun) in info]
    if "columns" in info:
        facts.append(quantity(len(info["columns"]), "column"))
    facts.append(_size(info["bytes"]))
    return Adapted(info, ", ".join(facts))


def _size(count: int) -> str:
    if count < 1e3:
        return quantity(count, "byte")
    return f"{count / 1e3:.1f} kB" if count < 1e6 else f"{count / 1e6:,.1f} MB"


def depth(raw: Any, call: Call) -> Adapted:
    """A depth map in colour and in 16 bits, from {predicted_depth (h, w), depth: PIL, metric?}.

    Models return nearness (larger is nearer) or, if `metric` is true, distance (larger is farther). The
    colours are OpenCV's INFERNO map: near is bright in either case. The 16-bit PNG has the model's own
    numbers: 0 stands for `min`, 65535 for `max`.
    """
    import numpy as np
    from PIL import Image as Images

    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError("a depth map in colour", "local") from error
    known: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {"depth": raw}
    predicted = known.get("predicted_depth")
    values = _depth_values(known.get("depth") if predicted is None else predicted)
    low, high = float(values.min()), float(values.max())
    share = (values - low) / ((high - low) or 1.0)
    brightness = 1 - share if known.get("metric") else share
    mapped = cv2.applyColorMap((brightness * 255).round().astype(np.uint8), cv2.COLORMAP_INFERNO)
    colours = Images.fromarray(cv2.cvtColor(mapped, cv2.COLOR_BGR2RGB))
    coloured = save_image(colours, call, "depth in colour, near is bright")
    exact = save_image(Images.fromarray((share * 65_535).round().astype(np.uint16)), call, "depth in 16 bits")
    output = {
        "path": str(coloured.path),
        "image": str(coloured.path),
        "depth": str(exact.path),
        "width": colours.width,
        "height": colours.height,
        "min": round(low, 6),
        "max": round(high, 6),
    }
    summary = f"a depth map of {colours.width} × {colours.height} pixels, near is bright"
    return Adapted(output, summary, (coloured, exact))


def _depth_values(depth: Any) -> NDArray[np.float64]:
    """A depth map's numbers, shape (height, width)."""
    import numpy as np
    from PIL import Image as Images

    if isinstance(depth, Images.Image) and depth.mode not in ("I", "I;16", "F", "L"):
        depth = depth.convert("L")
    values = to_array(depth, "a depth map (height, width)").astype(np.float64)
    while values.ndim > 2 and len(values) == 1:
        values = values[0]
    if values.ndim != 2 or not values.size:
        raise UnexpectedError("a depth map (height, width)")
    return values


def frames(raw: Any, call: Call) -> Adapted:
    """[{image, time}] of a video, times in seconds: one image file each."""
    rows = read_rows(raw, {"image": _Image, "time": Seconds})
    if not rows:
        raise UnexpectedError("at least one frame")
    files = [save_image(row["image"], call, f"frame at {row['time']:g} s") for row in rows]
    output = [{**row, "image": str(file.path)} for row, file in zip(rows, files, strict=True)]
    times = ", ".join(f"{row['time']:.1f} s" for row in rows)
    return Adapted(output, f"{quantity(len(rows), 'frame')}, at {times}", tuple(files))


def sound(raw: Any, call: Call) -> Adapted:
    """{audio, sampling_rate in Hz}, a list of those (of source separation, with labels), or {path}."""
    if isinstance(raw, str | Path) or (isinstance(raw, Mapping) and "path" in raw):
        file = written_file(raw, "audio", call)
        try:
            samples, rate, _ = decode_audio(Path(str(file.path)))
        except BadInputError as error:
            raise UnexpectedError(f"sound that can be read ({error})") from error
        seconds = len(samples) / rate
        # WAV is kept, other formats become WAV unless one was asked for.
        if file.mime not in ("audio/wav", "audio/x-wav") and not call.inputs.get("format"):
            file, _ = save_audio(samples, rate, call, call.spec.name)
        return Adapted(_sound_facts(file, rate, seconds), f"{seconds:.1f} s of sound", (file,))
    labels = {"label": Annotated[str, BeforeValidator(str)]}
    rows = read_rows(raw, {"audio": Any, "sampling_rate": Index}, labels)
    if not rows:
        raise UnexpectedError("{audio, sampling_rate}")
    sounds: list[dict[str, Any]] = []
    files: list[Resource] = []
    for row in rows:
        rate, label = row["sampling_rate"], row.get("label")
        file, seconds = save_audio(row["audio"], rate, call, label or call.spec.name)
        files.append(file)
        sounds.append(({} if label is None else {"label": label}) | _sound_facts(file, rate, seconds))
    summary = ", ".join(f"{row['duration']:.1f} s of sound" for row in sounds)
    return Adapted(sounds[0] if len(sounds) == 1 else sounds, summary, tuple(files))


def _sound_facts(file: Resource, rate: int, seconds: float) -> dict[str, Any]:
    return {"sampling_rate": rate, "duration": round(seconds, 3), "path": str(file.path)}


def video(raw: Any, call: Call) -> Adapted:
    """{frames: images or an array (n, h, w, 3), fps}, or {path} of a video or an animated GIF.

    The output has path, width and height in pixels, fps, duration in seconds, and the number of frames.
    Without PyAV a {path} is passed on as it is, and the output has its path alone.
    """
    try:
        if isinstance(raw, Mapping) and "frames" in raw:
            fps = check(_Rate, raw.get("fps"), "a number of frames a second (fps) above zero")
            images = check(_Frames, raw["frames"], "frames (n, height, width, 3)")
            if len({image.size for image in images}) != 1:
                raise UnexpectedError("frames of one size" if images else "at least one frame")
            path = call.new_path(".mp4")
            write_video(path, images, fps)
        else:
            file = written_file(raw, "video", call)
            if find_spec("av") is None:
                return Adapted({"path": str(file.path)}, f"the video {file.name}", (file,))
            path = source = Path(str(file.path))
            with opened(source) as container:
                is_kept = is_mp4(container)
            if not is_kept:
                path = call.new_path(".mp4")
                to_mp4(source, path)
        facts = probe_video(path)
    except BadInputError as error:
        raise UnexpectedError(f"a video that can be read ({error})") from error
    resource = Resource(kind="video", path=path, mime="video/mp4", name=call.spec.name)
    size = f"{facts.width} × {facts.height} pixels, {round(facts.fps, 1):g} frames a second"
    summary = f"a video of {facts.duration:.1f} s, {size}"
    return Adapted({"path": str(path), **asdict(facts)}, summary, (resource,))


def mesh(raw: Any, call: Call) -> Adapted:
    """{vertices (n, 3), faces (m, 3), colors (n, 3) or None}, or {path} of a 3D file, as a GLB file."""
    scene = _scene(raw)
    path = call.new_path(".glb")
    path.write_bytes(scene.export(file_type="glb"))
    vertices = sum(len(shape.vertices) for shape in scene.geometry.values())
    faces = sum(len(getattr(shape, "faces", ())) for shape in scene.geometry.values())
    file = Resource(kind="3d", path=path, mime="model/gltf-binary", name=call.spec.name)
    output = {"path": str(path), "vertices": vertices, "faces": faces}
    return Adapted(output, f"a 3D model of {vertices:,} vertices and {faces:,} faces", (file,))


def _scene(raw: Any) -> Any:
    try:
        import trimesh
    except ImportError as error:
        raise MissingExtraError("writing 3D models", "local") from error
    if isinstance(raw, Mapping) and "vertices" in raw:
        vertices = to_matrix(raw["vertices"], 3, "vertices as numbers (n, 3)")
        faces = to_matrix(raw.get("faces"), 3, "faces as numbers (n, 3)").astype(int)
        colours = raw.get("colors")
        colors = None if colours is None else to_matrix(colours, 3, "colors as numbers (n, 3)")
        if faces.min() < 0 or faces.max() >= len(vertices):
            raise UnexpectedError(f"faces between the {len(vertices)} vertices")
        if colors is not None and len(colors) != len(vertices):
            raise UnexpectedError(f"a colour for each of the {len(vertices)} vertices")
        return trimesh.Scene(trimesh.Trimesh(vertices, faces, vertex_colors=colors, process=False))
    path = existing_file(raw.get("path") if isinstance(raw, Mapping) else raw)
    if path is None:
        raise UnexpectedError("{vertices, faces, colors}, or the path of a 3D file")
    is_glb = path.read_bytes()[:4] == b"glTF"
    try:
        scene = trimesh.load_scene(path, file_type="glb" if is_glb else path.suffix.lstrip("."))
    except Exception as error:  # a damaged file makes trimesh raise errors of many kinds
        raise UnexpectedError(f"a 3D file that can be read ({error})") from error
    if not scene.geometry:
        raise UnexpectedError("a 3D file that is not empty")
    return scene


_QUALITY = 92
"""Of JPEG files."""


def to_image(value: Any) -> Image:
    """An image from PIL, from an array or tensor, or from the path of an image file.

    Arrays: shape (height, width), or with 1, 3 or 4 channels last; 0…255, or bool, or floats in 0…1.
    """
    from PIL import Image as Images

    if isinstance(value, Images.Image):
        return value
    if (path := existing_file(value)) is not None:
        try:
            return Resource(kind="image", path=path).to_pil()
        except BadInputError as error:
            raise UnexpectedError(f"an image that can be read ({error})") from error
    if not (hasattr(value, "tolist") and hasattr(value, "shape")):
        raise UnexpectedError("an image")
    import numpy as np

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
    """Write an image as PNG, or as JPEG if it is made from a photo: PNG takes ten times as long and as much.

    Modes that PNG does not have are converted to RGB.
    """
    source = call.inputs.get("image")
    is_photo = isinstance(source, Resource) and source.mime in PHOTOS and call.spec.category != "control"
    is_grey_photo = image.mode == "L" and call.spec.category == "media"  # other tasks' grey images are masks
    if is_photo and (image.mode == "RGB" or is_grey_photo):
        path = call.new_path(".jpg")
        image.save(path, format="JPEG", quality=_QUALITY)
        return Resource(kind="image", path=path, mime="image/jpeg", name=name)
    path = call.new_path(".png")
    writable = image if image.mode in ("L", "RGB", "RGBA", "I;16") else image.convert("RGB")
    writable.save(path, format="PNG")
    return Resource(kind="image", path=path, mime="image/png", name=name)


def save_audio(samples: Any, rate: int, call: Call, name: str) -> tuple[Resource, float]:
    """Write samples as a 16-bit mono WAV file; returns it and its length in seconds.

    Samples: shape (n,), or (channels, n) or (n, channels), which are averaged. Floats are in [-1, 1].
    """
    import numpy as np

    if rate <= 0:
        raise UnexpectedError("a sampling rate in Hz")
    signal = np.squeeze(to_array(samples, f"samples of sound (not {describe_value(samples)})"))
    if signal.dtype.kind in "iu":
        limits = np.iinfo(signal.dtype)
        middle = (limits.min + limits.max + 1) / 2
        signal = (signal - middle) / (limits.max - middle)
    sound: NDArray[np.float32] = signal.astype(np.float32)
    if sound.ndim == 2:
        sound = sound.mean(axis=int(sound.shape[1] < sound.shape[0]))
    if sound.ndim != 1 or sound.size == 0:
        raise UnexpectedError("samples of sound of shape (n,) or (channels, n)")
    path = call.new_path(".wav")
    seconds = write_audio(path, sound, rate)
    return Resource(kind="audio", path=path, mime="audio/wav", name=name), seconds


def written_file(raw: Any, kind: ArgKind, call: Call) -> Resource:
    """The resource of a file of this kind that the backend wrote, from its path or {path}."""
    path = existing_file(raw.get("path") if isinstance(raw, Mapping) else raw)
    if path is None:
        raise UnexpectedError("the path of a file")
    try:
        detected, mime = detect_media_type(path)
    except InputError as error:
        raise UnexpectedError(f"a file that can be read ({error})") from error
    animated = (kind, mime) == ("video", "image/gif")
    if detected != kind and kind in MEDIA - {"file"} and not animated:
        raise UnexpectedError(f"a file of kind {kind} ({path.name} is {mime})")
    return Resource(kind=kind, path=path, mime=mime, name=call.spec.name)


MIN_JOINT_SCORE = 0.3
"""Joints below this score are in the data, but are neither drawn nor counted."""

_Image = Annotated[Any, AfterValidator(to_image)]
_Mask = Annotated[Any, AfterValidator(lambda value: to_image(value).convert("L"))]
_Rate = Annotated[Number, Field(gt=0)]
_Frames = Annotated[
    list[_Image], BeforeValidator(lambda value: [*value] if getattr(value, "ndim", 0) else value)
]
_Pixel = Annotated[Number, AfterValidator(round)]
_Coordinate = Annotated[Number, AfterValidator(lambda value: round(value, 1))]


class _Box(BaseModel):
    xmin: _Pixel
    ymin: _Pixel
    xmax: _Pixel
    ymax: _Pixel


class _Joint(BaseModel):
    label: Text
    x: _Coordinate
    y: _Coordinate
    score: Score


def objects(raw: Any, call: Call) -> Adapted:
    """[{label, score, box {xmin, ymin, xmax, ymax}}], best first, boxes in whole pixels."""
    rows = best_first(read_rows(raw, {"label": Text, "score": Score, "box": _Box}))
    labels = [row["label"] for row in rows]
    captions = [f"{row['label']} {row['score']:.2f}" for row in rows]
    boxes = [tuple(row["box"].values()) for row in rows]
    drawn = draw_boxes(call.inputs["image"].to_pil(), list(zip(labels, captions, boxes, strict=True)))
    marked = save_image(drawn, call, "objects found")
    counts = ", ".join(quantity(amount, label) for label, amount in Counter(labels).most_common())
    summary = f"{quantity(len(rows), 'object')}: {counts}" if rows else "no objects"
    return Adapted(rows, summary, (marked,))


def segments(raw: Any, call: Call) -> Adapted:
    """[{label, score or None, mask}]; each mask is a PNG, white inside the segment."""
    rows = read_rows(raw, {"label": Text, "mask": _Mask}, {"score": Score})
    saved, files = _save_masks(rows, call, "segments found")
    shares = [sum(row["mask"].histogram()[128:]) / (row["mask"].width * row["mask"].height) for row in rows]
    named = (f"{row['label']} ({100 * share:.0f} %)" for row, share in zip(rows, shares, strict=True))
    summary = f"{quantity(len(saved), 'segment')}: {', '.join(named)}" if saved else "no segments"
    return Adapted([{"score": None, **row} for row in saved], summary, files)


def unlabelled_masks(raw: Any, call: Call) -> Adapted:
    """[{mask, score}] of all parts of an image, best first; each mask becomes a PNG."""
    rows = best_first(read_rows(raw, {"mask": _Mask, "score": Score}))
    saved, files = _save_masks(rows, call, "masks found")
    return Adapted(saved, quantity(len(saved), "mask") if saved else "no masks", files)


def _save_masks(
    rows: Sequence[Mapping[str, Any]], call: Call, name: str
) -> tuple[list[dict[str, Any]], tuple[Resource, ...]]:
    """The rows with the paths of their masks; the image with the masks drawn, and the masks, as files."""
    masks = [
        (row.get("label") or str(number), row.get("label", ""), row["mask"])
        for number, row in enumerate(rows, 1)
    ]
    marked = save_image(draw_masks(call.inputs["image"].to_pil(), masks), call, name)
    files = [
        save_image(mask, call, f"mask of {label}" if label else f"mask {number}")
        for number, label, mask in masks
    ]
    saved = [{**row, "mask": str(file.path)} for row, file in zip(rows, files, strict=True)]
    return saved, (marked, *files)


def people(raw: Any, call: Call) -> Adapted:
    """[{score, box?, keypoints [{label, x, y, score}]}] in pixels, best first; edges are drawn only."""
    edges = Annotated[list[tuple[int, int]], BeforeValidator(to_list)]
    fields = {"score": Score, "keypoints": list[_Joint]}
    rows = best_first(read_rows(raw, fields, {"box": _Box, "edges": edges}))
    skeletons: list[Skeleton] = []
    for row in rows:
        joints, bones = row["keypoints"], row.pop("edges", [])
        if any(not 0 <= place < len(joints) for bone in bones for place in bone):
            raise UnexpectedError(f"edges between the {len(joints)} keypoints")
        points = [(joint["x"], joint["y"]) if joint["score"] >= MIN_JOINT_SCORE else None for joint in joints]
        skeletons.append((points, bones))
    marked = save_image(draw_skeletons(call.inputs["image"].to_pil(), skeletons), call, "people found")
    seen = [sum(joint is not None for joint in joints) for joints, _ in skeletons]
    counts = ", ".join(f"{quantity(count, 'joint')} seen" for count in seen)
    return Adapted(rows, f"{quantity(len(rows), 'person')}: {counts}" if rows else "no people", (marked,))
