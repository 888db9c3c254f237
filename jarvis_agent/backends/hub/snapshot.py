"""Files of a model: a given directory, the Hub's cache, or a download that the settings allow.

Of a repository only the files that its library reads are downloaded, as a `Layout` tells: of every folder of
the model the small files and one copy of the weights, safetensors, or a pickle if the settings allow it.
Downloads use huggingface_hub's cache and locks, in threads of their own, so that a cancelled call does not
wait for a server that does not answer.
"""

import errno
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from glob import escape
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from jarvis_agent.backends.devices import computes_in_half
from jarvis_agent.backends.http_errors import expert_error
from jarvis_agent.backends.jobs import Activity, is_cancelled, listed
from jarvis_agent.core.concurrency import start_daemon_thread
from jarvis_agent.core.errors import JarvisError, TransientError, UnsupportedError
from jarvis_agent.core.notes import Note, limit_of
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

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
        """The files of a model that are read, of all names; `index` is the content of its index."""
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
            raise UnsupportedError(
                f"{file.name} is damaged; download the model again", detail=error
            ) from error

    def _weights_in(self, model: str, names: list[str], settings: Settings) -> list[str]:
        """One copy of the weights in one folder; [] if it holds none."""
        safe = [name for name in names if self.safe.fullmatch(PurePosixPath(name).name)]
        pickled = [name for name in names if self.pickled.fullmatch(PurePosixPath(name).name)]
        if pickled and not safe and not (settings.allow_pickle and self.unpickles):
            allow = "if you trust it, set JARVIS_ALLOW_PICKLE=1"
            raise UnsupportedError(
                f"{model} has its weights only as a pickle, which can run code when loaded",
                advice=allow if self.unpickles else f"it is never loaded: ask its author for {self.example}",
            )
        copies: dict[str, dict[str, list[str]]] = {}
        for name in safe or pickled:
            parent = copies.setdefault(str(PurePosixPath(name).parent), {})
            parent.setdefault(_precision(name), []).append(name)
        chosen: list[str] = []
        for stored in copies.values():
            # The plain weights, or 16-bit ones if there are no others or models compute in 16 bits.
            ranked = sorted(stored, key=_PRECISIONS.index)
            half = len(ranked) > 1 and _HALF in ranked and computes_in_half(settings)
            copy = stored[_HALF if half else ranked[0]]
            chosen += [name for name in copy if (found := self._match(name)) and not found["shard"]] or copy
        return chosen

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
    match = _PRECISION.search(PurePosixPath(name).name)
    return match[1] if match else ""


CANNOT_LOAD = "{model} cannot be loaded: {reason}"
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


def refusal(candidate: Candidate, settings: Settings) -> str | None:
    """The reason why the settings forbid to load this model; None if they allow it."""
    if "custom_code" in candidate.tags and not settings.trust_remote_code:
        return Note("it runs its own code", advice="JARVIS_TRUST_REMOTE_CODE=1 allows that")
    if candidate.local or candidate.path is not None:
        return None
    if settings.offline:
        helps = "it can be downloaded without JARVIS_OFFLINE and HF_HUB_OFFLINE"
        return Note("it is not on this machine, and offline mode is on", advice=helps)
    return _too_large(candidate.size or 0, settings)


def marker_folder(candidate: Candidate, settings: Settings, layout: Layout = TRANSFORMERS) -> Path:
    """A directory with the file that describes the model, downloaded alone if needed."""
    if (folder := _local_folder(candidate, settings, layout)) is not None:
        return folder
    model = candidate.id
    with _download_errors(model):
        sizes = _sizes_on_hub(candidate, settings)
        marker = next((name for name in layout.markers if name in sizes), None)
        if marker is None:
            markers = " and no ".join(layout.markers)
            raise UnsupportedError(f"{layout.library} cannot load {model}: it has no {markers}")
        return download_files(model, [marker], sizes[marker], candidate.revision, settings.token)


def model_folder(candidate: Candidate, settings: Settings, layout: Layout = TRANSFORMERS) -> Path:
    """The directory with the files that a library reads of a model, downloaded if needed. Blocks.

    UnsupportedError: it is missing, not allowed, damaged, or has no safe weights. TransientError: the Hub
    does not answer, or the call was cancelled.
    """
    from huggingface_hub import try_to_load_from_cache

    if (local := _local_folder(candidate, settings, layout)) is not None:
        layout.choose(candidate.id, files_in(local), layout.read_index(local), settings)
        return local
    model, revision, token = candidate.id, candidate.revision, settings.token
    with _download_errors(model):
        sizes = _sizes_on_hub(candidate, settings)
        index = None
        if layout.index in sizes:
            folder = download_files(model, [layout.index], sizes[layout.index], revision, token)
            index = layout.read_index(folder)
        names = layout.choose(model, sizes, index, settings)
        cached = {name: try_to_load_from_cache(model, name, revision=revision) for name in names}
        size = sum(sizes[name] for name in names if not isinstance(cached[name], str))
        if (reason := _too_large(size, settings)) is not None:
            raise UnsupportedError(CANNOT_LOAD, model=model, reason=reason)
        return download_files(model, names, size, revision, token)


