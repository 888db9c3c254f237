"""Chat models in GGUF files: LangChain's standard tests, one copy in memory, and what ends a reply."""

import asyncio
import gc
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests
from langchain_tests.unit_tests.chat_models import TEST_PYDANTIC_MODELS
from small_llm import INSTALL, WEIGHTS
from waiting import wait_until

from jarvis_agent import JarvisAgent, Plan, Task
from jarvis_agent.backends.chat_model import ChatModelBackend
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import (
    ConfigError,
    ExpertError,
    LLMError,
    MissingExtraError,
    NoCandidateError,
    UnsupportedError,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.interfaces.cli.setup import this_machine
from jarvis_agent.llm import llama_cpp
from jarvis_agent.llm.chat_model import (
    describe_model,
    gguf_path,
    is_small,
    length_options,
    resolve_model,
    schema_options,
)
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.llm.llama_cpp import ChatGGUF, LlamaCpp
from jarvis_agent.selection import model_registry
from jarvis_agent.selection.model_registry import ModelRegistry
from jarvis_agent.selection.sources import default_sources
from jarvis_agent.testing import FakeBackend, FakeSource, HubDouble

pytestmark = [
    pytest.mark.starter,
    pytest.mark.skipif(WEIGHTS is None or find_spec("xllamacpp") is None, reason=INSTALL),
]
CALLS_NO_TOOLS = pytest.mark.xfail(
    reason="the chat template takes no tools, which schemas of Pydantic 1 and function calls become",
    raises=UnsupportedError,
    strict=True,
)
QUESTION = "What is the capital of France?"
PENALTY = {"repeat_penalty": 1.1}
"""Without it, this very small model repeats itself."""

MOOD, SORT = "text-classification", "zero-shot-classification"
REPO, FILE = "org/small-GGUF", "small-q4.gguf"


@pytest.fixture(scope="module", autouse=True)
def kept() -> Iterator[ChatGGUF]:
    """The model, which stays loaded between the tests of this file."""
    yield (model := ChatGGUF(path=WEIGHTS))
    del model
    gc.collect()


@pytest.fixture
def model(kept: ChatGGUF) -> ChatGGUF:
    return ChatGGUF(path=WEIGHTS, temperature=0.0, max_tokens=60, extra_body=PENALTY)


class _Abilities:
    """SmolLM2's chat template takes no tools."""

    has_tool_calling = has_tool_choice = False
    has_structured_output = True
    structured_output_kwargs: ClassVar[dict[str, Any]] = {"method": "json_schema"}
    supports_json_mode = False
    chat_model_class = ChatGGUF
    chat_model_params: ClassVar[dict[str, Any]] = {"path": WEIGHTS}


class TestStandardUnit(_Abilities, ChatModelUnitTests):
    @CALLS_NO_TOOLS
    @pytest.mark.parametrize("schema", TEST_PYDANTIC_MODELS)
    def test_with_structured_output(self, model: Any, schema: Any) -> None:
        super().test_with_structured_output(model, schema)


@pytest.mark.slow
class TestStandardIntegration(_Abilities, ChatModelIntegrationTests):
    # The grammar lets a text go on for ever, and whether this small model ends it depends on how the machine
    # rounds: it shall close each text as soon as the grammar lets it.
    structured_output_kwargs: ClassVar[dict[str, Any]] = {"method": "json_schema", "logit_bias": {'"': 100}}
    # What the cache holds changes how a prompt is computed and so, rarely, what this small model writes.
    chat_model_params: ClassVar[dict[str, Any]] = {
        "path": WEIGHTS,
        "max_tokens": 50,
        "extra_body": {**PENALTY, "cache_prompt": False},
    }

    @CALLS_NO_TOOLS
    def test_structured_output_pydantic_2_v1(self, model: Any) -> None:
        super().test_structured_output_pydantic_2_v1(model)


def test_a_reply_is_streamed_and_counted(model: ChatGGUF) -> None:
    chunks = list(model.stream(QUESTION))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    assert "Paris" in whole.text
    assert len(chunks) > 5
    assert whole.usage_metadata is not None
    assert 3 < whole.usage_metadata["output_tokens"] <= 60
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [1]}}}}
    assert [chunk for chunk in model.stream(QUESTION, **form) if chunk.usage_metadata]
    assert model.invoke(QUESTION, max_tokens=2).response_metadata["finish_reason"] == "length"
    assert "Paris" not in model.invoke(QUESTION, stop=["Paris"]).text
    assert model.invoke("Hi \ud83d", max_tokens=2).text
    grammar = {"grammar": 'root ::= "yes" | "no"'}
    chosen = model.invoke(QUESTION, extra_body=grammar)
    assert chosen.text in ("yes", "no")
    assert chosen.response_metadata["finish_reason"] == "stop"


