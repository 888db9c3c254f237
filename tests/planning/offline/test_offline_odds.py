"""The regression tells apart what the bank's phrases are about."""

from __future__ import annotations

import numpy as np

from jarvis_agent.planning.offline.odds import fit, odds

LEFT, RIGHT, UP = np.eye(4, dtype=np.float32)[:3]
COMMON = np.float32(3.0) * np.eye(4, dtype=np.float32)[3]


def vectors(*rows: np.ndarray) -> np.ndarray:
    """Vectors of length one that have most of their length in common, as sentences about images have."""
    found = np.stack([row + COMMON for row in rows])
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def test_what_tells_entries_apart_counts_and_not_what_they_share() -> None:
    weights = fit(vectors(LEFT, LEFT, RIGHT, UP), np.array([0, 0, 1, 2]))
    assert weights.shape == (5, 3)
    assert odds(weights, vectors(RIGHT, UP, LEFT)).argmax(axis=1).tolist() == [1, 2, 0]


def test_an_entry_with_many_phrases_is_no_likelier_for_that() -> None:
    weights = fit(vectors(*[LEFT] * 30, RIGHT), np.array([0] * 30 + [1]))
    left, right = odds(weights, vectors(LEFT + RIGHT))[0]
    assert abs(left - right) < 0.05


def test_a_fit_comes_out_the_same_each_time() -> None:
    rows, entries = vectors(LEFT, RIGHT, UP), np.array([0, 1, 1])
    assert np.array_equal(fit(rows, entries), fit(rows, entries))
