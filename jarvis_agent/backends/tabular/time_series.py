"""Forecasts time series with the Chronos models: Chronos-Bolt, Chronos-2, and those built on T5.

    backend = ChronosBackend(pool, settings)
    raw = await backend.run(call)
    # [{"series": "sales", "values": [48.1, 50.2], "low": [45.0, 46.1], "high": [51.3, 54.9]}]

Every number column of the table is a series by itself; a column that tells the time only orders the rows.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.devices import pick_dtype, place, seeded, weight_bytes
from jarvis_agent.backends.hub.model_card import read_json
from jarvis_agent.backends.hub.snapshot import model_folder, refusal
from jarvis_agent.backends.load_errors import load_errors
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.transformers.loading import LOADING, hush
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.tables import Cell, Columns, read_table

TASK = "time-series-forecasting"

HORIZON, MAX_HORIZON = 12, 1024
"""Rows that are forecast unless asked otherwise, and at most."""

QUANTILES = [0.1, 0.5, 0.9]
"""The lower bound, the forecast and the upper bound: four of five true values lie between the bounds."""

_TIME = re.compile(
    r"(.*[\W_])?(date|datetime|timestamp)([\W_].*)?"
    r"|time|year|quarter|month|week|day|weekday|hour|minute|second|period|ds|index|unnamed: 0|",
    re.IGNORECASE,
)
"""Names of columns that tell the time or number the rows; a column without a name is such a one."""


@dataclass(frozen=True, slots=True)
class Forecaster:
    """A loaded Chronos pipeline."""

    id: str
    pipeline: Any
    nbytes: int

    def __call__(self, call: Call) -> list[dict[str, Any]]:
        import torch

        horizon = horizon_of(call)
        series = series_of(read_table(call.inputs["table"], call.settings.max_file_bytes))
        contexts = [
            torch.tensor([float("nan") if cell is None else cell for cell in cells], dtype=torch.float32)
            for cells in series.values()
        ]
        with seeded(call.settings.seed), warnings.catch_warnings():  # the models built on T5 draw samples
            # That a long forecast is less sure shows in its bounds.
            warnings.filterwarnings("ignore", message="We recommend keeping prediction length")
            quantiles, _ = self.pipeline.predict_quantiles(
                contexts, prediction_length=horizon, quantile_levels=QUANTILES
            )
        return [
            _forecast(name, rows.reshape(horizon, len(QUANTILES)))
            for name, rows in zip(series, quantiles, strict=True)
        ]


class ChronosBackend(LocalBackend):
    """Runs Chronos models."""

    name = "chronos"
    needs = ("torch", "chronos")
    extra = "tabular"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if chronos-forecasting is there, is for the task and the model, and may load it."""
        if spec.name != TASK:
            return f"Chronos does not do {spec.name}"
        if not _is_chronos(candidate):
            return f"it is made for {candidate.library or 'another library'}, and is no Chronos model"
        if lacking := self.lacking(candidate):
            return str(lacking)
        return refusal(candidate, self.settings)

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Find the files and load the pipeline that their config names.

        Raises:
            UnsupportedError: it is not there, not allowed, damaged, or no Chronos model.
            TransientError: it could not be downloaded.
            ConfigError: the device or the dtype is not there.
        """
        if lacking := self.lacking(candidate):
            raise lacking
        with load_errors(spec, candidate):
            return _load(candidate, settings)


def _load(candidate: Candidate, settings: Settings) -> Expert:
    from chronos import BaseChronosPipeline

    hush()
    folder, device = model_folder(candidate, settings), place(settings)
    with LOADING:
        pipeline = BaseChronosPipeline.from_pretrained(
            str(folder),
            dtype=pick_dtype(settings.dtype, device),
            use_safetensors=None if settings.allow_pickle else True,
        )
        pipeline.inner_model.to(device).eval()
    return Forecaster(candidate.id, pipeline, weight_bytes(pipeline.inner_model))


def _is_chronos(candidate: Candidate) -> bool:
    """Whether a model is one of Chronos, by its library, its name, or the config in its folder."""
    if candidate.library in ("chronos-forecasting", "chronos"):
        return True
    if candidate.library not in (None, "transformers"):
        return False
    if candidate.path is not None:
        config = read_json(candidate.path / "config.json")
        return "chronos_config" in config or "chronos_pipeline_class" in config
    return "chronos" in candidate.id.lower()


def horizon_of(call: Call) -> int:
    """How many rows ahead to forecast; plans may say it as text.

    Raises:
        BadInputError: it is no whole number from 1 to MAX_HORIZON.
    """
    given = call.inputs.get("horizon")
    if given is None or given == "":
        return HORIZON
    text = str(given).strip().removesuffix(".0")
    if not text.isdecimal() or not 1 <= int(text) <= MAX_HORIZON:
        raise BadInputError(f"the horizon must be a whole number from 1 to {MAX_HORIZON}, not {given!r}")
    return int(text)


def series_of(columns: Columns) -> dict[str, list[Any]]:
    """The columns to forecast: those of numbers which do not tell the time.

    Raises:
        BadInputError: there is none.
    """
    found = {
        name: cells for name, cells in columns.items() if _are_numbers(cells) and not _TIME.fullmatch(name)
    }
    if not found:
        raise BadInputError(
            "the table has no column of numbers to forecast; its columns are " + ", ".join(map(repr, columns))
        )
    return found


def _are_numbers(cells: list[Cell]) -> bool:
    return any(cell is not None for cell in cells) and not any(isinstance(cell, str) for cell in cells)


def _forecast(name: str, rows: Any) -> dict[str, Any]:
    """A series' forecast from its quantiles, float (horizon, 3)."""
    if not rows.isfinite().all():
        raise UnsupportedError(
            f"the forecast of {name!r} came out as no numbers; another model may do better"
        )
    # The quantiles of a network may cross; in order they are no worse (doi:10.3982/ECTA7880).
    low, values, high = rows.sort(dim=1).values.T.tolist()
    return {"series": name, "values": values, "low": low, "high": high}
