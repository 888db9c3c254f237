"""Adapters of predictions, added as columns to their table, and of forecasts; both become CSV files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.validators import (
    Adapted,
    UnexpectedError,
    number,
    quantity,
    read_rows,
    require_list,
    text,
    to_list,
)
from jarvis_agent.core.types import Resource
from jarvis_agent.media.tables import Columns, read_table, write_table


def labelled_rows(raw: Any, call: Call) -> Adapted:
    """{predictions: a label a row, probabilities: a list a row or None}: the labels, and the table.

    The table gets the columns `prediction`, and `probability` if known.
    """
    columns, labels = _predictions(raw, _label, call)
    added: dict[str, list[Any]] = {"prediction": labels}
    if (probabilities := raw.get("probabilities")) is not None:
        rows = _sized(probabilities, len(labels))
        added["probability"] = [max(_numbers(row)) for row in rows]
    shown = ", ".join(f"{count} {label}" for label, count in Counter(sorted(labels)).most_common())
    file = _save_with(columns, added, call)
    return Adapted(labels, f"{quantity(len(labels), 'row')}: {shown}", (file,))


def numbered_rows(raw: Any, call: Call) -> Adapted:
    """{predictions: a number a row}: the numbers, and the table with a column `prediction`."""
    columns, values = _predictions(raw, _number, call)
    mean = sum(values) / len(values)
    shown = f"from {min(values):.4g} to {max(values):.4g}, {mean:.4g} on average"
    file = _save_with(columns, {"prediction": values}, call)
    return Adapted(values, f"{quantity(len(values), 'row')}: {shown}", (file,))


def forecast(raw: Any, call: Call) -> Adapted:
    """[{series, values, low, high}]: a row a step ahead, with the median and the 10 % and 90 % quantiles."""
    columns: dict[str, list[Any]] = {}
    shown = []
    for row in read_rows(raw, {"series": text, "values": _numbers}, {"low": _numbers, "high": _numbers}):
        name, values = row["series"], row["values"]
        columns[name] = values
        columns |= {f"{name}_{side}": row[side] for side in ("low", "high") if side in row}
        shown.append(f"{name} from {values[0]:.4g} to {values[-1]:.4g}")
    if len({len(values) for values in columns.values()}) != 1:
        raise UnexpectedError("series of one length")
    steps = len(next(iter(columns.values())))
    table = {"step": list(range(1, steps + 1)), **columns}
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return Adapted(rows, f"{quantity(steps, 'step')} ahead: {', '.join(shown)}", (_save(table, call),))


def _predictions(raw: Any, convert: Callable[[Any], Any], call: Call) -> tuple[Columns, list[Any]]:
    """The table of the call, and the prediction for each of its rows."""
    if not isinstance(raw, Mapping) or "predictions" not in raw:
        raise UnexpectedError("{predictions}")
    columns = read_table(call.inputs["table"])
    return columns, [
        convert(value) for value in _sized(raw["predictions"], len(next(iter(columns.values()))))
    ]


def _sized(values: Any, length: int) -> list[Any]:
    what = f"one prediction for each of the {quantity(length, 'row')}"
    items = require_list(values, what)
    if len(items) != length:
        raise UnexpectedError(what)
    return items


def _label(value: Any) -> str:
    """A class as text, as in huggingface_hub: 1 and "1" are the same label."""
    value = _single(value)
    if not isinstance(value, str | int | float | bool):
        raise UnexpectedError("a label for each row")
    return f"{number(value):g}" if isinstance(value, float) else str(value)


def _number(value: Any) -> float:
    return round(number(_single(value)), 6)


def _single(value: Any) -> Any:
    """A value, also from a list of one."""
    value = to_list(value)
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value


def _numbers(values: Any) -> list[float]:
    items = require_list(values, "a list of numbers")
    if not items:
        raise UnexpectedError("a list of numbers")
    return [_number(value) for value in items]


def _save_with(columns: Columns, added: Mapping[str, list[Any]], call: Call) -> Resource:
    """Save the table with new columns, under names that it does not have yet."""
    table = dict(columns)
    for name, values in added.items():
        while name in columns:
            name += "_new"
        table[name] = values
    return _save(table, call)


def _save(columns: Mapping[str, Sequence[Any]], call: Call) -> Resource:
    path = call.new_path(".csv")
    write_table(path, columns)
    return Resource(kind="table", path=path, mime="text/csv", name=call.spec.name)
