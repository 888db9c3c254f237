"""The table of calls to inference providers: a method of AsyncInferenceClient for each task.

    raw = await run_call(client, CALLS["object-detection"], call)

A row names the method, its arguments, and the conversion of its reply to a raw output.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted.openai_compatible import chat_messages
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.media.tables import read_table

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient

MAX_NEW_TOKENS = 512


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """The call for one task.

    Attributes:
        method: name of the method of AsyncInferenceClient.
        arguments: returns its arguments by name. Runs in a worker thread, since it may read files.
        finish: converts the reply to a raw output, in a worker thread.
        needs: modules that it imports.
    """

    method: str
    arguments: Callable[[Call], Mapping[str, Any]]
    finish: Callable[[Any, Call], Any] = lambda reply, call: reply
    needs: tuple[str, ...] = ()


async def run_call(client: AsyncInferenceClient, row: ProviderCall, call: Call) -> Any:
    """The raw output of a client's provider for a call.

    Raises:
        UnsupportedError: the model's own options (`metadata["options"]`) are unknown to the method.
    """

    def finish() -> Any:
        try:
            return row.finish(reply, call)
        finally:
            call.sweep()

    arguments = await asyncio.to_thread(row.arguments, call)
    method = getattr(client, row.method)
    reply = await method(**{**arguments, **_options(method, call)})
    return await asyncio.to_thread(finish)


def _options(method: Callable[..., Any], call: Call) -> dict[str, Any]:
    """The seed of the settings if the method has one, and the options in the model's description."""
    known = signature(method).parameters
    described = call.candidate.metadata.get("options") or {}
    options: dict[str, Any] = {**({"seed": call.settings.seed} if "seed" in known else {}), **described}
    other = {name: options.pop(name) for name in list(options) if name not in known}
    if not other:
        return options
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values()):
        return options | other
    if "extra_body" not in known:
        raise UnsupportedError(f"{call.spec.name} has no option {', '.join(other)} on inference providers")
    return {**options, "extra_body": {**other, **options.get("extra_body", {})}}


def _inputs(**names: str) -> Callable[[Call], Mapping[str, Any]]:
    """The method's arguments from the task's: `_inputs(prompt="text")`; files become paths."""

    def arguments(call: Call) -> Mapping[str, Any]:
        values = {name: call.inputs.get(argument) for name, argument in names.items()}
        return {name: getattr(value, "path", value) for name, value in values.items() if value is not None}

    return arguments


_TEXT = _inputs(text="text")
_IMAGE = _inputs(image="image")
_AUDIO = _inputs(audio="audio")
_IMAGE_QUESTION = _inputs(image="image", question="text")
_IMAGE_PROMPT = _inputs(image="image", prompt="text")
_LABELLED = {"candidate_labels": "labels"}


def _token_labels(call: Call) -> Mapping[str, Any]:
    return {**_TEXT(call), "aggregation_strategy": "simple"}


def _translation(call: Call) -> Mapping[str, Any]:
    # The client accepts both languages or none.
    languages = _inputs(src_lang="src_lang", tgt_lang="tgt_lang")(call)
    return {**_TEXT(call), **(languages if len(languages) == 2 else {})}


def _generation(call: Call) -> Mapping[str, Any]:
    return {"prompt": call.inputs["text"], "max_new_tokens": MAX_NEW_TOKENS}


def _chat(call: Call) -> Mapping[str, Any]:
    return {"messages": chat_messages(call.inputs), "max_tokens": MAX_NEW_TOKENS}


def _table(call: Call) -> Mapping[str, Any]:
    """A table in the client's form: columns of texts by name."""
    columns = read_table(call.inputs["table"])
    return {
        "table": {name: ["" if v is None else str(v) for v in values] for name, values in columns.items()}
    }


def _table_question(call: Call) -> Mapping[str, Any]:
    return {**_table(call), "query": call.inputs["text"]}


def _chat_reply(reply: Any, call: Call) -> str:
    return str(reply.choices[0].message.content or "")


