"""Tiny models of images: functions that save one in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_parts import IMAGE, LABELS, SEQ2SEQ, SIDE, TEXT, bert_tokenizer, bpe_tokenizer, save
from tiny_text import bert


def vit(folder: Path) -> None:
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

    model = ViTForImageClassification(ViTConfig(**TEXT, **IMAGE, **LABELS))
    save(folder, model, ViTImageProcessorPil(size=SIDE))


def detr(folder: Path) -> None:
    from transformers import DetrConfig, DetrForObjectDetection, DetrImageProcessorPil

    model = DetrForObjectDetection(DetrConfig(**_detr_options()))
    model.class_labels_classifier.bias.data[0] = 5.0  # sure of everything, so that there is something to draw
    save(folder, model, DetrImageProcessorPil(size={"shortest_edge": 32, "longest_edge": 64}))


def _detr_options() -> dict[str, Any]:
    from transformers import ResNetConfig

    backbone = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], out_features=["stage2"])
    return {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone": None,
        "backbone_config": backbone,
        "num_queries": 3,
        **{name: value for name, value in SEQ2SEQ.items() if name != "max_position_embeddings"},
        **LABELS,
    }


def detr_people(folder: Path) -> None:
    from transformers import DetrConfig, DetrForObjectDetection, DetrImageProcessorPil

    people = {"id2label": {0: "person", 1: "dog"}, "label2id": {"person": 0, "dog": 1}}
    model = DetrForObjectDetection(DetrConfig(**{**_detr_options(), **people}))
    model.class_labels_classifier.bias.data[0] = 5.0
    save(folder, model, DetrImageProcessorPil(size={"shortest_edge": 32, "longest_edge": 64}))


def detr_panoptic(folder: Path) -> None:
    from transformers import DetrConfig, DetrForSegmentation, DetrImageProcessorPil, ResNetConfig

    options = _detr_options()
    options["backbone_config"] = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 8, 8, 16],
        depths=[1] * 4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    options["encoder_attention_heads"] = options["decoder_attention_heads"] = 8
    model = DetrForSegmentation(DetrConfig(**options))
    model.detr.class_labels_classifier.bias.data[0] = 9.0
    model.mask_head.output_conv.bias.data[:] = 9.0
    save(folder, model, DetrImageProcessorPil(size={"shortest_edge": 32, "longest_edge": 64}))


def segformer(folder: Path) -> None:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation, SegformerImageProcessorPil

    config = SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[8, 8],
        patch_sizes=[3, 3],
        strides=[2, 2],
        num_attention_heads=[1, 1],
        mlp_ratios=[1, 1],
        decoder_hidden_size=8,
        **LABELS,
    )
    save(folder, SegformerForSemanticSegmentation(config), SegformerImageProcessorPil(size=SIDE))


def glpn(folder: Path) -> None:
    from transformers import GLPNConfig, GLPNForDepthEstimation, GLPNImageProcessorPil

    config = GLPNConfig(
        num_encoder_blocks=4,
        depths=[1] * 4,
        sr_ratios=[8, 4, 2, 1],
        hidden_sizes=[8] * 4,
        num_attention_heads=[1] * 4,
        mlp_ratios=[1] * 4,
        decoder_hidden_size=8,
    )
    save(folder, GLPNForDepthEstimation(config), GLPNImageProcessorPil())


def vit_gpt2(folder: Path) -> None:
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        VisionEncoderDecoderModel,
        ViTConfig,
        ViTImageProcessorPil,
        ViTModel,
    )

    tokenizer = bpe_tokenizer()
    decoder = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=16,
        n_layer=1,
        n_head=2,
        is_decoder=True,
        add_cross_attention=True,
        bos_token_id=1,
        eos_token_id=2,
        n_positions=128,
    )
    model = VisionEncoderDecoderModel(
        encoder=ViTModel(ViTConfig(**TEXT, **IMAGE)), decoder=GPT2LMHeadModel(decoder)
    )
    model.generation_config.decoder_start_token_id = 1
    model.generation_config.pad_token_id = 0
    save(folder, model, tokenizer, ViTImageProcessorPil(size=SIDE))


def donut(folder: Path) -> None:
    from transformers import (
        DonutImageProcessorPil,
        DonutSwinConfig,
        DonutSwinModel,
        MBartConfig,
        MBartForCausalLM,
        VisionEncoderDecoderModel,
    )

    tokenizer = bpe_tokenizer()
    tokenizer.add_tokens(["<s_docvqa>", "<s_question>", "</s_question>", "<s_answer>", "</s_answer>"])
    encoder = DonutSwinConfig(
        image_size=[64, 64], patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4
    )
    decoder = MBartConfig(
        vocab_size=len(tokenizer),
        is_decoder=True,
        add_cross_attention=True,
        **{**SEQ2SEQ, "max_position_embeddings": 256},
    )
    model = VisionEncoderDecoderModel(encoder=DonutSwinModel(encoder), decoder=MBartForCausalLM(decoder))
    model.generation_config.decoder_start_token_id = 1
    model.generation_config.pad_token_id = 0
    save(folder, model, tokenizer, DonutImageProcessorPil(size={"height": 64, "width": 64}))


def _blip(model_class: str, folder: Path) -> None:
    import transformers
    from transformers import BlipConfig, BlipImageProcessorPil, BlipProcessor

    tokenizer = bert_tokenizer()
    ids = {"bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3, "pad_token_id": 0}
    text = {
        **TEXT,
        **ids,
        "vocab_size": len(tokenizer),
        "encoder_hidden_size": 16,
        "max_position_embeddings": 128,
    }
    config = BlipConfig(text_config=text, vision_config={**TEXT, **IMAGE}, projection_dim=16)
    processor = BlipProcessor(BlipImageProcessorPil(size=SIDE), tokenizer)
    save(folder, getattr(transformers, model_class)(config), processor)


def blip_caption(folder: Path) -> None:
    _blip("BlipForConditionalGeneration", folder)


def blip_vqa(folder: Path) -> None:
    _blip("BlipForQuestionAnswering", folder)


def vilt(folder: Path) -> None:
    from transformers import ViltConfig, ViltForQuestionAnswering, ViltImageProcessorPil, ViltProcessor

    tokenizer = bert_tokenizer(40)
    config = ViltConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **TEXT, **IMAGE, **LABELS)
    processor = ViltProcessor(ViltImageProcessorPil(size={"shortest_edge": 32}), tokenizer)
    save(folder, ViltForQuestionAnswering(config), processor)


def layoutlm(folder: Path) -> None:
    bert("LayoutLMConfig", "LayoutLMForQuestionAnswering", folder)


def llava_chat(folder: Path) -> None:
    from transformers import CLIPImageProcessorPil, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

    tokenizer = bpe_tokenizer(extra_special_tokens={"image_token": "<image>"})
    config = LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **TEXT, **IMAGE},
        text_config={
            "model_type": "llama",
            "vocab_size": len(tokenizer),
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "eos_token_id": 2,
            "pad_token_id": 0,
            **TEXT,
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
    )
    processor = LlavaProcessor(
        CLIPImageProcessorPil(size=SIDE, crop_size=SIDE),
        tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template="{% for m in messages %}{% for part in m['content'] %}"
        "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}{% endfor %}:",
    )
    save(folder, LlavaForConditionalGeneration(config), processor)


def vit_encoder(folder: Path) -> None:
    from transformers import ViTConfig, ViTImageProcessorPil, ViTModel

    save(folder, ViTModel(ViTConfig(**TEXT, **IMAGE)), ViTImageProcessorPil(size=SIDE))


def dinov2(folder: Path) -> None:
    from transformers import BitImageProcessorPil, Dinov2Config, Dinov2Model

    model = Dinov2Model(Dinov2Config(**TEXT, **IMAGE, mlp_ratio=1))
    save(folder, model, BitImageProcessorPil(size={"shortest_edge": 32}, crop_size=SIDE))


def clip(folder: Path) -> None:
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPProcessor

    tokenizer = bpe_tokenizer()
    text = {**TEXT, "vocab_size": len(tokenizer), "max_position_embeddings": 64, "eos_token_id": 2}
    config = CLIPConfig(text_config=text, vision_config={**TEXT, **IMAGE}, projection_dim=16)
    processor = CLIPProcessor(CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=SIDE), tokenizer)
    save(folder, CLIPModel(config), processor)


def siglip(folder: Path) -> None:
    from transformers import SiglipConfig, SiglipImageProcessorPil, SiglipModel, SiglipProcessor

    tokenizer = bpe_tokenizer()
    text = {**TEXT, "vocab_size": len(tokenizer), "max_position_embeddings": 64, "projection_size": 16}
    config = SiglipConfig(text_config=text, vision_config={**TEXT, **IMAGE})
    save(folder, SiglipModel(config), SiglipProcessor(SiglipImageProcessorPil(size=SIDE), tokenizer))


def _video(kind: str, folder: Path, processor: Any, **options: Any) -> None:
    import transformers

    config = getattr(transformers, f"{kind}Config")(**TEXT, **IMAGE, num_frames=4, **options, **LABELS)
    save(folder, getattr(transformers, f"{kind}ForVideoClassification")(config), processor)


def videomae(folder: Path) -> None:
    from transformers import VideoMAEImageProcessorPil

    _video("VideoMAE", folder, VideoMAEImageProcessorPil(size={"shortest_edge": 32}, crop_size=SIDE))


def vivit(folder: Path) -> None:
    from transformers import VivitImageProcessor

    processor = VivitImageProcessor(size={"shortest_edge": 32}, crop_size=SIDE)
    _video("Vivit", folder, processor, tubelet_size=[2, 16, 16])


def vjepa2(folder: Path) -> None:
    from transformers import VJEPA2Config, VJEPA2ForVideoClassification

    config = VJEPA2Config(
        patch_size=16,
        crop_size=32,
        frames_per_clip=4,
        hidden_size=24,
        num_attention_heads=2,
        num_hidden_layers=1,
        mlp_ratio=1,
        pred_hidden_size=24,
        pred_num_attention_heads=2,
        pred_num_hidden_layers=1,
        num_pooler_layers=1,
        **LABELS,
    )
    save(folder, VJEPA2ForVideoClassification(config))
    (folder / "video_preprocessor_config.json").write_text('{"video_processor_type": "VJEPA2VideoProcessor"}')


def swin2sr(folder: Path) -> None:
    from transformers import Swin2SRConfig, Swin2SRForImageSuperResolution, Swin2SRImageProcessorPil

    config = Swin2SRConfig(
        image_size=16,
        patch_size=1,
        embed_dim=8,
        depths=[1],
        num_heads=[2],
        window_size=4,
        mlp_ratio=1.0,
        upscale=2,
    )
    save(folder, Swin2SRForImageSuperResolution(config), Swin2SRImageProcessorPil(size_divisor=4))


def dpt(folder: Path) -> None:
    from transformers import DPTConfig, DPTForDepthEstimation, DPTImageProcessorPil

    config = DPTConfig(
        **{**TEXT, "num_hidden_layers": 4},
        **IMAGE,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8,
        is_hybrid=False,
    )
    save(folder, DPTForDepthEstimation(config), DPTImageProcessorPil(size=SIDE))


def resnet(folder: Path) -> None:
    from transformers import ConvNextImageProcessorPil, ResNetConfig, ResNetModel

    model = ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]))
    save(folder, model, ConvNextImageProcessorPil(size={"shortest_edge": 384}))
