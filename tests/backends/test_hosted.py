"""Models that others run: who is asked, with which token, and what goes wrong."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosting import LABELS, SETTINGS, call_of, candidate, png, run
from huggingface_hub.inference._providers import _common

from jarvis_agent.backends import circuit_breaker
from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.hosted.inference_providers import HostedBackend, Serving, _address
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import ExpertError, RateLimitedError, TransientError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.testing import HubDouble


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubDouble]:
    monkeypatch.setattr(_common, "HARDCODED_MODEL_INFERENCE_MAPPING", {})
    with HubDouble() as double, double.redirected():
        yield double


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
    impatient = Settings(hf_token="hf_x", offline=False, task_timeout=0.125)
    with pytest.raises(TransientError):
        await HostedBackend(impatient).run(call_of("text-classification", tmp_path, text="hi"))


async def test_after_an_error_the_next_provider_has_nearly_all_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[float] = []

    async def fail(self: HostedBackend, one: Serving, call: Any, share: float) -> Any:
        shares.append(share)
        raise TransientError(f"{one.provider} is down")

    monkeypatch.setattr(HostedBackend, "_call_within", fail)
    nine = [f"provider-{number}" for number in range(9)]
    patient = HostedBackend(SETTINGS.model_copy(update={"task_timeout": 125_000.0}))
    with pytest.raises(TransientError, match="provider-8 is down"):
        await patient.run(call_of("text-to-image", tmp_path, candidate("text-to-image", *nine), text="a"))
    assert shares == pytest.approx([60_000.0] * 8 + [90_000.0], rel=0.01)


async def test_silent_providers_leave_less_and_less_time(tmp_path: Path, monkeypatch: Any) -> None:
    shares: list[float] = []
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)

    async def stay_silent(self: HostedBackend, one: Serving, call: Any, share: float) -> Any:
        nonlocal now
        shares.append(share)
        now += share
        raise TransientError(f"{one.provider} is silent")

    monkeypatch.setattr(HostedBackend, "_call_within", stay_silent)
    model = candidate("text-to-image", "one", "two", "three")
    with pytest.raises(TransientError):
        await HostedBackend(SETTINGS).run(call_of("text-to-image", tmp_path, model, text="a"))
    assert shares == pytest.approx([12.0, 4.0, 2.0])


def test_two_tasks_of_a_model_do_not_share_a_providers_id(hub: HubDouble) -> None:
    known = _common.HARDCODED_MODEL_INFERENCE_MAPPING
    names = [
        _address(Serving("fal-ai", provider_id, task), candidate(task))
        for task, provider_id in (("text-to-image", "fal/t2i"), ("image-to-image", "fal/i2i"))
    ]
    assert [known["fal-ai"][name].provider_id for name in names] == ["fal/t2i", "fal/i2i"]


async def test_a_provider_that_keeps_failing_is_left_alone_for_every_model(
    hub: HubDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.answer("/together/", status=503, body={"error": "down"})
    hub.answer("/nscale/", body={"data": [{"b64_json": base64.b64encode(png()).decode()}]})
    monkeypatch.setattr(circuit_breaker.shared, "max_failures", 2)
    for name in ("one", "two", "three"):
        model = candidate("text-to-image", "together", "nscale").model_copy(update={"id": f"org/{name}"})
        call = call_of("text-to-image", tmp_path, model, text="a cat")
        assert (await HostedBackend(SETTINGS).run(call)).size == (4, 3)
    asked = [request.path.split("/")[1] for request in hub.requests]
    assert asked == ["together", "nscale", "together", "nscale", "nscale"]


async def test_a_provider_that_is_down_may_come_back(tmp_path: Path) -> None:
    with HubDouble() as hub:
        url = hub.url
    model = Candidate(id="mine", task="text-classification", metadata={"url": url})
    with HubDouble() as other, other.redirected(), pytest.raises(TransientError, match="cannot be reached"):
        await run(call_of("text-classification", tmp_path, model, text="hi"))


async def test_an_organisation_may_pay(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("/models/org/model", body=[LABELS])
    backend = HostedBackend(SETTINGS.model_copy(update={"bill_to": "my-org"}))
    await backend.run(call_of("text-classification", tmp_path, text="hi"))
    assert hub.requests[0].headers["x-hf-bill-to"] == "my-org"


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
        (Settings(offline=True), OWN, "offline"),
        (Settings(offline=True), OWN.model_copy(update={"local": True}), None),
    ],
)
def test_why_a_model_can_not_be_asked(settings: Settings, model: Candidate, reason: str | None) -> None:
    told = HostedBackend(settings).unsupported_reason(TASKS["text-classification"], model)
    assert told is None if reason is None else reason in (told or "")


def test_tasks_without_a_call_say_so() -> None:
    model = candidate("depth-estimation")
    assert "no call for depth-estimation" in (
        HostedBackend(SETTINGS).unsupported_reason(TASKS["depth-estimation"], model) or ""
    )


def test_sound_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.backends.hosted.inference_providers.find_spec", lambda name: None)
    told = HostedBackend(SETTINGS).unsupported_reason(TASKS["text-to-speech"], candidate("text-to-speech"))
    assert "[starter]" in (told or "")


def test_it_is_a_backend() -> None:
    assert isinstance(HostedBackend(SETTINGS), Backend)


def test_the_client_is_told_of_no_more_models_than_it_may_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_common, "HARDCODED_MODEL_INFERENCE_MAPPING", {})
    monkeypatch.setattr("jarvis_agent.backends.hosted.inference_providers._MAX_MAPPINGS", 2)
    for number in (0, 1, 2, 1, 3):
        model = candidate("text-classification", "novita")
        _address(Serving("novita", f"theirs-{number}", "text-classification"), model)
    known = _common.HARDCODED_MODEL_INFERENCE_MAPPING["novita"]
    assert [one.provider_id for one in known.values()] == ["theirs-1", "theirs-3"]
