"""Runs models that compare texts with sentence-transformers: embeddings, similarity, ranking.

    backend = SentenceTransformersBackend(pool, settings)
    raw = await backend.run(call)     # feature-extraction [vector], sentence-similarity [0.83, 0.12],
                                      # text-ranking [{"index": 1, "text": …, "score": 0.97}, …]

Notes:
- An embedder gives each text a vector; a cross-encoder reads two texts together and gives one score.
- A query and the texts that may answer it are told apart by the prompts that a model brings ("query: ").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.devices import pick_dtype, place, weight_bytes
from jarvis_agent.backends.hub.layouts import SENTENCE_TRANSFORMERS
from jarvis_agent.backends.hub.model_card import read_json, strings
from jarvis_agent.backends.hub.snapshot import model_folder, refusal
from jarvis_agent.backends.load_errors import load_errors
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.transformers.loading import LOADING, hush
from jarvis_agent.backends.transformers.text import text_of
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

LIBRARY = "sentence-transformers"

_COMPARING = frozenset({"sentence-similarity", "text-ranking"})
"""Tasks for which the library also takes plain models of transformers, by the mean of their token vectors."""

TASKS_DONE = _COMPARING | {"feature-extraction"}

_EMBEDDER, _CROSS_ENCODER = "SentenceTransformer", "CrossEncoder"
_SYMMETRIC_PROMPTS = ("STS", "sts", "similarity")
"""Names under which models keep the prompt for texts that are compared as equals."""


@dataclass(frozen=True, slots=True)
class Embedder:
    """A model that gives a text a vector."""

    id: str
    model: Any
    nbytes: int

    def __call__(self, call: Call) -> Any:
        return self.batch([call])[0]

    def batch(self, calls: Sequence[Call]) -> list[Any]:
        """The raw outputs of several calls, of any tasks: each text of theirs is read once."""
        wanted = [_roles(call) for call in calls]
        vectors: dict[tuple[str, str], Any] = {}
        for role in dict.fromkeys(role for pairs in wanted for role, _ in pairs):
            texts = list(dict.fromkeys(text for pairs in wanted for as_, text in pairs if as_ == role))
            found = self._encode(role, texts)
            vectors |= {(role, text): vector for text, vector in zip(texts, found, strict=True)}
        return [
            self._answer(call, [vectors[pair] for pair in pairs])
            for call, pairs in zip(calls, wanted, strict=True)
        ]

    def _encode(self, role: str, texts: list[str]) -> Any:
        """Vectors of texts in a role, a tensor (texts, dimensions)."""
        match role:
            case "query":
                return self.model.encode_query(texts, convert_to_tensor=True)
            case "document":
                return self.model.encode_document(texts, convert_to_tensor=True)
            case "alike":
                known = self.model.prompts or {}
                prompt = next((name for name in _SYMMETRIC_PROMPTS if known.get(name)), None)
                return self.model.encode(texts, prompt_name=prompt, convert_to_tensor=True)
        return self.model.encode(texts, convert_to_tensor=True)

    def _answer(self, call: Call, vectors: list[Any]) -> Any:
        if call.spec.name == "feature-extraction":
            return [vector.tolist() for vector in vectors]
        import torch

        scores = self.model.similarity(vectors[0].unsqueeze(0), torch.stack(vectors[1:]))[0].tolist()
        return _ranked(_texts(call), scores) if call.spec.name == "text-ranking" else scores


@dataclass(frozen=True, slots=True)
class PairScorer:
    """A cross-encoder: a model that scores two texts read together."""

    id: str
    model: Any
    nbytes: int

    def __call__(self, call: Call) -> Any:
        return self.batch([call])[0]

    def batch(self, calls: Sequence[Call]) -> list[Any]:
        """The raw outputs of several calls."""
        if any(call.spec.name not in _COMPARING for call in calls):
            raise UnsupportedError(f"{self.id} compares texts, and gives none of them a vector")
        pairs = [(text_of(call), text) for call in calls for text in _texts(call)]
        scores = iter(self.model.predict(pairs).tolist())
        results = []
        for call in calls:
            texts = _texts(call)
            found = [next(scores) for _ in texts]
            results.append(_ranked(texts, found) if call.spec.name == "text-ranking" else found)
        return results


class SentenceTransformersBackend(LocalBackend):
    """Embedders and cross-encoders."""

    name = "sentence-transformers"
    needs = ("torch", "sentence_transformers")

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if sentence-transformers is there, is for the task, and may load the candidate."""
        if spec.name not in TASKS_DONE:
            return f"sentence-transformers does not do {spec.name}"
        others = (None, "transformers") if spec.name in _COMPARING else ()
        if candidate.library not in (LIBRARY, *others):
            return f"it is made for {candidate.library}, not for sentence-transformers"
        if lacking := self.lacking(candidate):
            return str(lacking)
        return refusal(candidate, self.settings)

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """One loaded model serves all of its tasks."""
        return (self.name, candidate.id, candidate.revision or "")

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Find the files, see whether they are an embedder or a cross-encoder, and load it.

        Raises:
            UnsupportedError: it is not there, not allowed, damaged, or compares texts in another way.
            TransientError: it could not be downloaded.
            ConfigError: the device or the dtype is not there.
        """
        if lacking := self.lacking(candidate):
            raise lacking
        with load_errors(spec, candidate):
            return _load(candidate, settings)


def _load(candidate: Candidate, settings: Settings) -> Expert:
    import sentence_transformers

    hush()
    folder = model_folder(candidate, settings, SENTENCE_TRANSFORMERS)
    kind = _kind(folder)
    if kind not in (_EMBEDDER, _CROSS_ENCODER):
        raise UnsupportedError(f"{candidate.id} is a {kind}; only embedders and cross-encoders can be run")
    device = place(settings)
    with LOADING:
        model = getattr(sentence_transformers, kind)(
            str(folder),
            device=str(device),
            trust_remote_code=settings.trust_remote_code,
            local_files_only=True,
            model_kwargs={
                "use_safetensors": None if settings.allow_pickle else True,
                "dtype": pick_dtype(settings.dtype, device),
            },
        )
    if kind == _EMBEDDER:
        return Embedder(candidate.id, model, weight_bytes(model))
    if model.num_labels != 1:
        raise UnsupportedError(
            f"{candidate.id} sorts pairs of texts into {model.num_labels} classes, not by one score"
        )
    return PairScorer(candidate.id, model, weight_bytes(model))


def _kind(folder: Path) -> str:
    """The name of the library's class for the model in a folder."""
    if (folder / "modules.json").is_file():
        told = read_json(folder / "config_sentence_transformers.json").get("model_type")
        return told if isinstance(told, str) else _EMBEDDER
    architectures = strings(read_json(folder / "config.json").get("architectures"))
    judges = any(name.endswith("ForSequenceClassification") for name in architectures)
    return _CROSS_ENCODER if judges else _EMBEDDER


def _roles(call: Call) -> list[tuple[str, str]]:
    """The texts of a call, each with the role in which it is read; the others are compared to the first."""
    match call.spec.name:
        case "feature-extraction":
            return [("plain", text_of(call))]
        case "text-ranking":
            return [("query", text_of(call)), *(("document", text) for text in _texts(call))]
        case _:
            return [("alike", text) for text in (text_of(call), *_texts(call))]


def _texts(call: Call) -> list[str]:
    """The texts to compare with.

    Raises:
        BadInputError: there are none, or one of them is empty.
    """
    texts = [str(text).strip() for text in call.inputs.get("sentences") or []]
    if not texts or not all(texts):
        raise BadInputError(f"{call.spec.name} needs sentences to compare with, none of them empty")
    return texts


def _ranked(texts: list[str], scores: list[float]) -> list[dict[str, Any]]:
    """[{index, text, score}], the best first; `index` is the place in what was given."""
    order = sorted(range(len(texts)), key=lambda place: -scores[place])
    return [{"index": place, "text": texts[place], "score": scores[place]} for place in order]
