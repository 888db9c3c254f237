"""Models that others run: Hugging Face's Inference Providers, and inference endpoints of the user's own.

    Candidate("facebook/detr-resnet-50", …, providers=("hf-inference",))      served live by a provider
    Candidate("my/detr", …, metadata={"url": "https://….endpoints.huggingface.cloud"})    an endpoint

A task is a row of CALLS: the method of AsyncInferenceClient that asks, and what makes the reply a raw output.
The providers of a model are tried in turn; waiting and trying again is the ladder's part.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted_errors import expert_error, failures
from jarvis_agent.errors import ExpertError, MissingExtraError, TransientError, UnsupportedError
from jarvis_agent.settings import Settings
from jarvis_agent.tools.spec import TaskSpec
from jarvis_agent.types import Candidate

if TYPE_CHECKING:
    from huggingface_hub import AsyncInferenceClient

MAX_NEW_TOKENS = 512

_HF = "hf-inference"
_TWO_TASKS = frozenset({"feature-extraction", "sentence-similarity"})

_HOSTS_OF_HF = ("huggingface.co", "huggingface.cloud", "hf.space")
"""The domains, with all below them, at which an endpoint is sent the user's Hugging Face token."""

Ask = Callable[["AsyncInferenceClient", Mapping[str, Any]], Coroutine[Any, Any, Any]]


def _as_it_is(reply: Any, call: Call) -> Any:
    return reply


@dataclass(frozen=True, slots=True)
class Hosted:
    """How a task is asked for.

    `ask` takes the client and the inputs. `finish` makes the reply a raw output, in a worker thread. `needs`
    are the import names of what is used beyond the core.
    """

    ask: Ask
    finish: Callable[[Any, Call], Any] = _as_it_is
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Serving:
    """Somebody who serves a model: a provider, with the model's id and task there, or an endpoint."""

    provider: str
    model: str
    task: str
    url: str | None = None


