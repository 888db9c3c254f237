"""Reader of faster-whisper (CTranslate2) weights: automatic-speech-recognition.

Raw output: {"text": str, "chunks": [{"text": str, "timestamp": [start, end]}]}, times in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.jobs import is_cancelled
from jarvis_agent.core.settings import Settings
from jarvis_agent.media.audio import read_audio

RATE = 16_000

PART = 600 * RATE
"""Samples transcribed at once at most: an hour at once needs 3 GB."""


def load(weights: Path, settings: Settings) -> Expert:
    """The model in the directory of `weights`, with 8-bit arithmetic on the CPU."""
    from faster_whisper import WhisperModel

    model = WhisperModel(str(weights.parent), device="cpu", compute_type="int8", local_files_only=True)

    def segments_of(samples: Any) -> Iterator[tuple[str, float, float]]:
        for start, part in parts(samples):
            # A fixed temperature makes transcripts reproducible; the voice filter prevents invented words in
            # silence.
            segments, _ = model.transcribe(
                part, temperature=0.0, vad_filter=True, condition_on_previous_text=False
            )
            for segment in segments:
                yield segment.text.strip(), segment.start + start, segment.end + start

    def expert(call: Call) -> dict[str, Any]:
        # Segments are transcribed lazily.
        segments = segments_of(read_audio(call.inputs["audio"].path, RATE))
        found = list(takewhile(lambda _: not is_cancelled(), segments))
        return {
            "text": " ".join(text for text, _, _ in found),
            "chunks": [{"text": text, "timestamp": [start, end]} for text, start, end in found],
        }

    return expert


def parts(samples: Any) -> Iterator[tuple[float, Any]]:
    """The parts of a recording with the second at which each starts, cut where it is most quiet.

    A cut lies in the last ten seconds of `PART`.
    """
    start, frame = 0, RATE // 10
    while len(samples) - start > PART:
        last = samples[start + PART - 10 * RATE : start + PART].reshape(-1, frame)
        end = start + PART - 10 * RATE + int((last**2).sum(axis=1).argmin()) * frame + frame // 2
        yield start / RATE, samples[start:end]
        start = end
    yield start / RATE, samples[start:]