def test_the_beginning_of_a_prompt_is_read_once(model: ChatGGUF) -> None:
    def cached(text: str) -> int:
        message = model.invoke([("system", text), ("user", QUESTION)], max_tokens=1)
        assert message.usage_metadata is not None
        return message.usage_metadata["input_token_details"].get("cache_read", 0)

    first, other = "You plan tasks. " * 20, "You answer in rhymes. " * 20
    assert cached(first) < 20
    assert cached(other) < 20
    assert cached(first) > 70


def test_a_file_is_in_memory_once_and_only_as_long_as_it_is_used(model: ChatGGUF, tmp_path: Path) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(WEIGHTS)
    assert ChatGGUF(path=link).llama is model.llama
    other = ChatGGUF(path=link, n_ctx=256)
    assert other.llama is not model.llama
    gc.collect()  # those of other tests
    before = len(LlamaCpp._shared)
    del other
    gc.collect()
    assert len(LlamaCpp._shared) == before - 1
    with JarvisAgent(model=model):
        pool = model_registry._pool
        assert pool is not None
        assert model.llama in pool._models.beside
    assert model.invoke(QUESTION, max_tokens=1).text
    assert model.llama.nbytes == WEIGHTS.stat().st_size  # type: ignore[union-attr]


def test_texts_are_written_by_the_language_model_of_the_user(model: ChatGGUF, tmp_path: Path) -> None:
    link = tmp_path / "my-model-135m.gguf"
    link.symlink_to(str(WEIGHTS))
    plan = Plan(tasks=[Task(task="text-generation", id=0, args={"text": QUESTION})])
    settings = Settings(offline=True, output_dir=tmp_path)
    copies = len(LlamaCpp._shared)
    parts: Any = {"planner": lambda _: plan, "responder": lambda _: "done", "settings": settings}
    with JarvisAgent(model=ChatGGUF(path=link, temperature=0), **parts) as agent:
        (result,) = agent.invoke("What?").results
        assert "Paris" in str(result.output)
        assert result.selection is not None
        assert result.selection.reason == "it is your language model"
        assert result.model == "my-model-135m.gguf"
        assert len(LlamaCpp._shared) == copies
    for other in (Settings(offline=True, model="none"), Settings(offline=True)):
        listed = asyncio.run(default_sources(other)[0].candidates(TASKS["text-generation"], 9))
        assert listed == []


def test_texts_are_sorted_by_sentiment_or_by_the_labels_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert WEIGHTS
    monkeypatch.setattr("jarvis_agent.backends.chat_model.LEAST_BYTES", 0)
    settings = Settings(offline=True, output_dir=tmp_path, model=f"gguf:{WEIGHTS}")

    def sort(request: str, text: str, **args: Any) -> str:
        task = "zero-shot-classification" if args else "text-classification"
        plan = Plan(tasks=[Task(task=task, id=0, args={"text": text, **args})])
        with JarvisAgent(planner=lambda _: plan, responder=lambda _: "done", settings=settings) as agent:
            (result,) = agent.invoke(request).results
        assert result.model == WEIGHTS.name
        (row,) = result.output
        assert row["score"] is None
        return str(row["label"])

    for text in ("Wonderful, I love it. Great!", "真好"):
        assert sort("What is the mood?", text) in ("positive", "negative", "neutral")
    labels = ["music", "music and dance", 'the "news"', "天气"]
    assert sort("Sort it", "明天的天气怎么样？", labels=labels) in labels


