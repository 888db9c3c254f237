"""Where a model's files are: a directory given, the Hub's cache, or a download that the settings allow.

    folder = model_folder(Candidate(id="facebook/bart-large-cnn", task="summarization"), settings)
    folder = model_folder(candidate, settings, DIFFUSERS)

Of a repository only what its library reads is fetched (see layouts.py): configs, tokenizers, and one copy of
the weights.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jarvis_agent.backends.hub.downloads import fetch
from jarvis_agent.backends.hub.layouts import TRANSFORMERS, Layout, files_in
from jarvis_agent.backends.hosted.errors import expert_error
from jarvis_agent.core.errors import ExpertError, JarvisError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Candidate

CONFIG = "config.json"

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)


def refusal(candidate: Candidate, settings: Settings) -> str | None:
    """Why the settings do not let this model be loaded; None if they do."""
    if "custom_code" in candidate.tags and not settings.trust_remote_code:
        return "it runs code of its own, which JARVIS_TRUST_REMOTE_CODE=1 would allow"
    if candidate.local or candidate.path is not None:
        return None
    if settings.offline:
        return "it is not on this machine, and JARVIS_OFFLINE forbids to download it"
    return _too_large(candidate.size or 0, settings)


def config_file(candidate: Candidate, settings: Settings) -> Path:
    """The model's config.json, which is downloaded alone if need be: it tells whether the rest is worth it.

    Raises:
        UnsupportedError: the model is not there, or not allowed.
        TransientError: the Hub does not answer.
    """
    if (reason := refusal(candidate, settings)) is not None:
        raise UnsupportedError(f"{candidate.id} can not be loaded: {reason}")
    if _is_here(candidate, settings):
        return _folder_here(candidate, TRANSFORMERS) / CONFIG
    with _download_errors(candidate.id):
        return fetch(candidate.id, {CONFIG: 0}, candidate.revision, settings.token) / CONFIG


def marker_folder(candidate: Candidate, settings: Settings, layout: Layout) -> Path:
    """A directory with the file that says what the model is, which is downloaded alone if need be.

    Raises:
        UnsupportedError: the model is not there, is not allowed, or is not laid out so.
        TransientError: the Hub does not answer.
    """
    if (reason := refusal(candidate, settings)) is not None:
        raise UnsupportedError(f"{candidate.id} can not be loaded: {reason}")
    if _is_here(candidate, settings):
        return _folder_here(candidate, layout)
    from huggingface_hub import HfApi

    model, revision, token = candidate.id, candidate.revision, settings.token
    with _download_errors(model):
        tree = HfApi(token=token).list_repo_tree(model, revision=revision)
        marker = layout.marker(entry.path for entry in tree)
        if marker is None:
            raise UnsupportedError(
                f"{layout.library} can not load {model}: it has no {' and no '.join(layout.markers)}"
            )
        return fetch(model, {marker: 0}, revision, token)


def model_folder(candidate: Candidate, settings: Settings, layout: Layout = TRANSFORMERS) -> Path:
    """The directory with the model's files as a library lays them out, downloaded if need be. Blocks.

    Raises:
        UnsupportedError: the model is not there, is not allowed, is damaged, or has no weights in a safe
            format.
        TransientError: the Hub does not answer, or the call was cancelled meanwhile.
    """
    if (reason := refusal(candidate, settings)) is not None:
        raise UnsupportedError(f"{candidate.id} can not be loaded: {reason}")
    if not _is_here(candidate, settings):
        return _downloaded(candidate, settings, layout)
    folder = _folder_here(candidate, layout)
    layout.choose(candidate.id, files_in(folder), layout.read_index(folder), settings)
    return folder


def _is_here(candidate: Candidate, settings: Settings) -> bool:
    """Whether the model is looked for on this machine alone."""
    return candidate.path is not None or candidate.local or settings.offline


def _folder_here(candidate: Candidate, layout: Layout) -> Path:
    """The model's folder on this machine, in which one of the layout's markers is."""
    path = candidate.path
    folder = _cached(candidate) if path is None else path if path.is_dir() else path.parent
    if layout.markers and not any((folder / name).is_file() for name in layout.markers):
        if path is None:
            raise _absent(candidate)
        raise UnsupportedError(f"{candidate.id} can not be loaded: there is no {folder / layout.markers[0]}")
    return folder


def _cached(candidate: Candidate) -> Path:
    """The model's folder in the Hub's cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        # The files are looked at afterwards: of a model not all are wanted.
        return Path(
            snapshot_download(
                candidate.id, revision=candidate.revision, local_files_only=True, allow_patterns=[]
            )
        )
    except (LocalEntryNotFoundError, HFValidationError) as error:
        raise _absent(candidate) from error


def _absent(candidate: Candidate) -> UnsupportedError:
    return UnsupportedError(
        f"{candidate.id} is not on this machine; download it with: hf download {candidate.id}"
    )


def _downloaded(candidate: Candidate, settings: Settings, layout: Layout) -> Path:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    model, revision, token = candidate.id, candidate.revision, settings.token
    with _download_errors(model):
        tree = HfApi(token=token).list_repo_tree(model, revision=revision, recursive=layout.index is not None)
        sizes = {entry.path: entry.size for entry in tree if isinstance(entry, RepoFile)}
        index = _fetched_index(candidate, settings, layout) if layout.index in sizes else None
        wanted = layout.choose(model, sizes, index, settings)
        missing = sum(sizes[name] for name in wanted if not _is_cached(candidate, name))
        if (reason := _too_large(missing, settings)) is not None:
            raise UnsupportedError(f"{model} can not be loaded: {reason}")
        return fetch(model, {name: sizes[name] for name in wanted}, revision, token)


def _fetched_index(candidate: Candidate, settings: Settings, layout: Layout) -> Any:
    """The content of the file that tells which folders of a repository belong to the model."""
    assert layout.index is not None
    folder = fetch(candidate.id, {layout.index: 0}, candidate.revision, settings.token)
    return layout.read_index(folder)


def _is_cached(candidate: Candidate, name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(candidate.id, name, revision=candidate.revision), str)


def _too_large(size: int, settings: Settings) -> str | None:
    if size <= settings.max_download:
        return None
    return (
        f"{size / 1e9:.1f} GB would have to be downloaded, more than the limit of "
        f"{settings.max_download / 1e9:.1f} GB (JARVIS_MAX_DOWNLOAD)"
    )


@contextmanager
def _download_errors(model: str) -> Iterator[None]:
    """What the Hub's client raises inside, as errors that the ladder understands."""
    try:
        yield
    except JarvisError:
        raise
    except Exception as error:
        raise _download_error(model, error) from error


def _download_error(model: str, error: Exception) -> ExpertError:
    """What the Hub's client raised, as an error that the ladder understands."""
    from huggingface_hub.errors import GatedRepoError, HFValidationError

    if isinstance(error, GatedRepoError):
        page = f"https://huggingface.co/{model}"
        return UnsupportedError(f"{model} is gated: accept its terms on {page} and set HF_TOKEN")
    if isinstance(error, HFValidationError):
        return UnsupportedError(f"{model!r} can not be the id of a model on the Hub")
    if isinstance(error, OSError) and error.errno in _DISK:
        return UnsupportedError(
            f"{model} could not be stored: {error}; check HF_HOME and the space on its disk"
        )
    status = getattr(getattr(error, "response", None), "status_code", 0)
    if status in (401, 403, 404):
        return UnsupportedError(f"{model} can not be had from the Hub ({status}); check its id, and HF_TOKEN")
    return expert_error(error, f"{model} could not be downloaded: the Hub")
