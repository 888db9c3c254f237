"""Reader of SmolLM2-135M-Instruct with llama.cpp: text-generation.

Raw output: [{"generated_text": str}], the answer to the prompt.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.jobs import Generation, add_note, is_cancelled, listed
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.llama_cpp import LlamaCpp

MAX_NEW_TOKENS = 200


def load(weights: Path, settings: Settings) -> Expert:
    """The model in the GGUF file `weights`."""
    model = LlamaCpp(weights)
    model.load()

    def expert(call: Call) -> list[dict[str, Any]]:
        if not call.inputs["text"].strip():
            raise BadInputError("there is nothing to answer: the prompt is empty")
        progress = Generation(call.candidate.id, MAX_NEW_TOKENS)
        with listed(progress):
            reply = model.chat(
                [{"role": "user", "content": call.inputs["text"]}],
                MAX_NEW_TOKENS,
                progress.add,
                is_cancelled,
                temperature=0.0,
                repeat_penalty=1.1,
            )
        if reply.finish_reason == "length":
            add_note(f"the text was cut at the limit of {MAX_NEW_TOKENS} tokens")
        return [{"generated_text": reply.text}]

    return expert
