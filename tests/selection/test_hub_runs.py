"""A task's tool with the default sources and a HubDouble: list, select, download or call, fall back."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from libraries import needs

from jarvis_agent import JarvisAgent, Plan, Settings, Task, hf_tools
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.execution import fallback
from jarvis_agent.selection.selector import MAX_REMOTE_CANDIDATES
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.testing import HubDouble

needs("torch")

pytestmark = pytest.mark.slow

TASK = "text-classification"
LABELS = [{"label": "good", "score": 0.75}, {"label": "bad", "score": 0.25}]
HOSTED: dict[str, Any] = {"hf-inference": {}}
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def classifier(built: Callable[[str], Path]) -> Path:
    return built("bert_classifier")


@pytest.fixture
def hub(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> HubDouble:
    """A Hub whose retries do not wait."""
    monkeypatch.setattr(fallback, "_pause", lambda state: 0.0)
    return hub


def use(tmp_path: Path, **given: Any) -> Any:
    """The tool message of the task for "It is fine.", with its status and artifact."""
    usual = {"model": "none", "offline": False, "hf_token": "hf_x", "device": "cpu"}
    usual["output_dir"] = tmp_path / "made"
    tool: Any
    [tool] = hf_tools(tasks=[TASK], settings=Settings(**{**usual, **given}))
    with tool:
        return tool.invoke({"type": "tool_call", "id": "1", "name": TASK, "args": {"text": "It is fine."}})


def tried(message: Any) -> list[tuple[str, str, bool]]:
    assert message.status == "success", message.content
    return [(a["model"], a["backend"], a["error"] is None) for a in message.artifact["attempts"]]


def add_local(hub: HubDouble, folder: Path, name: str = "org/tiny", **fields: Any) -> None:
    hub.add_model(name, pipeline_tag=TASK, library_name="transformers", directory=folder, **fields)


def add_hosted(hub: HubDouble, name: str, **fields: Any) -> None:
    """Add a model that only a provider can run."""
    hub.add_model(name, pipeline_tag=TASK, library_name="elsewhere", providers=HOSTED, **fields)


SPECIALISTS: dict[str, tuple[str, str, str, str, list[str]]] = {
    "ProsusAI/finbert": (TASK, "bert_classifier", "finance headlines", "Up!", ["finance"]),
    "jonatasgrosman/wav2vec2-large-xlsr-53-hungarian": (
        "automatic-speech-recognition", "wav2vec2_ctc", "Hungarian", "speech.wav", ["hu"],
    ),
}  # fmt: skip
"""By id: the task, a tiny model in its place, a purpose, its input, and tags. `test_ranking` has more."""


@pytest.mark.parametrize("specialist", SPECIALISTS)
def test_a_specialist_is_found_downloaded_and_run(
    hub: HubDouble, built: Callable[[str], Path], tmp_path: Path, specialist: str
) -> None:
    name, tiny, purpose, value, tags = SPECIALISTS[specialist]
    task = Task(task=name, id=0, args={TASKS[name].inputs[0].name: value}, purpose=purpose)
    usual: dict[str, Any] = {"pipeline_tag": name, "library_name": "transformers", "directory": built(tiny)}
    safe = ["transformers", "safetensors"]
    general = [f"someone/{name}-{number}" for number in range(MAX_REMOTE_CANDIDATES)]
    for number, model in enumerate(general):
        hub.add_model(model, downloads=9_000_000 // (number + 1), tags=safe, **usual)
    hub.add_model(specialist, downloads=700, tags=[*safe, *tags], **usual)
    files = [value] if (EXAMPLES / value).exists() else []
    settings = Settings(offline=False, output_dir=tmp_path / "made", device="cpu")
    parts: dict[str, Any] = {"planner": lambda _: Plan(tasks=[task]), "sources": [HubSource(settings)]}
    with JarvisAgent(None, settings=settings, **parts) as agent:
        run = agent.invoke({"input": "Do it", "files": [EXAMPLES / file for file in files]})
        select = agent.stages.registry.selector.select
        plain = asyncio.run(select(Task(task=name, id=0), TASKS[name], RunContext("")))
    (result,) = run.results
    assert (result.model, result.status) == (specialist, "ok"), result.error
    assert result.selection is not None
    assert "largest lead: purpose" in result.selection.reason
    assert plain.model == general[0]
    assert specialist not in {one.id for one in plain.candidates}


def test_a_model_is_listed_selected_and_called_where_it_is_hosted(hub: HubDouble, tmp_path: Path) -> None:
    add_hosted(hub, "org/served")
    hub.answer("/hf-inference/models/org/served", body=[LABELS])
    message = use(tmp_path)
    assert message.artifact["output"] == LABELS
    assert tried(message) == [("org/served", "hf-inference", True)]
    assert message.artifact["placement"] == "hosted by hf-inference; nothing here can run it"


HERE, THERE = {"library_name": "transformers"}, {"library_name": "elsewhere", "providers": HOSTED}
TWO = {"library_name": "elsewhere", "providers": {"together": {}, **HOSTED}}
GATED = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."}
GONE = {"X-Error-Code": "RepoNotFound"}
FAILED_HERE, FAILED_THERE = ("org/first", "transformers", False), ("org/first", "hf-inference", False)
FIRST, SECOND = ("org/first", "hf-inference", True), ("org/second", "hf-inference", True)
FAILURES: dict[str, tuple[dict[str, Any], str, dict[str, Any], list[Any]]] = {
    "busy provider": (THERE, "/models/org/first", {"status": 503}, [*[FAILED_THERE] * 3, SECOND]),
    "provider down": (TWO, "/together/", {"status": 503}, [FIRST]),
    "refused token": (
        {**HERE, "gated": "manual"}, "org/first", {"status": 403, "headers": GATED}, [FAILED_HERE, SECOND],
    ),
    "vanished model": (HERE, "org/first", {"status": 404, "headers": GONE}, [FAILED_HERE, SECOND]),
    "failed download": (
        {**HERE, "providers": HOSTED}, "/resolve/", {"status": 404}, [FAILED_HERE, FIRST],
    ),
}  # fmt: skip
"""The first model, which requests fail and how, and the attempts."""


@pytest.mark.parametrize("failure", FAILURES)
def test_after_a_failure_the_next_provider_or_model_is_used(
    hub: HubDouble, classifier: Path, tmp_path: Path, failure: str
) -> None:
    fields, path, answer, attempts = FAILURES[failure]
    hub.add_model("org/first", pipeline_tag=TASK, directory=classifier, downloads=9, **fields)
    hub.answer(path, **answer)
    if attempts[-1] == SECOND:
        add_hosted(hub, "org/second", downloads=1)
    hub.answer("/hf-inference/", body=[LABELS])
    assert tried(use(tmp_path)) == attempts


def test_without_a_network_what_is_here_still_runs(hub: HubDouble, classifier: Path, tmp_path: Path) -> None:
    with HubDouble() as away:
        pass
    with away.redirected():
        message = use(tmp_path)
    assert message.status == "error"
    assert "no model can do text-classification here" in message.content
    assert "cannot be used" in message.content
    assert message.content.count("HTTPS_PROXY") == 1
    # Under another name: a model that an earlier test left loaded would not be downloaded.
    add_local(hub, classifier, "org/kept", card={"pipeline_tag": TASK})
    assert use(tmp_path).status == "success"
    with away.redirected():
        assert tried(use(tmp_path)) == [("org/kept", "transformers", True)]
