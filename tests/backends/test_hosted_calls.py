"""How each task is asked of those who host models, against a double that speaks as the providers do."""

import base64
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosting import LABELS, call_of, candidate, png, run, wav
from huggingface_hub.inference._providers import _common

from jarvis_agent.backends.hosted.provider_calls import CALLS
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.testing import HubDouble


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    monkeypatch.setattr(_common, "HARDCODED_MODEL_INFERENCE_MAPPING", {})
    with HubDouble() as double, double.redirected():
        yield double


@pytest.fixture
def image(tmp_path: Path) -> Resource:
    path = tmp_path / "cat.png"
    path.write_bytes(png())
    return Resource(kind="image", path=path, mime="image/png")


B64_MASK = base64.b64encode(png(mode="L")).decode()
BOX = {"xmin": 0, "ymin": 0, "xmax": 2, "ymax": 2}
TEXTS: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("text-classification", {"text": "hi"}, [LABELS], LABELS),
    (
        "token-classification",
        {"text": "Ada"},
        [{"entity_group": "PER", "score": 0.5, "word": "Ada", "start": 0, "end": 3}],
        [{"entity_group": "PER", "score": 0.5, "word": "Ada", "start": 0, "end": 3}],
    ),
    (
        "question-answering",
        {"text": "Who?", "context": "Ada did."},
        {"answer": "Ada", "score": 0.5, "start": 0, "end": 3},
        [{"answer": "Ada", "score": 0.5, "start": 0, "end": 3}],
    ),
    ("zero-shot-classification", {"text": "meow", "labels": ["cat", "dog"]}, LABELS, LABELS),
    ("translation", {"text": "hi"}, [{"translation_text": "salut"}], {"translation_text": "salut"}),
    (
        "translation",
        {"text": "hi", "src_lang": "en", "tgt_lang": "fr"},
        [{"translation_text": "salut"}],
        {"translation_text": "salut"},
    ),
    ("summarization", {"text": "long"}, [{"summary_text": "short"}], {"summary_text": "short"}),
    ("feature-extraction", {"text": "hi"}, [0.5, 0.25], [0.5, 0.25]),
    ("sentence-similarity", {"text": "hi", "sentences": ["a", "b"]}, [0.5, 0.25], [0.5, 0.25]),
    (
        "fill-mask",
        {"text": "A [MASK]."},
        [{"sequence": "A cat.", "score": 0.5, "token": 7, "token_str": "cat"}],
        [{"sequence": "A cat.", "score": 0.5, "token": 7, "token_str": "cat"}],
    ),
]
IMAGES: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("image-classification", {}, LABELS, LABELS),
    ("zero-shot-image-classification", {"labels": ["cat", "dog"]}, LABELS, LABELS),
    (
        "object-detection",
        {},
        [{"label": "cat", "score": 0.5, "box": BOX}],
        [{"label": "cat", "score": 0.5, "box": BOX}],
    ),
    ("image-to-text", {}, [{"generated_text": "a cat"}], {"generated_text": "a cat"}),
    (
        "visual-question-answering",
        {"text": "What?"},
        [{"answer": "cat", "score": 0.5}],
        [{"answer": "cat", "score": 0.5}],
    ),
    (
        "document-question-answering",
        {"text": "Who?"},
        [{"answer": "Ada", "score": 0.5, "start": 1, "end": 2}],
        [{"answer": "Ada", "score": 0.5, "start": 1, "end": 2}],
    ),
]


@pytest.mark.parametrize(("task", "inputs", "reply", "output"), TEXTS)
async def test_a_reply_about_a_text_is_what_the_adapter_takes(
    hub: HubDouble, tmp_path: Path, task: str, inputs: dict[str, Any], reply: Any, output: Any
) -> None:
    hub.answer("/hf-inference/models/org/model", body=reply)
    call = call_of(task, tmp_path, **inputs)
    assert adapt(call.spec, await run(call), call)[0] == output
    [request] = hub.requests
    assert request.headers["authorization"] == "Bearer hf_secret"


@pytest.mark.parametrize(("task", "inputs", "reply", "output"), IMAGES)
async def test_a_reply_about_an_image_is_what_the_adapter_takes(
    hub: HubDouble,
    tmp_path: Path,
    image: Resource,
    task: str,
    inputs: dict[str, Any],
    reply: Any,
    output: Any,
) -> None:
    hub.answer("/hf-inference/models/org/model", body=reply)
    call = call_of(task, tmp_path, image=image, **inputs)
    assert adapt(call.spec, await run(call), call)[0] == output