def _local_folder(candidate: Candidate, settings: Settings, layout: Layout) -> Path | None:
    """The model's folder on this machine, with one of the layout's markers; None if it may be downloaded."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    if (reason := refusal(candidate, settings)) is not None:
        raise UnsupportedError(CANNOT_LOAD, model=candidate.id, reason=reason)
    path = candidate.path
    if path is None and not candidate.local and not settings.offline:
        return None
    absent = UnsupportedError(
        f"{candidate.id} is not on this machine; download it with: hf download {candidate.id}"
    )
    try:
        # The layout checks which files are present.
        folder = path or snapshot_download(
            candidate.id, revision=candidate.revision, local_files_only=True, allow_patterns=[]
        )
    except (LocalEntryNotFoundError, HFValidationError) as error:
        raise absent from error
    folder = Path(folder) if Path(folder).is_dir() else Path(folder).parent
    if layout.markers and not any((folder / name).is_file() for name in layout.markers):
        if path is None:
            raise absent
        missing = Note(f"there is no {layout.markers[0]}", detail=str(folder))
        raise UnsupportedError(CANNOT_LOAD, model=candidate.id, reason=missing)
    return folder


def _sizes_on_hub(candidate: Candidate, settings: Settings) -> dict[str, int]:
    from huggingface_hub import HfApi

    api = HfApi(token=settings.token)
    info = api.model_info(candidate.id, revision=candidate.revision, files_metadata=True)
    return {file.rfilename: file.size or 0 for file in info.siblings or ()}


def _too_large(size: int, settings: Settings) -> str | None:
    if size <= settings.max_download:
        return None
    limit = f"the limit of {settings.max_download / 1e9:.1f} GB"
    return Note(
        f"the download of {size / 1e9:.1f} GB exceeds {limit}", advice=limit_of("JARVIS_MAX_DOWNLOAD")
    )


@contextmanager
def _download_errors(model: str) -> Iterator[None]:
    """Raise errors of the Hub's client as ExpertErrors."""
    from huggingface_hub.errors import GatedRepoError, HFValidationError

    try:
        yield
    except JarvisError:
        raise
    except GatedRepoError as error:
        page = f"https://huggingface.co/{model}"
        raise UnsupportedError(f"{model} is gated: accept its terms on {page} and set HF_TOKEN") from error
    except HFValidationError as error:
        raise UnsupportedError(f"{model!r} is not a valid model id on the Hub") from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            helps = "check HF_HOME and its disk space"
            raise UnsupportedError(f"{model} could not be stored", detail=error, advice=helps) from error
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if status in (401, 403, 404):
            message = f"the Hub refuses {model} ({status}); check its id, and HF_TOKEN"
            raise UnsupportedError(message) from error
        raise expert_error(error, f"{model} could not be downloaded: the Hub") from error


@dataclass(eq=False, slots=True)
class Download(Activity):
    """A running download: `done` of `total` bytes."""

    state: ClassVar[str] = "downloading"
    total: int
    done: int = 0
    stopped: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __str__(self) -> str:
        unit, name = (1e9, "GB") if self.total >= 1e9 else (1e6, "MB")
        return f"{self.model}: {self.done / unit:.1f} of {self.total / unit:.1f} {name} downloaded"

    def advance(self, count: float) -> None:
        """Count received bytes. Raises TransientError if the download was cancelled."""
        if self.stopped:
            raise _cancelled(self.model)
        with self._lock:
            self.done += int(count)


def download_files(
    model: str, names: Iterable[str], size: int, revision: str | None, token: str | None
) -> Path:
    """Download these files of a model, of `size` bytes, to the Hub's cache; returns their folder. Blocks.

    TransientError: the Hub failed, or the call was cancelled; complete files are kept.
    """
    from huggingface_hub import snapshot_download

    download = Download(model, size)
    get = partial(
        snapshot_download,
        model,
        revision=revision,
        token=token,
        allow_patterns=[escape(name) for name in names],
        max_workers=4,
        tqdm_class=_progress_class(download),
    )
    try:
        with listed(download):
            folder = start_daemon_thread(get)
            while not wait([folder], timeout=0.1).done:
                if is_cancelled():
                    raise _cancelled(model)
            # Where the Hub fails, snapshot_download returns what is in the cache, which may lack files.
            if missing := [name for name in names if not Path(folder.result(), name).is_file()]:
                raise TransientError(f"{model} could not be downloaded: the Hub gave no {missing[0]}")
            return Path(folder.result())
    finally:
        download.stopped = True


def _cancelled(model: str) -> TransientError:
    return TransientError(f"the download of {model} was cancelled with its call")


def _progress_class(download: Download) -> Any:
    """The progress bar through which huggingface_hub reports received bytes. It shows nothing."""
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    class Bar(tqdm):
        def __init__(self, *args: Any, name: str | None = None, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call]
            # Other bars count files, and bytes on the wire.
            self.counts_bytes = name == "huggingface_hub.snapshot_download"

        def update(self, count: float | None = 1) -> None:
            download.advance(count or 0 if self.counts_bytes else 0)

    return Bar