def _chat(client: AsyncInferenceClient, inputs: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
    return client.chat_completion([{"role": "user", "content": inputs["text"]}], max_tokens=MAX_NEW_TOKENS)


def _translate(client: AsyncInferenceClient, inputs: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
    # The client takes both languages or none.
    both = inputs.get("src_lang") and inputs.get("tgt_lang")
    languages = {name: inputs[name] for name in ("src_lang", "tgt_lang")} if both else {}
    return client.translation(inputs["text"], **languages)


def _sound(data: bytes) -> dict[str, Any]:
    """An encoded sound as mono float32 samples with their rate in Hz."""
    import soundfile

    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise UnsupportedError(f"it sent a sound that can not be read: {error}") from error
    return {"audio": samples.mean(axis=1), "sampling_rate": rate}


def _sounds(reply: Any, call: Call) -> list[dict[str, Any]]:
    return [{"label": item.label, **_sound(item.blob)} for item in reply]


def _video(reply: bytes, call: Call) -> str:
    path = call.new_path(".mp4")
    path.write_bytes(reply)
    return str(path)


CALLS: dict[str, Hosted] = {
    "text-classification": Hosted(lambda client, i: client.text_classification(i["text"])),
    "token-classification": Hosted(
        lambda client, i: client.token_classification(i["text"], aggregation_strategy="simple")
    ),
    "question-answering": Hosted(
        lambda client, i: client.question_answering(question=i["text"], context=i["context"])
    ),
    "zero-shot-classification": Hosted(
        lambda client, i: client.zero_shot_classification(i["text"], i["labels"])
    ),
    "translation": Hosted(_translate),
    "summarization": Hosted(lambda client, i: client.summarization(i["text"])),
    "text-generation": Hosted(
        lambda client, i: client.text_generation(i["text"], max_new_tokens=MAX_NEW_TOKENS)
    ),
    "conversational": Hosted(_chat, lambda reply, call: reply.choices[0].message.content),
    "feature-extraction": Hosted(lambda client, i: client.feature_extraction(i["text"]), needs=("numpy",)),
    "sentence-similarity": Hosted(
        lambda client, i: client.sentence_similarity(i["text"], other_sentences=list(i["sentences"]))
    ),
    "image-classification": Hosted(lambda client, i: client.image_classification(i["image"].path)),
    "object-detection": Hosted(lambda client, i: client.object_detection(i["image"].path)),
    "image-segmentation": Hosted(lambda client, i: client.image_segmentation(i["image"].path)),
    "image-to-text": Hosted(lambda client, i: client.image_to_text(i["image"].path)),
    "image-to-image": Hosted(lambda client, i: client.image_to_image(i["image"].path, prompt=i.get("text"))),
    "text-to-image": Hosted(lambda client, i: client.text_to_image(i["text"])),
    "text-to-video": Hosted(lambda client, i: client.text_to_video(i["text"]), _video),
    "text-to-speech": Hosted(
        lambda client, i: client.text_to_speech(i["text"]),
        lambda reply, call: _sound(reply),
        needs=("soundfile",),
    ),
    "automatic-speech-recognition": Hosted(
        lambda client, i: client.automatic_speech_recognition(i["audio"].path)
    ),
    "audio-classification": Hosted(lambda client, i: client.audio_classification(i["audio"].path)),
    "audio-to-audio": Hosted(
        lambda client, i: client.audio_to_audio(i["audio"].path), _sounds, ("soundfile",)
    ),
    "visual-question-answering": Hosted(
        lambda client, i: client.visual_question_answering(i["image"].path, i["text"])
    ),
    "document-question-answering": Hosted(
        lambda client, i: client.document_question_answering(i["image"].path, i["text"])
    ),
}
"""The tasks that are asked of others, by the name that the provider gives them."""


class HostedBackend:
    """Runs candidates where they are served, with the user's token where that is Hugging Face."""

    name: ClassVar[str] = "hf-inference"
    local: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def why_not(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if somebody serves the candidate and may be asked, else the reason."""
        row = CALLS.get(spec.name)
        if row is None:
            return f"inference clients have no call for {spec.name}"
        served = serving(candidate)
        if not served:
            return "no inference provider serves it"
        if self._settings.offline:
            return "offline mode is on"
        if missing := [name for name in row.needs if find_spec(name) is None]:
            return str(MissingExtraError(f"{spec.name} by a provider ({', '.join(missing)})", "starter"))
        if self._settings.token is None and not served[0].url:
            return "inference providers want a token: set HF_TOKEN (https://huggingface.co/settings/tokens)"
        return None

    async def run(self, call: Call) -> Any:
        """Ask the model's providers in turn; the first reply counts.

        Raises:
            TransientError: all failed, at least one of them in a way that may pass.
            RateLimitedError: the same, and each said when to come back.
            UnsupportedError: they refuse the token, the model or the input.
        """
        served = serving(call.candidate)
        failed: list[ExpertError] = []
        for one in served:
            try:
                async with asyncio.timeout(self._settings.attempt_timeout / len(served)):
                    return await self._ask(one, call)
            except TimeoutError:
                failed.append(TransientError(f"{one.provider} did not answer in time"))
            except ExpertError as error:
                failed.append(error)
        raise failures(call.candidate.id, failed)

    async def _ask(self, one: Serving, call: Call) -> Any:
        """One provider's reply as a raw output."""
        from huggingface_hub import AsyncInferenceClient
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

        row = CALLS[one.task]
        trusted = one.url is None or _is_hugging_face(one.url)
        client = AsyncInferenceClient(
            model=_address(one, call.candidate),
            provider=None if one.url else one.provider,  # type: ignore[arg-type]
            token=self._settings.token if trusted else None,
            # Without a token the client takes the one stored on this machine; the header replaces it.
            headers=None if trusted else {"authorization": ""},
            timeout=self._settings.attempt_timeout,
        )
        try:
            async with client:
                reply = await row.ask(client, call.inputs)
            return await asyncio.to_thread(row.finish, reply, call)
        except (httpx.HTTPError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise expert_error(error, one.provider) from error

    async def close(self) -> None:
        """Nothing is held between calls."""


def serving(candidate: Candidate) -> list[Serving]:
    """Who serves a candidate: its own endpoint, or the providers that the Hub names."""
    task = "conversational" if candidate.task == "text-generation" else candidate.task
    url = candidate.metadata.get("url")
    if isinstance(url, str):
        return [Serving(url, candidate.id, task, url)]
    known = candidate.metadata.get("providers") or {}
    told = [(provider, known.get(provider, {})) for provider in candidate.providers]
    return [
        Serving(provider, entry.get("id", candidate.id), entry.get("task", task)) for provider, entry in told
    ]


def _is_hugging_face(url: str) -> bool:
    """Whether a URL is of Hugging Face, or of the Hub that HF_ENDPOINT names."""
    from huggingface_hub import constants

    at, hub = urlsplit(url), urlsplit(constants.ENDPOINT)
    if (at.scheme, at.netloc) == (hub.scheme, hub.netloc):
        return True
    host = at.hostname or ""
    return at.scheme == "https" and any(host == one or host.endswith(f".{one}") for one in _HOSTS_OF_HF)


def _address(one: Serving, candidate: Candidate) -> str:
    """What the client takes as the model. It must not look anything up: it would block the event loop."""
    if one.url:
        return one.url
    if one.provider == _HF:
        from huggingface_hub import constants

        base = constants.INFERENCE_PROXY_TEMPLATE.format(provider=_HF)
        return f"{base}/models/{one.model}" + (f"/pipeline/{one.task}" if one.task in _TWO_TASKS else "")
    _make_known(one, candidate.id)
    return candidate.id


def _make_known(one: Serving, model_id: str) -> None:
    """Tell the client what the list of models said already: the provider's own id of a model."""
    from huggingface_hub.hf_api import InferenceProviderMapping
    from huggingface_hub.inference._providers._common import HARDCODED_MODEL_INFERENCE_MAPPING

    HARDCODED_MODEL_INFERENCE_MAPPING.setdefault(one.provider, {})[model_id] = InferenceProviderMapping(  # type: ignore[no-untyped-call]
        provider=one.provider, hf_model_id=model_id, providerId=one.model, status="live", task=one.task
    )
