"""Let a model write text: without chance, up to a limit of tokens, and no further once nobody waits for it.

    generate(loaded, loaded.tokenizer("Hello", return_tensors="pt"), max_new_tokens=50)      # token ids

What is too long to be read at once comes in `pieces`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jarvis_agent.backends.pool import is_cancelled
from jarvis_agent.backends.transformers.loading import Loaded
from jarvis_agent.core.errors import UnsupportedError


def stopping() -> list[Any]:
    """Stopping criteria that end a generation whose call was cancelled."""
    import torch

    def gone(ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((ids.shape[0],), is_cancelled(), dtype=torch.bool, device=ids.device)

    return [gone]


def generate(loaded: Loaded, batch: Mapping[str, Any], *, max_new_tokens: int, **options: Any) -> Any:
    """Token ids that the model wrote for a batch of one, shape (length,), without those of the prompt.

    What the model's description says (`Loaded.options`) goes before `max_new_tokens` and `options`.

    Raises:
        UnsupportedError: the text is longer than the model can read.
    """
    import torch

    inputs = loaded.inputs(batch)
    places = _positions(loaded.model.config)
    read = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
    prompt = inputs.get("decoder_input_ids" if loaded.model.config.is_encoder_decoder else "input_ids")
    length = 0 if prompt is None else prompt.shape[1]
    wanted = {**options, **loaded.options}
    most = int(wanted.pop("max_new_tokens", max_new_tokens))
    room = most if places is None else min(most, places - length - 2)
    if room < 1 or (places is not None and read > places):
        raise UnsupportedError(
            f"{loaded.id} can not read {max(read, length)} tokens at once; take a shorter text"
        )
    with torch.inference_mode():
        written = loaded.model.generate(
            **inputs,
            **{"max_new_tokens": room, "do_sample": False, **wanted},
            stopping_criteria=stopping(),
        )[0]
    if prompt is not None and len(written) >= length and bool((written[:length] == prompt[0]).all()):
        return written[length:]
    return written


def _positions(config: Any) -> int | None:
    """Tokens that the part of a model that writes has places for; None if it has no limit."""
    found = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    return found if isinstance(found, int) else None


def token_limit(loaded: Loaded) -> int:
    """Tokens that fit into the model at once."""
    return int(min(loaded.tokenizer.model_max_length, 4096))


def pieces(text: str, loaded: Loaded, limit: int) -> Iterator[str]:
    """A text cut into pieces of at most `limit` tokens: at the ends of sentences, or of words if need be."""

    def fits(piece: str) -> bool:
        return len(loaded.tokenizer(piece, verbose=False).input_ids) <= limit

    piece = ""
    for part in _parts(text, fits):
        if piece and not fits(piece + part):
            yield piece.strip()
            piece = ""
        piece += part
    if piece.strip():
        yield piece.strip()


def _parts(text: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """The sentences of a text; the words of a sentence that is too long."""
    for sentence in re.findall(r".+?(?:[.!?]+(?=\s)|[。！？]|\n|$)\s*", text, re.DOTALL):
        if fits(sentence):
            yield sentence
        else:
            yield from re.findall(r"\S+\s*", sentence)
