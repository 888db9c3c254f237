"""Tiny diffusion models with random weights, each saved in a folder as a repository of the Hub is.

stable_diffusion(folder)      # a folder with model_index.json, unet/, vae/, …; 1 MB
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_parts import bpe_tokenizer

WIDTH = 32
"""Width of what a text encoder gives."""


def clip_tokenizer() -> Any:
    from transformers import CLIPTokenizer

    tokens = [*(f"{letter}{end}" for letter in "abcdefghijklmnopqrstuvwxyz" for end in ("", "</w>"))]
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={token: n for n, token in enumerate(tokens)}, merges=[], model_max_length=16)


def clip_text(*, projected: bool = False) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    config = CLIPTextConfig(
        vocab_size=64,
        hidden_size=WIDTH,
        intermediate_size=37,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=16,
        projection_dim=WIDTH,
        bos_token_id=52,
        eos_token_id=53,
        pad_token_id=53,
    )
    return (CLIPTextModelWithProjection if projected else CLIPTextModel)(config).eval()


def clip_vision(side: int) -> Any:
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    return CLIPVisionModelWithProjection(
        CLIPVisionConfig(
            hidden_size=WIDTH,
            intermediate_size=37,
            num_hidden_layers=1,
            num_attention_heads=4,
            projection_dim=WIDTH,
            image_size=side,
            patch_size=side // 2,
        )
    ).eval()


def clip_pixels() -> Any:
    from transformers import CLIPImageProcessorPil

    return CLIPImageProcessorPil(crop_size={"height": 32, "width": 32}, size={"shortest_edge": 32})


def t5_text() -> Any:
    from transformers import T5Config, T5EncoderModel

    return T5EncoderModel(
        T5Config(vocab_size=320, d_model=WIDTH, d_kv=8, d_ff=37, num_layers=1, num_heads=4)
    ).eval()


def vae() -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        sample_size=64,
    )


UNET = {
    "block_out_channels": (8, 16),
    "norm_num_groups": 4,
    "layers_per_block": 1,
    "sample_size": 32,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "cross_attention_dim": WIDTH,
    "attention_head_dim": 4,
}


UNET_CONTROL = {name: value for name, value in UNET.items() if name != "sample_size"}
UNCHECKED = {"safety_checker": None, "feature_extractor": None}


def unet(**changed: Any) -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **{**UNET, "out_channels": 4, **changed}
    )


def scheduler() -> Any:
    from diffusers import DDIMScheduler

    return DDIMScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        clip_sample=False,
        set_alpha_to_one=False,
        steps_offset=1,
    )


def stable_parts(**changed: Any) -> dict[str, Any]:
    return {
        "vae": vae(),
        "text_encoder": clip_text(),
        "tokenizer": clip_tokenizer(),
        "unet": unet(**changed),
        "scheduler": scheduler(),
    }


def stable_diffusion(folder: Path) -> None:
    from diffusers import StableDiffusionPipeline

    StableDiffusionPipeline(**stable_parts(), **UNCHECKED).save_pretrained(folder)


def inpainting(folder: Path) -> None:
    from diffusers import StableDiffusionInpaintPipeline

    StableDiffusionInpaintPipeline(**stable_parts(in_channels=9), **UNCHECKED).save_pretrained(folder)


def instruct_pix2pix(folder: Path) -> None:
    from diffusers import StableDiffusionInstructPix2PixPipeline

    StableDiffusionInstructPix2PixPipeline(**stable_parts(in_channels=8), **UNCHECKED).save_pretrained(folder)


def upscaler(folder: Path) -> None:
    """Makes images twice as large: as much as its VAE does."""
    from diffusers import DDPMScheduler, StableDiffusionUpscalePipeline

    StableDiffusionUpscalePipeline(
        **stable_parts(in_channels=7, num_class_embeds=100),
        low_res_scheduler=DDPMScheduler(),
        max_noise_level=99,
    ).save_pretrained(folder)


def control_part(folder: Path) -> None:
    """A ControlNet alone, as the Hub has them; its base is another model."""
    from diffusers import ControlNetModel

    ControlNetModel(conditioning_embedding_out_channels=(4, 8), **UNET_CONTROL).save_pretrained(folder)


def controlnet(folder: Path) -> None:
    """A whole pipeline with a ControlNet in it."""
    from diffusers import ControlNetModel, StableDiffusionControlNetPipeline

    control = ControlNetModel(conditioning_embedding_out_channels=(4, 8), **UNET_CONTROL)
    StableDiffusionControlNetPipeline(**stable_parts(), controlnet=control, **UNCHECKED).save_pretrained(
        folder
    )


def ddpm(folder: Path) -> None:
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    drawn = UNet2DModel(
        sample_size=16,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    )
    DDPMPipeline(drawn, DDPMScheduler()).save_pretrained(folder)


def _shape(**changed: Any) -> dict[str, Any]:
    import torch
    from diffusers import HeunDiscreteScheduler, PriorTransformer
    from diffusers.pipelines.shap_e import ShapERenderer

    prior = PriorTransformer(
        num_attention_heads=2,
        attention_head_dim=16,
        embedding_dim=32,
        num_embeddings=32,
        embedding_proj_dim=WIDTH,
        time_embed_dim=64,
        num_layers=1,
        clip_embed_dim=64,
        additional_embeddings=0,
        time_embed_act_fn="gelu",
        norm_in_type="layer",
        encoder_hid_proj_type=None,
        added_emb_type=None,
        **changed,
    )
    renderer = ShapERenderer(
        param_shapes=((8, 93), (8, 8), (8, 8), (8, 8)),
        d_latent=32,
        d_hidden=8,
        n_output=12,
        background=(0.1, 0.1, 0.1),
    )
    with torch.no_grad():
        renderer.mlp.mlp[-1].weight[0].mul_(50)  # so that the shape has a surface somewhere
        # The tables of marching cubes are weights too: a triangle for each cube with one corner inside.
        renderer.mesh_decoder.masks[1, 0] = True
        renderer.mesh_decoder.cases[1, 0] = torch.tensor([0, 4, 8])
    schedule = HeunDiscreteScheduler(
        beta_schedule="exp",
        num_train_timesteps=1024,
        prediction_type="sample",
        use_karras_sigmas=True,
        clip_sample=True,
    )
    return {"prior": prior, "shap_e_renderer": renderer, "scheduler": schedule}


def shap_e(folder: Path) -> None:
    from diffusers import ShapEPipeline

    ShapEPipeline(
        text_encoder=clip_text(projected=True), tokenizer=clip_tokenizer(), **_shape()
    ).save_pretrained(folder)


def shap_e_from_image(folder: Path) -> None:
    from diffusers import ShapEImg2ImgPipeline
    from transformers import CLIPVisionConfig, CLIPVisionModel

    seen = CLIPVisionModel(
        CLIPVisionConfig(
            hidden_size=WIDTH,
            intermediate_size=37,
            num_hidden_layers=1,
            num_attention_heads=4,
            image_size=32,
            patch_size=16,
        )
    )
    ShapEImg2ImgPipeline(
        image_encoder=seen.eval(), image_processor=clip_pixels(), **_shape(embedding_proj_norm_type="layer")
    ).save_pretrained(folder)


def stable_audio(folder: Path) -> None:
    from diffusers import (
        AutoencoderOobleck,
        CosineDPMSolverMultistepScheduler,
        StableAudioDiTModel,
        StableAudioPipeline,
    )
    from diffusers.pipelines.stable_audio import StableAudioProjectionModel

    StableAudioPipeline(
        vae=AutoencoderOobleck(
            encoder_hidden_size=6,
            downsampling_ratios=[1, 2],
            decoder_channels=3,
            decoder_input_channels=3,
            audio_channels=2,
            channel_multiples=[2, 4],
            sampling_rate=400,
        ),
        text_encoder=t5_text(),
        projection_model=StableAudioProjectionModel(
            text_encoder_dim=WIDTH, conditioning_dim=4, min_value=0, max_value=32
        ),
        tokenizer=bpe_tokenizer(),
        transformer=StableAudioDiTModel(
            sample_size=400,
            in_channels=3,
            num_layers=1,
            attention_head_dim=4,
            num_key_value_attention_heads=2,
            out_channels=3,
            cross_attention_dim=4,
            time_proj_dim=8,
            global_states_input_dim=8,
            cross_attention_input_dim=4,
            num_attention_heads=2,
        ),
        scheduler=CosineDPMSolverMultistepScheduler(
            solver_order=2, prediction_type="v_prediction", sigma_data=1.0
        ),
    ).save_pretrained(folder)


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
