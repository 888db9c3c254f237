"""Ask a chat model of transformers something, with images and recordings in the message.

ask(loaded, [{"type": "image", "image": photo}, {"type": "text", "text": "What is this?"}], 60)     # "A cat."
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jarvis_agent.backends.transformers.generation import generate
from jarvis_agent.backends.transformers.loading import Loaded

_TALKERS = ("qwen2_5_omni", "qwen3_omni_moe")
"""Model types that also speak what they write, unless they are told not to."""

Content = Mapping[str, Any]
"""A part of a message: {type: "image", image: PIL}, {type: "audio", audio: samples}, {type: "text", text}."""


def ask(
    loaded: Loaded, content: Sequence[Content], max_new_tokens: int, settings: Mapping[str, Any] | None = None
) -> str:
    """What the model answers to one message.

    Args:
        loaded: a model whose processor has a chat template.
        content: the parts of the message, in their order. Marks of the template in a text count for nothing.
        max_new_tokens: tokens of the answer at most, unless the model's description says otherwise.
        settings: of the processor.

    Raises:
        UnsupportedError: the message is longer than the model can read.
    """
    template = loaded.processor.chat_template
    batch = loaded.processor.apply_chat_template(
        [{"role": "user", "content": [_plain(loaded, part) for part in content]}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs=dict(settings or {}),
        **({"enable_thinking": False} if "enable_thinking" in str(template) else {}),
    )
    options = _silent(loaded, max_new_tokens) if loaded.model.config.model_type in _TALKERS else {}
    return decoded(loaded, generate(loaded, batch, max_new_tokens=max_new_tokens, **options))


def decoded(loaded: Loaded, ids: Any) -> str:
    """What a processor reads out of the tokens that its model wrote."""
    return str(loaded.processor.decode(ids, skip_special_tokens=True)).strip()


def _plain(loaded: Loaded, part: Content) -> Content:
    """A text less the marks of the model's template: what it quotes opens no turn and stands for no image."""
    if part["type"] != "text":
        return part
    text: str = part["text"]
    for token in getattr(loaded.processor.tokenizer, "added_tokens_decoder", {}).values():
        if token.special:
            text = text.replace(token.content, " ")
    return {**part, "text": text}


def _silent(loaded: Loaded, max_new_tokens: int) -> dict[str, Any]:
    """Options of `generate` with which a model that could also speak only writes."""
    most = loaded.options.get("max_new_tokens", max_new_tokens)
    return {"generation_mode": "text", "thinker_max_new_tokens": most}
