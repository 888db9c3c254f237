"""Reader of SmolLM2-135M-Instruct with transformers: text-generation.

Raw output: str, the answer to the prompt. The weights are a GGUF file, or the Hub's safetensors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.settings import Settings

MAX_NEW_TOKENS = 200


def load(weights: Path, settings: Settings) -> Expert:
    """The model and its tokenizer, in float32 on the CPU."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options: dict[str, Any] = {"gguf_file": weights.name} if weights.suffix == ".gguf" else {}
    directory = str(weights.parent)
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True, **options)
    model = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, local_files_only=True, **options
    ).eval()

    def expert(call: Call) -> str:
        if not call.inputs["text"].strip():
            raise BadInputError("there is nothing to answer: the prompt is empty")
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": call.inputs["text"]}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
        with torch.inference_mode():
            answer = model.generate(
                **prompt, max_new_tokens=MAX_NEW_TOKENS, do_sample=False, repetition_penalty=1.1,
                pad_token_id=tokenizer.eos_token_id,
            )  # fmt: skip
        return str(
            tokenizer.decode(answer[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
        ).strip()

    return expert
