"""Tables of task types. Each has two lines: `name | inputs -> outputs | aliases`, and its description.

    task_rows("vision", '''
    image-to-image | image, change?, mask? -> image
        Change an image, following a text if one is given.
    ''')

`?` marks an optional argument. `change` is an argument `text` with the description "what to change".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jarvis_agent.core.tasks.spec import Arg, Category, TaskSpec

_ARGS = {
    "text": Arg("text", "text"),
    "question": Arg("text", "text", description="the question"),
    "context": Arg("context", "text", description="the text that holds the answer"),
    "table": Arg("table", "table", description="path or URL of a CSV file, its first line the column names"),
    "masked-text": Arg("text", "text", description="a text with one [MASK]"),
    "labels": Arg("labels", "data", many=True, description="list of candidate labels"),
    "src_lang": Arg("src_lang", "text", description='language of the text, for example "en"'),
    "tgt_lang": Arg("tgt_lang", "text", description='language to translate into, for example "fr"'),
    "prompt": Arg("text", "text", description="the prompt"),
    "sentences": Arg("sentences", "text", many=True, description="list of texts to compare with"),
    "image": Arg("image", "image"),
    "read": Arg("text", "text", description='"read" to read the text in the image'),
    "change": Arg("text", "text", description="what to change"),
    "mask": Arg("mask", "image", description="white where the image may change"),
    "action": Arg("text", "text", description="what happens in the video"),
    "video": Arg("video", "video"),
    "sound": Arg("text", "text", description="what is to be heard"),
    "audio": Arg("audio", "audio"),
    "pages": Arg("image", "image", many=True, description="list of paths or URLs of page images"),
    "horizon": Arg("horizon", "data", description="how many rows ahead; 12 if not said"),
    "count": Arg("count", "data", description="how many; 8 if not said"),
    "width": Arg("width", "data", description="pixels"),
    "height": Arg("height", "data", description="pixels"),
    "box": Arg("box", "data", description='[xmin, ymin, xmax, ymax] in pixels, a detection, or "left half"'),
    "file": Arg("file", "file", description="a file of any kind, or a text that a task made"),
    "greyscale": Arg("greyscale", "data", description="1 to take the colours away"),
    "rotate": Arg("rotate", "data", description="degrees clockwise, such as 90"),
    "flip": Arg("flip", "text", description='"horizontal" (left and right) or "vertical" (upside down)'),
    "format": Arg("format", "text", description='"png", "jpeg", "webp", "gif", "bmp" or "tiff"'),
}
"""The arguments of signatures, by their name there; plans use `Arg.name`."""


def task_rows(category: Category, table: str, **common: Any) -> tuple[TaskSpec, ...]:
    """The task types of a table; `common` are fields of all."""
    lines = table.strip().splitlines()
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return tuple(_spec(category, head, description.strip(), **common) for head, description in pairs)


def _spec(category: Category, head: str, description: str, **common: Any) -> TaskSpec:
    name, signature, aliases = (part.strip() for part in f"{head} |".split("|")[:3])
    inputs, outputs = (_split(side) for side in signature.split("->"))
    args = (replace(_ARGS[key.removesuffix("?")], required=not key.endswith("?")) for key in inputs)
    kinds: Any = outputs  # checked by `register_task`
    return TaskSpec(name, category, description, tuple(args), kinds, tuple(_split(aliases)), **common)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
