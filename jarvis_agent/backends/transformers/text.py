"""Text tasks with transformers: functions of a loaded model and a call that return the raw output.

Version 5 of transformers has no pipelines for question answering, summarization and translation, so these
are implemented here. Long texts are read in overlapping windows or rewritten piece by piece.

Translation with transformers: T5, Marian, M2M100, NLLB and mBART, which name languages in their own ways.

translate(loaded, call)      # "Le chat dort.", from inputs text, src_lang and tgt_lang
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.generation import rewrite, split_text, token_limit
from jarvis_agent.backends.transformers.loading import LoadedModel
from jarvis_agent.core.errors import BadInputError, MissingExtraError, UnsupportedError
from jarvis_agent.core.languages import Language, find_language, language_of_script
from jarvis_agent.media.tables import read_table

MAX_LABELS = 5
"""Labels returned by a classification."""

MAX_ANSWERS = 3
ANSWER_TOKENS = 30
"""Longest extracted answer, in tokens."""

NEW_TOKENS = 256

T5_TYPES = ("t5", "mt5", "umt5", "longt5")
"""Model types that read the task as words before the text."""

_MASK = re.compile(r"\[mask\]|<mask>|_{3,}", re.IGNORECASE)
"""Spellings of the gap in a fill-mask text, whatever the model's own mask token is."""


def text_of(call: Call, name: str = "text") -> str:
    """Return a text argument. Raises BadInputError if it is empty."""
    text = str(call.inputs.get(name) or "").strip()
    if not text:
        raise BadInputError(f"{call.spec.name} needs a {name}, and this one is empty")
    return text


def labels_of(call: Call) -> list[str]:
    """Return the labels argument, a list or a comma-separated text. Raises BadInputError if it is empty."""
    value = call.inputs["labels"]
    named = re.split(r"[,;\n]", value) if isinstance(value, str) else [str(label) for label in value]
    labels = list(dict.fromkeys(label.strip() for label in named if label.strip()))
    if not labels:
        raise BadInputError(f"{call.spec.name} needs labels to choose from (labels: cat, dog)")
    return labels


def top_labels(scores: Any, config: Any, key: str = "label") -> list[dict[str, Any]]:
    """Return [{key, score}] for the best of a model's classes, float (classes,), best first."""
    best = scores.topk(min(MAX_LABELS, len(scores)))
    ranked = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [{key: config.id2label[index], "score": score} for index, score in ranked]


def classify(loaded: LoadedModel, call: Call) -> Any:
    """Return [{label, score}]. Long texts are truncated."""
    return loaded.pipe(text_of(call), truncation=True, top_k=MAX_LABELS)


def classify_batch(loaded: LoadedModel, calls: Sequence[Call]) -> list[Any]:
    """Return the result of `classify` for each call."""
    texts = [text_of(call) for call in calls]
    return list(loaded.pipe(texts, truncation=True, top_k=MAX_LABELS, batch_size=len(texts)))


