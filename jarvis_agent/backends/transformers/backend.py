"""Run models of the Hub with transformers.

`PIPELINES` has for each task the pipelines to choose from. A new task is a row.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from jarvis_agent.backends.base import Call, Expert, options_of, text_of
from jarvis_agent.backends.devices import is_out_of_memory
from jarvis_agent.backends.hub.snapshot import marker_folder, model_folder
from jarvis_agent.backends.local import FileBackend, LoadedExpert
from jarvis_agent.backends.transformers import multimodal, text, vision
from jarvis_agent.backends.transformers.loading import (
    LoadedModel,
    batch_by_pipeline,
    by_pipeline,
    choose_pipeline,
    dry_run,
    load_model,
)
from jarvis_agent.backends.transformers.loading import PipelineSpec as Spec
from jarvis_agent.backends.transformers.vision import CONTROL_MAPS
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Resource

_TOKENS = ("tokenizer",)
_PIXELS = ("image_processor",)
_SOUND = ("feature_extractor",)
_WHOLE = ("processor",)

_Exact = partial(Spec, exact=True)
_SEGMENT = partial(_Exact, parts=_PIXELS, run=by_pipeline(Call.image), pipe="image-segmentation")
_VISION_ENCODER = partial(Spec, "ImageTextToText", (*_PIXELS, *_TOKENS), only=("vision-encoder-decoder",))
_ASK_CHAT = Spec(
    "ImageTextToText", _WHOLE, partial(multimodal.reply, max_new_tokens=multimodal.ANSWER_TOKENS)
)
_SPEECH = (
    _Exact("TextToWaveform", (*_WHOLE, *_TOKENS), multimodal.synthesize, "text-to-audio", only=("bark",)),
    _Exact("TextToWaveform", _TOKENS, multimodal.synthesize, "text-to-audio"),
)

PIPELINES: dict[str, Sequence[Spec]] = {
    "text-classification": [
        Spec("SequenceClassification", _TOKENS,
             batch_by_pipeline(text_of, truncation=True, top_k=text.MAX_LABELS), "text-classification",
             batched=True)],
    "token-classification": [
        Spec("TokenClassification", _TOKENS, text.find_entities, "token-classification")],
    "question-answering": [Spec("QuestionAnswering", _TOKENS, text.answer_from_context)],
    "table-question-answering": [
        _Exact("TableQuestionAnswering", _TOKENS, text.answer_from_cells, "table-question-answering")],
    "fill-mask": [Spec("MaskedLM", _TOKENS, text.fill_mask, "fill-mask")],
    "zero-shot-classification": [
        Spec("SequenceClassification", _TOKENS, by_pipeline(text_of, candidate_labels=LoadedModel.labels),
             "zero-shot-classification")],
    "translation": [Spec("Seq2SeqLM", _TOKENS, text.translate)],
    "summarization": [Spec("Seq2SeqLM", _TOKENS, text.summarize)],
    "text-generation": [
        Spec("CausalLM", _TOKENS, text.generate_text),
        Spec("Seq2SeqLM", _TOKENS, text.generate_text)],
    "image-classification": [
        Spec("ImageClassification", _PIXELS, batch_by_pipeline(Call.image, top_k=text.MAX_LABELS),
             "image-classification", batched=True)],
    "object-detection": [vision.DETECTION],
    "image-segmentation": [
        _SEGMENT("UniversalSegmentation"),
        _SEGMENT("SemanticSegmentation"),
        _SEGMENT("InstanceSegmentation"),
        _SEGMENT("ImageSegmentation")],
    "depth-estimation": [_Exact("DepthEstimation", _PIXELS, vision.estimate_depth, "depth-estimation")],
    "zero-shot-image-classification": [
        _Exact("ZeroShotImageClassification", (*_PIXELS, *_TOKENS),
               by_pipeline(Call.image, candidate_labels=LoadedModel.labels),
               "zero-shot-image-classification")],
    "zero-shot-object-detection": [
        _Exact("ZeroShotObjectDetection", (*_PIXELS, *_TOKENS), vision.detect_phrases,
               "zero-shot-object-detection", only=("grounding-dino", "mm-grounding-dino")),
        _Exact("ZeroShotObjectDetection", _WHOLE, vision.detect_zero_shot)],
    "mask-generation": [
        _Exact("MaskGeneration", _PIXELS, vision.mask_everything, "mask-generation", only=("sam",)),
        _Exact("MaskGeneration", _PIXELS, vision.mask_by_pipeline, "mask-generation")],
    "keypoint-detection": [
        _Exact("PoseEstimation", _PIXELS, vision.find_poses, only=("vitpose",),
               prepare=vision.load_detector)],
    "image-feature-extraction": [Spec("", _PIXELS, vision.embed)],
    "image-to-image": [_Exact("ImageToImage", _PIXELS, vision.upscale)],
    "video-classification": [
        Spec("VideoClassification", _PIXELS, vision.classify_video,
             only=("videomae", "timesformer", "vivit"))],
    "image-to-text": [
        _VISION_ENCODER(multimodal.caption_with_decoder),
        Spec("ImageTextToText", _WHOLE, multimodal.caption)],
    "automatic-speech-recognition": [
        Spec("SpeechSeq2Seq", (*_SOUND, *_TOKENS), multimodal.transcribe, "automatic-speech-recognition"),
        Spec("CTC", (*_SOUND, *_TOKENS), multimodal.transcribe, "automatic-speech-recognition")],
    "audio-classification": [
        Spec("AudioClassification", _SOUND, multimodal.classify_sound, "audio-classification")],
    "text-to-speech": _SPEECH,
    "visual-question-answering": [
        Spec("VisualQuestionAnswering", _WHOLE, multimodal.answer_question),
        _ASK_CHAT],
    "document-question-answering": [
        Spec("DocumentQuestionAnswering", _TOKENS, multimodal.answer_from_page, "document-question-answering",
             only=("layoutlm",), prepare=multimodal.load_ocr),
        _VISION_ENCODER(multimodal.answer_from_pixels),
        _ASK_CHAT],
    "image-text-to-text": [Spec("ImageTextToText", _WHOLE, multimodal.reply_or_continue)],
    "video-text-to-text": [Spec("ImageTextToText", _WHOLE, multimodal.reply)],
    "audio-text-to-text": [Spec("MultimodalLM", _WHOLE, multimodal.reply)],
    "any-to-any": [Spec("MultimodalLM", _WHOLE, multimodal.reply)],
    "visual-document-retrieval": [
        Spec("PreTraining", _WHOLE, multimodal.score_pages, only=("colpali", "colqwen2", "colmodernvbert"))],
    "text-to-audio": [
        _Exact("TextToWaveform", _TOKENS, multimodal.generate_music, "text-to-audio",
               only=("musicgen", "musicgen_melody")),
        *_SPEECH],
}  # fmt: skip

MIN_SIDE, MAX_RATIO = 32, 20
"""Images within these limits, in pixels, are read by all models: none scales a side to less than a patch."""

PIPELINES.update({name: PIPELINES[TASKS[name].models_of] for name in CONTROL_MAPS})


def run_call(pipeline: Spec, loaded: LoadedModel, call: Call) -> Any:
    """The raw output of a call, or the control map that is drawn from the output of another task."""
    from transformers import GenerationConfig

    # Other arguments of `generate` could run code.
    known = vars(GenerationConfig())
    options = options_of(call, known, "there are those of transformers' GenerationConfig")
    loaded = replace(loaded, options=options)
    try:
        raw = pipeline.run(loaded, [call])[0] if pipeline.batched else pipeline.run(loaded, call)
    except (ValueError, LookupError, RuntimeError) as error:
        has_image = isinstance(call.inputs.get("image"), Resource)
        size = call.image().size if has_image else (MIN_SIDE, MIN_SIDE)
        if is_out_of_memory(error) or (min(size) >= MIN_SIDE and max(size) <= MAX_RATIO * min(size)):
            raise
        raise UnsupportedError(
            f"{loaded.id} cannot read an image of {size[0]} x {size[1]} pixels; sides of at least {MIN_SIDE} "
            f"pixels work, of which none is more than {MAX_RATIO} times as long as the other",
            detail=error,
        ) from error
    draw = CONTROL_MAPS.get(call.spec.name)
    return draw(raw, call.image().size) if draw else raw


class TransformersBackend(FileBackend):
    """Runs the tasks of PIPELINES."""

    name = "transformers"
    needs = ("torch", "transformers")
    library = "transformers"
    libraries = (None, "transformers")
    tasks = PIPELINES

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """A task and the control maps drawn from it share a model."""
        return (self.name, spec.models_of or spec.name, candidate.id, candidate.revision or "")

    def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        from transformers import AutoConfig

        remote = settings.trust_remote_code
        folder = (model_folder if remote else marker_folder)(candidate, settings)
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=remote)
        pipeline = choose_pipeline(PIPELINES[spec.name], config)
        if pipeline is None:
            raise UnsupportedError(
                f"{candidate.id} is a {config.model_type} model, which cannot do {spec.name}"
            )
        if not remote and not candidate.local and candidate.path is None:
            dry_run(pipeline, config)
        folder = model_folder(candidate, settings)
        loaded = load_model(pipeline, folder, candidate, settings)
        return LoadedExpert(
            loaded,
            partial(run_call, pipeline),
            [loaded.model, *(getattr(extra, "model", extra) for extra in loaded.extras.values())],
            batch=partial(pipeline.run, loaded) if pipeline.batched else None,
        )
