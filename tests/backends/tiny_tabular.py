"""Tiny models of tables: functions that save one in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_parts import TEXT, save

COLUMNS = ("month", "sales", "rain")


def rows_of(seed: int = 0, count: int = 60) -> Any:
    """Rows like those of the tests' table, as a data frame."""
    import numpy as np
    import pandas

    drawn = np.random.default_rng(seed).uniform(0, 24, (count, len(COLUMNS)))
    return pandas.DataFrame(drawn, columns=list(COLUMNS))


def logistic(folder: Path) -> None:
    """A classifier with a pipeline before it, that knows its columns: high or low sales."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = rows_of()
    labels = ["high" if sales > 12 else "low" for sales in rows["sales"]]
    dump(folder, make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels))


def bare(folder: Path) -> None:
    """A classifier fitted on bare numbers: only config.json names the columns and their order."""
    from sklearn.linear_model import LogisticRegression

    rows = rows_of()[["sales", "month"]].to_numpy()
    dump(folder, LogisticRegression().fit(rows, rows[:, 0] > 12))
    describe(folder, columns=["sales", "month"])


def linear(folder: Path) -> None:
    """A regression: twice the month, and the rain."""
    from sklearn.linear_model import LinearRegression

    rows = rows_of()
    dump(folder, LinearRegression().fit(rows, 2 * rows["month"] + rows["rain"]))


def forest(folder: Path) -> None:
    """A model of decision trees, whose type skops does not trust."""
    from sklearn.ensemble import RandomForestRegressor

    rows = rows_of()
    dump(folder, RandomForestRegressor(5, random_state=0).fit(rows, rows["sales"]))


def dump(folder: Path, estimator: Any, name: str = "model.skops") -> None:
    import skops.io

    skops.io.dump(estimator, folder / name)


def describe(folder: Path, columns: list[str], file: str = "model.skops") -> None:
    """A config.json, as skops' hub tools wrote it."""
    told = {"sklearn": {"columns": columns, "environment": [], "model": {"file": file}}}
    (folder / "config.json").write_text(json.dumps(told))


def chronos_bolt(folder: Path) -> None:
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config

    config = _t5(
        chronos_pipeline_class="ChronosBoltPipeline",
        chronos_config={
            "context_length": 64,
            "prediction_length": 8,
            "input_patch_size": 4,
            "input_patch_stride": 4,
            "quantiles": [n / 10 for n in range(1, 10)],
            "use_reg_token": True,
        },
        architectures=["ChronosBoltModelForForecasting"],
    )
    assert isinstance(config, T5Config)
    save(folder, ChronosBoltModelForForecasting(config))


def chronos_t5(folder: Path) -> None:
    from transformers import T5ForConditionalGeneration

    config = _t5(
        vocab_size=64,
        chronos_config={
            "tokenizer_class": "MeanScaleUniformBins",
            "tokenizer_kwargs": {"low_limit": -15.0, "high_limit": 15.0},
            "context_length": 64,
            "prediction_length": 8,
            "n_tokens": 64,
            "n_special_tokens": 2,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "use_eos_token": True,
            "model_type": "seq2seq",
            "num_samples": 5,
            "temperature": 1.0,
            "top_k": 50,
            "top_p": 1.0,
        },
    )
    save(folder, T5ForConditionalGeneration(config))


def chronos_2(folder: Path) -> None:
    from chronos.chronos2 import Chronos2Model
    from chronos.chronos2.config import Chronos2CoreConfig

    config = Chronos2CoreConfig(
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        vocab_size=2,
        chronos_pipeline_class="Chronos2Pipeline",
        chronos_config={
            "context_length": 64,
            "output_patch_size": 4,
            "input_patch_size": 4,
            "input_patch_stride": 4,
            "quantiles": [n / 10 for n in range(1, 10)],
            "use_reg_token": True,
            "use_arcsinh": True,
            "max_output_patches": 4,
        },
        architectures=["Chronos2Model"],
    )
    save(folder, Chronos2Model(config))


def _t5(**options: Any) -> Any:
    from transformers import T5Config

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2}
    return T5Config(**{"vocab_size": 2, **sizes, "decoder_start_token_id": 0, "pad_token_id": 0, **options})


def tapas(folder: Path) -> None:
    """A model that points at cells, and knows four ways to put them together."""
    from transformers import TapasConfig, TapasForQuestionAnswering, TapasTokenizer

    vocabulary = folder / "vocab.txt"
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "[EMPTY]",
        *"abcdefghijklmnopqrstuvwxyz0123456789?",
    ]
    vocabulary.write_text("\n".join([*tokens, *(f"##{token}" for token in tokens[6:])]))
    tokenizer = TapasTokenizer(str(vocabulary), model_max_length=256)
    config = TapasConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=256,
        num_aggregation_labels=4,
        aggregation_labels={0: "NONE", 1: "SUM", 2: "AVERAGE", 3: "COUNT"},
        no_aggregation_label_index=0,
        **TEXT,
    )
    save(folder, TapasForQuestionAnswering(config), tokenizer)
