"""Starter models: small real models inside Python packages, for a run without a key, a GPU or the Hub.

A starter model is a table of data/models.toml; it names its reader, a module of this package. Its weights
are taken from the Hub's cache, else from the installed package, else from the Hub. Of a package that only
carries weights no code is imported; its files are read if their SHA-256 is right.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from pydantic import TypeAdapter

from jarvis_agent.backends.hub.packaged import packaged_file
from jarvis_agent.backends.hub.snapshot import download_files
from jarvis_agent.core.errors import ConfigError, MissingExtraError, TransientError
from jarvis_agent.core.settings import Settings

HUB_TIMEOUT = 5.0
"""Seconds to wait for the Hub's first answer."""


@dataclass(frozen=True, slots=True)
class StarterModel:
    """One starter model. Fields that are not listed are as in Candidate.

    Attributes:
        reader: module of jarvis_agent.backends.starter that loads it.
        package, file, sha256: import name of the package with its weights, path of the main file in it, and
            the (beginning of the) file's SHA-256.
        needs: modules that its reader imports.
        install: the command that installs `package` and `needs` if the extra `extra` does not.
        hub: its files on the Hub, the main one first; empty if only the package has it.
    """

    id: str
    tasks: tuple[str, ...]
    reader: str
    description: str
    license: str
    size: int
    package: str
    file: str
    sha256: str
    needs: tuple[str, ...]
    extra: str = "starter"
    install: str = ""
    hub: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()

    @property
    def missing(self) -> ConfigError:
        """The error for a missing reader or missing weights."""
        if self.extra:
            return MissingExtraError(self.id, self.extra)
        return ConfigError(f"{self.id} is not installed: {self.install}")


_TABLE = tomllib.loads(files(__package__).joinpath("data/models.toml").read_text("utf-8"))

STARTERS = {model.id: model for model in TypeAdapter(list[StarterModel]).validate_python(_TABLE["models"])}
"""The models of data/models.toml by their ids."""

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def find_weights(model: StarterModel) -> Path | None:
    """The main file of a model, unchecked; None if it is not on this machine. Uses no network."""
    return _cached(model) or packaged_file(model.package, model.file, None)


def fetch_weights(model: StarterModel, settings: Settings) -> Path:
    """The main file of a model, with the others beside it: cached, packaged (checked), or downloaded.

    Raises:
        ConfigError: the packaged file has a wrong SHA-256, or the model is missing and cannot be downloaded
            (MissingExtraError if an extra installs it).
        TransientError: the download failed.
    """
    found = _cached(model) or packaged_file(model.package, model.file, model.sha256)
    if found:
        return found
    if not may_download(model, settings):
        raise model.missing
    return _download(model, settings)


def may_download(model: StarterModel, settings: Settings) -> bool:
    """Whether the Hub has the model and the settings allow its download."""
    return bool(model.hub) and not settings.offline and model.size <= settings.max_download


def _cached(model: StarterModel) -> Path | None:
    """The main file in the Hub's cache, if every file of the model is there."""
    if not model.hub:
        return None
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(model.id, file) for file in model.hub]
    # The cache returns a marker instead of a path for a file that the Hub does not have.
    return Path(str(found[0])) if all(isinstance(path, str) for path in found) else None


def _download(model: StarterModel, settings: Settings) -> Path:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    try:
        # Without a network this fails at once; hf_hub_download would retry for half a minute.
        get_hf_file_metadata(hf_hub_url(model.id, model.hub[0]), token=settings.token, timeout=HUB_TIMEOUT)
        sizes = dict.fromkeys(model.hub, 0) | {model.hub[0]: model.size}
        folder = download_files(model.id, sizes, None, settings.token)
    except (httpx.HTTPError, OSError) as error:
        raise TransientError(
            f"{model.id} could not be downloaded from the Hub ({error}). Without a network: {model.missing}"
        ) from error
    return folder / model.hub[0]
