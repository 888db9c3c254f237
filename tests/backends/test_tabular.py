"""Models of tables and of time series: which files are loaded and refused, and what is done with columns."""

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tiny_tabular
from libraries import needs
from model_bench import Bench, as_pickle

from jarvis_agent.backends import jobs, local, tabular
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.tabular import ChronosBackend, SklearnBackend, series_of
from jarvis_agent.core.errors import BadInputError, ExpertError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.media.tables import Columns, Table

needs("skops")
needs("chronos")

pytestmark = pytest.mark.slow

CLASSIFY, REGRESS, FORECAST = "tabular-classification", "tabular-regression", "time-series-forecasting"
BACKENDS: dict[str, type[LocalBackend]] = {
    CLASSIFY: SklearnBackend,
    REGRESS: SklearnBackend,
    FORECAST: ChronosBackend,
}
ROW = "month,sales,rain\n1,2,3\n"
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def benches(built: Any, media: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bench]:
    return {
        task: Bench(kind, built, media, tmp_path_factory.mktemp("made")) for task, kind in BACKENDS.items()
    }


@pytest.fixture
def ask(benches: dict[str, Bench], tmp_path: Path) -> Ask:
    """What a model answers for a table."""

    def ask(task: str, model: str | Path, table: str = ROW, **given: Any) -> Any:
        file = tmp_path / "asked.csv"
        file.write_text(table)
        return benches[task].ask(task, model, table=Resource(kind="table", path=file), **given)

    return ask


def test_the_table_may_have_its_columns_in_any_order_and_others_too(ask: Ask) -> None:
    first = ask(REGRESS, "linear", "month,sales,rain\n1,2,3\n4,5,6\n")
    assert first == ask(REGRESS, "linear", "rain,note,sales,month\n3,x,2,1\n6,y,5,4\n")
    assert first["probabilities"] is None
    assert first["predictions"] == [pytest.approx(5), pytest.approx(14)]


def test_tables_and_tasks_that_do_not_fit_are_refused(ask: Ask) -> None:
    with pytest.raises(BadInputError, match=r"lacks 'month', 'rain', which org/model needs; it has 'sales'"):
        ask(REGRESS, "linear", "sales\n1\n")
    with pytest.raises(UnsupportedError, match=r"org/model cannot take this table: .*'much'"):
        ask(REGRESS, "linear", "month,sales,rain\n1,much,2\n")
    with pytest.raises(UnsupportedError, match="is a LinearRegression, which does not do tabular-class"):
        ask(CLASSIFY, "linear")


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
    assert ask(CLASSIFY, tmp_path, "n,city\n3,Rome\n3,Oslo\n")["predictions"] == ["warm", "cold"]


def test_pickles_are_refused_even_where_they_are_allowed(
    tmp_path: Path, ask: Ask, copied: Callable[[str], Path]
) -> None:
    (tmp_path / "model.pkl").write_bytes(b"\x80\x04N.")
    tiny_tabular.describe(tmp_path, columns=["a"], file="model.pkl")
    candidate = Candidate(id="org/model", task=REGRESS, path=tmp_path, library="sklearn")
    backend = SklearnBackend(Settings(), ModelPool(10**9))
    for settings in (Settings(), Settings(allow_pickle=True, trust_remote_code=True)):
        with pytest.raises(UnsupportedError, match=r"only as a pickle.*never loaded.*skops"):
            backend.load(TASKS[REGRESS], candidate, settings)
    folder = copied("chronos_bolt")
    as_pickle(folder / "model.safetensors")
    with pytest.raises(UnsupportedError, match="only as a pickle"):
        ask(FORECAST, folder, "a\n1\n2\n")


