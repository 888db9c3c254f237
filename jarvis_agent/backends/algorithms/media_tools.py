"""Tools for media that are no models: sound and pictures of videos with PyAV, images with Pillow.

    MEDIA_TOOLS["combine-video-audio"].work(call)     # {"path": the new video}
    MEDIA_TOOLS["resize-image"].work(call)            # a PIL image

A new tool is a function (a Call → the raw output of its task) and a row of MEDIA_TOOLS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from jarvis_agent.backends.algorithms.image_tools import crop, resize
from jarvis_agent.backends.algorithms.video_tools import combine, extract_audio, extract_frames
from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate


@dataclass(frozen=True, slots=True)
class MediaTool:
    """One tool: `work` takes a Call and returns the raw output; `library` is the module that it needs."""

    id: str
    description: str
    work: Callable[[Call], Any]
    library: str = "av"
    license: str = "bsd-3-clause"


MEDIA_TOOLS: dict[str, MediaTool] = {
    "combine-video-audio": MediaTool("pyav/combine", "Puts a sound under a video (no model).", combine),
    "extract-audio": MediaTool("pyav/audio", "Takes the sound out of a video (no model).", extract_audio),
    "extract-frames": MediaTool("pyav/frames", "Takes pictures out of a video (no model).", extract_frames),
    "resize-image": MediaTool(
        "pillow/resize", "Makes an image larger or smaller (no model).", resize, "PIL", "mit-cmu"
    ),
    "crop-image": MediaTool("pillow/crop", "Cuts a part out of an image (no model).", crop, "PIL", "mit-cmu"),
}
"""The tools, by task."""


class MediaToolsBackend(LocalBackend):
    """Runs the media tools; the raw output is what the adapter of the tool's task takes."""

    name = "media-tools"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if the candidate is the tool of this task and its library is installed, else the reason."""
        tool = MEDIA_TOOLS.get(spec.name)
        if tool is None or tool.id != candidate.id:
            return f"{candidate.id} is no media tool for {spec.name}"
        return None if find_spec(tool.library) else str(MissingExtraError(candidate.id, "local"))

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """The tool, as an expert."""
        return MEDIA_TOOLS[spec.name].work
