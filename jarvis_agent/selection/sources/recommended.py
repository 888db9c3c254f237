"""A model of the Hub to begin with, for each task type that has models there.

    recommended(TASKS["object-detection"])      # Recommended("hustvl/yolos-tiny", "apache-2.0")
    recommended(TASKS["crop-image"])            # None: it needs no model

They are well known, and loaded without code of their own. Some are larger than what is downloaded by default
(JARVIS_MAX_DOWNLOAD), and some may have no safetensors. The selector does not prefer them: they stand in
docs/tasks.md, and in the message that says that nothing here can do a task.
"""

from __future__ import annotations

from dataclasses import dataclass

from jarvis_agent.core.tasks.spec import TaskSpec


@dataclass(frozen=True, slots=True)
class Recommended:
    """A model's id on the Hub, and its licence as the Hub spells it."""

    id: str
    license: str


_APACHE, _MIT, _BSD = "apache-2.0", "mit", "bsd-3-clause"
_NOT_COMMERCIAL = "cc-by-nc-4.0"
_RAIL = "openrail"

RECOMMENDED: dict[str, Recommended] = {
    task: Recommended(model, terms)
    for task, model, terms in (
        ("text-classification", "distilbert/distilbert-base-uncased-finetuned-sst-2-english", _APACHE),
        ("token-classification", "dslim/bert-base-NER", _MIT),
        ("question-answering", "distilbert/distilbert-base-cased-distilled-squad", _APACHE),
        ("table-question-answering", "google/tapas-base-finetuned-wtq", _APACHE),
        ("fill-mask", "distilbert/distilbert-base-uncased", _APACHE),
        ("zero-shot-classification", "facebook/bart-large-mnli", _MIT),
        ("translation", "google-t5/t5-small", _APACHE),
        ("summarization", "sshleifer/distilbart-cnn-12-6", _APACHE),
        ("text-generation", "HuggingFaceTB/SmolLM2-135M-Instruct", _APACHE),
        ("feature-extraction", "sentence-transformers/all-MiniLM-L6-v2", _APACHE),
        ("sentence-similarity", "sentence-transformers/all-MiniLM-L6-v2", _APACHE),
        ("text-ranking", "cross-encoder/ms-marco-MiniLM-L6-v2", _APACHE),
        ("image-classification", "google/vit-base-patch16-224", _APACHE),
        ("zero-shot-image-classification", "google/siglip-base-patch16-224", _APACHE),
        ("object-detection", "hustvl/yolos-tiny", _APACHE),
        ("zero-shot-object-detection", "google/owlvit-base-patch32", _APACHE),
        ("keypoint-detection", "usyd-community/vitpose-base-simple", _APACHE),
        ("image-segmentation", "openmmlab/upernet-convnext-tiny", _MIT),
        ("mask-generation", "facebook/sam-vit-base", _APACHE),
        ("depth-estimation", "depth-anything/Depth-Anything-V2-Small-hf", _APACHE),
        ("image-feature-extraction", "facebook/dinov2-small", _APACHE),
        ("unconditional-image-generation", "google/ddpm-cat-256", _APACHE),
        ("text-to-image", "stabilityai/sd-turbo", "other"),
        ("image-to-text", "Salesforce/blip-image-captioning-base", _BSD),
        ("image-to-image", "caidas/swin2SR-classical-sr-x2-64", _APACHE),
        ("text-to-video", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", _APACHE),
        ("image-to-video", "ali-vilab/i2vgen-xl", _MIT),
        ("video-to-video", "guoyww/animatediff-motion-adapter-v1-5-2", _APACHE),
        ("video-classification", "google/vivit-b-16x2-kinetics400", _MIT),
        ("text-to-3d", "openai/shap-e", _MIT),
        ("image-to-3d", "openai/shap-e-img2img", _MIT),
        ("text-to-speech", "suno/bark-small", _MIT),
        ("text-to-audio", "facebook/musicgen-small", _NOT_COMMERCIAL),
        ("automatic-speech-recognition", "openai/whisper-tiny", _APACHE),
        ("audio-classification", "MIT/ast-finetuned-audioset-10-10-0.4593", _BSD),
        ("visual-question-answering", "dandelin/vilt-b32-finetuned-vqa", _APACHE),
        ("document-question-answering", "naver-clova-ix/donut-base-finetuned-docvqa", _MIT),
        ("visual-document-retrieval", "vidore/colqwen2-v1.0-hf", _APACHE),
        ("image-text-to-text", "HuggingFaceTB/SmolVLM-256M-Instruct", _APACHE),
        ("video-text-to-text", "HuggingFaceTB/SmolVLM2-256M-Video-Instruct", _APACHE),
        ("audio-text-to-text", "mistralai/Voxtral-Mini-3B-2507", _APACHE),
        ("any-to-any", "Qwen/Qwen2.5-Omni-3B", "other"),
        ("image-text-to-image", "timbrooks/instruct-pix2pix", _MIT),
        ("image-text-to-video", "ali-vilab/i2vgen-xl", _MIT),
        ("time-series-forecasting", "amazon/chronos-bolt-small", _APACHE),
        ("canny-text-to-image", "lllyasviel/sd-controlnet-canny", _RAIL),
        ("hed-text-to-image", "lllyasviel/sd-controlnet-hed", _RAIL),
        ("mlsd-text-to-image", "lllyasviel/sd-controlnet-mlsd", _RAIL),
        ("scribble-text-to-image", "lllyasviel/sd-controlnet-scribble", _RAIL),
        ("depth-text-to-image", "lllyasviel/sd-controlnet-depth", _RAIL),
        ("normal-text-to-image", "lllyasviel/sd-controlnet-normal", _RAIL),
        ("openpose-text-to-image", "lllyasviel/sd-controlnet-openpose", _RAIL),
        ("seg-text-to-image", "lllyasviel/sd-controlnet-seg", _RAIL),
    )
}
"""By task. What is missing here has no model that is small, free and loaded as it is, or needs none."""


def recommended(spec: TaskSpec) -> Recommended | None:
    """The model to begin with for a task, or for the task whose models do it; None if there is none."""
    return RECOMMENDED.get(spec.models_of or spec.name)
