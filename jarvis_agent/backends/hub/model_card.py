"""What a model says of itself: its card, its tags, its config and the names of its files.

Cards are untrusted: a field of the wrong type counts as absent, and every text is shortened.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from jarvis_agent.core.text import brief_text

WEIGHTS = (".safetensors", ".bin", ".gguf", ".onnx", ".pt", ".pth", ".skops")
"""Suffixes of files that hold weights, the safest first."""

TRAINED_ON = "Trained on"
"""Begins a description with the data sets of a card."""

_NOT_WEIGHTS = {"training_args.bin", "optimizer.bin", "scheduler.bin", "optimizer.pt", "scheduler.pt"}
_READS_TEXT = re.compile(r"ocr(?![a-z])|nougat|donut|texify|handwrit|printed-text|pix2tex|latex")
_DIRECTION = re.compile(r"-([a-z]{2})-([a-z]{2})$")
_MAX_METADATA, _MAX_TEXT, _MAX_PARAGRAPH = 500_000, 50_000, 2_000
"""Characters that are read of a card: metadata (results of benchmarks are long), text, a paragraph of it."""

_HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")

_TASK_OF_ARCHITECTURE: tuple[tuple[str, str], ...] = (
    (r"LayoutLM\w*ForQuestionAnswering", "document-question-answering"),
    (
        "ForVisualQuestionAnswering|ViltForQuestionAnswering|BlipForQuestionAnswering",
        "visual-question-answering",
    ),
    ("ForQuestionAnswering", "question-answering"),
    ("ForSequenceClassification", "text-classification"),
    ("ForTokenClassification", "token-classification"),
    ("ForImageClassification", "image-classification"),
    ("ForVideoClassification", "video-classification"),
    ("ForAudioClassification", "audio-classification"),
    ("ForObjectDetection", "object-detection"),
    ("For(Semantic|Instance|Universal|Image)?Segmentation", "image-segmentation"),
    ("ForDepthEstimation", "depth-estimation"),
    ("ForCTC|ForSpeechSeq2Seq|WhisperForConditionalGeneration", "automatic-speech-recognition"),
    ("ForTextToSpeech|VitsModel", "text-to-speech"),
    (r"VisionEncoderDecoderModel|Blip\w*ForConditionalGeneration", "image-to-text"),
    ("Marian|M2M100|NllbMoe", "translation"),
    (r"(Bart|Pegasus)\w*ForConditionalGeneration", "summarization"),
    ("ForCausalLM|LMHeadModel", "text-generation"),
    ("ShapEImg2ImgPipeline", "image-to-3d"),
    ("ShapEPipeline", "text-to-3d"),
    (r"(VideoToVideo|Vid2Vid)\w*Pipeline", "video-to-video"),
    (r"(ImageToVideo|StableVideoDiffusion|I2V)\w*Pipeline", "image-to-video"),
    (r"(Video|AnimateDiff|Wan|LTX|CogVideoX|Mochi|Latte|Allegro)\w*Pipeline", "text-to-video"),
    (r"(Audio|Music)\w*Pipeline", "text-to-audio"),
    (r"(Pix2Pix|Img2Img|Inpaint|Upscale|SuperResolution)\w*Pipeline", "image-to-image"),
    (r"(DDPM|DDIM|PNDM|Consistency|ScoreSde)\w*Pipeline", "unconditional-image-generation"),
    (r"ControlNet\w*Pipeline", ""),
    ("Pipeline", "text-to-image"),
)
"""Regular expressions and the tasks of classes whose names match; the first match counts."""

_LIBRARY_OF_FILE: tuple[tuple[str, str], ...] = (
    ("model_index.json", "diffusers"),
    ("modules.json", "sentence-transformers"),
    ("config.json", "transformers"),
)
_CONTROL_OF_NAME: tuple[tuple[str, str], ...] = (
    ("canny", "canny"),
    ("depth", "depth"),
    ("hed|softedge|soft-edge", "hed"),
    ("mlsd", "mlsd"),
    ("normal", "normal"),
    ("openpose|pose", "openpose"),
    ("scribble|sketch", "scribble"),
    ("seg(?![a-z])|segmentation", "seg"),
)


def strings(value: Any) -> tuple[str, ...]:
    """A card's field as texts: it may be one text or a list of them."""
    if isinstance(value, str):
        return (value,)
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list | tuple) else ()


def metadata(card: Mapping[str, Any], tags: Sequence[str]) -> dict[str, Any]:
    """The licence and the languages that a card names, as fields of a Candidate; "multilingual": none."""
    licences = (*strings(card.get("license")), *_after("license:", tags))
    named = [code.lower() for code in strings(card.get("language"))]
    codes = [] if "multilingual" in named else [code for code in named if re.fullmatch("[a-z]{2}", code)]
    return {
        "license": next((name.lower() for name in licences), None),
        "languages": tuple(dict.fromkeys(codes)),
    }


def describe(card: Mapping[str, Any], tags: Sequence[str]) -> str:
    """One or two sentences from a card's metadata, for a model of which nothing more is known."""
    parts = {
        TRAINED_ON: [*strings(card.get("datasets")), *_after("dataset:", tags)],
        "Based on": strings(card.get("base_model")),
        "Measured by": strings(card.get("metrics")),
        "Languages:": strings(card.get("language")),
        "Tags:": [tag for tag in strings(card.get("tags")) if ":" not in tag],
    }
    sentences = [
        f"{label} {', '.join(list(dict.fromkeys(names))[:4])}." for label, names in parts.items() if names
    ]
    return brief_text(" ".join(sentences))


