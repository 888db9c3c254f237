"""Tiny models of several kinds of media at once: functions that save one in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_parts import IMAGE, SEQ2SEQ, SIDE, TEXT, bpe_tokenizer, save

LLAMA = {
    "model_type": "llama",
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    **TEXT,
}


def _template(**marks: str) -> str:
    """A chat template that writes each part of a message as its text, or as the mark of its kind."""
    kinds = "".join(f"{{% elif part['type'] == '{kind}' %}}{mark}" for kind, mark in marks.items())
    return (
        "{% for message in messages %}{% for part in message['content'] %}"
        "{% if part['type'] == 'text' %}{{ part['text'] }}" + kinds + "{% endif %}"
        "{% endfor %}{% endfor %}:"
    )


def _describe(folder: Path, processor: str, template: str, **settings: Any) -> None:
    """The files of a processor that cannot be made on this machine, so that it cannot be saved either."""
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": processor, **settings}))
    (folder / "chat_template.jinja").write_text(template)


def qwen2_vl(folder: Path) -> None:
    """Its processor has a part for videos, which needs torchvision."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

    marks = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    marks |= {"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>"}
    tokenizer = bpe_tokenizer(extra_special_tokens=marks)
    ids = {name: tokenizer.convert_tokens_to_ids(mark) for name, mark in marks.items()}
    config = Qwen2VLConfig(
        text_config={
            **{name: value for name, value in LLAMA.items() if name != "model_type"},
            "vocab_size": len(tokenizer),
            "rope_parameters": {"type": "mrope", "mrope_section": [1, 1, 2], "rope_theta": 10_000.0},
        },
        vision_config={
            "depth": 1,
            "embed_dim": 16,
            "hidden_size": 16,
            "num_heads": 2,
            "mlp_ratio": 1,
            "patch_size": 14,
        },
        image_token_id=ids["image_token"],
        video_token_id=ids["video_token"],
        vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
    )
    images = Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=56 * 56)
    save(folder, Qwen2VLForConditionalGeneration(config), tokenizer, images)
    _describe(folder, "Qwen2VLProcessor", _template(image="<|vision_start|><|image_pad|><|vision_end|>"))


def smolvlm(folder: Path) -> None:
    """Its processor has a part for videos, and needs num2words, too."""
    from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration, SmolVLMImageProcessorPil

    marks = {
        "image_token": "<image>",
        "fake_image_token": "<fake_token_around_image>",
        "global_image_token": "<global-img>",
        "end_of_utterance_token": "<end_of_utterance>",
    }
    tokenizer = bpe_tokenizer(extra_special_tokens=marks)
    config = SmolVLMConfig(
        text_config={**LLAMA, "vocab_size": len(tokenizer)},
        vision_config={**TEXT, **IMAGE, "model_type": "smolvlm_vision"},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    images = SmolVLMImageProcessorPil(
        size={"longest_edge": 32}, max_image_size={"longest_edge": 32}, do_image_splitting=False
    )
    save(folder, SmolVLMForConditionalGeneration(config), tokenizer, images)
    _describe(folder, "SmolVLMProcessor", _template(image="<image>"), image_seq_len=1)


def qwen2_audio(folder: Path) -> None:
    from transformers import (
        Qwen2AudioConfig,
        Qwen2AudioForConditionalGeneration,
        Qwen2AudioProcessor,
        WhisperFeatureExtractor,
    )

    marks = {"audio_token": "<|AUDIO|>", "audio_bos": "<|audio_bos|>", "audio_eos": "<|audio_eos|>"}
    tokenizer = bpe_tokenizer(extra_special_tokens=marks)
    config = Qwen2AudioConfig(
        audio_config={
            **{name: SEQ2SEQ[name] for name in ("d_model", "encoder_layers", "encoder_attention_heads")},
            "encoder_ffn_dim": 16,
            "num_mel_bins": 16,
            "max_source_positions": 50,
            "model_type": "qwen2_audio_encoder",
        },
        text_config={**LLAMA, "model_type": "qwen2", "vocab_size": len(tokenizer)},
        audio_token_index=tokenizer.convert_tokens_to_ids("<|AUDIO|>"),
    )
    ear = WhisperFeatureExtractor(feature_size=16, chunk_length=1)
    processor = Qwen2AudioProcessor(
        ear, tokenizer, chat_template=_template(audio="<|audio_bos|><|AUDIO|><|audio_eos|>")
    )
    save(folder, Qwen2AudioForConditionalGeneration(config), processor)


def colpali(folder: Path) -> None:
    from transformers import ColPaliConfig, ColPaliForRetrieval, ColPaliProcessor, SiglipImageProcessorPil

    tokenizer = bpe_tokenizer(extra_special_tokens={"image_token": "<image>"})
    images = SiglipImageProcessorPil(size=SIDE)
    images.image_seq_length = 4
    processor = ColPaliProcessor(images, tokenizer)
    text = {**LLAMA, "model_type": "gemma", "vocab_size": len(tokenizer), "head_dim": 8}
    seeing = {
        "model_type": "paligemma",
        "text_config": text,
        "vision_config": {**TEXT, **IMAGE, "model_type": "siglip_vision_model", "projection_dim": 16},
        "image_token_index": tokenizer.convert_tokens_to_ids("<image>"),
        "projection_dim": 16,
        "hidden_size": 16,
    }
    save(folder, ColPaliForRetrieval(ColPaliConfig(vlm_config=seeing, embedding_dim=8)), processor)


def layoutlmv3(folder: Path) -> None:
    from tokenizers import pre_tokenizers
    from transformers import (
        LayoutLMv3Config,
        LayoutLMv3ForQuestionAnswering,
        LayoutLMv3ImageProcessorPil,
        LayoutLMv3Tokenizer,
    )

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    letters = {token: n for n, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", *alphabet])}
    tokenizer = LayoutLMv3Tokenizer(vocab=letters, merges=[], model_max_length=64)
    config = LayoutLMv3Config(
        vocab_size=len(letters),
        max_position_embeddings=70,
        coordinate_size=2,
        shape_size=4,
        input_size=32,
        num_labels=2,
        **TEXT,
        **{name: value for name, value in IMAGE.items() if name != "image_size"},
    )
    save(folder, LayoutLMv3ForQuestionAnswering(config), tokenizer, LayoutLMv3ImageProcessorPil(size=SIDE))
