"""Which entry of the bank a text speaks of: a softmax regression on sentence embeddings.

    weights = fit(vectors, entries)        # a vector and the number of its entry for each phrase
    odds(weights, embedder.encode(["count the dogs in the image"]))     # shape (1, entries): log-odds

The nearest phrase alone is a poor judge, as phrases of many tasks share most of their words ("the image");
the regression learns which of the words matter. Nothing is drawn at random, so that a fit comes out the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from jarvis_agent.backends.starter.embeddings import Floats

SHRINK = 1.2e-5
"""How strongly the weights are held small; from a cross-validation over the phrases."""
STEPS, RATE = 300, 12.0
"""Steps of gradient descent with momentum, and how far the first one goes."""


def fit(vectors: Floats, entries: NDArray[np.int64]) -> Floats:
    """The weights that tell the entries apart, each entry of the bank counting the same.

    Args:
        vectors: of the shape (phrases, size).
        entries: the number of each phrase's entry, of the shape (phrases,).

    Returns:
        array of the shape (size + 1, number of entries); its last row is the bias.
    """
    import numpy as np

    counts = np.bincount(entries)
    inputs = _with_one(vectors)
    wanted = np.eye(len(counts), dtype=np.float32)[entries]
    worth = (1 / counts[entries] / len(counts)).astype(np.float32)[:, None]
    weights: Floats = np.zeros((inputs.shape[1], len(counts)), np.float32)
    before = weights
    for step in range(STEPS):
        ahead: Floats = weights + step / (step + 3) * (weights - before)
        slope = inputs.T @ (worth * (_softmax(inputs @ ahead) - wanted)) + SHRINK * ahead
        before, weights = weights, (ahead - RATE * slope).astype(np.float32)
    return weights


def odds(weights: Floats, vectors: Floats) -> Floats:
    """Log-odds of every entry, up to a constant a row.

    Args:
        weights: as `fit` returns them.
        vectors: of the shape (texts, size).

    Returns:
        array of the shape (texts, number of entries).
    """
    found: Floats = _with_one(vectors) @ weights
    return found


def _with_one(vectors: Floats) -> Floats:
    import numpy as np

    return np.concatenate([vectors, np.ones((len(vectors), 1), np.float32)], axis=1)


def _softmax(scores: Floats) -> Floats:
    import numpy as np

    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = raised / raised.sum(axis=1, keepdims=True)
    return shares
