"""Tiny models of text: functions that save one in a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tiny_parts import LABELS, SEQ2SEQ, TEXT, WORDS, bert_tokenizer, bpe_tokenizer, save, sentencepiece_model


def bert(config_class: str, model_class: str, folder: Path, **options: Any) -> None:
    import transformers

    tokenizer = bert_tokenizer()
    config = getattr(transformers, config_class)(
        vocab_size=len(tokenizer), max_position_embeddings=64, **TEXT, **options
    )
    save(folder, getattr(transformers, model_class)(config), tokenizer)


def bert_classifier(folder: Path) -> None:
    bert("BertConfig", "BertForSequenceClassification", folder, **LABELS)


def bert_base(folder: Path) -> None:
    bert("BertConfig", "BertModel", folder)


def bert_tagger(folder: Path) -> None:
    labels = ["O", "B-PER", "I-PER"]
    bert("BertConfig", "BertForTokenClassification", folder, id2label=dict(enumerate(labels)))


def bert_reader(folder: Path) -> None:
    bert("BertConfig", "BertForQuestionAnswering", folder)


def bert_nli(folder: Path) -> None:
    labels = ["contradiction", "neutral", "entailment"]
    names = {label: n for n, label in enumerate(labels)}
    bert(
        "BertConfig",
        "BertForSequenceClassification",
        folder,
        id2label=dict(enumerate(labels)),
        label2id=names,
    )


def bart(folder: Path) -> None:
    from transformers import BartConfig, BartForConditionalGeneration

    tokenizer = bpe_tokenizer()
    config = BartConfig(
        vocab_size=len(tokenizer),
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        **SEQ2SEQ,
    )
    save(folder, BartForConditionalGeneration(config), tokenizer)


def t5(folder: Path) -> None:
    from transformers import T5Config, T5ForConditionalGeneration, T5Tokenizer

    tokenizer = T5Tokenizer.from_pretrained(sentencepiece_model(folder, "spiece.model").parent, extra_ids=0)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
    )
    save(folder, T5ForConditionalGeneration(config), tokenizer)


def marian(folder: Path) -> None:
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    pieces = ["</s>", "<unk>", *(f"▁{word}" for word in WORDS), *"abcdefghijklmnopqrstuvwxyz", "▁", "<pad>"]
    (folder / "vocab.json").write_text(
        json.dumps({piece: n for n, piece in enumerate(dict.fromkeys(pieces))})
    )
    for name in ("source.spm", "target.spm"):
        sentencepiece_model(folder, name)
    tokenizer = MarianTokenizer(
        source_spm=str(folder / "source.spm"),
        target_spm=str(folder / "target.spm"),
        vocab=str(folder / "vocab.json"),
        source_lang="en",
        target_lang="fr",
        model_max_length=64,
    )
    pad = len(tokenizer) - 1
    config = MarianConfig(
        vocab_size=len(tokenizer), pad_token_id=pad, eos_token_id=0, decoder_start_token_id=pad, **SEQ2SEQ
    )
    save(folder, MarianMTModel(config), tokenizer)


def m2m100(folder: Path) -> None:
    from transformers import M2M100Config, M2M100ForConditionalGeneration, M2M100Tokenizer

    pieces = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        *(f"▁{word}" for word in WORDS),
        *"abcdefghijklmnopqrstuvwxyz",
        "▁",
    ]
    vocab = folder / "vocab.json"
    vocab.write_text(json.dumps({piece: n for n, piece in enumerate(dict.fromkeys(pieces))}))
    tokenizer = M2M100Tokenizer(
        vocab_file=str(vocab),
        spm_file=str(sentencepiece_model(folder, "sentencepiece.bpe.model")),
        model_max_length=64,
    )
    vocab_size = max(tokenizer.lang_token_to_id.values()) + 1
    config = M2M100Config(vocab_size=vocab_size, decoder_start_token_id=2, **SEQ2SEQ)
    save(folder, M2M100ForConditionalGeneration(config), tokenizer)


def nllb(folder: Path) -> None:
    from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

    letters = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", "▁"]
    tokenizer = NllbTokenizer(
        vocab={letter: n for n, letter in enumerate(letters)}, merges=[], model_max_length=64
    )
    config = M2M100Config(vocab_size=len(tokenizer), decoder_start_token_id=2, **SEQ2SEQ)
    save(folder, M2M100ForConditionalGeneration(config), tokenizer)


def mbart(folder: Path) -> None:
    from transformers import MBart50Tokenizer, MBartConfig, MBartForConditionalGeneration

    letters = ["<s>", "<pad>", "</s>", "<unk>", *"abcdefghijklmnopqrstuvwxyz", "▁"]
    tokenizer = MBart50Tokenizer(vocab=[(letter, 0.0) for letter in letters], model_max_length=64)
    config = MBartConfig(vocab_size=len(tokenizer), decoder_start_token_id=2, **SEQ2SEQ)
    save(folder, MBartForConditionalGeneration(config), tokenizer)


def llama(folder: Path) -> None:
    _llama(folder)


def llama_chat(folder: Path) -> None:
    _llama(
        folder,
        chat_template="{% for m in messages %}<s>{{ m['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}:{% endif %}",
    )


def _llama(folder: Path, **options: Any) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = bpe_tokenizer(**options)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        num_key_value_heads=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        max_position_embeddings=512,
        **TEXT,
    )
    save(folder, LlamaForCausalLM(config), tokenizer)


def bert_masked(folder: Path) -> None:
    bert("BertConfig", "BertForMaskedLM", folder)


def roberta_masked(folder: Path) -> None:
    """A model whose gap is written <mask>."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    tokenizer = bpe_tokenizer(mask_token="<mask>")
    config = RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=66, pad_token_id=0, **TEXT)
    save(folder, RobertaForMaskedLM(config), tokenizer)


