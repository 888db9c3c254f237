"""The data types of a run: frozen, and equal after a round trip through JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter, model_validator

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.notes import AnyNote, Note
from jarvis_agent.core.tasks.spec import Modality, split_kind
from jarvis_agent.core.text import replace_surrogates_in

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")

StrPath = Annotated[Path, PlainSerializer(str, return_type=str)]
"""A path that is dumped as a string."""


class Frozen(BaseModel):
    """Base of the data types: immutable, strict about field names; all text can be encoded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _replace_surrogates(cls, value: Any) -> Any:
        # A lone surrogate in a model's output could be neither stored nor sent.
        try:
            return replace_surrogates_in(value)
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error


Preference = Literal["cheapest", "fastest", "best", "local"]
PREFERENCES: tuple[Preference, ...] = get_args(Preference)
"""What the models of a run should be first: cheap, fast, good, or on this machine alone."""


class Task(Frozen):
    """One task of a plan, in the paper's four slots.

    `dep` has the ids of the tasks that it depends on, `[-1]` or `[]` for none. In `args`, a reference stays
    the string `<resource>-N`. `purpose` is what the model must be made for ("chest X-rays"), if the planner
    wrote it; JSON has it only then.
    """

    task: str
    id: int
    dep: list[int] = Field(default_factory=lambda: [-1])
    args: dict[str, Any] = Field(default_factory=dict)
    purpose: str = Field("", exclude_if=lambda value: not value)

    @property
    def deps(self) -> tuple[int, ...]:
        """The ids in `dep` without the paper's -1."""
        return tuple(i for i in self.dep if i >= 0)

    @property
    def title(self) -> Note:
        """What notes call it."""
        return Note("task {number} ({task})", number=self.id, task=self.task)


class Resource(Frozen):
    """An input or output of a task: a file, a text, or data. Notebooks display it.

    Attributes:
        path: absolute path of its file, if it has one.
        mime: media type of the file, detected from its content.
        text: its text, if it is a text or can be converted to one.
        data: plain JSON, such as the boxes of a detection.
        name: a short label.
        error: why its file cannot be read.
    """

    kind: Modality
    path: StrPath | None = None
    mime: str | None = None
    text: str | None = None
    data: Any = None
    name: str = ""
    error: AnyNote = Field("", exclude_if=lambda value: not value)

    @property
    def file_name(self) -> str:
        """What errors call its file: the name that the user knows, else that on the disk."""
        return self.name or (self.path.name if self.path else "")

    def to_pil(self) -> Image:
        """The image, upright, with 8 bits: in RGBA if parts of it are transparent, else in RGB.

        Raises:
            BadInputError: this is not an image, or its file cannot be read as one.
        """
        from jarvis_agent.core.images import open_image

        if self.path is None:
            raise BadInputError(f"an image is needed, and this is a {self.kind} without a file")
        return open_image(self.path)[0]

    def to_content_block(self) -> dict[str, Any]:
        """This resource as a LangChain content block: text, image, audio, video or file."""
        if self.path is None:
            return {"type": "text", "text": self.as_text()}
        block = self.kind if self.kind in ("image", "audio", "video") else "file"
        content = base64.b64encode(self.path.read_bytes()).decode()
        return {"type": block, "base64": content, "mime_type": self.mime or "application/octet-stream"}

    def as_text(self) -> str:
        """Its text, else its data as JSON, else its path."""
        if self.text is not None:
            return self.text
        if self.data is not None:
            return json.dumps(self.data, ensure_ascii=False)
        return str(self.path or "")

    def _repr_html_(self) -> str:
        from jarvis_agent.core.display import to_html

        return to_html(self.path, self.kind, mime=self.mime, label=self.name, text=self.as_text())


class Candidate(Frozen):
    """A model for a task.

    Attributes:
        id: its id on the Hub, or its registered name.
        source: name of its ModelSource ("hub", "cache", "starter", "registered", …).
        backend: name of the backend that runs it; None: the first one that can.
        library: the Hub's `library_name` ("transformers", "diffusers", …).
        local: whether its weights are on this machine.
        path: location of its weights, if known.
        size: bytes of its weights, if known.
        languages: ISO 639-1 codes from its card.
        providers: inference providers that serve it live.
        traits: capabilities beyond its task ("ocr", "caption", …).
        metadata: further JSON for its backend.
    """

    id: str
    task: str
    source: str = "registered"
    backend: str | None = None
    library: str | None = None
    description: str = ""
    local: bool = False
    path: StrPath | None = None
    revision: str | None = None
    size: int | None = None
    downloads: int = 0
    likes: int = 0
    license: str | None = None
    languages: tuple[str, ...] = ()
    gated: bool = False
    providers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()
    metadata: dict[str, Any] = Field(default_factory=dict)


