"""Chat models in GGUF files, run in this process by llama.cpp (xllamacpp, extra "llm")."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, cast
from weakref import WeakValueDictionary

import httpx
from langchain_core.language_models import LangSmithParams, ModelProfile
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_openai.chat_models.base import BaseChatOpenAI
from pydantic import FilePath, PrivateAttr, model_validator

from jarvis_agent.core.concurrency import run_in_daemon_thread
from jarvis_agent.core.environment import direct_clients
from jarvis_agent.core.errors import ExpertError, MissingExtraError, UnsupportedError
from jarvis_agent.core.forks import fork_safe, keep_forever, renew_in_child
from jarvis_agent.core.text import replace_surrogates_in
from jarvis_agent.llm.tokens import LOCAL_WINDOW

IDLE_S = 600
"""Seconds after its last reply when the memory of a model is freed. Its next reply loads it again."""


def usable_cores() -> int:
    """CPU cores that this process may use, which a container or a job of a cluster often limits."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LlamaCpp:
    """One model of llama.cpp: a server here that only we have the key of, freed with its last user."""

    _shared: ClassVar[WeakValueDictionary[tuple[object, ...], LlamaCpp]] = WeakValueDictionary()
    _sharing: ClassVar[threading.Lock] = fork_safe(threading.Lock())

    def __init__(self, weights: Path, n_ctx: int, n_gpu_layers: int) -> None:
        self.weights, self.n_ctx, self.n_gpu_layers = weights, n_ctx, n_gpu_layers
        self.key = secrets.token_urlsafe()
        self._lock = fork_safe(threading.Lock())
        self._server: Any = None
        self._called = 0.0
        self._size = 0
        self._is_renewed = False
        renew_in_child(self, LlamaCpp._renew)

    def _renew(self) -> None:
        """Load the model again in a forked child: the server is the parent's."""
        if self._server is not None:
            keep_forever(self._server)
            self._server, self._is_renewed = None, True

    @property
    def nbytes(self) -> int:
        """Bytes of the weights in memory; 0 before the first call, and when idle."""
        is_loaded = self._server is not None and time.monotonic() < self._called + IDLE_S
        return self._size if is_loaded else 0

    @classmethod
    def of(cls, weights: Path, n_ctx: int, n_gpu_layers: int) -> LlamaCpp:
        """The model of a file with these parameters, new if no other user has it."""
        with cls._sharing:
            key = (weights.resolve(), n_ctx, n_gpu_layers)
            return cls._shared.setdefault(key, cls(*key))

    def load(self) -> str:
        """Load the model unless it is loaded, and return the address of its server.

        Raises ExpertError: llama.cpp cannot load the file.
        """
        with self._lock:
            if self._server is None:
                self._server = self._start()
                if self._is_renewed:  # its end would wait for llama.cpp's log, a thread of the parent
                    keep_forever(self._server)
                self._size = self.weights.stat().st_size  # not when asked, which an event loop does
            self._called = time.monotonic()
            return str(self._server.listening_address)

    def _start(self) -> Any:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(self.weights)
        params.n_ctx = self.n_ctx
        params.n_gpu_layers = self.n_gpu_layers
        # Tokens of a prompt between two signs of progress, and two checks whether the caller is gone.
        params.n_batch = params.n_ubatch = 256
        params.n_parallel = 1
        # A thread for each core is many times slower on a machine that has other work, since they wait for
        # each other busily; and every two cores are often one that is counted twice.
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, usable_cores() // 2)
        params.warmup = False
        params.cache_ram_mib = 512  # of earlier prompts, whose common beginnings are not read again
        params.sleep_idle_seconds = IDLE_S
        params.verbosity = -1
        params.api_keys = [self.key]
        params.ui = False
        # Small models think for minutes, to little effect. A template without this argument ignores it.
        params.default_template_kwargs = {"enable_thinking": "false"}
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            raise ExpertError(f"llama.cpp cannot load {self.weights.name}", detail=error) from error

    def supports_tools(self) -> bool:
        """Whether the chat template of the model takes tools. Loads the model; raises as `load`."""
        with httpx.Client(trust_env=False, headers={"Authorization": f"Bearer {self.key}"}) as client:
            return bool(client.get(f"{self.load()}/props").json()["chat_template_caps"]["supports_tools"])


