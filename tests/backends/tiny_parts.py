"""What the tiny models of the tests are made of: sizes, and tokenizers that need no file from anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS = [
    *(
        "a",
        "an",
        "and",
        "are",
        "cat",
        "dog",
        "good",
        "in",
        "is",
        "of",
        "on",
        "the",
        "to",
        "was",
        "what",
        "who",
    ),
    *("ada", "capital", "first", "france", "paris", "program", "total", "wrote", ".", ",", "?", "'", "-"),
]

TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
SEQ2SEQ = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 64,
}
LABELS = {
    "id2label": {0: "first", 1: "second", 2: "third"},
    "label2id": {"first": 0, "second": 1, "third": 2},
}
IMAGE = {"image_size": 32, "patch_size": 16, "num_channels": 3}
SIDE = {"height": 32, "width": 32}


def save(folder: Path, *parts: Any) -> None:
    for part in parts:
        part.save_pretrained(folder)


def bert_tokenizer(limit: int = 64) -> Any:
    from transformers import BertTokenizerFast

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdefghijklmnopqrstuvwxyz"]
    tokens += [f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    return BertTokenizerFast(
        vocab={token: n for n, token in enumerate(dict.fromkeys(tokens))}, model_max_length=limit
    )


def bpe_tokenizer(eos: str = "</s>", **options: Any) -> Any:
    """A byte-level tokenizer without merges: it takes any text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>", "<unk>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({token: n for n, token in enumerate([*special, *alphabet])}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token=eos,
        unk_token="<unk>",
        model_max_length=64,
        **options,
    )


def sentencepiece_model(folder: Path, name: str) -> Path:
    import io

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
    path = folder / name
    path.write_bytes(model.getvalue())
    return path
