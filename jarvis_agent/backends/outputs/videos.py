"""The adapter of videos: frames, and files of any format, become MP4 (H.264) that tells of its origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.backends.outputs.files import as_image, made_file
from jarvis_agent.backends.outputs.validators import UnexpectedError, number
from jarvis_agent.backends.outputs.provenance import tags
from jarvis_agent.backends.outputs.adapted import Adapted
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from PIL.Image import Image

    from jarvis_agent.backends.base import Call


def video(raw: Any, call: Call) -> Adapted:
    """{frames: images or an array (n, h, w, 3), fps}, or {path}, where an animated GIF will do as well.

    The output has path, width and height in pixels, fps, and duration in seconds. Where PyAV is missing, a
    {path} is taken as it is, and what is not known of it is None.
    """
    from jarvis_agent.media.video import probe_video

    try:
        if isinstance(raw, Mapping) and "frames" in raw:
            file = _encoded(raw, call)
        else:
            file = _as_mp4(made_file(raw, "video", call), call)
        assert file.path is not None
        facts = probe_video(file.path) if find_spec("av") else None
    except BadInputError as error:
        raise UnexpectedError(f"a video that can be read ({error})") from error
    output = {
        "path": str(file.path),
        "width": facts.width if facts else None,
        "height": facts.height if facts else None,
        "fps": round(facts.fps, 3) if facts else None,
        "duration": round(facts.duration, 3) if facts else None,
    }
    return Adapted(output, facts.told if facts else f"the video {file.path.name}", (file,))


def _as_mp4(file: Resource, call: Call) -> Resource:
    """A video as MP4 (H.264) with the provenance; it is copied only where it lacks one of them."""
    from jarvis_agent.media.streams import is_mp4, to_mp4
    from jarvis_agent.media.video import opened

    assert file.path is not None
    if not find_spec("av"):
        return file
    wanted = tags(call)
    with opened(file.path) as found:
        if is_mp4(found) and found.metadata.get("comment") == wanted["comment"]:
            return file
    path = call.new_path(".mp4")
    try:
        to_mp4(file.path, path, wanted)
    except BadInputError:
        path.unlink(missing_ok=True)
        raise
    return Resource(kind="video", path=path, mime="video/mp4", name=call.spec.name)


def _encoded(raw: Mapping[str, Any], call: Call) -> Resource:
    from jarvis_agent.media.video import write_video

    fps = number(raw.get("fps"))
    if fps <= 0:
        raise UnexpectedError("frames a second (fps) above zero")
    path = call.new_path(".mp4")
    write_video(path, _images(raw["frames"]), fps, tags(call))
    return Resource(kind="video", path=path, mime="video/mp4", name=call.spec.name)


def _images(frames: Any) -> Iterable[Image]:
    """The frames, all of one size."""
    if isinstance(frames, str | bytes | Path | Mapping):
        raise UnexpectedError("frames (n, height, width, 3)")
    try:
        images = [as_image(frame) for frame in frames]
    except TypeError as error:
        raise UnexpectedError("frames (n, height, width, 3)") from error
    if not images:
        raise UnexpectedError("at least one frame")
    if len({image.size for image in images}) != 1:
        raise UnexpectedError("frames of one size")
    return images
