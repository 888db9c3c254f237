"""Load a model with transformers: the right class for the task, on the right device, with all of its weights.

    way = choose_way(TASK_WAYS["image-classification"], config)
    loaded = load_model(way, folder, candidate, settings)     # Loaded: .model .tokenizer .pipe …
    way.run(loaded, call)                                     # raw output

Weights that are missing are an error, and not, as in transformers itself, random numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.devices import pick_dtype, place, weight_bytes
from jarvis_agent.backends.transformers.processors import check_packages, load_processor
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

LOADING = threading.Lock()
"""transformers (and diffusers, which uses it) changes torch's default dtype and initialisers while it builds
a model: one at a time."""

_PARTS = {
    "tokenizer": "AutoTokenizer",
    "image_processor": "AutoImageProcessor",
    "feature_extractor": "AutoFeatureExtractor",
    "processor": "AutoProcessor",
    "video_processor": "AutoVideoProcessor",
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model on its device, and what prepares its inputs.

    `parts` are those that the Way names; `pipe` is the transformers pipeline, if the Way has one; `options`
    are what the user's description of the model says about the writing of text, for `generate`.
    """

    id: str
    model: Any
    parts: Mapping[str, Any]
    extras: Mapping[str, Any] = field(default_factory=dict)
    pipe: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Any:
        return self.parts["tokenizer"]

    @property
    def processor(self) -> Any:
        return self.parts["processor"]

    def inputs(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Tensors of a batch on the model's device, those of floats in its dtype."""
        import torch

        def placed(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            dtype = self.model.dtype if value.is_floating_point() else None
            return value.to(self.model.device, dtype)

        return {name: placed(value) for name, value in batch.items()}


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """One way to do a task with transformers.

    Attributes:
        auto: name of the auto class, which knows the models that fit.
        parts: what prepares the inputs, by the names in _PARTS.
        run: gives the raw output. Called in a worker thread, for one call at a time.
        pipeline: name of the transformers pipeline that `run` uses.
        only: model types to which the way is limited; empty: all that the auto class knows.
        prepare: loads what else is needed; its result is `Loaded.extras`.
        exact: the model is loaded in float32, whatever the settings say: what follows it needs that.
        batch: gives the raw outputs of several calls at once, if that can be done; see ModelPool.
    """

    auto: str
    parts: tuple[str, ...]
    run: Callable[[Loaded, Call], Any]
    pipeline: str | None = None
    only: frozenset[str] = frozenset()
    prepare: Callable[[Candidate, Settings], Mapping[str, Any]] | None = None
    exact: bool = False
    batch: Callable[[Loaded, Sequence[Call]], list[Any]] | None = None


def choose_way(ways: Sequence[PipelineSpec], config: Any) -> PipelineSpec | None:
    """The way that fits a model's config: one for its very architecture if there is, else the first."""
    import transformers

    fitting = []
    for way in ways:
        if way.only and config.model_type not in way.only:
            continue
        names = _class_names(getattr(transformers, way.auto), config)
        if names & set(config.architectures or ()):
            return way
        if names:
            fitting.append(way)
    return fitting[0] if fitting else None


def _class_names(auto: Any, config: Any) -> set[str]:
    """Names of the model classes that an auto class has for a config."""
    if auto.__name__ in getattr(config, "auto_map", {}):
        return {auto.__name__}
    if type(config) not in auto._model_mapping:
        return set()
    found = auto._model_mapping[type(config)]
    return {cls.__name__ for cls in (found if isinstance(found, tuple) else (found,))}


def hush() -> None:
    """Take away transformers' progress bars and, unless somebody set its level, its advice to developers."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    if logging.get_verbosity() == logging.WARNING:
        logging.set_verbosity_error()


def try_out(way: PipelineSpec, config: Any) -> None:
    """Build the model without weights or memory: what its code needs and lacks shows before a download.

    So does what its processor needs, where that is known.

    Raises:
        ImportError: a package that it needs is not installed.
    """
    import torch
    import transformers

    if {"image_processor", "processor"} & set(way.parts):
        check_packages(config)
    with LOADING, torch.device("meta"):
        getattr(transformers, way.auto).from_config(config)


def load_model(way: PipelineSpec, folder: Path, candidate: Candidate, settings: Settings) -> Loaded:
    """Load the model in a directory.

    Raises:
        UnsupportedError: weights that the task needs are missing from it.
        ConfigError: the settings name a device or dtype that is not there.
    """
    import transformers

    device, source = place(settings), str(folder)
    code = {"trust_remote_code": settings.trust_remote_code}
    extras = way.prepare(candidate, settings) if way.prepare else {}  # it may download: not under the lock
    with LOADING:
        parts = {name: _load_part(name, folder, code) for name in way.parts}
        model, report = getattr(transformers, way.auto).from_pretrained(
            source,
            dtype=pick_dtype("float32" if way.exact else settings.dtype, device),
            use_safetensors=None if settings.allow_pickle else True,
            output_loading_info=True,
            **code,
        )
        _check_whole(model, report["missing_keys"], candidate)
        device = place(settings, weight_bytes(model))
        model = model.to(device).eval()
        pipe = (
            transformers.pipeline(way.pipeline, model=model, device=device, **parts) if way.pipeline else None
        )
    if "tokenizer" in parts:
        _limit_length(parts["tokenizer"], model.config)
    return Loaded(candidate.id, model, parts, extras, pipe)


def _load_part(name: str, folder: Path, code: dict[str, Any]) -> Any:
    import transformers

    if name == "processor":
        return load_processor(folder, **code)
    return getattr(transformers, _PARTS[name]).from_pretrained(str(folder), **code)


def _check_whole(model: Any, missing: set[str], candidate: Candidate) -> None:
    """Refuse a model whose head has no weights: transformers would fill it with random numbers."""
    # A model without a head is whole without its pooler: many are trained without, and nothing here uses it.
    spared = "pooler." if model.base_model is model else f"{model.base_model_prefix}."
    if heads := sorted(name for name in missing if not name.startswith(spared)):
        raise UnsupportedError(
            f"{candidate.id} is not trained for {candidate.task}: it lacks the weights {', '.join(heads[:3])}"
        )


def _limit_length(tokenizer: Any, config: Any) -> None:
    """Give a tokenizer that knows no limit the model's own, so that long texts are read in pieces."""
    positions = getattr(config, "max_position_embeddings", None)
    if tokenizer.model_max_length > 1_000_000 and isinstance(positions, int):
        # RoBERTa and its kin number positions from 2.
        tokenizer.model_max_length = positions - 2
