"""Run scikit-learn models on tables, from .skops files.

Raw output: {"predictions": ["ham", "spam"], "probabilities": [[0.9, 0.1], [0.2, 0.8]]}.

A .skops file lists the types of its objects. Types that skops trusts are loaded; all others, including
decision trees, need JARVIS_TRUST_REMOTE_CODE=1. Pickles are never loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.hub.model_card import read_json, strings
from jarvis_agent.backends.hub.snapshot import SKOPS, model_folder
from jarvis_agent.backends.local import FileBackend
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.tables import Columns, read_table

TABULAR_TASKS = {"tabular-classification": "is_classifier", "tabular-regression": "is_regressor"}
"""Task type → function of sklearn.base that recognises its models."""


@dataclass(frozen=True, slots=True)
class TableModel:
    """A fitted estimator and the columns it was fitted on; () if they are unknown."""

    id: str
    estimator: Any
    columns: tuple[str, ...]
    nbytes: int

    def __call__(self, call: Call) -> dict[str, Any]:
        rows = self._rows(read_table(call.inputs["table"]))
        weighs = call.spec.name == "tabular-classification" and hasattr(self.estimator, "predict_proba")
        try:
            predictions = self.estimator.predict(rows)
            chances = self.estimator.predict_proba(rows) if weighs else None
        except ValueError as error:
            raise UnsupportedError(f"{self.id} cannot take this table: {error}") from error
        return {
            "predictions": predictions.tolist(),
            "probabilities": None if chances is None else chances.tolist(),
        }

    def _rows(self, table: Columns) -> Any:
        """Return the model's columns of the table in the model's order, as a data frame or an array.

        Raises:
            BadInputError: columns are missing.
        """
        import pandas

        if missing := [name for name in self.columns if name not in table]:
            raise BadInputError(
                f"the table lacks {_listed(missing)}, which {self.id} needs; it has {_listed(list(table))}"
            )
        frame = pandas.DataFrame({name: table[name] for name in self.columns or table})
        named = hasattr(self.estimator, "feature_names_in_")
        numeric = all(dtype.kind in "iuf" for dtype in frame.dtypes)
        return frame if named or not numeric else frame.to_numpy()


class SklearnBackend(FileBackend):
    """Runs scikit-learn models."""

    name = "sklearn"
    needs = ("skops", "sklearn", "pandas")
    extra = "tabular"
    library = "scikit-learn"
    libraries = (None, "sklearn", "scikit-learn", "skops")
    tasks = TABULAR_TASKS

    def mismatch(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return why scikit-learn does not fit; a .skops file fits whatever library is stated."""
        if spec.name in self.tasks and _skops_files(candidate.path):
            return None
        return super().mismatch(spec, candidate)

    def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Find the .skops file, check the types in it, and load it."""
        import sklearn.base

        folder = model_folder(candidate, settings, SKOPS)
        described = read_json(folder / "config.json").get("sklearn")
        described = described if isinstance(described, dict) else {}
        file = _model_file(candidate, folder, described)
        estimator = _load_estimator(candidate, file, settings)
        if not getattr(sklearn.base, TABULAR_TASKS[spec.name])(estimator):
            raise UnsupportedError(
                f"{candidate.id} is a {type(estimator).__name__}, which does not do {spec.name}"
            )
        names = getattr(estimator, "feature_names_in_", None)
        columns = tuple(map(str, names)) if names is not None else strings(described.get("columns"))
        return TableModel(candidate.id, estimator, columns, file.stat().st_size)


def _model_file(candidate: Candidate, folder: Path, described: dict[str, Any]) -> Path:
    """Return the .skops file: the candidate's path, the one named in config.json, or the only one."""
    if candidate.path is not None and candidate.path.is_file():
        return candidate.path
    model = described.get("model")
    name = model.get("file") if isinstance(model, dict) else None
    files = _skops_files(folder)
    named = [file for file in files if file.name == name]
    if len(named or files) == 1:
        return (named or files)[0]
    several = ", ".join(file.name for file in files)
    raise UnsupportedError(f"{candidate.id} has {several}; its config.json must say which is the model")


def _load_estimator(candidate: Candidate, file: Path, settings: Settings) -> Any:
    """Return the estimator in a .skops file.

    Raises:
        UnsupportedError: it holds types that are not trusted.
    """
    from skops.io import get_untrusted_types, load

    untrusted = get_untrusted_types(file=file)
    if untrusted and not settings.trust_remote_code:
        raise UnsupportedError(
            f"{candidate.id} holds objects of types that could do harm when they are loaded or used: "
            f"{_listed(untrusted)}; if you trust it, allow it with JARVIS_TRUST_REMOTE_CODE=1"
        )
    return load(file, trusted=untrusted)


def _skops_files(path: Path | None) -> list[Path]:
    if path is None:
        return []
    return [path] if path.suffix == ".skops" else sorted(path.glob("*.skops"))


def _listed(names: Sequence[str]) -> str:
    return brief_text(", ".join(map(repr, names)))
