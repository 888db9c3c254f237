"""Models that an expert server runs: how its answers and errors are read, and that results stay the same."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from expert_servers import command_backend, command_call, served_experts
from PIL import Image
from result_bench import ARM, a_call, a_photo, a_table

from jarvis_agent.backends.base import Call, Expert
from jarvis_agent.backends.local import LocalBackend
from jarvis_agent.backends.outputs.adapters import Result, adapt
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.remote_experts import ExpertServer, RemoteBackend, write_request
from jarvis_agent.core import errors
from jarvis_agent.core.errors import JarvisError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.testing import HubDouble

ROUTE = "/models/org/model/pipeline/text-generation"
BOX = {"xmin": 1, "ymin": 2, "xmax": 90, "ymax": 60}
MASK = Image.new("L", (200, 100), 255)
WAVE = np.sin(np.arange(800, dtype=np.float32) / 9)

RAW: dict[str, Any] = {
    "text-classification": [{"label": "a", "similarity": 0.9}, {"label": "b", "similarity": 0.2}],
    "question-answering": [{"answer": "Ada", "score": 0.9}, {"answer": "Bob", "score": 0.1}],
    "object-detection": [{"label": "cat", "score": 0.9, "box": BOX}],
    "keypoint-detection": [{"score": 0.9, "keypoints": ARM, "edges": [(0, 1)]}],
    "image-segmentation": [{"label": "cat", "score": 0.9, "mask": MASK}],
    "depth-estimation": {"predicted_depth": np.arange(6.0).reshape(2, 3), "metric": True},
    "text-to-speech": {"audio": WAVE, "sampling_rate": 8_000},
    "audio-to-audio": [{"label": str(n), "audio": WAVE, "sampling_rate": 8_000} for n in range(2)],
    "visual-document-retrieval": [0.25, 0.75],
    "tabular-classification": {"predictions": ["a", "b", "a"], "probabilities": [[0.9, 0.1]] * 3},
    "time-series-forecasting": [{"series": "sales", "values": [1.0], "low": [0.5], "high": [2.0]}],
    "image-to-text": {"generated_text": "", "lines": []},
}
"""A raw output in each of the forms that become more than plain JSON."""


class RawBackend(LocalBackend):
    """Returns the rows of RAW, whatever it is asked."""

    name = "raw"

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return None if candidate.id == "me/raw" else "it only knows me/raw"

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        return lambda call: RAW[call.spec.name]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("models") / "models.json"
    file.write_text(json.dumps([{"id": "me/raw", "tasks": list(RAW), "local": True}]))
    with served_experts(Settings(models_file=file), backends=[RawBackend]) as address:
        yield address


def raw_call(task: str, folder: Path) -> Call:
    """A call of RawBackend with every argument of the task."""
    page = folder / "page-2.png"
    MASK.save(page)
    media = {"image": a_photo(folder), "table": a_table(folder), "audio": None, "video": None}
    given: dict[str, Any] = {arg.name: media.get(arg.name, "a text") for arg in TASKS[task].inputs}
    if task == "visual-document-retrieval":
        given["image"] = [given["image"], Resource(kind="image", path=page, mime="image/png")]
    if task == "audio-to-audio":
        from jarvis_agent.media.recordings import write_audio

        write_audio(folder / "in.wav", WAVE, 8_000)
        given["audio"] = Resource(kind="audio", path=folder / "in.wav", mime="audio/wav")
    call = a_call(TASKS[task], folder, **given)
    return replace(call, candidate=Candidate(id="me/raw", task=task, backend="raw", local=True))


def content_of(result: Result) -> Any:
    """Output, notes and resources, with the content of files in place of their paths."""
    text = json.dumps([result.output, [one.model_dump(mode="json") for one in result.resources]])
    for path in (one.path for one in result.resources if one.path):
        text = text.replace(json.dumps(str(path)), json.dumps(base64.b64encode(path.read_bytes()).decode()))
    return json.loads(text)


@pytest.mark.parametrize("task", RAW)
async def test_a_result_of_the_server_is_that_from_here(task: str, address: str, tmp_path: Path) -> None:
    call = raw_call(task, tmp_path)
    backend = RemoteBackend(RawBackend(call.settings, ModelPool(0)), ExpertServer(address))
    here = adapt(call.spec, RAW[task], call)
    notes = [*call.notes]
    call.notes.clear()
    there = adapt(call.spec, await backend.run(call), call)
    assert content_of(there) == content_of(here)
    assert call.notes == notes
    assert all(one.path.is_file() for one in there.resources if one.path)


def test_a_program_gets_the_forms_of_the_hub_and_no_path(address: str) -> None:
    def ask(task: str, **parameters: Any) -> httpx.Response:
        asked = {"inputs": {"text": "Who?", "context": "Ada."}, "parameters": parameters}
        return httpx.post(f"{address}/models/me/raw/pipeline/{task}", json=asked)

    assert ask("text-classification", top_k=1).json() == [[{"label": "a", "score": 0.9}]]
    assert ask("question-answering").json()["answer"] == "Ada"
    assert [one["answer"] for one in ask("question-answering", top_k=2).json()] == ["Ada", "Bob"]
    assert "top_k must be a whole number" in ask("question-answering", top_k="x").json()["error"]
    speech = ask("text-to-speech")
    assert (speech.headers["content-type"], speech.content[:4]) == ("audio/wav", b"RIFF")
    whole = ask("text-to-speech", return_files=True)
    (made,) = whole.json()["resources"]
    assert made["path"] == whole.json()["output"]["path"]
    assert "/" not in Path(made["path"]).parent.as_posix()
    assert base64.b64decode(made["content"])[:4] == b"RIFF"


@pytest.mark.parametrize(
    ("status", "body", "kind", "says"),
    [
        (400, {"error": "no"}, errors.BadInputError, "^no$"),
        (404, {"error": "no model"}, errors.ExpertError, "failed: no model"),
        (
            404,
            {"detail": "Not Found"},
            errors.ConfigError,
            "answers 404: Not Found. What helps: check JARVIS_EXPERTS",
        ),
        (422, {"error": "no"}, errors.UnsupportedError, "^no$"),
        (429, {"error": "8 at once"}, errors.RateLimitedError, "8 at once"),
        (500, {"error": "no"}, errors.ExpertError, "failed: no"),
        (502, b"<html>", errors.TransientError, "answers 502"),
        (503, {"error": "no"}, errors.TransientError, "^no$"),
        (504, {"error": "no"}, errors.AttemptTimeoutError, "^no$"),
        (507, {"error": "no"}, errors.OutOfMemoryError, "^no$"),
        (200, b"<html>", errors.UnsupportedError, "is no result"),
        (200, {"output": 1, "notes": []}, errors.UnsupportedError, "is no result"),
        (200, [], errors.UnsupportedError, "is no result"),
    ],
)
async def test_an_answer_becomes_an_error_with_its_policy(
    hub: HubDouble, status: int, body: Any, kind: type[JarvisError], says: str
) -> None:
    hub.answer(ROUTE, status=status, headers={"Retry-After": "7"}, body=body)
    with pytest.raises(kind, match=says) as caught:
        await command_backend(ExpertServer(hub.url)).run(command_call("echo"))
    assert type(caught.value) is kind
    assert getattr(caught.value, "retry_after", 7.0) == 7.0


async def test_a_call_names_its_model_in_the_header_of_ray_serve(hub: HubDouble) -> None:
    call = command_call("echo")
    call = replace(call, candidate=call.candidate.model_copy(update={"revision": "v1"}))
    hub.answer("/models/", body={"output": {"generated_text": "one"}, "resources": [], "notes": []})
    await command_backend(ExpertServer(hub.url)).run(call)
    assert hub.requests[-1].headers["serve-multiplexed-model-id"] == "org/model@v1"


def test_a_busy_server_is_not_said_to_be_absent(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.backends.remote_experts._CONNECT_S", 0.5)
    hub.stall("/models")
    with pytest.raises(errors.TransientError, match=r"silent for 0\.5 s.*busy"):
        ExpertServer(hub.url).status()


async def test_a_file_that_a_server_names_and_keeps_is_not_opened(hub: HubDouble, tmp_path: Path) -> None:
    (secret := tmp_path / "secret.txt").write_text("secret")
    row = {"kind": "text", "path": str(secret), "name": "a text"}
    hub.answer(ROUTE, body={"output": {"path": str(secret)}, "resources": [row], "notes": []})
    call = command_call("echo")
    _, (made,) = await command_backend(ExpertServer(hub.url)).run(call)
    assert made.path is None


def test_a_request_holds_no_secret_and_no_path_and_the_revision_names_the_model(tmp_path: Path) -> None:
    settings = Settings(seed=7, hf_token="hf_secret", api_key="of-the-llm")
    candidate = Candidate(
        id="org/model", task="image-to-text", path=tmp_path, metadata={"options": {"num_beams": 2}}
    )
    call = replace(
        a_call(TASKS["image-to-text"], tmp_path, image=a_photo(tmp_path), text="read"),
        candidate=candidate,
        settings=settings,
    )
    body, _, _ = write_request(call)
    sent = json.loads(body)
    assert sent["parameters"] == {"num_beams": 2, "seed": 7, "return_files": True}
    assert sent["inputs"]["text"] == "read"
    assert sent["inputs"]["image"].startswith("data:image/png;name=photo.png;base64,")
    assert not any(text in body.decode() for text in ("hf_secret", "of-the-llm", str(tmp_path)))


async def test_an_object_that_is_no_json_is_not_sent(hub: HubDouble) -> None:
    call = replace(command_call("echo"), inputs={"text": object()})
    with pytest.raises(UnsupportedError, match="cannot be sent"):
        await command_backend(ExpertServer(hub.url)).run(call)
    assert not hub.requests
