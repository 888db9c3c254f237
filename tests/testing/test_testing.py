"""The shipped test doubles: scripted LLM, fake backend and source, no network."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

from jarvis_agent import testing
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.core.errors import TransientError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task
from jarvis_agent.llm.prompts import load_prompts
from jarvis_agent.selection.chain import selection_chain
from jarvis_agent.selection.sources.base import ModelSource
from jarvis_agent.testing import (
    FakeBackend,
    FakeSource,
    HubDouble,
    NetworkForbiddenError,
    ScriptedLLM,
    fake_candidate,
    first_candidate,
    forbid_network,
)


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = "[name for name in ('langchain_core', 'pydantic') if name in sys.modules]"
    code = f"import sys, jarvis_agent.testing; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_that_it_promises_is_there() -> None:
    assert testing.__all__ == sorted(testing.__all__)
    for name in set(testing.__all__) - {"HubDouble"}:
        assert getattr(testing, name).__name__ == name
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = testing.Nonsense


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

    def test_it_streams_in_pieces_and_counts_tokens_once(self) -> None:
        chunks = list(ScriptedLLM("one two three", chunk=4).stream("a b"))
        assert [chunk.text for chunk in chunks if chunk.text] == ["one ", "two ", "thre", "e"]
        total = chunks[0]
        for chunk in chunks[1:]:
            total += chunk
        assert total.usage_metadata == {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}

    async def test_a_reply_may_fail_in_the_middle(self) -> None:
        stream = ScriptedLLM(("some", 0.001, TimeoutError())).astream("x")
        assert (await anext(stream)).text == "some"
        with pytest.raises(TimeoutError):
            await anext(stream)

    def test_it_drives_an_agent_that_calls_tools(self) -> None:
        @tool
        def double(number: int) -> int:
            """Twice the number."""
            return 2 * number

        call = {"name": "double", "args": {"number": 21}, "id": "1", "type": "tool_call"}
        llm = ScriptedLLM([AIMessage("", tool_calls=[call]), lambda messages: f"It is {messages[-1].text}."])
        state = create_agent(llm, [double]).invoke({"messages": [HumanMessage("twice 21?")]})
        assert state["messages"][-1].text == "It is 42."
        assert llm.calls[0].kwargs["tools"][0]["function"]["name"] == "double"

    def test_first_candidate_chooses_the_first_of_the_list(self) -> None:
        models = [fake_candidate("image-to-text", f"org/{name}") for name in "ab"]
        chain = selection_chain(ScriptedLLM({"select": first_candidate}))
        call = {"input": "x", "task": Task(task="image-to-text", id=0), "candidates": models}
        assert chain.invoke(call).id == "org/a"


def call_of(task: str, model: str = "") -> Call:
    return Call(TASKS[task], fake_candidate(task, model), {}, lambda suffix: Path("x" + suffix), Settings())


class TestFakeBackend:
    def test_it_is_a_backend_and_the_source_a_source(self) -> None:
        assert isinstance(FakeBackend({}), Backend)
        assert isinstance(FakeSource([]), ModelSource)

    async def test_results_are_by_model_by_call_or_computed(self) -> None:
        async def later(call: Call) -> str:
            await asyncio.sleep(0)
            return call.spec.name

        results = {"image-to-text": "any", "org/a": ["a list"], "org/b": lambda call: call.candidate.id}
        backend = FakeBackend(
            {**results, "translation": later, "summarization": (TransientError("busy"), "a")}
        )
        models = [("image-to-text", "org/a"), ("image-to-text", "org/b"), ("image-to-text", "org/c")]
        found = [await backend.run(call_of(*call)) for call in [*models, ("translation", "org/d")]]
        assert found == [["a list"], "org/b", "any", "translation"]
        assert backend.models() == ["org/a", "org/b", "org/c", "org/d"]
        with pytest.raises(TransientError, match="busy"):
            await backend.run(call_of("summarization"))
        assert [await backend.run(call_of("summarization")) for _ in range(2)] == ["a", "a"]


def with_socket(use: Callable[[socket.socket], Any]) -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as given:
        return use(given)


class TestForbidNetwork:
    async def test_nothing_leaves_this_machine(self) -> None:
        """192.0.2.1 is an address that exists nowhere (RFC 5737)."""
        calls: list[Callable[[], Any]] = [
            lambda: socket.create_connection(("192.0.2.1", 80), timeout=0.1),
            lambda: socket.create_connection(("huggingface.co", 443), timeout=0.1),
            lambda: socket.getaddrinfo("huggingface.co", 443),
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

    def test_afterwards_everything_is_as_before(self) -> None:
        before = socket.socket.connect, socket.getaddrinfo
        with forbid_network(), forbid_network():
            assert socket.socket.connect is not before[0]
        assert (socket.socket.connect, socket.getaddrinfo) == before
