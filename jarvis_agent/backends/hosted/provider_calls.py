"""How each task is asked of those who host models: the table CALLS.

    CALLS["object-detection"]       # Hosted("object_detection", gives image)
    reply = await ask(client, CALLS["object-detection"], call)

A row names the method of huggingface_hub's AsyncInferenceClient, says what it is given, and what makes the
reply a raw output. Every method that the client has for a task stands here.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted.chat_messages import messages
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.media.tables import read_table

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient

MAX_NEW_TOKENS = 512


def _as_it_is(reply: Any, call: Call) -> Any:
    return reply


@dataclass(frozen=True, slots=True)
class Hosted:
    """How a task is asked for.

    Attributes:
        method: name of the method of AsyncInferenceClient.
        given: its arguments by name; called in a worker thread, since it may read files.
        finish: makes the reply a raw output, in a worker thread too.
        needs: import names of what is used beyond the core.
    """

    method: str
    given: Callable[[Call], Mapping[str, Any]]
    finish: Callable[[Any, Call], Any] = _as_it_is
    needs: tuple[str, ...] = ()


async def ask(client: AsyncInferenceClient, row: Hosted, call: Call) -> Any:
    """The raw output that a client's provider gives for a call.

    Raises:
        UnsupportedError: the model's own options (`metadata["options"]`) are unknown to the method.
    """
    given = await asyncio.to_thread(row.given, call)
    method = getattr(client, row.method)
    reply = await method(**{**given, **_options(method, call)})
    return await asyncio.to_thread(_finished, row, reply, call)


def _finished(row: Hosted, reply: Any, call: Call) -> Any:
    try:
        return row.finish(reply, call)
    finally:
        call.sweep()


def _options(method: Callable[..., Any], call: Call) -> dict[str, Any]:
    """The settings' seed where the method takes one, and the options in the model's description."""
    known = signature(method).parameters
    seed = {"seed": call.settings.seed} if "seed" in known else {}
    own = call.candidate.metadata.get("options") or {}
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values()):
        return {**seed, **own}
    beyond = {name: value for name, value in own.items() if name not in known}
    taken = {**seed, **{name: value for name, value in own.items() if name in known}}
    if not beyond:
        return taken
    if "extra_body" not in known:
        raise UnsupportedError(f"{call.spec.name} takes no option {', '.join(beyond)} where it is hosted")
    return {**taken, "extra_body": {**beyond, **taken.get("extra_body", {})}}


def _inputs(**names: str) -> Callable[[Call], Mapping[str, Any]]:
    """Arguments of the method that are arguments of the task: `_inputs(prompt="text")`; files as paths."""

    def given(call: Call) -> Mapping[str, Any]:
        values = {name: call.inputs.get(argument) for name, argument in names.items()}
        return {name: getattr(value, "path", value) for name, value in values.items() if value is not None}

    return given


_TEXT = _inputs(text="text")
_IMAGE = _inputs(image="image")
_AUDIO = _inputs(audio="audio")
_ASKED_IMAGE = _inputs(image="image", question="text")
_DRAWN = _inputs(image="image", prompt="text")
_LABELLED = {"candidate_labels": "labels"}


def _labels(call: Call) -> Mapping[str, Any]:
    return {**_TEXT(call), "aggregation_strategy": "simple"}


def _translation(call: Call) -> Mapping[str, Any]:
    # The client takes both languages or none.
    languages = _inputs(src_lang="src_lang", tgt_lang="tgt_lang")(call)
    return {**_TEXT(call), **(languages if len(languages) == 2 else {})}


def _written(call: Call) -> Mapping[str, Any]:
    return {"prompt": call.inputs["text"], "max_new_tokens": MAX_NEW_TOKENS}


def _chat(call: Call) -> Mapping[str, Any]:
    return {"messages": messages(call.inputs), "max_tokens": MAX_NEW_TOKENS}


def _table(call: Call) -> Mapping[str, Any]:
    """A table as the client wants it: columns of texts by name."""
    columns = read_table(call.inputs["table"], call.settings.max_file_bytes)
    return {
        "table": {name: ["" if v is None else str(v) for v in values] for name, values in columns.items()}
    }


def _asked_table(call: Call) -> Mapping[str, Any]:
    return {**_table(call), "query": call.inputs["text"]}


def _said(reply: Any, call: Call) -> str:
    return str(reply.choices[0].message.content or "")


def _predictions(reply: Any, call: Call) -> dict[str, Any]:
    return {"predictions": list(reply), "probabilities": None, "classes": None}


def _sound(data: bytes) -> dict[str, Any]:
    """An encoded sound as mono float32 samples with their rate in Hz."""
    import soundfile

    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise UnsupportedError(f"it sent a sound that can not be read: {error}") from error
    return {"audio": samples.mean(axis=1), "sampling_rate": rate}


def _speech(reply: bytes, call: Call) -> dict[str, Any]:
    return _sound(reply)


def _sounds(reply: Any, call: Call) -> list[dict[str, Any]]:
    return [{"label": item.label, **_sound(item.blob)} for item in reply]


def _video(reply: bytes, call: Call) -> dict[str, str]:
    path = call.new_path(".mp4")
    path.write_bytes(reply)
    return {"path": str(path)}


_CHAT = Hosted("chat_completion", _chat, _said)
_HEARD = ("soundfile",)

CALLS: dict[str, Hosted] = {
    "text-classification": Hosted("text_classification", _TEXT),
    "token-classification": Hosted("token_classification", _labels),
    "question-answering": Hosted("question_answering", _inputs(question="text", context="context")),
    "table-question-answering": Hosted("table_question_answering", _asked_table),
    "zero-shot-classification": Hosted("zero_shot_classification", _inputs(text="text", **_LABELLED)),
    "fill-mask": Hosted("fill_mask", _TEXT),
    "translation": Hosted("translation", _translation),
    "summarization": Hosted("summarization", _TEXT),
    "text-generation": Hosted("text_generation", _written),
    "conversational": _CHAT,
    "feature-extraction": Hosted("feature_extraction", _TEXT, needs=("numpy",)),
    "sentence-similarity": Hosted(
        "sentence_similarity", _inputs(sentence="text", other_sentences="sentences")
    ),
    "image-classification": Hosted("image_classification", _IMAGE),
    "zero-shot-image-classification": Hosted(
        "zero_shot_image_classification", _inputs(image="image", **_LABELLED)
    ),
    "object-detection": Hosted("object_detection", _IMAGE),
    "image-segmentation": Hosted("image_segmentation", _IMAGE),
    "image-to-text": Hosted("image_to_text", _IMAGE),
    "image-to-image": Hosted("image_to_image", _DRAWN),
    "image-text-to-image": Hosted("image_to_image", _DRAWN),
    "text-to-image": Hosted("text_to_image", _inputs(prompt="text")),
    "text-to-video": Hosted("text_to_video", _inputs(prompt="text"), _video),
    "image-to-video": Hosted("image_to_video", _DRAWN, _video),
    "image-text-to-video": Hosted("image_to_video", _DRAWN, _video),
    "text-to-speech": Hosted("text_to_speech", _TEXT, _speech, _HEARD),
    "automatic-speech-recognition": Hosted("automatic_speech_recognition", _AUDIO),
    "audio-classification": Hosted("audio_classification", _AUDIO),
    "audio-to-audio": Hosted("audio_to_audio", _AUDIO, _sounds, _HEARD),
    "visual-question-answering": Hosted("visual_question_answering", _ASKED_IMAGE),
    "document-question-answering": Hosted("document_question_answering", _ASKED_IMAGE),
    "image-text-to-text": _CHAT,
    "audio-text-to-text": _CHAT,
    "any-to-any": _CHAT,
    "tabular-classification": Hosted("tabular_classification", _table, _predictions),
    # The client's own method for this one asks a table of providers that lacks it; the request is the same.
    "tabular-regression": Hosted("tabular_classification", _table, _predictions),
}
"""The tasks that are asked of others, by the name that the provider gives them."""
