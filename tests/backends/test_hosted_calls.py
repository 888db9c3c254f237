"""How each task is asked of inference providers, against a double of their API."""

import base64
from pathlib import Path
from typing import Any

import pytest
from hosting import LABELS, call_of, candidate, png, run, wav
from huggingface_hub.inference._providers import _common
from PIL import Image

from jarvis_agent.backends.hosted.inference_providers import HostedBackend
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import TransientError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Resource
from jarvis_agent.media.recordings import write_video
from jarvis_agent.testing import HubDouble

B64_MASK = base64.b64encode(png(mode="L")).decode()
ENTITY = {"entity_group": "PER", "score": 0.5, "word": "Ada", "start": 0, "end": 3}
ANSWER = {"answer": "Ada", "score": 0.5, "start": 0, "end": 3}
WORD = {"sequence": "A cat.", "score": 0.5, "token": 7, "token_str": "cat"}
FOUND = {"label": "cat", "score": 0.5, "box": {"xmin": 0, "ymin": 0, "xmax": 2, "ymax": 2}}
SALUT, SHORT = {"translation_text": "salut"}, {"summary_text": "short"}
TRANSCRIPT = {"text": "hello", "chunks": [{"text": "hello", "timestamp": [0, 1]}]}
COLUMNS = {"month": ["1", "2"], "sales": ["10", ""]}
CELL = {"answer": "10", "coordinates": [[0, 1]], "cells": ["10"], "aggregator": "NONE"}

# Each row: task, its inputs ("@name" is a file), the provider's reply, the adapted output.
ROWS: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("text-classification", {"text": "hi"}, [LABELS], LABELS),
    ("token-classification", {"text": "Ada"}, [ENTITY], [ENTITY]),
    ("question-answering", {"text": "Who?", "context": "Ada did."}, ANSWER, [ANSWER]),
    ("zero-shot-classification", {"text": "meow", "labels": ["cat", "dog"]}, LABELS, LABELS),
    ("translation", {"text": "hi"}, [SALUT], SALUT),
    ("translation", {"text": "hi", "src_lang": "en", "tgt_lang": "fr"}, [SALUT], SALUT),
    ("summarization", {"text": "long"}, [SHORT], SHORT),
    ("feature-extraction", {"text": "hi"}, [0.5, 0.25], [0.5, 0.25]),
    ("sentence-similarity", {"text": "hi", "sentences": ["a", "b"]}, [0.5, 0.25], [0.5, 0.25]),
    ("fill-mask", {"text": "A [MASK]."}, [WORD], [WORD]),
    ("image-classification", {"image": "@image"}, LABELS, LABELS),
    ("zero-shot-image-classification", {"image": "@image", "labels": ["cat", "dog"]}, LABELS, LABELS),
    ("object-detection", {"image": "@image"}, [FOUND], [FOUND]),
    ("image-to-text", {"image": "@image"}, [{"generated_text": "a cat"}], {"generated_text": "a cat"}),
    ("visual-question-answering", {"image": "@image", "text": "Who?"}, [ANSWER], [ANSWER]),
    ("document-question-answering", {"image": "@image", "text": "Who?"}, [ANSWER], [ANSWER]),
    ("automatic-speech-recognition", {"audio": "@audio"}, TRANSCRIPT, TRANSCRIPT),
    ("table-question-answering", {"text": "How many?", "table": "@table"}, CELL, CELL),
    ("tabular-classification", {"table": "@table"}, ["a", "b"], ["a", "b"]),
    ("tabular-regression", {"table": "@table"}, [5, 6], [5.0, 6.0]),
]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Resource]:
    """An image, a recording and a table, by kind."""
    made = {
        "image": ("cat.png", png(), "image/png"),
        "audio": ("in.wav", wav(), "audio/wav"),
        "table": ("sales.csv", b"month,sales\n1,10\n2,\n", "text/csv"),
    }
    for name, content, _ in made.values():
        (tmp_path / name).write_bytes(content)
    return {
        kind: Resource(kind=kind, path=tmp_path / name, mime=mime) for kind, (name, _, mime) in made.items()
    }


@pytest.mark.parametrize(("task", "inputs", "reply", "output"), ROWS)
async def test_the_reply_for_each_task_is_what_its_adapter_takes(
    hub: HubDouble,
    tmp_path: Path,
    files: dict[str, Resource],
    task: str,
    inputs: Any,
    reply: Any,
    output: Any,
) -> None:
    hub.answer("/hf-inference/models/org/model", body=reply)
    resources = {name: files.get(str(value)[1:], value) for name, value in inputs.items()}
    call = call_of(task, tmp_path, **resources)
    assert adapt(call.spec, await run(call), call)[0] == output
    [request] = hub.requests
    assert request.headers["authorization"] == "Bearer hf_secret"
    if "audio" in inputs:
        assert request.body == wav()
    if "table" in inputs:
        sent = request.json["inputs"] if "text" in inputs else request.json
        assert sent["table"] == COLUMNS


