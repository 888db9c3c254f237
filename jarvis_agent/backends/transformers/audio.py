"""Audio tasks with transformers: functions of a loaded model and a call that return the raw output."""

from __future__ import annotations

from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import seeded
from jarvis_agent.backends.jobs import add_note
from jarvis_agent.backends.transformers.generation import split_text, stopping
from jarvis_agent.backends.transformers.loading import LoadedModel
from jarvis_agent.backends.transformers.text import MAX_LABELS, text_of
from jarvis_agent.media.audio import read_audio

CHUNK_SECONDS = 30.0
"""Longer recordings are transcribed in chunks of this length."""

CLASSIFIED_SECONDS = 60.0
"""Length that is classified: the memory of some models grows with its square."""

TRANSCRIPT_TOKENS = 440
SPEECH_TOKENS = 150
"""Tokens of text per synthesis; longer texts are split."""

MUSIC_TOKENS = 512
"""Length of generated music; MusicGen makes 50 tokens a second."""


def transcribe(loaded: LoadedModel, call: Call) -> Any:
    """Return {text} of a recording; Whisper adds chunks with times in seconds."""
    sound, seconds = _sound(loaded, call)
    options: dict[str, Any] = {}
    if loaded.model.can_generate():
        longest = min(TRANSCRIPT_TOKENS, getattr(loaded.model.config, "max_target_positions", 448) - 8)
        options["generate_kwargs"] = {"max_new_tokens": longest, "stopping_criteria": stopping()}
    if hasattr(getattr(loaded.model, "generation_config", None), "no_timestamps_token_id"):
        options["return_timestamps"] = True
    elif seconds > CHUNK_SECONDS:
        options["chunk_length_s"] = CHUNK_SECONDS
    return loaded.pipe(sound, **options)


def classify(loaded: LoadedModel, call: Call) -> Any:
    """Return [{label, score}] of the first CLASSIFIED_SECONDS."""
    sound, seconds = _sound(loaded, call)
    if seconds > CLASSIFIED_SECONDS:
        sound["raw"] = sound["raw"][: int(CLASSIFIED_SECONDS * sound["sampling_rate"])]
        add_note(f"only the first {CLASSIFIED_SECONDS:.0f} seconds were classified")
    return loaded.pipe(sound, top_k=MAX_LABELS)


def _sound(loaded: LoadedModel, call: Call) -> tuple[dict[str, Any], float]:
    """Return the recording at the model's sampling rate, and its length in seconds."""
    rate = loaded.parts["feature_extractor"].sampling_rate
    samples = read_audio(call.inputs["audio"].path, rate)
    return {"raw": samples, "sampling_rate": rate}, len(samples) / rate


def synthesize(loaded: LoadedModel, call: Call) -> dict[str, Any]:
    """Return {audio, sampling_rate}; a long text is spoken piece by piece until the call is cancelled."""
    import numpy as np

    options: dict[str, Any] = {}
    if loaded.model.config.model_type == "bark":  # each of its stages generates
        stages = ("semantic", "coarse")
        options["generate_kwargs"] = {f"{stage}_stopping_criteria": stopping() for stage in stages}
    with seeded(call.settings.seed):
        pieces = split_text(text_of(call), loaded, SPEECH_TOKENS)
        outputs = [loaded.pipe(piece, **options) for piece in pieces]
    sounds = [np.asarray(output["audio"], dtype=np.float32).reshape(-1) for output in outputs]
    return {"audio": np.concatenate(sounds), "sampling_rate": int(outputs[0]["sampling_rate"])}


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
