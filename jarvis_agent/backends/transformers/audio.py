"""Tasks on sound with transformers: functions of a loaded model and a call that give the raw output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import seeded
from jarvis_agent.backends.hub.snapshot import model_folder
from jarvis_agent.backends.pool import is_cancelled
from jarvis_agent.backends.transformers.generation import pieces, stopping
from jarvis_agent.backends.transformers.loading import LOADING, Loaded
from jarvis_agent.backends.transformers.text import BEST, text_of
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.files import read_audio

LONG = 30.0
"""Seconds of sound beyond which it is heard in pieces."""

TRANSCRIPT_TOKENS = 440
SPOKEN_TOKENS = 150
"""Tokens of text that are spoken at once; longer texts are spoken sentence by sentence."""

SOUND_TOKENS = 512
"""Tokens of music that are made; MusicGen hears 50 of them in a second."""

VOCODER = "microsoft/speecht5_hifigan"


def transcribe(loaded: Loaded, call: Call) -> Any:
    """{text, chunks} from a model that writes what it hears (Whisper); chunks have times in seconds."""
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
    elif seconds > LONG:
        options["chunk_length_s"] = LONG
    return loaded.pipe(sound, **options)


def transcribe_by_frames(loaded: Loaded, call: Call) -> Any:
    """{text} from a model that names the letter of each moment (Wav2Vec2 with CTC)."""
    sound, seconds = _sound(loaded, call)
    return loaded.pipe(sound, **({"chunk_length_s": LONG} if seconds > LONG else {}))


def classify(loaded: Loaded, call: Call) -> Any:
    """[{label, score}]."""
    return loaded.pipe(_sound(loaded, call)[0], top_k=BEST)


def _sound(loaded: Loaded, call: Call) -> tuple[dict[str, Any], float]:
    """The sound at the rate that the model hears, and its length in seconds."""
    rate = loaded.parts["feature_extractor"].sampling_rate
    samples = read_audio(call.inputs["audio"].path, rate)
    return {"raw": samples, "sampling_rate": rate}, len(samples) / rate


def speak(loaded: Loaded, call: Call) -> dict[str, Any]:
    """{audio, sampling_rate}; a long text is spoken in pieces."""
    return _in_pieces(loaded, call, lambda piece: _heard(loaded.pipe(piece)))


def speak_in_stages(loaded: Loaded, call: Call) -> dict[str, Any]:
    """As `speak`, with Bark, which writes tokens of meaning, then of sound: either ends with the call."""
    stops = {f"{stage}_stopping_criteria": stopping() for stage in ("semantic", "coarse")}
    return _in_pieces(loaded, call, lambda piece: _heard(loaded.pipe(piece, generate_kwargs=stops)))


def compose(loaded: Loaded, call: Call) -> dict[str, Any]:
    """{audio, sampling_rate}: music from a description of it (MusicGen), with chance from the settings' seed.

    The length is that of SOUND_TOKENS, unless the model's description says otherwise (`max_new_tokens`).
    """
    import torch

    batch = loaded.tokenizer(text_of(call), return_tensors="pt")
    wanted = {"max_new_tokens": SOUND_TOKENS, **loaded.options}
    with seeded(call.settings.seed), torch.inference_mode():
        sound = loaded.model.generate(**loaded.inputs(batch), stopping_criteria=stopping(), **wanted)
    return {
        "audio": sound[0].float().mean(dim=0).cpu().numpy(),
        "sampling_rate": loaded.model.config.audio_encoder.sampling_rate,
    }


def _heard(spoken: Mapping[str, Any]) -> tuple[Any, int]:
    return spoken["audio"], int(spoken["sampling_rate"])


def speak_with_voice(loaded: Loaded, call: Call) -> dict[str, Any]:
    """As `speak`, with SpeechT5: a speaker's voice and a vocoder are needed beside the model."""
    import torch

    model, vocoder = loaded.model, loaded.extras["vocoder"]
    vocoder.to(model.device, model.dtype)
    voice = torch.tensor(loaded.extras["voice"], dtype=model.dtype, device=model.device).reshape(1, -1)

    def say(piece: str) -> tuple[Any, int]:
        ids = loaded.tokenizer(piece, return_tensors="pt").input_ids.to(model.device)
        with torch.inference_mode():
            sound = model.generate_speech(ids, voice, vocoder=vocoder)
        return sound.float().cpu(), vocoder.config.sampling_rate

    return _in_pieces(loaded, call, say)


def _in_pieces(loaded: Loaded, call: Call, say: Callable[[str], tuple[Any, int]]) -> dict[str, Any]:
    import numpy as np

    spoken: list[tuple[Any, int]] = []
    with seeded(call.settings.seed):
        for piece in pieces(text_of(call), loaded, SPOKEN_TOKENS):
            if spoken and is_cancelled():
                break
            spoken.append(say(piece))
    sounds = [np.asarray(sound, dtype=np.float32).reshape(-1) for sound, _ in spoken]
    return {"audio": np.concatenate(sounds), "sampling_rate": spoken[0][1]}


def voice_of(candidate: Candidate, settings: Settings) -> Mapping[str, Any]:
    """What SpeechT5 needs beside its weights: a speaker's voice, which the candidate's metadata must name,
    and the vocoder that makes sound of its spectrograms.

    Raises:
        UnsupportedError: no voice is named, or the vocoder is not to be had.
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
