"""What prepares the inputs of models for several kinds of media: transformers' processors, less their videos.

    processor = load_processor(folder)

A model is shown the frames of a video as images, which every model that takes several images understands. So
the part of a processor that takes videos is never needed, and models that have one (Qwen-VL, InternVL,
SmolVLM, …) run without torchvision, which that part is made with.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jarvis_agent.core.errors import UnsupportedError

_KIN = {"SmolVLMProcessor": "Idefics3Processor"}
"""Processors that can be made only with further packages → the one that does the same with images."""

_MISTRAL = ("voxtral", "voxtral_realtime")
"""Model types whose chats are written by Mistral's own package."""

_PARTS = {
    "image_processor": "AutoImageProcessor",
    "feature_extractor": "AutoFeatureExtractor",
    "tokenizer": "AutoTokenizer",
}
_VIDEOS = "video_processor"


class NoVideos(dict[str, Any]):
    """Stands where a processor wants its part for videos. A dict, as a processor writes itself as JSON."""

    model_input_names: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> None:
        """Every setting of videos is None; names with underscores are Python's own."""
        if name.startswith("_"):
            raise AttributeError(name)

    def __call__(self, *_: Any, **__: Any) -> None:
        """No video gets through.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "whole videos need torchvision (pip install torchvision); give frames as images"
        )


def load_processor(folder: Path, **options: Any) -> Any:
    """The processor in a model's directory; `options` are those of `from_pretrained`.

    Raises:
        ImportError: a package that it needs is not installed.
    """
    import transformers
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    config = transformers.AutoConfig.from_pretrained(str(folder), **options)
    kind = PROCESSOR_MAPPING.get(type(config), None)
    if kind is None or _VIDEOS not in kind.get_attributes():
        return transformers.AutoProcessor.from_pretrained(str(folder), **options)
    kind = _without_videos(getattr(transformers, _KIN.get(kind.__name__, kind.__name__)))
    described, unused = kind.get_processor_dict(str(folder), **options)
    parts = [_part(name, folder, options) for name in kind.get_attributes()]
    unused.pop("trust_remote_code", None)
    return kind.from_args_and_dict(parts, described, **unused)


def check_packages(config: Any) -> None:
    """Refuse a model whose inputs need a package that is not installed, before the model is downloaded.

    Raises:
        ImportError: torchvision alone prepares its images (SAM 2, Llama 4), or its tokenizer needs a package.
    """
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

    prepared_by = IMAGE_PROCESSOR_MAPPING_NAMES.get(config.model_type, {})
    if set(prepared_by) == {"torchvision"} and find_spec("torchvision") is None:
        raise ImportError(f"images for {config.model_type} are prepared with torchvision")
    if config.model_type in _MISTRAL and find_spec("mistral_common") is None:
        raise ImportError("mistral-common (pip install mistral-common)")


def _part(name: str, folder: Path, options: dict[str, Any]) -> Any:
    import transformers

    if name == _VIDEOS:
        return NoVideos()
    if name not in _PARTS:
        raise UnsupportedError(f"its processor has a {name}, which is not known here")
    return getattr(transformers, _PARTS[name]).from_pretrained(str(folder), **options)


def _without_videos(kind: type[Any]) -> type[Any]:
    """The class of a processor, as one that takes NoVideos for its part for videos."""

    def check(self: Any, name: str, part: Any) -> Any:
        return NoVideos if name == _VIDEOS else kind.check_argument_for_proper_class(self, name, part)

    return type(kind.__name__, (kind,), {"check_argument_for_proper_class": check})
