"""Tokenizers of the tiny models, which need no files from elsewhere.

Each function takes the folder of the model, where some tokenizers keep their vocabulary.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

SAID = "a an and are cat dog good in is of on the to was what who ada capital first france paris program"
WORDS = f"{SAID} total wrote . , ? ' -".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MARKS = ["<s>", "<pad>", "</s>", "<unk>"]


def _numbered(*tokens: str) -> dict[str, int]:
    return {token: n for n, token in enumerate(dict.fromkeys(tokens))}


def _byte_alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def _write_json(path: Path, vocabulary: dict[str, int]) -> str:
    path.write_text(json.dumps(vocabulary))
    return str(path)


def _sentencepiece(path: Path) -> str:
    """Train a SentencePiece model on the words and write it to the path."""
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
    path.write_bytes(model.getvalue())
    return str(path)


def bert_tokenizer(folder: Path, limit: int = 64) -> Any:
    from transformers import BertTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = _numbered(*special, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS))
    return BertTokenizerFast(vocab=vocabulary, model_max_length=limit)


def bpe_tokenizer(folder: Path, limit: int = 64, words: list[str] | None = None, **options: Any) -> Any:
    """A byte-level tokenizer without merges, which takes any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>", "<unk>"]
    core = Tokenizer(models.BPE(_numbered(*special, *_byte_alphabet()), []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    roles = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), special, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, model_max_length=limit, **roles, **options)
    tokenizer.add_tokens(words or [])
    return tokenizer


def clip_tokenizer(folder: Path) -> Any:
    from transformers import CLIPTokenizer

    letters = [f"{letter}{end}" for letter in LETTERS for end in ("", "</w>")]
    vocabulary = _numbered(*letters, "<|startoftext|>", "<|endoftext|>")
    return CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=16)


def layout_tokenizer(folder: Path) -> Any:
    from transformers import LayoutLMv3Tokenizer

    vocabulary = _numbered(*MARKS, "<mask>", *_byte_alphabet())
    return LayoutLMv3Tokenizer(vocab=vocabulary, merges=[], model_max_length=64)


def tapas_tokenizer(folder: Path) -> Any:
    from transformers import TapasTokenizer

    letters = [*LETTERS, *"0123456789?"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[EMPTY]", *letters]
    file = folder / "vocab.txt"
    file.write_text("\n".join([*tokens, *(f"##{letter}" for letter in letters)]))
    return TapasTokenizer(str(file), model_max_length=256)


def t5_tokenizer(folder: Path) -> Any:
    from transformers import T5Tokenizer

    _sentencepiece(folder / "spiece.model")
    return T5Tokenizer.from_pretrained(folder, extra_ids=0)


def marian_tokenizer(folder: Path) -> Any:
    from transformers import MarianTokenizer

    vocabulary = _numbered("</s>", "<unk>", *(f"▁{word}" for word in WORDS), *LETTERS, "▁", "<pad>")
    return MarianTokenizer(
        source_spm=_sentencepiece(folder / "source.spm"),
        target_spm=_sentencepiece(folder / "target.spm"),
        vocab=_write_json(folder / "vocab.json", vocabulary),
        source_lang="en",
        target_lang="fr",
        model_max_length=64,
    )


def m2m100_tokenizer(folder: Path) -> Any:
    from transformers import M2M100Tokenizer

    vocabulary = _numbered(*MARKS, *(f"▁{word}" for word in WORDS), *LETTERS, "▁")
    return M2M100Tokenizer(
        vocab_file=_write_json(folder / "vocab.json", vocabulary),
        spm_file=_sentencepiece(folder / "sentencepiece.bpe.model"),
        model_max_length=64,
    )


def nllb_tokenizer(folder: Path) -> Any:
    from transformers import NllbTokenizer

    return NllbTokenizer(vocab=_numbered(*MARKS, *LETTERS, "▁"), merges=[], model_max_length=64)


def mbart_tokenizer(folder: Path) -> Any:
    from transformers import MBart50Tokenizer

    vocabulary = [(token, 0.0) for token in (*MARKS, *LETTERS, "▁")]
    return MBart50Tokenizer(vocab=vocabulary, model_max_length=64)


def ctc_tokenizer(folder: Path) -> Any:
    from transformers import Wav2Vec2CTCTokenizer

    vocabulary = _numbered("<pad>", "<s>", "</s>", "<unk>", "|", *LETTERS.upper(), "'")
    return Wav2Vec2CTCTokenizer(_write_json(folder / "vocab.json", vocabulary))


def vits_tokenizer(folder: Path) -> Any:
    from transformers import VitsTokenizer

    file = _write_json(folder / "vocab.json", _numbered("_", *LETTERS, *" '-.,", "<unk>"))
    return VitsTokenizer(file, language="eng", phonemize=False, is_uroman=False, pad_token="_")


def whisper_tokenizer(folder: Path) -> Any:
    from transformers import WhisperTokenizerFast

    roles = ["startoftranscript", "en", "translate", "transcribe", "startoflm", "startofprev", "nospeech"]
    special = [f"<|{role}|>" for role in (*roles, "notimestamps")]
    tokenizer = WhisperTokenizerFast(vocab=_numbered(*_byte_alphabet(), "<|endoftext|>"), merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.add_tokens([f"<|{n * 0.02:.2f}|>" for n in range(1501)])
    return tokenizer
