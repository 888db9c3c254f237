"""Text with transformers: generation and its limits, and the tasks whose input is a text.

Generation is greedy, stays within the context of the model, and ends when the call is cancelled. Version 5 of
transformers has no pipelines for question answering, summarization and translation, so these are implemented
here. Long texts are read in overlapping windows or rewritten piece by piece.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from jarvis_agent.backends import base
from jarvis_agent.backends.base import Call, text_of
from jarvis_agent.backends.jobs import Generation, add_note, is_cancelled, listed, until_cancelled
from jarvis_agent.backends.languages import Language, find_language, language_of_script
from jarvis_agent.backends.transformers.loading import SENTENCE_TOKENS, LoadedModel
from jarvis_agent.core.errors import BadInputError, MissingExtraError, UnsupportedError
from jarvis_agent.core.notes import Note

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


def stopping(generation: Generation | None = None) -> list[Any]:
    """Stopping criteria that count the tokens of a generation, and end it if its call was cancelled."""
    import torch

    def stop(ids: Any, scores: Any, **_: Any) -> Any:
        is_over = is_cancelled()
        if generation is not None:
            generation.done += 1
        return torch.full((ids.shape[0],), is_over, dtype=torch.bool, device=ids.device)

    return [stop]


def generate(loaded: LoadedModel, batch: Mapping[str, Any], *, max_new_tokens: int, **options: Any) -> Any:
    """Return the generated token ids for a batch of one, shape (length,), without the prompt.

    `LoadedModel.options` override `max_new_tokens` and `options`. A note says if the text reached its limit.
    """
    import torch

    inputs = loaded.inputs(batch)
    config = loaded.model.config
    positions = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    context = positions if isinstance(positions, int) else math.inf
    read = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
    prompt = inputs.get("decoder_input_ids" if config.is_encoder_decoder else "input_ids")
    length = 0 if prompt is None else prompt.shape[1]
    wanted = {**options, **loaded.options}
    limit = int(wanted.pop("max_new_tokens", max_new_tokens))
    limit = int(min(limit, context - length - 2))
    if limit < 1 or read > context:
        raise UnsupportedError(
            f"{loaded.id} cannot read {max(read, length)} tokens at once; take a shorter text"
        )
    arguments = {"max_new_tokens": limit, "do_sample": False, **wanted}
    generation = Generation(loaded.id, limit)
    with torch.inference_mode(), listed(generation):
        ids = loaded.model.generate(**inputs, **arguments, stopping_criteria=stopping(generation))[0]
    ends = loaded.model.generation_config.eos_token_id
    if generation.done >= limit and int(ids[-1]) not in (ends if isinstance(ends, list) else [ends]):
        add_note(f"the text was cut at the limit of {limit} tokens")
    if prompt is not None and len(ids) >= length and bool((ids[:length] == prompt[0]).all()):
        return ids[length:]
    return ids


def token_limit(loaded: LoadedModel) -> int:
    """Return how many tokens fit into the model at once."""
    return int(min(loaded.tokenizer.model_max_length, 4096))


def split_by_tokens(text: str, loaded: LoadedModel, limit: int) -> Iterator[str]:
    """The parts of a text of at most `limit` tokens, until the call is cancelled (ExpertError)."""
    parts = (part.strip() for part in base.split_text(text, limit, loaded.count_tokens))
    return until_cancelled(filter(None, parts))


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


def top_labels(scores: Any, config: Any, key: str = "label") -> list[dict[str, Any]]:
    """Return [{key, score}] for the best of a model's classes, float (classes,), best first."""
    best = scores.topk(min(MAX_LABELS, len(scores)))
    ranked = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [{key: config.id2label[index], "score": score} for index, score in ranked]


