"""Fit the models of the offline planner.

    python benchmarks/train_offline.py            # after a change of phrases.json or clauses.json
    python benchmarks/train_offline.py --check    # exit status 1 if the stored models are of other data

Writes phrases.npz (vectors of the phrases, and a softmax regression on them) and clauses.npz (a linear
classifier, fitted on clauses made from templates) to jarvis_agent/planning/offline/data. Prints the share of
held-out clauses that are classified correctly. Needs scikit-learn.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from jarvis_agent.backends.starter.backend import MINILM
from jarvis_agent.backends.starter.embeddings import load_embedder
from jarvis_agent.core.settings import Settings
from jarvis_agent.planning.offline.classifier import (
    CLAUSES_MODEL,
    NONE,
    PHRASES_MODEL,
    ClauseModel,
    clause_features,
)
from jarvis_agent.planning.offline.phrases import load_bank, load_clauses

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jarvis_agent.backends.starter.embeddings import Floats, StarterEmbeddings

SHRINKAGE, STEPS, RATE = 1.2e-5, 300, 12.0
"""Of the regression on phrases: weight decay, steps of gradient descent with momentum, learning rate."""
SEED, EXAMPLES, HOLD_OUT = 7, 16, 6
"""Of the clauses: the seed, examples made of each template, and every which template is held out."""
STRENGTH, TOLERANCE, ROUNDS = 30.0, 1e-6, 5000
"""Of the clause model: scikit-learn's C, tol and max_iter."""
_TAILS = ("for me", "as well", "using the image", "based on the text", "from the result")


def phrases_digest() -> str:
    """A digest of the phrases and the embedding model."""
    phrases = [MINILM, *(phrase for entry in load_bank().values() for phrase in entry.phrases)]
    return hashlib.sha256("\n".join(phrases).encode()).hexdigest()


def clauses_digest() -> str:
    """A digest of the templates."""
    held = load_clauses()
    return hashlib.sha256(json.dumps([held["slots"], held["tasks"]]).encode()).hexdigest()


def fit_phrases(vectors: Floats, entries: NDArray[np.int64]) -> Floats:
    """The weights that tell the entries of the bank apart; each entry counts the same.

    Args:
        vectors: of shape (phrases, size).
        entries: the number of each phrase's entry, of shape (phrases,).

    Returns:
        array of shape (size + 1, entries); the last row is the bias.
    """
    import numpy as np

    counts = np.bincount(entries)
    inputs = np.concatenate([vectors, np.ones((len(vectors), 1), np.float32)], axis=1)
    targets = np.eye(len(counts), dtype=np.float32)[entries]
    share = (1 / counts[entries] / len(counts)).astype(np.float32)[:, None]
    weights: Floats = np.zeros((inputs.shape[1], len(counts)), np.float32)
    before = weights
    for step in range(STEPS):
        ahead: Floats = weights + step / (step + 3) * (weights - before)
        scores = inputs @ ahead
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        slope = (
            inputs.T @ (share * (raised / raised.sum(axis=1, keepdims=True) - targets)) + SHRINKAGE * ahead
        )
        before, weights = weights, (ahead - RATE * slope).astype(np.float32)
    return weights


def store_phrases(embedder: StarterEmbeddings) -> None:
    """Embed the phrases, fit the regression and write both as float16."""
    import numpy as np

    bank = load_bank().values()
    vectors = embedder.encode([phrase for entry in bank for phrase in entry.phrases])
    weights = fit_phrases(vectors, np.repeat(np.arange(len(bank)), [len(entry.phrases) for entry in bank]))
    np.savez_compressed(
        PHRASES_MODEL,
        digest=np.array(phrases_digest()),
        vectors=vectors.astype(np.float16),
        weights=weights.astype(np.float16),
    )


def examples(*, held_out: bool) -> Iterator[tuple[str, str]]:
    """Clauses with their classes, made of the templates that are held out, or of the others."""
    held = load_clauses()
    for name, templates in held["tasks"].items():
        for number, template in enumerate(templates):
            if (number % HOLD_OUT == HOLD_OUT - 1) is not held_out:
                continue
            rng = random.Random(f"{SEED} {name} {template}")
            made = {_varied(_filled(template, held["slots"], rng), name, rng) for _ in range(EXAMPLES)}
            yield from ((text, name) for text in sorted(made))


def _filled(template: str, slots: Mapping[str, list[str]], rng: random.Random) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: rng.choice(slots[match[1]]), template)


def _varied(text: str, name: str, rng: random.Random) -> str:
    """A clause as it may be left after cutting: as a gerund, or with words around it."""
    roll = rng.random()
    first, _, rest = text.partition(" ")
    if name != NONE and roll < 0.15 and rest and first not in ("a", "an", "the"):
        return f"{first.rstrip('e')}ing {rest}"
    if name != NONE and roll < 0.22:
        return f"I want {text}"
    return f"{text} {rng.choice(_TAILS)}" if roll < 0.30 else text


def fit_clauses(embedder: StarterEmbeddings, pairs: list[tuple[str, str]]) -> ClauseModel:
    """A multinomial logistic regression; each class counts the same."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    texts, names = zip(*pairs, strict=True)
    seen = clause_features(embedder.encode(texts), texts).astype(np.float64)
    used = seen.any(axis=0)
    fitted = LogisticRegression(C=STRENGTH, tol=TOLERANCE, max_iter=ROUNDS, class_weight="balanced").fit(
        seen[:, used], names
    )
    weights = np.zeros((seen.shape[1], len(fitted.classes_)), np.float32)
    weights[used] = fitted.coef_.T
    return ClauseModel(tuple(map(str, fitted.classes_)), weights, fitted.intercept_.astype(np.float32))


def accuracy(model: ClauseModel, embedder: StarterEmbeddings, pairs: list[tuple[str, str]]) -> float:
    """The share of clauses whose likeliest class is the right one."""
    texts = [text for text, _ in pairs]
    best = model.log_probs(clause_features(embedder.encode(texts), texts)).argmax(axis=1)
    return sum(model.names[int(place)] == name for place, (_, name) in zip(best, pairs, strict=True)) / len(
        pairs
    )


def store_clauses(embedder: StarterEmbeddings) -> float:
    """Fit the clause model and write it. Returns the accuracy on held-out templates."""
    import numpy as np

    seen, unseen = list(examples(held_out=False)), list(examples(held_out=True))
    model = fit_clauses(embedder, [*seen, *unseen])
    np.savez_compressed(
        CLAUSES_MODEL,
        digest=np.array(clauses_digest()),
        names=np.array(model.names),
        weights=model.weights.astype(np.float16),
        bias=model.bias.astype(np.float32),
    )
    known = {text for text, _ in seen}
    return accuracy(fit_clauses(embedder, seen), embedder, [pair for pair in unseen if pair[0] not in known])


def is_current() -> bool:
    """Whether the stored models were fitted on the data as they are."""
    import numpy as np

    for path, digest in ((PHRASES_MODEL, phrases_digest()), (CLAUSES_MODEL, clauses_digest())):
        with np.load(path, allow_pickle=False) as stored:
            if str(stored["digest"]) != digest:
                return False
    return True


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(not is_current())
    embedder = load_embedder(Settings())
    store_phrases(embedder)
    print(f"held-out templates: {100 * store_clauses(embedder):.1f} % of the clauses right")
