"""Text tasks with transformers: functions of a loaded model and a call that return the raw output.

Version 5 of transformers has no pipelines for question answering, summarization and translation, so these
are implemented here. Long texts are read in overlapping windows or rewritten piece by piece.
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
from jarvis_agent.media.tables import read_table

MAX_LABELS = 5
"""Labels returned by a classification."""

MAX_ANSWERS = 3
ANSWER_TOKENS = 30
"""Longest extracted answer, in tokens."""

CELL_ANSWER_TOKENS = 64
NEW_TOKENS = 256

T5_TYPES = ("t5", "mt5", "umt5", "longt5")
"""Model types that read the task as words before the text."""

_MASK = re.compile(r"\[mask\]|<mask>|_{3,}", re.IGNORECASE)
"""Spellings of the gap in a fill-mask text, whatever the model's own mask token is."""


def text_of(call: Call, name: str = "text") -> str:
    """Return a text argument.

    Raises:
        BadInputError: it is empty.
    """
    text = str(call.inputs.get(name) or "").strip()
    if not text:
        raise BadInputError(f"{call.spec.name} needs a {name}, and this one is empty")
    return text


def labels_of(call: Call) -> list[str]:
    """Return the labels argument, a list or a comma-separated text.

    Raises:
        BadInputError: it is empty.
    """
    given = call.inputs["labels"]
    named = re.split(r"[,;\n]", given) if isinstance(given, str) else [str(label) for label in given]
    labels = list(dict.fromkeys(label.strip() for label in named if label.strip()))
    if not labels:
        raise BadInputError(f"{call.spec.name} needs labels to choose from (labels: cat, dog)")
    return labels


def top_labels(scores: Any, config: Any, key: str = "label") -> list[dict[str, Any]]:
    """Return [{key, score}] for the best of a model's classes, float (classes,), best first."""
    best = scores.topk(min(MAX_LABELS, len(scores)))
    found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [{key: config.id2label[index], "score": score} for index, score in found]


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
    found = loaded.pipe(text, aggregation_strategy="simple", stride=token_limit(loaded) // 4)
    # Joined word pieces contain marks of the tokenizer, so the word is taken from the text.
    return [{**entity, "word": text[entity["start"] : entity["end"]]} for entity in found]


def classify_zero_shot(loaded: LoadedModel, call: Call) -> Any:
    """Return {sequence, labels, scores} by entailment of "This example is {label}."."""
    return loaded.pipe(text_of(call), candidate_labels=labels_of(call))


def fill_mask(loaded: LoadedModel, call: Call) -> Any:
    """Return [{score, token, token_str, sequence}] for the one gap of a text, best first.

    Raises:
        BadInputError: the text has no gap, or several.
        UnsupportedError: the gap lies beyond the model's context.
    """
    text, mask = text_of(call), loaded.tokenizer.mask_token
    count = len(_MASK.findall(text))
    if count != 1:
        raise BadInputError(
            f"{call.spec.name} needs a text with one [MASK], and this one has {count or 'none'}"
        )
    masked = _MASK.sub(lambda _: mask, text)
    limit = token_limit(loaded)
    read = loaded.tokenizer(masked, truncation=True, max_length=limit, verbose=False)["input_ids"]
    if loaded.tokenizer.mask_token_id not in read:
        raise UnsupportedError(
            f"{loaded.id} reads {limit} tokens, and the gap comes later; take a shorter text"
        )
    return loaded.pipe(masked, top_k=MAX_LABELS, tokenizer_kwargs={"truncation": True, "max_length": limit})


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
    """Return [{answer, score, start, end}]: the most probable spans of the context, best first."""
    context = text_of(call, "context")
    spans = answer_spans(loaded, text_of(call), context, return_offsets_mapping=True)
    return [{"answer": context[a:b], "score": score, "start": a, "end": b} for (a, b), score in spans]


def answer_spans(
    loaded: LoadedModel, question: Any, context: Any, extra: dict[str, Any] | None = None, **options: Any
) -> list[tuple[tuple[int, int], float]]:
    """Return ((start, end), probability) of the best answers, read in windows that overlap by a quarter.

    Args:
        loaded: a model for extractive question answering.
        question: the question, as the tokenizer takes it.
        context: the context, as the tokenizer takes it.
        extra: further inputs of the model, the same for each window.
        options: options of the tokenizer. With `return_offsets_mapping` spans count characters, and
            otherwise words.
    """
    limit = token_limit(loaded)
    windows = loaded.tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=limit,
        stride=limit // 4,
        return_overflowing_tokens=True,
        return_tensors="pt",
        padding=True,
        **options,
    )
    windows.pop("overflow_to_sample_mapping", None)
    offsets = windows.pop("offset_mapping", None)
    spans: dict[tuple[int, int], float] = {}
    for number in range(len(windows["input_ids"])):
        window = {name: rows[number : number + 1] for name, rows in windows.items()}
        output = loaded.forward({**window, **(extra or {})})
        places = [(n, n) for n in windows.word_ids(number)] if offsets is None else offsets[number].tolist()
        in_context = [part == 1 for part in windows.sequence_ids(number)]
        # Tokens of an image may follow those of the text; no answer lies there.
        start, end = (
            logits[0, : len(in_context)].float().cpu() for logits in (output.start_logits, output.end_logits)
        )
        for first, last, score in _best_spans(start, end, in_context):
            span = (places[first][0], places[last][1])
            spans[span] = max(score, spans.get(span, 0.0))
    return sorted(spans.items(), key=lambda item: -item[1])[:MAX_ANSWERS]


