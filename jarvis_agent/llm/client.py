"""The language model: which one it is, and the LLMClient through which every stage speaks with it.

    model = resolve_model(None, Settings())       # what the environment offers, or None
    controller = LLMClient(model, settings)
    async for piece in controller.stream("plan", messages, brief):
        …

`resolve_model(None, …)` takes the first that is there:

1. JARVIS_BASE_URL: any OpenAI-compatible server (vLLM, Ollama, llama.cpp), asked for the model JARVIS_MODEL.
   Without JARVIS_MODEL it is asked for "default", which servers of a single model take; others say that they
   do not know it.
2. JARVIS_MODEL: a string for LangChain's `init_chat_model`, such as "anthropic:claude-haiku-4-5".
3. OPENAI_API_KEY: OpenAI.
4. HF_TOKEN: the OpenAI-compatible router of Hugging Face's Inference Providers, unless `offline` is set.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs

from jarvis_agent.core.errors import ConfigError, LLMError, describe_error, redacted_cause
from jarvis_agent.core.types import Usage
from jarvis_agent.llm.capabilities import is_openai_like, options, takes_schema, transport
from jarvis_agent.llm.errors import RejectedRequestError, describe_model, explain
from jarvis_agent.llm.reply_cache import Replies

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk, BaseMessage

    from jarvis_agent.core.request import RunContext
    from jarvis_agent.core.settings import Settings

__all__ = ["LLMClient", "describe_model", "resolve_model"]

log = logging.getLogger(__name__)

OPENAI_MODEL = "gpt-5-mini"
ROUTER_URL = "https://router.huggingface.co/v1"
ROUTER_MODEL = "openai/gpt-oss-120b"

PROVIDERS = frozenset(
    {
        "anthropic",
        "anthropic_bedrock",
        "azure_ai",
        "azure_openai",
        "baseten",
        "bedrock",
        "bedrock_converse",
        "cohere",
        "deepseek",
        "fireworks",
        "google_anthropic_vertex",
        "google_genai",
        "google_vertexai",
        "groq",
        "huggingface",
        "ibm",
        "litellm",
        "mistralai",
        "nvidia",
        "ollama",
        "openrouter",
        "perplexity",
        "together",
        "upstage",
        "xai",
    }
)
"""Other providers than OpenAI by their prefixes for `init_chat_model`; "llama3" in "llama3:8b" is none."""

_RETRIES = 2
_LONGEST_REPLY = 1_000_000
"""Letters of a reply, its thinking included: one that has no end is stopped before it fills the memory."""

_FIXED_TEMPERATURE = re.compile(r"(?:o\d|gpt-[5-9])(?!.*chat)")
_OPENAI_NAME = re.compile(r"(?:chat)?gpt-|o\d\b")
_CUT_OFF = {"LengthFinishReasonError"}
_TOO_LONG = {"length", "max_tokens"}
_REFUSED = {"content_filter", "refusal", "safety", "prohibited_content", "blocklist"}


def resolve_model(model: BaseChatModel | str | None, settings: Settings) -> BaseChatModel | None:
    """The chat model to work with; None if there is none.

    Args:
        model: a chat model, which is taken as it is; a string as for JARVIS_MODEL, which is asked of
            JARVIS_BASE_URL if that is set, unless it names a provider of its own ("anthropic:…"); or None
            to look for one in the order given above.
        settings: `model`, `base_url`, `api_key`, `hf_token`, `offline`, `llm_timeout`.

    Raises:
        ConfigError: the model can not be made: an unknown provider, a package or key that is missing, a bad
            address.
    """
    if isinstance(model, Runnable):
        return model
    if model is not None and not isinstance(model, str):
        raise ConfigError(
            f"the language model is of type {type(model).__name__}; give a chat model of LangChain, "
            f'or a name such as "openai:{OPENAI_MODEL}"'
        )
    name = model or settings.model
    if model and ":" in model and model.partition(":")[0] in PROVIDERS:
        return _named(model, settings)
    if settings.base_url:
        key = settings.api_key.get_secret_value() if settings.api_key else "none"
        return _openai((name or "default").removeprefix("openai:"), settings, settings.base_url, key)
    if name:
        return _named(name, settings)
    if os.environ.get("OPENAI_API_KEY"):
        return _openai(OPENAI_MODEL, settings)
    if settings.hf_token and not settings.offline:
        return _openai(ROUTER_MODEL, settings, ROUTER_URL, settings.hf_token.get_secret_value())
    return None


def _named(name: str, settings: Settings) -> BaseChatModel:
    if name.startswith("openai:") or _OPENAI_NAME.match(name):
        key = settings.api_key.get_secret_value() if settings.api_key else None
        return _openai(name.removeprefix("openai:"), settings, key=key)
    from langchain.chat_models import init_chat_model

    try:
        return _at_zero(init_chat_model(name))
    except Exception as error:
        why = _no_provider(name) if "infer model provider" in str(error) else error
        raise ConfigError(
            f'the language model "{name}" can not be made: {why} A model is named as "provider:model", '
            f'such as "openai:{OPENAI_MODEL}"; for an OpenAI-compatible server set JARVIS_BASE_URL too.'
        ) from error


def _no_provider(name: str) -> str:
    """In place of LangChain's list of all providers, which would hide what follows it."""
    provider, named, _ = name.partition(":")
    close = get_close_matches(provider, {"openai", *PROVIDERS}, n=1) if named else []
    return "no provider is known for it" + (f'; did you mean "{close[0]}"?' if close else ".")


