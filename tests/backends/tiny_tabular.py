"""Tiny scikit-learn models of tables like the tests' table: functions that save one in a folder."""

import json
from collections.abc import Callable
from functools import partial
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
    config = {"sklearn": {"columns": columns, "environment": [], "model": {"file": file}}}
    (folder / "config.json").write_text(json.dumps(config))


def _save(name: str, folder: Path) -> None:
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = rows_of()
    high = rows["sales"] > 12
    if name == "logistic":  # a classifier behind a scaler, which knows its columns
        labels = high.map({True: "high", False: "low"})
        dump(folder, make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels))
    elif name == "bare":  # fitted on numbers: only config.json names the columns and their order
        dump(folder, LogisticRegression().fit(rows[["sales", "month"]].to_numpy(), high))
        describe(folder, columns=["sales", "month"])
    elif name == "linear":
        dump(folder, LinearRegression().fit(rows, 2 * rows["month"] + rows["rain"]))
    else:  # decision trees, a type that skops does not trust
        dump(folder, RandomForestRegressor(5, random_state=0).fit(rows, rows["sales"]))


ESTIMATORS: dict[str, Callable[[Path], None]] = {
    name: partial(_save, name) for name in ("logistic", "bare", "linear", "forest")
}
