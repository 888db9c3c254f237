"""Hugging Face's Inference Providers, and the user's inference endpoints (`metadata["url"]`).

The call for each task is a row of `CALLS`. The providers of a model are tried in order: after an error the
next one follows at once, after silence when two thirds of the remaining time have passed. Retries with
backoff are done by the fallback chain.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from inspect import Parameter, signature
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from langchain_core.messages.utils import convert_to_openai_messages

from jarvis_agent.backends.base import Call, labels_of, sentences_of
from jarvis_agent.backends.chat_model import user_message
from jarvis_agent.backends.http_errors import combine_errors, expert_error, reply_timeout
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.backends.outputs.validators import describe_value, existing_file, text_in, texts_in
from jarvis_agent.core.concurrency import DaemonThreads, start_daemon_thread
from jarvis_agent.core.content import decode_base64
from jarvis_agent.core.encodings import decode_text
from jarvis_agent.core.errors import (
    BadInputError,
    ExpertError,
    InputError,
    MissingExtraError,
    TransientError,
    UnsupportedError,
    redacted_cause,
)
from jarvis_agent.core.images import to_portable
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text, map_texts
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.media.detect import detect_content
from jarvis_agent.media.run_directory import AttemptFiles

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient

T = TypeVar("T")

_HF = "hf-inference"
_HF_DOMAINS = ("huggingface.co", "huggingface.cloud", "hf.space")
"""Domains, with their subdomains, whose endpoints get the user's Hugging Face token."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A provider of a model, with the model's task there, or an endpoint."""

    provider: str
    task: str
    url: str | None = None


class HostedBackend:
    """Runs candidates on inference providers and endpoints."""

    name: ClassVar[str] = "hf-inference"
    local: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        row = CALLS.get(spec.name)
        if row is None:
            return f"inference providers have no call for {spec.name}"
        servings = servings_of(candidate)
        if not servings:
            return "no inference provider serves it"
        if self._settings.offline and not candidate.local:
            return "offline mode is on"
        if missing := [name for name in row.needs if find_spec(name) is None]:
            return str(MissingExtraError(f"{spec.name} by a provider ({', '.join(missing)})", "starter"))
        if self._settings.token is None and not servings[0].url:
            return "inference providers need a token: set HF_TOKEN (https://huggingface.co/settings/tokens)"
        return None

    async def run(self, call: Call) -> Any:
        """Call the model's providers in order; the first reply counts.

        TransientError: all failed, at least one of them temporarily (RateLimitedError if each says when to
        retry). UnsupportedError: they refuse the token, the model or the input.
        """
        servings = servings_of(call.candidate)
        clock = asyncio.get_running_loop().time
        ends = clock() + reply_timeout(self._settings)
        failed: list[ExpertError] = []
        for serving in servings:
            share = (ends - clock()) * (1 if serving is servings[-1] else 2 / 3)
            try:
                return await self._call(serving, call, share)
            except BadInputError:
                raise
            except ExpertError as error:
                failed.append(error)
        raise combine_errors(call.candidate.id, failed)

    async def _call(self, serving: Serving, call: Call, seconds: float) -> Any:
        """One provider's reply as a raw output."""
        from huggingface_hub import AsyncInferenceClient
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

        class Client(AsyncInferenceClient):
            reply: bytes | None = None

            async def _inner_post(self, *args: Any, **kwargs: Any) -> Any:
                self.reply = await super()._inner_post(*args, **kwargs)
                return self.reply

        row = CALLS[serving.task]
        trusted = serving.url is None or is_hugging_face(serving.url)
        client = Client(
            model=_model_name(serving, call.candidate.id),
            provider=None if serving.url else serving.provider,  # type: ignore[arg-type]
            token=self._settings.token if trusted else None,
            # None would mean the token stored on this machine; the header replaces it.
            headers=None if trusted else {"authorization": ""},
            timeout=self._settings.attempt_timeout,
        )
        try:
            async with asyncio.timeout(seconds):
                raw = await _in_own_loop(run_call(client, serving.task, call))
            if serving.url is None or row.open_file is not None:
                return raw
            form = partial(adapt, call.spec)
            [result] = await asyncio.to_thread(_with_cleanup, call, _read_parts, [raw], call, form)
            return result
        except TimeoutError as error:
            raise TransientError(f"{serving.provider} did not answer within {seconds:g} s") from error
        except httpx.HTTPError as error:
            raise expert_error(error, serving.provider) from redacted_cause(error)
        except (
            UnsupportedError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError
        ) as error:  # fmt: skip
            if client.reply is not None:  # it is not in the form that the client expects
                return await asyncio.to_thread(
                    _with_cleanup, call, read_reply, client.reply, call, row.open_file
                )
            if isinstance(error, UnsupportedError):
                raise
            raise expert_error(error, serving.provider) from redacted_cause(error)

    async def close(self) -> None:
        """Do nothing: no connection is kept between calls."""