class ChatGGUF(BaseChatOpenAI):
    """A chat model in a GGUF file, loaded at its first use and shared by all that use the file.

    It takes the parameters of ChatOpenAI, and in `extra_body` those of llama.cpp (`grammar`,
    `repeat_penalty`, …). Replies to concurrent calls are written one after the other.

    Args:
        path: the file.
        n_ctx: tokens of a prompt and its reply at most, unless the model was trained with less.
        n_gpu_layers: layers that a GPU computes; -1: as many as fit; 0: none.

    Raises:
        MissingExtraError: xllamacpp is not installed.
        ExpertError: (at its first use) llama.cpp cannot load the file.
    """

    path: FilePath
    n_ctx: int = LOCAL_WINDOW
    n_gpu_layers: int = -1

    is_local: ClassVar[bool] = True
    _llama: LlamaCpp = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _set_defaults(cls, given: dict[str, Any]) -> Any:
        if find_spec("xllamacpp") is None:
            raise MissingExtraError(Path(given["path"]).name, "llm")
        defaults = {
            "model": Path(given["path"]).name,
            "base_url": "http://127.0.0.1",
            "api_key": "set-when-loaded",
            **direct_clients(),
            "use_responses_api": False,
            "stream_usage": True,
        }
        return {**defaults, **given}

    def model_post_init(self, context: Any) -> None:
        """Find the model among the loaded ones."""
        super().model_post_init(context)
        self._llama = LlamaCpp.of(self.path, self.n_ctx, self.n_gpu_layers)

    @property
    def llama(self) -> LlamaCpp:
        """The model of llama.cpp, which all that use its file share."""
        return self._llama

    def load(self) -> None:
        """Load the model unless it is loaded. Raises ExpertError if llama.cpp cannot."""
        address = self._llama.load()
        for client in (self.root_client, self.root_async_client):
            client.base_url, client.api_key = f"{address}/v1", self._llama.key

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[Any, AIMessage]:
        """Bind tools to the model, which is loaded for that.

        Raises UnsupportedError: its chat template takes no tools.
        """
        if not self._llama.supports_tools():
            raise UnsupportedError(
                f"{self.path.name} calls no tools: its chat template has no place for them"
            )
        return super().bind_tools(tools, **kwargs)

    def with_structured_output(
        self, schema: Any = None, *, method: Any = "json_schema", **kwargs: Any
    ) -> Any:
        """As BaseChatOpenAI's; by default, llama.cpp lets the model write nothing but JSON of the schema."""
        return super().with_structured_output(schema, method=method, **kwargs)

    def _get_request_payload(self, input_: Any, *, stop: list[str] | None = None, **kwargs: Any) -> Any:
        self.load()
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        if payload.get("stream"):
            # Signs of progress, so that a long prompt is not taken for a server that is silent.
            payload["extra_body"] = {"return_progress": True, **(payload.get("extra_body") or {})}
        return replace_surrogates_in(payload)

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        await run_in_daemon_thread(self.load)
        return await super()._agenerate(*args, **kwargs)

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        await run_in_daemon_thread(self.load)
        async with aclosing(cast("Any", super()._astream(*args, **kwargs))) as chunks:
            async for chunk in chunks:
                yield chunk

    def _get_generation_chunk_from_completion(self, completion: Any) -> ChatGenerationChunk:
        # Each sign of progress repeats the role, and without a role the tokens would not be counted.
        for choice in completion.choices:
            choice.message.role = "assistant"
        return super()._get_generation_chunk_from_completion(completion)

    def _resolve_model_profile(self) -> ModelProfile:
        return {"max_input_tokens": self.n_ctx, "structured_output": True, "text_inputs": True}

    @property
    def _llm_type(self) -> str:
        return "llama-cpp"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return {**super()._get_ls_params(stop=stop, **kwargs), "ls_provider": self._llm_type}
