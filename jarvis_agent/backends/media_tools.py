"""Tools for media that are no models, with PyAV.

    MEDIA_TOOLS["combine-video-audio"].work(call)     # path of the new video

A new tool is a function and a row of MEDIA_TOOLS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert, LocalBackend
from jarvis_agent.errors import BadInputError, MissingExtraError
from jarvis_agent.settings import Settings
from jarvis_agent.tools.spec import TaskSpec
from jarvis_agent.types import Candidate


@dataclass(frozen=True, slots=True)
class MediaTool:
    """One tool: takes a Call and returns the path of the file that it wrote."""

    id: str
    description: str
    work: Callable[[Call], Path]


def combine(call: Call) -> Path:
    """Put a sound under the pictures of a video; the pictures are copied as they are.

    The longer of the two decides the length. A sound that the video had is replaced.

    Raises:
        BadInputError: one of them can not be read, or lacks pictures or sound.
    """
    import av

    target = call.new_path(".mp4")
    try:
        with (
            av.open(call.inputs["video"].path) as video,
            av.open(call.inputs["audio"].path) as audio,
            av.open(target, "w") as made,
        ):
            if not video.streams.video or not audio.streams.audio:
                raise BadInputError("a video with pictures and a file with sound are needed to combine them")
            pictures = made.add_stream_from_template(video.streams.video[0])
            sound = made.add_stream("aac", rate=audio.streams.audio[0].rate)
            _copy(video, made, pictures)
            _encode(audio, made, sound)
    except (av.FFmpegError, BadInputError) as error:
        target.unlink(missing_ok=True)
        raise BadInputError(f"the video and the audio can not be combined: {error}") from error
    return target


def _copy(source: Any, made: Any, stream: Any) -> None:
    for packet in source.demux(source.streams.video[0]):
        if packet.dts is not None:
            packet.stream = stream
            made.mux(packet)


def _encode(source: Any, made: Any, stream: Any) -> None:
    for frame in source.decode(audio=0):
        frame.pts = None
        made.mux(stream.encode(frame))
    made.mux(stream.encode(None))


MEDIA_TOOLS: dict[str, MediaTool] = {
    "combine-video-audio": MediaTool("pyav/combine", "Puts a sound under a video (no model).", combine),
}
"""The tools, by task."""


class MediaToolsBackend(LocalBackend):
    """Runs the media tools. The raw output is {"path": the file that was written}."""

    name = "media-tools"

    def why_not(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if the candidate is the tool of this task and PyAV is installed, else the reason."""
        tool = MEDIA_TOOLS.get(spec.name)
        if tool is None or tool.id != candidate.id:
            return f"{candidate.id} is no media tool for {spec.name}"
        return None if find_spec("av") else str(MissingExtraError(candidate.id, "local"))

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """The tool, as an expert."""
        work = MEDIA_TOOLS[spec.name].work
        return lambda call: {"path": work(call)}