def servings_of(candidate: Candidate) -> list[Serving]:
    """The servings of a candidate: its own endpoint, or the providers that the Hub lists."""
    task = "conversational" if candidate.task == "text-generation" else candidate.task
    url = candidate.metadata.get("url")
    if isinstance(url, str):  # what writes texts has a chat API, or reads prompts at its root
        tasks = dict.fromkeys([task] if "/v1" in urlsplit(url).path else [task, candidate.task])
        return [Serving(url, each, url) for each in tasks]
    tasks = candidate.metadata.get("providers") or {}
    return [Serving(provider, tasks.get(provider, task)) for provider in candidate.providers]


def is_hugging_face(url: str) -> bool:
    """Whether a URL belongs to Hugging Face, or to the Hub in HF_ENDPOINT."""
    from huggingface_hub import constants

    at, hub = urlsplit(url), urlsplit(constants.ENDPOINT)
    if (at.scheme, at.netloc) == (hub.scheme, hub.netloc):
        return True
    host = at.hostname or ""
    return at.scheme == "https" and any(host == name or host.endswith(f".{name}") for name in _HF_DOMAINS)


def _model_name(serving: Serving, model: str) -> str:
    """The client's `model`: the id on the Hub, whose id at the provider it looks up, or an address."""
    if serving.url or serving.provider != _HF:
        return serving.url or model
    from huggingface_hub import constants

    # The address, since the look-up refuses models whose task on the Hub is another.
    base = constants.INFERENCE_PROXY_TEMPLATE.format(provider=_HF)
    has_two_tasks = serving.task in ("feature-extraction", "sentence-similarity")
    return f"{base}/models/{model}" + (f"/pipeline/{serving.task}" if has_two_tasks else "")


def _with_cleanup(call: Call, read: Callable[..., T], *args: Any) -> T:
    """What `read` returns, in a thread that may outlive the attempt: its files are then deleted."""
    try:
        return read(*args)
    finally:
        call.cleanup()