def find_entities(loaded: LoadedModel, call: Call) -> Any:
    """Return [{entity_group, score, word, start, end}] with the tokens of a name joined."""
    text = text_of(call)
    entities = loaded.pipe(text, aggregation_strategy="simple", stride=token_limit(loaded) // 4)
    # Joined word pieces contain marks of the tokenizer, so the word is taken from the text.
    return [{**entity, "word": text[entity["start"] : entity["end"]]} for entity in entities]


def fill_mask(loaded: LoadedModel, call: Call) -> Any:
    """Return [{score, token, token_str, sequence}] for the one gap of a text, best first."""
    text, mask = text_of(call), loaded.tokenizer.mask_token
    count = len(_MASK.findall(text))
    if count != 1:
        raise BadInputError(
            f"{call.spec.name} needs a text with one [MASK], and this one has {count or 'none'}"
        )
    masked, limit = _MASK.sub(lambda _: mask, text), token_limit(loaded)
    loaded.check_length("texts up to a gap", [masked[: masked.index(mask)]], limit - 1)
    base.note_cut_texts(call, [masked], limit, loaded.count_tokens)
    shortened = {"truncation": True, "max_length": limit}
    return loaded.pipe(masked, top_k=MAX_LABELS, tokenizer_kwargs=shortened)


def answer_from_context(loaded: LoadedModel, call: Call) -> list[dict[str, Any]]:
    """Return [{answer, score, start, end}]: the most probable spans of the context, best first."""
    import torch

    question, context, limit = text_of(call), text_of(call, "context"), token_limit(loaded)
    loaded.check_length("questions", [question], limit - limit // 4 - 4)
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
    windows.pop("overflow_to_sample_mapping")
    offsets = windows.pop("offset_mapping").tolist()
    spans: dict[tuple[int, int], float] = {}
    for number, places in enumerate(offsets):
        output = loaded.forward({name: rows[number : number + 1] for name, rows in windows.items()})
        outside = torch.tensor([part != 1 for part in windows.sequence_ids(number)])
        start, end = (
            logits[0].float().cpu().masked_fill(outside, -torch.inf).softmax(0)
            for logits in (output.start_logits, output.end_logits)
        )
        # The probability of each span from one token to another.
        scores = torch.outer(start, end).triu().tril(ANSWER_TOKENS - 1)
        best = scores.flatten().topk(min(MAX_ANSWERS, scores.numel()))
        for place, score in zip(best.indices.tolist(), best.values.tolist(), strict=True):
            first, last = divmod(place, len(scores))
            span = (places[first][0], places[last][1])
            if score > 0:
                spans[span] = max(score, spans.get(span, 0.0))
    ranked = sorted(spans.items(), key=lambda item: -item[1])[:MAX_ANSWERS]
    return [{"answer": context[a:b], "score": score, "start": a, "end": b} for (a, b), score in ranked]


def answer_from_cells(loaded: LoadedModel, call: Call) -> Any:
    """Return {answer, coordinates, cells, aggregator}: cells of a table that the model chooses (TAPAS)."""
    if find_spec("pandas") is None:
        raise MissingExtraError(f"{loaded.id}, which answers from tables,", "tabular")
    import pandas

    rows, query = pandas.DataFrame(call.table().cells), text_of(call)
    # The tokenizer drops rows that do not fit, but ranks their numbers too, beyond the model's last rank.
    table = rows.head(loaded.tokenizer.max_row_id - 1)
    try:
        tokens = loaded.tokenizer(table, query, truncation="drop_rows_to_fit")
    except ValueError as error:
        raise UnsupportedError(f"{loaded.id} cannot read this table", detail=error) from error
    read = max(row for *_, row, _, _, _, _ in tokens["token_type_ids"])
    if not read or len(tokens["input_ids"]) > loaded.tokenizer.model_max_length:
        raise UnsupportedError(f"{loaded.id} cannot read a row of this table at once; give fewer columns")
    if read < len(rows):
        rows_read = "the first {number:,} of {total:,} rows were read"
        call.notes.append(Note(rows_read, number=read, total=len(rows)))
    # Of a long cell it keeps as many tokens as every cell may have.
    lengths = Counter((column, row) for segment, column, row, *_ in tokens["token_type_ids"] if segment)
    cells = [*table, *table.head(read).to_numpy().flat]
    base.note_cut_texts(call, cells, max(lengths.values()), lambda cell: len(loaded.tokenizer.tokenize(cell)))
    return loaded.pipe(table=table.head(read), query=query)


def summarize(loaded: LoadedModel, call: Call) -> str:
    """Return the summary; a long text is summarised piece by piece."""
    prefix = "summarize: " if loaded.model.config.model_type in T5_TYPES else ""
    length = loaded.model.generation_config.max_length or 0
    limit = length if length > 20 else NEW_TOKENS  # 20 is the default of transformers, not of the model
    parts = split_by_tokens(text_of(call), loaded, token_limit(loaded) - SENTENCE_TOKENS)
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
            for part in split_by_tokens(line, loaded, limit)
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
    if kind == "marian":  # a multilingual one reads the target language's token
        names = [name for name in loaded.tokenizer.get_vocab() if name[:2] == ">>" and name[-2:] == "<<"]
        fitting = [name for name in names if target and find_language(name.strip("<>")) == target]
        only = find_language(loaded.tokenizer.target_lang or "")
        if target and not fitting and (names or (only is not None and only != target)):
            raise UnsupportedError(f"{loaded.id} does not translate into {target.name}")
        return (f"{fitting[0]} " if fitting else ""), {}
    if target is None:
        raise UnsupportedError(f"{loaded.id} needs the target language (tgt_lang)")
    if source is None:
        raise UnsupportedError(f"{loaded.id} needs the language of the text (src_lang)")
    if kind in T5_TYPES:
        return f"translate {source.name} to {target.name}: ", {}
    loaded.tokenizer.src_lang, _ = _language_token(loaded, source)
    return "", {"forced_bos_token_id": _language_token(loaded, target)[1]}


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
