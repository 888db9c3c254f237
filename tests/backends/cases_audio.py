"""Cases for tests/test_every_task.py: audio."""

from __future__ import annotations

import wave

import tiny_audio
from task_case import Artifact, Case, files

from jarvis_agent.media.files import read_audio

SPEECH = {"audio": "@speech"}
SOUND = {"audio": "@tone"}
SAID = {"text": "The cat is in Paris."}
SHORT = {"metadata": {"options": {"max_new_tokens": 20}}}


def has_sound(artifact: Artifact) -> None:
    """One WAV file with the rate and the length that the output tells."""
    (path,) = files(artifact, "audio")
    with wave.open(str(path)) as heard:
        rate, length = heard.getframerate(), heard.getnframes()
    assert length > 0
    assert artifact["output"]["sampling_rate"] == rate
    assert abs(artifact["output"]["duration"] - length / rate) < 0.01


def has_speech(artifact: Artifact) -> None:
    """A sound that is loud enough to be heard, and as long as a few words are."""
    has_sound(artifact)
    (path,) = files(artifact, "audio")
    samples = read_audio(path, 16_000)
    assert abs(samples).max() > 0.05
    assert 0.5 < len(samples) / 16_000 < 20


def has_what_is_said(artifact: Artifact) -> None:
    """Words of the recording, from a model that can hear."""
    assert "John" in artifact["output"]["text"]


def has_speech_times(artifact: Artifact) -> None:
    """Times at which somebody speaks; in a recording of speech that is most of the time."""
    found = artifact["output"]
    assert found
    assert all(row["start"] < row["end"] for row in found)
    assert sum(row["end"] - row["start"] for row in found) > 2


def has_transcript(artifact: Artifact) -> None:
    """A text; what a model without knowledge hears need not be a word."""
    assert isinstance(artifact["output"]["text"], str)


def has_labels(artifact: Artifact) -> None:
    """The labels of the model, the likeliest first."""
    scores = [row["score"] for row in artifact["output"]]
    assert {row["label"] for row in artifact["output"]} == {"first", "second", "third"}
    assert scores == sorted(scores, reverse=True)


CASES: list[Case] = [
    Case("text-to-speech", SAID, has_speech),
    Case("text-to-speech", SAID, has_sound, tiny_audio.vits),
    Case("text-to-speech", SAID, has_sound, tiny_audio.bark),
    Case("text-to-audio", SAID, has_sound, tiny_audio.musicgen, SHORT),
    Case("text-to-audio", SAID, has_sound, tiny_audio.bark),
    Case("automatic-speech-recognition", SPEECH, has_what_is_said),
    Case("automatic-speech-recognition", SOUND, has_transcript, tiny_audio.whisper),
    Case("automatic-speech-recognition", SOUND, has_transcript, tiny_audio.wav2vec2_ctc),
    Case("audio-classification", SOUND, has_labels, tiny_audio.wav2vec2_classifier),
    Case("audio-to-audio", SOUND, has_sound),
    Case("voice-activity-detection", SPEECH, has_speech_times),
]
