"""Audio tasks with transformers: functions of a loaded model and a call that return the raw output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import seeded
from jarvis_agent.backends.hub.snapshot import model_folder
from jarvis_agent.backends.jobs import is_cancelled
from jarvis_agent.backends.transformers.generation import split_text, stopping
from jarvis_agent.backends.transformers.loading import LOADING, LoadedModel
from jarvis_agent.backends.transformers.text import MAX_LABELS, text_of
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.audio import read_audio

CHUNK_SECONDS = 30.0
"""Longer recordings are transcribed in chunks of this length."""

TRANSCRIPT_TOKENS = 440
SPEECH_TOKENS = 150
"""Tokens of text per synthesis; longer texts are split."""

MUSIC_TOKENS = 512
"""Length of generated music; MusicGen makes 50 tokens a second."""

VOCODER = "microsoft/speecht5_hifigan"

Synthesis = tuple[Any, int]
"""Samples and their rate in Hz."""


def transcribe(loaded: LoadedModel, call: Call) -> Any:
    """Return {text, chunks} from a sequence-to-sequence model (Whisper); chunks have times in seconds."""
    sound, seconds = _sound(loaded, call)
    longest = getattr(loaded.model.config, "max_target_positions", 448) - 8
    options: dict[str, Any] = {
        "generate_kwargs": {
            "max_new_tokens": min(TRANSCRIPT_TOKENS, longest),
            "stopping_criteria": stopping(),
        }
    }
    if hasattr(loaded.model.generation_config, "no_timestamps_token_id"):
        options["return_timestamps"] = True
    elif seconds > CHUNK_SECONDS:
        options["chunk_length_s"] = CHUNK_SECONDS
    return loaded.pipe(sound, **options)


def transcribe_ctc(loaded: LoadedModel, call: Call) -> Any:
    """Return {text} from a CTC model (Wav2Vec2)."""
    sound, seconds = _sound(loaded, call)
    return loaded.pipe(sound, **({"chunk_length_s": CHUNK_SECONDS} if seconds > CHUNK_SECONDS else {}))


def classify(loaded: LoadedModel, call: Call) -> Any:
    """Return [{label, score}]."""
    return loaded.pipe(_sound(loaded, call)[0], top_k=MAX_LABELS)


def _sound(loaded: LoadedModel, call: Call) -> tuple[dict[str, Any], float]:
    """Return the recording at the model's sampling rate, and its length in seconds."""
    rate = loaded.parts["feature_extractor"].sampling_rate
    samples = read_audio(call.inputs["audio"].path, rate)
    return {"raw": samples, "sampling_rate": rate}, len(samples) / rate


def synthesize(loaded: LoadedModel, call: Call) -> dict[str, Any]:
    """Return {audio, sampling_rate}; a long text is spoken piece by piece."""
    options: dict[str, Any] = {}
    if loaded.model.config.model_type == "bark":  # each of its stages generates
        stages = ("semantic", "coarse")
        options["generate_kwargs"] = {f"{stage}_stopping_criteria": stopping() for stage in stages}

    def say(piece: str) -> Synthesis:
        output = loaded.pipe(piece, **options)
        return output["audio"], int(output["sampling_rate"])

    return _speak(loaded, call, say)


def synthesize_with_voice(loaded: LoadedModel, call: Call) -> dict[str, Any]:
    """Return the result of `synthesize` with SpeechT5, which needs a speaker's voice and a vocoder."""
    import torch

    model, vocoder = loaded.model, loaded.extras["vocoder"]
    vocoder.to(model.device, model.dtype)
    voice = torch.tensor(loaded.extras["voice"], dtype=model.dtype, device=model.device).reshape(1, -1)

    def say(piece: str) -> Synthesis:
        ids = loaded.tokenizer(piece, return_tensors="pt").input_ids.to(model.device)
        with torch.inference_mode():
            sound = model.generate_speech(ids, voice, vocoder=vocoder)
        return sound.float().cpu(), vocoder.config.sampling_rate

    return _speak(loaded, call, say)


def generate_music(loaded: LoadedModel, call: Call) -> dict[str, Any]:
    """Return {audio, sampling_rate}: music from a description (MusicGen), sampled with the settings' seed.

    The length is MUSIC_TOKENS unless `LoadedModel.options` has `max_new_tokens`.
    """
    import torch

    batch = loaded.tokenizer(text_of(call), return_tensors="pt")
    wanted = {"max_new_tokens": MUSIC_TOKENS, **loaded.options}
    with seeded(call.settings.seed), torch.inference_mode():
        sound = loaded.model.generate(**loaded.inputs(batch), stopping_criteria=stopping(), **wanted)
    return {
        "audio": sound[0].float().mean(dim=0).cpu().numpy(),
        "sampling_rate": loaded.model.config.audio_encoder.sampling_rate,
    }


def _speak(loaded: LoadedModel, call: Call, say: Callable[[str], Synthesis]) -> dict[str, Any]:
    """Join the synthesised pieces of the call's text; stop early if the call is cancelled."""
    import numpy as np

    made: list[Synthesis] = []
    with seeded(call.settings.seed):
        for piece in split_text(text_of(call), loaded, SPEECH_TOKENS):
            if made and is_cancelled():
                break
            made.append(say(piece))
    sounds = [np.asarray(sound, dtype=np.float32).reshape(-1) for sound, _ in made]
    return {"audio": np.concatenate(sounds), "sampling_rate": made[0][1]}


def load_voice(candidate: Candidate, settings: Settings) -> Mapping[str, Any]:
    """Return {voice, vocoder}: what SpeechT5 needs beside its weights.

    The candidate's metadata must name the voice, and may name the vocoder.

    Raises:
        UnsupportedError: no voice is named, or the vocoder is not available.
    """
    import numpy as np
    from transformers import SpeechT5HifiGan

    path = candidate.metadata.get("voice")
    if path is None:
        raise UnsupportedError(
            f"{candidate.id} needs a speaker's voice (an x-vector of 512 numbers in a .npy file): "
            'register it with metadata={"voice": "speaker.npy"}'
        )
    vocoder = Candidate(
        id=VOCODER, task=candidate.task, local=settings.offline, path=candidate.metadata.get("vocoder")
    )
    folder = model_folder(vocoder, settings)
    with LOADING:
        made = SpeechT5HifiGan.from_pretrained(folder).eval()
    return {"voice": np.load(Path(path), allow_pickle=False), "vocoder": made}
