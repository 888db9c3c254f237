"""Reader of Silero VAD, which faster-whisper carries: voice-activity-detection.

Raw output: [{"start": float, "end": float}], the segments of speech in seconds.
"""

from __future__ import annotations

from pathlib import Path

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.core.settings import Settings
from jarvis_agent.media.audio import read_audio

RATE = 16_000


def load(weights: Path, settings: Settings) -> Expert:
    """The model; faster-whisper loads its weights at the first call."""
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    # Silero's own defaults; those of faster-whisper join segments for transcription.
    options = VadOptions(min_speech_duration_ms=250, min_silence_duration_ms=100, speech_pad_ms=30)

    def expert(call: Call) -> list[dict[str, float]]:
        found = get_speech_timestamps(read_audio(call.inputs["audio"].path, RATE), options)
        return [{side: segment[side] / RATE for side in ("start", "end")} for segment in found]

    return expert
