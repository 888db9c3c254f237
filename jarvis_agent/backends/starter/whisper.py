"""Reader of faster-whisper (CTranslate2) weights: automatic-speech-recognition.

Raw output: {"text": str, "chunks": [{"text": str, "timestamp": [start, end]}]}, times in seconds.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.jobs import is_cancelled
from jarvis_agent.core.settings import Settings
from jarvis_agent.media.audio import read_audio

RATE = 16_000


def load(weights: Path, settings: Settings) -> Expert:
    """The model in the directory of `weights`, with 8-bit arithmetic on the CPU."""
    from faster_whisper import WhisperModel

    model = WhisperModel(str(weights.parent), device="cpu", compute_type="int8", local_files_only=True)

    def expert(call: Call) -> dict[str, Any]:
        # A fixed temperature makes transcripts reproducible; the voice filter prevents invented words in
        # silence.
        segments, _ = model.transcribe(
            read_audio(call.inputs["audio"].path, RATE),
            temperature=0.0,
            vad_filter=True,
            condition_on_previous_text=False,
        )
        # Segments are transcribed lazily.
        heard = takewhile(lambda _: not is_cancelled(), segments)
        found = [(s.text.strip(), s.start, s.end) for s in heard]
        return {
            "text": " ".join(text for text, _, _ in found),
            "chunks": [{"text": text, "timestamp": [start, end]} for text, start, end in found],
        }

    return expert
