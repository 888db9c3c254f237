"""Translation with transformers: T5, Marian, M2M100, NLLB and mBART, which name languages in their own ways.

translate(loaded, call)      # "Le chat dort.", from inputs text, src_lang and tgt_lang
"""

from __future__ import annotations

from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.transformers.generation import rewrite, split_text, token_limit
from jarvis_agent.backends.transformers.loading import LoadedModel
from jarvis_agent.backends.transformers.text import NEW_TOKENS, T5_TYPES, text_of
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.languages import Language, find_language, language_of_script


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
    found = find_language(str(name))
    if found is None:
        raise BadInputError(
            f'{name!r} is not a known language; give its English name or its code, such as "fr"'
        )
    return found


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
