"""Gradio Spaces as experts, against a double that speaks Gradio's protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from doubles.gradio_space import SpaceDouble
from PIL import Image

from jarvis_agent import RegisteredSource, Settings, hf_tools
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.hosted.gradio_spaces import SpacesBackend, read_output
from jarvis_agent.core.errors import TransientError, UnsupportedError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.media.audio import write_audio
from jarvis_agent.testing import HubDouble

pytest.importorskip("gradio_client")

SETTINGS = Settings(offline=False, task_timeout=25, retries=0)


@pytest.fixture
def space() -> Iterator[SpaceDouble]:
    with SpaceDouble() as double:
        yield double


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "cat.png"
    Image.new("RGB", (8, 6), "red").save(path)
    return path


def call_of(task: str, space: str, tmp_path: Path, given: dict[str, Any], **metadata: Any) -> Call:
    candidate = Candidate(
        id="org/space", task=task, backend="spaces", local=True, metadata={"space": space, **metadata}
    )
    return Call(TASKS[task], candidate, given, lambda suffix: tmp_path / f"made{suffix}", SETTINGS)


async def run(call: Call) -> Any:
    return await SpacesBackend(SETTINGS).run(call)


async def test_a_text_becomes_an_image(space: SpaceDouble, tmp_path: Path, picture: Path) -> None:
    space.add("/draw", {"prompt": "Textbox", "seed": "Slider"}, ["Image", "Number"], lambda **_: (picture, 7))
    call = call_of("text-to-image", space.url, tmp_path, {"text": "a cat"}, inputs={"prompt": "text"})
    image = await run(call)
    assert (image.size, image.getpixel((0, 0))) == ((8, 6), (255, 0, 0))
    assert space.calls == [("/draw", {"prompt": "a cat", "seed": 0})]


async def test_files_are_sent_and_texts_come_back(space: SpaceDouble, tmp_path: Path, picture: Path) -> None:
    space.add("/see", {"input_img": "Image", "q": "Textbox"}, ["Textbox"], lambda **_: "a cat")
    image = Resource(kind="image", path=picture)
    given, named = {"text": "What?", "image": image}, {"input_img": "image", "q": "text"}
    call = call_of("visual-question-answering", space.url, tmp_path, given, inputs=named)
    sent = await asyncio.to_thread(picture.read_bytes)
    assert await run(call) == [{"answer": "a cat", "score": None}]
    assert space.calls == [("/see", {"input_img": sent, "q": "What?"})]


async def test_labels_come_with_their_scores(space: SpaceDouble, tmp_path: Path) -> None:
    label = {"label": "cat", "confidences": [{"label": "cat", "confidence": 0.75}]}
    space.add("/sort", {"text": "Textbox"}, ["Label"], lambda text: label)
    call = call_of("text-classification", space.url, tmp_path, {"text": "meow"})
    assert await run(call) == [{"label": "cat", "score": 0.75}]


@pytest.mark.parametrize("task", ["image-segmentation", "mask-generation"])
async def test_an_answer_may_name_no_file_of_this_machine(
    space: SpaceDouble, tmp_path: Path, picture: Path, task: str
) -> None:
    found = [{"mask": str(picture), "label": "cat", "score": 1.0}]
    space.add("/find", {"image": "Image"}, ["JSON"], lambda image: found)
    image = Resource(kind="image", path=picture)
    with pytest.raises(UnsupportedError, match="names a file that it did not send"):
        await run(call_of(task, space.url, tmp_path, {"image": image}))


def test_a_file_that_was_sent_is_an_image_in_an_answer(tmp_path: Path, picture: Path) -> None:
    call = call_of("image-segmentation", "http://space", tmp_path, {})
    endpoint = {"returns": [{"component": "Json"}]}
    answer = [{"mask": str(picture), "label": "cat", "box": [1, None]}]
    [row] = read_output(endpoint, answer, call, tmp_path)
    assert (row["mask"].size, row["label"], row["box"]) == ((8, 6), "cat", [1, None])


async def test_sound_comes_as_samples(space: SpaceDouble, tmp_path: Path) -> None:
    write_audio(tmp_path / "said.wav", [0.0] * 800, 8_000)
    space.add("/speak", {"text": "Textbox"}, ["Audio"], lambda text: tmp_path / "said.wav")
    raw = await run(call_of("text-to-speech", space.url, tmp_path, {"text": "hi"}))
    assert (raw["audio"].shape, raw["sampling_rate"]) == ((800,), 8_000)


async def test_a_video_is_kept(space: SpaceDouble, tmp_path: Path) -> None:
    (tmp_path / "v.mp4").write_bytes(b"mp4 of sorts")
    space.add("/film", {"text": "Textbox"}, ["Video"], lambda text: tmp_path / "v.mp4")
    raw = await run(call_of("text-to-video", space.url, tmp_path, {"text": "waves"}))
    assert raw == {"path": str(tmp_path / "made.mp4")}
    assert (tmp_path / "made.mp4").read_bytes() == b"mp4 of sorts"


async def test_the_user_may_name_the_endpoint_its_parameters_and_options(
    space: SpaceDouble, tmp_path: Path, picture: Path
) -> None:
    space.add("/other", {"text": "Textbox"}, ["Image"], lambda text: picture)
    takes = {"negative": "Textbox", "positive": "Textbox", "steps": "Slider"}
    space.add("/draw", takes, ["Image"], lambda **_: picture, {"steps": 50})
    named = {"api_name": "draw", "inputs": {"positive": "text"}, "options": {"steps": 4, "negative": ""}}
    await run(call_of("text-to-image", space.url, tmp_path, {"text": "a cat"}, **named))
    assert space.calls == [("/draw", {"negative": "", "positive": "a cat", "steps": 4})]


@pytest.mark.parametrize(
    ("takes", "gives", "metadata", "told"),
    [
        ({"n": "Number"}, ["Image"], {}, "no parameter of the Space takes text"),
        ({"text": "Textbox"}, ["Number"], {}, "returned number, which is not supported"),
        ({"text": "Textbox"}, ["Image"], {"api_name": "/g"}, "no endpoint /g; its endpoints: /f"),
        ({"text": "Textbox", "b": "Number"}, ["Image"], {}, "needs a value for b"),
        ({"text": "Textbox"}, ["Image"], {"options": {"z": 1}}, "has no parameter z; it has text"),
        ({"text": "Textbox"}, ["Image"], {"inputs": {"z": "text"}}, "has no parameter z"),
    ],
)
async def test_what_does_not_fit_is_told(
    space: SpaceDouble,
    tmp_path: Path,
    takes: dict[str, str],
    gives: list[str],
    metadata: dict[str, Any],
    told: str,
) -> None:
    space.add("/f", takes, gives, lambda **_: "words")
    with pytest.raises(UnsupportedError) as caught:
        await run(call_of("text-to-image", space.url, tmp_path, {"text": "a cat"}, **metadata))
    assert told in str(caught.value)


async def test_a_space_that_fails_says_why(space: SpaceDouble, tmp_path: Path) -> None:
    def fail(text: str) -> Any:
        raise ValueError("no GPU is left")

    space.add("/f", {"text": "Textbox"}, ["Textbox"], fail)
    with pytest.raises(UnsupportedError, match="no GPU is left"):
        await run(call_of("text-generation", space.url, tmp_path, {"text": "hi"}))


async def test_a_file_that_is_none_is_the_space_s_failure_and_not_the_input_s(
    space: SpaceDouble, tmp_path: Path
) -> None:
    (tmp_path / "no.png").write_bytes(b"no image")
    space.add("/f", {"text": "Textbox"}, ["Image"], lambda text: tmp_path / "no.png")
    with pytest.raises(UnsupportedError, match="sent a file that cannot be read"):
        await run(call_of("text-to-image", space.url, tmp_path, {"text": "hi"}))


async def test_a_space_that_is_not_there_may_come_back(tmp_path: Path) -> None:
    with SpaceDouble() as gone:
        url = gone.url
    with pytest.raises(TransientError):
        await run(call_of("text-generation", url, tmp_path, {"text": "hi"}))


async def test_what_is_no_space_may_be_one_that_is_waking(tmp_path: Path) -> None:
    with HubDouble() as other, pytest.raises(TransientError, match="is not ready"):
        await run(call_of("text-generation", other.url, tmp_path, {"text": "hi"}))


async def test_a_space_that_falls_silent_is_cancelled(space: SpaceDouble, tmp_path: Path) -> None:
    space.add("/f", {"text": "Textbox"}, ["Textbox"], lambda text: text)
    space.silent = True
    backend = SpacesBackend(SETTINGS.model_copy(update={"task_timeout": 2.5}))
    with pytest.raises(TransientError, match="did not answer within"):
        await backend.run(call_of("text-generation", space.url, tmp_path, {"text": "hi"}))
    for _ in range(100):
        if space.cancelled:
            break
        await asyncio.sleep(0.05)
    assert space.cancelled == ["event-0"]


async def test_a_server_of_the_users_own_sees_no_token(
    space: SpaceDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    space.add("/f", {"text": "Textbox"}, ["Textbox"], lambda text: text)
    backend = SpacesBackend(Settings(hf_token="hf_secret", task_timeout=25))
    assert await backend.run(call_of("text-generation", space.url, tmp_path, {"text": "hi"})) == "hi"
    assert "hf_secret" not in str(space.headers)


@pytest.mark.parametrize(("private", "sent"), [(True, True), (False, False)])
async def test_a_space_of_the_hub_is_looked_up_and_only_a_private_one_sees_the_token(
    space: SpaceDouble, tmp_path: Path, private: bool, sent: bool
) -> None:
    space.add("/f", {"text": "Textbox"}, ["Textbox"], lambda text: text)
    about = {"id": "org/space", "host": space.url, "private": private, "sdk": "gradio"}
    with HubDouble() as hub, hub.redirected():
        hub.answer("/api/spaces/org/space", body={**about, "runtime": {"stage": "RUNNING"}})
        backend = SpacesBackend(Settings(hf_token="hf_secret", offline=False, task_timeout=25))
        assert await backend.run(call_of("text-generation", "org/space", tmp_path, {"text": "hi"})) == "hi"
    assert ("hf_secret" in str(space.headers)) is sent


@pytest.mark.parametrize(("stage", "kind"), [("BUILDING", TransientError), ("PAUSED", UnsupportedError)])
async def test_a_space_that_does_not_run_is_told(tmp_path: Path, stage: str, kind: type[Exception]) -> None:
    with HubDouble() as hub, hub.redirected():
        hub.answer("/api/spaces/", body={"id": "a/b", "host": hub.url, "runtime": {"stage": stage}})
        with pytest.raises(kind, match=stage):
            await run(call_of("text-generation", "a/b", tmp_path, {"text": "hi"}))


def test_the_reason_why_a_model_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, online = TASKS["text-to-image"], SpacesBackend(Settings(offline=False))
    named = Candidate(id="a/b", task=spec.name, metadata={"space": "a/b"})
    assert online.unsupported_reason(spec, named) is None
    assert "not a registered Space" in (
        online.unsupported_reason(spec, named.model_copy(update={"metadata": {}})) or ""
    )
    assert SpacesBackend(Settings(offline=True)).unsupported_reason(spec, named) == "offline mode is on"
    monkeypatch.setattr("jarvis_agent.backends.hosted.gradio_spaces.find_spec", lambda name: None)
    assert "[spaces]" in (online.unsupported_reason(spec, named) or "")
    assert isinstance(online, Backend)


def test_a_space_of_this_machine_is_an_expert_even_offline(
    space: SpaceDouble, tmp_path: Path, picture: Path
) -> None:
    space.add("/draw", {"prompt": "Textbox"}, ["Image"], lambda prompt: picture)
    settings = Settings(output_dir=tmp_path / "made", offline=True, policy="local-only")
    named = {"inputs": {"prompt": "text"}}
    mine = RegisteredSource({"id": "mine", "task": "text-to-image", "space": space.url, "metadata": named})
    [tool] = hf_tools(tasks=["text-to-image"], sources=[mine], settings=settings)
    call = {"type": "tool_call", "id": "1", "name": "text-to-image", "args": {"text": "a cat"}}
    with tool:
        message = tool.invoke(call)
    assert message.status == "success", message.content
    [resource] = json.loads(json.dumps(message.artifact))["resources"]
    assert Image.open(resource["path"]).size == (8, 6)
