"""Adapters of tables, forecasts and answers from tables, and of words and pages that are ranked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from result_bench import Adapting, a_call, a_photo, a_table, adapting_in, kinds

from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.media.tables import read_table
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource

np = pytest.importorskip("numpy")

NAN = float("nan")


@pytest.fixture
def table(tmp_path: Path) -> Resource:
    return a_table(tmp_path)


@pytest.fixture
def adapting(tmp_path: Path) -> Adapting:
    return adapting_in(tmp_path)


def written(resources: list[Resource]) -> dict[str, list[Any]]:
    """The one table among the resources, read back."""
    (file,) = (resource for resource in resources if resource.kind == "table")
    assert file.mime == "text/csv"
    return read_table(file)


def test_labels_stand_beside_the_rows_they_are_of(adapting: Adapting, table: Resource) -> None:
    raw = {"predictions": np.array(["yes", "no", "yes"]), "probabilities": np.array([[0.9, 0.1]] * 3)}
    output, resources = adapting("tabular-classification", raw, table=table)
    assert output == ["yes", "no", "yes"]
    assert written(resources) == {
        "month": [1, 2, 3],
        "sales": [10, 20, 30],
        "prediction": ["yes", "no", "yes"],
        "probability": [0.9, 0.9, 0.9],
    }
    assert resources[-1].text == "3 rows: 2 yes, 1 no"


@pytest.mark.parametrize(
    ("predictions", "labels"),
    [
        ([0, 1, 1], ["0", "1", "1"]),
        (np.array([0.0, 1.0, 1.5]), ["0", "1", "1.5"]),
        (np.array([["a"], ["b"], ["c"]]), ["a", "b", "c"]),
        ([True, False, True], ["True", "False", "True"]),
    ],
)
def test_labels_are_texts(adapting: Adapting, table: Resource, predictions: Any, labels: list[str]) -> None:
    assert adapting("tabular-classification", {"predictions": predictions}, table=table)[0] == labels


def test_a_column_of_the_same_name_is_kept(adapting: Adapting, tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text("prediction\nno\nyes\n")
    found = Resource(kind="table", path=path)
    resources = adapting("tabular-classification", {"predictions": ["a", "b"]}, table=found)[1]
    assert written(resources) == {"prediction": ["no", "yes"], "prediction_new": ["a", "b"]}


def test_numbers_stand_beside_the_rows_they_are_of(adapting: Adapting, table: Resource) -> None:
    raw = {"predictions": np.array([[1.0], [2.0], [4.5]], np.float32)}
    output, resources = adapting("tabular-regression", raw, table=table)
    assert output == [1.0, 2.0, 4.5]
    assert written(resources)["prediction"] == [1.0, 2.0, 4.5]
    assert resources[-1].text == "3 rows: from 1 to 4.5, 2.5 on average"


@pytest.mark.parametrize("task", ["tabular-classification", "tabular-regression"])
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"predictions": [1, 2]}, "one prediction for each of the 3 rows"),
        ({"predictions": "abc"}, "one prediction for each"),
        ({"labels": [1, 2, 3]}, "{predictions}"),
        ({"predictions": [1.0, NAN, 2.0]}, "finite"),
        ({"predictions": [1, None, 2]}, "a (label|number) for each"),
    ],
)
def test_predictions_must_fit_the_rows(
    adapting: Adapting, table: Resource, task: str, raw: Any, expected: str
) -> None:
    with pytest.raises(UnsupportedError, match=expected):
        adapting(task, raw, table=table)


@pytest.mark.parametrize("probabilities", [[[0.5]], [[NAN, 1.0]] * 3, ["high"] * 3, [[]] * 3])
def test_probabilities_must_fit_the_rows(adapting: Adapting, table: Resource, probabilities: Any) -> None:
    raw = {"predictions": [1, 2, 3], "probabilities": probabilities}
    with pytest.raises(UnsupportedError, match="expected was"):
        adapting("tabular-classification", raw, table=table)


def test_the_limit_of_the_settings_holds_for_tables(tmp_path: Path, table: Resource) -> None:
    from dataclasses import replace

    spec = TASKS["tabular-regression"]
    call = replace(a_call(spec, tmp_path, table=table), settings=Settings(max_file_bytes=10))
    with pytest.raises(BadInputError, match="JARVIS_MAX_FILE_BYTES"):
        adapt(spec, {"predictions": [1, 2, 3]}, call)


def test_a_forecast_has_a_row_for_each_step(adapting: Adapting, table: Resource) -> None:
    raw = [
        {"series": "sales", "values": np.array([40.0, 50.0]), "low": [35, 42], "high": (45, 58)},
        {"series": "rain", "values": [np.float32(0.5), 1]},
    ]
    output, resources = adapting("time-series-forecasting", raw, table=table)
    assert output == [
        {"step": 1, "sales": 40.0, "sales_low": 35.0, "sales_high": 45.0, "rain": 0.5},
        {"step": 2, "sales": 50.0, "sales_low": 42.0, "sales_high": 58.0, "rain": 1.0},
    ]
    assert written(resources)["sales_low"] == [35.0, 42.0]
    assert resources[-1].text == "2 steps ahead: sales from 40 to 50, rain from 0.5 to 1"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([{"series": "a", "values": [1]}, {"series": "b", "values": [1, 2]}], "series of one length"),
        ([{"series": "a", "values": [1], "low": [1, 2]}], "series of one length"),
        ([{"series": "a", "values": []}], "a list of numbers"),
        ([{"series": "a", "values": [NAN]}], "finite"),
        ([{"series": 1, "values": [1]}], "a text"),
        ([], "series of one length"),
    ],
)
def test_what_is_no_forecast_is_refused(adapting: Adapting, table: Resource, raw: Any, expected: str) -> None:
    with pytest.raises(UnsupportedError, match=expected):
        adapting("time-series-forecasting", raw, table=table)


def test_an_answer_names_its_cells(adapting: Adapting, table: Resource) -> None:
    raw = {"answer": " SUM > 10, 20", "coordinates": np.array([[0, 1], [1, 1]]), "cells": ["10", "20"]}
    output, resources = adapting("table-question-answering", {**raw, "aggregator": "SUM"}, table=table)
    assert output == {
        "answer": "SUM > 10, 20",
        "coordinates": [[0, 1], [1, 1]],
        "cells": ["10", "20"],
        "aggregator": "SUM",
    }
    assert next(resource.text for resource in resources if resource.kind == "text") == "SUM > 10, 20"
    bare = adapting("table-question-answering", [{"answer": "20"}], table=table)[0]
    assert bare == {"answer": "20", "coordinates": [], "cells": [], "aggregator": "NONE"}


@pytest.mark.parametrize(
    "raw", [{"answer": None}, {"answer": "a", "cells": "10"}, {"answer": "a", "cells": [1]}]
)
def test_what_is_no_answer_from_a_table_is_refused(adapting: Adapting, table: Resource, raw: Any) -> None:
    with pytest.raises(UnsupportedError, match="expected was"):
        adapting("table-question-answering", raw, table=table)


def test_words_for_a_mask_come_best_first(adapting: Adapting) -> None:
    raw = [
        {"score": np.float32(0.1), "token": np.int64(7), "token_str": " Rome", "sequence": "It is Rome."},
        {"score": 0.8, "token": 5, "token_str": "Paris", "sequence": "It is Paris."},
    ]
    output, resources = adapting("fill-mask", raw)
    assert [row["token_str"] for row in output] == ["Paris", "Rome"]
    assert output[1] == {"score": 0.1, "token": 7, "token_str": "Rome", "sequence": "It is Rome."}
    assert "Paris (0.80), Rome (0.10)" in [resource.text for resource in resources]
    with pytest.raises(UnsupportedError, match="finite"):
        adapting("fill-mask", [{**raw[0], "score": NAN}])


def test_pages_keep_their_order_and_are_told_best_first(adapting: Adapting, tmp_path: Path) -> None:
    one = a_photo(tmp_path)
    other = one.model_copy(update={"path": tmp_path / "other.png"})
    output, resources = adapting("visual-document-retrieval", np.array([0.1, 0.9]), image=[one, other])
    assert output == [0.1, 0.9]
    assert "other.png (0.90); photo.png (0.10)" in [resource.text for resource in resources]
    for raw in ([0.1], [0.1, NAN], "ab", [[0.1], [0.9]]):
        with pytest.raises(UnsupportedError, match="expected was"):
            adapting("visual-document-retrieval", raw, image=[one, other])


@pytest.mark.parametrize("task", ["zero-shot-classification", "zero-shot-image-classification"])
def test_labels_of_the_request_come_best_first(adapting: Adapting, task: str) -> None:
    torch = pytest.importorskip("torch")
    raw = [{"label": "dog", "score": torch.tensor(0.25)}, {"label": "cat", "score": np.float64(0.75)}]
    assert adapting(task, raw)[0] == [{"label": "cat", "score": 0.75}, {"label": "dog", "score": 0.25}]
    with pytest.raises(UnsupportedError, match="at least one label"):
        adapting(task, [])


@pytest.mark.parametrize(
    "task", ["image-text-to-text", "video-text-to-text", "audio-text-to-text", "any-to-any"]
)
def test_what_was_written_about_media_is_the_text(adapting: Adapting, task: str) -> None:
    for raw in (" A cat. ", {"generated_text": "A cat."}, [{"generated_text": "A cat."}]):
        output, resources = adapting(task, raw)
        assert output == {"generated_text": "A cat."}
        assert resources[0].text == "A cat."
    for raw in ({"generated_text": None}, [{"generated_text": ["a"]}], np.zeros(3)):
        with pytest.raises(UnsupportedError, match="expected was a text"):
            adapting(task, raw)


def test_an_answer_may_be_spoken_too(adapting: Adapting) -> None:
    raw = {"generated_text": "Hi.", "audio": np.zeros(800), "sampling_rate": 8000}
    output, resources = adapting("any-to-any", raw)
    assert output["audio"]["duration"] == 0.1
    assert "audio" in kinds(resources)
