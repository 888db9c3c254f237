"""Hugging Face's Inference Providers, and the user's inference endpoints.

    Candidate("facebook/detr-resnet-50", …, providers=("hf-inference",))      served live by a provider
    Candidate("my/detr", …, metadata={"url": "https://….endpoints.huggingface.cloud"})    an endpoint

The call for each task is a row of provider_calls.py. The providers of a model are tried in order: after an
error the next one follows at once, after silence when two thirds of the remaining time have passed. Retries
with backoff are done by the fallback chain.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar
from urllib.parse import urlsplit

from jarvis_agent.backends import circuit_breaker
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted.provider_calls import CALLS, run_call
from jarvis_agent.backends.http_errors import combine_errors, expert_error, reply_timeout
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

_HF = "hf-inference"
_SHARE = 2 / 3
"""Share of the remaining time for a provider that is not the last."""

_TWO_TASKS = frozenset({"feature-extraction", "sentence-similarity"})

_HF_DOMAINS = ("huggingface.co", "huggingface.cloud", "hf.space")
"""Domains, with their subdomains, whose endpoints get the user's Hugging Face token."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A provider of a model, with the model's id and task there, or an endpoint."""

    provider: str
    model: str
    task: str
    url: str | None = None


class HostedBackend:
    """Runs candidates on inference providers and endpoints."""

    name: ClassVar[str] = "hf-inference"
    local: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if the candidate is served and may be called, else the reason."""
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

        Raises:
            TransientError: all failed, at least one of them temporarily.
            RateLimitedError: the same, and each said when to retry.
            UnsupportedError: they refuse the token, the model or the input.
            BadInputError: the input cannot be sent.
        """
        servings = servings_of(call.candidate)
        clock = asyncio.get_running_loop().time
        ends = clock() + reply_timeout(self._settings)
        failed: list[ExpertError] = []
        for serving in servings:
            share = (ends - clock()) * (1.0 if serving is servings[-1] else _SHARE)
            try:
                async with circuit_breaker.shared.call((self.name, serving.provider)):
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

        row = CALLS[serving.task]
        trusted = serving.url is None or is_hugging_face(serving.url)
        client = AsyncInferenceClient(
            model=_address(serving, call.candidate),
            provider=None if serving.url else serving.provider,  # type: ignore[arg-type]
            token=self._settings.token if trusted else None,
            # None would mean the token stored on this machine; the header replaces it.
            headers=None if trusted else {"authorization": ""},
            timeout=self._settings.attempt_timeout,
            bill_to=self._settings.bill_to if trusted else None,
        )
        try:
            async with client, asyncio.timeout(seconds):
                return await run_call(client, row, call)
        except TimeoutError as error:
            raise TransientError(f"{serving.provider} did not answer within {seconds:g} s") from error
        except (httpx.HTTPError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise expert_error(error, serving.provider) from redacted_cause(error)

    async def close(self) -> None:
        """Do nothing: no connection is kept between calls."""


def servings_of(candidate: Candidate) -> list[Serving]:
    """The servings of a candidate: its own endpoint, or the providers that the Hub lists."""
    task = "conversational" if candidate.task == "text-generation" else candidate.task
    url = candidate.metadata.get("url")
    if isinstance(url, str):
        return [Serving(url, candidate.id, task, url)]
    known = candidate.metadata.get("providers") or {}
    entries = {provider: known.get(provider, {}) for provider in candidate.providers}
    return [
        Serving(name, entry.get("id", candidate.id), entry.get("task", task))
        for name, entry in entries.items()
    ]


def is_hugging_face(url: str) -> bool:
    """Whether a URL belongs to Hugging Face, or to the Hub in HF_ENDPOINT."""
    from huggingface_hub import constants

    at, hub = urlsplit(url), urlsplit(constants.ENDPOINT)
    if (at.scheme, at.netloc) == (hub.scheme, hub.netloc):
        return True
    host = at.hostname or ""
    return at.scheme == "https" and any(host == name or host.endswith(f".{name}") for name in _HF_DOMAINS)


def _address(serving: Serving, candidate: Candidate) -> str:
    """The client's `model`, such that it looks nothing up: a lookup would block the event loop."""
    if serving.url:
        return serving.url
    if serving.provider == _HF:
        from huggingface_hub import constants

        base = constants.INFERENCE_PROXY_TEMPLATE.format(provider=_HF)
        pipeline = f"/pipeline/{serving.task}" if serving.task in _TWO_TASKS else ""
        return f"{base}/models/{serving.model}{pipeline}"
    return _add_mapping(serving, candidate.id)


def _add_mapping(serving: Serving, model_id: str) -> str:
    """Add the provider's id of a model to the client's mapping; returns the key, one for each task.

    The client takes no id, and would ask the Hub again, blocking the event loop. Its authors name this table
    for models that the Hub does not list.
    """
    from huggingface_hub.hf_api import InferenceProviderMapping
    from huggingface_hub.inference._providers._common import HARDCODED_MODEL_INFERENCE_MAPPING

    name = f"{model_id} for {serving.task} as {serving.model}"
    known = HARDCODED_MODEL_INFERENCE_MAPPING.setdefault(serving.provider, {})
    mapping = InferenceProviderMapping(  # type: ignore[no-untyped-call]
        provider=serving.provider,
        hf_model_id=model_id,
        providerId=serving.model,
        status="live",
        task=serving.task,
    )
    known[name] = mapping
    return name
