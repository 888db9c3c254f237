"""Load a model with transformers: the right class for the task, on its device, with all of its weights.

Missing weights are an error here; transformers itself initialises them at random. Videos are shown as images,
so models with a video part (Qwen-VL, InternVL, SmolVLM) are loaded without it, and without torchvision.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, labels_of, note_cut_texts
from jarvis_agent.backends.devices import choose_device, pick_dtype, weight_bytes
from jarvis_agent.backends.local import LOADING
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

SENTENCE_TOKENS = 16
"""Room for what stands around a text, such as "This is a photo of"."""

_VIDEO_PART = "video_processor"
_PARTS = {
    "tokenizer": "AutoTokenizer",
    "image_processor": "AutoImageProcessor",
    "feature_extractor": "AutoFeatureExtractor",
    _VIDEO_PART: "AutoVideoProcessor",
}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on its device, and what prepares its inputs.

    `parts` are its tokenizer, image processor and others, as named by the PipelineSpec; `extras` are the
    result of `PipelineSpec.prepare`; `pipe` is the transformers pipeline, if the PipelineSpec names one;
    `options` are generation options from the candidate's metadata.
    """

    id: str
    model: Any
    parts: Mapping[str, Any]
    extras: Mapping[str, Any] = field(default_factory=dict)
    pipe: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Any:
        return self.parts.get("tokenizer") or self.processor.tokenizer

    @property
    def processor(self) -> Any:
        return self.parts["processor"]

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, with those that begin and end it."""
        return len(self.tokenizer(text, verbose=False).input_ids)

    def note_cut(self, call: Call, texts: Iterable[str]) -> None:
        """Note which texts are longer than what the model reads at once, which is their beginning."""
        note_cut_texts(call, texts, self.tokenizer.model_max_length, self.count_tokens)

    def check_length(self, name: str, texts: Iterable[str], limit: int) -> None:
        """Refuse texts with more tokens than there is room for in what the model reads at once."""
        if (longest := max(map(self.count_tokens, texts))) > limit:
            raise UnsupportedError(f"{self.id} reads {name} of at most {limit} tokens, and one has {longest}")

    def labels(self, call: Call) -> list[str]:
        """The labels of a call, each of which fits with the sentence around it; else an UnsupportedError."""
        labels = labels_of(call)
        self.check_length("labels", labels, self.tokenizer.model_max_length - SENTENCE_TOKENS)
        return labels

    def inputs(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Move the tensors of a batch to the model's device, and floats to its dtype."""
        from transformers import BatchFeature

        return dict(BatchFeature(dict(batch)).to(self.model.device, self.model.dtype))

    def forward(self, batch: Mapping[str, Any]) -> Any:
        """Return the model's output for a batch, without gradients."""
        import torch

        with torch.inference_mode():
            return self.model(**self.inputs(batch))


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """One way to do a task with transformers.

    Attributes:
        auto: suffix of the auto class that knows the fitting models: "CausalLM" is AutoModelForCausalLM;
            empty is AutoModel.
        parts: what prepares the inputs: "processor" or names of _PARTS.
        run: returns the raw output of one call, or with `batched` those of several calls. Runs in a worker
            thread, one call or batch at a time.
        pipe: name of the transformers pipeline that `run` uses.
        only: model types that fit; empty means every type the auto class knows.
        prepare: loads further models or data; its result becomes `LoadedModel.extras`.
        exact: load in float32 on every device, because later steps need the precision.
        batched: `run` takes a list of calls, which it computes at once.
    """

    auto: str
    parts: tuple[str, ...]
    run: Callable[[LoadedModel, Any], Any]
    pipe: str | None = None
    only: tuple[str, ...] = ()
    prepare: Callable[[Candidate, Settings], Mapping[str, Any]] | None = None
    exact: bool = False
    batched: bool = False

    @property
    def auto_class(self) -> Any:
        """The auto class of transformers."""
        import transformers

        return getattr(transformers, f"AutoModelFor{self.auto}" if self.auto else "AutoModel")


def by_pipeline(read: Callable[[Call], Any], **options: Any) -> Callable[[LoadedModel, Call], Any]:
    """The `run` of a task by transformers' pipeline; an option is a value or a function as `run` is."""

    def run(loaded: LoadedModel, call: Call) -> Any:
        arguments = {name: of(loaded, call) if callable(of) else of for name, of in options.items()}
        return loaded.pipe(_input(loaded, call, read), **arguments)

    return run


def _input(loaded: LoadedModel, call: Call, read: Callable[[Call], Any]) -> Any:
    value = read(call)
    if isinstance(value, str):
        loaded.note_cut(call, [value])
    return value


def batch_by_pipeline(
    read: Callable[[Call], Any], **options: Any
) -> Callable[[LoadedModel, Sequence[Call]], list[Any]]:
    """As `by_pipeline`, for several calls, whose inputs are computed at once."""

    def run(loaded: LoadedModel, calls: Sequence[Call]) -> list[Any]:
        inputs = [_input(loaded, call, read) for call in calls]
        return list(loaded.pipe(inputs, batch_size=len(calls), **options))

    return run


