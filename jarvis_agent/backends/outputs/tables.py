"""Adapters of predictions, added as columns to their table, and of forecasts; both become CSV files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.validators import (
    Adapted,
    UnexpectedError,
    number,
    quantity,
    require_rows,
    score,
    text,
    to_list,
)
from jarvis_agent.core.types import Resource
from jarvis_agent.media.tables import Columns, read_table, write_table


def labelled_rows(raw: Any, call: Call) -> Adapted:
    """{predictions: a label a row, probabilities: a list a row or None}: the labels, and the table.

    The table gets the columns `prediction`, and `probability` if known.
    """
    columns = read_table(call.inputs["table"], call.settings.max_file_bytes)
    labels = [_label(value) for value in _predictions(raw, columns)]
    added: dict[str, list[Any]] = {"prediction": labels}
    if (probabilities := to_list(raw.get("probabilities"))) is not None:
        added["probability"] = [_highest(row) for row in _sized(probabilities, len(labels))]
    file = _save({**columns, **_with_free_names(added, columns)}, call)
    counts = sorted({label: labels.count(label) for label in labels}.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{count} {label}" for label, count in counts)
    return Adapted(labels, f"{quantity(len(labels), 'row')}: {shown}", (file,))


def numbered_rows(raw: Any, call: Call) -> Adapted:
    """{predictions: a number a row}: the numbers, and the table with a column `prediction`."""
    columns = read_table(call.inputs["table"], call.settings.max_file_bytes)
    values = [round(number(_single(value)), 6) for value in _predictions(raw, columns)]
    file = _save({**columns, **_with_free_names({"prediction": values}, columns)}, call)
    mean = sum(values) / len(values)
    shown = f"from {min(values):.4g} to {max(values):.4g}, {mean:.4g} on average"
    return Adapted(values, f"{quantity(len(values), 'row')}: {shown}", (file,))


def forecast(raw: Any, call: Call) -> Adapted:
    """[{series, values, low, high}]: a row a step ahead, with the median and the 10 % and 90 % quantiles."""
    columns: dict[str, list[Any]] = {}
    shown = []
    for row in require_rows(raw, "series", "values"):
        name, values = text(row["series"]), _numbers(row["values"])
        columns[name] = values
        for side in ("low", "high"):
            if row.get(side) is not None:
                columns[f"{name}_{side}"] = _numbers(row[side])
        shown.append(f"{name} from {values[0]:.4g} to {values[-1]:.4g}")
    if len({len(values) for values in columns.values()}) != 1:
        raise UnexpectedError("series of one length")
    steps = len(next(iter(columns.values())))
    table = {"step": list(range(1, steps + 1)), **columns}
    found = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return Adapted(found, f"{quantity(steps, 'step')} ahead: {', '.join(shown)}", (_save(table, call),))


def _predictions(raw: Any, columns: Columns) -> list[Any]:
    if not isinstance(raw, Mapping) or "predictions" not in raw:
        raise UnexpectedError("{predictions}")
    return _sized(to_list(raw["predictions"]), len(next(iter(columns.values()))))


def _sized(values: Any, length: int) -> list[Any]:
    if not isinstance(values, list | tuple) or len(values) != length:
        raise UnexpectedError(f"one prediction for each of the {quantity(length, 'row')}")
    return list(values)


def _label(value: Any) -> str:
    """A class as text, as in huggingface_hub: 1 and "1" are the same label."""
    value = _single(value)
    if not isinstance(value, str | int | float | bool):
        raise UnexpectedError("a label for each row")
    if isinstance(value, float):
        value = f"{number(value):g}"
    return str(value)


def _single(value: Any) -> Any:
    """A value, also from a list of one."""
    value = to_list(value)
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _highest(row: Any) -> float:
    values = to_list(row)
    if not isinstance(values, list | tuple) or not values:
        raise UnexpectedError("a list of probabilities for each row")
    return max(score(value) for value in values)


def _numbers(values: Any) -> list[float]:
    found = to_list(values)
    if not isinstance(found, list | tuple) or not found:
        raise UnexpectedError("a list of numbers for each series")
    return [round(number(value), 6) for value in found]


def _with_free_names(added: Mapping[str, list[Any]], columns: Columns) -> dict[str, list[Any]]:
    """The new columns under names that are not in the table yet."""
    return {_free(name, columns): values for name, values in added.items()}


def _free(name: str, columns: Columns) -> str:
    while name in columns:
        name += "_new"
    return name


def _save(columns: Mapping[str, Sequence[Any]], call: Call) -> Resource:
    path = call.new_path(".csv")
    write_table(path, columns)
    return Resource(kind="table", path=path, mime="text/csv", name=call.spec.name)
