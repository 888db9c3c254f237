"""The one table of task types: `TASKS`, by name, and the way to add to it.

    register_task(TaskSpec(name="sketch-cleanup", category="vision", …))
    find_task("ASR")  →  TASKS["automatic-speech-recognition"]

Names are the Hub's. The paper's short names (image-cls, VQA, ASR, …) are aliases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from jarvis_agent.errors import ConfigError
from jarvis_agent.tools.spec import Arg, TaskSpec

TEXT = Arg("text", "text")
IMAGE = Arg("image", "image")
AUDIO = Arg("audio", "audio")
VIDEO = Arg("video", "video")
QUESTION = Arg("text", "text", description="the question")
PROMPT = Arg("text", "text", description="the prompt")
LABELS = Arg("labels", "data", many=True, description="list of candidate labels")
SENTENCES = Arg("sentences", "text", many=True, description="list of texts to compare with")
MASK = Arg("mask", "image", required=False, description="white where the image may change")
SRC_LANG = Arg("src_lang", "text", required=False, description='language of the text, for example "en"')
TGT_LANG = Arg("tgt_lang", "text", required=False, description='language to translate into, for example "fr"')


def _control(name: str, what: str, *aliases: str) -> tuple[TaskSpec, TaskSpec]:
    """The pair of tasks for one kind of control map: image → map, and map + text → image."""
    return (
        TaskSpec(
            f"{name}-control",
            "control",
            f"Make the {what} of an image.",
            (IMAGE,),
            ("image",),
            (
                f"control-{name}",
                f"{name}-detection",
                f"image-to-{name}",
                *(f"{a}-control" for a in aliases),
                *(f"{a}-detection" for a in aliases),
            ),
            needs_model=name not in {"canny", "hed", "mlsd", "scribble"},
        ),
        TaskSpec(
            f"{name}-text-to-image",
            "control",
            f"Make a new image from a text and the {what} of another image.",
            (PROMPT, Arg("image", "image", description=f"the {what}")),
            ("image",),
            (f"{name}-to-image", *(f"{a}-text-to-image" for a in aliases)),
        ),
    )


_BUILTIN: tuple[TaskSpec, ...] = (
    # text
    TaskSpec(
        "text-classification",
        "text",
        "Give a text a label, such as its sentiment or topic.",
        (TEXT,),
        ("data", "text"),
        ("text-cls", "sentiment-analysis"),
    ),
    TaskSpec(
        "token-classification",
        "text",
        "Find the names of people, places and organisations in a text.",
        (TEXT,),
        ("data", "text"),
        ("token-cls", "ner", "named-entity-recognition"),
    ),
    TaskSpec(
        "question-answering",
        "text",
        "Answer a question from a given context text.",
        (QUESTION, Arg("context", "text", description="the text that holds the answer")),
        ("text", "data"),
        ("qa",),
    ),
    TaskSpec(
        "zero-shot-classification",
        "text",
        "Sort a text into one of the labels given with it.",
        (TEXT, LABELS),
        ("data", "text"),
    ),
    TaskSpec(
        "translation",
        "text",
        "Translate a text into another language.",
        (TEXT, SRC_LANG, TGT_LANG),
        ("text",),
    ),
    TaskSpec(
        "summarization", "text", "Shorten a text to its main points.", (TEXT,), ("text",), ("summarize",)
    ),
    TaskSpec(
        "text-generation",
        "text",
        "Write or continue a text, or answer freely.",
        (PROMPT,),
        ("text",),
        ("text2text-generation", "conversational", "chat"),
    ),
    TaskSpec(
        "feature-extraction",
        "text",
        "Turn a text into a vector of numbers (an embedding).",
        (TEXT,),
        ("data",),
        ("embedding", "text-embedding"),
    ),
    TaskSpec(
        "sentence-similarity",
        "text",
        "Score how close in meaning a text is to other texts.",
        (TEXT, SENTENCES),
        ("data", "text"),
    ),
    TaskSpec(
        "text-ranking",
        "text",
        "Order texts by how well they answer a query.",
        (TEXT, SENTENCES),
        ("data", "text"),
        ("reranking",),
    ),
    # vision
    TaskSpec(
        "image-classification",
        "vision",
        "Say what the main thing in an image is, with scores.",
        (IMAGE,),
        ("data", "text"),
        ("image-cls",),
    ),
    TaskSpec(
        "object-detection",
        "vision",
        "Find and count the objects in an image, each with a box and a score.",
        (IMAGE,),
        ("image", "data", "text"),
        ("object-det",),
    ),
    TaskSpec(
        "image-segmentation",
        "vision",
        "Split an image into the regions of its things, each with a mask.",
        (IMAGE,),
        ("image", "data", "text"),
        ("segmentation",),
    ),
    TaskSpec(
        "depth-estimation", "vision", "Estimate how far away each point of an image is.", (IMAGE,), ("image",)
    ),
    TaskSpec("text-to-image", "vision", "Make an image from a text.", (PROMPT,), ("image",)),
    TaskSpec(
        "image-to-text",
        "vision",
        "Describe an image in a sentence, or read the text printed in it.",
        (IMAGE, Arg("text", "text", required=False, description='"read" to read the text in the image')),
        ("text",),
        ("image-captioning", "captioning", "ocr"),
    ),
    TaskSpec(
        "image-to-image",
        "vision",
        "Change an image, following a text if one is given.",
        (IMAGE, Arg("text", "text", required=False, description="what to change"), MASK),
        ("image",),
    ),
    TaskSpec("text-to-video", "vision", "Make a video from a text.", (PROMPT,), ("video",)),
    TaskSpec(
        "video-classification",
        "vision",
        "Say what happens in a video, with scores.",
        (VIDEO,),
        ("data", "text"),
        ("video-cls",),
    ),
    # audio
    TaskSpec(
        "text-to-speech", "audio", "Speak a text aloud, as a sound file.", (TEXT,), ("audio",), ("tts",)
    ),
    TaskSpec(
        "automatic-speech-recognition",
        "audio",
        "Write down what is said in a recording.",
        (AUDIO,),
        ("text", "data"),
        ("asr", "speech-to-text", "speech-recognition", "transcription"),
    ),
    TaskSpec(
        "audio-to-audio",
        "audio",
        "Clean a recording: take away noise, or separate its voices.",
        (AUDIO,),
        ("audio",),
        ("speech-enhancement", "denoise"),
    ),
    TaskSpec(
        "audio-classification",
        "audio",
        "Say what kind of sound a recording holds, with scores.",
        (AUDIO,),
        ("data", "text"),
        ("audio-cls",),
    ),
    TaskSpec(
        "voice-activity-detection",
        "audio",
        "Find the times at which somebody speaks in a recording.",
        (AUDIO,),
        ("data", "text"),
        ("vad",),
    ),
    # multimodal
    TaskSpec(
        "visual-question-answering",
        "multimodal",
        "Answer a question about an image.",
        (QUESTION, IMAGE),
        ("text", "data"),
        ("vqa",),
    ),
    TaskSpec(
        "document-question-answering",
        "multimodal",
        "Answer a question about the image of a document.",
        (QUESTION, IMAGE),
        ("text", "data"),
        ("dqa", "docvqa"),
    ),
    # media tools
    TaskSpec(
        "combine-video-audio",
        "media",
        "Put a sound under a video, such as speech that dubs it.",
        (VIDEO, AUDIO),
        ("video",),
        ("dub-video", "video-dubbing"),
        needs_model=False,
    ),
    # control maps (the paper's controlnet-sd)
    *_control("canny", "canny edge image"),
    *_control("hed", "soft edge (HED) image"),
    *_control("mlsd", "straight line (MLSD) image"),
    *_control("scribble", "scribble drawing"),
    *_control("depth", "depth map"),
    *_control("normal", "normal map"),
    *_control("openpose", "body pose", "pose"),
    *_control("seg", "segmentation map", "segmentation"),
)

TASKS: dict[str, TaskSpec] = {}
"""Every known task type, by its name."""

_ALIASES: dict[str, str] = {}


def canonical(name: str) -> str:
    """The spelling that names are compared in: lower case, words joined by dashes."""
    return re.sub(r"[\s_/]+", "-", name.strip().lower())


def register_task(spec: TaskSpec) -> TaskSpec:
    """Add a task type, or replace the one of the same name. Returns the spec.

    Raises:
        ValueError: the name is empty, or an alias belongs to another task already.
    """
    if not spec.name.strip():
        raise ValueError("a task needs a name")
    for alias in spec.aliases:
        owner = _ALIASES.get(canonical(alias))
        if owner not in (None, spec.name):
            raise ValueError(f"the alias {alias!r} of task {spec.name!r} belongs to {owner!r}")
    TASKS[spec.name] = spec
    _ALIASES.update({canonical(alias): spec.name for alias in spec.aliases})
    return spec


def find_task(name: str, extra: Mapping[str, TaskSpec] | None = None) -> TaskSpec | None:
    """The task of that name or alias, in any spelling; None if there is none.

    Args:
        name: "object-detection", "Object Detection", "object_detection", "object-det", …
        extra: further task types (such as the user's own tools), which come first.
    """
    extra = extra or {}
    if name in extra:
        return extra[name]
    key = canonical(name)
    for table in (extra, TASKS):
        found = next((spec for known, spec in table.items() if canonical(known) == key), None)
        if found:
            return found
    owner = _ALIASES.get(key)
    return TASKS.get(owner) if owner else None


def known_task(name: str) -> TaskSpec:
    """The task of that name or alias, in any spelling.

    Raises:
        ConfigError: there is none; the message names those that are close to it.
    """
    spec = find_task(name)
    if spec is None:
        close = ", ".join(closest_tasks(name))
        hint = f"close to it: {close}" if close else "`jarvis tasks` lists them all"
        raise ConfigError(f"there is no task {name!r}; {hint}")
    return spec


def closest_tasks(name: str, count: int = 3) -> list[str]:
    """Names of tasks that are spelt nearly like `name`, the nearest first."""
    return get_close_matches(canonical(name), TASKS, n=count, cutoff=0.5)


for _spec in _BUILTIN:
    register_task(_spec)
