"""Run models that compare texts with sentence-transformers: embeddings, similarity, ranking.

The prompts of a model ("query: ") mark which text is the query and which are the documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert, note_cut_texts, scores_output, sentences_of, text_of
from jarvis_agent.backends.devices import choose_device, pick_dtype
from jarvis_agent.backends.hub.model_card import read_json, strings
from jarvis_agent.backends.hub.snapshot import SENTENCE_TRANSFORMERS, model_folder
from jarvis_agent.backends.local import LOADING, FileBackend, LoadedExpert
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate

_EMBEDDER, _CROSS_ENCODER = "SentenceTransformer", "CrossEncoder"


def compare_vectors(model: Any, calls: Sequence[Call]) -> list[Any]:
    """The raw outputs of a model that maps a text to a vector. Each distinct text is encoded once."""
    encoders = {"plain": model.encode, "query": model.encode_query, "document": model.encode_document}
    wanted = [_roles(call) for call in calls]
    for call, roles in zip(calls, wanted, strict=True):
        _note_cut(model, call, [text for _, text in roles])
    vectors: dict[tuple[str, str], Any] = {}
    for role, encode in encoders.items():
        if pairs := [*dict.fromkeys(pair for roles in wanted for pair in roles if pair[0] == role)]:
            rows = encode([text for _, text in pairs], convert_to_tensor=True)
            vectors |= zip(pairs, rows, strict=True)

    def output(call: Call, first: Any, *others: Any) -> Any:
        if call.spec.name == "feature-extraction":
            return [first.tolist()]
        import torch

        return scores_output(call, model.similarity(first.unsqueeze(0), torch.stack(others))[0].tolist())

    return [output(call, *map(vectors.__getitem__, roles)) for call, roles in zip(calls, wanted, strict=True)]


def score_pairs(model: Any, calls: Sequence[Call]) -> list[Any]:
    """The raw outputs of a cross-encoder, which reads two texts together."""
    for call in calls:
        if call.spec.name == "feature-extraction":
            raise UnsupportedError(f"{call.candidate.id} compares texts, and gives none of them a vector")
        _note_cut(model, call, [f"{text_of(call)} {text}" for text in sentences_of(call)])
    pairs = [(text_of(call), text) for call in calls for text in sentences_of(call)]
    scores = iter(model.predict(pairs).tolist())
    return [scores_output(call, [*islice(scores, len(sentences_of(call)))]) for call in calls]


class SentenceTransformersBackend(FileBackend):
    """Runs embedding models and cross-encoders."""

    name = "sentence-transformers"
    needs = ("torch", "transformers", "sentence_transformers")
    library = "sentence-transformers"
    libraries = (None, "sentence-transformers", "transformers")
    tasks = ("feature-extraction", "sentence-similarity", "text-ranking")

    def key(self, spec: TaskSpec, candidate: Candidate) -> tuple[str, ...]:
        """All tasks share one loaded model."""
        return (self.name, candidate.id, candidate.revision or "")

    def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        import sentence_transformers

        folder = model_folder(candidate, settings, SENTENCE_TRANSFORMERS)
        kind = _model_type(folder)
        if kind not in (_EMBEDDER, _CROSS_ENCODER):
            raise UnsupportedError(
                f"{candidate.id} is a {kind}; only embedding models and cross-encoders are supported"
            )
        device = choose_device(settings)
        with LOADING:
            model = getattr(sentence_transformers, kind)(
                str(folder),
                device=str(device),
                trust_remote_code=settings.trust_remote_code,
                local_files_only=True,
                model_kwargs={
                    "use_safetensors": None if settings.allow_pickle else True,
                    "dtype": pick_dtype(device),
                },
            )
        if kind == _CROSS_ENCODER and model.num_labels != 1:
            raise UnsupportedError(
                f"{candidate.id} sorts pairs of texts into {model.num_labels} classes, not by one score"
            )
        run = compare_vectors if kind == _EMBEDDER else score_pairs
        return LoadedExpert(
            model, lambda model, call: run(model, [call])[0], [model], batch=partial(run, model)
        )


def _note_cut(model: Any, call: Call, texts: Sequence[str]) -> None:
    limit = model.max_seq_length or len("".join(texts))
    note_cut_texts(call, texts, limit, lambda text: len(model.tokenizer(text, verbose=False)["input_ids"]))


def _model_type(folder: Path) -> str:
    if (folder / "modules.json").is_file():
        stated = read_json(folder / "config_sentence_transformers.json").get("model_type")
        return stated if isinstance(stated, str) else _EMBEDDER
    architectures = strings(read_json(folder / "config.json").get("architectures"))
    classifies = any(name.endswith("ForSequenceClassification") for name in architectures)
    return _CROSS_ENCODER if classifies else _EMBEDDER


def _roles(call: Call) -> list[tuple[str, str]]:
    """Return (role, text) for each text of a call; the others are compared with the first."""
    others = [] if call.spec.name == "feature-extraction" else sentences_of(call)
    if call.spec.name == "text-ranking":
        return [("query", text_of(call)), *(("document", text) for text in others)]
    return [("plain", text) for text in (text_of(call), *others)]
