"""Chat and vision models on any OpenAI-compatible server: vLLM, TGI, Ollama, llama.cpp, or OpenAI itself.

    RegisteredSource({"id": "qwen3:8b", "tasks": ["text-generation", "translation"],
                      "base_url": "http://localhost:11434/v1", "api_key_env": "MY_KEY"})

The id is the model's name on the server. The prompt for each task is a row of PROMPTS. The reply is data: the
model gets no tools, and no instruction in its reply is followed.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.http_errors import reply_timeout, status_error
from jarvis_agent.core.errors import (
    BadInputError,
    ExpertError,
    TransientError,
    UnsupportedError,
    redacted_cause,
)
from jarvis_agent.core.languages import find_language
from jarvis_agent.core.redaction import register_secret
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.llm.thinking import ThinkingFilter

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MAX_NEW_TOKENS = 1024

MAX_FILE_BYTES = 20_000_000
"""Bytes of a file in a message; the usual limit of servers."""

_NO_KEY = "none"
"""The key for a server that needs none; the client requires a value."""

_ANSWERS = frozenset({"question-answering", "visual-question-answering", "document-question-answering"})
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def chat_messages(inputs: Mapping[str, Any], text: str | None = None) -> list[dict[str, Any]]:
    """One user message with `text` (default: the argument of that name) and the files among the inputs.

    Images are sent as data URLs, recordings as `input_audio`.

    Raises:
        BadInputError: a file is too large.
        UnsupportedError: a message cannot contain a file of this kind.
    """
    prompt = str(inputs.get("text") or "") if text is None else text
    files = [value for value in inputs.values() if isinstance(value, Resource)]
    if not files:
        return [{"role": "user", "content": prompt}]
    content = [{"type": "text", "text": prompt}, *(_content_part(file) for file in files)]
    return [{"role": "user", "content": content}]


def _content_part(file: Resource) -> dict[str, Any]:
    path, mime = Path(file.path or ""), file.mime or ""
    if file.kind != "image" and mime not in _AUDIO_FORMATS:
        raise UnsupportedError(f"a chat message cannot contain {mime or file.kind}")
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise BadInputError(f"{path.name} has {size:,} bytes, more than {MAX_FILE_BYTES:,}; make it smaller")
    data = base64.b64encode(path.read_bytes()).decode()
    if file.kind == "image":
        return {"type": "image_url", "image_url": {"url": f"data:{mime or 'image/png'};base64,{data}"}}
    return {"type": "input_audio", "input_audio": {"data": data, "format": _AUDIO_FORMATS[mime]}}


def answer_output(spec: TaskSpec, reply: str) -> Any:
    """A model's reply as a raw output of the task: answers are a list of one, without a score."""
    return [{"answer": reply, "score": None}] if spec.name in _ANSWERS else reply


_BRIEFLY = "Answer in as few words as possible: {text}"

PROMPTS: dict[str, str] = {
    "text-generation": "{text}",
    "translation": (
        "Translate the following text{languages}, completely, in natural sentences. "
        "Answer with the translation alone.\n\n{text}"
    ),
    "summarization": "Summarize the following text in its own language, {length}.\n\n{text}",
    "question-answering": (
        "Answer the question from the context alone, in as few words as possible.\n\n"
        "Context:\n{context}\n\nQuestion: {text}"
    ),
    "image-to-text": "Describe the image in one sentence.",
    "visual-question-answering": _BRIEFLY,
    "document-question-answering": _BRIEFLY,
    "image-text-to-text": "{text}",
    "audio-text-to-text": "{text}",
    "any-to-any": "{text}",
}
"""The tasks that chat models do well, and the prompt for each."""

_READ_TEXT = "Write down the text in the image exactly as it stands there, and nothing else."


def prompt_for(call: Call) -> str:
    """The text of the message for a call: its task's row of PROMPTS with its arguments."""
    if call.spec.name == "image-to-text" and call.hints.get("ocr"):
        return _READ_TEXT
    if call.spec.name == "image-to-text" and call.inputs.get("text"):
        return str(call.inputs["text"])
    source, target = (_language(call, name) for name in ("src_lang", "tgt_lang"))
    return PROMPTS[call.spec.name].format(
        text=call.inputs.get("text") or "",
        context=call.inputs.get("context") or "",
        length=call.hints.get("length", "in a few sentences"),
        languages=(f" from {source}" if source else "") + f" into {target or 'English'}",
    )


