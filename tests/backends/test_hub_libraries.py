"""From the Hub to a tool's result: models of several libraries are listed, selected, downloaded and run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from libraries import needs
from model_bench import fetched

from jarvis_agent import Settings, hf_tools
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.testing import HubDouble

needs("chronos")
needs("skops")

pytestmark = pytest.mark.slow

USELESS = dict.fromkeys(("pytorch_model.bin", "model.pkl", "onnx/model.onnx", "onnx/config.json"), b"useless")
TEXTS = {"text": "the cat is good", "sentences": ["the dog is good", "who wrote the program ?"]}
TABLE = {"table": "sales.csv"}


def ask(folder: Path, monkeypatch: pytest.MonkeyPatch, task: str, args: dict[str, Any]) -> Any:
    """The message of a task's tool, which knows only the models of the Hub."""
    monkeypatch.chdir(folder)
    Path("sales.csv").write_text("month,sales,rain\n" + "".join(f"{n},{n * 2},{n % 3}\n" for n in range(9)))
    settings = Settings(offline=False, output_dir=folder / "made", device="cpu", policy="local-only")
    tool: Any
    [tool] = hf_tools(tasks=[task], settings=settings, sources=[HubSource(settings)])
    with tool:
        return tool.invoke({"type": "tool_call", "id": "1", "name": task, "args": args})


@pytest.mark.parametrize(
    ("task", "library", "model", "args"),
    [
        ("text-classification", "transformers", "bert_classifier", {"text": "the cat is good"}),
        ("text-ranking", "sentence-transformers", "cross_encoder", TEXTS),
        ("tabular-classification", "sklearn", "bare", TABLE),
        ("time-series-forecasting", "chronos-forecasting", "chronos_bolt", TABLE),
    ],
)
def test_a_model_is_listed_downloaded_and_run_by_its_library(
    hub: HubDouble,
    built: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    library: str,
    model: str,
    args: dict[str, Any],
) -> None:
    hub.add_model("org/tiny", pipeline_tag=task, library_name=library, files=USELESS, directory=built(model))
    message = ask(tmp_path, monkeypatch, task, args)
    assert message.status == "success", message.content
    [attempt] = message.artifact["attempts"]
    assert attempt["model"] == "org/tiny"
    assert library.startswith(attempt["backend"])
    assert sum(request.path == "/api/models" for request in hub.requests) == 1
    assert "config.json" in fetched(hub)
    assert fetched(hub).isdisjoint(USELESS)
