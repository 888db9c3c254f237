"""Keys and tokens appear in no answer, error, log, run or report."""

import logging
import traceback
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from langchain_core.tracers.context import collect_runs
from langgraph.checkpoint.memory import InMemorySaver
from PIL import Image
from served import agent_of, serving
from small_agents import small_agent

from jarvis_agent.core import redaction
from jarvis_agent.core.errors import InputError, UnsupportedError, describe_error, format_traceback
from jarvis_agent.core.redaction import redact, register_secret
from jarvis_agent.core.settings import Settings
from jarvis_agent.interfaces.cli.doctor import check_hub, examine
from jarvis_agent.media.download import fetch
from jarvis_agent.selection.model_registry import ModelRegistry
from jarvis_agent.testing import fake_candidate

SECRETS = {
    "HF_TOKEN": "hf_QwErTyUiOpAsDfGhJk1234",
    "OPENAI_API_KEY": "sk-proj-0123456789abcdefXYZ",
    "JARVIS_API_KEY": "correct-horse-battery",
    "MY_SERVER_KEY": "plum-pudding-77",
}
SIGNED = "http://user:pa55word@127.0.0.1:9/a.png?X-Amz-Signature=5e7f9a"
HIDDEN = [*SECRETS.values(), "pa55word", "5e7f9a"]


@pytest.fixture(autouse=True)
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (8, 8)).save("a.jpg")


def _leaks(*texts: str) -> list[str]:
    return [secret for secret in HIDDEN if any(secret in text for text in texts)]


class _LeakyError(RuntimeError):
    def __init__(self) -> None:
        super().__init__(f"401 for {SIGNED} with Bearer {' '.join(SECRETS.values())}")


# Each text, and what `redact` makes of it; None: the same.
TEXTS = {
    "GET https://me:p@ss@host/a": "GET https://host/a",
    "https://me:p@s:s@host.example?sig=1": "https://host.example?(hidden)",
    "https://proxy/https://me:pw@host/a?b=http://c?d=e f": "https://proxy/https://host/a?(hidden) f",
    "postgresql://me:pw@db/runs?password=pw": "postgresql://db/runs?(hidden)",
    "token hf_" + "aBcDeFgHiJ" * 3 + "kLmN refused": "token (key) refused",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345 refused": "(key) refused",
    "key AKIAIOSFODNN7EXAMPLE": "key (key)",
    "AIzaSyA-0123456789abcdefghijklmnopqrstuv.": "(key).",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP": "(key)",
    "{'Authorization': 'Basic bWU6cGFzc3dvcmQ='}": "{'Authorization': '(key)'}",
    "authorization: token 0123456789abcdef": "authorization: (key)",
    "{'x-api-key': '0123456789abcdef'}": "{'x-api-key': '(key)'}",
    "api_key=0123456789abcdef&x": "api_key=(key)&x",
    "https://host/back#access_token=plum&state=1 refused": "https://host/back#(hidden) refused",
    "see https://host/docs#the-key and set api_key: none": None,
    "Basic instructions; authorization: required; a token economy of 1234567890": None,
    "write to a@b.org about https://example.org/a, or to c@d.org": None,
    '{"page":"https://example.org","mail":"me@example.org"}': None,
    "AKIA is a village, AIza is none; eyJ.eyJ.x; ghp_short": None,
    "sk-learn is not scikit-learn-1.6; see https://example.org/a_page": None,
    "outputs/20250101-120000-9f0c1d2e3a4b5c6d/0-image-to-text.png": None,
    "hf_hub_download could not find model.safetensors": None,
    "what is in photo.jpg? It shows 3 cats": None,
}


def test_secrets_in_a_text_are_masked_and_other_text_is_not() -> None:
    assert {text: redact(text) for text in TEXTS} == {text: want or text for text, want in TEXTS.items()}
    error = _LeakyError()
    assert redact(str(error)).startswith("401 for http://127.0.0.1:9/a.png?(hidden) with ")
    ours = InputError(str(error), detail=error, advice="look")
    assert not _leaks(str(ours), repr(ours), *ours.args, describe_error(error), format_traceback(error))


def test_variables_named_like_secrets_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [
        *("PGPASSWORD", "OPENAI_APIKEY", "MYSQL_PWD", "DB_PASS", "GITHUBTOKEN", "AWS_SECRET_ACCESS_KEY"),
        *("TLS_PASSPHRASE", "OPENAI_API_KEY_2", "ROUTER_TOKENS", "MY_SERVICE_TOKEN"),
    ]
    values = ("plum-and-custard", "/looks+like/a+path=", "/" + "a" * 300, "/proc/1/root/hidden-here")
    for name in names:
        with monkeypatch.context() as patch:
            for value in values:
                patch.setenv(name, value)
                assert redact(f"it said {value}") == "it said (key)", name
    for name in ("PWD", "OLDPWD", "MONKEY", "KEYBOARD", "TOKENIZERS_PARALLELISM"):
        monkeypatch.setenv(name, "plum-and-custard")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path))
    assert redact(f"plum-and-custard, {tmp_path}") == f"plum-and-custard, {tmp_path}"


