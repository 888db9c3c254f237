"""LLMClient: a chat model with what LangChain lacks. It is a Runnable and is used in place of the model.

It adds a time limit on silence while streaming (`Settings.llm_timeout`), a retry without the JSON schema or
the token limit if the server rejects it, `LLMError`s without keys, removal of `<think>` blocks, a limit on
the length, and an end to replies that repeat themselves.

It streams unless a LangChain LLM cache is set (`set_llm_cache` or `model.cache`): caches are only consulted
by `ainvoke`, so the reply then comes in one piece. The model's run is a direct child of the calling chain.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit
from uuid import uuid4

from langchain_core.globals import get_llm_cache
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    convert_to_messages,
    message_chunk_to_message,
)
from langchain_core.messages.ai import UsageMetadata, add_ai_message_chunks, add_usage
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from pydantic import SecretStr

from jarvis_agent.core.errors import ConfigError, LLMError, describe_error, redacted_cause
from jarvis_agent.core.redaction import redact, register_secret
from jarvis_agent.core.settings import Settings, read_settings
from jarvis_agent.core.sync import AsyncRunnable
from jarvis_agent.llm import chat_model
from jarvis_agent.llm.chat_model import base_url_of, describe_model, model_name
from jarvis_agent.llm.replies import ThinkingFilter, read_json
from jarvis_agent.llm.tokens import DEFAULT_WINDOW
from jarvis_agent.llm.usage import STAGE_KEY, UsageMeter

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


log = logging.getLogger(__name__)

NO_STREAM = "nostream"
"""LangGraph's tag, `TAG_NOSTREAM`, of calls that `stream_mode="messages"` leaves out."""

MAX_REPLY_CHARS = 1_000_000
"""Maximum length of a reply, thinking included."""

_REFUSAL_REASONS = {"content_filter", "refusal", "safety", "prohibited_content", "blocklist"}


