"""Whole uses of a task's tool with a Hub on this machine: list, select, then download or ask a provider, run.

The candidates come from the sources that everybody has; the Hub fails in each way that it is known to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.inference._providers import _common

from jarvis_agent import JarvisAgent, Settings, hf_tools
from jarvis_agent.execution import fallback as ladder_module
from jarvis_agent.testing import HubDouble, ScriptedLLM

pytest.importorskip("torch")

import tiny_text

TASK = "text-classification"
LABELS = [{"label": "good", "score": 0.75}, {"label": "bad", "score": 0.25}]
HOSTED = {"hf-inference": {}}


@pytest.fixture
def classifier(built: Callable[[Callable[[Path], None]], Path]) -> Path:
    return built(tiny_text.bert_classifier)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    """A Hub, with empty caches of what it lists and of its models; retries do not wait."""
    for place in ("constants", "utils._cache_manager"):
        monkeypatch.setattr(f"huggingface_hub.{place}.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(_common, "HARDCODED_MODEL_INFERENCE_MAPPING", {})
    with HubDouble() as double, double.redirected():
        yield double


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before retries, in seconds, which are not waited for."""
    asked: list[float] = []
    real = ladder_module._pause
    monkeypatch.setattr(ladder_module, "_pause", lambda state: asked.append(real(state)) or 0.0)
    return asked


def use(tmp_path: Path, task: str = TASK, **given: Any) -> Any:
    """What the tool of a task says of "It is fine."; its message has the status and the artifact."""
    args = given.pop("args", {"text": "It is fine."})
    settings = Settings(
        **{"offline": False, "hf_token": "hf_x", "output_dir": tmp_path / "made", "device": "cpu", **given}
    )
    [tool] = hf_tools(tasks=[task], settings=settings)
    with tool:
        return tool.invoke({"type": "tool_call", "id": "1", "name": task, "args": args})


def tried(message: Any) -> list[tuple[str, str, bool]]:
    assert message.status == "success", message.content
    return [(a["model"], a["backend"], a["error"] is None) for a in message.artifact["attempts"]]


def add_local(hub: HubDouble, folder: Path, name: str = "org/tiny", **fields: Any) -> None:
    hub.add_model(name, pipeline_tag=TASK, library_name="transformers", directory=folder, **fields)


def add_hosted(hub: HubDouble, name: str, providers: dict[str, Any] | None = None, **fields: Any) -> None:
    """A model that is made for nothing which runs here, and is served by providers."""
    hub.add_model(name, pipeline_tag=TASK, library_name="elsewhere", providers=providers or HOSTED, **fields)


def test_a_model_is_listed_selected_downloaded_and_run(
    hub: HubDouble, classifier: Path, tmp_path: Path
) -> None:
    add_local(hub, classifier)
    message = use(tmp_path)
    assert message.status == "success", message.content
    assert {row["label"] for row in message.artifact["output"]} == {"first", "second", "third"}
    assert tried(message) == [("org/tiny", "transformers", True)]
    assert sum(request.path == "/api/models" for request in hub.requests) == 1


def test_a_model_is_listed_selected_and_asked_where_it_is_hosted(hub: HubDouble, tmp_path: Path) -> None:
    add_hosted(hub, "org/served")
    hub.answer("/hf-inference/models/org/served", body=[LABELS])
    message = use(tmp_path)
    assert message.status == "success", message.content
    assert message.artifact["output"] == LABELS
    assert tried(message) == [("org/served", "hf-inference", True)]
    assert message.artifact["placement"] == "hosted by hf-inference; nothing here can run it"


