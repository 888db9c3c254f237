"""Models that others run, against a double that speaks as the providers do."""

import base64
import io
import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.inference._providers import _common

from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.hosted import CALLS, HostedBackend
from jarvis_agent.errors import ExpertError, RateLimitedError, TransientError, UnsupportedError
from jarvis_agent.settings import Settings
from jarvis_agent.testing import HubDouble
from jarvis_agent.tools.adapters import adapt
from jarvis_agent.tools.table import TASKS
from jarvis_agent.types import Candidate, Resource

SETTINGS = Settings(hf_token="hf_secret", offline=False, attempt_timeout=20)
LABELS = [{"label": "cat", "score": 0.75}, {"label": "dog", "score": 0.25}]


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


def png(size: tuple[int, int] = (4, 3), mode: str = "RGB") -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new(mode, size, 255 if mode == "L" else "white").save(file, "PNG")
    return file.getvalue()


def wav(seconds: float = 0.1, rate: int = 8000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        sound.writeframes(b"\0\0" * int(seconds * rate))
    return file.getvalue()


def candidate(task: str, *providers: str, **fields: Any) -> Candidate:
    return Candidate(id="org/model", task=task, providers=providers or ("hf-inference",), **fields)


def call_of(task: str, tmp_path: Path, model: Candidate | None = None, **inputs: Any) -> Call:
    names = iter(range(99))
    return Call(
        TASKS[task],
        model or candidate(task),
        inputs,
        lambda suffix: tmp_path / f"{next(names)}{suffix}",
        SETTINGS,
    )


async def run(call: Call) -> Any:
    return await HostedBackend(SETTINGS).run(call)


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
]
IMAGES: list[tuple[str, dict[str, Any], Any, Any]] = [
    ("image-classification", {}, LABELS, LABELS),
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
    with pytest.raises(UnsupportedError, match="can not be read"):
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
    path = await run(call_of("text-to-video", tmp_path, candidate("text-to-video", "novita"), text="waves"))
    assert path == str(tmp_path / "0.mp4")
    assert (tmp_path / "0.mp4").read_bytes() == b"mp4 of sorts"


CHAT = {
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "hello there"},
        }
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


async def test_an_endpoint_of_the_users_own_is_asked_directly(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("/my-endpoint", body=[LABELS])
    model = Candidate(id="mine", task="text-classification", metadata={"url": f"{hub.url}/my-endpoint"})
    raw = await run(call_of("text-classification", tmp_path, model, text="hi"))
    assert raw[0]["label"] == "cat"
    assert [request.path for request in hub.requests] == ["/my-endpoint"]


@pytest.mark.parametrize(
    ("url", "trusted"),
    [
        ("https://abc.us-east-1.aws.endpoints.huggingface.cloud", True),
        ("https://router.huggingface.co/hf-inference/models/a", True),
        ("https://me-my-app.hf.space/api", True),
        ("http://abc.endpoints.huggingface.cloud", False),
        ("https://huggingface.co.example.org", False),
        ("https://nothuggingface.co", False),
        ("https://huggingface.co@example.org/", False),
        ("http://127.0.0.1:9000/endpoint", False),
    ],
)
async def test_only_hugging_face_is_sent_the_hugging_face_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, trusted: bool
) -> None:
    from huggingface_hub import AsyncInferenceClient

    sent: list[dict[str, str]] = []

    async def post(self: Any, request: Any, **_: Any) -> bytes:
        sent.append(request.headers)
        return json.dumps([LABELS]).encode()

    monkeypatch.setattr(AsyncInferenceClient, "_inner_post", post)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    model = Candidate(id="mine", task="text-classification", metadata={"url": url})
    await run(call_of("text-classification", tmp_path, model, text="hi"))
    assert [headers["authorization"] for headers in sent] == ["Bearer hf_secret" if trusted else ""]


@pytest.mark.usefixtures("hub")
async def test_a_server_of_the_users_own_sees_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with HubDouble() as server:
        server.answer("/my-endpoint", body=[LABELS])
        metadata = {"url": f"{server.url}/my-endpoint"}
        model = Candidate(id="mine", task="text-classification", metadata=metadata)
        await run(call_of("text-classification", tmp_path, model, text="hi"))
        [request] = server.requests
    assert "hf_secret" not in str(request.headers)


