"""Tiny scikit-learn models of tables like the tests' table: functions that save one in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def rows_of() -> Any:
    """Sixty rows of random numbers as a data frame."""
    import numpy as np
    import pandas

    columns = ["month", "sales", "rain"]
    drawn = np.random.default_rng(0).uniform(0, 24, (60, len(columns)))
    return pandas.DataFrame(drawn, columns=columns)


def dump(folder: Path, estimator: Any) -> None:
    import skops.io

    skops.io.dump(estimator, folder / "model.skops")


def describe(folder: Path, columns: list[str], file: str = "model.skops") -> None:
    """Write a config.json like those of skops' hub tools."""
    told = {"sklearn": {"columns": columns, "environment": [], "model": {"file": file}}}
    (folder / "config.json").write_text(json.dumps(told))


def _logistic(folder: Path) -> None:
    """A classifier behind a scaler, which knows its columns: high or low sales."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = rows_of()
    labels = ["high" if sales > 12 else "low" for sales in rows["sales"]]
    dump(folder, make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels))


def _bare(folder: Path) -> None:
    """A classifier fitted on bare numbers: only config.json names the columns and their order."""
    from sklearn.linear_model import LogisticRegression

    rows = rows_of()[["sales", "month"]].to_numpy()
    dump(folder, LogisticRegression().fit(rows, rows[:, 0] > 12))
    describe(folder, columns=["sales", "month"])


def _linear(folder: Path) -> None:
    """A regression: twice the month, and the rain."""
    from sklearn.linear_model import LinearRegression

    rows = rows_of()
    dump(folder, LinearRegression().fit(rows, 2 * rows["month"] + rows["rain"]))


def _forest(folder: Path) -> None:
    """A model of decision trees, whose type skops does not trust."""
    from sklearn.ensemble import RandomForestRegressor

    rows = rows_of()
    dump(folder, RandomForestRegressor(5, random_state=0).fit(rows, rows["sales"]))


ESTIMATORS: dict[str, Callable[[Path], None]] = {
    "logistic": _logistic,
    "bare": _bare,
    "linear": _linear,
    "forest": _forest,
}
