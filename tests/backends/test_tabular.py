"""Models of tables and of time series: which files are loaded and refused, and what is done with columns."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends import local
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hub.model_card import model_at
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import BadInputError, MissingExtraError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource

pytest.importorskip("skops")
pytest.importorskip("chronos")

import tiny_tabular

from jarvis_agent.backends.tabular import time_series as chronos
from jarvis_agent.backends.tabular.sklearn import SklearnBackend
from jarvis_agent.backends.tabular.time_series import ChronosBackend

Build = Callable[[Path], None]
BACKENDS: dict[str, type[LocalBackend]] = {
    "tabular-classification": SklearnBackend,
    "tabular-regression": SklearnBackend,
    "time-series-forecasting": ChronosBackend,
}


Ask = Callable[..., Any]


@pytest.fixture
def ask(pool: ModelPool, tmp_path: Path) -> Ask:
    """What the model at a path answers for a table."""

    def ask(task: str, path: Path, table: str, *, settings: Settings | None = None, **inputs: Any) -> Any:
        file = tmp_path / "asked.csv"
        file.write_text(table)
        candidate = Candidate(id="org/model", task=task, **model_at(path))
        settings = settings or Settings(device="cpu")
        backend: Any = BACKENDS[task](pool)
        assert backend.unsupported_reason(TASKS[task], candidate) is None
        given = {"table": Resource(kind="table", path=file), **inputs}
        return asyncio.run(backend.run(Call(TASKS[task], candidate, given, Path, settings)))

    return ask


def test_the_table_may_have_its_columns_in_any_order_and_others_too(ask: Ask, built: Any) -> None:
    straight = "month,sales,rain\n1,2,3\n4,5,6\n"
    mixed = "rain,note,sales,month\n3,x,2,1\n6,y,5,4\n"
    first = ask("tabular-regression", built(tiny_tabular.linear), straight)
    assert first == ask("tabular-regression", built(tiny_tabular.linear), mixed)
    assert first["probabilities"] is first["classes"] is None
    assert first["predictions"] == [pytest.approx(5), pytest.approx(14)]


def test_the_order_of_the_columns_is_that_of_the_config_where_the_model_does_not_know_it(
    ask: Ask, built: Any
) -> None:
    raw = ask("tabular-classification", built(tiny_tabular.bare), "month,sales\n1,23\n23,1\n")
    assert raw["predictions"] == [True, False]
    assert raw["classes"] == [False, True]
    assert [row[1] > 0.5 for row in raw["probabilities"]] == [True, False]


def test_columns_that_are_missing_are_named(ask: Ask, built: Any) -> None:
    with pytest.raises(BadInputError, match=r"lacks 'month', 'rain', which org/model needs; it has 'sales'"):
        ask("tabular-regression", built(tiny_tabular.linear), "sales\n1\n")


def test_a_table_that_the_model_can_not_take_leaves_the_others_their_chance(ask: Ask, built: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"org/model cannot take this table: .*'much'"):
        ask("tabular-regression", built(tiny_tabular.linear), "month,sales,rain\n1,much,2\n")


def test_text_columns_reach_models_that_were_fitted_on_them(ask: Ask, tmp_path: Path) -> None:
    import pandas
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rows = pandas.DataFrame({"city": ["Oslo", "Rome"] * 5, "n": range(10)})
    encoded = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    model = make_pipeline(encoded, LogisticRegression()).fit(rows, ["cold", "warm"] * 5)
    tiny_tabular.dump(tmp_path, model)
    raw = ask("tabular-classification", tmp_path, "n,city\n3,Rome\n3,Oslo\n")
    assert raw["predictions"] == ["warm", "cold"]


def test_a_model_for_the_other_task_is_refused(ask: Ask, built: Any) -> None:
    with pytest.raises(UnsupportedError, match="is a LinearRegression, which does not do tabular-class"):
        ask("tabular-classification", built(tiny_tabular.linear), "month,sales,rain\n1,2,3\n")


def test_a_pickle_is_refused_even_where_pickles_are_allowed(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(b"\x80\x04N.")
    tiny_tabular.describe(tmp_path, columns=["a"], file="model.pkl")
    candidate = Candidate(id="org/model", task="tabular-regression", path=tmp_path, library="sklearn")
    backend = SklearnBackend(ModelPool(10**9))
    for settings in (Settings(), Settings(allow_pickle=True, trust_remote_code=True)):
        with pytest.raises(UnsupportedError, match=r"only as a pickle.*never loaded.*skops"):
            backend.load(TASKS["tabular-regression"], candidate, settings)


def test_types_that_could_run_code_are_refused_by_name_unless_allowed(ask: Ask, tmp_path: Path) -> None:
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    rows = tiny_tabular.rows_of()
    model = make_pipeline(FunctionTransformer(json.dumps, validate=False), LinearRegression())
    model.steps[1][1].fit(rows, rows["month"])
    model.steps[0][1].fit(rows)
    tiny_tabular.dump(tmp_path, model)
    with pytest.raises(UnsupportedError, match=r"'json\.dumps'; if you trust it.*JARVIS_TRUST_REMOTE_CODE"):
        ask("tabular-regression", tmp_path, "month,sales,rain\n1,2,3\n")
    candidate = Candidate(id="org/model", task="tabular-regression", path=tmp_path, local=True)
    trusting = Settings(trust_remote_code=True)
    spec = TASKS["tabular-regression"]
    assert SklearnBackend(ModelPool(10**9)).load(spec, candidate, trusting) is not None


def test_decision_trees_need_to_be_allowed(ask: Ask, built: Any) -> None:
    table = "month,sales,rain\n1,2,3\n"
    with pytest.raises(UnsupportedError, match=r"sklearn\.tree\._tree\.Tree.*JARVIS_TRUST_REMOTE_CODE"):
        ask("tabular-regression", built(tiny_tabular.forest), table)
    trusting = Settings(device="cpu", trust_remote_code=True)
    raw = ask("tabular-regression", built(tiny_tabular.forest), table, settings=trusting)
    assert raw["predictions"] == [pytest.approx(2, abs=4)]


def test_of_several_models_the_config_says_which(ask: Ask, built: Any, tmp_path: Path) -> None:
    shutil.copy(built(tiny_tabular.linear) / "model.skops", tmp_path / "new.skops")
    shutil.copy(built(tiny_tabular.forest) / "model.skops", tmp_path / "old.skops")
    table = "month,sales,rain\n1,2,3\n"
    with pytest.raises(UnsupportedError, match=r"org/model has new.skops, old.skops; its config.json must"):
        ask("tabular-regression", tmp_path, table)
    assert ask("tabular-regression", tmp_path / "new.skops", table)["predictions"] == [pytest.approx(5)]
    tiny_tabular.describe(tmp_path, columns=[], file="new.skops")
    assert ask("tabular-regression", tmp_path, table)["predictions"] == [pytest.approx(5)]


def test_a_damaged_file_is_refused_by_name(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "model.skops").write_bytes(b"nonsense")
    with pytest.raises(UnsupportedError, match="org/model cannot be loaded for tabular-regression"):
        ask("tabular-regression", tmp_path, "a\n1\n")


CHRONOS = [tiny_tabular.chronos_bolt, tiny_tabular.chronos_t5, tiny_tabular.chronos_2]


@pytest.mark.parametrize("build", CHRONOS, ids=lambda build: build.__name__)
def test_each_number_column_is_forecast_with_bounds(ask: Ask, built: Any, build: Build) -> None:
    table = "Date,shop,sales,rain\n" + "".join(f"2024-01-{n:02},a,{n},{n % 3}\n" for n in range(1, 29))
    raw = ask("time-series-forecasting", built(build), table, horizon="10")
    assert [row["series"] for row in raw] == ["sales", "rain"]
    for row in raw:
        assert len(row["values"]) == 10
        bounds = zip(row["low"], row["values"], row["high"], strict=True)
        assert all(low <= value <= high for low, value, high in bounds)
    again = ask("time-series-forecasting", built(build), table, horizon=10)
    assert again == raw


def test_gaps_and_series_of_different_lengths_are_forecast(ask: Ask, built: Any) -> None:
    table = "a,b\n1,\n,\n3,\n4,7\n5,8\n"
    raw = ask("time-series-forecasting", built(tiny_tabular.chronos_bolt), table)
    assert [(row["series"], len(row["values"])) for row in raw] == [("a", 12), ("b", 12)]


@pytest.mark.parametrize("name", ["month", "Date", "order_date", "timestamp (UTC)", "", "Unnamed: 0", "ds"])
def test_a_column_that_tells_the_time_is_not_forecast(name: str) -> None:
    assert list(chronos.series_of({name: [1, 2], "updates": [3, 4], "time_spent": [5.0, None]})) == [
        "updates",
        "time_spent",
    ]


def test_a_table_without_series_is_refused() -> None:
    with pytest.raises(
        BadInputError, match="no column of numbers to forecast; its columns are 'year', 'city'"
    ):
        chronos.series_of({"year": [1, 2], "city": ["Oslo", None]})


@pytest.mark.parametrize("horizon", ["soon", "0", -1, 1025, 2.5, True, [3]])
def test_a_horizon_that_makes_no_sense_is_refused(ask: Ask, built: Any, horizon: Any) -> None:
    with pytest.raises(BadInputError, match="whole number from 1 to 1024"):
        ask("time-series-forecasting", built(tiny_tabular.chronos_bolt), "a\n1\n2\n", horizon=horizon)


def test_forecasting_weights_that_are_a_pickle_are_refused(ask: Ask, built: Any, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    folder = Path(shutil.copytree(built(tiny_tabular.chronos_bolt), tmp_path / "copy"))
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsupportedError, match="only as a pickle"):
        ask("time-series-forecasting", folder, "a\n1\n2\n")


@pytest.mark.parametrize(
    ("task", "about", "reason"),
    [
        ("tabular-regression", {"library": "sklearn"}, None),
        ("tabular-regression", {"library": "xgboost"}, "it is made for xgboost, not for scikit-learn"),
        ("tabular-regression", {"library": "sklearn", "size": 10**12}, "JARVIS_MAX_DOWNLOAD"),
        ("time-series-forecasting", {"library": "chronos-forecasting"}, None),
        ("time-series-forecasting", {"library": "transformers", "id": "amazon/chronos-t5-tiny"}, None),
        ("time-series-forecasting", {"library": "timesfm"}, "it is made for timesfm, not for Chronos"),
        (
            "time-series-forecasting",
            {"library": "transformers"},
            "it is made for transformers, not for Chronos",
        ),
    ],
)
def test_what_can_be_run_is_told_before_anything_is_loaded(
    pool: ModelPool, task: str, about: dict[str, Any], reason: str | None
) -> None:
    candidate = Candidate(**{"id": "org/model", "task": task, **about})
    found = BACKENDS[task](pool, Settings(offline=False)).unsupported_reason(TASKS[task], candidate)
    assert found is None if reason is None else reason in (found or "")


@pytest.mark.parametrize("task", BACKENDS)
def test_a_missing_extra_is_named(pool: ModelPool, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    missing = {"skops", "chronos"}
    monkeypatch.setattr(local, "find_spec", lambda name: None if name in missing else find_spec(name))
    library = "chronos-forecasting" if task == chronos.FORECASTING else "sklearn"
    candidate = Candidate(id="org/model", task=task, library=library, local=True)
    backend = BACKENDS[task](pool)
    assert 'needs the extra "tabular"' in (backend.unsupported_reason(TASKS[task], candidate) or "")
    with pytest.raises(MissingExtraError, match="tabular"):
        backend.load(TASKS[task], candidate, Settings())