def test_a_model_that_sees_is_asked_as_a_chat_where_it_is_served_as_one(
    hub: HubDouble, tmp_path: Path
) -> None:
    served = {"novita": {"id": "novita/sees", "task": "conversational"}}
    hub.add_model("org/sees", pipeline_tag="image-text-to-text", library_name="elsewhere", providers=served)
    message = {"role": "assistant", "content": "A page."}
    hub.answer("/novita/", body={"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})
    page = Path(__file__).parents[2] / "examples" / "page.png"
    args = {"text": "What is it?", "image": str(page)}
    told = use(tmp_path, "image-text-to-text", args=args, allowed_dirs=(page.parent,))
    assert told.status == "success", told.content
    assert told.artifact["output"] == {"generated_text": "A page."}
    assert hub.requests[-1].json["messages"][0]["content"][1]["type"] == "image_url"


def test_an_agent_goes_the_same_way(hub: HubDouble, tmp_path: Path) -> None:
    add_hosted(hub, "org/served", downloads=1)
    add_hosted(hub, "org/other", downloads=9)
    hub.answer("/hf-inference/models/org/served", body=[LABELS])
    llm = ScriptedLLM(
        {
            "plan": '[{"task": "text-classification", "id": 0, "dep": [-1], "args": {"text": "Fine."}}]',
            "select": '{"id": "org/served", "reason": "it knows moods"}',
            "respond": "It is good.",
        }
    )
    settings = Settings(offline=False, hf_token="hf_x", output_dir=tmp_path)
    with JarvisAgent(model=llm, settings=settings) as agent:
        run = agent.invoke("Is this a good mood: Fine.")
    [result] = run.results
    assert (result.status, result.output) == ("ok", LABELS)
    assert result.selection is not None
    assert (result.selection.model, result.selection.reason) == ("org/served", "it knows moods")
    assert result.selection.placement == "hosted by hf-inference; nothing here can run it"


def test_a_provider_that_says_when_to_come_back_is_asked_then(
    hub: HubDouble, tmp_path: Path, pauses: list[float]
) -> None:
    add_hosted(hub, "org/served")
    hub.answer("/hf-inference/", status=429, headers={"Retry-After": "3"}, times=1)
    hub.answer("/hf-inference/", body=[LABELS])
    assert [ok for *_, ok in tried(use(tmp_path))] == [False, True]
    assert pauses == [3.0]


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_provider_in_trouble_is_asked_again_and_then_another_model(
    hub: HubDouble, tmp_path: Path, status: int
) -> None:
    add_hosted(hub, "org/first", downloads=9)
    add_hosted(hub, "org/second", downloads=1)
    hub.answer("/models/org/first", status=status, body={"error": "busy"})
    hub.answer("/models/org/second", body=[LABELS])
    assert [(model, ok) for model, _, ok in tried(use(tmp_path, retries=1))] == [
        ("org/first", False),
        ("org/first", False),
        ("org/second", True),
    ]


def test_where_a_provider_is_down_the_next_one_of_the_same_model_is_asked(
    hub: HubDouble, tmp_path: Path
) -> None:
    both = {"together": {}, "hf-inference": {}}
    add_hosted(hub, "org/served", both)
    hub.answer("/together/", status=503)
    hub.answer("/hf-inference/", body=[LABELS])
    assert tried(use(tmp_path)) == [("org/served", "hf-inference", True)]


def test_a_provider_that_hangs_is_left_for_the_next_model(hub: HubDouble, tmp_path: Path) -> None:
    add_hosted(hub, "org/first", downloads=9)
    add_hosted(hub, "org/second", downloads=1)
    hub.stall("/models/org/first")
    hub.answer("/models/org/second", body=[LABELS])
    message = use(tmp_path, task_timeout=6)
    assert [(model, ok) for model, _, ok in tried(message)] == [("org/first", False), ("org/second", True)]


def test_a_gated_model_is_left_out_without_a_token(
    hub: HubDouble, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    add_local(hub, classifier, "org/gated", gated="manual", downloads=9)
    message = use(tmp_path, hf_token=None)
    assert message.status == "error"
    assert "accept its terms at https://huggingface.co/org/gated and set HF_TOKEN" in message.content
    add_local(hub, classifier, "org/open", downloads=1)
    assert tried(use(tmp_path, hf_token=None)) == [("org/open", "transformers", True)]


def test_a_gated_model_that_refuses_the_token_is_left_for_the_next(
    hub: HubDouble, classifier: Path, tmp_path: Path
) -> None:
    add_local(hub, classifier, "org/gated", gated="manual", downloads=9)
    add_local(hub, classifier, "org/open", downloads=1)
    refused = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."}
    hub.answer("org/gated", status=403, headers=refused)
    message = use(tmp_path)
    assert [(model, ok) for model, _, ok in tried(message)] == [("org/gated", False), ("org/open", True)]


def test_a_model_that_has_vanished_is_left_for_the_next(
    hub: HubDouble, classifier: Path, tmp_path: Path
) -> None:
    add_local(hub, classifier, "org/gone", downloads=9)
    add_local(hub, classifier, "org/tiny", downloads=1)
    hub.answer("org/gone", status=404, headers={"X-Error-Code": "RepoNotFound"})
    message = use(tmp_path)
    assert [(model, ok) for model, _, ok in tried(message)] == [("org/gone", False), ("org/tiny", True)]


def test_a_download_that_stalls_is_left_for_the_next_model(
    hub: HubDouble, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "attempt_timeout", 2.0)
    add_local(hub, classifier, "org/slow", downloads=9)
    add_hosted(hub, "org/served", downloads=1)
    hub.stall("org/slow/resolve", where="middle")
    hub.answer("/models/org/served", body=[LABELS])
    message = use(tmp_path)
    assert [(model, ok) for model, _, ok in tried(message)] == [("org/slow", False), ("org/served", True)]
    assert "did not finish within 2 s" in message.artifact["attempts"][0]["error"]


def test_a_model_whose_download_fails_is_asked_where_it_is_hosted(
    hub: HubDouble, classifier: Path, tmp_path: Path
) -> None:
    add_local(hub, classifier, "org/both", providers=HOSTED)
    hub.answer("/resolve/", status=404)
    hub.answer("/hf-inference/models/org/both", body=[LABELS])
    message = use(tmp_path)
    assert tried(message) == [("org/both", "transformers", False), ("org/both", "hf-inference", True)]


def test_without_a_network_what_was_downloaded_still_runs(
    hub: HubDouble, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Under a name of its own: a model that an earlier test left loaded would not be downloaded.
    add_local(hub, classifier, "org/kept", card={"pipeline_tag": TASK})
    assert use(tmp_path).status == "success"
    with HubDouble() as away:
        pass
    with away.redirected():
        assert tried(use(tmp_path)) == [("org/kept", "transformers", True)]


def test_without_a_network_the_starter_models_still_run(tmp_path: Path) -> None:
    with HubDouble() as away:
        pass
    with away.redirected():
        page = Path(__file__).parents[2] / "examples" / "page.png"
        message = use(tmp_path, "canny-control", args={"image": str(page)}, allowed_dirs=(page.parent,))
    assert message.status == "success", message.content
    assert message.artifact["resources"][0]["path"]


def test_without_a_network_and_any_model_the_error_says_what_to_do(hub: HubDouble, tmp_path: Path) -> None:
    with HubDouble() as away:
        pass
    with away.redirected():
        message = use(tmp_path)
    assert message.status == "error"
    assert "no model can do text-classification here" in message.content
    assert "cannot be used" in message.content
    assert "with a network (see HTTPS_PROXY, HF_ENDPOINT) models can be found on the Hub" in message.content
