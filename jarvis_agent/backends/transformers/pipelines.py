"""The table of what transformers does here: for each task, the ways to do it. A new task is a row.

TASK_WAYS["visual-question-answering"]      # ViLT and BLIP first, then chat models that see
"""

from __future__ import annotations

from jarvis_agent.backends.transformers import audio as audio
from jarvis_agent.backends.transformers import batches as batches
from jarvis_agent.backends.transformers import documents as documents
from jarvis_agent.backends.transformers import keypoints as keypoints
from jarvis_agent.backends.transformers import segmentation as masks
from jarvis_agent.backends.transformers import multimodal as multimodal
from jarvis_agent.backends.transformers import tables as tables
from jarvis_agent.backends.transformers import text as text
from jarvis_agent.backends.transformers import video as video
from jarvis_agent.backends.transformers import vision as vision
from jarvis_agent.backends.transformers import zero_shot as zero_shot
from jarvis_agent.backends.transformers.loading import PipelineSpec

_ENCODER_DECODER = frozenset({"vision-encoder-decoder"})
_LAYOUT = frozenset({"layoutlm"})
_LAYOUT_3 = frozenset({"layoutlmv3"})
_BARK = frozenset({"bark"})
_SPEECHT5 = frozenset({"speecht5"})
_SAM = frozenset({"sam", "sam_hq"})
_VITPOSE = frozenset({"vitpose"})
_GROUNDING_DINO = frozenset({"grounding-dino", "mm-grounding-dino"})
_VIDEO_BY_FRAMES = frozenset({"videomae", "timesformer", "vivit"})
_MUSIC = frozenset({"musicgen", "musicgen_melody"})
_FLAMINGO = frozenset({"audioflamingo3", "musicflamingo"})
_PAGES = frozenset({"colpali", "colqwen2", "colmodernvbert"})

_TOKENS = ("tokenizer",)
_PIXELS = ("image_processor",)
_SOUND = ("feature_extractor",)