def choose_pipeline(pipelines: Sequence[PipelineSpec], config: Any) -> PipelineSpec | None:
    """Return the pipeline that fits a model's config: by its exact architecture, else the first."""
    fitting = []
    for pipeline in pipelines:
        if pipeline.only and config.model_type not in pipeline.only:
            continue
        auto, names = pipeline.auto_class, set[str]()
        if auto.__name__ in getattr(config, "auto_map", {}):
            names = {auto.__name__}
        elif type(config) in auto._model_mapping:
            classes = auto._model_mapping[type(config)]
            names = {cls.__name__ for cls in (classes if isinstance(classes, tuple) else (classes,))}
        if names & set(config.architectures or ()):
            return pipeline
        if names:
            fitting.append(pipeline)
    return fitting[0] if fitting else None


def dry_run(pipeline: PipelineSpec, config: Any) -> None:
    """Build the model without weights, so that a missing package raises ImportError before a download."""
    import torch

    if {"image_processor", "processor"} & set(pipeline.parts):
        check_packages(config)
    with LOADING, torch.device("meta"):
        pipeline.auto_class.from_config(config)


def load_model(pipeline: PipelineSpec, folder: Path, candidate: Candidate, settings: Settings) -> LoadedModel:
    """Load the model in a directory. Raises UnsupportedError if weights that the task needs are missing."""
    import transformers

    code = {"trust_remote_code": settings.trust_remote_code}
    # `prepare` may download, so it runs before the lock is taken.
    extras = pipeline.prepare(candidate, settings) if pipeline.prepare else {}
    with LOADING:
        parts = {name: _load_part(name, folder, code) for name in pipeline.parts}
        model, report = pipeline.auto_class.from_pretrained(
            str(folder),
            dtype=pick_dtype(choose_device(settings), exact=pipeline.exact),
            use_safetensors=None if settings.allow_pickle else True,
            output_loading_info=True,
            **code,
        )
        # A headless model may lack its pooler: many are trained without one, and nothing here uses it.
        optional = "pooler." if model.base_model is model else f"{model.base_model_prefix}."
        missing = sorted(name for name in report["missing_keys"] if not name.startswith(optional))
        if missing:
            lacks = f"it lacks the weights {', '.join(missing[:3])}"
            raise UnsupportedError(f"{candidate.id} is not trained for {candidate.task}: {lacks}")
        device = choose_device(settings, weight_bytes(model))
        if (dtype := pick_dtype(device, exact=pipeline.exact)) != model.dtype:  # it is too large for the GPU
            model = model.to(dtype)
        model = model.to(device).eval()
        pipe = pipeline.pipe and transformers.pipeline(pipeline.pipe, model=model, device=device, **parts)
    tokenizer, positions = parts.get("tokenizer"), getattr(model.config, "max_position_embeddings", None)
    if tokenizer and tokenizer.model_max_length > 1_000_000 and isinstance(positions, int):
        # So that long texts are split. RoBERTa models number positions from 2.
        tokenizer.model_max_length = positions - 2
    return LoadedModel(candidate.id, model, parts, extras, pipe)


def load_processor(folder: Path, **options: Any) -> Any:
    """Return the processor in a model's directory; `options` are those of `from_pretrained`."""
    import transformers
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    config = transformers.AutoConfig.from_pretrained(str(folder), **options)
    kind = PROCESSOR_MAPPING.get(type(config), None)
    if kind is None or _VIDEO_PART not in kind.get_attributes():
        return transformers.AutoProcessor.from_pretrained(str(folder), **options)
    if kind.__name__ == "SmolVLMProcessor":  # it needs more packages, and treats images the same way
        kind = transformers.Idefics3Processor

    def check(processor: Any, name: str, part: Any) -> Any:
        """Accept NoVideoProcessor as the video part."""
        if name == _VIDEO_PART:
            return NoVideoProcessor
        return kind.check_argument_for_proper_class(processor, name, part)

    tolerant: Any = type(kind.__name__, (kind,), {"check_argument_for_proper_class": check})
    described, unused = kind.get_processor_dict(str(folder), **options)
    parts = [
        NoVideoProcessor() if name == _VIDEO_PART else _load_part(name, folder, options)
        for name in kind.get_attributes()
    ]
    unused.pop("trust_remote_code", None)
    return tolerant.from_args_and_dict(parts, described, **unused)


def _load_part(name: str, folder: Path, options: dict[str, Any]) -> Any:
    import transformers

    if name == "processor":
        return load_processor(folder, **options)
    if name not in _PARTS:
        raise UnsupportedError(f"its processor has a part that is not supported here: {name}")
    return getattr(transformers, _PARTS[name]).from_pretrained(str(folder), **options)


class NoVideoProcessor(dict[str, Any]):
    """Stand-in for a processor's video part. A dict, because processors are serialised as JSON."""

    model_input_names: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> None:
        """Every video setting is None; private names are left to Python."""
        if name.startswith("_"):
            raise AttributeError(name)

    def __call__(self, *_: Any, **__: Any) -> None:
        """Raise UnsupportedError: no video is processed."""
        raise UnsupportedError(
            "whole videos need torchvision (pip install torchvision); give frames as images"
        )


def check_packages(config: Any) -> None:
    """Raise ImportError if the model's images need torchvision (SAM 2, Llama 4), which is not installed."""
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    prepared_by = IMAGE_PROCESSOR_MAPPING_NAMES.get(config.model_type, {})
    if set(prepared_by) == {"torchvision"} and find_spec("torchvision") is None:
        raise ImportError(f"images for {config.model_type} are prepared with torchvision")
