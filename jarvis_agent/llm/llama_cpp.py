"""Language models in GGUF files, run in this process by llama.cpp (xllamacpp, extra "llm").

model = LlamaCpp(Path("model.gguf"))
reply = model.chat([{"role": "user", "content": "Hello"}], max_tokens=50, on_text=print)
reply.text              # "Hello! How can I help you?"
reply.finish_reason     # "stop"
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jarvis_agent.core.errors import ExpertError, MissingExtraError, UnsupportedError
from jarvis_agent.core.text import replace_surrogates_in


@dataclass(slots=True)
class LlamaReply:
    """The reply of a model, complete when `chat` returns.

    Attributes:
        finish_reason: "stop", "length" (the limit of tokens), "tool_calls", or None if it was cancelled.
        usage: `prompt_tokens`, `completion_tokens` and `total_tokens`; empty if it was cancelled.
    """

    text: str = ""
    finish_reason: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)


class LlamaCpp:
    """One model, loaded at its first use or by `load`. Thread-safe; concurrent chats take turns."""

    def __init__(self, weights: Path, *, context: int = 0, threads: int | None = None) -> None:
        """Remember what to load.

        Args:
            weights: the GGUF file.
            context: tokens of a chat and its reply at most; 0: what the model was trained with.
            threads: threads that compute; None: one for every two cores. On a machine that has other work,
                a thread for each core is many times slower, since they wait for each other busily.
        """
        self.weights = weights
        self._context = context
        self._threads = threads or max(1, (os.cpu_count() or 2) // 2)
        self._lock = threading.Lock()
        self._server: Any = None

    def load(self) -> None:
        """Load the model unless it is loaded.

        Raises:
            MissingExtraError: xllamacpp is not installed.
            ExpertError: llama.cpp cannot load the file.
        """
        with self._lock:
            if self._server is None:
                self._server = self._load()

    def _load(self) -> Any:
        try:
            import xllamacpp
        except ImportError as error:
            raise MissingExtraError(self.weights.name, "llm") from error
        params = xllamacpp.CommonParams()
        params.model.path = str(self.weights)
        params.n_ctx = self._context
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.warmup = False
        params.cache_ram_mib = 0  # no cache of earlier chats, for which the default is 8 GB
        params.verbosity = -1
        # It also listens on a port of this machine, where nobody shall use it.
        params.api_keys = [secrets.token_urlsafe()]
        params.ui = False
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            raise ExpertError(f"llama.cpp cannot load {self.weights}: {error}") from error

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        max_tokens: int,
        on_text: Callable[[str], object] = lambda _: None,
        is_cancelled: Callable[[], bool] = lambda: False,
        **options: Any,
    ) -> LlamaReply:
        """Reply to messages in OpenAI's format.

        Args:
            messages: `{"role": …, "content": …}` each.
            max_tokens: tokens of the reply at most.
            on_text: called with each new piece of the reply, usually a token.
            is_cancelled: asked after each token; the reply ends when it is true. The reading of the messages
                is not interrupted.
            options: other fields of a chat completion (`temperature`, `response_format`, `tools`, …), and of
                llama.cpp (`repeat_penalty`, `grammar`, …).

        Raises:
            UnsupportedError: the messages are longer than the context.
            ExpertError: the messages or options are malformed, or the model failed.
            MissingExtraError: as `load`.
            Exception: an error of `on_text` or `is_cancelled`.
        """
        self.load()
        request = {"messages": list(messages), "max_tokens": max_tokens, **options}
        request |= {"stream": True, "stream_options": {"include_usage": True}}
        reply = LlamaReply()
        failures: list[BaseException] = []

        def receive(chunk: Mapping[str, Any]) -> bool:
            """Return whether llama.cpp shall stop; it ignores exceptions."""
            try:
                self._read(chunk, reply, on_text)
                return is_cancelled()
            except BaseException as error:
                failures.append(error)
                return True

        try:
            self._server.handle_chat_completions(replace_surrogates_in(request), receive)
        except (TypeError, ValueError) as error:
            raise ExpertError(f"llama.cpp refuses the request to {self.weights.name}: {error}") from error
        if failures:
            raise failures[0]
        return reply

    def _read(self, chunk: Mapping[str, Any], reply: LlamaReply, on_text: Callable[[str], object]) -> None:
        if error := chunk.get("error"):
            if error.get("type") == "exceed_context_size_error":
                raise UnsupportedError(
                    f"{self.weights.name} reads at most {error['n_ctx']:,} tokens, and this text has "
                    f"{error['n_prompt_tokens']:,}; take a shorter one"
                )
            raise ExpertError(f"llama.cpp failed with {self.weights.name}: {error.get('message')}")
        reply.usage = chunk.get("usage") or reply.usage
        for choice in chunk.get("choices", ()):
            reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
            if text := choice.get("delta", {}).get("content"):
                reply.text += text
                on_text(text)
