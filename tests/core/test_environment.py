"""Keys and proxies as people set them in the environment."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from doubles.openai_server import OpenAIDouble

from jarvis_agent import JarvisAgent
from jarvis_agent.core.environment import check_proxies, clean_key, is_loopback, key_of, set_up_proxies
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import ServerSettings, Settings
from jarvis_agent.llm.chat_model import openai_model, served_window
from jarvis_agent.media.download import _proxy_of

DIRECT = "127.0.0.1,localhost,::1"


@pytest.mark.parametrize(
    "around", ["{}\n", "{}\r\n", " {}\t", '"{}"', "'{}'\n", "\ufeff{}", "\u00a0{}\u200b", "“{}”"]
)
def test_what_copying_adds_around_a_key_is_left_out(around: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key = around.format("hf_abcdef1")
    assert clean_key(key) == "hf_abcdef1"
    monkeypatch.setenv("HF_TOKEN", key)
    assert Settings().token == "hf_abcdef1"
    assert Settings(api_key=key).api_key == Settings(api_key="hf_abcdef1").api_key


@pytest.mark.parametrize("key", ["hf_abc def", "hf_abcé", "hf_abc\ndef", "hf_аbc"])
@pytest.mark.parametrize("variable", ["HF_TOKEN", "JARVIS_HF_TOKEN", "JARVIS_API_KEY", "JARVIS_EXPERTS_KEY"])
def test_a_key_that_cannot_be_sent_is_named_and_not_shown(
    key: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, key)
    with pytest.raises(ConfigError, match=f"^{variable}: .*copy the key again") as caught:
        Settings()
    assert "abc" not in str(caught.value)
    with pytest.raises(ConfigError, match=f"^{variable}: "):
        key_of(variable)
    with pytest.raises(ConfigError, match=r"^api_keys"):
        ServerSettings(api_keys=key)


def test_this_machine_is_excepted_from_proxies() -> None:
    for before, after in (
        ({"HTTP_PROXY": "http://p"}, {"HTTP_PROXY": "http://p", "NO_PROXY": DIRECT}),
        ({"all_proxy": "socks://p:1"}, {"all_proxy": "socks5://p:1", "NO_PROXY": DIRECT}),
        ({"ALL_PROXY": "p", "no_proxy": "a.b, ::1"}, {"ALL_PROXY": "p", "no_proxy": f"a.b, ::1,{DIRECT}"}),
        ({"ALL_PROXY": "p", "NO_PROXY": "*"}, {"ALL_PROXY": "p", "NO_PROXY": "*"}),
        ({"ALL_PROXY": ""}, {"ALL_PROXY": ""}),
    ):
        variables = dict(before)
        set_up_proxies(variables)
        set_up_proxies(variables)
        assert variables == after


async def test_settings_leave_the_environment_as_it_is_and_this_machine_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    before = dict(os.environ)
    reply = {"data": [{"id": "m", "max_model_len": 77}]}
    with OpenAIDouble({"": "[]"}, answers={"/v1/models": reply}) as server:
        model: Any = openai_model("m", Settings(), server.base_url, "key")
        assert await served_window(model) == 77
        assert [model.invoke("[]").text, (await model.ainvoke("[]")).text] == ["[]", "[]"]
    assert os.environ == before
    assert is_loopback("http://127.0.0.2:8000/v1")
    assert not is_loopback("https://router.huggingface.co/v1")


@pytest.mark.parametrize("variable", ["all_proxy", "HTTPS_PROXY"])
def test_a_proxy_as_gnome_writes_it_breaks_no_client(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "socks://127.0.0.1:9/")
    agent = JarvisAgent(model="openai:gpt-5-mini", settings={"api_key": "sk-1"})
    assert os.environ[variable] == "socks5://127.0.0.1:9/"
    assert "gpt-5-mini at https://api.openai.com/v1 could not be reached" in agent.invoke("hello").answer
    httpx.Client().close()  # clients of libraries


def test_a_proxy_of_an_unknown_kind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for good in ("proxy:3128", "http://me:pw@proxy:1", "socks5h://proxy"):
        monkeypatch.setenv("ALL_PROXY", good)
        check_proxies()
    monkeypatch.setenv("ALL_PROXY", "socks4://me:secret@proxy")
    with pytest.raises(ConfigError, match="ALL_PROXY begins with socks4://") as caught:
        check_proxies()
    assert "secret" not in str(caught.value)


PROCESS = """
import os, pwd, sys
def nobody(*_):
    raise KeyError("uid not found")
pwd.getpwuid = nobody
for name in [name for name in os.environ if name == "HOME" or name.startswith("XDG")]:
    del os.environ[name]
if sys.argv[1]:
    os.environ["HOME"] = sys.argv[1]
from jarvis_agent import JarvisAgent, Settings
for _ in range(2):
    print(JarvisAgent(model="none").invoke("How large is a.png?").answer, Settings().token)
"""


def test_files_are_fetched_through_the_proxy_in_any_of_its_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    url = httpx.URL("https://example.org/a.png")
    for proxy, used in (("socks://p:1", "socks5://p:1"), ("p:3128", "http://p:3128")):
        monkeypatch.setenv("ALL_PROXY", proxy)
        assert _proxy_of(url) == used


@pytest.mark.skipif(sys.platform == "win32", reason="needs users of POSIX")
@pytest.mark.parametrize("home", ["", "a.png/home"])
def test_an_agent_works_without_a_home(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    Image.new("RGB", (7, 5)).save(tmp_path / "a.png")
    monkeypatch.delenv("HF_HOME")
    ended = subprocess.run(
        [sys.executable, "-c", PROCESS, home and str(tmp_path / home)],
        cwd=tmp_path,
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.count("7 × 5 pixels") == 2, ended.stderr
    assert "None" in ended.stdout
    assert ended.stderr.count("goes on without it") == bool(home)
    assert len({*ended.stderr.splitlines()}) == 1