def _openai(
    name: str, settings: Settings, base_url: str | None = None, key: str | None = None
) -> BaseChatModel:
    """A ChatOpenAI. An address always comes with a key, so that OPENAI_API_KEY is never sent to it."""
    if base_url and not base_url.startswith(("http://", "https://")):
        raise ConfigError(f'JARVIS_BASE_URL is "{base_url}"; it must begin with http:// or https://')
    if not (key or os.environ.get("OPENAI_API_KEY")):
        raise ConfigError(f'the language model "openai:{name}" needs a key: set OPENAI_API_KEY')
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    return _at_zero(
        ChatOpenAI(
            model=name,
            base_url=base_url,
            api_key=SecretStr(key) if key else None,
            timeout=settings.llm_timeout,
            stream_chunk_timeout=settings.llm_timeout,
            max_retries=_RETRIES,
            stream_usage=True,
        )
    )


def _at_zero(model: BaseChatModel) -> BaseChatModel:
    """The same model at temperature 0, where it lets one choose."""
    name = str(getattr(model, "model_name", ""))
    profile: Mapping[str, Any] = getattr(model, "profile", None) or {}
    fixed = is_openai_like(model) and _FIXED_TEMPERATURE.match(name)
    if "temperature" in type(model).model_fields and profile.get("temperature", not fixed):
        model.temperature = 0.0  # type: ignore[attr-defined]
    return model


class LLMClient:
    """The language model as the stages see it: pieces of text, bounded silence, clear errors, a count."""

    def __init__(self, model: BaseChatModel, settings: Settings) -> None:
        self.model = model
        self.settings = settings
        self._plain_only = False
        self._replies = Replies(model)

    @property
    def asks_schema(self) -> bool:
        """Whether a schema is asked of the model, as far as is known before it has answered."""
        return not self._plain_only and takes_schema(self.model, self.settings)

    async def stream(
        self,
        stage: str,
        messages: Sequence[BaseMessage],
        brief: RunContext,
        *,
        schema: dict[str, Any] | None = None,
        bias: Sequence[str] = (),
    ) -> AsyncGenerator[str, None]:
        """The reply, piece by piece. Reasoning is left out. Close it (`aclosing`) if you do not read to the
        end.

        Args:
            stage: "plan", "select", "respond", "repair" or "chat"; its tokens are counted under this name.
            messages: the prompt.
            brief: whose meter counts and whose config carries callbacks.
            schema: JSON schema of the reply, for models that take one. A server that rejects it is asked
                again without, and never with it thereafter.
            bias: words toward which the reply is drawn (`Settings.logit_bias`), for models that take it.

        Raises:
            LLMError: no reply in time, a refusal, an empty reply, a wrong key, a dropped connection, ….
        """
        extras = {} if self._plain_only else options(self.model, self.settings, stage, schema, bias)
        begun = False
        try:
            async with aclosing(self._ask(stage, messages, brief, extras)) as pieces:
                async for piece in pieces:
                    begun = True
                    yield piece
            return
        except RejectedRequestError as error:
            if begun or not extras:
                raise
            log.info("asking again without %s: %s", " and ".join(extras), error)
        async with aclosing(self._ask(stage, messages, brief, {})) as pieces:
            async for piece in pieces:
                self._plain_only = True
                yield piece

    async def complete(
        self,
        stage: str,
        messages: Sequence[BaseMessage],
        brief: RunContext,
        *,
        schema: dict[str, Any] | None = None,
        bias: Sequence[str] = (),
    ) -> str:
        """The whole reply; otherwise as `stream`."""
        return "".join([p async for p in self.stream(stage, messages, brief, schema=schema, bias=bias)])

    async def _ask(
        self, stage: str, messages: Sequence[BaseMessage], brief: RunContext, extras: Mapping[str, Any]
    ) -> AsyncGenerator[str, None]:
        if (kept := await self._replies.find(messages, extras)) is not None:
            brief.meter.add(stage, Usage(cached=1))
            yield kept
            return
        reply, said = _Reply(), list[str]()
        try:
            async with aclosing(self._pieces(stage, messages, brief, extras, reply)) as pieces:
                async for piece in pieces:
                    said.append(piece)
                    yield piece
        finally:
            brief.meter.add(stage, reply.usage)
        reply.check(self.model)
        if reply.reason.lower() not in _TOO_LONG:
            await self._replies.keep(messages, extras, "".join(said))

    async def _pieces(
        self,
        stage: str,
        messages: Sequence[BaseMessage],
        brief: RunContext,
        extras: Mapping[str, Any],
        reply: _Reply,
    ) -> AsyncGenerator[str, None]:
        """The pieces of one reply; what is known of it is noted in `reply`."""
        thoughts = ThinkingFilter()
        chunks = cast(
            "AsyncGenerator[AIMessageChunk, None]",
            self.model.astream(list(messages), _config(stage, brief), **transport(self.model), **extras),
        )
        try:
            async with aclosing(chunks):
                while (chunk := await self._next(chunks)) is not None:
                    reply.add(chunk)
                    # A stream that always has its next piece ready would let no deadline pass.
                    await asyncio.sleep(0)
                    if text := thoughts.feed(str(chunk.text)):
                        reply.spoken = reply.spoken or not text.isspace()
                        yield text
            if text := thoughts.finish():
                reply.spoken = reply.spoken or not text.isspace()
                yield text
        except LLMError:
            raise
        except Exception as error:
            if type(error).__name__ not in _CUT_OFF:
                raise explain(error, self.model, self.settings) from redacted_cause(error)
            log.info("the reply was cut off: %s", describe_error(error))
            reply.reason = "length"

    async def _next(self, chunks: AsyncIterator[AIMessageChunk]) -> AIMessageChunk | None:
        async with asyncio.timeout(self.settings.llm_timeout):
            return await anext(chunks, None)


