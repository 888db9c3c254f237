"""Tiny models of sound: functions that save one in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_parts import LABELS, SEQ2SEQ, TEXT, bert_tokenizer, bpe_tokenizer, save


def whisper(folder: Path) -> None:
    from tokenizers import pre_tokenizers
    from transformers import (
        GenerationConfig,
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperTokenizerFast,
    )

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|translate|>", "<|transcribe|>"]
    special += ["<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    special += [f"<|{n * 0.02:.2f}|>" for n in range(1501)]
    vocab = {token: n for n, token in enumerate([*letters, *special])}
    tokenizer = WhisperTokenizerFast(vocab={t: vocab[t] for t in [*letters, special[0]]}, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": special[1:9]})
    tokenizer.add_tokens(special[9:])
    config = WhisperConfig(
        vocab_size=len(vocab),
        num_mel_bins=80,
        max_target_positions=64,
        decoder_start_token_id=vocab[special[1]],
        eos_token_id=vocab[special[0]],
        pad_token_id=vocab[special[0]],
        bos_token_id=vocab[special[0]],
        **{name: value for name, value in SEQ2SEQ.items() if name != "max_position_embeddings"},
        suppress_tokens=[],
        begin_suppress_tokens=[],
    )
    model = WhisperForConditionalGeneration(config)
    model.generation_config = GenerationConfig(
        decoder_start_token_id=vocab[special[1]],
        eos_token_id=vocab[special[0]],
        pad_token_id=vocab[special[0]],
        no_timestamps_token_id=vocab["<|notimestamps|>"],
        lang_to_id={"<|en|>": vocab["<|en|>"]},
        task_to_id={"transcribe": vocab["<|transcribe|>"], "translate": vocab["<|translate|>"]},
        is_multilingual=True,
        max_initial_timestamp_index=50,
    )
    save(folder, model, tokenizer, WhisperFeatureExtractor())


def _wav2vec2_options() -> dict[str, Any]:
    return {
        "conv_dim": (8, 8, 8),
        "conv_stride": (8, 8, 5),
        "conv_kernel": (16, 16, 10),
        "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 2,
        **TEXT,
    }


def wav2vec2_ctc(folder: Path) -> None:
    from transformers import Wav2Vec2Config, Wav2Vec2CTCTokenizer, Wav2Vec2FeatureExtractor, Wav2Vec2ForCTC

    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ'"]
    (folder / "vocab.json").write_text(json.dumps({letter: n for n, letter in enumerate(letters)}))
    tokenizer = Wav2Vec2CTCTokenizer(str(folder / "vocab.json"))
    model = Wav2Vec2ForCTC(Wav2Vec2Config(vocab_size=len(letters), **_wav2vec2_options()))
    save(folder, model, tokenizer, Wav2Vec2FeatureExtractor())


def wav2vec2_classifier(folder: Path) -> None:
    from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2ForSequenceClassification

    config = Wav2Vec2Config(classifier_proj_size=8, **_wav2vec2_options(), **LABELS)
    save(folder, Wav2Vec2ForSequenceClassification(config), Wav2Vec2FeatureExtractor())


def vits(folder: Path) -> None:
    from transformers import VitsConfig, VitsModel, VitsTokenizer

    letters = ["_", *"abcdefghijklmnopqrstuvwxyz '-.,", "<unk>"]
    (folder / "vocab.json").write_text(json.dumps({letter: n for n, letter in enumerate(letters)}))
    tokenizer = VitsTokenizer(
        str(folder / "vocab.json"), language="eng", phonemize=False, is_uroman=False, pad_token="_"
    )
    config = VitsConfig(
        vocab_size=len(letters),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=16,
        flow_size=16,
        spectrogram_bins=9,
        duration_predictor_filter_channels=16,
        prior_encoder_num_flows=1,
        posterior_encoder_num_wavenet_layers=1,
        prior_encoder_num_wavenet_layers=1,
        upsample_initial_channel=16,
        upsample_rates=[8, 8],
        upsample_kernel_sizes=[16, 16],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3, 5]],
        duration_predictor_num_flows=1,
        depth_separable_num_layers=1,
        sampling_rate=16_000,
    )
    save(folder, VitsModel(config), tokenizer)


def speecht5(folder: Path) -> None:
    """With a voice (voice.npy) and, in the folder vocoder, a vocoder."""
    import numpy as np
    from transformers import SpeechT5Config, SpeechT5ForTextToSpeech, SpeechT5HifiGan, SpeechT5HifiGanConfig

    tokenizer = bpe_tokenizer()
    config = SpeechT5Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_mel_bins=8,
        speaker_embedding_dim=4,
        speech_decoder_prenet_units=16,
        speech_decoder_postnet_units=16,
        speech_decoder_postnet_layers=2,
        positional_dropout=0.0,
    )
    vocoder = SpeechT5HifiGan(
        SpeechT5HifiGanConfig(
            model_in_dim=8,
            upsample_initial_channel=16,
            upsample_rates=[4, 4],
            upsample_kernel_sizes=[8, 8],
            resblock_kernel_sizes=[3],
            resblock_dilation_sizes=[[1, 3, 5]],
        )
    )
    save(folder, SpeechT5ForTextToSpeech(config), tokenizer)
    vocoder.save_pretrained(folder / "vocoder")
    np.save(folder / "voice.npy", np.ones((1, 4), np.float32))


def bark(folder: Path) -> None:
    from transformers import BarkConfig, BarkModel, BarkProcessor, EncodecConfig
    from transformers.models.bark.generation_configuration_bark import (
        BarkCoarseGenerationConfig,
        BarkFineGenerationConfig,
        BarkGenerationConfig,
        BarkSemanticGenerationConfig,
    )

    size = {"num_layers": 1, "num_heads": 2, "hidden_size": 16}
    codec = EncodecConfig(num_filters=4, hidden_size=8, codebook_dim=8, num_lstm_layers=1)
    config = BarkConfig(
        semantic_config={"input_vocab_size": 129_600, "output_vocab_size": 10_048, **size},
        coarse_acoustics_config={"input_vocab_size": 12_096, "output_vocab_size": 12_096, **size},
        fine_acoustics_config={"input_vocab_size": 1056, "output_vocab_size": 1056, **size},
        codec_config=codec.to_dict(),
    )
    generation = BarkGenerationConfig(
        semantic_config=BarkSemanticGenerationConfig(max_new_tokens=8).to_dict(),
        coarse_acoustics_config=BarkCoarseGenerationConfig().to_dict(),
        fine_acoustics_config=BarkFineGenerationConfig().to_dict(),
    )
    model = BarkModel(config)
    model.can_generate = lambda: False  # transformers cannot save the config of Bark's generation itself
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(generation.to_dict()))
    BarkProcessor(bert_tokenizer(256)).save_pretrained(str(folder))


def musicgen(folder: Path) -> None:
    from transformers import (
        EncodecConfig,
        MusicgenConfig,
        MusicgenDecoderConfig,
        MusicgenForConditionalGeneration,
        T5Config,
    )

    tokenizer = bpe_tokenizer()
    codec = EncodecConfig(
        num_filters=4,
        hidden_size=8,
        codebook_dim=8,
        codebook_size=64,
        num_lstm_layers=1,
        upsampling_ratios=[8, 5, 4, 2],
        target_bandwidths=[1.2],
        sampling_rate=16_000,
    )
    decoder = MusicgenDecoderConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=16,
        num_codebooks=2,
        pad_token_id=64,
        bos_token_id=64,
    )
    reader = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, pad_token_id=0
    )
    config = MusicgenConfig(text_encoder=reader, audio_encoder=codec, decoder=decoder)
    model = MusicgenForConditionalGeneration(config)
    model.generation_config.decoder_start_token_id = 64
    model.generation_config.pad_token_id = 64
    model.generation_config.do_sample = True
    model.generation_config.guidance_scale = 3.0
    save(folder, model, tokenizer)