def _language(call: Call, argument: str) -> str:
    """The English name of a language ("French") from any spelling in the plan."""
    name = str(call.inputs.get(argument) or "")
    language = find_language(name)
    return language.name if language else name


class OpenAIBackend:
    """Runs candidates that have a `base_url`."""

    name: ClassVar[str] = "openai"
    local: ClassVar[bool] = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if the candidate is on a server that may be called, else the reason."""
        if "base_url" not in candidate.metadata:
            return "it has no base_url of a server"
        if spec.name not in PROMPTS:
            return f"there is no chat prompt for {spec.name}"
        if self._settings.offline and not candidate.local:
            return "offline mode is on"
        variable = candidate.metadata.get("api_key_env")
        if variable and not os.environ.get(variable):
            return f"the environment variable {variable} for its key is not set"
        return None

    async def run(self, call: Call) -> Any:
        """Call the model once.

        Raises:
            TransientError: the server cannot be reached, fails, or takes too long.
            RateLimitedError: it asks to wait.
            UnsupportedError: it refuses the key, the model or the input, or its reply is empty.
        """
        limit = reply_timeout(self._settings)
        messages = await asyncio.to_thread(chat_messages, call.inputs, prompt_for(call))
        client = await asyncio.to_thread(_client, call.candidate, limit)
        try:
            async with client, asyncio.timeout(limit):
                reply = await _complete(client, call, messages)
        except TimeoutError as error:
            raise TransientError(f"{client.base_url} did not answer within {limit:g} s") from error
        return answer_output(call.spec, reply)

    async def close(self) -> None:
        """Do nothing: no connection is kept between calls."""


def _client(candidate: Candidate, timeout: float) -> AsyncOpenAI:
    """A client for the candidate's server. Importing openai takes a second, so this runs in a thread."""
    from openai import AsyncOpenAI

    key = os.environ.get(candidate.metadata.get("api_key_env") or "") or _NO_KEY
    register_secret(key)
    base_url = candidate.metadata["base_url"]
    client = AsyncOpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=0)
    # The defaults are the user's OpenAI account, which other servers must not see.
    client.organization = client.project = None
    return client


async def _complete(client: AsyncOpenAI, call: Call, messages: list[Any]) -> str:
    """The model's reply without its thinking."""
    import openai

    described = call.candidate.metadata.get("options") or {}
    options: dict[str, Any] = {"max_tokens": MAX_NEW_TOKENS, "seed": call.settings.seed, **described}
    try:
        response = await client.chat.completions.create(model=call.candidate.id, messages=messages, **options)
    except openai.OpenAIError as error:
        raise _expert_error(error, call.candidate) from redacted_cause(error)
    message = response.choices[0].message if response.choices else None
    thinking = ThinkingFilter()
    reply = thinking.feed((message and message.content) or "") + thinking.finish()
    if not reply.strip():
        refusal = brief_text((message and message.refusal) or "")
        raise UnsupportedError(f"{call.candidate.id} answered nothing{': ' + refusal if refusal else ''}")
    return reply


def _expert_error(error: Any, candidate: Candidate) -> ExpertError:
    """The error for an exception of openai's client."""
    server = candidate.metadata["base_url"]
    status = getattr(error, "status_code", None)
    message = brief_text(str(error), 200)
    if status is None:
        return TransientError(f"{server} cannot be reached: {message.rstrip('.')}; check that it runs")
    if status in (401, 403):
        variable = candidate.metadata.get("api_key_env")
        advice = f"check the variable {variable}" if variable else "set api_key_env to the key's variable"
        return UnsupportedError(f"{server} refuses the key ({status}); {advice}")
    if status == 404:
        return UnsupportedError(f"{server} has no model {candidate.id} (404); use an id listed under /models")
    return status_error(error.response, server, message)
