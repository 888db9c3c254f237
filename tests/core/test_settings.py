"""Settings come from what is given and from variables of the project's own, and errors name them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings, load_settings, misspelt_variables


@pytest.fixture(autouse=True)
def _no_hub_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@pytest.mark.parametrize("name", ["OFFLINE", "offline"])
def test_a_bare_variable_of_that_name_is_not_ours(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    assert Settings().offline is False


@pytest.mark.parametrize("name", ["JARVIS_OFFLINE", "HF_HUB_OFFLINE"])
def test_offline_mode_has_two_variables(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    assert Settings().offline is True
    assert Settings(offline=False).offline is False


@pytest.mark.parametrize("name", ["JARVIS_HF_TOKEN", "HF_TOKEN"])
def test_the_token_has_two_variables(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "hf_shell")
    assert Settings().token == "hf_shell"
    assert Settings(hf_token="hf_given").token == "hf_given"
    assert Settings(hf_token=None).hf_token is None


def test_both_can_be_given_by_name() -> None:
    settings = Settings(offline=True, hf_token="hf_given")
    assert (settings.offline, settings.token) == (True, "hf_given")


def test_what_is_not_given_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_POLICY", "local-only")
    monkeypatch.setenv("JARVIS_TOP_K", "3")
    settings = load_settings(policy="hosted-only", top_k=None)
    assert (settings.policy, settings.top_k) == ("hosted-only", 3)


@pytest.mark.parametrize(
    ("variable", "value", "given", "told"),
    [
        ("JARVIS_TOP_K", "many", {}, "JARVIS_TOP_K: .+'many'"),
        ("JARVIS_OFFLINE", "perhaps", {}, "JARVIS_OFFLINE: .+'perhaps'"),
        ("JARVIS_POLICY", "local-only", {"policy": "fast"}, "^policy: .+'fast'"),
    ],
)
def test_what_can_not_be_used_is_named_as_the_user_knows_it(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, given: dict[str, str], told: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=told):
        load_settings(**given)


def test_a_field_that_there_is_not_is_refused() -> None:
    misspelt: dict[str, Any] = {"task_timeoutt": 3}
    with pytest.raises(ValidationError, match="task_timeoutt"):
        Settings(**misspelt)


def test_a_misspelt_variable_is_found_with_the_one_that_was_meant() -> None:
    there = [
        "JARVIS_TASK_TIMEOUTT",
        "JARVIS_LICENCES",
        "JARVIS_POLICY",
        "JARVIS_HF_TOKEN",
        "JARVIS_HOME",
        "HOME",
    ]
    assert misspelt_variables(there) == {
        "JARVIS_TASK_TIMEOUTT": "JARVIS_TASK_TIMEOUT",
        "JARVIS_LICENCES": "JARVIS_LICENSES",
    }


def test_a_misspelt_variable_is_told_where_settings_are_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JARVIS_POLCY", "local-only")
    assert load_settings().policy == "local-first"
    assert "JARVIS_POLCY is no setting and changes nothing; did you mean JARVIS_POLICY?" in caplog.text


def test_the_variable_of_the_command_line_is_not_taken_for_a_misspelt_one() -> None:
    assert misspelt_variables(["JARVIS_DEBUG"]) == {}


@pytest.mark.parametrize(
    "written",
    [
        "text-to-image=hosted-first, translation=local-only,",
        '{"text-to-image": "hosted-first", "translation": "local-only"}',
    ],
)
def test_policies_by_task_are_pairs_or_json(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("JARVIS_POLICIES", written)
    settings = Settings()
    assert settings.policies == {"text-to-image": "hosted-first", "translation": "local-only"}
    assert settings.policy_for("text-to-image") == "hosted-first"
    assert settings.policy_for("summarization") == settings.policy == "local-first"


def test_policies_may_be_given_as_they_are() -> None:
    settings = Settings(policy="local-only", policies={"text-to-video": "hosted-only"})
    assert settings.policy_for("text-to-video") == "hosted-only"
    assert settings.policy_for("text-to-image") == "local-only"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("translation=fast", "JARVIS_POLICIES.+'fast'"),
        ("translation", "JARVIS_POLICIES"),
        ('{"translation": ', "JARVIS_POLICIES"),
    ],
)
def test_a_policy_that_there_is_not_is_named(
    monkeypatch: pytest.MonkeyPatch, written: str, told: str
) -> None:
    monkeypatch.setenv("JARVIS_POLICIES", written)
    with pytest.raises(ConfigError, match=told):
        load_settings()


def test_what_pays_and_what_the_pool_may_take_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JARVIS_BILL_TO", "acme")
    monkeypatch.setenv("JARVIS_GPU_MEMORY_BUDGET", "8000000000")
    settings = Settings()
    assert (settings.bill_to, settings.gpu_memory_budget) == ("acme", 8_000_000_000)
