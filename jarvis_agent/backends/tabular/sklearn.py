"""Runs scikit-learn models for tables, from .skops files. Pickles are never read, whatever the settings say.

    backend = SklearnBackend(pool, settings)
    raw = await backend.run(call)
    # {"predictions": ["ham", "spam"], "probabilities": [[0.9, 0.1], [0.2, 0.8]], "classes": ["ham", "spam"]}

A .skops file says of which types its objects are. Those that skops itself trusts are loaded, and trees whose
nodes have been checked (sklearn_trees.py); any other may run code, and needs JARVIS_TRUST_REMOTE_CODE=1.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.hub.layouts import SKOPS
from jarvis_agent.backends.hub.model_card import read_json, strings
from jarvis_agent.backends.hub.snapshot import model_folder, refusal
from jarvis_agent.backends.load_errors import load_errors
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.tabular.sklearn_trees import TREE, check_trees
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.tables import Columns, read_table

TASKS_DONE = {"tabular-classification": "is_classifier", "tabular-regression": "is_regressor"}
"""The tasks, and the function of sklearn.base that tells a model for each."""

_LIBRARIES = (None, "sklearn", "scikit-learn", "skops")
_SHOWN = 10

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableModel:
    """A fitted estimator, and the names of the columns that it was fitted on; () if nobody says them."""

    id: str
    estimator: Any
    columns: tuple[str, ...]
    nbytes: int

    def __call__(self, call: Call) -> dict[str, Any]:
        table = read_table(call.inputs["table"], call.settings.max_file_bytes)
        rows = self._rows(table)
        try:
            predictions = self.estimator.predict(rows)
            chances = self.estimator.predict_proba(rows) if self._weighs(call) else None
        except ValueError as error:
            raise UnsupportedError(f"{self.id} can not take this table: {error}") from error
        return {
            "predictions": predictions.tolist(),
            "probabilities": None if chances is None else chances.tolist(),
            "classes": None if chances is None else self.estimator.classes_.tolist(),
        }

    def _weighs(self, call: Call) -> bool:
        return call.spec.name == "tabular-classification" and hasattr(self.estimator, "predict_proba")

    def _rows(self, table: Columns) -> Any:
        """The model's columns of the table as a data frame, in the model's order.

        Raises:
            BadInputError: the table lacks some of them.
        """
        import pandas

        if lacking := [name for name in self.columns if name not in table]:
            raise BadInputError(
                f"the table lacks {_listed(lacking)}, which {self.id} needs; it has {_listed(list(table))}"
            )
        if surplus := [name for name in table if name not in self.columns and self.columns]:
            logger.info("%s does not use %s", self.id, _listed(surplus))
        frame = pandas.DataFrame({name: table[name] for name in self.columns or table})
        named = hasattr(self.estimator, "feature_names_in_")
        return frame if named or _has_text(frame) else frame.to_numpy()


class SklearnBackend(LocalBackend):
    """Runs scikit-learn models."""

    name = "sklearn"
    needs = ("skops", "sklearn", "pandas")
    extra = "tabular"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if skops is there, is for the task and the model, and may load it."""
        if spec.name not in TASKS_DONE:
            return f"scikit-learn does not do {spec.name} here"
        if candidate.library not in _LIBRARIES and not _in_folder(candidate.path):
            return f"it is made for {candidate.library}, not for scikit-learn"
        if lacking := self.lacking(candidate):
            return str(lacking)
        return refusal(candidate, self.settings)

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Find the model's file, see what types it holds, and load it.

        Raises:
            UnsupportedError: it is not there, is a pickle, holds types that are not trusted, is damaged, or
                is for another task.
            TransientError: it could not be downloaded.
        """
        if lacking := self.lacking(candidate):
            raise lacking
        with load_errors(spec, candidate):
            return _load(spec, candidate, settings)


def _load(spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
    import sklearn.base

    folder = model_folder(candidate, settings, SKOPS)
    told = read_json(folder / "config.json").get("sklearn")
    told = told if isinstance(told, dict) else {}
    file = _model_file(candidate, folder, told)
    estimator = _open(candidate, file, settings)
    if not getattr(sklearn.base, TASKS_DONE[spec.name])(estimator):
        raise UnsupportedError(
            f"{candidate.id} is a {type(estimator).__name__}, which does not do {spec.name}"
        )
    names = getattr(estimator, "feature_names_in_", None)
    columns = tuple(map(str, names)) if names is not None else strings(told.get("columns"))
    return TableModel(candidate.id, estimator, columns, file.stat().st_size)


def _model_file(candidate: Candidate, folder: Path, told: dict[str, Any]) -> Path:
    """The .skops file: the path given, or the one that config.json names, or the only one."""
    if candidate.path is not None and candidate.path.is_file():
        return candidate.path
    model = told.get("model")
    name = model.get("file") if isinstance(model, dict) else None
    found = _in_folder(folder)
    named = [file for file in found if file.name == name]
    if len(named or found) == 1:
        return (named or found)[0]
    several = ", ".join(file.name for file in found)
    raise UnsupportedError(f"{candidate.id} has {several}; its config.json must say which is the model")


def _open(candidate: Candidate, file: Path, settings: Settings) -> Any:
    """The estimator in a .skops file.

    Raises:
        UnsupportedError: it holds types that are not trusted, or trees that are damaged.
    """
    from skops.io import get_untrusted_types, load

    unknown = get_untrusted_types(file=file)
    doubtful = [name for name in unknown if name != TREE]
    if doubtful and not settings.trust_remote_code:
        raise UnsupportedError(
            f"{candidate.id} holds objects of types that could do harm when they are loaded: "
            f"{_listed(doubtful)}; if you trust it, allow it with JARVIS_TRUST_REMOTE_CODE=1"
        )
    estimator = load(file, trusted=unknown)
    if not settings.trust_remote_code:
        check_trees(candidate.id, estimator)
    return estimator


def _in_folder(path: Path | None) -> list[Path]:
    """The .skops files at a path."""
    if path is None:
        return []
    return [path] if path.suffix == ".skops" else sorted(path.glob("*.skops"))


def _has_text(frame: Any) -> bool:
    return not all(kind.kind in "iuf" for kind in frame.dtypes)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return f"{shown} and {more} more" if more > 0 else shown
