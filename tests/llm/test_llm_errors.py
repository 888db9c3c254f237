"""Failures of language models, told without any key: neither ours nor one that a provider repeats."""

from __future__ import annotations

from typing import Any

import pytest

from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.errors import explain
from jarvis_agent.testing import ScriptedLLM

FOREIGN_KEYS = [
    "sk-proj-abcDEF123_456-xyz",
    "sk-ant-api03-abcDEF123",
    "sk-proj-********************wxyz",
    "hf_abcDEF123456",
    "gsk_abcDEF123456",
    "xai-abcDEF123456",
]


def told(error: Exception, model: Any = None, **settings: Any) -> str:
    return str(explain(error, model or ScriptedLLM(""), Settings(**settings)))


@pytest.mark.parametrize("key", FOREIGN_KEYS)
def test_a_foreign_key_in_a_providers_message_is_not_told(key: str) -> None:
    text = told(ValueError(f"Incorrect API key provided: {key}. You can find yours at https://x.org"))
    assert key not in text
    assert "Incorrect API key provided: (key)" in text
    assert "https://x.org" in text


def test_our_own_keys_are_not_told_whatever_they_look_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    error = ValueError("tried mine-of-the-server, from-the-environment and token-of-the-hub")
    text = told(error, api_key="mine-of-the-server", hf_token="token-of-the-hub")
    assert "tried (key), (key) and (key)" in text


def test_words_that_only_begin_like_keys_are_told() -> None:
    assert "the task-force, risk-free and hf hub" in told(ValueError("the task-force, risk-free and hf hub"))
