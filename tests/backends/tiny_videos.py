"""Tiny models with random weights that make videos, each saved in a folder as a repository of the Hub is.

wan(folder)      # a folder with model_index.json, transformer/, vae/, …
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_diffusers import UNET, WIDTH, clip_pixels, clip_vision, stable_parts, t5_text
from tiny_parts import bpe_tokenizer


def text_to_video(folder: Path) -> None:
    from diffusers import TextToVideoSDPipeline, UNet3DConditionModel

    moving = UNet3DConditionModel(
        **{
            **UNET,
            "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
            "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
        }
    )
    TextToVideoSDPipeline(**{**stable_parts(), "unet": moving}).save_pretrained(folder)


def motion_adapter(folder: Path) -> None:
    """A motion adapter alone, as the Hub has them; its base is another model."""
    _adapter().save_pretrained(folder)


def _adapter() -> Any:
    from diffusers import MotionAdapter

    return MotionAdapter(
        block_out_channels=(8, 16),
        motion_layers_per_block=1,
        motion_norm_num_groups=4,
        motion_num_attention_heads=4,
        use_motion_mid_block=False,
    )


def animatediff(folder: Path) -> None:
    from diffusers import AnimateDiffPipeline

    AnimateDiffPipeline(
        **stable_parts(), motion_adapter=_adapter(), feature_extractor=None, image_encoder=None
    ).save_pretrained(folder)


def stable_video(folder: Path) -> None:
    from diffusers import (
        AutoencoderKLTemporalDecoder,
        EulerDiscreteScheduler,
        StableVideoDiffusionPipeline,
        UNetSpatioTemporalConditionModel,
    )

    StableVideoDiffusionPipeline(
        vae=AutoencoderKLTemporalDecoder(
            block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2, latent_channels=4
        ),
        image_encoder=clip_vision(224),
        unet=UNetSpatioTemporalConditionModel(
            block_out_channels=(32, 64),
            layers_per_block=1,
            sample_size=32,
            in_channels=8,
            out_channels=4,
            down_block_types=("CrossAttnDownBlockSpatioTemporal", "DownBlockSpatioTemporal"),
            up_block_types=("UpBlockSpatioTemporal", "CrossAttnUpBlockSpatioTemporal"),
            cross_attention_dim=WIDTH,
            num_attention_heads=8,
            projection_class_embeddings_input_dim=96,
            addition_time_embed_dim=32,
        ),
        scheduler=EulerDiscreteScheduler(
            beta_schedule="scaled_linear", timestep_type="continuous", prediction_type="v_prediction"
        ),
        feature_extractor=clip_pixels(),
    ).save_pretrained(folder)


def wan(folder: Path) -> None:
    from diffusers import (
        AutoencoderKLWan,
        FlowMatchEulerDiscreteScheduler,
        WanPipeline,
        WanTransformer3DModel,
    )

    WanPipeline(
        vae=AutoencoderKLWan(
            base_dim=3,
            z_dim=16,
            dim_mult=[1, 1, 1, 1],
            num_res_blocks=1,
            temperal_downsample=[False, True, True],
        ),
        transformer=WanTransformer3DModel(
            patch_size=(1, 2, 2),
            num_attention_heads=2,
            attention_head_dim=12,
            text_dim=WIDTH,
            freq_dim=64,
            ffn_dim=32,
            num_layers=1,
            cross_attn_norm=True,
            qk_norm="rms_norm_across_heads",
            rope_max_seq_len=32,
        ),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder=t5_text(),
        tokenizer=bpe_tokenizer(),
    ).save_pretrained(folder)


def ltx(folder: Path) -> None:
    from diffusers import (
        AutoencoderKLLTXVideo,
        FlowMatchEulerDiscreteScheduler,
        LTXPipeline,
        LTXVideoTransformer3DModel,
    )

    LTXPipeline(
        vae=AutoencoderKLLTXVideo(
            latent_channels=8,
            block_out_channels=(8, 8, 8, 8),
            decoder_block_out_channels=(8, 8, 8, 8),
            layers_per_block=(1, 1, 1, 1, 1),
            decoder_layers_per_block=(1, 1, 1, 1, 1),
            spatio_temporal_scaling=(True, True, False, False),
            decoder_spatio_temporal_scaling=(True, True, False, False),
            decoder_inject_noise=(False,) * 5,
            upsample_residual=(False,) * 4,
            upsample_factor=(1,) * 4,
            timestep_conditioning=False,
            patch_size=1,
            patch_size_t=1,
            encoder_causal=True,
            decoder_causal=False,
        ),
        transformer=LTXVideoTransformer3DModel(
            in_channels=8,
            out_channels=8,
            num_attention_heads=4,
            attention_head_dim=8,
            cross_attention_dim=32,
            num_layers=1,
            caption_channels=WIDTH,
        ),
        scheduler=FlowMatchEulerDiscreteScheduler(),
        text_encoder=t5_text(),
        tokenizer=bpe_tokenizer(),
    ).save_pretrained(folder)
