"""The table of what transformers does here: for each task, the ways to do it. A new task is a row.

TASK_WAYS["visual-question-answering"]      # ViLT and BLIP first, then chat models that see
"""

from __future__ import annotations

from jarvis_agent.backends import transformers_audio as audio
from jarvis_agent.backends import transformers_text as text
from jarvis_agent.backends import transformers_vision as vision
from jarvis_agent.backends.transformers_loading import Way

_ENCODER_DECODER = frozenset({"vision-encoder-decoder"})
_LAYOUT = frozenset({"layoutlm"})
_BARK = frozenset({"bark"})
_SPEECHT5 = frozenset({"speecht5"})

_TOKENS = ("tokenizer",)
_PIXELS = ("image_processor",)
_SOUND = ("feature_extractor",)

TASK_WAYS: dict[str, tuple[Way, ...]] = {
    "text-classification": (
        Way("AutoModelForSequenceClassification", _TOKENS, text.classify, "text-classification"),
    ),
    "token-classification": (
        Way("AutoModelForTokenClassification", _TOKENS, text.name_entities, "token-classification"),
    ),
    "question-answering": (Way("AutoModelForQuestionAnswering", _TOKENS, text.answer_from_context),),
    "zero-shot-classification": (
        Way(
            "AutoModelForSequenceClassification", _TOKENS, text.classify_zero_shot, "zero-shot-classification"
        ),
    ),
    "translation": (Way("AutoModelForSeq2SeqLM", _TOKENS, text.translate),),
    "summarization": (Way("AutoModelForSeq2SeqLM", _TOKENS, text.summarize),),
    "text-generation": (
        Way("AutoModelForCausalLM", _TOKENS, text.write),
        Way("AutoModelForSeq2SeqLM", _TOKENS, text.write),
    ),
    "feature-extraction": (Way("AutoModel", _TOKENS, text.embed),),
    "image-classification": (
        Way("AutoModelForImageClassification", _PIXELS, vision.classify, "image-classification"),
    ),
    "object-detection": (Way("AutoModelForObjectDetection", _PIXELS, vision.detect, "object-detection"),),
    "image-segmentation": (
        Way("AutoModelForUniversalSegmentation", _PIXELS, vision.segment, "image-segmentation"),
        Way("AutoModelForSemanticSegmentation", _PIXELS, vision.segment, "image-segmentation"),
        Way("AutoModelForInstanceSegmentation", _PIXELS, vision.segment, "image-segmentation"),
        Way("AutoModelForImageSegmentation", _PIXELS, vision.segment, "image-segmentation"),
    ),
    "depth-estimation": (
        Way("AutoModelForDepthEstimation", _PIXELS, vision.estimate_depth, "depth-estimation", exact=True),
    ),
    "image-to-text": (
        Way(
            "AutoModelForImageTextToText",
            (*_PIXELS, *_TOKENS),
            vision.caption_by_decoder,
            only=_ENCODER_DECODER,
        ),
        Way("AutoModelForImageTextToText", ("processor",), vision.caption),
    ),
    "automatic-speech-recognition": (
        Way(
            "AutoModelForSpeechSeq2Seq",
            (*_SOUND, *_TOKENS),
            audio.transcribe,
            "automatic-speech-recognition",
        ),
        Way(
            "AutoModelForCTC", (*_SOUND, *_TOKENS), audio.transcribe_by_frames, "automatic-speech-recognition"
        ),
    ),
    "audio-classification": (
        Way("AutoModelForAudioClassification", _SOUND, audio.classify, "audio-classification"),
    ),
    "text-to-speech": (
        Way(
            "AutoModelForTextToSpectrogram",
            _TOKENS,
            audio.speak_with_voice,
            only=_SPEECHT5,
            prepare=audio.voice_of,
            exact=True,
        ),
        Way(
            "AutoModelForTextToWaveform",
            ("processor", *_TOKENS),
            audio.speak,
            "text-to-audio",
            only=_BARK,
            exact=True,
        ),
        Way("AutoModelForTextToWaveform", _TOKENS, audio.speak, "text-to-audio", exact=True),
    ),
    "visual-question-answering": (
        Way("AutoModelForVisualQuestionAnswering", ("processor",), vision.answer),
        Way("AutoModelForImageTextToText", ("processor",), vision.answer_by_chat),
    ),
    "document-question-answering": (
        Way(
            "AutoModelForDocumentQuestionAnswering",
            _TOKENS,
            vision.answer_from_page,
            "document-question-answering",
            only=_LAYOUT,
            prepare=vision.page_reader,
        ),
        Way(
            "AutoModelForImageTextToText",
            (*_PIXELS, *_TOKENS),
            vision.answer_by_reading,
            only=_ENCODER_DECODER,
        ),
        Way("AutoModelForImageTextToText", ("processor",), vision.answer_by_chat),
    ),
}
