"""The file layouts of libraries: which files of a model's folder each library reads.

    names = DIFFUSERS.choose("org/model", files_in(folder), DIFFUSERS.read_index(folder), settings)
    DIFFUSERS.variant(folder, settings)            # "fp16", the parameter of from_pretrained

A layout is a row. Of every folder that belongs to the model it takes the small files and one copy of the
weights: safetensors, or a pickle if the settings allow it; never ONNX, Flax, OpenVINO, or a checkpoint in one
file beside the folders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from jarvis_agent.backends.devices import computes_in_half
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings

_SMALL = (".json", ".txt", ".model", ".jinja", ".spm", ".bpe", ".tiktoken", ".vocab")
_HALF = "fp16"
_PRECISIONS = ("", _HALF, "bf16")
"""Precisions of stored weights in the names of their files, the preferred one first."""

_PRECISION = re.compile(r"\.(fp16|bf16)[.-]")


def _weights(stems: str, suffix: str, *, variants: bool = False) -> re.Pattern[str]:
    """Names of weight files: `model.safetensors`, `model-00001-of-00002.safetensors`, `model.fp16.…`."""
    variant = r"(?:\.(?:fp16|bf16))?" if variants else ""
    return re.compile(rf"(?:{stems}){variant}(?P<shard>-\d+-of-\d+)?{variant}\.(?:{suffix})")


@dataclass(frozen=True, slots=True)
class Layout:
    """The file layout of one library.

    Attributes:
        library: its name.
        markers: files at the top, of which one must exist; empty: no check.
        index: the marker that lists the folders of the model, if the library has one.
        safe, pickled: patterns of its weight files in either format; the group `shard` is set in a part.
        example: the usual weight file, for messages.
        folders: returns the folders of the model from the content of its index; "" is the top.
        unpickles: whether JARVIS_ALLOW_PICKLE=1 allows pickles; otherwise they are never read.
    """

    library: str
    markers: tuple[str, ...]
    safe: re.Pattern[str]
    pickled: re.Pattern[str]
    example: str
    index: str | None = None
    folders: Callable[[Any], tuple[str, ...]] = lambda index: ("",)
    unpickles: bool = True

    def choose(self, model: str, names: Iterable[str], index: Any, settings: Settings) -> list[str]:
        """The files of a model that are read, of the names of all; `index` is the content of its index.

        Raises:
            UnsupportedError: it has no weights, or none that may be read.
        """
        suffixes = (*_SMALL, ".py") if settings.trust_remote_code else _SMALL
        every = list(names)
        small = [name for name in every if name == self.index]
        weights: list[str] = []
        folders = ("",) if index is None else self.folders(index)
        if not any(self._match(name) and _is_in(folder, name) for folder in folders for name in every):
            folders = ("", *folders)  # early pipelines keep the files of their components at the top
        for folder in folders:
            inside = [name for name in every if _is_in(folder, name)]
            small += [name for name in inside if name.endswith(suffixes)]
            weights += self._weights_in(model, inside, settings)
        if not weights:
            raise UnsupportedError(f"{model} has no weights that {self.library} reads ({self.example})")
        return list(dict.fromkeys([*small, *weights]))

    def variant(self, folder: Path, settings: Settings) -> str | None:
        """The precision of the weights that are read ("fp16", "bf16"); None: the plain ones."""
        chosen = self.choose(folder.name, files_in(folder), self.read_index(folder), settings)
        return next((_precision(name) for name in chosen if self._match(name) and _precision(name)), None)

    def read_index(self, folder: Path) -> Any:
        """The content of a model's index; None if it has none. Raises UnsupportedError if it is damaged."""
        if self.index is None or not (file := folder / self.index).exists():
            return None
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UnsupportedError(f"{file} is damaged: {error}; download the model again") from error

    def _weights_in(self, model: str, names: list[str], settings: Settings) -> list[str]:
        """One copy of the weights in one folder; [] if it holds none."""
        safe = [name for name in names if self.safe.fullmatch(PurePosixPath(name).name)]
        pickled = [name for name in names if self.pickled.fullmatch(PurePosixPath(name).name)]
        if pickled and not safe and not (settings.allow_pickle and self.unpickles):
            allow = "if you trust it, set JARVIS_ALLOW_PICKLE=1"
            raise UnsupportedError(
                f"{model} has its weights only as a pickle, which can run code when loaded; "
                + (allow if self.unpickles else f"it is never loaded: ask its author for {self.example}")
            )
        copies: dict[str, dict[str, list[str]]] = {}
        for name in safe or pickled:
            parent = copies.setdefault(str(PurePosixPath(name).parent), {})
            parent.setdefault(_precision(name), []).append(name)
        return [name for stored in copies.values() for name in self._one_copy(stored, settings)]

    def _one_copy(self, stored: Mapping[str, list[str]], settings: Settings) -> list[str]:
        """The plain weights, or 16-bit ones if there are no others or models compute in 16 bits."""
        ranked = sorted(stored, key=_PRECISIONS.index)
        half = len(ranked) > 1 and _HALF in ranked and computes_in_half(settings)
        names = stored[_HALF if half else ranked[0]]
        whole = [name for name in names if (found := self._match(name)) and not found["shard"]]
        return whole or names

    def _match(self, name: str) -> re.Match[str] | None:
        file = PurePosixPath(name).name
        return self.safe.fullmatch(file) or self.pickled.fullmatch(file)


def _components(index: Any) -> tuple[str, ...]:
    """The folders of a pipeline's components, from its model_index.json."""
    rows = index.items() if isinstance(index, dict) else ()
    return tuple(name for name, value in rows if isinstance(value, list) and any(value))


def _modules(index: Any) -> tuple[str, ...]:
    """The top, and the folders of the modules in a modules.json."""
    rows = [row for row in index if isinstance(row, dict)] if isinstance(index, list) else []
    return tuple(dict.fromkeys(["", *(str(row.get("path", "")) for row in rows)]))


TRANSFORMERS = Layout(
    library="transformers",
    markers=("config.json",),
    safe=_weights("model", "safetensors"),
    pickled=_weights("pytorch_model", "bin"),
    example="model.safetensors",
)
DIFFUSERS = Layout(
    library="diffusers",
    markers=("model_index.json", "config.json"),
    safe=_weights("model|diffusion_pytorch_model", "safetensors", variants=True),
    pickled=_weights("pytorch_model|diffusion_pytorch_model", "bin", variants=True),
    example="diffusion_pytorch_model.safetensors",
    index="model_index.json",
    folders=_components,
)
SENTENCE_TRANSFORMERS = Layout(
    library="sentence-transformers",
    markers=("modules.json", "config.json"),
    safe=_weights("model", "safetensors"),
    pickled=_weights("pytorch_model", "bin"),
    example="model.safetensors",
    index="modules.json",
    folders=_modules,
)
SKOPS = Layout(
    library="skops",
    markers=(),
    safe=_weights(".+", "skops"),
    pickled=_weights(".+", "pkl|pickle|joblib"),
    example="a .skops file",
    unpickles=False,
)


def files_in(folder: Path) -> list[str]:
    """Paths of the files in a folder and below it, with slashes."""
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def _is_in(folder: str, name: str) -> bool:
    """Whether a file belongs to a folder: at the top directly, below a component at any depth."""
    return name.startswith(f"{folder}/") if folder else "/" not in name


def _precision(name: str) -> str:
    found = _PRECISION.search(PurePosixPath(name).name)
    return found[1] if found else ""
