"""Reader of SmolLM2-135M-Instruct with transformers: text-generation.

Raw output: [{"generated_text": str}], the answer to the prompt. The weights are a GGUF file, or the Hub's
safetensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.transformers.generation import counting
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.settings import Settings

MAX_NEW_TOKENS = 200


def load(weights: Path, settings: Settings) -> Expert:
    """The model and its tokenizer, in float32 on the CPU."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, TextGenerationPipeline

    options: dict[str, Any] = {"gguf_file": weights.name} if weights.suffix == ".gguf" else {}
    folder = str(weights.parent)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32", local_files_only=True, **options)
    pipeline = TextGenerationPipeline(model=model, tokenizer=tokenizer, device="cpu")

    def expert(call: Call) -> Any:
        if not call.inputs["text"].strip():
            raise BadInputError("there is nothing to answer: the prompt is empty")
        message = {"role": "user", "content": call.inputs["text"]}
        with counting(call.candidate.id, model, MAX_NEW_TOKENS) as criteria:
            return pipeline(
                [message],
                return_full_text=False,
                max_new_tokens=MAX_NEW_TOKENS,
                do_sample=False,
                repetition_penalty=1.1,
                stopping_criteria=criteria,
            )

    return expert
