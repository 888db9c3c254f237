"""Hosted models: which provider is called, with which token, and how its failures are reported."""

import asyncio
import json
import threading
from concurrent.futures import thread as thread_pools
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from hosting import B64_IMAGE, LABELS, SETTINGS, call_of, candidate, run
from waiting import until

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.hosted.inference_providers import HostedBackend, Serving
from jarvis_agent.backends.http_errors import retry_after
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import ExpertError, RateLimitedError, TransientError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.testing import HubDouble

TASK = "text-classification"
IMAGES = {"data": [{"b64_json": B64_IMAGE}]}


def endpoint(url: str) -> Candidate:
    return Candidate(id="mine", task=TASK, metadata={"url": url})


async def test_only_hugging_face_is_sent_the_hugging_face_token(
    hub: HubDouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """Also the Hub that HF_ENDPOINT names is; any other server is not."""
    from huggingface_hub import AsyncInferenceClient

    sent: list[dict[str, str]] = []

    async def post(self: Any, request: Any, **_: Any) -> bytes:
        sent.append(request.headers)
        return json.dumps([LABELS]).encode()

    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with HubDouble() as other:
        for server, token in ((hub, True), (other, False)):
            server.answer("/my-endpoint", body=[LABELS])
            raw = await run(call_of(TASK, tmp_path, endpoint(f"{server.url}/my-endpoint"), text="hi"))
            assert raw.output[0]["label"] == "cat"
            [request] = server.requests
            assert (request.path, "hf_secret" in str(request.headers)) == ("/my-endpoint", token)
    monkeypatch.setattr(AsyncInferenceClient, "_inner_post", post)
    for url, trusted in (
        ("https://abc.us-east-1.aws.endpoints.huggingface.cloud", True),
        ("http://abc.endpoints.huggingface.cloud", False),
        ("https://huggingface.co.example.org", False),
        ("https://nothuggingface.co", False),
        ("https://huggingface.co@example.org/", False),
        ("http://127.0.0.1:9000/endpoint", False),
    ):
        with subtests.test(url):
            await run(call_of(TASK, tmp_path, endpoint(url), text="hi"))
            assert sent.pop()["authorization"] == ("Bearer hf_secret" if trusted else "")


STATUSES: list[tuple[int, dict[str, str], type[ExpertError], str]] = [
    (429, {"Retry-After": "7"}, RateLimitedError, "429"),
    (429, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, RateLimitedError, "429"),
    (503, {"Retry-After": "2"}, RateLimitedError, "503"),
    (503, {}, TransientError, "the model is loading"),
    (500, {}, TransientError, "500"),
    (401, {}, UnsupportedError, "refuses the token"),
    (402, {}, UnsupportedError, "credits"),
    (403, {}, UnsupportedError, "Make calls to Inference Providers"),
    (404, {}, UnsupportedError, "does not have the model"),
    (400, {}, UnsupportedError, "400"),
]


@pytest.mark.parametrize(("status", "headers", "kind", "part"), STATUSES)
async def test_each_status_becomes_an_error_of_the_matching_kind(
    hub: HubDouble, tmp_path: Path, status: int, headers: dict[str, str], kind: type[ExpertError], part: str
) -> None:
    hub.answer("/models/org/model", status=status, headers=headers, body={"error": "the model is loading"})
    with pytest.raises(ExpertError, match=part) as caught:
        await run(call_of(TASK, tmp_path, text="hi"))
    assert type(caught.value) is kind
    assert "hf_secret" not in str(caught.value)
    if isinstance(caught.value, RateLimitedError):
        after = headers["Retry-After"]
        assert caught.value.retry_after == (float(after) if after.isdigit() else 0.0)


def test_a_date_says_how_long_to_wait() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 80 < (retry_after({"retry-after": soon}) or 0) <= 90
    assert retry_after({"retry-after": "soon"}) is None


async def test_unexpected_answers_and_lost_servers_fail_as_the_providers_fault(
    hub: HubDouble, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for body in (b"<html>", b"{}", b"[[]]", b'[[{"score": 1}]]'):
        hub.answer("/models/org/model", body=body, times=1)
        call = call_of(TASK, tmp_path, text="hi")
        with subtests.test(body=body), pytest.raises(UnsupportedError):
            adapt(call.spec, await run(call), call)
    hub.answer("", body=[LABELS], times=1)
    hub.requests.clear()
    await run(call_of(TASK, tmp_path, text="hi"))
    [request] = hub.requests  # one request, without a look-up before it
    assert request.method == "POST"
    with HubDouble() as gone:
        url = gone.url
    with pytest.raises(TransientError, match="cannot be reached"):
        await run(call_of(TASK, tmp_path, endpoint(url), text="hi"))
    hub.stall("/hf-inference/")
    impatient = Settings(hf_token="hf_x", offline=False, task_timeout=0.125)
    with pytest.raises(TransientError):
        await HostedBackend(impatient).run(call_of(TASK, tmp_path, text="hi"))


async def test_a_cancelled_call_leaves_no_thread(hub: HubDouble, tmp_path: Path) -> None:
    hub.stall("/models/org/model")
    before = set(threading.enumerate())
    running = asyncio.ensure_future(run(call_of(TASK, tmp_path, text="hi")))
    await until(lambda: hub.requests)
    running.cancel()
    await asyncio.wait([running])
    await until(lambda: not any("jarvis" in thread.name for thread in {*threading.enumerate()} - before))


async def test_a_hanging_look_up_of_a_host_does_not_block_the_exit(
    hub: HubDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, ended = threading.Event(), threading.Event()

    def look_up(*_: Any, **__: Any) -> Any:
        hanging.set()
        ended.wait(60)
        raise OSError

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    monkeypatch.setattr(
        "huggingface_hub.constants.INFERENCE_PROXY_TEMPLATE", "http://host.example/{provider}"
    )
    before = set(thread_pools._threads_queues)  # of other tests
    running = asyncio.ensure_future(run(call_of(TASK, tmp_path, text="hi")))
    await until(hanging.is_set)
    running.cancel()
    await asyncio.wait([running])
    awaited = {thread.name for thread in set(thread_pools._threads_queues) - before}
    ended.set()
    assert not any(name.startswith("asyncio") for name in awaited), "the exit waits for these"


async def test_the_next_provider_is_called_after_a_failure_until_all_have_failed(
    hub: HubDouble, tmp_path: Path
) -> None:
    served: dict[str, Any] = {"together": {}, "nscale": {}, "no-such-provider": {}}
    hub.add_model("org/model", pipeline_tag="text-to-image", providers=served)
    hub.answer("/together/", status=503, body={"error": "down"})
    hub.answer("/nscale/", body=IMAGES, times=1)
    model = candidate("text-to-image", "together", "nscale", "no-such-provider")
    raw = await run(call_of("text-to-image", tmp_path, model, text="a cat"))
    assert raw.size == (4, 3)
    assert [request.path.split("/")[1] for request in hub.requests] == ["api", "together", "nscale"]
    hub.answer("/nscale/", status=404)
    with pytest.raises(TransientError) as caught:
        await run(call_of("text-to-image", tmp_path, model, text="a cat"))
    for part in ("together answered 503: down", "nscale: it does not have the model", "no-such-provider"):
        assert part in str(caught.value)


async def test_silent_providers_share_a_tasks_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: sum(shares))

    async def be_silent(self: HostedBackend, serving: Serving, call: Any, share: float) -> Any:
        shares.append(share)
        raise TransientError(f"{serving.provider} is down")

    monkeypatch.setattr(HostedBackend, "_call", be_silent)
    model = candidate("text-to-image", "one", "two", "three")
    with pytest.raises(TransientError, match="three is down"):
        await HostedBackend(SETTINGS).run(call_of("text-to-image", tmp_path, model, text="a"))
    assert shares == pytest.approx([12.0, 4.0, 2.0])


def test_why_a_model_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Candidate(id="a", task=TASK)
    own = endpoint("https://e.example")
    here = own.model_copy(update={"local": True})
    online, offline = Settings(hf_token="hf_x", offline=False), Settings(hf_token="hf_x", offline=True)
    rows: list[tuple[Settings, Candidate, str | None]] = [
        (online, candidate(TASK), None),
        (online, alone, "no inference provider"),
        (offline, candidate(TASK), "offline"),
        (Settings(offline=False), candidate(TASK), "set HF_TOKEN"),
        (Settings(offline=False), own, None),
        (Settings(offline=True), own, "offline"),
        (Settings(offline=True), here, None),
        (online, candidate("depth-estimation"), "no call for depth-estimation"),
    ]
    for settings, model, part in rows:
        reason = HostedBackend(settings).unsupported_reason(TASKS[model.task], model)
        assert reason is None if part is None else part in str(reason)
    monkeypatch.setattr("jarvis_agent.backends.hosted.inference_providers.find_spec", lambda name: None)
    backend = HostedBackend(online)
    assert isinstance(backend, Backend)
    speech = backend.unsupported_reason(TASKS["text-to-speech"], candidate("text-to-speech"))
    assert "[starter]" in str(speech)