def test_registered_keys_are_masked_and_short_ones_only_as_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("swordfish-plaice", "abc1234", "ollama", "12345"):
        Settings(api_key=key)
    register_secret("trout-and-salmon")
    assert redact("swordfish-plaice, trout-and-salmon") == "(key), (key)"
    assert redact("abc1234 is not xabc12345; ollama, 12345") == "(key) is not xabc12345; ollama, 12345"
    monkeypatch.setattr(redaction, "_registered", ())
    monkeypatch.setattr(redaction, "_MAX_REGISTERED", 3)
    for key in ("first one", "second one", "third one", "first one", "fourth one"):
        register_secret(key)
    assert redact("first one, second one, third one, fourth one") == "(key), second one, (key), (key)"


@pytest.mark.slow
def test_redaction_takes_linear_time() -> None:
    """With quadratic time, this would take hours."""
    for word in ("sk-", "eyJ-", "http://", "a.", "://a@", "bearer ", "authorization:", "https://a?b ", "x@"):
        assert redact(word * 100_000 + "://a") != ""


@pytest.mark.parametrize("stage", ["plan", "run", "respond"])
async def test_secrets_in_errors_of_a_run_are_masked(stage: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="jarvis_agent")
    parts: Any = {"experts": {"image-to-text": _LeakyError()}} if stage == "run" else {stage: _LeakyError()}
    agent, _, _ = small_agent(**parts)
    events = [event async for event in agent.aevents("Describe a.jpg")]
    run = events[-1].run
    assert run is not None
    assert run.answer
    if stage == "run":
        assert "_LeakyError: 401" in (run.results[0].error or "")
        assert "_LeakyError" in caplog.text
    assert not _leaks(*(event.model_dump_json() for event in events), caplog.text, *map(str, agent.settings))


async def test_a_failed_download_is_reported_without_login_and_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for settings in (Settings(), Settings(allow_private_urls=True)):
        with pytest.raises(InputError, match=r"http://127\.0\.0\.1:9/a\.png\?\(hidden\)") as caught:
            await fetch(SIGNED, tmp_path / "a.png", settings)
        assert not _leaks(str(caught.value), *traceback.format_exception(caught.value))
    gone, client = httpx.MockTransport(lambda _: httpx.Response(403)), httpx.AsyncClient
    monkeypatch.setattr(httpx, "AsyncClient", lambda **_: client(transport=gone))
    with pytest.raises(InputError, match="answered 403") as caught:
        await fetch(SIGNED, tmp_path / "a.png", Settings(allow_private_urls=True))
    printed = "".join(traceback.format_exception(caught.value))
    assert "Client error '403" in printed
    assert not _leaks(printed)


async def test_tracers_and_checkpointers_get_errors_without_secrets() -> None:
    agent, _, _ = small_agent()
    request: Any = {"input": "Describe it", "files": [SIGNED]}
    with collect_runs() as collected, pytest.raises(InputError):
        await agent.ainvoke(request)
    saver = InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "a"}}
    with pytest.raises(InputError):
        await agent.copy(checkpointer=saver).graph.ainvoke(request, thread)
    stored = [
        str(value)
        async for saved in saver.alist(thread)
        for _, channel, value in saved.pending_writes or ()
        if channel == "__error__"
    ]
    for errors in ([str(run.error) for run in collected.traced_runs], stored):
        assert any("private address 127.0.0.1" in error for error in errors)
        assert not _leaks(*errors)


async def test_secrets_in_the_error_of_a_provider_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    from jarvis_agent.backends.hosted import inference_providers as hosted

    async def refused(*_: Any) -> Any:
        request = httpx.Request("POST", SIGNED)
        httpx.Response(403, request=request).raise_for_status()

    monkeypatch.setattr(hosted, "run_call", refused)
    one = hosted.Serving("a provider", "image-to-text")
    candidate = fake_candidate("image-to-text", "org/model")
    call: Any = SimpleNamespace(candidate=candidate)
    with pytest.raises(UnsupportedError, match="403") as caught:
        await hosted.HostedBackend(Settings())._call(one, call, 5.0)
    assert not _leaks(*traceback.format_exception(caught.value))


def test_a_server_answers_an_error_without_secrets(tmp_path: Path) -> None:
    with serving(agent_of(tmp_path)) as served:
        body = {"input": {"input": "Describe it", "files": [SIGNED]}}
        answers = [served.client.post(f"/agent/{method}", json=body) for method in ("invoke", "stream")]
    assert [answer.status_code for answer in answers] == [422, 200]
    assert all("private address 127.0.0.1" in answer.text for answer in answers)
    assert not _leaks(*(answer.text for answer in answers))


async def test_printed_settings_and_the_doctor_contain_no_keys() -> None:
    settings = Settings()
    assert not _leaks(repr(settings), str(settings), settings.model_dump_json())
    elsewhere = Settings(base_url=SIGNED)
    assert "base_url='http://127.0.0.1:9/a.png?(hidden)'" in repr(elsewhere)
    assert not _leaks(repr(elsewhere), str(elsewhere))
    assert elsewhere.base_url == SIGNED
    keyed = Settings(base_url=f"{SIGNED}&key={SECRETS['JARVIS_API_KEY']}")
    async with aclosing(ModelRegistry(keyed)) as registry:
        report = await examine(keyed, registry, check_hub(keyed))
    assert not _leaks(*(check.model_dump_json() for check in report.checks))
