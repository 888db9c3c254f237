"""File layouts: which files of a model each library reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jarvis_agent.backends.hub.snapshot import DIFFUSERS, SENTENCE_TRANSFORMERS, SKOPS, TRANSFORMERS, Layout
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings

FLOAT = Settings(device="cpu", dtype="float32")
HALF = Settings(device="cpu", dtype="float16")
LAYOUTS = {layout.library: layout for layout in (TRANSFORMERS, DIFFUSERS, SENTENCE_TRANSFORMERS, SKOPS)}
CASES = yaml.safe_load((Path(__file__).parents[1] / "data" / "file_layouts.yaml").read_text("utf-8"))


def chosen(layout: Layout, names: str, index: Any = None, settings: Settings = FLOAT) -> set[str]:
    return set(layout.choose("org/model", names.split(), index, settings))


def test_one_copy_of_what_the_library_needs_is_read(subtests: pytest.Subtests) -> None:
    pytest.importorskip("torch")
    for library, layout in LAYOUTS.items():
        for case in CASES[library]:
            with subtests.test(f"{library}: {case}"):
                given = {key: case[key] for key in ("dtype", "trust_remote_code") if key in case}
                settings = Settings(**{"device": "cpu", "dtype": "float32", **given})
                names = f"{case.get('beside', '')} {case['read']}"
                assert chosen(layout, names, case.get("index"), settings) == {*case["read"].split()}


def test_a_model_without_weights_that_may_be_loaded_is_refused() -> None:
    pickles = "modules.json model.safetensors 2_Dense/pytorch_model.bin"
    with pytest.raises(UnsupportedError, match="only as a pickle"):
        chosen(SENTENCE_TRANSFORMERS, pickles, [{"path": ""}, {"path": "2_Dense"}])
    with pytest.raises(UnsupportedError, match=r"only as a pickle.*ask its author for a \.skops file"):
        chosen(SKOPS, "config.json model.pkl", settings=Settings(allow_pickle=True))
    for layout in LAYOUTS.values():
        with pytest.raises(UnsupportedError, match=f"no weights that {layout.library} reads"):
            chosen(layout, "config.json model.onnx")


def test_the_variant_for_diffusers_is_read_from_the_file_names(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "diffusion_pytorch_model.fp16.safetensors").write_bytes(b"")
    assert DIFFUSERS.variant(tmp_path, FLOAT) == "fp16"
    (tmp_path / "diffusion_pytorch_model.safetensors").write_bytes(b"")
    assert DIFFUSERS.variant(tmp_path, FLOAT) is None
    assert DIFFUSERS.variant(tmp_path, HALF) == "fp16"
