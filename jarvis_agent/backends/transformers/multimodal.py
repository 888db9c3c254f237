"""Models that read images, videos and recordings together with text: replies, captions, visual questions.

    reply(loaded, call)     # "A cat sleeps on a sofa."

Notes:
- A video is shown as some of its frames with their times, which every model for several images understands.
- A recording longer than the model hears at once is split into consecutive parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.generation import Content, chat, decode, generate, is_chat_model
from jarvis_agent.backends.transformers.loading import LoadedModel
from jarvis_agent.backends.transformers.text import text_of, top_labels
from jarvis_agent.backends.transformers.vision import image_of
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.media.audio import read_audio
from jarvis_agent.media.video import spread_frames

REPLY_TOKENS = 512
CAPTION_TOKENS = 60
READ_TOKENS = 512
ANSWER_TOKENS = 60

FRAMES = 8
"""Frames of a video that a model is shown."""

FRAME_SIDE = 512
"""Longest side of a frame in pixels: a frame costs as many tokens as an image."""

_NO_TILES = {"do_image_splitting": False, "crop_to_patches": False}
"""Settings with which image processors do not cut an image into tiles."""


def reply(loaded: LoadedModel, call: Call) -> str:
    """Return a chat model's reply to a text with the image, video and recording of the call."""
    return _reply(loaded, call, text_of(call), REPLY_TOKENS)


def _reply(loaded: LoadedModel, call: Call, text: str, max_new_tokens: int) -> str:
    if not is_chat_model(loaded):
        raise UnsupportedError(f"{loaded.id} is not a chat model, so it cannot be asked about anything")
    media = [part for name, show in _SHOW.items() if call.inputs.get(name) for part in show(loaded, call)]
    eye = getattr(loaded.processor, "image_processor", None) if call.inputs.get("video") else None
    settings = {name: off for name, off in _NO_TILES.items() if hasattr(eye, name)}
    return chat(loaded, [*media, {"type": "text", "text": text}], max_new_tokens, settings)


def reply_or_continue(loaded: LoadedModel, call: Call) -> str:
    """Return a chat model's reply, or another model's continuation of the text (BLIP, Florence)."""
    if is_chat_model(loaded):
        return reply(loaded, call)
    batch = loaded.processor(images=image_of(call), text=text_of(call), return_tensors="pt")
    return decode(loaded, generate(loaded, batch, max_new_tokens=REPLY_TOKENS))


def _show_image(loaded: LoadedModel, call: Call) -> Iterator[Content]:
    _require(loaded, "image_processor", "see images")
    yield {"type": "image", "image": image_of(call)}


def _show_video(loaded: LoadedModel, call: Call) -> Iterator[Content]:
    _require(loaded, "image_processor", "see images")
    frames = spread_frames(call.inputs["video"].path, FRAMES)
    yield {"type": "text", "text": f"{len(frames)} frames of a video, in their order:\n"}
    for seconds, image in frames:
        yield {"type": "text", "text": f"{seconds:.1f} s: "}
        image.thumbnail((FRAME_SIDE, FRAME_SIDE))
        yield {"type": "image", "image": image}
    yield {"type": "text", "text": "\n"}


def _play_audio(loaded: LoadedModel, call: Call) -> Iterator[Content]:
    ear = _require(loaded, "feature_extractor", "hear recordings")
    samples = read_audio(call.inputs["audio"].path, ear.sampling_rate)
    length = int(getattr(ear, "chunk_length", None) or 0) * ear.sampling_rate or len(samples)
    for start in range(0, len(samples), length):
        yield {"type": "audio", "audio": samples[start : start + length]}


_SHOW: dict[str, Callable[[LoadedModel, Call], Iterator[Content]]] = {
    "image": _show_image,
    "video": _show_video,
    "audio": _play_audio,
}
"""Argument → function that turns it into parts of a chat message."""


def _require(loaded: LoadedModel, part: str, ability: str) -> Any:
    found = getattr(loaded.processor, part, None)
    if found is None:
        raise UnsupportedError(f"{loaded.id} cannot {ability}")
    return found


def caption(loaded: LoadedModel, call: Call) -> str:
    """Return a description of an image, or its text if `hints["ocr"]`."""
    reads = bool(call.hints.get("ocr"))
    limit = READ_TOKENS if reads else CAPTION_TOKENS
    if is_chat_model(loaded):
        asked = str(call.inputs.get("text") or "Describe this image in one sentence.")
        return _reply(loaded, call, "Write out all the text in this image." if reads else asked, limit)
    batch = loaded.processor(images=image_of(call), return_tensors="pt")
    return decode(loaded, generate(loaded, batch, max_new_tokens=limit))


def caption_with_decoder(loaded: LoadedModel, call: Call) -> str:
    """Return a caption from an image encoder with a text decoder (ViT-GPT2), or a line of text (TrOCR)."""
    batch = loaded.parts["image_processor"](images=image_of(call), return_tensors="pt")
    pixels = {"pixel_values": batch["pixel_values"]}
    return decode(loaded, generate(loaded, pixels, max_new_tokens=CAPTION_TOKENS))


def answer_question(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{answer, score}] from a classifier (ViLT), or [{answer}] from a generative model (BLIP)."""
    batch = loaded.processor(images=image_of(call), text=text_of(call), truncation=True, return_tensors="pt")
    if loaded.model.can_generate():
        return [{"answer": decode(loaded, generate(loaded, batch, max_new_tokens=ANSWER_TOKENS))}]
    scores = loaded.forward(batch).logits[0].float().sigmoid().cpu()
    return top_labels(scores, loaded.model.config, "answer")


def answer_by_chat(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{answer}] from a chat model that sees images."""
    return [{"answer": _reply(loaded, call, text_of(call), ANSWER_TOKENS)}]
