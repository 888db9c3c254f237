"""The adapter of videos: frames become MP4 (H.264), a file that is a video already is taken as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.tools.files import as_image, made_file
from jarvis_agent.tools.forms import UnexpectedError, number
from jarvis_agent.tools.provenance import tags
from jarvis_agent.tools.results.adapted import Adapted
from jarvis_agent.types import Resource

if TYPE_CHECKING:
    from PIL.Image import Image

    from jarvis_agent.backends.base import Call


def video(raw: Any, call: Call) -> Adapted:
    """{frames: images or an array (n, h, w, 3), fps}, or {path}.

    The output has path, width and height in pixels, fps, and duration in seconds. Where PyAV is missing, what
    is not known of a {path} is None.
    """
    from jarvis_agent.video import probe_video

    if isinstance(raw, Mapping) and "frames" in raw:
        file = _encoded(raw, call)
    else:
        file = made_file(raw, "video", call)
    assert file.path is not None
    facts = probe_video(file.path) if find_spec("av") else None
    output = {
        "path": str(file.path),
        "width": facts.width if facts else None,
        "height": facts.height if facts else None,
        "fps": round(facts.fps, 3) if facts else None,
        "duration": round(facts.duration, 3) if facts else None,
    }
    return Adapted(output, facts.told if facts else f"the video {file.path.name}", (file,))


def _encoded(raw: Mapping[str, Any], call: Call) -> Resource:
    from jarvis_agent.video import write_video

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