class LLMClient(AsyncRunnable[LanguageModelInput, AIMessage]):
    """Calls a chat model with time limits and clear errors.

    Keyword arguments of `invoke`, `stream`, … (usually bound by `for_stage`):
        schema: JSON schema of the reply, sent to models that support one.

    A model without a token limit of its own gets half of the context window. After a server has rejected the
    schema or the limit, the client never sends it again.

    Raises:
        LLMError: no reply in time, a refusal, an empty reply, a wrong key, a dropped connection, ….
    """

    def __init__(self, model: BaseChatModel, settings: Settings) -> None:
        self.model = model
        self.settings = settings
        self._rejected: set[str] = set()
        self._window: int | None = None

    async def window(self) -> int:
        """Tokens that the model reads: by the settings, its profile, or its server, which is asked once."""
        if self._window is None:
            profile = getattr(getattr(self.model, "bound", self.model), "profile", None) or {}
            window = self.settings.context_window or profile.get("max_input_tokens")
            self._window = window or await chat_model.served_window(self.model) or DEFAULT_WINDOW
        return self._window

    def for_stage(
        self, stage: str, *, schema: Mapping[str, Any] | None = None
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """This client for one stage: its calls carry the stage's name in their tags and metadata."""
        # LangGraph streams no plan and no selection as a message.
        tags = [f"jarvis:{stage}", *([] if stage in ("respond", "chat") else [NO_STREAM])]
        config: RunnableConfig = {"tags": tags, "metadata": {STAGE_KEY: stage}}
        return self.bind(schema=schema).with_config(config)

    async def astream(
        self,
        input: LanguageModelInput,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[AIMessage, None]:
        """The reply in chunks. Close it (`aclosing`) unless it is read to the end."""
        config = ensure_config(config)
        stage = str((config.get("metadata") or {}).get(STAGE_KEY) or "reply")
        schema = kwargs.pop("schema", None)
        options = chat_model.length_options(self.model, await self.window())
        options |= chat_model.schema_options(self.model, stage, schema)
        extras = {name: value for name, value in options.items() if name not in self._rejected}
        begun = False
        while True:
            try:
                async with aclosing(self._reply(input, config, {**extras, **kwargs})) as chunks:
                    async for chunk in chunks:
                        begun = True
                        self._rejected |= options.keys() - extras.keys()
                        yield chunk
                return
            except LLMError as error:
                is_length = bool(re.search("max_(?:completion_)?tokens|context length", str(error).lower()))
                option = chat_model.MAX_TOKENS if is_length else chat_model.SCHEMA
                is_rejected = is_length or error.note.template == _REJECTED
                if begun or option not in extras or not is_rejected:
                    raise
                log.info("retrying without %s: %s", option, error)
                del extras[option]

    def _join(self, chunks: list[AIMessage]) -> AIMessage:
        """The message whose chunks these are."""
        first, *others = cast("list[AIMessageChunk]", chunks)
        return cast("AIMessage", message_chunk_to_message(add_ai_message_chunks(first, *others)))

    async def _reply(
        self, messages: LanguageModelInput, config: RunnableConfig, kwargs: Mapping[str, Any]
    ) -> AsyncGenerator[AIMessageChunk, None]:
        """One call of the model: its chunks without thinking, its failures as LLMErrors."""
        thinking, repetition, outcome = ThinkingFilter(), RepetitionFilter(), _Outcome()
        try:
            async with aclosing(self._chunks(messages, config, kwargs)) as chunks:
                async for chunk in chunks:
                    outcome.add(chunk)
                    text = thinking.feed(repetition.feed(str(chunk.text)))
                    outcome.has_text = outcome.has_text or bool(text.strip())
                    if text:
                        yield AIMessageChunk(content=text)
                    if repetition.found:
                        log.info("the reply repeated itself and was stopped")
                        outcome.reason = "length"
                        break
                    await asyncio.sleep(0)  # others run, also if the stream never waits
        except Exception as error:
            if type(error).__name__ != "LengthFinishReasonError":
                if isinstance(error, LLMError):
                    raise
                raise explain(error, self.model, self.settings) from redacted_cause(error)
            log.info("the reply was cut off: %s", describe_error(error))
            outcome.reason = "length"
        text = thinking.finish()
        outcome.has_text = outcome.has_text or bool(text.strip())
        outcome.check(self.model)
        metadata = {"finish_reason": outcome.reason} if outcome.reason else {}
        yield AIMessageChunk(content=text, response_metadata=metadata, usage_metadata=outcome.usage)

    async def _chunks(
        self, messages: LanguageModelInput, config: RunnableConfig, kwargs: Mapping[str, Any]
    ) -> AsyncGenerator[AIMessage, None]:
        limit = self.settings.llm_timeout
        kwargs = {**chat_model.transport_options(self.model), **kwargs}
        cache = getattr(getattr(self.model, "bound", self.model), "cache", None)
        with self._reserved(messages, config) as config:
            if cache or (cache is None and get_llm_cache() is not None):
                async with asyncio.timeout(5 * limit):  # it is not streamed
                    message = await self.model.ainvoke(messages, config, **kwargs)
                yield message
                return
            stream = cast("AsyncGenerator[AIMessage, None]", self.model.astream(messages, config, **kwargs))
            async with aclosing(stream):
                while True:
                    async with asyncio.timeout(limit):
                        chunk = await anext(stream, None)
                    if chunk is None:
                        return
                    yield chunk

    @contextmanager
    def _reserved(self, messages: LanguageModelInput, config: RunnableConfig) -> Iterator[RunnableConfig]:
        """The config of a call that the budgets of its run allow. Raises BudgetError."""
        run_id, stage = uuid4(), str((config.get("metadata") or {}).get(STAGE_KEY) or "")
        handlers: Any = getattr(config.get("callbacks"), "handlers", config.get("callbacks")) or ()
        prompt = convert_to_messages([messages] if isinstance(messages, str) else messages)
        with ExitStack() as reservations:
            for meter in (handler for handler in handlers if stage and isinstance(handler, UsageMeter)):
                reservations.enter_context(meter.reserve(run_id, stage, model_name(self.model), prompt))
            yield {**config, "run_id": run_id}


LanguageModel: TypeAlias = "BaseChatModel | LLMClient | str | None"
"""What chains take: a chat model, a client, or an `init_chat_model` string; None: the configured model."""


def open_client(llm: LanguageModel, settings: Settings | Mapping[str, Any] | None = None) -> LLMClient:
    """The client for what a chain takes as `llm`.

    Raises ConfigError: there is no such model, or none is configured.
    """
    if isinstance(llm, LLMClient):
        return llm
    settings = read_settings(settings)
    model = chat_model.resolve_model(llm, settings)
    if model is None:
        raise ConfigError(
            'this chain needs a language model: pass a chat model or a name such as "openai:gpt-5-mini"'
        )
    return LLMClient(model, settings)


async def write_json(
    model: Runnable[LanguageModelInput, AIMessage],
    messages: Sequence[BaseMessage],
    check: Callable[[Any], Any],
    config: RunnableConfig | None = None,
    *,
    what: str = "JSON",
) -> Any:
    """The JSON of a reply that passes a check, which raises ValueError if not. `what` is its name in errors.

    Another reply goes back to the model once, with the error. Raises LLMError: the second does not fit.
    """
    conversation, problem = [*messages], ""
    for _ in range(2):
        reply = str((await model.ainvoke(conversation, config)).text)
        try:
            value = read_json(reply)[-1].value
            check(value)
        except (IndexError, ValueError) as error:
            problem = "it is no JSON" if isinstance(error, IndexError) else describe_error(error)
            conversation += [AIMessage(reply), HumanMessage(f"This does not fit the schema: {problem}")]
        else:
            return value
    raise LLMError(f"the language model wrote no {what} that fits: {problem}")


@dataclass(slots=True)
class _Outcome:
    """What a finished reply says about itself."""

    has_text: bool = False
    length: int = 0
    refusal: str = ""
    reason: str = ""
    usage: UsageMetadata | None = None

    def add(self, chunk: AIMessage) -> None:
        """Note a chunk. Raises LLMError if the reply is too long."""
        self.length += len(chunk.text)
        if self.length > MAX_REPLY_CHARS:
            raise LLMError(
                f"the language model wrote more than {MAX_REPLY_CHARS:,} characters and was stopped. "
                "Try again, or use another model."
            )
        if "input_tokens" in (chunk.usage_metadata or {}):  # a cached reply may have no more than its cost, 0
            self.usage = add_usage(self.usage, chunk.usage_metadata)
        metadata = chunk.response_metadata or {}
        self.reason = str(metadata.get("finish_reason") or metadata.get("stop_reason") or self.reason)
        self.refusal += str(chunk.additional_kwargs.get("refusal") or "")
        for block in chunk.content if isinstance(chunk.content, list) else ():
            if isinstance(block, dict) and block.get("type") == "refusal":
                self.refusal += str(block.get("refusal") or "")

    def check(self, model: Any) -> None:
        """Raise LLMError if the model refused or returned no text."""
        if self.refusal or self.reason.lower() in _REFUSAL_REASONS:
            said = f": {' '.join(self.refusal.split())[:300]}" if self.refusal else f" ({self.reason})"
            raise LLMError(
                f"{describe_model(model)} refused{said}. Ask in another way, or use another model."
            )
        if not self.has_text:
            why = f" (finish reason: {self.reason})" if self.reason and self.reason != "stop" else ""
            raise LLMError(
                f"{describe_model(model)} returned an empty reply{why}. Try again, or use another model."
            )


# Read backwards: three copies of a block, or more of a short one. "ha ha ha" and a row of dashes pass.
_COPIES = re.compile(r"(.{100,2000}?)\1\1|(.{1,99}?)\2{2,}(?<=.{300})", re.DOTALL)
_LONGEST, _STEP = 6000, 50
"""Characters of three copies of the longest block, and at least between two checks."""


class RepetitionFilter:
    """Filters one reply. `found` is true once its end repeats one block at least three times."""

    def __init__(self) -> None:
        self.found = False
        self._tail, self._unchecked = "", 0

    def feed(self, text: str) -> str:
        """Return the text, up to the end of the last copy that is needed to recognise a repetition."""
        for place in range(0, len(text), _STEP):
            part = text[place : place + _STEP]
            self._tail = (self._tail + part)[-_LONGEST:]
            self._unchecked += len(part)
            if self._unchecked >= _STEP:
                self._unchecked, self.found = 0, bool(_COPIES.match(self._tail[::-1]))
                if self.found:
                    return text[: place + _STEP]
        return text


_KEY_LIKE = re.compile(r"\b(?:sk|hf|gsk|xai|pk|rk)[-_][\w*.-]{4,}")


_REJECTED = "{llm} does not take this request"
"""What it says of 400 and 422. A request without options may be accepted."""


class Advice(NamedTuple):
    """What happened, what to do, and the exception classes and HTTP statuses of the condition.

    `{seconds}` stands for `llm_timeout`.
    """

    what: str
    do: str
    when: tuple[str | int, ...]


ADVICE = (
    Advice("{llm} refused the key", "set {key} to a key that it accepts",
           ("ModelAuthenticationError", 401)),
    Advice("{llm} does not allow this", "check the permissions of {key}, and your plan with the provider",
           ("ModelPermissionDeniedError", 402, 403)),
    Advice("{llm} was not found there", "set JARVIS_MODEL to a model that the server lists under /models; "
           'JARVIS_BASE_URL includes the path, such as "http://localhost:8000/v1"',
           ("ModelNotFoundError", 404)),
    Advice("the request is too long for {llm}", "shorten the request, or use a model with a longer context",
           ("ContextOverflowError", "exceed_context_size_error", 413)),
    Advice("{llm} has had too many requests", "wait a while, or check your quota with the provider",
           ("ModelRateLimitError", 429)),
    Advice("{llm} was silent for too long ({seconds:g} s)", "try again, or raise JARVIS_LLM_TIMEOUT",
           ("ModelTimeoutError", "APITimeoutError", "TimeoutError", "TimeoutException", 408, 504)),
    Advice(_REJECTED, "use another model", ("ModelInvalidRequestError", 400, 422)),
    Advice("{llm} refused", "ask in another way, or use another model",
           ("ContentFilterFinishReasonError",)),
    Advice("{llm} sent a reply that cannot be read",
           "check that JARVIS_BASE_URL leads to an OpenAI-compatible server",
           ("UnicodeDecodeError", "JSONDecodeError", "APIResponseValidationError")),
    Advice("{llm} could not be reached, or dropped the connection",
           "check the network; if you set JARVIS_BASE_URL, check that address and that the server runs",
           ("ModelConnectionError", "APIConnectionError", "ConnectionError", "TransportError")),
    Advice("{llm} failed on its side", "try again later, or use another model",
           ("ModelAPIError", *range(500, 600))),
)  # fmt: skip

_KEY_NAMES = {"api.openai.com": "OPENAI_API_KEY", "router.huggingface.co": "HF_TOKEN"}


def explain(error: BaseException, model: Any, settings: Settings) -> LLMError:
    """The LLMError for a failure of `model`: what happened, and what to do."""
    conditions = {*(cls.__name__ for cls in type(error).__mro__), getattr(error, "status_code", None)}
    conditions.add(getattr(error, "type", None))  # of the body of an answer
    unknown = Advice("{llm} failed", "try again, or use another model", ())
    advice = next((row for row in ADVICE if conditions.intersection(row.when)), unknown)
    words = {"llm": describe_model(model), "key": _key_name(model, settings), "seconds": settings.llm_timeout}
    for field in vars(getattr(model, "bound", model)).values():
        if isinstance(field, SecretStr):
            register_secret(field.get_secret_value())
    detail = _KEY_LIKE.sub("(key)", redact(" ".join(str(error).split())))[:300]
    return LLMError(advice.what, detail=detail.rstrip("."), advice=advice.do.format_map(words), **words)


def _key_name(model: Any, settings: Settings) -> str:
    host = urlsplit(base_url_of(model) or "").hostname
    if settings.base_url and urlsplit(settings.base_url).hostname == host:
        return "JARVIS_API_KEY"
    return _KEY_NAMES.get(host or "", "the model's API key")