def find_entities(loaded: LoadedModel, call: Call) -> Any:
    """Return [{entity_group, score, word, start, end}] with the tokens of a name joined."""
    text = text_of(call)
    entities = loaded.pipe(text, aggregation_strategy="simple", stride=token_limit(loaded) // 4)
    # Joined word pieces contain marks of the tokenizer, so the word is taken from the text.
    return [{**entity, "word": text[entity["start"] : entity["end"]]} for entity in entities]


def classify_zero_shot(loaded: LoadedModel, call: Call) -> Any:
    """Return {sequence, labels, scores} by entailment of "This example is {label}."."""
    return loaded.pipe(text_of(call), candidate_labels=labels_of(call))


def fill_mask(loaded: LoadedModel, call: Call) -> Any:
    """Return [{score, token, token_str, sequence}] for the one gap of a text, best first."""
    text, mask = text_of(call), loaded.tokenizer.mask_token
    count = len(_MASK.findall(text))
    if count != 1:
        raise BadInputError(
            f"{call.spec.name} needs a text with one [MASK], and this one has {count or 'none'}"
        )
    masked = _MASK.sub(lambda _: mask, text)
    shortened = {"truncation": True, "max_length": token_limit(loaded)}
    return loaded.pipe(masked, top_k=MAX_LABELS, tokenizer_kwargs=shortened)


def embed(loaded: LoadedModel, call: Call) -> Any:
    """Return [[vector]]: the mean of the token vectors."""
    return embed_batch(loaded, [call])[0]


def embed_batch(loaded: LoadedModel, calls: Sequence[Call]) -> list[Any]:
    """Return the result of `embed` for each call."""
    texts = [text_of(call) for call in calls]
    batch = loaded.tokenizer(texts, truncation=True, padding=True, return_tensors="pt")
    states = loaded.forward(batch).last_hidden_state.float()
    mask = batch["attention_mask"].to(states.device).unsqueeze(-1)
    means = (states * mask).sum(dim=1) / mask.sum(dim=1)
    return [[[vector]] for vector in means.tolist()]


def answer_from_context(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{answer, score, start, end}]: the most probable spans of the context, best first.

    The context is read in windows that overlap by a quarter.
    """
    context, limit = text_of(call, "context"), token_limit(loaded)
    windows = loaded.tokenizer(
        text_of(call),
        context,
        truncation="only_second",
        max_length=limit,
        stride=limit // 4,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_tensors="pt",
        padding=True,
    )
    windows.pop("overflow_to_sample_mapping")
    offsets = windows.pop("offset_mapping").tolist()
    spans: dict[tuple[int, int], float] = {}
    for number, places in enumerate(offsets):
        output = loaded.forward({name: rows[number : number + 1] for name, rows in windows.items()})
        in_context = [part == 1 for part in windows.sequence_ids(number)]
        start, end = (logits[0].float().cpu() for logits in (output.start_logits, output.end_logits))
        for first, last, score in _best_spans(start, end, in_context):
            span = (places[first][0], places[last][1])
            spans[span] = max(score, spans.get(span, 0.0))
    best = sorted(spans.items(), key=lambda item: -item[1])[:MAX_ANSWERS]
    return [{"answer": context[a:b], "score": score, "start": a, "end": b} for (a, b), score in best]


def _best_spans(start: Any, end: Any, in_context: list[bool]) -> list[tuple[int, int, float]]:
    """Return (first token, last token, probability) of the best spans of a window."""
    import torch

    allowed = torch.tensor(in_context)
    starts = start.masked_fill(~allowed, -torch.inf).softmax(0)
    ends = end.masked_fill(~allowed, -torch.inf).softmax(0)
    scores = torch.outer(starts, ends).triu().tril(ANSWER_TOKENS - 1)
    best = scores.flatten().topk(min(MAX_ANSWERS, scores.numel()))
    width = len(in_context)
    ranked = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(place // width, place % width, score) for place, score in ranked if score > 0]


def answer_from_cells(loaded: LoadedModel, call: Call) -> dict[str, Any]:
    """Return {answer, coordinates, cells, aggregator}: cells of a table that the model chooses (TAPAS)."""
    if find_spec("pandas") is None:
        raise MissingExtraError(f"{loaded.id}, which answers from tables,", "tabular")
    columns = read_table(call.inputs["table"])
    table = {name: ["" if cell is None else str(cell) for cell in cells] for name, cells in columns.items()}
    answer = loaded.pipe(table=table, query=text_of(call))
    return {
        "answer": answer["answer"],
        "coordinates": [[int(row), int(column)] for row, column in answer["coordinates"]],
        "cells": answer["cells"],
        "aggregator": answer.get("aggregator", ""),
    }


def summarize(loaded: LoadedModel, call: Call) -> str:
    """Return the summary; a long text is summarised piece by piece."""
    prefix = "summarize: " if loaded.model.config.model_type in T5_TYPES else ""
    length = loaded.model.generation_config.max_length or 0
    limit = length if length > 20 else NEW_TOKENS  # 20 is the default of transformers, not of the model
    parts = split_text(text_of(call), loaded, token_limit(loaded) - 16)
    return " ".join(rewrite(loaded, prefix + part, max_new_tokens=limit) for part in parts)


def generate_text(loaded: LoadedModel, call: Call) -> str:
    """Return the continuation of a prompt, or a chat model's reply to it."""
    prompt = text_of(call)
    if not loaded.tokenizer.chat_template:
        return rewrite(loaded, prompt, max_new_tokens=NEW_TOKENS)
    prompt = loaded.tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}],
        add_generation_prompt=True,
        tokenize=False,
        enable_thinking=False,
    )
    return rewrite(loaded, prompt, add_special_tokens=False, max_new_tokens=NEW_TOKENS)