def _config(stage: str, brief: RunContext) -> RunnableConfig:
    """The run's config for one call: traces and event streams show the stage as name, tag and metadata."""
    config = merge_configs(
        brief.config, {"tags": [f"jarvis:{stage}"], "metadata": {"jarvis_stage": stage}, "run_name": stage}
    )
    config.pop("run_id", None)
    return config


@dataclass(slots=True)
class _Reply:
    """What is known of a reply when it has ended."""

    spoken: bool = False
    length: int = 0
    refusal: str = ""
    reason: str = ""
    usage: Usage = field(default_factory=lambda: Usage(calls=1))

    def add(self, chunk: AIMessageChunk) -> None:
        """Note a piece. Raises LLMError if the reply has become too long."""
        self.length += len(chunk.text)
        if self.length > _LONGEST_REPLY:
            raise LLMError(
                f"the language model wrote more than {_LONGEST_REPLY:,} letters and was stopped. "
                "Try again, or use another model."
            )
        if counted := chunk.usage_metadata:
            self.usage += Usage(
                input_tokens=counted["input_tokens"] or 0, output_tokens=counted["output_tokens"] or 0
            )
        metadata = chunk.response_metadata or {}
        self.reason = str(metadata.get("finish_reason") or metadata.get("stop_reason") or self.reason)
        self.refusal += str(chunk.additional_kwargs.get("refusal") or "")
        for block in chunk.content if isinstance(chunk.content, list) else ():
            if isinstance(block, dict) and block.get("type") == "refusal":
                self.refusal += str(block.get("refusal") or "")

    def check(self, model: Any) -> None:
        """Raise LLMError if the model refused or said nothing."""
        if self.refusal or self.reason.lower() in _REFUSED:
            said = f": {' '.join(self.refusal.split())[:300]}" if self.refusal else f" ({self.reason})"
            raise LLMError(
                f"{describe_model(model)} refused{said}. Ask in another way, or use another model."
            )
        if not self.spoken:
            why = f" (it stopped for: {self.reason})" if self.reason and self.reason != "stop" else ""
            raise LLMError(f"{describe_model(model)} answered nothing{why}. Try again, or use another model.")


class ThinkingFilter:
    """Takes away a leading `<think>…</think>`, which servers without a parser for it leave in the text.

    feed("<thi"), feed("nk>hm</think>\\n[")  →  "", "["
    """

    _OPEN = ("<think>", "<thinking>")

    def __init__(self) -> None:
        self._held = ""
        self._closing = ""
        self._thought = False
        self._begun = False

    def feed(self, text: str) -> str:
        """The part of the reply so far that is not thinking and was not given yet."""
        if self._begun:
            return text
        self._held += text
        if not self._closing and not self._thought:
            start = self._held.lstrip()
            tag = next((tag for tag in self._OPEN if start.startswith(tag)), "")
            self._closing = tag.replace("<", "</")
            if not tag and any(tag.startswith(start) for tag in self._OPEN):
                return ""
        if self._closing:
            _, closed, after = self._held.partition(self._closing)
            if not closed:
                # No more is needed of it than what may be the beginning of the closing tag.
                self._held = self._held[-len(self._closing) :]
                return ""
            self._held, self._closing, self._thought = after, "", True
        if self._thought:
            self._held = self._held.lstrip()
        self._begun = bool(self._held)
        return self._held

    def finish(self) -> str:
        """What is still held at the end and is not thinking."""
        return "" if self._begun or self._thought or self._closing else self._held
