"""TaskSpec: the name, inputs and outputs of a task type."""

from dataclasses import dataclass, field
from typing import Literal

Modality = Literal["text", "image", "audio", "video", "table", "3d", "data", "file"]
"""A kind of resource. `data` is JSON without a file, `file` anything else."""

ArgKind = Modality | Literal["any", "video or audio"]
"""The kind of an argument or output; `any` is one of a tool that is not of the Hub: every kind fits."""

Category = Literal["text", "vision", "audio", "multimodal", "tabular", "control", "media", "tool"]

MEDIA: frozenset[str] = frozenset({"image", "audio", "video", "video or audio", "table", "3d", "file"})
"""The kinds that are files."""


def split_kind(kind: str) -> list[str]:
    """The kinds of files that a kind of argument stands for, the main one first."""
    return kind.split(" or ")


_ALIASES = {
    "text": "question query prompt input inputs sentence source_sentence",
    "image": "img picture image_path image_url document images control_image control",
    "audio": "speech sound audio_path",
    "video": "video_path",
    "labels": "candidate_labels classes",
    "src_lang": "source_language source_lang",
    "tgt_lang": "target_language target_lang language",
    "table": "csv dataframe",
    "sentences": "documents texts",
    "horizon": "steps prediction_length",
    "count": "num_frames",
    "box": "bbox part",
    "greyscale": "grayscale",
    "rotate": "angle degrees rotation",
    "flip": "mirror",
    "mask": "mask_image",
}
ARG_ALIASES = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()}
"""Other spellings of argument names. An alias is used only if the task has no argument of that name."""


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of a task; with `many` the task takes a list, else a list fans out into several tasks.

    `type` is what a tool's schema tells language models to send; a task reads other forms too. `is_text` says
    that an argument of the kind "any" takes a text: the name of a text file then stands for its text.
    """

    name: str
    kind: ArgKind
    required: bool = True
    many: bool = False
    description: str = ""
    type: Literal["string", "integer", "number", "boolean"] = "string"
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A type of task: what the planner may call, with which arguments, and what comes out.

        TaskSpec(
            name="object-detection",
            category="vision",
            description="Find the objects in an image, each with a box, a label and a score.",
            inputs=(Arg("image", "image"),),
            outputs=("image", "data", "text"),
        )

    Attributes:
        name: the Hub's name (`pipeline_tag`), or our own if the Hub has none.
        category: the group under which `jarvis tasks` lists it.
        description: one sentence for the planner.
        inputs: its arguments, the main ones first.
        outputs: the kinds that it makes, the main one first. "text" is last if it summarises data ("2 cats
            and 1 dog"). "any", that others are possible too, is for tools: `register_task` refuses it.
        aliases: other names, including those of the paper.
        needs_model: False for algorithms.
        models_of: name of the task type whose models are used; empty: its own.
        listing: query parameters of the Hub's model list, if not `pipeline_tag=name`.
        several: whether it makes several results of its main kind, such as frames. A task that takes one of
            them then runs once for each.
        read_only: whether it makes new files and alters nothing else; of a tool, as far as its server says.
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
    several: bool = False
    read_only: bool = True

    def __post_init__(self) -> None:
        # Specs are dict keys, so that lists become tuples.
        for name in ("inputs", "outputs", "aliases"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "listing", tuple(map(tuple, self.listing)))

    def arg(self, name: str) -> Arg | None:
        """The argument of that name, or None."""
        return next((arg for arg in self.inputs if arg.name == name), None)

    @property
    def is_open(self) -> bool:
        """Whether it is a tool without an argument schema, which takes arguments of any name."""
        return self.category == "tool" and not self.inputs

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the required arguments."""
        return tuple(arg.name for arg in self.inputs if arg.required)

    def makes(self, kind: str) -> bool:
        """Whether it may make a resource of this kind, or of one of several."""
        return not {*split_kind(kind), "any"}.isdisjoint(self.outputs)