def translate(loaded: LoadedModel, call: Call) -> str:
    """Return the translation, made piece by piece; line breaks are preserved."""
    text = text_of(call)
    named = _language(call.inputs.get("src_lang"))
    source = named or find_language(language_of_script(text))
    target = _language(call.inputs.get("tgt_lang"))
    if target is None and source is not None and source.code != "en":
        target = find_language("en")
    if named is None and source == target:
        source = None  # the guess was wrong
    prefix, options = _direction(loaded, source, target)
    limit = min(token_limit(loaded) // 2, NEW_TOKENS)
    lines = (
        " ".join(
            rewrite(loaded, prefix + part, max_new_tokens=2 * NEW_TOKENS, **options)
            for part in split_text(line, loaded, limit)
        )
        for line in text.splitlines()
    )
    return "\n".join(lines)


def _language(name: Any) -> Language | None:
    if not name:
        return None
    language = find_language(str(name))
    if language is None:
        raise BadInputError(
            f'{name!r} is not a known language; give its English name or its code, such as "fr"'
        )
    return language


def _direction(
    loaded: LoadedModel, source: Language | None, target: Language | None
) -> tuple[str, dict[str, Any]]:
    """Return what selects the languages: a prefix of the text, and options of `generate`."""
    kind = loaded.model.config.model_type
    if kind == "marian":
        return _marian_prefix(loaded, target), {}
    if target is None:
        raise UnsupportedError(f"{loaded.id} needs the target language (tgt_lang)")
    if source is None:
        raise UnsupportedError(f"{loaded.id} needs the language of the text (src_lang)")
    if kind in T5_TYPES:
        return f"translate {source.name} to {target.name}: ", {}
    loaded.tokenizer.src_lang, _ = _language_token(loaded, source)
    return "", {"forced_bos_token_id": _language_token(loaded, target)[1]}


def _marian_prefix(loaded: LoadedModel, target: Language | None) -> str:
    """Return the target-language token of a multilingual Marian model, or "" for a model of one language."""
    if target is None:
        return ""
    vocabulary: dict[str, int] = loaded.tokenizer.get_vocab()
    tokens = [token for token in vocabulary if token.startswith(">>") and token.endswith("<<")]
    for token in tokens:
        if find_language(token.strip("<>")) == target:
            return token + " "
    only = find_language(loaded.tokenizer.target_lang or "")
    if tokens or (only is not None and only != target):
        raise UnsupportedError(f"{loaded.id} does not translate into {target.name}")
    return ""


def _language_token(loaded: LoadedModel, language: Language) -> tuple[str, int]:
    """Return a tokenizer's name of a language and its id: fra_Latn (NLLB), fr_XX (mBART), fr (M2M100)."""
    tokenizer = loaded.tokenizer
    for name, known in getattr(tokenizer, "lang_code_to_id", {}).items():
        if name.split("_")[0] == language.code:
            return name, known
    token: int | None = tokenizer.convert_tokens_to_ids(language.flores)
    if token is None or token == tokenizer.unk_token_id:
        raise UnsupportedError(f"{loaded.id} does not know {language.name}")
    return language.flores, token
