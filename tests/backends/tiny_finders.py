"""Tiny models that find things in images: by labels, as masks, as joints. Each is saved in a folder."""

from __future__ import annotations

from pathlib import Path

from tiny_parts import IMAGE, SIDE, TEXT, bert_tokenizer, bpe_tokenizer, save


def _owl(kind: str, folder: Path) -> None:
    import transformers

    tokenizer = bpe_tokenizer()
    text = {**TEXT, "vocab_size": len(tokenizer), "max_position_embeddings": 64}
    config = getattr(transformers, f"{kind}Config")(
        text_config=text, vision_config={**TEXT, **IMAGE}, projection_dim=16
    )
    model = getattr(transformers, f"{kind}ForObjectDetection")(config)
    model.class_head.logit_shift.weight.data.zero_()
    model.class_head.logit_shift.bias.data.fill_(3.0)  # sure of everything
    images = getattr(transformers, f"{kind}ImageProcessorPil")(
        size=SIDE, crop_size=SIDE, do_center_crop=False
    )
    save(folder, model, getattr(transformers, f"{kind}Processor")(images, tokenizer))


def owlvit(folder: Path) -> None:
    _owl("OwlViT", folder)


def owlv2(folder: Path) -> None:
    _owl("Owlv2", folder)


def grounding_dino(folder: Path) -> None:
    from transformers import (
        GroundingDinoConfig,
        GroundingDinoForObjectDetection,
        GroundingDinoImageProcessorPil,
        GroundingDinoProcessor,
        ResNetConfig,
    )

    tokenizer = bert_tokenizer()
    backbone = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16], depths=[1, 1, 1], out_features=["stage2", "stage3"]
    )
    config = GroundingDinoConfig(
        backbone=None,
        use_pretrained_backbone=False,
        use_timm_backbone=False,
        backbone_config=backbone,
        text_config={"model_type": "bert", "vocab_size": len(tokenizer), **TEXT},
        num_queries=4,
        num_feature_levels=2,
        d_model=32,
        encoder_layers=1,
        encoder_ffn_dim=16,
        encoder_attention_heads=2,
        decoder_layers=2,
        decoder_ffn_dim=16,
        decoder_attention_heads=2,
        max_text_len=64,
    )
    images = GroundingDinoImageProcessorPil(size={"shortest_edge": 32, "longest_edge": 64})
    save(folder, GroundingDinoForObjectDetection(config), GroundingDinoProcessor(images, tokenizer))


def sam(folder: Path) -> None:
    from transformers import SamConfig, SamImageProcessorPil, SamModel

    heads = {"hidden_size": 16, "num_attention_heads": 2}
    config = SamConfig(
        vision_config={**TEXT, **IMAGE, "image_size": 64, "output_channels": 16, "window_size": 2}
        | {"global_attn_indexes": [0], "mlp_dim": 16, "num_pos_feats": 8},
        prompt_encoder_config={
            "hidden_size": 16,
            "image_size": 64,
            "patch_size": 16,
            "mask_input_channels": 4,
        },
        mask_decoder_config={**heads, "mlp_dim": 16, "num_hidden_layers": 1, "iou_head_hidden_dim": 16},
    )
    model = SamModel(config)
    # It sees one thing, the whole image, and is sure of that.
    decoder = model.mask_decoder
    decoder.iou_prediction_head.proj_out.bias.data.fill_(1.0)
    decoder.upscale_conv2.weight.data.zero_()
    decoder.upscale_conv2.bias.data.fill_(9.0)
    for network in decoder.output_hypernetworks_mlps:
        network.proj_out.weight.data.zero_()
        network.proj_out.bias.data.fill_(9.0)
    images = SamImageProcessorPil(
        size={"longest_edge": 64},
        pad_size={"height": 64, "width": 64},
        mask_size={"longest_edge": 16},
        mask_pad_size={"height": 16, "width": 16},
    )
    save(folder, model, images)


COCO_JOINTS = (
    *("Nose", "L_Eye", "R_Eye", "L_Ear", "R_Ear", "L_Shoulder", "R_Shoulder", "L_Elbow", "R_Elbow"),
    *("L_Wrist", "R_Wrist", "L_Hip", "R_Hip", "L_Knee", "R_Knee", "L_Ankle", "R_Ankle"),
)


def vitpose(folder: Path) -> None:
    from transformers import (
        VitPoseBackboneConfig,
        VitPoseConfig,
        VitPoseForPoseEstimation,
        VitPoseImageProcessorPil,
    )

    backbone = VitPoseBackboneConfig(
        image_size=[32, 32], patch_size=[16, 16], **TEXT, mlp_ratio=1, out_indices=[1]
    )
    config = VitPoseConfig(
        backbone_config=backbone,
        id2label=dict(enumerate(COCO_JOINTS)),
        label2id={name: n for n, name in enumerate(COCO_JOINTS)},
        edges=[[5, 6], [5, 7], [6, 8]],
    )
    model = VitPoseForPoseEstimation(config)
    model.head.conv.bias.data.fill_(0.9)  # sure of every joint
    save(folder, model, VitPoseImageProcessorPil(size=SIDE))


def superpoint(folder: Path) -> None:
    from transformers import SuperPointConfig, SuperPointForKeypointDetection, SuperPointImageProcessorPil

    config = SuperPointConfig(
        encoder_hidden_sizes=[8, 8, 8, 8],
        decoder_hidden_size=8,
        descriptor_decoder_dim=8,
        keypoint_threshold=0.0,
    )
    save(folder, SuperPointForKeypointDetection(config), SuperPointImageProcessorPil(size=SIDE))


def sam2(folder: Path) -> None:
    """Only what tells its kind: its image processor, without which nothing goes on, needs torchvision."""
    from transformers import Sam2Config

    Sam2Config().save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text('{"image_processor_type": "Sam2ImageProcessor"}')
    (folder / "model.safetensors").touch()
