"""Models of tables: scikit-learn models from .skops files, and Chronos models, which forecast time series.

A .skops file lists the types of its objects. Types that skops trusts are loaded; all others, including
decision trees, need JARVIS_TRUST_REMOTE_CODE=1. Pickles are never loaded. Chronos models are Chronos-Bolt,
Chronos-2, and those based on T5; each numeric column is one series, and a column of dates orders the rows.
"""

import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.utils.iter import batch_iterate

from jarvis_agent.backends.base import Call, Expert, whole_number
from jarvis_agent.backends.devices import choose_device, pick_dtype, seeded
from jarvis_agent.backends.hub.model_card import read_json, strings
from jarvis_agent.backends.hub.snapshot import SKOPS, model_folder
from jarvis_agent.backends.jobs import until_cancelled
from jarvis_agent.backends.local import LOADING, FileBackend, LoadedExpert
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.text import brief_text
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.tables import Table

TABULAR_TASKS = {"tabular-classification": "is_classifier", "tabular-regression": "is_regressor"}
"""Task type → function of sklearn.base that recognises its models."""


def predict(estimator: Any, call: Call, columns: Sequence[str]) -> dict[str, Any]:
    """Return {predictions, probabilities}; `columns` are those that the estimator was fitted on, if known."""
    import pandas

    table, model = call.table().columns, call.candidate.id
    if missing := [name for name in columns if name not in table]:
        raise BadInputError(
            f"the table lacks {_listed(missing)}, which {model} needs; it has {_listed(list(table))}"
        )
    rows: Any = pandas.DataFrame({name: table[name] for name in columns or table})
    is_named = hasattr(estimator, "feature_names_in_")
    if not is_named and all(dtype.kind in "iuf" for dtype in rows.dtypes):
        rows = rows.to_numpy()
    weighs = call.spec.name == "tabular-classification" and hasattr(estimator, "predict_proba")
    try:
        predictions = estimator.predict(rows)
        chances = estimator.predict_proba(rows) if weighs else None
    except ValueError as error:
        raise UnsupportedError(f"{model} cannot take this table", detail=error) from error
    return {
        "predictions": predictions.tolist(),
        "probabilities": None if chances is None else chances.tolist(),
    }


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
        import sklearn.base
        from skops.io import get_untrusted_types, load

        folder = model_folder(candidate, settings, SKOPS)
        described = read_json(folder / "config.json").get("sklearn")
        described = described if isinstance(described, dict) else {}
        file = _model_file(candidate, folder, described)
        untrusted = get_untrusted_types(file=file)
        if untrusted and not settings.trust_remote_code:
            raise UnsupportedError(
                f"{candidate.id} holds objects of types that could do harm when they are loaded or used: "
                f"{_listed(untrusted)}",
                advice="if you trust it, allow it with JARVIS_TRUST_REMOTE_CODE=1",
            )
        estimator = load(file, trusted=untrusted)
        if not getattr(sklearn.base, TABULAR_TASKS[spec.name])(estimator):
            raise UnsupportedError(
                f"{candidate.id} is a {type(estimator).__name__}, which does not do {spec.name}"
            )
        names = getattr(estimator, "feature_names_in_", None)
        columns = tuple(map(str, names)) if names is not None else strings(described.get("columns"))
        return LoadedExpert(estimator, partial(predict, columns=columns), nbytes=file.stat().st_size)


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


def _skops_files(path: Path | None) -> list[Path]:
    if path is None:
        return []
    return [path] if path.suffix == ".skops" else sorted(path.glob("*.skops"))


def _listed(names: Sequence[str]) -> str:
    return brief_text(", ".join(map(repr, names)))


HORIZON, MAX_HORIZON = 12, 1024
"""Rows to forecast: default and maximum."""

BATCH = 32
"""Series that are forecast at once."""

QUANTILES = [0.1, 0.5, 0.9]
"""Lower bound, forecast and upper bound: 80 % of true values lie between the bounds."""

_TIME = re.compile(
    r"(.*[\W_])?(date|datetime|timestamp)([\W_].*)?"
    r"|time|year|quarter|month|week|day|weekday|hour|minute|second|period|ds|index|unnamed: 0|",
    re.IGNORECASE,
)
"""Names of columns that hold times or row numbers; the empty name is one of them."""

_DATED = re.compile(r"\d{4}[-/]\d|\d+[-/. ]\w+[-/. ]\d|[^\W\d]+\W+\d{4}$")
"""How dates begin; pandas reads them."""

_CHINESE_DATE = str.maketrans("年月", "--", "日")