def _best_spans(start: Any, end: Any, in_context: list[bool]) -> list[tuple[int, int, float]]:
    """Return (first token, last token, probability) of the best spans of a window."""
    import torch

    allowed = torch.tensor(in_context)
    starts = start.masked_fill(~allowed, -torch.inf).softmax(0)
    ends = end.masked_fill(~allowed, -torch.inf).softmax(0)
    scores = torch.outer(starts, ends).triu().tril(ANSWER_TOKENS - 1)
    best = scores.flatten().topk(min(MAX_ANSWERS, scores.numel()))
    width = len(in_context)
    found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [(place // width, place % width, score) for place, score in found if score > 0]


def answer_from_cells(loaded: LoadedModel, call: Call) -> dict[str, Any]:
    """Return {answer, coordinates, cells, aggregator}: cells chosen by the model (TAPAS).

    Raises:
        MissingExtraError: pandas, which the pipeline needs, is not installed.
    """
    if find_spec("pandas") is None:
        raise MissingExtraError(f"{loaded.id}, which answers from tables,", "tabular")
    found = loaded.pipe(table=_cells(call), query=text_of(call))
    return {
        "answer": found["answer"],
        "coordinates": [[int(row), int(column)] for row, column in found["coordinates"]],
        "cells": found["cells"],
        "aggregator": found.get("aggregator", ""),
    }


def answer_about_table(loaded: LoadedModel, call: Call) -> dict[str, Any]:
    """Return {answer, coordinates: [], cells: [], aggregator: ""} with a generated answer (TAPEX).

    The model reads lower case: "question col : a | b row 1 : x | y row 2 : …" (arXiv:2107.07653). Rows
    beyond its context are left out.

    Raises:
        UnsupportedError: not even the first row fits into the context.
    """
    table, limit = _cells(call), token_limit(loaded)
    rows = [" | ".join(cells) for cells in zip(*table.values(), strict=True)]
    parts = [f"{text_of(call)} col : {' | '.join(table)}"]
    parts += [f"row {number} : {row}" for number, row in enumerate(rows, start=1)]
    fitting, end = 0, len(rows)
    while fitting < end:
        middle = (fitting + end + 1) // 2
        tokens = loaded.tokenizer(" ".join(parts[: middle + 1]).lower(), verbose=False)["input_ids"]
        fitting, end = (middle, end) if len(tokens) <= limit else (fitting, middle - 1)
    if not fitting:
        raise UnsupportedError(f"{loaded.id} reads {limit} tokens, less than the first row of the table has")
    read = " ".join(parts[: fitting + 1]).lower()
    answer = rewrite(loaded, read, max_new_tokens=CELL_ANSWER_TOKENS)
    return {"answer": answer, "coordinates": [], "cells": [], "aggregator": ""}


def _cells(call: Call) -> dict[str, list[str]]:
    """Return the columns of the call's table with each cell as text."""
    columns = read_table(call.inputs["table"])
    return {name: ["" if cell is None else str(cell) for cell in cells] for name, cells in columns.items()}


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
