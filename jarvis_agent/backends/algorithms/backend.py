"""The table of algorithms, which do a task without a model, and their backend.

    ALGORITHMS["canny-control"].run(call)      # a PIL image
    ALGORITHMS["extract-audio"].run(call)      # {"path": a WAV file}

A new algorithm is a function (from a Call to the raw output of its task) and a row of ALGORITHMS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from jarvis_agent.backends.algorithms import media_tools
from jarvis_agent.backends.algorithms.control_maps import canny, control_map, lines, scribble, soft_edges
from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

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
    "canny-control": Algorithm("opencv/canny", "cv2", "Canny edges.", control_map(canny)),
    "hed-control": Algorithm("opencv/soft-edge", "cv2", "Soft edges.", control_map(soft_edges)),
    "mlsd-control": Algorithm("opencv/lines", "cv2", "Straight lines.", control_map(lines)),
    "scribble-control": Algorithm("opencv/scribble", "cv2", "Bold strokes.", control_map(scribble)),
    "combine-video-audio": Algorithm("pyav/combine", "av", "Replaces a video's sound.", media_tools.combine),
    "extract-audio": Algorithm("pyav/audio", "av", "Extracts the sound.", media_tools.extract_audio),
    "extract-frames": Algorithm("pyav/frames", "av", "Extracts frames.", media_tools.extract_frames),
    "resize-image": Algorithm("pillow/resize", "PIL", "Resizes an image.", media_tools.resize),
    "crop-image": Algorithm("pillow/crop", "PIL", "Crops an image.", media_tools.crop),
    "edit-image": Algorithm("pillow/edit", "PIL", "Edits an image.", media_tools.edit),
    "media-info": Algorithm("pillow/info", "PIL", "Reads facts of a file.", media_tools.info),
}
"""By task. Control maps of depth, normals, poses and segments need a model."""


class AlgorithmsBackend(LocalBackend):
    """Runs the algorithms."""

    name = "algorithms"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if the candidate is the algorithm of this task and its library is installed."""
        algorithm = ALGORITHMS.get(spec.name)
        if algorithm is None or algorithm.id != candidate.id:
            return f"{candidate.id} is not an algorithm for {spec.name}"
        if find_spec(algorithm.library) is None:
            return str(MissingExtraError(candidate.id, _EXTRAS[algorithm.library]))
        return None

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """The algorithm, as an expert."""
        return ALGORITHMS[spec.name].run
