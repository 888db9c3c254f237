"""A task's tool with the default sources and a HubDouble: list, select, download or call, fall back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.inference._providers import _common

from jarvis_agent import Settings, hf_tools
from jarvis_agent.execution import fallback
from jarvis_agent.testing import HubDouble

pytest.importorskip("torch")

TASK = "text-classification"
LABELS = [{"label": "good", "score": 0.75}, {"label": "bad", "score": 0.25}]
HOSTED = {"hf-inference": {}}


@pytest.fixture
def classifier(built: Callable[[str], Path]) -> Path:
    return built("bert_classifier")


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
    real = fallback._pause
    monkeypatch.setattr(fallback, "_pause", lambda state: asked.append(real(state)) or 0.0)
    return asked


def use(tmp_path: Path, task: str = TASK, **given: Any) -> Any:
    """The tool message of a task for "It is fine.", with its status and artifact."""
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
    """Add a model that only providers can run."""
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
    message = use(tmp_path, "image-text-to-text", args=args, allowed_dirs=(page.parent,))
    assert message.status == "success", message.content
    assert message.artifact["output"] == {"generated_text": "A page."}
    assert hub.requests[-1].json["messages"][0]["content"][1]["type"] == "image_url"


def test_a_rate_limited_provider_is_called_again_after_the_requested_pause(
    hub: HubDouble, tmp_path: Path, pauses: list[float]
) -> None:
    add_hosted(hub, "org/served")
    hub.answer("/hf-inference/", status=429, headers={"Retry-After": "3"}, times=1)
    hub.answer("/hf-inference/", body=[LABELS])
    assert [ok for *_, ok in tried(use(tmp_path))] == [False, True]
    assert pauses == [3.0]


def busy_provider(hub: HubDouble, folder: Path) -> None:
    add_hosted(hub, "org/first", downloads=9)
    hub.answer("/models/org/first", status=503, body={"error": "busy"})


def provider_down(hub: HubDouble, folder: Path) -> None:
    add_hosted(hub, "org/both", {"together": {}, "hf-inference": {}}, downloads=9)
    hub.answer("/together/", status=503)
    hub.answer("/hf-inference/models/org/both", body=[LABELS])


def silent_provider(hub: HubDouble, folder: Path) -> None:
    add_hosted(hub, "org/first", downloads=9)
    hub.stall("/models/org/first")


def refused_token(hub: HubDouble, folder: Path) -> None:
    add_local(hub, folder, "org/gated", gated="manual", downloads=9)
    refused = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."}
    hub.answer("org/gated", status=403, headers=refused)


def vanished_model(hub: HubDouble, folder: Path) -> None:
    add_local(hub, folder, "org/gone", downloads=9)
    hub.answer("org/gone", status=404, headers={"X-Error-Code": "RepoNotFound"})


def stalled_download(hub: HubDouble, folder: Path) -> None:
    add_local(hub, folder, "org/slow", downloads=9)
    hub.stall("org/slow/resolve", where="middle")


def failed_download_of_a_served_model(hub: HubDouble, folder: Path) -> None:
    add_local(hub, folder, "org/both", providers=HOSTED, downloads=9)
    hub.answer("/resolve/", status=404)
    hub.answer("/hf-inference/models/org/both", body=[LABELS])


NEXT = ("org/second", "hf-inference", True)


@pytest.mark.parametrize(
    ("fail", "attempts"),
    [
        (busy_provider, [("org/first", "hf-inference", False)] * 2 + [NEXT]),
        (provider_down, [("org/both", "hf-inference", True)]),
        (silent_provider, [("org/first", "hf-inference", False), NEXT]),
        (refused_token, [("org/gated", "transformers", False), NEXT]),
        (vanished_model, [("org/gone", "transformers", False), NEXT]),
        (stalled_download, [("org/slow", "transformers", False), NEXT]),
    ],
)
def test_after_a_failure_the_next_provider_or_model_is_used(
    hub: HubDouble,
    classifier: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable[[HubDouble, Path], None],
    attempts: list[tuple[str, str, bool]],
) -> None:
    monkeypatch.setattr(Settings, "attempt_timeout", 1.0)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 1.5)
    fail(hub, classifier)
    add_hosted(hub, "org/second", downloads=1)
    hub.answer("/models/org/second", body=[LABELS])
    assert tried(use(tmp_path, retries=1)) == attempts


def test_a_model_whose_download_fails_is_called_where_it_is_hosted(
    hub: HubDouble, classifier: Path, tmp_path: Path
) -> None:
    failed_download_of_a_served_model(hub, classifier)
    assert tried(use(tmp_path)) == [("org/both", "transformers", False), ("org/both", "hf-inference", True)]


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


def test_without_a_network_what_was_downloaded_still_runs(
    hub: HubDouble, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Under another name: a model that an earlier test left loaded would not be downloaded.
    add_local(hub, classifier, "org/kept", card={"pipeline_tag": TASK})
    assert use(tmp_path).status == "success"
    with HubDouble() as away:
        pass
    with away.redirected():
        assert tried(use(tmp_path)) == [("org/kept", "transformers", True)]


def test_without_a_network_and_any_model_the_error_says_what_to_do(hub: HubDouble, tmp_path: Path) -> None:
    with HubDouble() as away:
        pass
    with away.redirected():
        message = use(tmp_path)
    assert message.status == "error"
    assert "no model can do text-classification here" in message.content
    assert "cannot be used" in message.content
    assert "with a network (see HTTPS_PROXY, HF_ENDPOINT) models can be found on the Hub" in message.content
