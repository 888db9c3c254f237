"""Which chat model is used, and which options it is given."""

import os
from pathlib import Path
from typing import Any

import pytest
from langchain.chat_models.base import _BUILTIN_PROVIDERS
from langchain_openai import ChatOpenAI
from pydantic import Field, SecretStr

from jarvis_agent import JarvisAgent, planning_chain
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings
from jarvis_agent.llm.chat_model import PROVIDERS, describe_model, resolve_model, schema_options
from jarvis_agent.testing import ScriptedLLM

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
SERVER = "http://h:1/v1"
ROUTER = "openai/gpt-oss-120b at https://router.huggingface.co/v1"


def test_the_first_configured_model_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = {"hf_token": "hf_mine", "offline": False}
    cases: list[tuple[str | None, dict[str, Any], str, str]] = [
        (None, {}, "", "no language model"),
        ("none", {"base_url": SERVER}, "", "no language model"),
        (None, {"model": "none"}, "sk-mine", "no language model"),
        (None, {"base_url": SERVER}, "", f"default at {SERVER}"),
        (None, {"base_url": SERVER, "model": "llama3.2:3b"}, "", f"llama3.2:3b at {SERVER}"),
        (None, {"base_url": SERVER, "model": "groq:x"}, "", f"groq:x at {SERVER}"),
        ("llama3:8b", {"base_url": SERVER}, "", f"llama3:8b at {SERVER}"),
        ("openai:gpt-oss", {"base_url": SERVER}, "", f"gpt-oss at {SERVER}"),
        ("groq", {"base_url": SERVER}, "", f"groq at {SERVER}"),
        ("m", {"base_url": "http://me:secret@h:1/v1"}, "", f"m at {SERVER}"),
        (None, hub, "sk-mine", "gpt-5-mini at https://api.openai.com/v1"),
        (None, hub, "", ROUTER),
        (None, {**hub, "offline": True}, "", "no language model"),
    ]
    for model, settings, key, expected in cases:
        monkeypatch.setenv("OPENAI_API_KEY", key)
        assert describe_model(resolve_model(model, Settings(**settings))) == expected


def test_keys_of_providers_are_sent_without_what_copying_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Chat(ScriptedLLM):
        xyz_api_key: SecretStr = Field(default_factory=lambda: SecretStr(os.environ["XYZ_API_KEY"]))

    monkeypatch.setenv("XYZ_API_KEY", "sk-abc\n")
    chat: Any = Chat
    monkeypatch.setattr("langchain.chat_models.init_chat_model", lambda name, **keys: chat([], **keys))
    made: Any = resolve_model("groq:some-model", Settings())
    assert made.xyz_api_key.get_secret_value() == "sk-abc"
    monkeypatch.setenv("XYZ_API_KEY", "sk-a bc")
    with pytest.raises(ConfigError, match=r"XYZ_API_KEY: .*copy the key again"):
        resolve_model("groq:some-model", Settings())
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abc\r\n")
    openai: Any = resolve_model("gpt-5-mini", Settings())
    assert openai.openai_api_key.get_secret_value() == "sk-abc"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a bc")
    with pytest.raises(ConfigError, match=r"OPENAI_API_KEY: .*copy the key again"):
        resolve_model("gpt-5-mini", Settings())


def test_models_are_asked_through_a_socks_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("socksio")
    for scheme in ("socks5", "socks5h"):
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://127.0.0.1:9")
        assert resolve_model("m", Settings(base_url="http://10.0.0.1:1/v1")) is not None
    for scheme in ("socks", "socks4"):
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://127.0.0.1:9")
        with pytest.raises(ConfigError, match=f"ALL_PROXY begins with {scheme}:.*socks5://"):
            resolve_model("m", Settings(base_url="http://10.0.0.1:1/v1"))


