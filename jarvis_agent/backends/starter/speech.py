"""Starter models for speech: Hibari speaks, Whisper transcribes, Silero finds it, GTCRN cleans it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert, split_text
from jarvis_agent.backends.jobs import add_note, until_cancelled
from jarvis_agent.backends.languages import find_language, language_of_script
from jarvis_agent.backends.starter.backend import STARTERS, fetch_weights, load_session
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings

_LONG = re.compile(r"(\d{15}|\S{60})(?=\S)")
"""Numbers that the voice has no name for, and words that would take it minutes."""


def load_voice(weights: Path, settings: Settings) -> Expert:
    """The voice Hibari: text-to-speech. Its package reads the other files beside `weights` itself."""
    from hibari import Hibari

    voice = Hibari(model=str(weights))
    _ = voice.g2p.oov  # it would be read at the first unknown word, long after the files were checked

    def expert(call: Call) -> dict[str, Any]:
        import numpy as np

        # Hibari takes what follows a text in brackets, as in a link of Markdown, for its phonemes.
        text = " ".join(_LONG.sub(r"\1 ", call.inputs["text"].replace("](", "] (")).split())
        if (code := language_of_script(text)) != "en":
            language = find_language(code)
            name = "another language" if language is None else language.name
            english = "the voice speaks English alone, and the text is in {language}"
            raise UnsupportedError(english, language=name)
        if any(letter.isalpha() and not letter.isascii() for letter in text):
            add_note(Note("the voice speaks English alone; other languages sound wrong"))
        # Of marks alone it would make a short noise.
        sentences = voice.phonemize(text) if any(letter.isalnum() for letter in text) else []
        if not sentences:
            raise BadInputError("there is nothing to speak: the text has no words")
        # The memory that phonemes need grows with their number.
        parts = (part for sentence in sentences for part in split_text(sentence, 300, len))
        spoken = [voice.from_phonemes(part, seed=settings.seed) for part in until_cancelled(parts)]
        return {"audio": np.concatenate(spoken), "sampling_rate": voice.sample_rate}

    return expert


SPEECH_RATE = 16_000
"""Hz of the samples that Whisper and Silero take."""

LEAST_LOGPROB, MOST_COMPRESSION = -0.8, 2.4
"""Of a segment that was understood; Whisper's own limits are -1 and 2.4.

All of 15 synthetic recordings in 11 other languages are beyond them; of 28 in English, one that was misheard.
"""

MAX_SAMPLES = 600 * SPEECH_RATE
"""Samples transcribed at once at most: an hour at once needs 3 GB."""


def load_transcriber(weights: Path, settings: Settings) -> Expert:
    """Whisper for CTranslate2: {text, chunks: [{text, timestamp}]}."""
    from faster_whisper import WhisperModel
    from faster_whisper.vad import get_vad_model

    fetch_weights(STARTERS["silero-vad"], settings)
    get_vad_model()  # the voice filter would be read at the first call, long after it was checked
    names = STARTERS["Systran/faster-whisper-tiny.en"].files.keys() - {weights.name}
    with weights.open("rb") as network:
        # As files in memory: of a folder the library would read others too, unchecked.
        files = {name: weights.with_name(name).read_bytes() for name in names} | {weights.name: network}
        # "int8" is up to 1.7 times as fast, but then words differ between processors.
        model = WhisperModel(str(weights), device="cpu", compute_type="float32", files=files)

    def segments_of(samples: Any) -> Iterator[tuple[str, float, float, bool]]:
        for start, part in recording_parts(samples):
            # A fixed temperature makes transcripts reproducible; the voice filter prevents invented words in
            # silence.
            segments, _ = model.transcribe(
                part, temperature=0.0, vad_filter=True, condition_on_previous_text=False
            )
            for segment in segments:
                is_clear = (
                    segment.avg_logprob > LEAST_LOGPROB and segment.compression_ratio < MOST_COMPRESSION
                )
                yield segment.text.strip(), segment.start + start, segment.end + start, is_clear

    def expert(call: Call) -> dict[str, Any]:
        voices = call.voices(SPEECH_RATE)
        # Segments are transcribed lazily.
        heard = [list(until_cancelled(segments_of(voice))) for voice in voices]
        if not all(is_clear for parts in heard for *_, is_clear in parts):
            call.notes.append(Note("the speech was hard to understand; this model knows English alone"))
        return {
            "text": "\n".join(" ".join(text for text, *_ in parts) for parts in heard if parts),
            "chunks": [
                {"text": text, "timestamp": [start, end]} for parts in heard for text, start, end, _ in parts
            ],
        }

    return expert


def recording_parts(samples: Any) -> Iterator[tuple[float, Any]]:
    """The parts of a recording and the seconds at which they start, cut where it is most quiet."""
    start, frame = 0, SPEECH_RATE // 10
    while len(samples) - start > MAX_SAMPLES:
        earliest = start + MAX_SAMPLES - 10 * SPEECH_RATE
        last = samples[earliest : start + MAX_SAMPLES].reshape(-1, frame)
        end = earliest + int((last**2).sum(axis=1).argmin()) * frame + frame // 2
        yield start / SPEECH_RATE, samples[start:end]
        start = end
    yield start / SPEECH_RATE, samples[start:]


def load_speech_detector(weights: Path, settings: Settings) -> Expert:
    """Silero VAD, which faster-whisper carries: [{start, end}] of speech in seconds."""
    from faster_whisper.vad import VadOptions, get_speech_timestamps, get_vad_model

    get_vad_model()  # it would be read at the first call, long after the file was checked
    # Silero's own defaults; those of faster-whisper join segments for transcription.
    options = VadOptions(min_speech_duration_ms=250, min_silence_duration_ms=100, speech_pad_ms=30)

    def expert(call: Call) -> list[dict[str, float]]:
        stretches = get_speech_timestamps(call.sound(SPEECH_RATE), options)
        return [{side: segment[side] / SPEECH_RATE for side in ("start", "end")} for segment in stretches]

    return expert


HOP = 256
"""Samples between the beginnings of two frames, which are twice as long."""


def load_denoiser(weights: Path, settings: Settings) -> Expert:
    """GTCRN (Rong et al., 2024): noise reduction of speech at 16 kHz, frame by frame."""
    import numpy as np

    network = load_session(weights)
    window = np.sin(np.pi / (2 * HOP) * np.arange(2 * HOP, dtype=np.float32))

    def expert(call: Call) -> dict[str, Any]:
        recording = call.sound(SPEECH_RATE)
        states = {each.name: np.zeros(each.shape, np.float32) for each in network.get_inputs()[1:]}
        noisy = np.zeros(HOP * (2 - -len(recording) // HOP), np.float32)
        noisy[HOP : HOP + len(recording)] = recording
        clean = np.zeros_like(noisy)
        for start in until_cancelled(range(0, len(noisy) - HOP, HOP)):
            frame = slice(start, start + 2 * HOP)
            spectrum = np.fft.rfft(noisy[frame] * window)
            mix = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)[None, :, None]
            output, *after = network.run(None, {"mix": mix, **states})
            states = dict(zip(states, after, strict=True))
            real, imaginary = output[0, :, 0].T
            clean[frame] += np.fft.irfft(real + 1j * imaginary) * window
        return {"audio": clean[HOP : HOP + len(recording)].clip(-1, 1), "sampling_rate": SPEECH_RATE}

    return expert