async def test_a_language_model_sorts_texts_where_no_specialist_fits(tmp_path: Path) -> None:
    for name, size in (("large-1.5b", 1_100_000_000), ("small-0.5b", 500_000_000)):
        with (tmp_path / f"{name}.gguf").open("wb") as file:
            file.write(b"GGUF")
            file.truncate(size)
    fields: dict[str, Any] = {"downloads": 1_000_000, "size": 300_000_000, "languages": ("en",)}
    others = [Candidate(id=f"org/{task}", task=task, backend="fake", **fields) for task in (MOOD, SORT)]

    async def chosen(purpose: str, task: str, name: str = "large-1.5b", **args: Any) -> list[str]:
        settings = Settings(offline=False, model=f"gguf:{tmp_path / name}.gguf")
        backends: list[Any] = [ChatModelBackend, FakeBackend(dict.fromkeys((MOOD, SORT)))]
        sources = [FakeSource(others), default_sources(settings)[0]]
        registry = ModelRegistry(settings, sources=sources, backends=backends)
        try:
            asked = Task(task=task, id=0, args=args, purpose=purpose), TASKS[task], RunContext("")
            return [one.id for one in (await registry.selector.select(*asked)).candidates]
        finally:
            await registry.aclose()

    by_similarity = Candidate(
        id="org/similar", task=SORT, backend="fake", traits=("by-similarity",), **fields
    )
    others.append(by_similarity)
    english, chinese = {"text": "I like it."}, {"text": "我喜欢它。"}
    assert await chosen("", MOOD, **english) == [f"org/{MOOD}", "large-1.5b.gguf"]
    assert await chosen("spam", MOOD, **english) == [f"org/{MOOD}"]
    assert await chosen("", MOOD, **chinese) == ["large-1.5b.gguf"]
    ranked = [f"org/{SORT}", "large-1.5b.gguf", "org/similar"]
    assert await chosen("", SORT, **english, labels=["a", "b"]) == ranked
    assert await chosen("", SORT, **chinese, labels=["天", "地"]) == ["large-1.5b.gguf"]
    assert await chosen("", MOOD, "small-0.5b", **english) == [f"org/{MOOD}"]
    with pytest.raises(NoCandidateError, match="tells the sentiment alone"):
        await chosen("是垃圾邮件吗？", MOOD, **chinese)
    with pytest.raises(NoCandidateError, match="less than 1 GB"):
        await chosen("", MOOD, "small-0.5b", **chinese)


def test_a_thread_is_used_for_every_two_cores_that_the_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import xllamacpp

    started: list[Any] = []
    monkeypatch.setattr(xllamacpp, "Server", started.append)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)
    LlamaCpp(tmp_path / "model.gguf", 512, 0)._start()
    assert (started[0].cpuparams.n_threads, this_machine().cores) == (2, 4)


def test_the_memory_of_an_idle_model_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "IDLE_S", 1)
    model = ChatGGUF(path=WEIGHTS, n_ctx=512, max_tokens=5)
    assert model.llama.nbytes == 0
    assert model.invoke(QUESTION).text

    address = model.llama._server.listening_address  # `load` would count as a call

    def sleeps() -> bool:
        headers = {"Authorization": f"Bearer {model.llama.key}"}
        return bool(httpx.get(f"{address}/props", headers=headers).json()["is_sleeping"])

    wait_until(sleeps)
    assert model.llama.nbytes == 0


