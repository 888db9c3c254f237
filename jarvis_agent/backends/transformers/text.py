"""Text tasks with transformers. Each function takes a loaded model and a call, and gives the raw output.

Version 5 of transformers dropped the pipelines for question answering, summarization and translation: they
are written out here. Long texts are read in windows, or rewritten in pieces. Tables: transformers_tables.py.
"""

from __future__ import annotations

import re
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.generation import generate, pieces, token_limit
from jarvis_agent.backends.transformers.loading import Loaded
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.languages import Language, find_language, language_of_script

BEST = 5
"""Labels that a classification gives at most."""

ANSWERS = 3
LONGEST_ANSWER = 30
"""Tokens of an extracted answer."""

T5_KINDS = ("t5", "mt5", "umt5", "longt5")
"""Model types that are told in words what to do with a text."""

NEW_TOKENS = 256
"""Most tokens that are written for a prompt."""

_MASK = re.compile(r"\[mask\]|<mask>|_{3,}", re.IGNORECASE)
"""How people write the gap in a text, whatever the model's own mark for it is."""


def text_of(call: Call, name: str = "text") -> str:
    """A text argument.

    Raises:
        BadInputError: it is empty.
    """
    text = str(call.inputs.get(name) or "").strip()
    if not text:
        raise BadInputError(f"{call.spec.name} needs a {name}, and this one is empty")
    return text


def classify(loaded: Loaded, call: Call) -> Any:
    """[{label, score}]; of a text that is too long the beginning is read."""
    return loaded.pipe(text_of(call), truncation=True, top_k=BEST)


def name_entities(loaded: Loaded, call: Call) -> Any:
    """[{entity_group, score, word, start, end}], tokens of a name joined."""
    text = text_of(call)
    found = loaded.pipe(text, aggregation_strategy="simple", stride=token_limit(loaded) // 4)
    # Word pieces are joined with marks of the tokenizer; the text itself has the word as it was written.
    return [{**entity, "word": text[entity["start"] : entity["end"]]} for entity in found]


def classify_zero_shot(loaded: Loaded, call: Call) -> Any:
    """{sequence, labels, scores}, by entailment of "This example is {label}."."""
    given = call.inputs.get("labels") or []
    labels = [str(label).strip() for label in (given.split(",") if isinstance(given, str) else given)]
    labels = [label for label in labels if label]
    if not labels:
        raise BadInputError(f"{call.spec.name} needs a list of labels, and this one is empty")
    return loaded.pipe(text_of(call), candidate_labels=labels)


def fill_mask(loaded: Loaded, call: Call) -> Any:
    """[{score, token, token_str, sequence}]: the likeliest words for the one gap of a text, the best first.

    Raises:
        BadInputError: the text has no gap, or several.
        UnsupportedError: the model does not read as far as the gap.
    """
    text, mask = text_of(call), loaded.tokenizer.mask_token
    gaps = len(_MASK.findall(text))
    if gaps != 1:
        raise BadInputError(
            f"{call.spec.name} needs a text with one [MASK], and this one has {gaps or 'none'}"
        )
    marked = _MASK.sub(lambda _: mask, text)
    limit = token_limit(loaded)
    read = loaded.tokenizer(marked, truncation=True, max_length=limit, verbose=False)["input_ids"]
    if loaded.tokenizer.mask_token_id not in read:
        raise UnsupportedError(
            f"{loaded.id} reads {limit} tokens, and the gap comes later; take a shorter text"
        )
    return loaded.pipe(marked, top_k=BEST, tokenizer_kwargs={"truncation": True, "max_length": limit})


def embed(loaded: Loaded, call: Call) -> list[list[list[float]]]:
    """[[vector]]: the mean of the vectors of the text's tokens."""
    import torch

    batch = loaded.tokenizer(text_of(call), truncation=True, return_tensors="pt")
    with torch.inference_mode():
        states = loaded.model(**loaded.inputs(batch)).last_hidden_state[0]
    return [[states.float().mean(dim=0).tolist()]]


def answer_from_context(loaded: Loaded, call: Call) -> list[dict[str, Any]]:
    """[{answer, score, start, end}]: the likeliest spans of the context, the best first.

    A long context is read in windows that overlap by a quarter.
    """
    import torch

    question, context = text_of(call), text_of(call, "context")
    limit = token_limit(loaded)
    windows = loaded.tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=limit,
        stride=limit // 4,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_tensors="pt",
        padding=True,
    )
    places = windows.pop("offset_mapping").tolist()
    windows.pop("overflow_to_sample_mapping", None)
    spans: dict[tuple[int, int], float] = {}
    for number, offsets in enumerate(places):
        window = {name: rows[number : number + 1] for name, rows in windows.items()}
        with torch.inference_mode():
            output = loaded.model(**loaded.inputs(window))
        in_context = [kind == 1 for kind in windows.sequence_ids(number)]
        logits = (output.start_logits[0].float().cpu(), output.end_logits[0].float().cpu())
        for first, last, score in best_spans(*logits, in_context):
            span = (offsets[first][0], offsets[last][1])
            spans[span] = max(score, spans.get(span, 0.0))
    best = sorted(spans.items(), key=lambda item: -item[1])[:ANSWERS]
    return [{"answer": context[a:b], "score": score, "start": a, "end": b} for (a, b), score in best]