async def test_masks_come_as_pictures(hub: HubDouble, tmp_path: Path, image: Resource) -> None:
    hub.answer("/models/org/model", body=[{"label": "cat", "score": 0.5, "mask": B64_MASK}])
    call = call_of("image-segmentation", tmp_path, image=image)
    output, resources = adapt(call.spec, await run(call), call)
    assert output[0]["label"] == "cat"
    assert [resource.kind for resource in resources[:1]] == ["image"]


@pytest.mark.parametrize("task", ["text-to-image", "image-to-image"])
async def test_pictures_are_saved(hub: HubDouble, tmp_path: Path, image: Resource, task: str) -> None:
    hub.answer("/models/org/model", body=png((8, 6)))
    inputs = {"text": "a cat"} | ({"image": image} if task == "image-to-image" else {})
    call = call_of(task, tmp_path, **inputs)
    output, _ = adapt(call.spec, await run(call), call)
    assert (output["width"], output["height"]) == (8, 6)


async def test_speech_comes_as_samples_with_their_rate(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("/models/org/model", body=wav(0.5))
    raw = await run(call_of("text-to-speech", tmp_path, text="hi"))
    assert (raw["audio"].shape, str(raw["audio"].dtype), raw["sampling_rate"]) == ((4000,), "float32", 8000)


async def test_several_sounds_keep_their_labels(hub: HubDouble, tmp_path: Path) -> None:
    blob = base64.b64encode(wav()).decode()
    hub.answer("/models/org/model", body=[{"label": "voice", "blob": blob, "content-type": "audio/wav"}])
    sound = tmp_path / "in.wav"
    sound.write_bytes(wav())
    [raw] = await run(call_of("audio-to-audio", tmp_path, audio=Resource(kind="audio", path=sound)))
    assert (raw["label"], raw["sampling_rate"], raw["audio"].shape) == ("voice", 8000, (800,))


async def test_a_sound_that_is_none_is_this_providers_failure(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("/models/org/model", body=b"no sound at all")
    with pytest.raises(UnsupportedError, match="cannot be read"):
        await run(call_of("text-to-speech", tmp_path, text="hi"))


async def test_a_recording_is_sent_and_its_transcript_comes_back(hub: HubDouble, tmp_path: Path) -> None:
    sound = tmp_path / "in.wav"
    sound.write_bytes(wav())
    hub.answer(
        "/models/org/model", body={"text": "hello", "chunks": [{"text": "hello", "timestamp": [0, 1]}]}
    )
    call = call_of("automatic-speech-recognition", tmp_path, audio=Resource(kind="audio", path=sound))
    output, _ = adapt(call.spec, await run(call), call)
    assert output["text"] == "hello"
    assert hub.requests[0].body == wav()


async def test_a_video_is_written_to_a_file(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("/novita/", body={"video": {"video_url": f"{hub.url}/files/video.mp4"}})
    hub.answer("/files/video.mp4", body=b"mp4 of sorts")
    raw = await run(call_of("text-to-video", tmp_path, candidate("text-to-video", "novita"), text="waves"))
    assert raw == {"path": str(tmp_path / "0.mp4")}
    assert (tmp_path / "0.mp4").read_bytes() == b"mp4 of sorts"


CHAT = {
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello there"}}
    ],
    "created": 0,
    "id": "",
    "model": "",
    "system_fingerprint": "",
    "usage": {},
}


@pytest.mark.parametrize(
    ("task", "reply"), [("text-generation", {"choices": [{"text": "hello there"}]}), ("conversational", CHAT)]
)
async def test_text_is_generated_as_the_provider_offers_it(
    hub: HubDouble, tmp_path: Path, task: str, reply: Any
) -> None:
    hub.answer("/novita/", body=reply)
    served = {"providers": {"novita": {"id": "novita/their-name", "task": task}}}
    model = candidate("text-generation", "novita", metadata=served)
    call = call_of("text-generation", tmp_path, model, text="hi")
    assert adapt(call.spec, await run(call), call)[0] == {"generated_text": "hello there"}
    [request] = hub.requests
    assert request.path.endswith("chat/completions") is (task == "conversational")
    assert request.json["model"] == "novita/their-name"


@pytest.fixture
def table(tmp_path: Path) -> Resource:
    path = tmp_path / "sales.csv"
    path.write_text("month,sales\n1,10\n2,\n")
    return Resource(kind="table", path=path, mime="text/csv")


COLUMNS = {"month": ["1", "2"], "sales": ["10", ""]}


async def test_a_question_about_a_table_is_sent_with_its_columns(
    hub: HubDouble, tmp_path: Path, table: Resource
) -> None:
    reply = {"answer": "10", "coordinates": [[0, 1]], "cells": ["10"], "aggregator": "NONE"}
    hub.answer("/models/org/model", body=reply)
    call = call_of("table-question-answering", tmp_path, text="How many?", table=table)
    raw = await run(call)
    assert (raw.answer, raw.coordinates, raw.cells) == ("10", [[0, 1]], ["10"])
    assert hub.requests[0].json["inputs"] == {"query": "How many?", "table": COLUMNS}


@pytest.mark.parametrize("task", ["tabular-classification", "tabular-regression"])
async def test_each_row_of_a_table_gets_a_prediction(
    hub: HubDouble, tmp_path: Path, table: Resource, task: str
) -> None:
    hub.answer("/models/org/model", body=[5, 6])
    raw = await run(call_of(task, tmp_path, table=table))
    assert raw == {"predictions": [5, 6], "probabilities": None, "classes": None}
    assert hub.requests[0].json["table"] == COLUMNS


async def test_an_image_is_shown_to_a_chat_model(hub: HubDouble, tmp_path: Path, image: Resource) -> None:
    hub.answer("/novita/", body=CHAT)
    served = {"providers": {"novita": {"id": "novita/sees", "task": "conversational"}}}
    model = candidate("image-text-to-text", "novita", metadata=served)
    call = call_of("image-text-to-text", tmp_path, model, text="What is it?", image=image)
    assert adapt(call.spec, await run(call), call)[0] == {"generated_text": "hello there"}
    [message] = hub.requests[0].json["messages"]
    text, picture = message["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert picture["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(png()).decode()}"


async def test_a_video_is_made_from_an_image(hub: HubDouble, tmp_path: Path, image: Resource) -> None:
    hub.answer("/fal-ai/files/v.mp4", body=b"mp4 of sorts")
    hub.answer("/status", body={"status": "COMPLETED"})
    hub.answer("/requests/1", body={"video": {"url": f"{hub.url}/fal-ai/files/v.mp4"}})
    queue = {"request_id": "1", "status": "IN_QUEUE", "response_url": f"{hub.url}/requests/1"}
    hub.answer("/fal-ai/", body={**queue, "status_url": f"{hub.url}/status"})
    call = call_of("image-to-video", tmp_path, candidate("image-to-video", "fal-ai"), image=image)
    assert await run(call) == {"path": str(tmp_path / "0.mp4")}
    assert (tmp_path / "0.mp4").read_bytes() == b"mp4 of sorts"


async def test_what_is_drawn_by_chance_has_the_settings_seed_and_the_models_own_options(
    hub: HubDouble, tmp_path: Path
) -> None:
    hub.answer("/models/org/model", body=png())
    own = {"options": {"num_inference_steps": 2, "style": "ink"}}
    await run(call_of("text-to-image", tmp_path, candidate("text-to-image", metadata=own), text="a cat"))
    sent = hub.requests[0].json["parameters"]
    assert (sent["seed"], sent["num_inference_steps"], sent["style"]) == (0, 2, "ink")


@pytest.mark.usefixtures("hub")
async def test_an_option_that_a_hosted_task_does_not_take_is_told(tmp_path: Path) -> None:
    model = candidate("text-classification", metadata={"options": {"temper": 2}})
    with pytest.raises(UnsupportedError, match="text-classification has no option temper"):
        await run(call_of("text-classification", tmp_path, model, text="hi"))


def test_every_method_of_the_client_for_a_task_is_used() -> None:
    from huggingface_hub import AsyncInferenceClient

    methods = {
        name
        for name, value in vars(AsyncInferenceClient).items()
        if inspect.iscoroutinefunction(value) and not name.startswith("_")
    }
    of_no_task = {"close", "get_endpoint_info", "health_check"}
    assert methods - {row.method for row in CALLS.values()} == {*of_no_task, "tabular_regression"}


def test_every_call_is_for_a_task_that_exists() -> None:
    assert set(CALLS) - set(TASKS) == {"conversational"}
