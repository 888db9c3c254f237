"""Keys and tokens stay out of everything that a run tells: answers, errors, logs, Runs, reports."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from served import agent_of, serving
from small_agents import small_agent

from jarvis_agent.console.doctor import examine
from jarvis_agent.errors import InputError, in_words, traced
from jarvis_agent.fetch import fetch
from jarvis_agent.masking import keep_secret, masked
from jarvis_agent.settings import Settings

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
    told = masked(str(_LeakyError()))
    assert secret not in told
    assert told.startswith("401 for http://127.0.0.1:9/a.png?(hidden) with ")


@pytest.mark.parametrize(
    "text",
    [
        "sk-learn is not scikit-learn-1.6; see https://example.org/a_page",
        "outputs/20250101-120000-9f0c1d2e3a4b5c6d/0-image-to-text.png",
        "hf_hub_download could not find model.safetensors",
        "what is in photo.jpg? It shows 3 cats",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert masked(text) == text


def test_a_key_of_the_settings_is_masked_wherever_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    Settings(api_key="swordfish-plaice")
    keep_secret("trout-and-salmon")
    assert masked("swordfish-plaice, trout-and-salmon") == "(key), (key)"


def test_errors_hide_what_they_were_made_with() -> None:
    assert not _leaks(str(InputError(str(_LeakyError()))), in_words(_LeakyError()), traced(_LeakyError()))


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
        assert not _leaks(str(told.value), traced(told.value))


def test_the_doctor_reports_no_keys() -> None:
    report = examine(Settings(base_url=f"{SIGNED}&key={SECRETS['JARVIS_API_KEY']}"))
    assert not _leaks(*(check.model_dump_json() for check in report.checks))


def test_a_server_answers_an_error_without_secrets(tmp_path: Path) -> None:
    script: dict[str, Any] = {"plan": "[]"}
    with serving(agent_of(tmp_path, script), script) as served:
        body = {"input": {"input": "Describe it", "files": [SIGNED]}}
        answers = [
            httpx.post(f"{served.url}/agent/invoke", json=body),
            httpx.post(f"{served.url}/agent/stream", json=body),
        ]
    assert [answer.status_code for answer in answers] == [422, 200]
    assert all("private address 127.0.0.1" in answer.text for answer in answers)
    assert not _leaks(*(answer.text for answer in answers))


def test_what_is_printed_of_the_settings_holds_no_keys() -> None:
    settings = Settings()
    assert not _leaks(repr(settings), str(settings), settings.model_dump_json())