def test_types_that_could_do_harm_are_refused_by_name_unless_allowed(ask: Ask, tmp_path: Path) -> None:
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    rows = tiny_tabular.rows_of()
    model = make_pipeline(FunctionTransformer(json.dumps, validate=False), LinearRegression())
    model.steps[1][1].fit(rows, rows["month"])
    model.steps[0][1].fit(rows)
    tiny_tabular.dump(tmp_path, model)
    refused = r"'json\.dumps'\. What helps: if you trust it.*JARVIS_TRUST_REMOTE_CODE"
    with pytest.raises(UnsupportedError, match=refused):
        ask(REGRESS, tmp_path)
    with pytest.raises(UnsupportedError, match=r"sklearn\.tree\._tree\.Tree.*JARVIS_TRUST_REMOTE_CODE"):
        ask(REGRESS, "forest")
    raw = ask(REGRESS, "forest", settings={"trust_remote_code": True})
    assert raw["predictions"] == [pytest.approx(2, abs=4)]


def test_of_several_models_the_config_names_one_that_is_whole(ask: Ask, built: Any, tmp_path: Path) -> None:
    folder = tmp_path / "several"
    folder.mkdir()
    shutil.copy(built("linear") / "model.skops", folder / "new.skops")
    (folder / "old.skops").write_bytes(b"nonsense")
    with pytest.raises(UnsupportedError, match=r"org/model has new.skops, old.skops; its config.json must"):
        ask(REGRESS, folder)
    assert ask(REGRESS, folder / "new.skops")["predictions"] == [pytest.approx(5)]
    with pytest.raises(UnsupportedError, match="org/model cannot be loaded for tabular-regression"):
        ask(REGRESS, folder / "old.skops")
    tiny_tabular.describe(folder, columns=[], file="new.skops")
    assert ask(REGRESS, folder)["predictions"] == [pytest.approx(5)]


def test_each_number_column_is_forecast_with_bounds(ask: Ask) -> None:
    table = "Date,shop,sales,rain\n" + "".join(f"2024-01-{n:02},a,{n},{n % 3}\n" for n in range(1, 29))
    raw = ask(FORECAST, "chronos_bolt", table, horizon="10")
    assert [(row["series"], len(row["values"])) for row in raw] == [("sales", 10), ("rain", 10)]
    bounds = [bound for row in raw for bound in zip(row["low"], row["values"], row["high"], strict=True)]
    assert all(low <= value <= high for low, value, high in bounds)
    assert ask(FORECAST, "chronos_bolt", table, horizon=10) == raw
    raw = ask(FORECAST, "chronos_bolt", "a,b\n1,\n,\n3,\n4,7\n5,8\n")  # gaps, and other lengths
    assert [(row["series"], len(row["values"])) for row in raw] == [("a", 12), ("b", 12)]
    with pytest.raises(BadInputError, match="whole number from 1 to 1024"):
        ask(FORECAST, "chronos_bolt", table, horizon="soon")


