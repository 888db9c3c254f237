"""Checks the decision trees of a model that came from a stranger before anything is predicted with them.

    check_trees("org/forest", estimator)

scikit-learn walks along the node numbers of a tree without looking whether there are such nodes: a file made
with ill intent could make it read or write anywhere in memory. This is why skops does not trust trees by
default. Here every number is looked at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jarvis_agent.core.errors import UnsupportedError

TREE = "sklearn.tree._tree.Tree"
"""The type's name, as skops tells it."""


def check_trees(model: str, estimator: Any) -> None:
    """Look at every tree in an estimator, which has just been loaded; `model` is its id, for the error.

    Raises:
        UnsupportedError: a tree is damaged, or belongs to an ensemble that walks its trees in a way which
            can not be checked from outside.
    """
    from sklearn import ensemble
    from sklearn.tree import BaseDecisionTree

    unchecked = (
        ensemble.GradientBoostingClassifier,
        ensemble.GradientBoostingRegressor,
        ensemble.IsolationForest,
    )
    forests = (
        ensemble.RandomForestClassifier,
        ensemble.RandomForestRegressor,
        ensemble.ExtraTreesClassifier,
        ensemble.ExtraTreesRegressor,
        ensemble.RandomTreesEmbedding,
    )
    for part in _parts(estimator, set()):
        if isinstance(part, unchecked):
            raise UnsupportedError(
                f"{model} holds a {type(part).__name__}, whose file could do harm when it predicts; "
                "if you trust it, allow it with JARVIS_TRUST_REMOTE_CODE=1"
            )
        sound = True
        if isinstance(part, BaseDecisionTree) and hasattr(part, "tree_"):
            sound = part.tree_.n_features == part.n_features_in_ and _is_sound(part.tree_)
        if isinstance(part, forests) and hasattr(part, "estimators_"):
            sound = all(tree.n_features_in_ == part.n_features_in_ for tree in part.estimators_)
        if not sound:
            raise UnsupportedError(
                f"{model} has a decision tree whose nodes lead nowhere: its file is damaged"
            )


def _parts(thing: Any, seen: set[int]) -> Iterator[Any]:
    """The thing and all that it holds, each once."""
    import numpy as np

    if id(thing) in seen or isinstance(thing, str | bytes | int | float | None):
        return
    seen.add(id(thing))
    yield thing
    if isinstance(thing, dict):
        held = [*thing.keys(), *thing.values()]
    elif isinstance(thing, list | tuple | set):
        held = list(thing)
    elif isinstance(thing, np.ndarray):
        held = list(thing.flat) if thing.dtype == object else []
    else:
        held = list(getattr(thing, "__dict__", {}).values())
    for part in held:
        yield from _parts(part, seen)


def _is_sound(tree: Any) -> bool:
    """Whether every step from a node leads to a later node, by a feature that there is."""
    import numpy as np

    count = tree.node_count
    if not 0 < count <= tree.capacity:  # else the arrays below would reach beyond the nodes
        return False
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    here = np.arange(count)
    leaf = left == -1
    # A later node has a greater number, so that no walk goes in circles.
    steps = (left > here) & (left < count) & (right > here) & (right < count)
    by = (feature >= 0) & (feature < tree.n_features)
    return bool((leaf | (steps & by)).all())
