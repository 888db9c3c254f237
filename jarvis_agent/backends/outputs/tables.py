"""Adapters of tables: predictions beside the rows that they were made for, and forecasts, as CSV files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jarvis_agent.media.tables import Columns, read_table, write_table
from jarvis_agent.backends.outputs.validators import UnexpectedError, counted, listed, number, rows, score, text
from jarvis_agent.backends.outputs.adapted import Adapted
from jarvis_agent.core.types import Resource

if TYPE_CHECKING:
    from jarvis_agent.backends.base import Call


def labelled_rows(raw: Any, call: Call) -> Adapted:
    """{predictions: a label a row, probabilities: a list a row or None}: the labels, and the table with them.

    The table has two further columns: `prediction`, and `probability` where the model tells it.
    """
    columns = read_table(call.inputs["table"], call.settings.max_file_bytes)
    labels = [_label(value) for value in _predictions(raw, columns)]
    added: dict[str, list[Any]] = {"prediction": labels}
    if (probabilities := listed(raw.get("probabilities"))) is not None:
        added["probability"] = [_highest(row) for row in _sized(probabilities, len(labels))]
    file = _save({**columns, **_renamed(added, columns)}, call)
    counts = sorted({label: labels.count(label) for label in labels}.items(), key=lambda item: -item[1])
    told = ", ".join(f"{count} {label}" for label, count in counts)
    return Adapted(labels, f"{counted(len(labels), 'row')}: {told}", (file,))


def numbered_rows(raw: Any, call: Call) -> Adapted:
    """{predictions: a number a row}: the numbers, and the table with them in the column `prediction`."""
    columns = read_table(call.inputs["table"], call.settings.max_file_bytes)
    values = [round(number(_lone(value)), 6) for value in _predictions(raw, columns)]
    file = _save({**columns, **_renamed({"prediction": values}, columns)}, call)
    mean = sum(values) / len(values)
    told = f"from {min(values):.4g} to {max(values):.4g}, {mean:.4g} on average"
    return Adapted(values, f"{counted(len(values), 'row')}: {told}", (file,))


def forecast(raw: Any, call: Call) -> Adapted:
    """[{series, values, low, high}]: a row a step ahead, with the median and the 10 % and 90 % quantiles."""
    columns: dict[str, list[Any]] = {}
    told = []
    for row in rows(raw, "series", "values"):
        name, values = text(row["series"]), _numbers(row["values"])
        columns[name] = values
        for side in ("low", "high"):
            if row.get(side) is not None:
                columns[f"{name}_{side}"] = _numbers(row[side])
        told.append(f"{name} from {values[0]:.4g} to {values[-1]:.4g}")
    if len({len(values) for values in columns.values()}) != 1:
        raise UnexpectedError("series of one length")
    steps = len(next(iter(columns.values())))
    table = {"step": list(range(1, steps + 1)), **columns}
    found = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return Adapted(found, f"{counted(steps, 'step')} ahead: {', '.join(told)}", (_save(table, call),))


def _predictions(raw: Any, columns: Columns) -> list[Any]:
    if not isinstance(raw, Mapping) or "predictions" not in raw:
        raise UnexpectedError("{predictions}")
    return _sized(listed(raw["predictions"]), len(next(iter(columns.values()))))


def _sized(values: Any, length: int) -> list[Any]:
    if not isinstance(values, list | tuple) or len(values) != length:
        raise UnexpectedError(f"one prediction for each of the {counted(length, 'row')}")
    return list(values)


def _label(value: Any) -> str:
    """A class as text, as huggingface_hub has it: 1 and "1" are the same label."""
    value = _lone(value)
    if not isinstance(value, str | int | float | bool):
        raise UnexpectedError("a label for each row")
    if isinstance(value, float):
        value = f"{number(value):g}"
    return str(value)


def _lone(value: Any) -> Any:
    """A value, also where it stands alone in a list."""
    value = listed(value)
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _highest(row: Any) -> float:
    values = listed(row)
    if not isinstance(values, list | tuple) or not values:
        raise UnexpectedError("a list of probabilities for each row")
    return max(score(value) for value in values)


def _numbers(values: Any) -> list[float]:
    found = listed(values)
    if not isinstance(found, list | tuple) or not found:
        raise UnexpectedError("a list of numbers for each series")
    return [round(number(value), 6) for value in found]


def _renamed(added: Mapping[str, list[Any]], columns: Columns) -> dict[str, list[Any]]:
    """The new columns under names that the table does not have yet."""
    return {_free(name, columns): values for name, values in added.items()}


def _free(name: str, columns: Columns) -> str:
    while name in columns:
        name += "_new"
    return name


def _save(columns: Mapping[str, Sequence[Any]], call: Call) -> Resource:
    path = call.new_path(".csv")
    write_table(path, columns)
    return Resource(kind="table", path=path, mime="text/csv", name=call.spec.name)
