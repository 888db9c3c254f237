"""The nouns of a run: frozen, and the same after a round trip through JSON.

Task        what is to be done          {"task": "object-detection", "id": 0, "dep": [-1], "args": {…}}
Resource    something made or given     a text, a file, a piece of JSON
Candidate   a model that could do it
Selection   the model chosen, why, and who comes next if it fails
Attempt     one try of one candidate
TaskResult  how a task ended
Usage       calls and tokens
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, model_validator

from jarvis_agent.core.tasks.spec import Modality
from jarvis_agent.core.text import sound_data

if TYPE_CHECKING:
    from PIL.Image import Image

StrPath = Annotated[Path, PlainSerializer(str, return_type=str)]
"""A path that is plain text in every dump, so that dumps are JSON."""


class Frozen(BaseModel):
    """Base of the nouns: immutable, strict about field names, and of texts that can be encoded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _sound(cls, value: Any) -> Any:
        # JSON of others can hold half a character, which could be neither stored nor sent on.
        try:
            return sound_data(value)
        except RecursionError as error:
            raise ValueError("it is nested too deep") from error


class Task(Frozen):
    """One task of a plan, in the paper's four slots.

    Attributes:
        task: name of the task type.
        id: its number in the plan.
        dep: ids of the tasks that must be done before; `[-1]` or `[]` for none.
        args: arguments by name. A reference stays the string `<resource>-N`.
    """

    task: str
    id: int
    dep: list[int] = Field(default_factory=lambda: [-1])
    args: dict[str, Any] = Field(default_factory=dict)

    @property
    def deps(self) -> tuple[int, ...]:
        """The ids in `dep` without the paper's -1."""
        return tuple(i for i in self.dep if i >= 0)


class Resource(Frozen):
    """Something that was given or made: a file, a text, or data. It shows itself in a notebook.

    Attributes:
        kind: what it is.
        path: absolute path of its file, if it has one.
        mime: media type of the file, recognised by content.
        text: its text, if it is a text or can be put as one.
        data: plain JSON, such as the boxes of a detection.
        name: a short label for people.
    """

    kind: Modality
    path: StrPath | None = None
    mime: str | None = None
    text: str | None = None
    data: Any = None
    name: str = ""

    def to_pil(self) -> Image:
        """The image, upright, in RGB or RGBA.

        Raises:
            BadInputError: this is not an image, or its file can not be read as one.
        """
        from jarvis_agent.media.image import open_image

        return open_image(self)

    def to_content_block(self) -> dict[str, Any]:
        """This resource as a standard content block of LangChain (text, image, audio, video or file)."""
        if self.path is None:
            return {"type": "text", "text": self.as_text()}
        block = self.kind if self.kind in ("image", "audio", "video") else "file"
        return {"type": block, "base64": self._base64(), "mime_type": self.mime or "application/octet-stream"}

    def as_text(self) -> str:
        """The resource put as text: its text, its data as JSON, or its path."""
        if self.text is not None:
            return self.text
        if self.data is not None:
            import json

            return json.dumps(self.data, ensure_ascii=False)
        return str(self.path or "")

    def _base64(self) -> str:
        assert self.path is not None
        return base64.b64encode(self.path.read_bytes()).decode()

    def _repr_html_(self) -> str:
        from jarvis_agent.core.display import html_of

        return html_of(self)


class Candidate(Frozen):
    """A model that could do a task.

    Attributes:
        id: its id on the Hub, or the name under which it was registered.
        task: name of the task type.
        source: which ModelSource offered it ("hub", "cache", "starter", "registered", …).
        backend: name of the backend that must run it; None: the first one that can.
        library: the Hub's `library_name` ("transformers", "diffusers", …).
        local: whether its weights are on this machine already.
        path: where they are, if that is known.
        size: bytes of its weights; None if unknown.
        languages: ISO 639-1 codes that its card names; empty if it names none.
        providers: inference providers that serve it live.
        traits: what it is good for beyond its task ("ocr", "caption", …).
        metadata: anything else that its backend needs; plain JSON.
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


class Selection(Frozen):
    """The model chosen for one task, and its fallbacks.

    Attributes:
        model: id of the chosen model.
        reason: why it was chosen.
        chosen_by: "llm" (the selection chain), "rank", "pinned" (the user), or "only" (a single candidate).
        placement: why it runs where it does ("it is on this machine"); "" for an algorithm.
        candidates: the candidates in the order in which they are tried, the chosen one first. A model that
            can run both here and hosted is in it twice, with different backends.
        rejected: why other models were left out, by id.
        task: name of the task type that is done; differs from the plan's if another task replaces it.
        note: a remark for the user ("no captioner is installed, so the image is classified").
    """

    model: str
    reason: str
    chosen_by: Literal["llm", "rank", "pinned", "only"] = "rank"
    placement: str = ""
    candidates: list[Candidate] = Field(default_factory=list)
    rejected: dict[str, str] = Field(default_factory=dict)
    task: str = ""
    note: str = ""


class Attempt(Frozen):
    """One try of one candidate, at a revision if one is known; `started` and `ended` are seconds since the
    run began."""

    model: str
    backend: str
    revision: str | None = None
    started: float
    ended: float
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the try gave a result."""
        return self.error is None


Status = Literal["ok", "failed", "skipped"]


class TaskResult(Frozen):
    """How one task ended.

    Attributes:
        task: the task as it was run.
        status: "ok", "failed", or "skipped" since a task that it needs failed.
        selection: the models considered; None where there was nothing to choose.
        attempts: every try, failed ones too.
        resources: what was made, the principal resource first.
        output: plain JSON in the shape of huggingface_hub's inference types.
        error: what went wrong, for people; None if all went well.
        failure: the kind of error, by the name of its class in `core.errors`, where that is known.
        notes: what was tolerated on the way.
        started, ended: seconds since the run began; the same for a task that never started.
    """

    task: Task
    status: Status
    selection: Selection | None = None
    attempts: list[Attempt] = Field(default_factory=list)
    resources: list[Resource] = Field(default_factory=list)
    output: Any = None
    error: str | None = None
    failure: str | None = None
    notes: list[str] = Field(default_factory=list)
    started: float = 0.0
    ended: float = 0.0

    @property
    def model(self) -> str | None:
        """Id of the model that did the work, or was to do it."""
        done = next((a.model for a in reversed(self.attempts) if a.ok), None)
        return done or (self.selection.model if self.selection else None)

    @property
    def all_notes(self) -> list[str]:
        """What the user should know: the notes on the selection and on the work."""
        chosen = [self.selection.note] if self.selection and self.selection.note else []
        return [*chosen, *self.notes]

    def resource(self, kind: str) -> Resource | None:
        """The first resource of that kind; for "text" and "data" any resource that has some."""
        for found in self.resources:
            if found.kind == kind:
                return found
        if kind == "text":
            return next((r for r in self.resources if r.text is not None), None)
        if kind == "data":
            return next((r for r in self.resources if r.data is not None), None)
        return None

    def paths(self) -> Iterator[Path]:
        """The files that were made."""
        return (r.path for r in self.resources if r.path is not None)


class Usage(Frozen):
    """Calls of a language model and their tokens (0 where the model does not count).

    `cached` are replies that came from a cache: they are no calls and cost no tokens.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            calls=self.calls + other.calls,
            cached=self.cached + other.cached,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )
