"""The protocol of a backend, which runs models, and `Call`, one use of one model.

    class Backend(Protocol):
        name = "transformers"
        local = True
        def unsupported_reason(self, spec, candidate): ...    # cheap: no heavy import, no network
        async def run(self, call): ...                        # raw output, in the form of the task's adapter
        async def close(self): ...

A backend is a row of backends/registry.py or an entry point. For models on this machine derive from
`jarvis_agent.backends.local.LocalBackend`: `load` returns a callable, and the pool keeps it loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.images import open_image, to_opaque
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import SENTENCE_SEPARATORS, SEPARATORS, split_list, texts_of_list
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.media.recordings import read_audio, read_voices, spread_frames
from jarvis_agent.media.tables import Table, read_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

T = TypeVar("T")

_ENDS = ("\n\n", "\n", ". ", "! ", "? ", "。", "！", "？", ", ", "; ", ": ", " ")
"""Where a long text is divided, the best places first."""

_TOKEN_CHARS = 8
"""More characters than tokens have on average, so that of a long text only a part is counted at once."""


@dataclass(frozen=True, slots=True)
class Call:
    """One use of one candidate.

    Attributes:
        spec: the task type.
        candidate: the model.
        inputs: arguments by name. Media are `Resource`s with a path, text arguments are str, data arguments
            are plain JSON; a `many` argument is a list of those.
        new_path: returns a fresh path for a file that the backend writes; its parameter is the suffix
            (".wav").
        settings: the user's settings.
        cleanup: removes files written after the call was cancelled (`media.run_directory.AttemptFiles`). A
            thread that outlives its call and uses `new_path` calls it at its end; the pool does so for local
            models.
        notes: remarks on the result for the user, which the backend adds.
        trace: what the backend reports of the call for traces: "endpoint", the expert server that ran it.
        purpose: what the task is about, if the planner wrote it ("spam or not").
    """

    spec: TaskSpec
    candidate: Candidate
    inputs: Mapping[str, Any]
    new_path: Callable[[str], Path]
    settings: Settings
    cleanup: Callable[[], None] = lambda: None
    notes: list[str] = field(default_factory=list)
    trace: dict[str, str] = field(default_factory=dict)
    purpose: str = ""

    def image(self, name: str = "image", frame: int | None = None) -> Image:
        """An image argument, upright, in RGB, on paper where it is transparent; else a BadInputError."""
        return to_opaque(self.noted(*open_image(self._path(name), frame)))

    def editable_image(self) -> Image:
        """As `image`, in RGBA if parts of it are transparent."""
        return self.noted(*open_image(self._path("image")))

    def sound(self, rate: int, name: str = "audio") -> NDArray[np.float32]:
        """A recording as mono samples in [-1, 1], shape (samples,), at `rate` Hz; else a BadInputError."""
        return self.noted(*read_audio(self._path(name), rate))

    def voices(self, rate: int) -> list[NDArray[np.float32]]:
        """As `sound`, but two callers, each in a channel of their own, are two signals."""
        voices = self.noted(*read_voices(self._path("audio"), rate))
        if len(voices) > 1:
            self.noted(None, [Note("the two channels were transcribed one after the other")])
        return voices

    def frames(self, count: int) -> list[tuple[float, Image]]:
        """At most `count` frames of a video, upright, evenly spread, each with its time in seconds."""
        return self.noted(*spread_frames(self._path("video"), count))

    def table(self, name: str = "table") -> Table:
        """A table; BadInputError if the file cannot be read as one."""
        table = read_table(self._path(name))
        return self.noted(table, table.notes)

    def _path(self, name: str) -> Path:
        resource: Resource = self.inputs[name]
        if resource.path is None:
            raise BadInputError(f"{self.spec.name} needs a file for {name}, and this is a {resource.kind}")
        return resource.path

    def noted(self, value: T, notes: Sequence[str]) -> T:
        """A value that was read from an argument; the notes on it are added, each once."""
        self.notes.extend(note for note in notes if note not in self.notes)
        return value


def text_of(call: Call, name: str = "text") -> str:
    """A text argument. Raises BadInputError if it is empty."""
    text = str(call.inputs.get(name) or "").strip()
    if not text:
        raise BadInputError("{task} needs a {name}, and this one is empty", task=call.spec.name, name=name)
    return text


def reads_text(args: Mapping[str, Any]) -> bool:
    """Whether the arguments of image-to-text ask for the text in the image, and not for a description."""
    return str(args.get("text") or "").lower().split()[:1] == ["read"]


def labels_of(call: Call) -> list[str]:
    """The labels argument, a list or a text with one. Raises BadInputError if it is empty."""
    labels = list(dict.fromkeys(filter(None, _items(call, "labels", SEPARATORS))))
    if not labels:
        raise BadInputError(f"{call.spec.name} needs labels to choose from (labels: cat, dog)")
    if len(labels) == 1 and "classification" in call.spec.name:
        call.noted(labels, [Note("there was only one label to choose from, “{label}”", label=labels[0])])
    return labels


def sentences_of(call: Call) -> list[str]:
    """The texts to compare with, a list or a text with one, which commas do not divide; none is empty."""
    sentences = _items(call, "sentences", SENTENCE_SEPARATORS)
    if not sentences or not all(sentences):
        raise BadInputError(f"{call.spec.name} needs sentences to compare with, none of them empty")
    return sentences


def scores_output(call: Call, scores: list[float]) -> list[Any]:
    """The scores of `sentences_of` in the form of text-ranking, whose index is the place in the call."""
    if call.spec.name != "text-ranking":
        return scores
    rows = enumerate(zip(sentences_of(call), scores, strict=True))
    return [{"index": index, "text": text, "score": score} for index, (text, score) in rows]


def note_cut_texts(call: Call, texts: Iterable[str], limit: int, count: Callable[[str], int]) -> None:
    """Note how many texts have more tokens than the model reads."""
    if number := sum(count(text) > limit for text in texts):
        read = "only the first {limit:,} tokens of a text were read; longer: {number:,}"
        call.notes.append(Note(read, limit=limit, number=number))


def split_text(text: str, limit: int, count: Callable[[str], int]) -> list[str]:
    """A text in parts of at most `limit` tokens, which end with a paragraph, a sentence or a word."""
    parts: list[str] = []
    while text:
        parts.append(beginning(text, limit, count))
        text = text[len(parts[-1]) :]
    return parts or [text]


def beginning(text: str, limit: int, count: Callable[[str], int]) -> str:
    """The first part of a text, as of `split_text`: at least a character."""
    most, is_growing = _TOKEN_CHARS * limit, True
    while True:
        part = text
        if len(text) > most:  # where a paragraph, a sentence or a word ends in the second half
            ends = (text.rfind(mark, most // 2, most) + len(mark) for mark in _ENDS)
            part = text[: next((end for end in ends if end > most // 2), most)]
        tokens = count(part)
        is_growing = is_growing and tokens <= limit and len(part) < len(text)
        if not is_growing and (tokens <= limit or most == 1):
            return part
        most = 2 * most if is_growing else max(1, len(part) * limit // tokens)


def _items(call: Call, name: str, separators: Sequence[str]) -> list[str]:
    """A list argument as texts. What a text was divided into is noted where it may be meant otherwise."""
    values = texts_of_list(call.inputs.get(name) or [])
    if len(values) != 1:
        return values
    items = split_list(values[0], separators)
    marks = {mark for mark in "".join(SEPARATORS).strip() if mark in values[0]}
    is_certain = values[0][:1] == "[" or (separators is SEPARATORS and len(marks) < 2)
    if len(items) > 1 and not is_certain:
        note = Note("the list was taken as {items}", items=[f"“{item}”" for item in items[:10]])
        call.noted(items, [note])
    return items


def options_of(call: Call, known: Iterable[str], those: str) -> dict[str, Any]:
    """The options in the candidate's metadata, all of which must be known; `those` tells which these are."""
    options = dict(call.candidate.metadata.get("options") or {})
    if unknown := sorted(options.keys() - set(known)):
        raise UnsupportedError(
            f"{call.candidate.id} has no option {unknown[0]!r} (metadata.options of its description); {those}"
        )
    return options


def whole_number(call: Call, name: str, most: int) -> int | None:
    """An argument from 1 to `most`, also from text ("512 px"); None if missing, else BadInputError."""
    value = call.inputs.get(name)
    if value is None or value == "":
        return None
    text = "" if isinstance(value, bool) else str(value).strip().lower()
    for ending in ("pixels", "px", ".0"):
        text = text.removesuffix(ending).strip()
    if not text.isdecimal() or len(text) > 18 or not 1 <= int(text) <= most:
        raise BadInputError(
            f"{call.spec.name} needs a whole number from 1 to {most} for {name}, not {str(value)[:80]!r}"
        )
    return int(text)


Expert = Callable[[Call], Any]
"""A loaded model, called in a worker thread: takes a Call, returns the raw output."""


@runtime_checkable
class Backend(Protocol):
    """Runs candidates."""

    @property
    def name(self) -> str:
        """What `Candidate.backend` calls it."""
        ...

    local: ClassVar[bool]

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if this backend can run the candidate for the task, else the reason.

        A missing optional package is a reason ('needs the extra "local": pip install …'). It is called for
        every candidate of every task: it must not import heavy libraries or use the network.
        """
        ...

    async def run(self, call: Call) -> Any:
        """Run the candidate once and return its raw output, as the task's adapter takes it, or a Result.

        Raises:
            ExpertError: one of its subclasses, which decides what happens next (see
                jarvis_agent.core.errors).
        """
        ...

    async def close(self) -> None:
        """Free models, connections and threads."""
        ...
