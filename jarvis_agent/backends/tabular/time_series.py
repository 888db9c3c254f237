"""Forecast time series with Chronos models: Chronos-Bolt, Chronos-2, and those based on T5.

Raw output: [{"series": "sales", "values": [48.1, 50.2], "low": [45.0, 46.1], "high": [51.3, 54.9]}].
Each numeric column is one series. Columns of dates or row numbers only order the rows.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

from langchain_core.utils.iter import batch_iterate

from jarvis_agent.backends.base import Call, Expert, whole_number
from jarvis_agent.backends.devices import pick_dtype, place, seeded
from jarvis_agent.backends.hub.model_card import read_json
from jarvis_agent.backends.hub.snapshot import model_folder
from jarvis_agent.backends.jobs import closed_error, is_cancelled
from jarvis_agent.backends.local import FileBackend
from jarvis_agent.backends.transformers.loading import LOADING, silence_library
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.media.tables import Cell, Columns, read_table

FORECASTING = "time-series-forecasting"

HORIZON, MAX_HORIZON = 12, 1024
"""Rows to forecast: default and maximum."""

BATCH = 32
"""Series that are forecast at once."""

QUANTILES = [0.1, 0.5, 0.9]
"""Lower bound, forecast and upper bound: 80 % of true values lie between the bounds."""

_TIME = re.compile(
    r"(.*[\W_])?(date|datetime|timestamp)([\W_].*)?"
    r"|time|year|quarter|month|week|day|weekday|hour|minute|second|period|ds|index|unnamed: 0|",
    re.IGNORECASE,
)
"""Names of columns that hold times or row numbers; the empty name is one of them."""


@dataclass(frozen=True, slots=True)
class Forecaster:
    """A loaded Chronos pipeline."""

    id: str
    pipeline: Any

    @property
    def modules(self) -> list[Any]:
        """The torch modules that the pool measures."""
        return [self.pipeline.inner_model]

    def __call__(self, call: Call) -> list[dict[str, Any]]:
        import torch

        horizon = whole_number(call, "horizon", MAX_HORIZON) or HORIZON
        series = series_of(read_table(call.inputs["table"]))
        contexts = [
            torch.tensor([float("nan") if cell is None else cell for cell in cells], dtype=torch.float32)
            for cells in series.values()
        ]
        with seeded(call.settings.seed), warnings.catch_warnings():  # the models based on T5 draw samples
            # The bounds show how uncertain a long forecast is.
            warnings.filterwarnings("ignore", message="We recommend keeping prediction length")
            quantiles: list[Any] = []
            for batch in batch_iterate(BATCH, contexts):
                if is_cancelled():
                    raise closed_error("stopped")
                rows, _ = self.pipeline.predict_quantiles(
                    batch, prediction_length=horizon, quantile_levels=QUANTILES
                )
                quantiles += rows
        return [
            _forecast(name, rows.reshape(horizon, len(QUANTILES)))
            for name, rows in zip(series, quantiles, strict=True)
        ]


class ChronosBackend(FileBackend):
    """Runs Chronos models."""

    name = "chronos"
    needs = ("torch", "chronos")
    extra = "tabular"
    library = "Chronos"
    libraries = ("chronos-forecasting", "chronos")
    tasks = (FORECASTING,)

    def mismatch(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """Return why Chronos does not fit; models of transformers are recognised by config or name."""
        if spec.name in self.tasks and candidate.library in (None, "transformers") and _is_chronos(candidate):
            return None
        return super().mismatch(spec, candidate)

    def load_files(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Find the files and load the pipeline that their config names."""
        from chronos import BaseChronosPipeline

        silence_library()
        folder, device = model_folder(candidate, settings), place(settings)
        with LOADING:
            pipeline = BaseChronosPipeline.from_pretrained(
                str(folder),
                dtype=pick_dtype(settings.dtype, device),
                use_safetensors=None if settings.allow_pickle else True,
            )
            pipeline.inner_model.to(device).eval()
        return Forecaster(candidate.id, pipeline)


def _is_chronos(candidate: Candidate) -> bool:
    if candidate.path is None:
        return "chronos" in candidate.id.lower()
    config = read_json(candidate.path / "config.json")
    return "chronos_config" in config or "chronos_pipeline_class" in config


def series_of(columns: Columns) -> dict[str, list[Any]]:
    """Return the columns to forecast: numeric ones that do not hold times.

    Raises:
        BadInputError: there are none.
    """
    numeric = {
        name: cells for name, cells in columns.items() if _is_numeric(cells) and not _TIME.fullmatch(name)
    }
    if not numeric:
        raise BadInputError(
            "the table has no column of numbers to forecast; its columns are " + ", ".join(map(repr, columns))
        )
    return numeric


def _is_numeric(cells: list[Cell]) -> bool:
    return any(cell is not None for cell in cells) and not any(isinstance(cell, str) for cell in cells)


def _forecast(name: str, rows: Any) -> dict[str, Any]:
    """Return the forecast of a series from its quantiles, float (horizon, 3)."""
    if not rows.isfinite().all():
        raise UnsupportedError(f"the forecast of {name!r} is not finite; another model may do better")
    # Quantiles of a network may cross; sorting them does not make them worse (doi:10.3982/ECTA7880).
    low, values, high = rows.sort(dim=1).values.T.tolist()
    return {"series": name, "values": values, "low": low, "high": high}
