"""Models of sentence-transformers, skops and Chronos from a Hub on this machine: what is fetched, and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent import Settings, hf_tools
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.testing import HubDouble

pytest.importorskip("chronos")
pytest.importorskip("skops")

import tiny_tabular
import tiny_text

USELESS = dict.fromkeys(
    ("pytorch_model.bin", "model.pkl", "onnx/model.onnx", "openvino/openvino_model.bin"), b"useless"
)
TEXTS = {"text": "the cat is good", "sentences": ["the dog is good", "who wrote the program ?"]}
TABLE = {"table": "sales.csv"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    """A Hub, with empty caches of what it lists and of its models."""
    for place in ("constants", "utils._cache_manager"):
        monkeypatch.setattr(f"huggingface_hub.{place}.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    with HubDouble() as double, double.redirected():
        yield double


def ask(folder: Path, monkeypatch: pytest.MonkeyPatch, task: str, args: dict[str, Any]) -> Any:
    """The message of a task's tool, which knows only the models of the Hub."""
    monkeypatch.chdir(folder)
    Path("sales.csv").write_text("month,sales,rain\n" + "".join(f"{n},{n * 2},{n % 3}\n" for n in range(9)))
    settings = Settings(offline=False, output_dir=folder / "made", device="cpu", policy="local-only")
    [tool] = hf_tools(tasks=[task], settings=settings, sources=[HubSource(settings)])
    with tool:
        return tool.invoke({"type": "tool_call", "id": "1", "name": task, "args": args})


@pytest.mark.parametrize(
    ("task", "library", "build", "args", "backend"),
    [
        (
            "sentence-similarity",
            "sentence-transformers",
            tiny_text.dense_embedder,
            TEXTS,
            "sentence-transformers",
        ),
        ("text-ranking", "sentence-transformers", tiny_text.cross_encoder, TEXTS, "sentence-transformers"),
        ("tabular-classification", "sklearn", tiny_tabular.bare, TABLE, "sklearn"),
        ("time-series-forecasting", "chronos-forecasting", tiny_tabular.chronos_bolt, TABLE, "chronos"),
    ],
)
def test_a_model_is_listed_selected_downloaded_and_run_by_its_library(
    hub: HubDouble,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    library: str,
    build: Callable[[Path], None],
    args: dict[str, Any],
    backend: str,
) -> None:
    (tmp_path / "model").mkdir()
    build(tmp_path / "model")
    hub.add_model(
        "org/tiny", pipeline_tag=task, library_name=library, files=USELESS, directory=tmp_path / "model"
    )
    message = ask(tmp_path, monkeypatch, task, args)
    assert message.status == "success", message.content
    [attempt] = message.artifact["attempts"]
    assert (attempt["model"], attempt["backend"]) == ("org/tiny", backend)
    fetched = {request.path for request in hub.requests if "/resolve/" in request.path}
    assert fetched
    assert not [path for path in fetched if path.endswith((".bin", ".pkl", ".onnx"))]


def test_a_table_model_that_is_only_a_pickle_is_not_even_downloaded(
    hub: HubDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JARVIS_ALLOW_PICKLE", "1")
    task = "tabular-regression"
    hub.add_model("org/tiny", pipeline_tag=task, library_name="sklearn", files={"model.joblib": b"useless"})
    message = ask(tmp_path, monkeypatch, task, TABLE)
    assert message.status == "error"
    assert "only as a pickle" in message.content
    assert not [request for request in hub.requests if request.path.endswith("model.joblib")]
