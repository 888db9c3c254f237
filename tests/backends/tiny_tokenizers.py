"""Vocabularies of the tiny models' tokenizers, and the tokenizers that need code; no files from elsewhere.

Each function takes the folder of the model, where some tokenizers keep their vocabulary.
"""

import io
import json
from pathlib import Path
from typing import Any

SAID = "a an and are cat dog good in is of on the to was what who ada capital first france paris program"
WORDS = f"{SAID} total wrote . , ? ' -".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _alphabet() -> list[str]:
    """A character for each byte."""
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def vocabulary(folder: Path, tokens: list[str], file: str = "") -> dict[str, int] | str:
    """Number the tokens; with a file name, write them to it and return its path.

    A token with "{letter}", "{LETTER}", "{digit}", "{byte}" or "{word}" stands for one token for each.
    """
    parts = {
        "{letter}": LETTERS,
        "{LETTER}": LETTERS.upper(),
        "{digit}": "0123456789",
        "{byte}": _alphabet(),
        "{word}": WORDS,
    }
    for part, values in parts.items():
        tokens = [t.replace(part, v) for t in tokens for v in (values if part in t else [""])]
    numbered = {token: n for n, token in enumerate(dict.fromkeys(tokens))}
    if not file:
        return numbered
    text = "\n".join(numbered) if file.endswith(".txt") else json.dumps(numbered)
    (folder / file).write_text(text)
    return str(folder / file)


def scored(folder: Path, tokens: list[str]) -> list[tuple[str, float]]:
    """A vocabulary with equal scores."""
    return [(token, 0.0) for token in vocabulary(folder, tokens)]


def sentencepiece(folder: Path, file: str) -> str:
    """Train a SentencePiece model on the words and write it; returns its path."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(WORDS)] * 20),
        model_writer=model,
        vocab_size=80,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    (folder / file).write_bytes(model.getvalue())
    return str(folder / file)


def bpe_tokenizer(folder: Path, words: list[str] | None = None, **options: Any) -> Any:
    """A byte-level tokenizer without merges, which takes any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>", "<unk>"]
    core = Tokenizer(models.BPE(vocabulary(folder, [*special, "{byte}"]), []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    roles = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), special, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=64, **roles, **options)
    tokenizer.add_tokens(words or [])
    return tokenizer


def t5_tokenizer(folder: Path) -> Any:
    from transformers import T5Tokenizer

    sentencepiece(folder, "spiece.model")
    return T5Tokenizer.from_pretrained(folder, extra_ids=0)


def whisper_tokenizer(folder: Path) -> Any:
    from transformers import WhisperTokenizerFast

    roles = ["startoftranscript", "en", "translate", "transcribe", "startoflm", "startofprev", "nospeech"]
    special = [f"<|{role}|>" for role in (*roles, "notimestamps")]
    words = vocabulary(folder, ["{byte}", "<|endoftext|>"])
    tokenizer = WhisperTokenizerFast(vocab=words, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.add_tokens([f"<|{n * 0.02:.2f}|>" for n in range(1501)])
    return tokenizer
