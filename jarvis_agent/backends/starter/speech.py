"""Starter models for speech: Piper speaks, Whisper transcribes, Silero finds it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.jobs import add_note, is_cancelled
from jarvis_agent.backends.starter.backend import STARTERS, fetch_weights
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.languages import find_language, language_of_script
from jarvis_agent.core.settings import Settings

PAUSE = 0.25
"""Seconds of silence between sentences."""

MAX_PHONEMES = 300
"""Most phonemes spoken at once: the memory that they need grows with the square of their number."""

_CUTS = (set(".?!,;:"), {" "})


def load_voice(weights: Path, settings: Settings) -> Expert:
    """A Piper voice: text-to-speech, from an ONNX file with its configuration beside it.

    Raw output: {"audio": float32 array of shape (samples,), "sampling_rate": Hz of the voice}.

    piper-tts is under the GPL, version 3: it has its own extra ("starter-tts") and is imported only here.
    """
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
            sentences = ([symbol for symbol in each if symbol in known] for each in super().phonemize(text))
            return [part for sentence in sentences for part in cut_phonemes(sentence)]

    voice = Voice(session, config)

    def expert(call: Call) -> dict[str, Any]:
        import numpy as np

        # Piper interprets text in double brackets as phonemes.
        text = " ".join(re.sub(r"\[(?=\[)", "[ ", call.inputs["text"]).split())
        if (code := language_of_script(text)) != "en":
            language = find_language(code)
            name = "another language" if language is None else language.name
            raise UnsupportedError(f"the voice speaks English alone, and the text is in {name}")
        if any(letter.isalpha() and not letter.isascii() for letter in text):
            add_note("the voice speaks English alone; other languages sound wrong")
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
        end = most
        for marks in _CUTS:
            if places := [place for place, phoneme in enumerate(window, 1) if phoneme in marks]:
                end = places[-1]
                break
        yield list(window[:end])
        start += end
    yield list(sentence[start:])


SPEECH_RATE = 16_000
"""Hz of the samples that Whisper and Silero take."""

MAX_SAMPLES = 600 * SPEECH_RATE
"""Samples transcribed at once at most: an hour at once needs 3 GB."""


def load_transcriber(weights: Path, settings: Settings) -> Expert:
    """Whisper for CTranslate2: automatic-speech-recognition, with 8-bit arithmetic on the CPU.

    Raw output: {"text": str, "chunks": [{"text": str, "timestamp": [start, end]}]}, times in seconds.
    """
    from faster_whisper import WhisperModel

    fetch_weights(STARTERS["silero-vad"], settings)  # the voice filter, which the library loads itself
    names = [file.name for file in STARTERS["Systran/faster-whisper-tiny.en"].files[1:]]
    with weights.open("rb") as network:
        # As files in memory: of a folder the library would read others too, which nobody has checked.
        files = {name: weights.with_name(name).read_bytes() for name in names} | {weights.name: network}
        model = WhisperModel(str(weights), device="cpu", compute_type="int8", files=files)

    def segments_of(samples: Any) -> Iterator[tuple[str, float, float]]:
        for start, part in recording_parts(samples):
            # A fixed temperature makes transcripts reproducible; the voice filter prevents invented words in
            # silence.
            segments, _ = model.transcribe(
                part, temperature=0.0, vad_filter=True, condition_on_previous_text=False
            )
            for segment in segments:
                yield segment.text.strip(), segment.start + start, segment.end + start

    def expert(call: Call) -> dict[str, Any]:
        voices = call.voices(SPEECH_RATE)
        # Segments are transcribed lazily.
        heard = [list(takewhile(lambda _: not is_cancelled(), segments_of(voice))) for voice in voices]
        return {
            "text": "\n".join(" ".join(text for text, _, _ in one) for one in heard if one),
            "chunks": [
                {"text": text, "timestamp": [start, end]} for one in heard for text, start, end in one
            ],
        }

    return expert


def recording_parts(samples: Any) -> Iterator[tuple[float, Any]]:
    """The parts of a recording with the second at which each starts, cut where it is most quiet.

    A cut lies in the last ten seconds of `MAX_SAMPLES`.
    """
    start, frame = 0, SPEECH_RATE // 10
    while len(samples) - start > MAX_SAMPLES:
        earliest = start + MAX_SAMPLES - 10 * SPEECH_RATE
        last = samples[earliest : start + MAX_SAMPLES].reshape(-1, frame)
        end = earliest + int((last**2).sum(axis=1).argmin()) * frame + frame // 2
        yield start / SPEECH_RATE, samples[start:end]
        start = end
    yield start / SPEECH_RATE, samples[start:]


def load_speech_detector(weights: Path, settings: Settings) -> Expert:
    """Silero VAD: voice-activity-detection. faster-whisper, which carries it, loads it at the first call.

    Raw output: [{"start": float, "end": float}], the segments of speech in seconds.
    """
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    # Silero's own defaults; those of faster-whisper join segments for transcription.
    options = VadOptions(min_speech_duration_ms=250, min_silence_duration_ms=100, speech_pad_ms=30)

    def expert(call: Call) -> list[dict[str, float]]:
        stretches = get_speech_timestamps(call.sound(SPEECH_RATE), options)
        return [{side: segment[side] / SPEECH_RATE for side in ("start", "end")} for segment in stretches]

    return expert
