"""Settings come from arguments and JARVIS_ variables; errors name the field or the variable."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Budget, Settings, misspelt_variables, read_options, read_settings


@pytest.fixture(autouse=True)
def _no_hub_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_variables_have_a_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFLINE", "1")
    assert Settings().offline is False
    monkeypatch.setenv("JARVIS_BASE_URL", "http://acme")
    monkeypatch.setenv("JARVIS_MEMORY_BUDGET", "8000000000")
    settings = Settings()
    assert (settings.base_url, settings.memory_budget) == ("http://acme", 8_000_000_000)


@pytest.mark.parametrize("name", ["seed", "policy", "output_dir", "budget", "licenses"])
def test_an_empty_variable_is_as_if_it_were_not_set(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    usual = getattr(Settings(), name)
    monkeypatch.setenv(f"JARVIS_{name.upper()}", "")
    assert getattr(Settings(), name) == usual


@pytest.mark.parametrize("prefix", ["", "JARVIS_"])
def test_the_hubs_own_variables_are_read_too(monkeypatch: pytest.MonkeyPatch, prefix: str) -> None:
    monkeypatch.setenv("JARVIS_OFFLINE" if prefix else "HF_HUB_OFFLINE", "1")
    monkeypatch.setenv(f"{prefix}HF_TOKEN", "hf_shell")
    settings, given = Settings(), Settings(offline=False, hf_token="hf_given")
    assert (settings.offline, settings.token) == (True, "hf_shell")
    assert (given.offline, given.token) == (False, "hf_given")
    assert Settings(hf_token=None).hf_token is None


def test_arguments_precede_variables_and_none_means_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_POLICY", "local-only")
    monkeypatch.setenv("JARVIS_SEED", "3")
    settings = read_settings({"policy": "hosted-only", "seed": None})
    assert (settings.policy, settings.seed) == ("hosted-only", 3)


@pytest.mark.parametrize("written", ["none", "None"])
def test_no_expert_server_may_be_named_none(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("JARVIS_EXPERTS", written)
    assert Settings().experts is None


MAKERS: list[Callable[[Any], Settings]] = [lambda given: Settings(**given), read_settings]


def test_an_invalid_value_is_reported_with_its_field_or_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[str, str, dict[str, Any], str]] = [
        ("JARVIS_SEED", "many", {}, "JARVIS_SEED: .+'many'"),
        ("JARVIS_SEED", str(2**63), {}, "JARVIS_SEED: .+less than"),
        ("JARVIS_OFFLINE", "perhaps", {}, "JARVIS_OFFLINE: .+'perhaps'"),
        ("JARVIS_POLICY", "local-only", {"policy": "fast"}, "^policy: .+'fast'"),
        ("JARVIS_BUDGET", "tokens=few", {}, "JARVIS_BUDGET.+'few'"),
        ("JARVIS_BUDGET", "tokens", {}, "JARVIS_BUDGET"),
        ("JARVIS_BUDGET", '{"tokens": ', {}, "JARVIS_BUDGET"),
    ]
    for variable, value, given, message in cases:
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            for make in MAKERS:
                with pytest.raises(ConfigError, match=message) as caught:
                    make(given)
                assert "pydantic" not in str(caught.value)


def test_an_unknown_field_is_refused() -> None:
    cases = {"polcy": "there is no setting 'polcy'; did you mean policy\\?$", "x": "no setting 'x'$"}
    for name, message in cases.items():
        for make in MAKERS:
            with pytest.raises(ConfigError, match=message):
                make({name: 1})


def test_misspelt_variables_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["JARVIS_TASK_TIMEOUTT", "JARVIS_POLICY", "JARVIS_HF_TOKEN", "JARVIS_HOME", "JARVIS_DEBUG"]
    assert misspelt_variables(names) == {"JARVIS_TASK_TIMEOUTT": "JARVIS_TASK_TIMEOUT"}
    monkeypatch.setenv("JARVIS_POLCY", "local-only")
    assert read_settings().policy == "local-first"
    assert "JARVIS_POLCY is not a setting and is ignored; did you mean JARVIS_POLICY?" in caplog.text


def test_a_budget_is_pairs_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = {"tokens": 20_000, "seconds": 60.0}
    for written in ("tokens=20000, seconds=60,", json.dumps(budget)):
        monkeypatch.setenv("JARVIS_BUDGET", written)
        assert Settings().budget == Budget(**budget)


def test_a_budget_is_lowered_only_by_the_limits_that_another_one_sets() -> None:
    own = Budget(tokens=100, money=1.0, seconds=3600)
    assert own.lowered(Budget(tokens=200, money=0.5, hosted_calls=3)) == own.model_copy(
        update={"money": 0.5, "hosted_calls": 3}
    )
    assert own.lowered(Budget(seconds=60)).seconds == 60
    stored = Budget.model_validate(Budget(money=1).model_dump())
    assert own.lowered(stored) == own
    assert Budget().lowered(stored) == stored
    assert Budget().lowered(Budget(seconds=3600)).run_seconds == Budget().run_seconds == 900
    context = read_options({"budget": {"seconds": None, "tokens": 5}})
    assert own.lowered(context["budget"]) == own.model_copy(update={"tokens": 5})


def test_a_budget_that_is_a_list_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="budget"):
        Settings(budget=[1])
    monkeypatch.setenv("JARVIS_BUDGET", "[1]")
    with pytest.raises(ConfigError, match="JARVIS_BUDGET"):
        Settings()
