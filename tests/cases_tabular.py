"""Cases for tests/test_every_task.py: tables. The table has 24 rows: month, sales = 2 · month, rain."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tiny_tabular
from task_case import Artifact, Case, files

from jarvis_agent.core.types import Resource
from jarvis_agent.media.tables import Columns, read_table

ROWS = 24


def _table(artifact: Artifact) -> Columns:
    (path,) = files(artifact, "table")
    return read_table(Resource(kind="table", path=path))


def _predicts(*labels: str) -> Callable[[Artifact], None]:
    """A check of a label for each row, by the sales, in the output and in the file."""

    def check(artifact: Artifact) -> None:
        expected = [labels[month * 2 > 12] for month in range(ROWS)]
        predicted = artifact["output"]
        assert sum(a == b for a, b in zip(predicted, expected, strict=True)) >= ROWS - 2
        table = _table(artifact)
        assert table["month"] == list(range(ROWS))
        assert table["prediction"] == predicted
        assert all(isinstance(chance, float) and 0.5 <= chance <= 1 for chance in table["probability"])

    return check


def _adds_up(artifact: Artifact) -> None:
    expected = [2 * month + month % 3 for month in range(ROWS)]
    assert artifact["output"] == pytest.approx(expected, abs=0.01)
    assert _table(artifact)["prediction"] == pytest.approx(expected, abs=0.01)


def _forecasts(horizon: int) -> Callable[[Artifact], None]:
    """A check of forecasts of the two columns that do not tell the time, with their bounds."""

    def check(artifact: Artifact) -> None:
        names = {f"{series}{side}" for series in ("sales", "rain") for side in ("", "_low", "_high")}
        assert [row["step"] for row in artifact["output"]] == list(range(1, horizon + 1))
        assert all(row.keys() == {"step", *names} for row in artifact["output"])
        assert _table(artifact)["sales"] == pytest.approx([row["sales"] for row in artifact["output"]])

    return check


SAMPLES = {"table": "@table"}

CASES: list[Case] = [
    Case("tabular-classification", SAMPLES, _predicts("low", "high"), tiny_tabular.logistic),
    Case("tabular-classification", SAMPLES, _predicts("False", "True"), tiny_tabular.bare),
    Case("tabular-regression", SAMPLES, _adds_up, tiny_tabular.linear),
    Case("time-series-forecasting", SAMPLES, _forecasts(12), tiny_tabular.chronos_bolt),
    Case("time-series-forecasting", {**SAMPLES, "horizon": "5"}, _forecasts(5), tiny_tabular.chronos_t5),
    Case("time-series-forecasting", {**SAMPLES, "horizon": 20}, _forecasts(20), tiny_tabular.chronos_2),
]
