"""Keys and tokens stay out of everything that a run tells: answers, errors, logs, Runs, reports."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.tracers.context import collect_runs
from PIL import Image
from served import agent_of, serving
from small_agents import small_agent

from jarvis_agent.core import redaction as masking
from jarvis_agent.core.errors import InputError, UnsupportedError, describe_error, format_traceback
from jarvis_agent.core.redaction import redact, register_secret
from jarvis_agent.core.settings import Settings
from jarvis_agent.interfaces.cli.doctor import examine
from jarvis_agent.media.download import fetch
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


@pytest.mark.parametrize("secret", HIDDEN)
def test_a_secret_is_masked_in_a_text(secret: str) -> None:
    told = redact(str(_LeakyError()))
    assert secret not in told
    assert told.startswith("401 for http://127.0.0.1:9/a.png?(hidden) with ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("GET https://me:p@ss@host/a", "GET https://host/a"),
        ("https://me:p@s:s@host.example?sig=1", "https://host.example?(hidden)"),
        ("https://proxy/https://me:pw@host/a?b=http://c?d=e f", "https://proxy/https://host/a?(hidden) f"),
        ("postgresql://me:pw@db/runs?password=pw", "postgresql://db/runs?(hidden)"),
        ("token hf_" + "aBcDeFgHiJ" * 3 + "kLmN refused", "token (key) refused"),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345 refused", "(key) refused"),
        ("key AKIAIOSFODNN7EXAMPLE", "key (key)"),
        ("AIzaSyA-0123456789abcdefghijklmnopqrstuv.", "(key)."),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP", "(key)"),
        ("{'Authorization': 'Basic bWU6cGFzc3dvcmQ='}", "{'Authorization': '(key)'}"),
        ("authorization: token 0123456789abcdef", "authorization: (key)"),
        ("{'x-api-key': '0123456789abcdef'}", "{'x-api-key': '(key)'}"),
        ("api_key=0123456789abcdef&x", "api_key=(key)&x"),
        ("https://host/back#access_token=plum&state=1 refused", "https://host/back#(hidden) refused"),
        ("see https://host/docs#the-key and set api_key: none", None),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, told: str | None) -> None:
    assert redact(text) == (text if told is None else told)


@pytest.mark.parametrize(
    "name",
    [
        "PGPASSWORD",
        "OPENAI_APIKEY",
        "MYSQL_PWD",
        "DB_PASS",
        "GITHUBTOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "TLS_PASSPHRASE",
        "OPENAI_API_KEY_2",
        "ROUTER_TOKENS",
    ],
)
def test_a_variable_that_is_named_like_a_secret_is_masked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("plum-and-custard", "/looks+like/a+path="):
        monkeypatch.setenv(name, value)
        assert redact(f"it said {value}") == "it said (key)"


@pytest.mark.parametrize("name", ["PWD", "OLDPWD", "MONKEY", "KEYBOARD", "TOKENIZERS_PARALLELISM"])
def test_a_variable_that_is_named_otherwise_is_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "plum-and-custard")
    assert redact("plum-and-custard") == "plum-and-custard"


def test_the_place_of_a_key_may_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path))
    assert redact(f"no key in {tmp_path}") == f"no key in {tmp_path}"


def test_a_short_key_of_the_settings_is_masked_as_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("abc1234", "ollama", "12345"):
        Settings(api_key=key)
    assert redact("abc1234 is not xabc12345; ollama, 12345") == "(key) is not xabc12345; ollama, 12345"


@pytest.mark.parametrize(
    "text",
    [
        "Basic instructions; authorization: required; a token economy of 1234567890",
        "write to a@b.org about https://example.org/a, or to c@d.org",
        '{"page":"https://example.org","mail":"me@example.org"}',
        "AKIA is a village, AIza is none; eyJ.eyJ.x; ghp_short",
        "sk-learn is not scikit-learn-1.6; see https://example.org/a_page",
        "outputs/20250101-120000-9f0c1d2e3a4b5c6d/0-image-to-text.png",
        "hf_hub_download could not find model.safetensors",
        "what is in photo.jpg? It shows 3 cats",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert redact(text) == text


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "word", ["sk-", "eyJ-", "http://", "a.", "://a@", "bearer ", "authorization:", "https://a?b ", "x@"]
)
def test_a_long_text_takes_no_longer_than_its_length(word: str) -> None:
    """With work that grows with the square of it, this would take hours."""
    assert redact(word * 200_000 + "://a") != ""


def test_a_key_of_the_settings_is_masked_wherever_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    Settings(api_key="swordfish-plaice")
    register_secret("trout-and-salmon")
    assert redact("swordfish-plaice, trout-and-salmon") == "(key), (key)"


def test_errors_hide_what_they_were_made_with() -> None:
    ours = InputError(str(_LeakyError()))
    assert not _leaks(
        str(ours), repr(ours), *ours.args, describe_error(_LeakyError()), format_traceback(_LeakyError())
    )
    assert InputError(str(_LeakyError()), 7).args[1] == 7


async def test_a_run_whose_expert_leaks_tells_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="jarvis_agent")
    agent, _, _ = small_agent(experts={"image-to-text": _LeakyError()})
    events = [event async for event in agent.events("Describe a.jpg")]
    told = [event.model_dump_json() for event in events]
    assert events[-1].run is not None
    assert "_LeakyError: 401" in (events[-1].run.results[0].error or "")
    assert "_LeakyError" in caplog.text
    assert not _leaks(*told, caplog.text, *map(str, agent.settings))


@pytest.mark.parametrize("stage", ["plan", "respond"])
async def test_a_language_model_that_leaks_is_not_repeated(
    stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="jarvis_agent")
    agent, _, _ = small_agent(**{stage: _LeakyError()})
    run = await agent.ainvoke("Describe a.jpg")
    assert run.answer
    assert not _leaks(run.model_dump_json(), caplog.text)


async def test_an_address_that_can_not_be_fetched_is_told_without_its_login_and_signature(
    tmp_path: Path,
) -> None:
    for settings in (Settings(), Settings(allow_private_urls=True)):
        with pytest.raises(InputError, match=r"http://127\.0\.0\.1:9/a\.png\?\(hidden\)") as told:
            await fetch(SIGNED, tmp_path / "a.png", settings)
        assert not _leaks(str(told.value), *traceback.format_exception(told.value))


async def test_the_answer_of_a_server_is_told_without_the_signature_of_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, client = httpx.MockTransport(lambda _: httpx.Response(403)), httpx.AsyncClient
    monkeypatch.setattr(httpx, "AsyncClient", lambda **_: client(transport=gone))
    with pytest.raises(InputError, match="answered 403") as told:
        await fetch(SIGNED, tmp_path / "a.png", Settings(allow_private_urls=True))
    printed = "".join(traceback.format_exception(told.value))
    assert "Client error '403" in printed
    assert not _leaks(printed)


async def test_a_tracer_is_told_of_a_failed_run_without_secrets() -> None:
    agent, _, _ = small_agent()
    with collect_runs() as collected, pytest.raises(InputError):
        await agent.ainvoke({"input": "Describe it", "files": [SIGNED]})
    errors = [str(run.error) for run in collected.traced_runs]
    assert any("private address 127.0.0.1" in error for error in errors)
    assert not _leaks(*errors)


async def test_a_checkpointer_keeps_of_a_failed_run_no_secrets() -> None:
    pytest.importorskip("langgraph")
    from langgraph.checkpoint.memory import InMemorySaver

    agent, _, _ = small_agent()
    saver = InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "a"}}
    with pytest.raises(InputError):
        await agent.with_checkpointer(saver).graph.ainvoke(
            {"input": "Describe it", "files": [SIGNED]}, thread
        )
    kept = [
        str(value)
        async for saved in saver.alist(thread)
        for _, channel, value in saved.pending_writes or ()
        if channel == "__error__"
    ]
    assert any("private address 127.0.0.1" in error for error in kept)
    assert not _leaks(*kept)


async def test_a_provider_that_leaks_is_told_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    from jarvis_agent.backends.hosted import inference_providers as hosted

    async def refused(*_: Any) -> Any:
        request = httpx.Request("POST", SIGNED)
        httpx.Response(403, request=request).raise_for_status()

    monkeypatch.setattr(hosted, "run_call", refused)
    one = hosted.Serving("a provider", "org/model", "image-to-text", None)
    candidate = fake_candidate("image-to-text", "org/model")
    call: Any = SimpleNamespace(candidate=candidate)
    with pytest.raises(UnsupportedError, match="403") as told:
        await hosted.HostedBackend(Settings())._call(one, call, 5.0)
    assert not _leaks(*traceback.format_exception(told.value))


@pytest.mark.parametrize("method", ["alookup", "aupdate"])
async def test_the_error_of_an_llm_cache_is_reported_without_secrets(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> Any:
        raise _LeakyError

    cache = InMemoryCache()
    monkeypatch.setattr(cache, method, broken)
    agent, llm, _ = small_agent()
    monkeypatch.setattr(llm, "cache", cache)
    run = await agent.ainvoke("Describe a.jpg")
    assert "401 for http://127.0.0.1:9/a.png?(hidden)" in run.answer
    assert not _leaks(caplog.text, run.model_dump_json())


def test_the_doctor_reports_no_keys() -> None:
    report = examine(Settings(base_url=f"{SIGNED}&key={SECRETS['JARVIS_API_KEY']}"))
    assert not _leaks(*(check.model_dump_json() for check in report.checks))


def test_a_server_answers_an_error_without_secrets(tmp_path: Path) -> None:
    script: dict[str, Any] = {"plan": "[]"}
    with serving(agent_of(tmp_path, script), script) as served:
        body = {"input": {"input": "Describe it", "files": [SIGNED]}}
        answers = [
            served.client.post("/agent/invoke", json=body),
            served.client.post("/agent/stream", json=body),
        ]
    assert [answer.status_code for answer in answers] == [422, 200]
    assert all("private address 127.0.0.1" in answer.text for answer in answers)
    assert not _leaks(*(answer.text for answer in answers))


def test_what_is_printed_of_the_settings_holds_no_keys() -> None:
    settings = Settings()
    assert not _leaks(repr(settings), str(settings), settings.model_dump_json())
    elsewhere = Settings(base_url=SIGNED)
    assert "base_url='http://127.0.0.1:9/a.png?(hidden)'" in repr(elsewhere)
    assert not _leaks(repr(elsewhere), str(elsewhere))
    assert elsewhere.base_url == SIGNED


@pytest.mark.parametrize("value", ["/" + "a" * 300, "/proc/1/root/nobody-sees-this"])
def test_a_secret_that_can_not_be_looked_for_as_a_file_is_masked(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", value)
    assert value not in repr(InputError(f"refused: {value}"))


def test_of_very_many_keys_those_that_were_told_last_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_kept", ())
    monkeypatch.setattr(masking, "_MOST_KEPT", 3)
    for key in ("first one", "second one", "third one", "first one", "fourth one"):
        masking.register_secret(key)
    assert masking.redact("first one, second one, third one, fourth one") == "(key), second one, (key), (key)"
