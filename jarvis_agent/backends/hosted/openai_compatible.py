"""Chat and vision models on a server of the user's own: vLLM, TGI, Ollama, llama.cpp, or OpenAI itself.

    RegisteredSource({"id": "qwen3:8b", "tasks": ["text-generation", "translation"],
                      "base_url": "http://localhost:11434/v1", "api_key_env": "MY_KEY"})

The id is the model's name on the server. What such a model is asked for each task is a row of ORDERS. What it
writes is data: it is given no tools, and nothing that it says is followed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted.chat_messages import answer_of, messages
from jarvis_agent.backends.hosted.errors import reply_timeout, retry_after
from jarvis_agent.backends.hub.model_card import brief_text
from jarvis_agent.core.errors import (
    ExpertError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
    redacted_cause,
)
from jarvis_agent.core.languages import find_language
from jarvis_agent.core.redaction import register_secret
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.llm.thinking import ThinkingFilter

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MAX_NEW_TOKENS = 1024

_NO_KEY = "none"
"""What is sent as the key to a server that wants none; the client must be given something."""


def _text(call: Call) -> str:
    return str(call.inputs.get("text") or "")


def _translate(call: Call) -> str:
    source, target = (_language(call, name) for name in ("src_lang", "tgt_lang"))
    ways = (f" from {source}" if source else "") + f" into {target or 'English'}"
    return f"Translate the following text{ways}. Answer with the translation alone.\n\n{_text(call)}"


def _language(call: Call, argument: str) -> str:
    """A language in the words of a person ("French"), from whatever the plan calls it."""
    said = str(call.inputs.get(argument) or "")
    found = find_language(said)
    return found.name if found else said


def _summarize(call: Call) -> str:
    return f"Summarize the following text in its own language, in a few sentences.\n\n{_text(call)}"


def _answer_from_context(call: Call) -> str:
    return (
        "Answer the question from the context alone, in as few words as possible.\n\n"
        f"Context:\n{call.inputs['context']}\n\nQuestion: {_text(call)}"
    )


def _look(call: Call) -> str:
    if call.hints.get("ocr"):
        return "Write down the text in the image exactly as it stands there, and nothing else."
    return "Describe the image in one sentence."


def _answer_briefly(call: Call) -> str:
    return f"Answer in as few words as possible: {_text(call)}"


ORDERS: dict[str, Callable[[Call], str]] = {
    "text-generation": _text,
    "translation": _translate,
    "summarization": _summarize,
    "question-answering": _answer_from_context,
    "image-to-text": _look,
    "visual-question-answering": _answer_briefly,
    "document-question-answering": _answer_briefly,
    "image-text-to-text": _text,
    "audio-text-to-text": _text,
    "any-to-any": _text,
}
"""The tasks that a chat model does well, and what it is told to do for each."""


class OpenAIBackend:
    """Runs candidates that have a `base_url`."""

    name: ClassVar[str] = "openai"
    local: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if the candidate is on a server that may be asked, else the reason."""
        if "base_url" not in candidate.metadata:
            return "it is on no server of yours (base_url)"
        if spec.name not in ORDERS:
            return f"a chat model is not asked for {spec.name}"
        if self._settings.offline and not candidate.local:
            return "offline mode is on"
        if find_spec("openai") is None:
            return "the package openai is missing: pip install openai"
        variable = candidate.metadata.get("api_key_env")
        if variable and not os.environ.get(variable):
            return f"its key is to be in the environment variable {variable}, which is not set"
        return None

    async def run(self, call: Call) -> Any:
        """Ask the model once.

        Raises:
            TransientError: the server can not be reached, is in trouble, or is silent for too long.
            RateLimitedError: it asks to wait.
            UnsupportedError: it refuses the key, the model or the input, or answers nothing.
        """
        order = ORDERS[call.spec.name](call)
        limit = reply_timeout(self._settings)
        asked = await asyncio.to_thread(messages, call.inputs, order)
        client = await asyncio.to_thread(_client, call.candidate, limit)
        try:
            async with client, asyncio.timeout(limit):
                said = await _complete(client, call, asked)
        except TimeoutError as error:
            raise TransientError(f"{client.base_url} did not answer within {limit:g} s") from error
        return answer_of(call.spec, said)

    async def close(self) -> None:
        """Nothing is held between calls."""


def _client(candidate: Candidate, timeout: float) -> AsyncOpenAI:
    """A client for the candidate's server; made in a thread, since openai takes a second to import."""
    from openai import AsyncOpenAI

    key = os.environ.get(candidate.metadata.get("api_key_env") or "") or _NO_KEY
    register_secret(key)
    base_url = candidate.metadata["base_url"]
    client = AsyncOpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=0)
    # It takes them from the variables of the user's account with OpenAI, which are not for other servers.
    client.organization = client.project = None
    return client


async def _complete(client: AsyncOpenAI, call: Call, asked: list[Any]) -> str:
    """What the model writes, without its thinking."""
    import openai

    own = call.candidate.metadata.get("options") or {}
    options = {"max_tokens": MAX_NEW_TOKENS, "seed": call.settings.seed, **own}
    # What the user sets to null is left to the server.
    options = {name: value for name, value in options.items() if value is not None}
    try:
        reply = await client.chat.completions.create(model=call.candidate.id, messages=asked, **options)
    except openai.OpenAIError as error:
        raise _expert_error(error, call.candidate) from redacted_cause(error)
    message = reply.choices[0].message if reply.choices else None
    thinking = ThinkingFilter()
    said = thinking.feed((message and message.content) or "") + thinking.finish()
    if not said.strip():
        refusal = brief_text((message and message.refusal) or "")
        raise UnsupportedError(f"{call.candidate.id} answered nothing{': ' + refusal if refusal else ''}")
    return said


def _expert_error(error: Any, candidate: Candidate) -> ExpertError:
    """The error for what openai's client raised."""
    server = candidate.metadata["base_url"]
    status = getattr(error, "status_code", None)
    said = brief_text(str(error), 200)
    if status is None:
        return TransientError(f"{server} can not be reached: {said.rstrip('.')}; check that the server runs")
    if status in (401, 403):
        variable = candidate.metadata.get("api_key_env")
        where = f"check the variable {variable}" if variable else "name the key's variable as api_key_env"
        return UnsupportedError(f"{server} refuses the key ({status}); {where}")
    if status == 404:
        return UnsupportedError(
            f"{server} has no model {candidate.id} (404); the id is to be one that it lists under /models"
        )
    wait = retry_after(error.response.headers)
    if status == 429 or (status >= 500 and wait is not None):
        return RateLimitedError(f"{server} answered {status}: {said}", wait)
    if status == 408 or status >= 500:
        return TransientError(f"{server} answered {status}: {said}")
    return UnsupportedError(f"{server} answered {status}: {said}")