def forecast(pipeline: Any, call: Call) -> list[dict[str, Any]]:
    """Return [{series, values, low, high}] of a Chronos pipeline."""
    import torch

    horizon = whole_number(call, "horizon", MAX_HORIZON) or HORIZON
    series = series_of(call.table(), call.notes)
    contexts = [
        torch.tensor([float("nan") if cell is None else cell for cell in cells], dtype=torch.float32)
        for cells in series.values()
    ]
    with seeded(call.settings.seed), warnings.catch_warnings():  # the models based on T5 draw samples
        # The bounds show how uncertain a long forecast is.
        warnings.filterwarnings("ignore", message="We recommend keeping prediction length")
        quantiles: list[Any] = []
        for batch in until_cancelled(batch_iterate(BATCH, contexts)):
            rows, _ = pipeline.predict_quantiles(batch, prediction_length=horizon, quantile_levels=QUANTILES)
            quantiles += rows
    forecasts = []
    for name, rows in zip(series, quantiles, strict=True):
        if not rows.isfinite().all():
            raise UnsupportedError(f"the forecast of {name!r} is not finite; another model may do better")
        # Quantiles of a network may cross; sorting them does not make them worse (doi:10.3982/ECTA7880).
        low, values, high = rows.reshape(horizon, len(QUANTILES)).sort(dim=1).values.T.tolist()
        forecasts.append({"series": name, "values": values, "low": low, "high": high})
    return forecasts


class ChronosBackend(FileBackend):
    """Runs Chronos models."""

    name = "chronos"
    needs = ("torch", "transformers", "chronos", "pandas")
    extra = "tabular"
    library = "Chronos"
    libraries = ("chronos-forecasting", "chronos")
    tasks = ("time-series-forecasting",)

    def mismatch(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return why Chronos does not fit; models of transformers are recognised by config or name."""
        if spec.name not in self.tasks or candidate.library not in (None, "transformers"):
            return super().mismatch(spec, candidate)
        config = {} if candidate.path is None else read_json(candidate.path / "config.json")
        is_named = candidate.path is None and "chronos" in candidate.id.lower()
        is_chronos = is_named or "chronos_config" in config or "chronos_pipeline_class" in config
        return None if is_chronos else super().mismatch(spec, candidate)

    def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        from chronos import BaseChronosPipeline

        folder, device = model_folder(candidate, settings), choose_device(settings)
        with LOADING:
            pipeline = BaseChronosPipeline.from_pretrained(
                str(folder),
                dtype=pick_dtype(device),
                use_safetensors=None if settings.allow_pickle else True,
            )
            pipeline.inner_model.to(device).eval()
        return LoadedExpert(pipeline, forecast, [pipeline.inner_model])


def series_of(table: Table, notes: list[str]) -> dict[str, list[Any]]:
    """Return the columns to forecast: numbers that change, without times. Their rows are in order of time."""
    time, order = _find_order(table)
    if order != sorted(order):
        notes.append(Note("the rows were ordered by the dates in the column {name}", name=time))
    others = {
        name: cells for name, cells in table.columns.items() if name != time and not _TIME.fullmatch(name)
    }
    numeric = {
        name: cells
        for name, cells in others.items()
        if any(cell is not None for cell in cells) and not any(isinstance(cell, str) for cell in cells)
    }
    if not numeric:
        listed = ", ".join(map(repr, table.columns))
        raise BadInputError(f"the table has no column of numbers to forecast; its columns are {listed}")
    changing = {name: cells for name, cells in numeric.items() if len(set(cells)) > 1} or numeric
    for name, cells in others.items():
        if name in numeric.keys() - changing.keys():
            equal = "the column {name} was not forecast: its numbers are all equal"
            notes.append(Note(equal, name=name))
        elif name not in numeric and all(re.search(r"\d", str(cell or 0)) for cell in cells):
            text = "the column {name} was not forecast: it holds text, such as {text}"
            notes.append(Note(text, name=name, text=brief_text(str(cells[0]), 40)))
    return {name: [cells[row] for row in order] for name, cells in changing.items()}


def _find_order(table: Table) -> tuple[str | None, list[int]]:
    """Return the first column of dates, and the rows in order of time; None and all rows without one."""
    import pandas

    cells: list[str] = []
    for name, cells in table.cells.items():
        texts = [cell.strip().translate(_CHINESE_DATE) for cell in cells]
        if not _DATED.match(texts[0]) and not (_TIME.fullmatch(name) and texts[0][:4].isdecimal()):
            continue
        dates: list[Any] = []
        for is_day_first in (False, True) if "." not in texts[0] else (True, False):
            with suppress(ValueError, OverflowError), warnings.catch_warnings(action="ignore"):
                dates.append(pandas.to_datetime(pandas.Series(texts), dayfirst=is_day_first, utc=True))
        if dates := [column for column in dates if not column.hasnans]:
            ordered = (
                column for column in dates if column.is_monotonic_increasing or column.is_monotonic_decreasing
            )
            days = next(ordered, dates[0]).tolist()
            is_newest_first = days[0] > days[-1]
            return name, sorted(range(len(days))[:: -1 if is_newest_first else 1], key=days.__getitem__)
    return None, list(range(len(cells)))
