"""Settings come from what is given and from variables of the project's own, and errors name them."""

from __future__ import annotations

import pytest

from jarvis_agent.errors import ConfigError
from jarvis_agent.settings import Settings, load_settings


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
