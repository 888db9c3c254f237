"""Chat models of transformers that see and hear: one function for every task that asks them something.

    reply(loaded, call)     # "A cat sleeps on a sofa.", to a text with an image, a video, a recording, or all

A video is shown as some of its frames, with their times: every model that takes several images understands
that. A recording that is longer than a model hears at once comes in pieces, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.chat import Content, ask, decoded
from jarvis_agent.backends.transformers.generation import generate
from jarvis_agent.backends.transformers.loading import Loaded
from jarvis_agent.backends.transformers.text import text_of
from jarvis_agent.backends.transformers.vision import picture
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.media.files import read_audio
from jarvis_agent.media.video import spread_frames

REPLY_TOKENS = 512
FRAMES = 8
"""Frames of a video that a model is shown."""

FRAME_SIDE = 512
"""Pixels of a frame's longer side at most: a frame costs a model as much as an image does."""

_WHOLE = {"do_image_splitting": False, "crop_to_patches": False}
"""Settings of image processors, under which they do not cut an image into tiles."""


def reply(loaded: Loaded, call: Call) -> str:
    """What a chat model answers to a text together with the image, video and recording given with it.

    Raises:
        UnsupportedError: the model is no chat model, or can not see or hear.
    """
    if not getattr(loaded.processor, "chat_template", None):
        raise UnsupportedError(f"{loaded.id} is no chat model, so that it can not be asked about anything")
    given = [part for name, show in _SHOWN.items() if call.inputs.get(name) for part in show(loaded, call)]
    eye = getattr(loaded.processor, "image_processor", None)
    whole = {name: value for name, value in _WHOLE.items() if call.inputs.get("video") and hasattr(eye, name)}
    return ask(loaded, [*given, {"type": "text", "text": text_of(call)}], REPLY_TOKENS, whole)


def reply_or_continue(loaded: Loaded, call: Call) -> str:
    """As `reply`; a model that is no chat model (BLIP, Florence) goes on from the text, seeing the image."""
    if getattr(loaded.processor, "chat_template", None):
        return reply(loaded, call)
    batch = loaded.processor(images=picture(call), text=text_of(call), return_tensors="pt")
    return decoded(loaded, generate(loaded, batch, max_new_tokens=REPLY_TOKENS))


def _image(loaded: Loaded, call: Call) -> Iterator[Content]:
    _check(loaded, "image_processor", "see images")
    yield {"type": "image", "image": picture(call)}


def _video(loaded: Loaded, call: Call) -> Iterator[Content]:
    _check(loaded, "image_processor", "see images")
    frames = spread_frames(call.inputs["video"].path, FRAMES)
    yield {"type": "text", "text": f"{len(frames)} frames of a video, in their order:\n"}
    for seconds, image in frames:
        yield {"type": "text", "text": f"{seconds:.1f} s: "}
        image.thumbnail((FRAME_SIDE, FRAME_SIDE))
        yield {"type": "image", "image": image}
    yield {"type": "text", "text": "\n"}


def _sound(loaded: Loaded, call: Call) -> Iterator[Content]:
    ear = _check(loaded, "feature_extractor", "hear recordings")
    samples = read_audio(call.inputs["audio"].path, ear.sampling_rate)
    length = int(getattr(ear, "chunk_length", None) or 0) * ear.sampling_rate or len(samples)
    for start in range(0, len(samples), length):
        yield {"type": "audio", "audio": samples[start : start + length]}


_SHOWN: dict[str, Callable[[Loaded, Call], Iterator[Content]]] = {
    "image": _image,
    "video": _video,
    "audio": _sound,
}
"""How what is given in an argument comes into a chat message."""


def _check(loaded: Loaded, part: str, can: str) -> Any:
    found = getattr(loaded.processor, part, None)
    if found is None:
        raise UnsupportedError(f"{loaded.id} can not {can}")
    return found
