"""Reader of Piper voices: text-to-speech.

Raw output: {"audio": float32 array of shape (samples,), "sampling_rate": Hz of the voice}.

piper-tts is under the GPL, version 3: it has its own extra ("starter-tts") and is imported only here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.jobs import is_cancelled
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.settings import Settings

PAUSE = 0.25
"""Seconds of silence between sentences."""

MAX_PHONEMES = 300
"""Most phonemes spoken at once: the memory that they need grows with the square of their number."""

_CUTS = (set(".?!,;:"), {" "})


def load(weights: Path, settings: Settings) -> Expert:
    """The voice in `weights` (an ONNX file, with its configuration beside it)."""
    import onnxruntime
    from piper import PiperConfig, PiperVoice

    # The voice uses random numbers; a session takes the seed when it is created.
    onnxruntime.set_seed(settings.seed)
    # Optimising this graph takes a second, longer than it saves on a page.
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    config = PiperConfig.from_dict(json.loads(Path(f"{weights}.json").read_text(encoding="utf-8")))

    class Voice(PiperVoice):  # type: ignore[misc]
        def phonemize(self, text: str) -> list[list[str]]:
            known = self.config.phoneme_id_map
            sentences = ([one for one in each if one in known] for each in super().phonemize(text))
            return [part for sentence in sentences for part in cut_phonemes(sentence)]

    voice = Voice(session, config)

    def expert(call: Call) -> dict[str, Any]:
        import numpy as np

        # Piper interprets text in double brackets as phonemes.
        text = " ".join(re.sub(r"\[(?=\[)", "[ ", call.inputs["text"]).split())
        # Sentences are synthesised lazily.
        sentences = takewhile(lambda _: not is_cancelled(), voice.synthesize(text))
        spoken = [chunk.audio_float_array for chunk in sentences]
        if not spoken:
            raise BadInputError("there is nothing to speak: the text has no words")
        rate = voice.config.sample_rate
        pause = np.zeros(int(PAUSE * rate), np.float32)
        pieces = [piece for sentence in spoken for piece in (sentence, pause)][:-1]
        return {"audio": np.concatenate(pieces).astype(np.float32), "sampling_rate": rate}

    return expert


def cut_phonemes(sentence: Sequence[str], most: int = MAX_PHONEMES) -> Iterator[list[str]]:
    """Parts of at most `most` phonemes, cut after punctuation, else after a space, else anywhere."""
    start = 0
    while len(sentence) - start > most:
        window = sentence[start : start + most]
        ends = (max((n for n, one in enumerate(window, 1) if one in marks), default=0) for marks in _CUTS)
        end = next(filter(None, ends), most)
        yield list(window[:end])
        start += end
    yield list(sentence[start:])