def first_paragraph(readme: str) -> str:
    """The first paragraph of a card's text that is prose; "" if there is none."""
    from bs4 import BeautifulSoup
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    inline, blocks = MarkdownIt("commonmark"), MarkdownIt("commonmark").enable("table").disable("inline")
    for before, block in pairwise([Token("", "", 0), *blocks.parse(readme[:_MAX_TEXT])]):
        is_paragraph = before.type == "paragraph_open" and before.level == 0
        if is_paragraph or block.type == "html_block":
            text = block.content[:_MAX_PARAGRAPH]
            html = inline.renderInline(text) if is_paragraph else text
            plain = brief_text(BeautifulSoup(html, "html.parser").get_text())
            if len(plain.split()) >= 6:
                return plain
    return ""


def capabilities(task: str, model_id: str, tags: Iterable[str]) -> tuple[str, ...]:
    """What a model is good for within its task: reading text or captions, or a direction of translation."""
    if task == "image-to-text":
        return ("ocr",) if _READS_TEXT.search(" ".join((model_id, *tags)).lower()) else ("caption",)
    if task == "translation" and (direction := _DIRECTION.search(model_id.lower())):
        return (f"from:{direction[1]}", f"to:{direction[2]}")
    return ()


def base_models(card: Mapping[str, Any]) -> dict[str, list[str]]:
    """The models that a model is made for or from, as metadata of a Candidate; {} if its card names none.

    Only ids of the Hub count: a card must not name a directory of this machine.
    """
    named = [name for name in strings(card.get("base_model")) if _HUB_ID.fullmatch(name)]
    return {"base_model": named} if named else {}


def task_of(config: Mapping[str, Any]) -> str | None:
    """The task that the class is for which a config.json or model_index.json names, or None."""
    names = " ".join([*strings(config.get("architectures")), *strings(config.get("_class_name"))])
    tasks = (task for pattern, task in _TASK_OF_ARCHITECTURE if names and re.search(pattern, names))
    return next(tasks, None) or None


def control_task(config: Mapping[str, Any], model_id: str, tags: Iterable[str]) -> str | None:
    """The task of a ControlNet, told by the name of the map that it follows; None for any other model."""
    if not re.search("ControlNet", " ".join(strings(config.get("_class_name")))):
        return None
    text = " ".join((model_id, *tags)).lower()
    controls = (control for pattern, control in _CONTROL_OF_NAME if re.search(pattern, text))
    control = next(controls, None)
    return f"{control}-text-to-image" if control else None


def library_at(folder: Path, files: Iterable[str]) -> str | None:
    """The library that the model in a folder is for, told by its files and its config."""
    names = set(files)
    if any(name.endswith(".skops") for name in names):
        return "sklearn"
    if "_diffusers_version" in read_json(folder / "config.json"):
        return "diffusers"  # a part of a pipeline, such as a ControlNet
    return next((library for file, library in _LIBRARY_OF_FILE if file in names), None)


def weight_bytes(sizes: Mapping[str, int]) -> int:
    """Bytes of a model's weights, from the sizes of its files; copies in other formats are counted once."""
    for suffix in WEIGHTS:
        copies = [
            size
            for name, size in sizes.items()
            if name.endswith(suffix) and Path(name).name not in _NOT_WEIGHTS
        ]
        if copies:
            return sum(copies)
    return 0


def model_at(path: Path) -> dict[str, Any]:
    """What the files at a path say of the model there, as fields of a Candidate."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    root = path.parent if path.is_file() else path
    sizes = {str(file.relative_to(root)): file.stat().st_size for file in files}
    size = weight_bytes(sizes) or None
    library = library_at(root, sizes)
    backend = {"backend": "chat-model"} if path.suffix == ".gguf" else {}
    return {"path": path.resolve(), "local": True, "size": size, "library": library, **backend}


def is_complete(folder: Path) -> bool:
    """Whether every shard that the folder's weight indexes name is there."""
    for index in folder.rglob("*.index.json"):
        shards = set(read_json(index).get("weight_map", {}).values())
        if not all((index.parent / str(shard)).exists() for shard in shards):
            return False
    return True


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object of a file; {} if there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def read_card(path: Path) -> tuple[dict[str, Any], str]:
    """The metadata and the text of a model card (a README.md); ({}, "") if there is none that can be read."""
    import yaml

    try:
        header, text = split_card(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return {}, ""
    try:
        metadata = yaml.safe_load(header[:_MAX_METADATA])
    except (yaml.YAMLError, RecursionError):
        metadata = {}
    return metadata if isinstance(metadata, dict) else {}, text


def split_card(content: str) -> tuple[str, str]:
    """The YAML before a card's text, and the text."""
    content = content.replace("\r\n", "\n")
    header, line, text = f"{content}\n".partition("\n---\n")
    is_header = content.startswith("---\n") and line
    return (header[4:], text.removesuffix("\n")) if is_header else ("", content)


def _after(prefix: str, tags: Iterable[str]) -> list[str]:
    return [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]