async def test_the_hub_that_hf_endpoint_names_is_sent_the_token(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("/my-endpoint", body=[LABELS])
    model = Candidate(id="mine", task="text-classification", metadata={"url": f"{hub.url}/my-endpoint"})
    await run(call_of("text-classification", tmp_path, model, text="hi"))
    assert "Bearer hf_secret" in str([request.headers for request in hub.requests])


async def test_no_request_is_made_but_the_one_for_inference(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("", body=[LABELS])
    await run(call_of("text-classification", tmp_path, text="hi"))
    assert [request.method for request in hub.requests] == ["POST"]


@pytest.mark.parametrize(
    ("status", "headers", "kind", "told"),
    [
        (429, {"Retry-After": "7"}, RateLimitedError, "429"),
        (429, {}, RateLimitedError, "429"),
        (503, {"Retry-After": "2"}, RateLimitedError, "503"),
        (503, {}, TransientError, "the model is loading"),
        (500, {}, TransientError, "500"),
        (504, {}, TransientError, "504"),
        (401, {}, UnsupportedError, "refuses the token"),
        (402, {}, UnsupportedError, "credits"),
        (403, {}, UnsupportedError, "Make calls to Inference Providers"),
        (404, {}, UnsupportedError, "does not have the model"),
        (400, {}, UnsupportedError, "400"),
        (422, {}, UnsupportedError, "422"),
    ],
)
async def test_a_status_becomes_the_error_that_the_ladder_understands(
    hub: HubDouble, tmp_path: Path, status: int, headers: dict[str, str], kind: type[ExpertError], told: str
) -> None:
    hub.answer("/models/org/model", status=status, headers=headers, body={"error": "the model is loading"})
    with pytest.raises(ExpertError) as caught:
        await run(call_of("text-classification", tmp_path, text="hi"))
    assert type(caught.value) is kind
    assert told in str(caught.value)
    assert "hf_secret" not in str(caught.value)
    if isinstance(caught.value, RateLimitedError):
        assert caught.value.retry_after == (float(headers["Retry-After"]) if headers else None)


async def test_a_date_to_come_back_at_is_understood(hub: HubDouble, tmp_path: Path) -> None:
    headers = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
    hub.answer("/models/org/model", status=429, headers=headers)
    with pytest.raises(RateLimitedError) as caught:
        await run(call_of("text-classification", tmp_path, text="hi"))
    assert caught.value.retry_after == 0.0


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[[]]", b'[[{"score": 1}]]'])
async def test_an_answer_of_another_form_is_this_providers_failure(
    hub: HubDouble, tmp_path: Path, body: bytes
) -> None:
    hub.answer("/models/org/model", body=body)
    call = call_of("text-classification", tmp_path, text="hi")
    with pytest.raises(UnsupportedError):
        adapt(call.spec, await run(call), call)


async def test_the_next_provider_is_asked_when_one_fails(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("/together/", status=503, body={"error": "down"})
    hub.answer("/nscale/", body={"data": [{"b64_json": base64.b64encode(png()).decode()}]})
    model = candidate("text-to-image", "together", "nscale")
    raw = await run(call_of("text-to-image", tmp_path, model, text="a cat"))
    assert raw.size == (4, 3)
    assert [request.path.split("/")[1] for request in hub.requests] == ["together", "nscale"]


async def test_when_every_provider_fails_each_is_named(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("/together/", status=503, body={"error": "down"})
    hub.answer("/nscale/", status=404)
    model = candidate("text-to-image", "together", "nscale", "no-such-provider")
    with pytest.raises(TransientError) as caught:
        await run(call_of("text-to-image", tmp_path, model, text="a cat"))
    assert "together answered 503: down" in str(caught.value)
    assert "nscale: it does not have the model" in str(caught.value)
    assert "no-such-provider" in str(caught.value)


async def test_a_provider_that_falls_silent_is_left(hub: HubDouble, tmp_path: Path) -> None:
    hub.stall("/hf-inference/")
    impatient = Settings(hf_token="hf_x", offline=False, attempt_timeout=0.1)
    with pytest.raises(TransientError):
        await HostedBackend(impatient).run(call_of("text-classification", tmp_path, text="hi"))


async def test_a_provider_that_is_down_may_come_back(tmp_path: Path) -> None:
    with HubDouble() as hub:
        url = hub.url
    model = Candidate(id="mine", task="text-classification", metadata={"url": url})
    with HubDouble() as other, other.redirected(), pytest.raises(TransientError, match="can not be reached"):
        await run(call_of("text-classification", tmp_path, model, text="hi"))


SERVED = candidate("text-classification")
ALONE = Candidate(id="a", task="text-classification")
OWN = ALONE.model_copy(update={"metadata": {"url": "https://e.example"}})


@pytest.mark.parametrize(
    ("settings", "model", "reason"),
    [
        (Settings(hf_token="hf_x", offline=False), SERVED, None),
        (Settings(hf_token="hf_x", offline=False), ALONE, "no inference provider"),
        (Settings(hf_token="hf_x", offline=True), SERVED, "offline"),
        (Settings(offline=False), SERVED, "set HF_TOKEN"),
        (Settings(offline=False), OWN, None),
    ],
)
def test_why_a_model_can_not_be_asked(settings: Settings, model: Candidate, reason: str | None) -> None:
    told = HostedBackend(settings).why_not(TASKS["text-classification"], model)
    assert told is None if reason is None else reason in (told or "")


def test_tasks_without_a_call_say_so() -> None:
    model = candidate("depth-estimation")
    assert "no call for depth-estimation" in (
        HostedBackend(SETTINGS).why_not(TASKS["depth-estimation"], model) or ""
    )


def test_sound_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.backends.hosted.find_spec", lambda name: None)
    told = HostedBackend(SETTINGS).why_not(TASKS["text-to-speech"], candidate("text-to-speech"))
    assert 'pip install "jarvis-agent[starter]"' in (told or "")


def test_every_call_is_for_a_task_that_exists() -> None:
    assert set(CALLS) - set(TASKS) == {"conversational"}


def test_it_is_a_backend() -> None:
    assert isinstance(HostedBackend(SETTINGS), Backend)