ChosenBy = Literal["llm", "selector", "rank", "own", "pinned", "only"]
"""What chose a model."""


class Selection(Frozen):
    """The model chosen for one task, and its fallbacks.

    Attributes:
        chosen_by: "llm" (the selection chain), "selector" (the user's), "rank", "own" (the user's language
            model, for a text), "pinned", or "only" (a single candidate).
        placement: why it runs here or hosted ("it is on this machine"); "" for an algorithm.
        candidates: the chosen model and its fallbacks, in order. A model that can run both here and hosted
            appears twice, with different backends.
        factors: points of the candidates in the ranking, by id and name of the factor ("purpose", …).
        rejected: reasons against other models, by id.
        task: name of the task type; differs from the plan's if another task replaces it.
        note: a remark for the user ("no captioner is installed, so the image is classified").
    """

    model: str
    reason: AnyNote
    chosen_by: ChosenBy = "rank"
    placement: AnyNote = ""
    candidates: list[Candidate] = Field(default_factory=list)
    factors: dict[str, dict[str, float]] = Field(default_factory=dict)
    rejected: dict[str, AnyNote] = Field(default_factory=dict)
    task: str = ""
    note: AnyNote = ""


class Attempt(Frozen):
    """One try of one candidate; `started` and `ended` are seconds since the run began.

    `endpoint` is the expert server that ran it; None: this process, or a provider. `seed` is that of models
    that draw at random.
    """

    model: str
    backend: str
    endpoint: str | None = None
    revision: str | None = None
    seed: int | None = None
    started: float
    ended: float
    error: AnyNote | None = None

    @property
    def ok(self) -> bool:
        """Whether it gave a result."""
        return self.error is None


Status = Literal["ok", "failed", "skipped"]


class TaskResult(Frozen):
    """The outcome of one task.

    Attributes:
        task: the task as it was run.
        status: "ok", "failed", or "skipped" after a dependency failed.
        selection: the models considered; None if there was no choice.
        attempts: all tries, including failed ones.
        resources: what was made, the main one first.
        output: plain JSON in the shape of huggingface_hub's inference types.
        failure: name of the error's class in `core.errors`, if known.
        notes: remarks for the user.
        started, ended: seconds since the run began; the same for a task that never started.
    """

    task: Task
    status: Status
    selection: Selection | None = None
    attempts: list[Attempt] = Field(default_factory=list)
    resources: list[Resource] = Field(default_factory=list)
    output: Any = None
    error: AnyNote | None = None
    failure: str | None = None
    notes: list[AnyNote] = Field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0

    def output_as(self, form: type[T]) -> T:
        """The output as a type, such as `list[ObjectDetectionOutputElement]` of huggingface_hub.

        Raises:
            pydantic.ValidationError: the output has another form, as that of a failed task has.
        """
        return TypeAdapter(form).validate_python(self.output)

    @property
    def model(self) -> str | None:
        """Id of the model that succeeded, else of the selected one."""
        done = next((a.model for a in reversed(self.attempts) if a.ok), None)
        return done or (self.selection.model if self.selection else None)

    @property
    def all_notes(self) -> list[str]:
        """The notes on the selection and on the task."""
        chosen = [self.selection.note] if self.selection and self.selection.note else []
        return [*chosen, *self.notes]

    def resource(self, kind: str) -> Resource | None:
        """The first resource of that kind, see `resources_of`."""
        return next(iter(self.resources_of(kind)), None)

    def resources_of(self, kind: str) -> list[Resource]:
        """The resources of that kind; for "text" and "data", else those that have some.

        A "file" is any file, else a text, which can be written as one.
        """
        fitting = [r for r in self.resources if r.kind in split_kind(kind)]
        for field in {"file": ("path", "text"), "text": ("text",), "data": ("data",)}.get(kind, ()):
            fitting = fitting or [r for r in self.resources if getattr(r, field) is not None]
        return fitting

    def paths(self) -> Iterator[Path]:
        """The files that were made."""
        return (r.path for r in self.resources if r.path is not None)


class Usage(Frozen):
    """Calls of a language model and their tokens (0 if the model does not report them), or of hosted experts.

    `cached` counts replies from a cache, which are not calls and cost no tokens. `cost` is the money that the
    provider reports, or that the agent's `price` gives, in its currency. JSON has `hosted_calls` and `cost`
    only if there are any.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0
    hosted_calls: int = Field(0, exclude_if=lambda value: not value)
    cost: float = Field(0.0, exclude_if=lambda value: not value)

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})