def tapex(folder: Path) -> None:
    """A model that writes the answer to a question about a table."""
    from transformers import BartConfig, BartForConditionalGeneration

    tokenizer = bpe_tokenizer()
    tokenizer.model_max_length = 128
    config = BartConfig(
        vocab_size=len(tokenizer),
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        **{**SEQ2SEQ, "max_position_embeddings": 128},
    )
    save(folder, BartForConditionalGeneration(config), tokenizer)


def embedder(folder: Path) -> None:
    """A model of sentence-transformers: the mean of BERT's token vectors, of length one."""
    _embedder(folder)


def asymmetric_embedder(folder: Path) -> None:
    """An embedder that marks queries and documents."""
    _embedder(folder, prompts={"query": "who wrote ", "document": "the cat is "})


def dense_embedder(folder: Path) -> None:
    """An embedder with weights in a folder of their own."""
    _embedder(folder, dense=True)


def _embedder(folder: Path, *, dense: bool = False, **options: Any) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    bert_base(folder / "base")
    words = Transformer(str(folder / "base"))
    modules = [words, Pooling(words.get_embedding_dimension(), "mean")]
    if dense:
        modules.append(Dense(words.get_embedding_dimension(), 8))
    SentenceTransformer(modules=[*modules, Normalize()], device="cpu", **options).save(
        str(folder), create_model_card=False
    )
    shutil.rmtree(folder / "base")


def cross_encoder(folder: Path) -> None:
    """A cross-encoder as sentence-transformers saves it."""
    from sentence_transformers import CrossEncoder

    reranker(folder / "base")
    CrossEncoder(str(folder / "base"), device="cpu").save(str(folder), create_model_card=False)
    shutil.rmtree(folder / "base")


def reranker(folder: Path) -> None:
    """A cross-encoder as transformers saves it."""
    bert("BertConfig", "BertForSequenceClassification", folder, num_labels=1)