def _predictions(reply: Any, call: Call) -> dict[str, Any]:
    return {"predictions": list(reply), "probabilities": None}


def _sound(data: bytes) -> dict[str, Any]:
    """An encoded sound as mono float32 samples with their rate in Hz."""
    import soundfile

    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise UnsupportedError(f"it sent a sound that cannot be read: {error}") from error
    return {"audio": samples.mean(axis=1), "sampling_rate": rate}


def _speech(reply: bytes, call: Call) -> dict[str, Any]:
    return _sound(reply)


def _sounds(reply: Any, call: Call) -> list[dict[str, Any]]:
    return [{"label": item.label, **_sound(item.blob)} for item in reply]


def _video(reply: bytes, call: Call) -> dict[str, str]:
    path = call.new_path(".mp4")
    path.write_bytes(reply)
    return {"path": str(path)}


_CHAT = ProviderCall("chat_completion", _chat, _chat_reply)
_SOUNDFILE = ("soundfile",)

CALLS: dict[str, ProviderCall] = {
    "text-classification": ProviderCall("text_classification", _TEXT),
    "token-classification": ProviderCall("token_classification", _token_labels),
    "question-answering": ProviderCall("question_answering", _inputs(question="text", context="context")),
    "table-question-answering": ProviderCall("table_question_answering", _table_question),
    "zero-shot-classification": ProviderCall("zero_shot_classification", _inputs(text="text", **_LABELLED)),
    "fill-mask": ProviderCall("fill_mask", _TEXT),
    "translation": ProviderCall("translation", _translation),
    "summarization": ProviderCall("summarization", _TEXT),
    "text-generation": ProviderCall("text_generation", _generation),
    "conversational": _CHAT,
    "feature-extraction": ProviderCall("feature_extraction", _TEXT, needs=("numpy",)),
    "sentence-similarity": ProviderCall(
        "sentence_similarity", _inputs(sentence="text", other_sentences="sentences")
    ),
    "image-classification": ProviderCall("image_classification", _IMAGE),
    "zero-shot-image-classification": ProviderCall(
        "zero_shot_image_classification", _inputs(image="image", **_LABELLED)
    ),
    "object-detection": ProviderCall("object_detection", _IMAGE),
    "image-segmentation": ProviderCall("image_segmentation", _IMAGE),
    "image-to-text": ProviderCall("image_to_text", _IMAGE),
    "image-to-image": ProviderCall("image_to_image", _IMAGE_PROMPT),
    "image-text-to-image": ProviderCall("image_to_image", _IMAGE_PROMPT),
    "text-to-image": ProviderCall("text_to_image", _inputs(prompt="text")),
    "text-to-video": ProviderCall("text_to_video", _inputs(prompt="text"), _video),
    "image-to-video": ProviderCall("image_to_video", _IMAGE_PROMPT, _video),
    "image-text-to-video": ProviderCall("image_to_video", _IMAGE_PROMPT, _video),
    "text-to-speech": ProviderCall("text_to_speech", _TEXT, _speech, _SOUNDFILE),
    "automatic-speech-recognition": ProviderCall("automatic_speech_recognition", _AUDIO),
    "audio-classification": ProviderCall("audio_classification", _AUDIO),
    "audio-to-audio": ProviderCall("audio_to_audio", _AUDIO, _sounds, _SOUNDFILE),
    "visual-question-answering": ProviderCall("visual_question_answering", _IMAGE_QUESTION),
    "document-question-answering": ProviderCall("document_question_answering", _IMAGE_QUESTION),
    "image-text-to-text": _CHAT,
    "audio-text-to-text": _CHAT,
    "any-to-any": _CHAT,
    "tabular-classification": ProviderCall("tabular_classification", _table, _predictions),
    # The client's method for this task fails on its own provider table; the request is the same.
    "tabular-regression": ProviderCall("tabular_classification", _table, _predictions),
}
"""Calls by the provider's task name."""
