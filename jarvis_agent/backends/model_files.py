"""Where a model's files are: a directory given, the Hub's cache, or a download that the settings allow.

    folder = model_folder(Candidate(id="facebook/bart-large-cnn", task="summarization"), settings)

Of a repository only what transformers reads is fetched: configs, tokenizers, and one copy of the weights.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from jarvis_agent.backends.hosted_errors import expert_error
from jarvis_agent.errors import ExpertError, JarvisError, UnsupportedError
from jarvis_agent.settings import Settings
from jarvis_agent.types import Candidate

CONFIG = "config.json"

_SMALL = (".json", ".txt", ".model", ".jinja", ".spm", ".bpe", ".tiktoken", ".vocab")
_SHARDED = r"(-\d+-of-\d+)?"
_SAFE = re.compile(rf"model{_SHARDED}\.safetensors")
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
_PICKLED = re.compile(rf"pytorch_model{_SHARDED}\.bin")


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
    if candidate.path is not None:
        return _given(candidate, candidate.path)
    if candidate.local or settings.offline:
        return _cached(candidate)
    from huggingface_hub import hf_hub_download

    with _download_errors(candidate.id):
        return Path(hf_hub_download(candidate.id, CONFIG, revision=candidate.revision, token=settings.token))


def model_folder(candidate: Candidate, settings: Settings) -> Path:
    """The directory with the model's files, downloaded if need be. Blocks.

    Raises:
        UnsupportedError: the model is not there, is not allowed, or has no weights in a safe format.
        TransientError: the Hub does not answer.
    """
    if candidate.path is None and not candidate.local and not settings.offline:
        return _downloaded(candidate, settings)
    folder = config_file(candidate, settings).parent
    choose_files(candidate, {file.name: 0 for file in folder.iterdir()}, settings)
    return folder


def _given(candidate: Candidate, path: Path) -> Path:
    config = (path if path.is_dir() else path.parent) / CONFIG
    if not config.is_file():
        raise UnsupportedError(f"{candidate.id} can not be loaded: there is no {config}")
    return config


def _cached(candidate: Candidate) -> Path:
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(candidate.id, CONFIG, revision=candidate.revision)
    if not isinstance(config, str):
        raise UnsupportedError(
            f"{candidate.id} is not on this machine; download it with: hf download {candidate.id}"
        )
    return Path(config)


def _downloaded(candidate: Candidate, settings: Settings) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.hf_api import RepoFile

    if (reason := refusal(candidate, settings)) is not None:
        raise UnsupportedError(f"{candidate.id} can not be loaded: {reason}")
    model, revision, token = candidate.id, candidate.revision, settings.token
    with _download_errors(model):
        tree = HfApi(token=token).list_repo_tree(model, revision=revision)
        sizes = {entry.path: entry.size for entry in tree if isinstance(entry, RepoFile)}
        wanted = choose_files(candidate, sizes, settings)
        if (reason := _too_large(sum(sizes[name] for name in wanted), settings)) is not None:
            raise UnsupportedError(f"{model} can not be loaded: {reason}")
        return Path(snapshot_download(model, revision=revision, token=token, allow_patterns=wanted))


def choose_files(candidate: Candidate, sizes: Mapping[str, int], settings: Settings) -> list[str]:
    """Which files of a repository's top directory to load: the small ones, and one copy of the weights.

    Raises:
        UnsupportedError: it has no weights, or only such as the settings forbid.
    """
    safe = [name for name in sizes if _SAFE.fullmatch(name)]
    pickled = [name for name in sizes if _PICKLED.fullmatch(name)]
    if not safe and not pickled:
        raise UnsupportedError(f"{candidate.id} has no weights that transformers reads (model.safetensors)")
    if not safe and not settings.allow_pickle:
        raise UnsupportedError(
            f"{candidate.id} has its weights only as a pickle, which can run code when it is loaded; "
            "if you trust it, allow it with JARVIS_ALLOW_PICKLE=1"
        )
    weights = ["model.safetensors"] if "model.safetensors" in safe else safe or pickled
    suffixes = (*_SMALL, ".py") if settings.trust_remote_code else _SMALL
    return [*(name for name in sizes if name.endswith(suffixes) and "/" not in name), *weights]


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
