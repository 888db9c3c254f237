"""The tasks that transformers does here: for each, the pipelines to choose from. A new task is a row.

PIPELINES["visual-question-answering"]      # ViLT and BLIP first, then chat models that see images
"""

from __future__ import annotations

from functools import partial

from jarvis_agent.backends.transformers import audio as audio
from jarvis_agent.backends.transformers import multimodal as multimodal
from jarvis_agent.backends.transformers import text as text
from jarvis_agent.backends.transformers import vision as vision
from jarvis_agent.backends.transformers.loading import PipelineSpec as Spec
from jarvis_agent.core.tasks.registry import TASKS

_TOKENS = ("tokenizer",)
_PIXELS = ("image_processor",)
_SOUND = ("feature_extractor",)
_WHOLE = ("processor",)

_Exact = partial(Spec, exact=True)
_SEGMENT = partial(_Exact, parts=_PIXELS, run=vision.segment, pipe="image-segmentation")
_VISION_ENCODER = partial(Spec, "ImageTextToText", (*_PIXELS, *_TOKENS), only=("vision-encoder-decoder",))
_ASK_CHAT = Spec("ImageTextToText", _WHOLE, multimodal.answer_by_chat)
_SPEECH = (
    _Exact("TextToWaveform", (*_WHOLE, *_TOKENS), audio.synthesize, "text-to-audio", only=("bark",)),
    _Exact("TextToWaveform", _TOKENS, audio.synthesize, "text-to-audio"),
)

PIPELINES: dict[str, tuple[Spec, ...]] = {
    "text-classification": (
        Spec(
            "SequenceClassification", _TOKENS, text.classify, "text-classification", batch=text.classify_batch
        ),
    ),
    "token-classification": (
        Spec("TokenClassification", _TOKENS, text.find_entities, "token-classification"),
    ),
    "question-answering": (Spec("QuestionAnswering", _TOKENS, text.answer_from_context),),
    "table-question-answering": (
        _Exact("TableQuestionAnswering", _TOKENS, text.answer_from_cells, "table-question-answering"),
    ),
    "fill-mask": (Spec("MaskedLM", _TOKENS, text.fill_mask, "fill-mask"),),
    "zero-shot-classification": (
        Spec("SequenceClassification", _TOKENS, text.classify_zero_shot, "zero-shot-classification"),
    ),
    "translation": (Spec("Seq2SeqLM", _TOKENS, text.translate),),
    "summarization": (Spec("Seq2SeqLM", _TOKENS, text.summarize),),
    "text-generation": (
        Spec("CausalLM", _TOKENS, text.generate_text),
        Spec("Seq2SeqLM", _TOKENS, text.generate_text),
    ),
    "feature-extraction": (Spec("", _TOKENS, text.embed, batch=text.embed_batch),),
    "image-classification": (
        Spec(
            "ImageClassification",
            _PIXELS,
            vision.classify,
            "image-classification",
            batch=vision.classify_batch,
        ),
    ),
    "object-detection": (_Exact("ObjectDetection", _PIXELS, vision.detect, "object-detection"),),
    "image-segmentation": (
        _SEGMENT("UniversalSegmentation"),
        _SEGMENT("SemanticSegmentation"),
        _SEGMENT("InstanceSegmentation"),
        _SEGMENT("ImageSegmentation"),
    ),
    "depth-estimation": (_Exact("DepthEstimation", _PIXELS, vision.estimate_depth, "depth-estimation"),),
    "zero-shot-image-classification": (
        _Exact(
            "ZeroShotImageClassification",
            (*_PIXELS, *_TOKENS),
            vision.classify_zero_shot,
            "zero-shot-image-classification",
        ),
    ),
    "zero-shot-object-detection": (
        _Exact(
            "ZeroShotObjectDetection",
            (*_PIXELS, *_TOKENS),
            vision.detect_phrases,
            "zero-shot-object-detection",
            only=("grounding-dino", "mm-grounding-dino"),
        ),
        _Exact("ZeroShotObjectDetection", _WHOLE, vision.detect_zero_shot),
    ),
    "mask-generation": (
        _Exact("MaskGeneration", _PIXELS, vision.mask_everything, only=("sam",)),
        _Exact("MaskGeneration", _PIXELS, vision.mask_by_pipeline, "mask-generation"),
    ),
    "keypoint-detection": (
        _Exact(
            "PoseEstimation",
            _PIXELS,
            vision.find_poses,
            only=("vitpose",),
            prepare=vision.load_detector,
        ),
    ),
    "image-feature-extraction": (Spec("", _PIXELS, vision.embed),),
    "image-to-image": (_Exact("ImageToImage", _PIXELS, vision.upscale),),
    "video-classification": (
        Spec(
            "VideoClassification", _PIXELS, vision.classify_video, only=("videomae", "timesformer", "vivit")
        ),
    ),
    "image-to-text": (
        _VISION_ENCODER(multimodal.caption_with_decoder),
        Spec("ImageTextToText", _WHOLE, multimodal.caption),
    ),
    "automatic-speech-recognition": (
        Spec("SpeechSeq2Seq", (*_SOUND, *_TOKENS), audio.transcribe, "automatic-speech-recognition"),
        Spec("CTC", (*_SOUND, *_TOKENS), audio.transcribe, "automatic-speech-recognition"),
    ),
    "audio-classification": (Spec("AudioClassification", _SOUND, audio.classify, "audio-classification"),),
    "text-to-speech": _SPEECH,
    "visual-question-answering": (
        Spec("VisualQuestionAnswering", _WHOLE, multimodal.answer_question),
        _ASK_CHAT,
    ),
    "document-question-answering": (
        Spec(
            "DocumentQuestionAnswering",
            _TOKENS,
            multimodal.answer_from_page,
            "document-question-answering",
            only=("layoutlm",),
            prepare=multimodal.load_ocr,
        ),
        _VISION_ENCODER(multimodal.answer_from_pixels),
        _ASK_CHAT,
    ),
    "image-text-to-text": (Spec("ImageTextToText", _WHOLE, multimodal.reply_or_continue),),
    "video-text-to-text": (Spec("ImageTextToText", _WHOLE, multimodal.reply),),
    "audio-text-to-text": (Spec("MultimodalLM", _WHOLE, multimodal.reply),),
    "any-to-any": (Spec("MultimodalLM", _WHOLE, multimodal.reply),),
    "visual-document-retrieval": (
        Spec("PreTraining", _WHOLE, multimodal.score_pages, only=("colpali", "colqwen2", "colmodernvbert")),
    ),
    "text-to-audio": (
        _Exact("TextToWaveform", _TOKENS, audio.generate_music, only=("musicgen", "musicgen_melody")),
        *_SPEECH,
    ),
}

PIPELINES.update({name: PIPELINES[TASKS[name].models_of] for name in vision.CONTROL_MAPS})
