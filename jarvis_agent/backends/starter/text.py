"""The starter model that writes texts, in a GGUF file run by llama.cpp. Raw output: the text."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, cast

from jarvis_agent.backends.base import Call, text_of
from jarvis_agent.backends.chat_model import GGUF_OPTIONS, GGUF_TOKENS
from jarvis_agent.backends.jobs import Generation, add_note, is_cancelled, listed
from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.chat_model import local_model


class TextGenerator:
    """The model in the GGUF file `weights`."""

    def __init__(self, weights: Path, settings: Settings) -> None:
        """Load the model. Raises ExpertError if llama.cpp cannot."""
        self.model = local_model(weights, settings)
        self.model.load()

    def __call__(self, call: Call) -> str:
        """The reply to the prompt."""
        progress, pieces, finish_reason = Generation(call.candidate.id, GGUF_TOKENS), list[str](), None
        stream = cast("Any", self.model.stream(text_of(call), **GGUF_OPTIONS))
        with listed(progress), closing(stream) as chunks:
            for chunk in chunks:
                if chunk.text:
                    pieces.append(chunk.text)
                    progress.add(chunk.text)
                finish_reason = chunk.response_metadata.get("finish_reason", finish_reason)
                if is_cancelled():
                    break
        if finish_reason == "length":
            add_note("the text was cut at the longest reply of the model")
        return "".join(pieces)
