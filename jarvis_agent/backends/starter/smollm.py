"""Reader of SmolLM2-135M-Instruct with llama.cpp: text-generation.

Raw output: [{"generated_text": str}], the answer to the prompt.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, cast

from openai import BadRequestError

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.jobs import Generation, add_note, is_cancelled, listed
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.chat_model import local_model

MAX_NEW_TOKENS = 200


def load_text_generator(weights: Path, settings: Settings) -> Expert:
    """The model in the GGUF file `weights`."""
    model = local_model(weights, settings)
    model.load()

    def expert(call: Call) -> list[dict[str, Any]]:
        if not call.inputs["text"].strip():
            raise BadInputError("there is nothing to answer: the prompt is empty")
        progress = Generation(call.candidate.id, MAX_NEW_TOKENS)
        pieces: list[str] = []
        options: dict[str, Any] = {"max_tokens": MAX_NEW_TOKENS, "extra_body": {"repeat_penalty": 1.1}}
        finish_reason = None
        try:
            with (
                listed(progress),
                closing(cast("Any", model.stream(call.inputs["text"], **options))) as chunks,
            ):
                for chunk in chunks:
                    if chunk.text:
                        pieces.append(chunk.text)
                        progress.add(chunk.text)
                    finish_reason = chunk.response_metadata.get("finish_reason", finish_reason)
                    if is_cancelled():
                        break
        except BadRequestError as error:
            raise UnsupportedError(f"{call.candidate.id} cannot read this text: {error}") from error
        if finish_reason == "length":
            add_note(f"the text was cut at the limit of {MAX_NEW_TOKENS} tokens")
        return [{"generated_text": "".join(pieces)}]

    return expert