async def test_images_and_sounds_in_replies_are_read(
    hub: HubDouble, tmp_path: Path, files: dict[str, Resource]
) -> None:
    def reply(body: Any) -> None:
        hub.answer("/models/org/model", body=body, times=1)

    paint = call_of("image-to-image", tmp_path, text="a cat", image=files["image"])
    for call in (call_of("text-to-image", tmp_path, text="a cat"), paint):
        reply(png((8, 6)))
        assert (await run(call)).size == (8, 6)
    reply([{"label": "cat", "score": 0.5, "mask": B64_MASK}])
    call = call_of("image-segmentation", tmp_path, image=files["image"])
    output, resources = adapt(call.spec, await run(call), call)
    assert (output[0]["label"], resources[0].kind) == ("cat", "image")
    reply([{"label": "voice", "blob": base64.b64encode(wav()).decode(), "content-type": "audio/wav"}])
    [raw] = await run(call_of("audio-to-audio", tmp_path, audio=files["audio"]))
    assert (raw["label"], raw["sampling_rate"], raw["audio"].shape) == ("voice", 8000, (800,))
    speech = call_of("text-to-speech", tmp_path, text="hi")
    reply(wav(0.5))
    raw = await run(speech)
    assert (raw["audio"].shape, str(raw["audio"].dtype), raw["sampling_rate"]) == ((4000,), "float32", 8000)
    reply(b"no sound at all")
    with pytest.raises(UnsupportedError, match="cannot be read"):
        await run(speech)


async def test_a_provider_is_told_the_weights_of_an_adapter(hub: HubDouble, tmp_path: Path) -> None:
    served = {"fal-ai": {"providerId": "fal-ai/flux-lora", "adapterWeightsPath": "ink.safetensors"}}
    hub.add_model("org/model", pipeline_tag="text-to-image", providers=served)
    hub.answer("/fal-ai/", body={"images": [{"url": f"{hub.url}/files/a.png"}]})
    hub.answer("/files/a.png", body=png((8, 6)))
    model = candidate("text-to-image", "fal-ai")
    assert (await run(call_of("text-to-image", tmp_path, model, text="a cat"))).size == (8, 6)
    [request] = [request for request in hub.requests if request.method == "POST"]
    assert request.path.endswith("/fal-ai/flux-lora")
    assert request.json["loras"][0]["path"].endswith("org/model/resolve/main/ink.safetensors")


async def test_videos_are_written_to_files(hub: HubDouble, tmp_path: Path) -> None:
    hub.add_model("org/model", pipeline_tag="text-to-video", providers={"novita": {}})
    hub.answer("/novita/", body={"video": {"video_url": f"{hub.url}/files/v.mp4"}})
    write_video(tmp_path / "sent.mp4", [Image.new("RGB", (32, 24))] * 2, 8.0)
    sent = (tmp_path / "sent.mp4").read_bytes()
    hub.answer("/files/v.mp4", body=sent)
    model = candidate("text-to-video", "novita")
    raw = await run(call_of("text-to-video", tmp_path, model, text="waves"))
    assert raw == {"path": str(tmp_path / "out-0.mp4")}
    assert (tmp_path / "out-0.mp4").read_bytes() == sent


async def test_a_video_that_does_not_arrive_blocks_nothing_and_fails_in_time(
    hub: HubDouble, tmp_path: Path
) -> None:
    hub.add_model("org/model", pipeline_tag="text-to-video", providers={"novita": {}})
    hub.answer("/novita/", body={"video": {"video_url": f"{hub.url}/files/v.mp4"}})
    hub.stall("/files/v.mp4")
    call = call_of("text-to-video", tmp_path, candidate("text-to-video", "novita"), text="waves")
    hasty = Settings(hf_token="hf_secret", offline=False, task_timeout=1)
    with pytest.raises(TransientError, match="novita did not answer within"):
        await HostedBackend(hasty).run(call)
    assert hub.requests[-1].path == "/files/v.mp4"


CHAT = {
    **dict.fromkeys(("id", "model", "system_fingerprint"), ""),
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello there"}}
    ],
    "created": 0,
    "usage": {},
}


async def test_text_is_generated_by_completion_or_by_chat_as_the_provider_offers(
    hub: HubDouble, tmp_path: Path, files: dict[str, Resource], subtests: pytest.Subtests
) -> None:
    words = {"text": "What is it?"}
    for task, offered, inputs, reply in (
        ("text-generation", "text-generation", words, {"choices": [{"text": "hello there"}]}),
        ("text-generation", "conversational", words, CHAT),
        ("image-text-to-text", "conversational", {**words, "image": files["image"]}, CHAT),
    ):
        with subtests.test(task, offered=offered):
            _common._fetch_inference_provider_mapping.cache_clear()
            served = {"novita": {"providerId": "novita/their-name", "task": offered}}
            hub.add_model("org/model", pipeline_tag=task, providers=served)
            hub.answer("/novita/", body=reply, times=1)
            model = candidate(task, "novita", metadata={"providers": {"novita": offered}})
            call = call_of(task, tmp_path, model, **inputs)
            assert adapt(call.spec, await run(call), call)[0] == {"generated_text": "hello there"}
            request = hub.requests[-1]
            assert request.path.endswith("chat/completions") is (offered != "text-generation")
            assert request.json["model"] == "novita/their-name"
    text, picture = hub.requests[-1].json["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert picture["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(png()).decode()}"


async def test_the_seed_and_the_models_options_are_sent(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("/models/org/model", body=png())
    own = {"options": {"num_inference_steps": 2, "style": "ink"}}
    await run(call_of("text-to-image", tmp_path, candidate("text-to-image", metadata=own), text="a cat"))
    sent = hub.requests[0].json["parameters"]
    assert (sent["seed"], sent["num_inference_steps"], sent["style"]) == (0, 2, "ink")
    (tmp_path / "cat.png").write_bytes(png())
    image = Resource(kind="image", path=tmp_path / "cat.png", mime="image/png")
    await run(call_of("image-to-image", tmp_path, text="a cat", image=image))
    assert hub.requests[1].json["parameters"] == {"prompt": "a cat", "seed": 0}
    model = candidate("text-classification", metadata={"options": {"temper": 2}})
    with pytest.raises(UnsupportedError, match="text-classification has no option temper"):
        await run(call_of("text-classification", tmp_path, model, text="hi"))
