"""The shipped test doubles: scripted LLM, fake backend and source, no network, a Hub."""

import asyncio
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.llm.prompts import load_prompts
from jarvis_agent.selection.sources.base import ModelSource
from jarvis_agent.testing import (
    FakeBackend,
    FakeSource,
    HubDouble,
    NetworkForbiddenError,
    ScriptedLLM,
    fake_candidate,
    forbid_network,
)


def asked(prompts: str, stage: str) -> Any:
    """The messages of a stage's prompt with empty variables."""
    template = getattr(load_prompts(prompts), stage)
    return template.invoke(dict.fromkeys(template.input_variables, "")).to_messages()


class TestScriptedLLM:
    def test_the_order_of_replies(self) -> None:
        llm = ScriptedLLM(["one", "two"])
        assert [llm.invoke("a").text, llm.invoke("b").text] == ["one", "two"]
        with pytest.raises(AssertionError, match="2 replies"):
            llm.invoke("c")
        assert {ScriptedLLM("hi").invoke(word).text for word in "abc"} == {"hi"}
        assert ScriptedLLM(lambda messages: messages[-1].text.upper()).invoke("loud").text == "LOUD"

    def test_replies_by_stage(self) -> None:
        for prompts in ("default", "paper"):
            llm = ScriptedLLM({"plan": ["[]", "[1]"], "chat": "hello"})
            replies = [llm.invoke(asked(prompts, stage)).text for stage in ("plan", "chat", "plan")]
            assert replies == ["[]", "hello", "[1]"]
            assert llm.stages() == ["plan", "chat", "plan"]
        with pytest.raises(AssertionError, match=r"'respond'.*only for plan"):
            ScriptedLLM({"plan": "[]"}).invoke(asked("default", "respond"))

    async def test_a_reply_may_fail_in_the_middle(self) -> None:
        stream = ScriptedLLM(("some", 0.001, TimeoutError())).astream("x")
        assert (await anext(stream)).text == "some"
        with pytest.raises(TimeoutError):
            await anext(stream)


def call_of(task: str, model: str = "") -> Call:
    return Call(TASKS[task], fake_candidate(task, model), {}, lambda suffix: Path("x" + suffix), Settings())


class TestFakeBackend:
    def test_it_is_a_backend_and_the_source_a_source(self) -> None:
        assert isinstance(FakeBackend({}), Backend)
        assert isinstance(FakeSource([]), ModelSource)


def with_socket(use: Callable[[socket.socket], Any]) -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as given:
        return use(given)


class TestForbidNetwork:
    async def test_nothing_leaves_this_machine(self) -> None:
        """192.0.2.1 is an address that exists nowhere (RFC 5737)."""
        calls: list[Callable[[], Any]] = [
            lambda: socket.create_connection(("192.0.2.1", 80), timeout=0.1),
            lambda: socket.create_connection(("huggingface.co", 443), timeout=0.1),
            lambda: socket.getaddrinfo(host="huggingface.co", port=443),
            lambda: with_socket(lambda given: given.sendto(b"x", ("192.0.2.1", 53))),
            lambda: with_socket(lambda given: given.connect_ex(("192.0.2.1", 80))),
            lambda: httpx.get("http://192.0.2.1/"),
        ]
        with forbid_network():
            for call in calls:
                with pytest.raises(NetworkForbiddenError):
                    call()
            with pytest.raises(NetworkForbiddenError):
                await asyncio.open_connection("192.0.2.1", 80)

    def test_this_machine_is_allowed(self) -> None:
        with forbid_network(), HubDouble() as hub:
            for host in ("127.0.0.1", "localhost"):
                address = hub.url.replace("127.0.0.1", host)
                assert httpx.get(f"{address}/api/models").status_code == 200
                assert socket.getaddrinfo(host=host, port=80)

    def test_afterwards_everything_is_as_before(self) -> None:
        before = socket.socket.connect, socket.getaddrinfo
        with forbid_network(), forbid_network():
            assert socket.socket.connect is not before[0]
        assert (socket.socket.connect, socket.getaddrinfo) == before


FILES = {"README.md": "---\nlicense: mit\n---\n# DETR\n", "unet/config.json": "{}"}


@pytest.fixture
def api(hub: HubDouble) -> HfApi:
    return HfApi(endpoint=hub.url)


def test_missing_things_are_reported_as_the_hub_does(hub: HubDouble, api: HfApi, tmp_path: Path) -> None:
    hub.add_model("org/detr", files=FILES)
    with pytest.raises(RepositoryNotFoundError):
        api.model_info("org/none")
    with pytest.raises(EntryNotFoundError):
        hf_hub_download("org/detr", "none.bin", cache_dir=tmp_path)
    with pytest.raises(RevisionNotFoundError):
        hf_hub_download("org/detr", "README.md", revision="v9", cache_dir=tmp_path)


@pytest.mark.parametrize("where", ["start", "middle"])
def test_a_stalled_reply_ends_with_the_double(where: str) -> None:
    with HubDouble() as hub:
        hub.add_model("org/detr", files={"data.bin": b"0123456789"})
        hub.stall("data.bin", where=where)
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{hub.url}/org/detr/resolve/main/data.bin", timeout=0.1)
    assert not [thread for thread in threading.enumerate() if thread.name == "hub-double"]


def test_the_redirection_ends(hub: HubDouble) -> None:
    from huggingface_hub import constants

    assert hub.url == constants.ENDPOINT
    with HubDouble() as other, other.redirected():
        assert other.url == constants.ENDPOINT
    assert hub.url == constants.ENDPOINT