def test_a_named_provider_takes_precedence_over_the_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def init(name: str) -> ScriptedLLM:
        made.append(name)
        return ScriptedLLM("hi")

    monkeypatch.setattr("langchain.chat_models.init_chat_model", init)
    assert isinstance(resolve_model("anthropic:claude-haiku-4-5", Settings(base_url=SERVER)), ScriptedLLM)
    assert made == ["anthropic:claude-haiku-4-5"]


def test_the_openai_key_is_never_sent_to_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    for key, sent in ((None, "none"), ("mine", "mine")):
        llm = resolve_model("m", Settings(base_url=SERVER, api_key=key))
        assert isinstance(llm, ChatOpenAI)
        assert llm.root_async_client.api_key == sent


def test_the_providers_are_those_of_langchain() -> None:
    assert set(_BUILTIN_PROVIDERS) >= PROVIDERS
    assert "openai" not in PROVIDERS


def test_temperature_is_zero_where_a_model_of_ours_accepts_one() -> None:
    made = {
        name: resolve_model(f"openai:{name}", Settings(api_key="k")) for name in ("gpt-4o", "gpt-5", "o3")
    }
    temperatures = {name: vars(llm)["temperature"] for name, llm in made.items()}
    assert temperatures == {"gpt-4o": 0.0, "gpt-5": None, "o3": None}
    given = ChatOpenAI(model="gpt-4o", api_key="k", temperature=0.7)
    assert resolve_model(given, Settings(model="openai:gpt-5-mini")) is given
    assert given.temperature == 0.7


def test_a_model_that_cannot_be_created_is_a_config_error() -> None:
    cases = [
        ({"model": "unknown:nothing"}, "unknown:nothing"),
        ({"model": "something"}, 'name it as "provider:model"'),
        ({"model": "gpt-5-mini"}, '"openai:gpt-5-mini" needs a key: set OPENAI_API_KEY'),
        ({"model": "o3"}, '"openai:o3" needs a key: set OPENAI_API_KEY'),
        ({"base_url": "localhost:8000/v1"}, '"localhost:8000/v1"; it must begin with http://'),
    ]
    for settings, message in cases:
        with pytest.raises(ConfigError, match=message):
            resolve_model(None, Settings(**settings))


@pytest.mark.parametrize("name", ["openai:gpt-5-mini", "azure_openai:gpt-5-mini"])
def test_a_missing_key_comes_with_the_alternatives(name: str) -> None:
    for make in (JarvisAgent, planning_chain):
        with pytest.raises(ConfigError, match=r'OPENAI_API_KEY.*HF_TOKEN.*JARVIS_BASE_URL.*"none"'):
            make(name)


def test_a_missing_package_is_named_without_further_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(name: str) -> ScriptedLLM:
        raise ImportError("Install it with `pip install langchain-groq`")

    monkeypatch.setattr("langchain.chat_models.init_chat_model", init)
    with pytest.raises(ConfigError, match=r"cannot be created: Install it with .*langchain-groq`$"):
        resolve_model("groq:x", Settings())


def test_a_schema_is_sent_where_the_profile_says_so() -> None:
    able = ChatOpenAI(model="gpt-4o", api_key="k")
    unable = ChatOpenAI(model="gpt-3.5", api_key="k", profile={"structured_output": False})
    unknown = ChatOpenAI(model="some-local-model", api_key="k")
    other = ScriptedLLM("", profile={"structured_output": True})
    sent = {"type": "json_schema", "json_schema": {"name": "plan", "schema": SCHEMA, "strict": True}}
    for llm, schema in ((able, sent), (unknown, sent), (unable, None), (other, None)):
        options = schema_options(llm, "plan", SCHEMA)
        assert options.get("response_format") == schema, describe_model(llm)
    loose = schema_options(able, "plan", {"type": "object"})["response_format"]
    assert loose["json_schema"]["strict"] is False


def test_a_file_that_is_no_gguf_file_is_named_before_it_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ConfigError, match=r"text\.gguf is no GGUF file"):
        resolve_model(None, Settings(model=f"gguf:{tmp_path / 'text.gguf'}"))
