"""File layouts: which files of a model each library reads."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from jarvis_agent.backends.hub import snapshot
from jarvis_agent.backends.hub.snapshot import DIFFUSERS, SENTENCE_TRANSFORMERS, SKOPS, TRANSFORMERS, Layout
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.settings import Settings

ON_CPU = Settings(device="cpu")
LAYOUTS = {layout.library: layout for layout in (TRANSFORMERS, DIFFUSERS, SENTENCE_TRANSFORMERS, SKOPS)}
CASES = yaml.safe_load((Path(__file__).parents[1] / "data" / "file_layouts.yaml").read_text("utf-8"))


def chosen(layout: Layout, names: str, index: Any = None, settings: Settings = ON_CPU) -> set[str]:
    return set(layout.choose("org/model", names.split(), index, settings))


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Sets whether models compute in 16 bits."""
    return lambda half: monkeypatch.setattr(snapshot, "computes_in_half", lambda settings: half)


def test_one_copy_of_needed_files_is_read(subtests: pytest.Subtests, half: Callable[[bool], None]) -> None:
    pytest.importorskip("torch")
    for library, layout in LAYOUTS.items():
        for case in CASES[library]:
            with subtests.test(f"{library}: {case}"):
                half(case.get("half", False))
                settings = Settings(device="cpu", trust_remote_code=case.get("trust_remote_code", False))
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


def test_the_variant_for_diffusers_is_read_from_names(tmp_path: Path, half: Callable[[bool], None]) -> None:
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "diffusion_pytorch_model.fp16.safetensors").write_bytes(b"")
    assert DIFFUSERS.variant(tmp_path, ON_CPU) == "fp16"
    (tmp_path / "diffusion_pytorch_model.safetensors").write_bytes(b"")
    assert DIFFUSERS.variant(tmp_path, ON_CPU) is None
    half(True)
    assert DIFFUSERS.variant(tmp_path, ON_CPU) == "fp16"