def test_many_columns_are_forecast_in_batches(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    table = "a,b,c\n" + "".join(f"{n},{n % 3},{n % 5}\n" for n in range(1, 29))
    whole = ask(FORECAST, "chronos_bolt", table)
    monkeypatch.setattr(tabular, "BATCH", 2)
    parts = ask(FORECAST, "chronos_bolt", table)
    assert [row["series"] for row in parts] == ["a", "b", "c"]
    for one, other in zip(whole, parts, strict=True):
        assert one["values"] == pytest.approx(other["values"], abs=1e-4)
    monkeypatch.setattr(jobs, "is_cancelled", lambda: True)
    with pytest.raises(ExpertError, match="stopped"):
        ask(FORECAST, "chronos_bolt", table)


def test_columns_of_times_are_not_forecast() -> None:
    for name in ("month", "Date", "order_date", "timestamp (UTC)", "", "Unnamed: 0", "ds"):
        columns: Columns = {name: [1, 2], "updates": [3, 4], "time_spent": [5.0, None]}
        assert list(series_of(_table(columns), [])) == ["updates", "time_spent"]
    error = "no column of numbers to forecast; its columns are 'year', 'city'"
    with pytest.raises(BadInputError, match=error):
        series_of(_table({"year": [1, 2], "city": ["Oslo", None]}), [])


def _table(columns: Columns) -> Table:
    texts = {name: ["" if cell is None else str(cell) for cell in cells] for name, cells in columns.items()}
    return Table(columns, texts, [])


@pytest.mark.parametrize(
    ("name", "dates", "order"),
    [
        ("day", ["2026-01-03", "2026-01-02", "2026-01-01"], [2, 1, 0]),
        ("Datum", ["03.02.2026", "01.03.2026", "02.02.2026"], [2, 0, 1]),
        ("when", ["02/13/2026", "02/14/2026", "02/01/2026"], [2, 0, 1]),
        ("m", ["Mar 2026", "Jan 2026", "Feb 2026"], [1, 2, 0]),
        ("日期", ["2026年3月1日", "2026年1月1日", "2026年2月1日"], [1, 2, 0]),
        ("year", [2022, 2020, 2021], [1, 2, 0]),
        ("day", ["2026-01-02", "2026-01-02", "2026-01-01"], [2, 1, 0]),
        ("month", ["Nov", "Dec", "Jan"], [0, 1, 2]),
        ("time", ["22:00", "23:00", "00:00"], [0, 1, 2]),
        ("week", [51, 52, 1], [0, 1, 2]),
        ("month", ["01/02/2026", "01/03/2026", "01/04/2026"], [0, 1, 2]),
    ],
)
def test_rows_are_forecast_in_the_order_of_their_dates(name: str, dates: list[Any], order: list[int]) -> None:
    notes: list[str] = []
    assert series_of(_table({name: dates, "v": [5, 6, 8]}), notes) == {"v": [[5, 6, 8][row] for row in order]}
    note = f"the rows were ordered by the dates in the column {name}"
    assert notes == ([] if order == [0, 1, 2] else [note])


def test_numbers_that_are_no_series_are_left_out_by_name() -> None:
    notes: list[str] = []
    columns: Columns = {"shop": ["a", "b"], "zip": ["01234", "00501"], "store": [7, 7], "sales": [1234, 2500]}
    assert series_of(_table(columns), notes) == {"sales": [1234, 2500]}
    assert notes == [
        "the column zip was not forecast: it holds text, such as 01234",
        "the column store was not forecast: its numbers are all equal",
    ]
    assert series_of(_table({"store": [7, 7]}), notes) == {"store": [7, 7]}


def test_what_can_be_run_is_known_before_loading(pool: ModelPool, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[tuple[str, dict[str, Any], str | None]] = [
        (REGRESS, {"library": "sklearn"}, None),
        (REGRESS, {"library": "xgboost"}, "it is made for xgboost, not for scikit-learn"),
        (REGRESS, {"library": "sklearn", "size": 10**12}, "JARVIS_MAX_DOWNLOAD"),
        (FORECAST, {"library": "chronos-forecasting"}, None),
        (FORECAST, {"library": "transformers", "id": "amazon/chronos-t5-tiny"}, None),
        (FORECAST, {"library": "transformers"}, "it is made for transformers, not for Chronos"),
    ]
    for task, about, reason in rows:
        candidate = Candidate(**{"id": "org/model", "task": task, **about})
        found = BACKENDS[task](Settings(offline=False), pool).unsupported_reason(TASKS[task], candidate)
        assert found is None if reason is None else reason in (found or ""), about
    missing = {"skops", "chronos"}
    monkeypatch.setattr(local, "find_spec", lambda name: None if name in missing else find_spec(name))
    for task, library in ((REGRESS, "sklearn"), (FORECAST, "chronos-forecasting")):
        candidate = Candidate(id="org/model", task=task, library=library, local=True)
        backend = BACKENDS[task](Settings(), pool)
        assert 'needs the extra "tabular"' in (backend.unsupported_reason(TASKS[task], candidate) or "")
