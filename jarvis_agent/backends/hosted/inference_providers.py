"""Models that others run: Hugging Face's Inference Providers, and inference endpoints of the user's own.

    Candidate("facebook/detr-resnet-50", …, providers=("hf-inference",))      served live by a provider
    Candidate("my/detr", …, metadata={"url": "https://….endpoints.huggingface.cloud"})    an endpoint

How a task is asked for is a row of the table in hosted_calls.py. The providers of a model are tried in turn:
after an error the next is asked at once, and after a silence when that took two thirds of the time that was
left, so that slow tasks can succeed. Waiting and trying again is the ladder's part.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar
from urllib.parse import urlsplit

from jarvis_agent.backends import circuit_breaker as breaker
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted.errors import expert_error, failures, reply_timeout
from jarvis_agent.backends.hosted.provider_calls import CALLS, ask
from jarvis_agent.core.errors import (
    BadInputError,
    ExpertError,
    MissingExtraError,
    TransientError,
    redacted_cause,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

__all__ = ["CALLS", "HostedBackend", "Serving", "is_hugging_face", "serving"]

_HF = "hf-inference"
_PATIENCE_WITH_ONE = 2 / 3
"""The part of the time left for which a provider may be silent, while there are others to ask."""

_MOST_KNOWN = 1024
"""How many models of a provider the client is told of; the last ones count."""

_TWO_TASKS = frozenset({"feature-extraction", "sentence-similarity"})

_HOSTS_OF_HF = ("huggingface.co", "huggingface.cloud", "hf.space")
"""The domains, with all below them, at which an endpoint is sent the user's Hugging Face token."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Somebody who serves a model: a provider, with the model's id and task there, or an endpoint."""

    provider: str
    model: str
    task: str
    url: str | None = None


class HostedBackend:
    """Runs candidates where they are served, with the user's token where that is Hugging Face."""

    name: ClassVar[str] = "hf-inference"
    local: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if somebody serves the candidate and may be asked, else the reason."""
        row = CALLS.get(spec.name)
        if row is None:
            return f"inference clients have no call for {spec.name}"
        served = serving(candidate)
        if not served:
            return "no inference provider serves it"
        if self._settings.offline and not candidate.local:
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
            BadInputError: the input can not be sent to anybody.
        """
        served = serving(call.candidate)
        clock = asyncio.get_running_loop().time
        ends = clock() + reply_timeout(self._settings)
        failed: list[ExpertError] = []
        for one in served:
            left = ends - clock()
            share = left if one is served[-1] else _PATIENCE_WITH_ONE * left
            try:
                with breaker.shared.call((self.name, one.provider)):
                    return await self._in_time(one, call, share)
            except BadInputError:
                raise
            except ExpertError as error:
                failed.append(error)
        raise failures(call.candidate.id, failed)

    async def _in_time(self, one: Serving, call: Call, share: float) -> Any:
        try:
            async with asyncio.timeout(share):
                return await self._ask(one, call)
        except TimeoutError as late:
            raise TransientError(f"{one.provider} did not answer within {share:g} s") from late

    async def _ask(self, one: Serving, call: Call) -> Any:
        """One provider's reply as a raw output."""
        from huggingface_hub import AsyncInferenceClient
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

        row = CALLS[one.task]
        trusted = one.url is None or is_hugging_face(one.url)
        client = AsyncInferenceClient(
            model=_address(one, call.candidate),
            provider=None if one.url else one.provider,  # type: ignore[arg-type]
            token=self._settings.token if trusted else None,
            # Without a token the client takes the one stored on this machine; the header replaces it.
            headers=None if trusted else {"authorization": ""},
            timeout=self._settings.attempt_timeout,
            bill_to=self._settings.bill_to if trusted else None,
        )
        try:
            async with client:
                return await ask(client, row, call)
        except (httpx.HTTPError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise expert_error(error, one.provider) from redacted_cause(error)

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


def is_hugging_face(url: str) -> bool:
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
    return _make_known(one, candidate.id)


def _make_known(one: Serving, model_id: str) -> str:
    """Tell the client what the list of models said already: the provider's own id of a model.

    Returns:
        The name to give the client: one for each task, since the provider may have an id for each.
    """
    from huggingface_hub.hf_api import InferenceProviderMapping
    from huggingface_hub.inference._providers._common import HARDCODED_MODEL_INFERENCE_MAPPING

    name = f"{model_id} for {one.task} as {one.model}"
    known = HARDCODED_MODEL_INFERENCE_MAPPING.setdefault(one.provider, {})
    told = InferenceProviderMapping(  # type: ignore[no-untyped-call]
        provider=one.provider, hf_model_id=model_id, providerId=one.model, status="live", task=one.task
    )
    known.pop(name, None)  # it comes last again, or the next new one might take its place before it is used
    known[name] = told
    for oldest in list(known)[:-_MOST_KNOWN]:
        known.pop(oldest, None)
    return name