async def test_what_cannot_be_answered_is_refused(model: ChatGGUF, tmp_path: Path) -> None:
    short = ChatGGUF(path=WEIGHTS, n_ctx=256)
    client = LLMClient(short, Settings())
    with pytest.raises(LLMError, match="too long for SmolLM2"):
        await client.ainvoke("word " * 1000)
    with pytest.raises(UnsupportedError, match="calls no tools"):
        model.bind_tools([{"name": "add", "description": "adds", "parameters": {}}])
    (tmp_path / "broken.gguf").write_bytes(b"no model")
    broken = ChatGGUF(path=tmp_path / "broken.gguf")
    with pytest.raises(ExpertError, match=r"cannot load .*broken\.gguf"):
        broken.invoke(QUESTION)
    with pytest.raises(LLMError, match=r"cannot load .*broken\.gguf"):
        await LLMClient(broken, Settings()).ainvoke(QUESTION)


async def test_a_long_prompt_is_no_silence_and_ends_with_its_reader(model: ChatGGUF) -> None:
    async def signs_of_progress(prompt: str) -> int:
        return len([chunk async for chunk in model.astream(prompt, max_tokens=1) if not chunk.text])

    short, long = "A fox.", "The quick brown fox jumps over the lazy dog. " * 30
    assert await signs_of_progress(long) > await signs_of_progress(short)
    stream = model.astream("Write a poem.", max_tokens=1500, extra_body={"ignore_eos": True})
    while not (await anext(stream)).text:
        pass
    await stream.aclose()  # type: ignore[attr-defined]
    headers = {"Authorization": f"Bearer {model.llama.key}"}
    slot: dict[str, Any] = {"is_processing": True}
    async with httpx.AsyncClient(headers=headers) as client:
        while slot["is_processing"]:
            last, [slot] = slot, (await client.get(f"{model.llama.load()}/slots")).json()
    assert last.get("next_token", [{"n_decoded": 1}])[0]["n_decoded"] < 1000


def test_no_other_process_can_use_the_model(model: ChatGGUF) -> None:
    address = model.llama.load()
    assert address.startswith("http://127.0.0.1:")
    assert httpx.post(f"{address}/v1/chat/completions", json={"messages": []}).status_code == 401


def test_requests_to_this_machine_pass_by_the_proxy(model: ChatGGUF, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "OPENAI_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert ChatGGUF(path=WEIGHTS, max_tokens=2).invoke(QUESTION).text


def test_the_agent_takes_it_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"gguf:{WEIGHTS}"
    settings = Settings(model=name, base_url="http://h:1/v1", context_window=2048, device="cpu")
    for given in (None, name):
        resolved = resolve_model(given, settings)
        assert isinstance(resolved, ChatGGUF)
        assert (resolved.temperature, resolved.n_ctx, resolved.n_gpu_layers) == (0.0, 2048, 0)
    assert describe_model(resolved) == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert is_small(resolved)
    assert length_options(resolved, 2048) == {"max_tokens": 1024}
    assert schema_options(resolved, "plan", {"type": "object"})
    with JarvisAgent(model=name) as agent:
        assert isinstance(agent.model, BaseChatModel)
        assert agent.model.invoke([HumanMessage(QUESTION)], max_tokens=2).text
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    monkeypatch.setattr(llama_cpp, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"SmolLM2.*\[llm\]"):
        resolve_model(name, Settings())


@pytest.mark.usefixtures("hub_cache")
def test_a_file_of_the_hub_is_downloaded_once_and_only_if_allowed() -> None:
    name = f"{REPO}:{FILE}"
    with HubDouble() as hub, hub.redirected():
        hub.add_model(REPO, files={FILE: b"weights"})
        for settings, message in (
            ({"offline": True}, "JARVIS_OFFLINE"),
            ({"offline": False, "max_download": 3}, "JARVIS_MAX_DOWNLOAD.*jarvis setup --model"),
        ):
            with pytest.raises(ConfigError, match=message):
                gguf_path(name, Settings(**settings))
        with pytest.raises(ConfigError, match="cannot be downloaded"):
            gguf_path(f"{REPO}:other.gguf", Settings(offline=False))
        path = gguf_path(name, Settings(offline=False))
        assert path.read_bytes() == b"weights"
    assert gguf_path(name, Settings(offline=True)) == path
    with pytest.raises(ConfigError, match="there is no file"):
        gguf_path("nowhere.gguf", Settings())
