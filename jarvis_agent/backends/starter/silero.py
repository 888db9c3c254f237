"""Reader of Silero VAD with onnxruntime: voice-activity-detection.

Raw output: [{"start": float, "end": float}], the segments of speech in seconds.

The package is not imported, since that limits torch to one thread in the whole process. Its ONNX file is
read, and its segmentation rule (hysteresis on the probability of speech) is implemented here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.core.settings import Settings
from jarvis_agent.media.audio import read_audio

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RATE = 16_000
FRAME = 512
CONTEXT = 64
BLOCK = 512

STARTS, ENDS = 0.5, 0.35
SHORTEST, PAUSE, MARGIN = 0.25, 0.1, 0.03
"""Seconds: the shortest segment, the pause that ends one, and the margin added around it."""


def load(weights: Path, settings: Settings) -> Expert:
    """The model; it has no state between calls."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])

    def expert(call: Call) -> list[dict[str, float]]:
        samples = read_audio(call.inputs["audio"].path, RATE)
        return speech_segments(_probabilities(session, samples), len(samples) / RATE)

    return expert


def speech_segments(probabilities: Iterable[float], seconds: float) -> list[dict[str, float]]:
    """Segments of speech, from the probability of speech in each frame of 32 ms.

    A segment starts at a probability of 0.5, ends at a pause of 0.1 s below 0.35, and lasts at least 0.25 s.
    `seconds` is the length of the recording.
    """
    found: list[dict[str, float]] = []
    for start, end in _spoken(probabilities, seconds):
        if end - start < SHORTEST:
            continue
        before = found[-1]["end"] if found else 0.0
        found.append({"start": max(start - MARGIN, before), "end": min(end + MARGIN, seconds)})
    return [{side: round(at, 3) for side, at in segment.items()} for segment in found]


def _spoken(probabilities: Iterable[float], seconds: float) -> Iterator[tuple[float, float]]:
    start = silent_since = None
    for number, probability in enumerate(probabilities):
        now = number * FRAME / RATE
        if probability >= STARTS:
            start, silent_since = (now if start is None else start), None
        elif start is not None and probability < ENDS:
            silent_since = now if silent_since is None else silent_since
            if now - silent_since >= PAUSE:
                yield start, silent_since
                start = silent_since = None
    if start is not None:
        yield start, seconds


def _probabilities(session: Any, samples: NDArray[np.float32]) -> list[float]:
    """The probability of speech in each frame. The network also gets the end of the previous frame."""
    import numpy as np

    count = -(-len(samples) // FRAME)
    frames = np.zeros((count, CONTEXT + FRAME), np.float32)
    frames[:, CONTEXT:] = np.pad(samples, (0, count * FRAME - len(samples))).reshape(count, FRAME)
    frames[1:, :CONTEXT] = frames[:-1, -CONTEXT:]
    hidden = cell = np.zeros((1, 1, 128), np.float32)
    found: list[float] = []
    for first in range(0, count, BLOCK):
        inputs = {"input": frames[first : first + BLOCK], "h": hidden, "c": cell}
        values, hidden, cell = session.run(["speech_probs", "hn", "cn"], inputs)
        found.extend(values.ravel().tolist())
    return found
