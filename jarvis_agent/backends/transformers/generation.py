"""Generate text with a transformers model: greedily, within its context, and until the call is cancelled.

generate(loaded, loaded.tokenizer("Hello", return_tensors="pt"), max_new_tokens=50)      # token ids
chat(loaded, [{"type": "image", "image": photo}, {"type": "text", "text": "What is it?"}], 60)     # "A cat."
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jarvis_agent.backends.jobs import Generation, add_note, is_cancelled, listed
from jarvis_agent.backends.transformers.loading import LoadedModel
from jarvis_agent.core.errors import UnsupportedError

_SPEAKING = ("qwen2_5_omni", "qwen3_omni_moe")
"""Model types that also speak their reply unless told not to."""

Content = Mapping[str, Any]
"""A part of a message: {type: "image", image: PIL}, {type: "audio", audio: samples}, {type: "text", text}."""


def stopping() -> list[Any]:
    """Stopping criteria that end a generation whose call was cancelled."""
    import torch

    def cancelled(ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((ids.shape[0],), is_cancelled(), dtype=torch.bool, device=ids.device)

    return [cancelled]


@contextmanager
def counting(name: str, model: Any, limit: int) -> Iterator[list[Any]]:
    """Stopping criteria for one generation that show its progress; a note says if it reached its limit."""
    import torch

    generation, last = Generation(name, limit), list[int]()

    def count(ids: Any, scores: Any, **_: Any) -> Any:
        generation.done += 1
        last[:] = ids[:, -1].tolist()
        return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)

    with listed(generation):
        yield [*stopping(), count]
    ends = model.generation_config.eos_token_id
    if generation.done >= limit and {*last}.isdisjoint(ends if isinstance(ends, list) else [ends]):
        add_note(f"the text was cut at the limit of {limit} tokens")


def generate(loaded: LoadedModel, batch: Mapping[str, Any], *, max_new_tokens: int, **options: Any) -> Any:
    """Return the generated token ids for a batch of one, shape (length,), without the prompt.

    `LoadedModel.options` override `max_new_tokens` and `options`.

    Raises:
        UnsupportedError: the text is longer than the model's context.
    """
    import torch

    inputs = loaded.inputs(batch)
    config = loaded.model.config
    context = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    context = context if isinstance(context, int) else None
    read = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
    prompt = inputs.get("decoder_input_ids" if config.is_encoder_decoder else "input_ids")
    length = 0 if prompt is None else prompt.shape[1]
    wanted = {**options, **loaded.options}
    limit = int(wanted.pop("max_new_tokens", max_new_tokens))
    if context is not None:
        limit = min(limit, context - length - 2)
    if limit < 1 or (context is not None and read > context):
        raise UnsupportedError(
            f"{loaded.id} cannot read {max(read, length)} tokens at once; take a shorter text"
        )
    arguments = {"max_new_tokens": limit, "do_sample": False, **wanted}
    with torch.inference_mode(), counting(loaded.id, loaded.model, limit) as criteria:
        ids = loaded.model.generate(**inputs, **arguments, stopping_criteria=criteria)[0]
    if prompt is not None and len(ids) >= length and bool((ids[:length] == prompt[0]).all()):
        return ids[length:]
    return ids


def token_limit(loaded: LoadedModel) -> int:
    """Return how many tokens fit into the model at once."""
    return int(min(loaded.tokenizer.model_max_length, 4096))


def split_text(text: str, loaded: LoadedModel, limit: int) -> Iterator[str]:
    """Split a text into pieces of at most `limit` tokens, after sentences or, if needed, words.

    It ends when the call is cancelled.
    """

    def fits(piece: str) -> bool:
        return len(loaded.tokenizer(piece, verbose=False).input_ids) <= limit

    piece = ""
    for part in _sentences(text, fits):
        if piece and not fits(piece + part):
            yield piece.strip()
            if is_cancelled():
                return
            piece = ""
        piece += part
    if piece.strip():
        yield piece.strip()


def _sentences(text: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """Yield the sentences of a text, and single words of sentences that are too long."""
    for sentence in re.findall(r".+?(?:[.!?]+(?=\s)|[。！？]|\n|$)\s*", text, re.DOTALL):
        if fits(sentence):
            yield sentence
        else:
            yield from re.findall(r"\S+\s*", sentence)


def is_chat_model(loaded: LoadedModel) -> bool:
    """Return whether the processor has a chat template."""
    return bool(getattr(loaded.processor, "chat_template", None))


def chat(
    loaded: LoadedModel,
    content: Sequence[Content],
    max_new_tokens: int,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """Return the reply of a chat model to one message.

    Args:
        loaded: a model whose processor has a chat template.
        content: the parts of the message in order. Special tokens within a text are removed.
        max_new_tokens: limit of the reply; `LoadedModel.options` override it.
        settings: options of the processor.

    Raises:
        UnsupportedError: the message is longer than the model's context.
    """
    batch = loaded.processor.apply_chat_template(
        [{"role": "user", "content": [_without_special_tokens(loaded, part) for part in content]}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs=dict(settings or {}),
        **({"enable_thinking": False} if "enable_thinking" in str(loaded.processor.chat_template) else {}),
    )
    options = {}
    if loaded.model.config.model_type in _SPEAKING:
        limit = loaded.options.get("max_new_tokens", max_new_tokens)
        options = {"generation_mode": "text", "thinker_max_new_tokens": limit}
    return decode(loaded, generate(loaded, batch, max_new_tokens=max_new_tokens, **options))


def decode(loaded: LoadedModel, ids: Any) -> str:
    """Return the text of generated token ids."""
    decoder = loaded.parts.get("processor") or loaded.tokenizer
    return str(decoder.decode(ids, skip_special_tokens=True)).strip()


def rewrite(loaded: LoadedModel, text: str, *, add_special_tokens: bool = True, **options: Any) -> str:
    """Return what the model generates for a text; `options` are those of `generate`."""
    batch = loaded.tokenizer(text, add_special_tokens=add_special_tokens, return_tensors="pt", verbose=False)
    batch.pop("token_type_ids", None)
    ids = generate(loaded, batch, **options)
    # Some tokenizers do not count language tokens among their special tokens.
    hidden = set(getattr(loaded.tokenizer, "lang_code_to_id", {}).values())
    return decode(loaded, [token for token in ids.tolist() if token not in hidden])


def _without_special_tokens(loaded: LoadedModel, part: Content) -> Content:
    """Remove special tokens from a text part: quoted text must not open a turn or stand for an image."""
    if part["type"] != "text":
        return part
    text: str = part["text"]
    for token in getattr(loaded.processor.tokenizer, "added_tokens_decoder", {}).values():
        if token.special:
            text = text.replace(token.content, " ")
    return {**part, "text": text}
