"""What a task type is: its name, what it takes, what it makes.

TaskSpec(
    name="object-detection",
    category="vision",
    description="Find the objects in an image, each with a box, a label and a score.",
    inputs=(Arg("image", "image"),),
    outputs=("image", "data", "text"),
)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Modality = Literal["text", "image", "audio", "video", "table", "3d", "data", "file"]
"""A kind of resource. `data` is JSON without a file, `file` anything else."""

ArgKind = Modality | Literal["any"]
"""The kind of an argument or output; `any` is one of a tool that is not of the Hub: every kind fits."""

Category = Literal["text", "vision", "audio", "multimodal", "tabular", "control", "media", "tool"]

MEDIA: frozenset[str] = frozenset({"image", "audio", "video", "table", "3d", "file"})
"""The kinds that are files."""

ARG_ALIASES: dict[str, str] = {
    "question": "text",
    "query": "text",
    "prompt": "text",
    "input": "text",
    "inputs": "text",
    "sentence": "text",
    "img": "image",
    "picture": "image",
    "image_path": "image",
    "image_url": "image",
    "speech": "audio",
    "sound": "audio",
    "audio_path": "audio",
    "video_path": "video",
    "candidate_labels": "labels",
    "classes": "labels",
    "source_language": "src_lang",
    "source_lang": "src_lang",
    "target_language": "tgt_lang",
    "target_lang": "tgt_lang",
    "language": "tgt_lang",
    "document": "image",
    "csv": "table",
    "dataframe": "table",
    "documents": "sentences",
    "images": "image",
    "steps": "horizon",
    "prediction_length": "horizon",
    "num_frames": "count",
    "bbox": "box",
    "texts": "sentences",
    "mask_image": "mask",
    "control_image": "image",
    "control": "image",
}
"""Other spellings of argument names → the one canon. An alias is used only where the task has the
canonical argument and lacks one of the alias's own name."""


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of a task.

    `many` says that the task takes a list as a whole; elsewhere a list fans out into separate tasks.
    """

    name: str
    kind: ArgKind
    required: bool = True
    many: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A type of task.

    Attributes:
        name: the Hub's name of the task (`pipeline_tag`), or one of ours where the Hub has none.
        category: the group under which `jarvis tasks` lists it.
        description: one sentence for the planner.
        inputs: its arguments, the principal ones first.
        outputs: the kinds that it makes, the principal one first; "any" means that it may make others too.
            `<resource>-N` in an argument of kind K stands for the resource of kind K that task N made.
            "text" is last where the text merely sums up data ("2 cats and 1 dog").
        aliases: other names, those of the paper among them.
        needs_model: False for algorithms, which have no models to choose from.
        models_of: name of the task type whose models do this one too: depth-control is done by those of
            depth-estimation. Empty: it has models of its own.
        listing: what the Hub is asked for its models, where that is not `pipeline_tag=name`: ControlNets
            are known by a tag and by their names.
    """

    name: str
    category: Category
    description: str
    inputs: tuple[Arg, ...]
    outputs: tuple[ArgKind, ...]
    aliases: tuple[str, ...] = field(default=())
    needs_model: bool = True
    models_of: str = ""
    listing: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        # What is made for a task is kept by its spec, and a list cannot be a key.
        for name in ("inputs", "outputs", "aliases"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "listing", tuple(map(tuple, self.listing)))

    def arg(self, name: str) -> Arg | None:
        """The argument of that name, or None."""
        return next((arg for arg in self.inputs if arg.name == name), None)

    @property
    def is_open(self) -> bool:
        """Whether it takes arguments of any name: a tool that does not say which it has."""
        return self.category == "tool" and not self.inputs

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the arguments without which the task cannot run."""
        return tuple(arg.name for arg in self.inputs if arg.required)

    def makes(self, kind: str) -> bool:
        """Whether the task's result can stand in an argument of this kind."""
        return kind in self.outputs or "any" in self.outputs


# Arguments that several task types share, each in the one spelling that plans use.
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
TABLE = Arg("table", "table", description="path or URL of a CSV file, its first line the column names")
TGT_LANG = Arg("tgt_lang", "text", required=False, description='language to translate into, for example "fr"')