def best_spans(start: Any, end: Any, in_context: list[bool]) -> list[tuple[int, int, float]]:
    """(first token, last token, probability) of the best spans of a window."""
    import torch

    allowed = torch.tensor(in_context)
    starts = start.masked_fill(~allowed, -torch.inf).softmax(0)
    ends = end.masked_fill(~allowed, -torch.inf).softmax(0)
    scores = torch.outer(starts, ends).triu().tril(LONGEST_ANSWER - 1)
    best = scores.flatten().topk(min(ANSWERS, scores.numel()))
    width = len(in_context)
    found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(place // width, place % width, score) for place, score in found if score > 0]


def summarize(loaded: Loaded, call: Call) -> str:
    """The summary; a text that is too long is summarised piece by piece."""
    prefix = "summarize: " if loaded.model.config.model_type in T5_KINDS else ""
    own = loaded.model.generation_config.max_length or 0
    most = own if own > 20 else NEW_TOKENS  # transformers' default, 20, is no model's choice
    parts = pieces(text_of(call), loaded, token_limit(loaded) - 16)
    return " ".join(_rewrite(loaded, prefix + part, max_new_tokens=most) for part in parts)


def translate(loaded: Loaded, call: Call) -> str:
    """The translation, made piece by piece; paragraphs are kept."""
    text = text_of(call)
    named = _language(call.inputs.get("src_lang"))
    source = named or find_language(language_of_script(text))
    target = _language(call.inputs.get("tgt_lang"))
    if target is None and source is not None and source.code != "en":
        target = find_language("en")
    if named is None and source == target:
        source = None  # the guess was wrong
    prefix, options = _direction(loaded, source, target)
    return "\n".join(_translate_line(loaded, line, prefix, options) for line in text.splitlines())


def _translate_line(loaded: Loaded, line: str, prefix: str, options: dict[str, Any]) -> str:
    return " ".join(
        _rewrite(loaded, prefix + part, max_new_tokens=2 * NEW_TOKENS, **options)
        for part in pieces(line, loaded, min(token_limit(loaded) // 2, NEW_TOKENS))
    )


def _language(name: Any) -> Language | None:
    if not name:
        return None
    found = find_language(str(name))
    if found is None:
        raise BadInputError(
            f'{name!r} is not a language that is known; name it in English, or by its code ("fr")'
        )
    return found


def _direction(
    loaded: Loaded, source: Language | None, target: Language | None
) -> tuple[str, dict[str, Any]]:
    """What a kind of model is told of the two languages: words before the text, and options of `generate`.

    Raises:
        UnsupportedError: the model does not translate that way, or must be told into which language.
    """
    kind = loaded.model.config.model_type
    if kind == "marian":
        return _marian_prefix(loaded, target), {}
    if target is None:
        raise UnsupportedError(f"{loaded.id} must be told into which language to translate (tgt_lang)")
    if source is None:
        raise UnsupportedError(f"{loaded.id} must be told the language of the text (src_lang)")
    if kind in T5_KINDS:
        return f"translate {source.name} to {target.name}: ", {}
    loaded.tokenizer.src_lang, _ = _spelling(loaded, source)
    return "", {"forced_bos_token_id": _spelling(loaded, target)[1]}


def _marian_prefix(loaded: Loaded, target: Language | None) -> str:
    """The mark of the target language for models with several; a model with one must be for the right one."""
    if target is None:
        return ""
    vocabulary: dict[str, int] = loaded.tokenizer.get_vocab()
    marks = [token for token in vocabulary if token.startswith(">>") and token.endswith("<<")]
    for mark in marks:
        if find_language(mark.strip("<>")) == target:
            return mark + " "
    into = find_language(loaded.tokenizer.target_lang or "")
    if marks or (into is not None and into != target):
        raise UnsupportedError(f"{loaded.id} does not translate into {target.name}")
    return ""


def _spelling(loaded: Loaded, language: Language) -> tuple[str, int]:
    """How a tokenizer spells a language, and its token: "fra_Latn" (NLLB), "fr_XX" (mBART), "fr" (M2M100)."""
    tokenizer = loaded.tokenizer
    for spelling, known in getattr(tokenizer, "lang_code_to_id", {}).items():
        if spelling.split("_")[0] == language.code:
            return spelling, known
    token: int | None = tokenizer.convert_tokens_to_ids(language.flores)
    if token is None or token == tokenizer.unk_token_id:
        raise UnsupportedError(f"{loaded.id} does not know {language.name}")
    return language.flores, token


def write(loaded: Loaded, call: Call) -> str:
    """What the model writes after a prompt, or answers to it if it is a chat model."""
    prompt = text_of(call)
    if loaded.tokenizer.chat_template:
        chat = [{"role": "user", "content": prompt}]
        asked = loaded.tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=False, enable_thinking=False
        )
        batch = loaded.tokenizer(asked, add_special_tokens=False, return_tensors="pt", verbose=False)
        batch.pop("token_type_ids", None)
        return _decoded(loaded, generate(loaded, batch, max_new_tokens=NEW_TOKENS))
    return _rewrite(loaded, prompt, max_new_tokens=NEW_TOKENS)


def _rewrite(loaded: Loaded, text: str, *, max_new_tokens: int, **options: Any) -> str:
    batch = loaded.tokenizer(text, return_tensors="pt", verbose=False)
    batch.pop("token_type_ids", None)
    return _decoded(loaded, generate(loaded, batch, max_new_tokens=max_new_tokens, **options))


def _decoded(loaded: Loaded, ids: Any) -> str:
    # A tokenizer need not count the tokens of languages among its special ones.
    hidden = set(getattr(loaded.tokenizer, "lang_code_to_id", {}).values())
    shown = [token for token in ids.tolist() if token not in hidden]
    return str(loaded.tokenizer.decode(shown, skip_special_tokens=True)).strip()