async def _in_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Await in a daemon thread: the client looks models up, polls providers and fetches files by blocking.

    The work is cancelled with its caller, which does not wait for it.
    """
    loop = asyncio.new_event_loop()
    loop.set_default_executor(DaemonThreads())  # for look-ups of hosts
    task = loop.create_task(work)
    done = start_daemon_thread(loop.run_until_complete, task)
    done.add_done_callback(lambda _: loop.close())
    try:
        return await asyncio.wrap_future(done)
    finally:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(task.cancel)


_ASCII = bytes((9, 10, 13, *range(32, 127)))
_NO_TEXT = re.compile(r"""\s*(<!doctype|<html|<\?xml|data: ?[{\[]|\[\[|\[?\{"|\[")""", re.IGNORECASE)
"""How pages, events and JSON that was cut off begin."""


def read_reply(reply: bytes, call: Call, open_file: Callable[[bytes, Call], Any] | None = None) -> Any:
    """What the task makes, in a reply of any form: its only part that fits, or what `open_file` opens.

    A backend on this machine may name a file that it has written; a reply may not.
    """
    value: Any = reply
    is_text = True
    with suppress(UnicodeDecodeError):
        decoded, assumed = decode_text(reply)
        if not assumed or (not open_file and _is_latin(reply)):  # some encodings fit any bytes
            value, is_text = call.noted(decoded, assumed), not _NO_TEXT.match(decoded)
        with suppress(ValueError, RecursionError):
            value, is_text = json.loads(decoded), True
    if isinstance(value, Mapping) and (failure := value.get("error") or value.get("errors")):
        raise UnsupportedError(f"{call.spec.name} failed there: {brief_text(str(failure), 200)}")
    if open_file is not None:
        # Libraries raise errors of any kind for what they cannot read.
        made = _read_parts(_files_in(value), call, open_file, Exception)
        if made[1:]:
            first = "the first of {number} results of {model} was taken"
            call.notes.append(Note(first, number=len(made), model=call.candidate.id))
        if made:
            return made[0]
        for part in chain(*_levels_of(value)):  # transformers' pipelines write samples as numbers
            if isinstance(part, Mapping) and {"audio", "sampling_rate"} <= part.keys():
                return {"audio": part["audio"], "sampling_rate": part["sampling_rate"]}
    elif call.spec.outputs[0] in ("text", "data") or not any(map(existing_file, texts_in(value))):
        fitting: list[Any] = []
        (only,) = value.values() if isinstance(value, Mapping) and len(value) == 1 else [value]
        if call.spec.name == "image-segmentation":
            with suppress(RecursionError):
                value = map_texts(value, partial(_mask_in, call=call))
        for level in _levels_of(value):
            parts = [part for part in level if part != [] or part is only]  # beside others [] says nothing
            if fitting := _read_parts(parts, call, partial(adapt, call.spec)):
                break
        if len(fitting) == 1:
            return fitting[0]
        wants_text = is_text and not fitting and call.spec.outputs[0] == "text"
        if wants_text and (text := text_in(value)) is not None:
            if isinstance(value, Mapping):
                call.notes.append(Note("the text was taken from {answer}", answer=describe_value(value)))
            return text
    raise UnsupportedError(f"{call.spec.name} cannot be read from its answer, {describe_value(value)}")


def _is_latin(reply: bytes) -> bool:
    """Whether bytes are a text in Latin-1, of which the most is ASCII."""
    others = reply.translate(None, _ASCII)
    return 5 * len(others) <= len(reply) and min(others, default=160) >= 160


def _read_parts(
    parts: Iterable[Any],
    call: Call,
    read: Callable[[Any, Call], T],
    errors: type[Exception] = UnsupportedError,
) -> list[T]:
    """What `read` makes of the parts that it can read. Only the first of these keeps its files."""
    made: list[T] = []
    for part in parts:
        files, count = AttemptFiles(call.new_path), len(made)
        with suppress(errors):
            made.append(read(part, replace(call, new_path=files.new_path)))
        if count or not made:
            files.rollback()
    return made


def _mask_in(text: str, call: Call) -> Any:
    """The mask of the call's image that a text holds in base64, else the text."""
    from PIL import Image

    for content in _files_in(text):
        with suppress(Exception), Image.open(io.BytesIO(content)) as mask:  # Pillow's are of any kind
            if mask.size == call.image().size:
                return mask.copy()
    return text


def _levels_of(value: Any) -> Iterator[list[Any]]:
    """The objects and lists in a value by depth, without single items of longer lists."""
    level = [value]
    while level := [part for part in level if isinstance(part, Mapping | list)]:
        yield level
        parts = [part.values() if isinstance(part, Mapping) else part for part in level]
        level = [item for part in parts if len(part) == 1 or not isinstance(part, list) for item in part]


def _files_in(value: Any) -> Iterator[bytes]:
    """What may be files: bytes, and texts in base64, also in data URLs."""
    if isinstance(value, bytes):
        yield value
    for text in texts_in(value):
        with suppress(InputError):
            yield decode_base64(text.rpartition("base64,")[2])


MAX_NEW_TOKENS = 512


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """The call for one task.

    Attributes:
        arguments: the arguments of the method by name: arguments of the task, or functions of a call.
        finish: converts the reply to a raw output, in a worker thread.
        open_file: makes the raw output of a file, where the task makes one; raises an exception for others.
        needs: modules that it imports.
        method: name of the method of AsyncInferenceClient, if it is not that of the task.
    """

    arguments: Mapping[str, str | Callable[[Call], Any]]
    finish: Callable[[Any, Call], Any] = lambda reply, call: reply
    open_file: Callable[[bytes, Call], Any] | None = None
    needs: tuple[str, ...] = ()
    method: str = ""


async def run_call(client: AsyncInferenceClient, task: str, call: Call) -> Any:
    """The raw output of a client's provider for a call; `task` is that at the provider."""
    row = CALLS[task]
    try:
        async with client:
            name = row.method or task.replace("-", "_")
            if str(client.model).startswith("http"):  # the same request; the client knows providers alone
                name = name.replace("to_video", "to_image")
            method = getattr(client, name)
            reply = await method(**{**_arguments(row, call), **_options(method, call)})
        return row.finish(reply, call)
    finally:
        call.cleanup()


def _options(method: Callable[..., Any], call: Call) -> dict[str, Any]:
    """The seed of the settings if the method has one, and the options in the model's description."""
    parameters = signature(method).parameters
    described = call.candidate.metadata.get("options") or {}
    takes_more = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    seed = {"seed": call.settings.seed} if takes_more or "seed" in parameters else {}
    options: dict[str, Any] = {**seed, **described}
    other = {name: options.pop(name) for name in list(options) if name not in parameters}
    if not other or takes_more:
        return options | other
    if "extra_body" not in parameters:
        raise UnsupportedError(f"{call.spec.name} has no option {', '.join(other)} on inference providers")
    return {**options, "extra_body": {**other, **options.get("extra_body", {})}}


def _arguments(row: ProviderCall, call: Call) -> dict[str, Any]:
    """The arguments of a client's method, in which files are typed bytes."""
    values = {name: of(call) if callable(of) else call.inputs.get(of) for name, of in row.arguments.items()}
    return {
        name: _content(value, call.notes) if isinstance(value, Resource) and value.path else value
        for name, value in values.items()
        if value is not None
    }


def _content(file: Resource, notes: list[str]) -> Any:
    """A file as typed bytes; a picture upright, since boxes that come back have to fit what is shown."""
    from huggingface_hub.inference._common import MimeBytes

    assert file.path is not None
    if file.kind == "image":
        return MimeBytes(*to_portable(file.path, file.mime, notes=notes))
    return MimeBytes(file.path.read_bytes(), file.mime)


_TEXT = {"text": "text"}
_IMAGE = {"image": "image"}
_AUDIO = {"audio": "audio"}
_IMAGE_QUESTION = {"image": "image", "question": "text"}
_IMAGE_PROMPT = {"image": "image", "prompt": "text"}


def _cells(call: Call) -> dict[str, list[str]]:
    """A table in the client's form: columns of texts by name."""
    columns = call.table().columns
    return {name: ["" if v is None else str(v) for v in values] for name, values in columns.items()}


def _predictions(reply: Any, call: Call) -> dict[str, Any]:
    return {"predictions": list(reply), "probabilities": None}


def _sound(data: bytes, call: Call) -> dict[str, Any]:
    """An encoded sound as mono float32 samples with their rate in Hz."""
    import soundfile

    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise UnsupportedError("it sent a sound that cannot be read", detail=error) from error
    return {"audio": samples.mean(axis=1), "sampling_rate": rate}


def _picture(reply: bytes, call: Call) -> Any:
    from PIL import Image

    with Image.open(io.BytesIO(reply)) as image:
        return image.copy()


def _video(reply: bytes, call: Call) -> dict[str, str]:
    if detect_content(io.BytesIO(reply), Path("reply"))[0] not in ("video", "image"):
        raise UnsupportedError("it sent no video")
    path = call.new_path(".mp4")
    path.write_bytes(reply)
    return {"path": str(path)}


_CHAT = ProviderCall(
    {"messages": lambda call: convert_to_openai_messages([user_message(call.inputs)]),
     "max_tokens": lambda _: MAX_NEW_TOKENS},
    lambda reply, call: str(reply.choices[0].message.content or ""),
    method="chat_completion",
)  # fmt: skip
_SOUNDFILE = ("soundfile",)

CALLS: dict[str, ProviderCall] = {
    "text-classification": ProviderCall(_TEXT),
    "token-classification": ProviderCall({"text": "text", "aggregation_strategy": lambda _: "simple"}),
    "question-answering": ProviderCall({"question": "text", "context": "context"}),
    "table-question-answering": ProviderCall({"table": _cells, "query": "text"}),
    "zero-shot-classification": ProviderCall({"text": "text", "candidate_labels": labels_of}),
    "fill-mask": ProviderCall(_TEXT),
    "translation": ProviderCall(  # the client accepts both languages or none
        {"text": "text",
         "src_lang": lambda call: call.inputs.get("tgt_lang") and call.inputs.get("src_lang"),
         "tgt_lang": lambda call: call.inputs.get("src_lang") and call.inputs.get("tgt_lang")}),
    "summarization": ProviderCall(_TEXT),
    "text-generation": ProviderCall({"prompt": "text", "max_new_tokens": lambda _: MAX_NEW_TOKENS}),
    "conversational": _CHAT,
    "feature-extraction": ProviderCall(_TEXT, needs=("numpy",)),
    "sentence-similarity": ProviderCall({"sentence": "text", "other_sentences": sentences_of}),
    "image-classification": ProviderCall(_IMAGE),
    "zero-shot-image-classification": ProviderCall({"image": "image", "candidate_labels": labels_of}),
    "object-detection": ProviderCall(_IMAGE),
    "image-segmentation": ProviderCall(_IMAGE),
    "image-to-text": ProviderCall(_IMAGE),
    "image-to-image": ProviderCall(_IMAGE_PROMPT, open_file=_picture),
    "image-text-to-image": ProviderCall(_IMAGE_PROMPT, open_file=_picture, method="image_to_image"),
    "text-to-image": ProviderCall({"prompt": "text"}, open_file=_picture),
    "text-to-video": ProviderCall({"prompt": "text"}, _video, _video),
    "image-to-video": ProviderCall(_IMAGE_PROMPT, _video, _video),
    "image-text-to-video": ProviderCall(_IMAGE_PROMPT, _video, _video, method="image_to_video"),
    "text-to-speech": ProviderCall(_TEXT, _sound, _sound, _SOUNDFILE),
    "automatic-speech-recognition": ProviderCall(_AUDIO),
    "audio-classification": ProviderCall(_AUDIO),
    "audio-to-audio": ProviderCall(
        _AUDIO, needs=_SOUNDFILE,
        finish=lambda reply, call: [{"label": each.label, **_sound(each.blob, call)} for each in reply]),
    "visual-question-answering": ProviderCall(_IMAGE_QUESTION),
    "document-question-answering": ProviderCall(_IMAGE_QUESTION),
    "image-text-to-text": _CHAT,
    "audio-text-to-text": _CHAT,
    "any-to-any": _CHAT,
    "tabular-classification": ProviderCall({"table": _cells}, _predictions),
    # The client's method for this task fails on its own provider table; the request is the same.
    "tabular-regression": ProviderCall({"table": _cells}, _predictions, method="tabular_classification"),
}  # fmt: skip
"""Calls by the provider's task name."""
