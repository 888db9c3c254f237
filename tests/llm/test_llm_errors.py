"""Messages of LLM errors contain no keys."""

from __future__ import annotations

import pytest

from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.errors import explain
from jarvis_agent.testing import ScriptedLLM


def test_keys_are_removed_from_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    settings = Settings(api_key="mine-of-the-server", hf_token="token-of-the-hub")
    keys = ["sk-proj-abcDEF123_456-xyz", "sk-ant-api03-abcDEF123", "sk-proj-********************wxyz"]
    keys += ["hf_abcDEF123456", "gsk_abcDEF123456", "xai-abcDEF123456"]
    keys += ["from-the-environment", "mine-of-the-server", "token-of-the-hub"]
    for key in keys:
        error = ValueError(f"Incorrect API key provided: {key} for you. You can find yours at https://x.org")
        text = str(explain(error, ScriptedLLM(""), settings))
        assert "Incorrect API key provided: (key) for you. You can find yours at https://x.org" in text, key
    words = "the task-force, risk-free and hf hub"
    assert words in str(explain(ValueError(words), ScriptedLLM(""), settings))