PIPELINES: dict[str, tuple[PipelineSpec, ...]] = {
    "text-classification": (
        PipelineSpec(
            "AutoModelForSequenceClassification",
            _TOKENS,
            text.classify,
            "text-classification",
            batch=batches.classify_texts,
        ),
    ),
    "token-classification": (
        PipelineSpec("AutoModelForTokenClassification", _TOKENS, text.name_entities, "token-classification"),
    ),
    "question-answering": (PipelineSpec("AutoModelForQuestionAnswering", _TOKENS, text.answer_from_context),),
    "table-question-answering": (
        PipelineSpec(
            "AutoModelForTableQuestionAnswering",
            _TOKENS,
            tables.point,
            "table-question-answering",
            exact=True,
        ),
        PipelineSpec("AutoModelForSeq2SeqLM", _TOKENS, tables.tell),
    ),
    "fill-mask": (PipelineSpec("AutoModelForMaskedLM", _TOKENS, text.fill_mask, "fill-mask"),),
    "zero-shot-classification": (
        PipelineSpec(
            "AutoModelForSequenceClassification", _TOKENS, text.classify_zero_shot, "zero-shot-classification"
        ),
    ),
    "translation": (PipelineSpec("AutoModelForSeq2SeqLM", _TOKENS, text.translate),),
    "summarization": (PipelineSpec("AutoModelForSeq2SeqLM", _TOKENS, text.summarize),),
    "text-generation": (
        PipelineSpec("AutoModelForCausalLM", _TOKENS, text.write),
        PipelineSpec("AutoModelForSeq2SeqLM", _TOKENS, text.write),
    ),
    "feature-extraction": (PipelineSpec("AutoModel", _TOKENS, text.embed, batch=batches.embed_texts),),
    "image-classification": (
        PipelineSpec(
            "AutoModelForImageClassification",
            _PIXELS,
            vision.classify,
            "image-classification",
            batch=batches.classify_images,
        ),
    ),
    "object-detection": (
        PipelineSpec("AutoModelForObjectDetection", _PIXELS, vision.detect, "object-detection", exact=True),
    ),
    "image-segmentation": (
        PipelineSpec("AutoModelForUniversalSegmentation", _PIXELS, vision.segment, "image-segmentation", exact=True),
        PipelineSpec("AutoModelForSemanticSegmentation", _PIXELS, vision.segment, "image-segmentation", exact=True),
        PipelineSpec("AutoModelForInstanceSegmentation", _PIXELS, vision.segment, "image-segmentation", exact=True),
        PipelineSpec("AutoModelForImageSegmentation", _PIXELS, vision.segment, "image-segmentation", exact=True),
    ),
    "depth-estimation": (
        PipelineSpec("AutoModelForDepthEstimation", _PIXELS, vision.estimate_depth, "depth-estimation", exact=True),
    ),
    "zero-shot-image-classification": (
        PipelineSpec(
            "AutoModelForZeroShotImageClassification",
            (*_PIXELS, *_TOKENS),
            zero_shot.classify,
            "zero-shot-image-classification",
            exact=True,
        ),
    ),
    "zero-shot-object-detection": (
        PipelineSpec(
            "AutoModelForZeroShotObjectDetection",
            ("processor",),
            zero_shot.detect_by_phrases,
            only=_GROUNDING_DINO,
            exact=True,
        ),
        PipelineSpec("AutoModelForZeroShotObjectDetection", ("processor",), zero_shot.detect, exact=True),
    ),
    "mask-generation": (
        PipelineSpec("AutoModelForMaskGeneration", _PIXELS, masks.mask_everything, only=_SAM, exact=True),
        PipelineSpec("AutoModelForMaskGeneration", _PIXELS, masks.mask_by_pipeline, "mask-generation", exact=True),
    ),
    "keypoint-detection": (
        PipelineSpec(
            "AutoModelForPoseEstimation",
            _PIXELS,
            keypoints.find_joints,
            only=_VITPOSE,
            prepare=keypoints.detector_of,
            exact=True,
        ),
        PipelineSpec("AutoModelForKeypointDetection", _PIXELS, keypoints.find_points, exact=True),
    ),
    "image-feature-extraction": (PipelineSpec("AutoModel", _PIXELS, vision.embed),),
    "image-to-image": (PipelineSpec("AutoModelForImageToImage", _PIXELS, vision.enlarge, exact=True),),
    "video-classification": (
        PipelineSpec("AutoModelForVideoClassification", _PIXELS, video.classify, only=_VIDEO_BY_FRAMES),
        PipelineSpec("AutoModelForVideoClassification", ("video_processor",), video.classify),
    ),
    "image-to-text": (
        PipelineSpec(
            "AutoModelForImageTextToText",
            (*_PIXELS, *_TOKENS),
            vision.caption_by_decoder,
            only=_ENCODER_DECODER,
        ),
        PipelineSpec("AutoModelForImageTextToText", ("processor",), vision.caption),
    ),
    "automatic-speech-recognition": (
        PipelineSpec(
            "AutoModelForSpeechSeq2Seq",
            (*_SOUND, *_TOKENS),
            audio.transcribe,
            "automatic-speech-recognition",
        ),
        PipelineSpec(
            "AutoModelForCTC", (*_SOUND, *_TOKENS), audio.transcribe_by_frames, "automatic-speech-recognition"
        ),
    ),
    "audio-classification": (
        PipelineSpec("AutoModelForAudioClassification", _SOUND, audio.classify, "audio-classification"),
    ),
    "text-to-speech": (
        PipelineSpec(
            "AutoModelForTextToSpectrogram",
            _TOKENS,
            audio.speak_with_voice,
            only=_SPEECHT5,
            prepare=audio.voice_of,
            exact=True,
        ),
        PipelineSpec(
            "AutoModelForTextToWaveform",
            ("processor", *_TOKENS),
            audio.speak_in_stages,
            "text-to-audio",
            only=_BARK,
            exact=True,
        ),
        PipelineSpec("AutoModelForTextToWaveform", _TOKENS, audio.speak, "text-to-audio", exact=True),
    ),
    "visual-question-answering": (
        PipelineSpec("AutoModelForVisualQuestionAnswering", ("processor",), vision.answer),
        PipelineSpec("AutoModelForImageTextToText", ("processor",), vision.answer_by_chat),
    ),
    "document-question-answering": (
        PipelineSpec(
            "AutoModelForDocumentQuestionAnswering",
            _TOKENS,
            vision.answer_from_page,
            "document-question-answering",
            only=_LAYOUT,
            prepare=vision.page_reader,
        ),
        PipelineSpec(
            "AutoModelForDocumentQuestionAnswering",
            (*_PIXELS, *_TOKENS),
            documents.answer_from_layout,
            only=_LAYOUT_3,
            prepare=vision.page_reader,
        ),
        PipelineSpec(
            "AutoModelForImageTextToText",
            (*_PIXELS, *_TOKENS),
            vision.answer_by_reading,
            only=_ENCODER_DECODER,
        ),
        PipelineSpec("AutoModelForImageTextToText", ("processor",), vision.answer_by_chat),
    ),
    "image-text-to-text": (PipelineSpec("AutoModelForImageTextToText", ("processor",), multimodal.reply_or_continue),),
    "video-text-to-text": (PipelineSpec("AutoModelForImageTextToText", ("processor",), multimodal.reply),),
    "audio-text-to-text": (
        PipelineSpec("AutoModelForMultimodalLM", ("processor",), multimodal.reply),
        PipelineSpec("AutoModelForSeq2SeqLM", ("processor",), multimodal.reply, only=_FLAMINGO),
    ),
    "any-to-any": (PipelineSpec("AutoModelForMultimodalLM", ("processor",), multimodal.reply),),
    "visual-document-retrieval": (
        PipelineSpec("AutoModelForPreTraining", ("processor",), documents.score_pages, only=_PAGES),
        PipelineSpec("AutoModelForZeroShotImageClassification", ("processor",), documents.compare_pages),
    ),
    "text-to-audio": (
        PipelineSpec("AutoModelForTextToWaveform", _TOKENS, audio.compose, only=_MUSIC, exact=True),
        PipelineSpec(
            "AutoModelForTextToWaveform",
            ("processor", *_TOKENS),
            audio.speak_in_stages,
            "text-to-audio",
            only=_BARK,
            exact=True,
        ),
        PipelineSpec("AutoModelForTextToWaveform", _TOKENS, audio.speak, "text-to-audio", exact=True),
    ),
}

_DRAWN_FROM = {
    "depth-control": "depth-estimation",
    "normal-control": "depth-estimation",
    "openpose-control": "keypoint-detection",
    "seg-control": "image-segmentation",
}
PIPELINES.update({name: PIPELINES[source] for name, source in _DRAWN_FROM.items()})
