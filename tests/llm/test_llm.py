"""The language model: which one is taken, and what the Controller promises about it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import tiktoken
import tiktoken.registry
from doubles.openai_server import DROP, GARBAGE, HANG, REFUSE, Failure, OpenAIDouble
from langchain.chat_models.base import _BUILTIN_PROVIDERS
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from jarvis_agent.core.errors import ConfigError, LLMError
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.types import Usage
from jarvis_agent.llm.capabilities import options
from jarvis_agent.llm.client import PROVIDERS, LLMClient, ThinkingFilter, describe_model, resolve_model
from jarvis_agent.testing import ScriptedLLM

ASK = [HumanMessage("hello there")]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


def scripted(replies: Any, **settings: Any) -> LLMClient:
    return LLMClient(ScriptedLLM(replies), Settings(**settings))


def served(server: OpenAIDouble, **settings: Any) -> LLMClient:
    chosen = Settings(base_url=server.base_url, **settings)
    model = resolve_model(None, chosen)
    assert model is not None
    return LLMClient(model, chosen)


class TestResolveModel:
    def test_a_chat_model_is_taken_as_it_is(self) -> None:
        llm = ScriptedLLM("hi")
        assert resolve_model(llm, Settings(model="openai:gpt-5-mini")) is llm

    def test_nothing_in_the_environment_means_no_model(self) -> None:
        assert resolve_model(None, Settings()) is None
        assert describe_model(None) == "no language model"

    def test_a_base_url_comes_first_and_never_gets_the_openai_key(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-strangers")
        monkeypatch.setenv("JARVIS_BASE_URL", "http://localhost:11434/v1")
        monkeypatch.setenv("JARVIS_MODEL", "llama3.2:3b")
        llm = resolve_model(None, Settings())
        assert isinstance(llm, ChatOpenAI)
        assert llm.model_name == "llama3.2:3b"
        assert llm.root_async_client.api_key == "none"
        assert describe_model(llm) == "llama3.2:3b at http://localhost:11434/v1"

    def test_a_base_url_without_a_model_asks_for_the_default_one(self) -> None:
        assert (
            describe_model(resolve_model(None, Settings(base_url="http://h:1/v1")))
            == "default at http://h:1/v1"
        )

    def test_a_provider_that_is_asked_for_by_name_is_taken_before_a_base_url(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[str] = []

        def init(name: str) -> ScriptedLLM:
            made.append(name)
            return ScriptedLLM("hi")

        monkeypatch.setattr("langchain.chat_models.init_chat_model", init)
        assert isinstance(
            resolve_model("anthropic:claude-haiku-4-5", Settings(base_url="http://h:1/v1")), ScriptedLLM
        )
        assert made == ["anthropic:claude-haiku-4-5"]

    @pytest.mark.parametrize(
        ("model", "asked"), [("llama3:8b", "llama3:8b"), ("openai:gpt-oss", "gpt-oss"), ("groq", "groq")]
    )
    def test_any_other_name_is_a_model_of_the_base_url(self, model: str, asked: str) -> None:
        settings = Settings(base_url="http://h:1/v1")
        assert describe_model(resolve_model(model, settings)) == f"{asked} at http://h:1/v1"

    def test_in_the_environment_a_base_url_comes_before_a_provider(self) -> None:
        settings = Settings(base_url="http://h:1/v1", model="anthropic:claude-haiku-4-5")
        told = describe_model(resolve_model(None, settings))
        assert told == "anthropic:claude-haiku-4-5 at http://h:1/v1"

    def test_every_provider_in_the_list_is_one_of_langchains(self) -> None:
        assert set(_BUILTIN_PROVIDERS) >= PROVIDERS
        assert "openai" not in PROVIDERS

    def test_the_key_of_a_base_url_is_sent(self) -> None:
        llm = resolve_model("m", Settings(base_url="http://h:1/v1", api_key="mine"))
        assert isinstance(llm, ChatOpenAI)
        assert llm.root_async_client.api_key == "mine"

    def test_an_openai_key_means_openai(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
        monkeypatch.setenv("HF_TOKEN", "hf_mine")
        assert describe_model(resolve_model(None, Settings())) == "gpt-5-mini at https://api.openai.com/v1"

    def test_a_hugging_face_token_means_its_router(self) -> None:
        llm = resolve_model(None, Settings(hf_token="hf_mine", offline=False))
        assert isinstance(llm, ChatOpenAI)
        assert llm.root_async_client.api_key == "hf_mine"
        assert describe_model(llm) == "openai/gpt-oss-120b at https://router.huggingface.co/v1"

    def test_offline_the_router_is_left_alone(self) -> None:
        assert resolve_model(None, Settings(hf_token="hf_mine", offline=True)) is None

    @pytest.mark.parametrize(("name", "temperature"), [("gpt-4o", 0.0), ("gpt-5-mini", None), ("o3", None)])
    def test_temperature_is_zero_where_the_model_lets_one_choose(
        self, name: str, temperature: float | None
    ) -> None:
        llm = resolve_model(f"openai:{name}", Settings(api_key="k"))
        assert isinstance(llm, ChatOpenAI)
        assert llm.temperature == temperature

    def test_a_given_models_temperature_stays(self) -> None:
        llm = ChatOpenAI(model="gpt-4o", api_key="k", temperature=0.7)
        assert resolve_model(llm, Settings()) is llm
        assert llm.temperature == 0.7

    @pytest.mark.parametrize(
        ("settings", "told"),
        [
            ({"model": "nobody:nothing"}, "nobody:nothing"),
            ({"model": "something"}, 'no provider is known for it. A model is named as "provider:model"'),
            ({"model": "anthropc:claude"}, 'did you mean "anthropic"\\?'),
            ({"model": "openai:gpt-5-mini"}, "OPENAI_API_KEY"),
            ({"model": "gpt-5-mini"}, '"openai:gpt-5-mini" needs a key: set OPENAI_API_KEY$'),
            ({"model": "o3"}, '"openai:o3" needs a key: set OPENAI_API_KEY$'),
            ({"base_url": "localhost:8000/v1"}, "http://"),
        ],
    )
    def test_a_model_that_can_not_be_made_is_a_clear_config_error(
        self, settings: dict[str, Any], told: str
    ) -> None:
        with pytest.raises(ConfigError, match=told):
            resolve_model(None, Settings(**settings))

    def test_a_user_name_and_password_in_the_address_are_not_shown(self) -> None:
        llm = resolve_model("m", Settings(base_url="http://me:secret@h:1/v1"))
        assert describe_model(llm) == "m at http://h:1/v1"


class TestController:
    async def test_the_reply_comes_in_pieces_and_is_counted_once(self) -> None:
        brief = RunContext("hi")
        controller = scripted("one two three four")
        pieces = [piece async for piece in controller.stream("plan", ASK, brief)]
        assert "".join(pieces) == "one two three four"
        assert len(pieces) > 1
        assert brief.meter.usage == {"plan": Usage(calls=1, input_tokens=2, output_tokens=4)}

    async def test_calls_of_a_stage_add_up(self) -> None:
        brief = RunContext("hi")
        controller = scripted("a b")
        await controller.complete("select", ASK, brief)
        await controller.complete("select", ASK, brief)
        assert brief.meter.usage == {"select": Usage(calls=2, input_tokens=4, output_tokens=4)}

    async def test_reasoning_blocks_are_left_out(self) -> None:
        blocks = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "[]"}]
        controller = LLMClient(_Blocks(replies="", blocks=blocks), Settings())
        assert await controller.complete("plan", ASK, RunContext("hi")) == "[]"

    async def test_a_leading_think_tag_is_left_out(self) -> None:
        controller = scripted("<think>[1, 2]</think>\n\n[]")
        assert await controller.complete("plan", ASK, RunContext("hi")) == "[]"

    @pytest.mark.parametrize("replies", ["", "   ", "<think>for ever and ever"])
    async def test_an_empty_reply_is_an_error(self, replies: str) -> None:
        with pytest.raises(LLMError, match="scripted answered nothing"):
            await scripted(replies).complete("plan", ASK, RunContext("hi"))

    async def test_silence_is_bounded(self) -> None:
        controller = scripted((30.0, "late"), llm_timeout=0.05)
        with pytest.raises(LLMError, match=r"silent for too long \(0.05 s\).*JARVIS_LLM_TIMEOUT"):
            await controller.complete("plan", ASK, RunContext("hi"))

    async def test_a_slow_reply_that_keeps_coming_is_no_silence(self) -> None:
        pauses = [part for word in "abcdefgh" for part in (0.1, word)]
        controller = scripted(tuple(pauses), llm_timeout=0.7)
        assert await controller.complete("plan", ASK, RunContext("hi")) == "abcdefgh"

    async def test_what_came_before_a_failure_was_given_and_the_call_is_counted(self) -> None:
        brief = RunContext("hi")
        controller = scripted(("some text", ConnectionError("gone")))
        stream = controller.stream("plan", ASK, brief)
        assert await anext(stream) + await anext(stream) == "some text"
        with pytest.raises(LLMError, match="dropped the connection: gone"):
            await anext(stream)
        assert brief.meter.usage["plan"].calls == 1

    async def test_the_runs_callbacks_see_the_call_under_its_stage(self) -> None:
        seen: list[tuple[str, list[str]]] = []

        class Handler(AsyncCallbackHandler):
            async def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
                seen.append((kwargs["name"], kwargs["tags"]))

        brief = RunContext("hi", config={"callbacks": [Handler()], "tags": ["mine"]})
        await scripted("ok").complete("plan", ASK, brief)
        assert seen == [("plan", ["jarvis:plan", "mine"])]

    async def test_leaving_early_ends_the_call(self) -> None:
        controller = scripted(("first", 30.0, "never"))
        brief = RunContext("hi")
        stream = controller.stream("plan", ASK, brief)
        assert await anext(stream) == "first"
        await stream.aclose()
        assert brief.meter.usage["plan"].calls == 1


class _Blocks(ScriptedLLM):
    """Streams one message of content blocks."""

    blocks: list[dict[str, Any]]

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        from langchain_core.messages import AIMessageChunk
        from langchain_core.outputs import ChatGenerationChunk

        yield ChatGenerationChunk(message=AIMessageChunk(content=self.blocks))


class TestOverTheWire:
    """A real ChatOpenAI against a server on this machine."""

    @pytest.mark.parametrize("structured", ["never", "always"])
    async def test_the_reply_streams_and_its_tokens_are_counted_once(self, structured: Any) -> None:
        with OpenAIDouble("a reply of five words") as server:
            brief = RunContext("hi")
            stream = served(server, structured_output=structured).stream("plan", ASK, brief, schema=SCHEMA)
            pieces = [piece async for piece in stream]
        assert "".join(pieces) == "a reply of five words"
        assert len(pieces) > 1
        assert brief.meter.usage == {"plan": Usage(calls=1, input_tokens=2, output_tokens=5)}

    @pytest.mark.parametrize(
        ("reply", "told"),
        [
            (Failure(401, "no such key"), "refused the key.*no such key.*JARVIS_API_KEY"),
            (Failure(403), "does not allow this"),
            (Failure(404, "no such model"), "was not found there.*JARVIS_MODEL"),
            (Failure(429, retry_after=0.001), "too many requests"),
            (Failure(500, retry_after=0.001), "failed on its side"),
            ((DROP,), "dropped the connection"),
            (("some", DROP), "dropped the connection"),
            ((GARBAGE,), "can not be read"),
            ((REFUSE,), "refused"),
            (("some", REFUSE), "refused"),
            ("", "answered nothing"),
            ((HANG,), "silent for too long"),
            (("some", HANG), "silent for too long"),
        ],
    )
    @pytest.mark.parametrize("structured", ["never", "always"])
    async def test_each_failure_says_what_happened_and_what_to_do(
        self, reply: Any, told: str, structured: Any
    ) -> None:
        with OpenAIDouble(reply) as server:
            hangs = isinstance(reply, tuple) and HANG in reply
            controller = served(server, structured_output=structured, llm_timeout=0.5 if hangs else 60)
            with pytest.raises(LLMError, match=rf"default at {server.base_url} .*{told}"):
                await controller.complete("plan", ASK, RunContext("hi"), schema=SCHEMA)

    async def test_a_server_that_is_not_there_is_told(self) -> None:
        with OpenAIDouble("") as server:
            settings = Settings(base_url=server.base_url)
        model = resolve_model(None, settings)
        assert model is not None
        with pytest.raises(LLMError, match="could not be reached"):
            await LLMClient(model, settings).complete("plan", ASK, RunContext("hi"))

    async def test_a_refused_key_is_never_told(self) -> None:
        with OpenAIDouble("", key="right") as server:
            controller = served(server, api_key="wrong-but-secret")
            with pytest.raises(LLMError) as caught:
                await controller.complete("plan", ASK, RunContext("hi"))
        assert "refused the key" in str(caught.value)
        assert "secret" not in str(caught.value)

    async def test_a_passing_failure_is_tried_again(self) -> None:
        with OpenAIDouble([Failure(429, retry_after=0.001), Failure(503, retry_after=0.001), "ok"]) as server:
            assert await served(server).complete("plan", ASK, RunContext("hi")) == "ok"

    @pytest.mark.parametrize("structured", ["always", "auto"])
    async def test_a_server_that_knows_no_schema_is_asked_once_without_and_never_with_it_again(
        self, structured: Any
    ) -> None:
        with OpenAIDouble("[]", rejects=("response_format",)) as server:
            controller = served(server, structured_output=structured)
            assert controller.asks_schema
            for _ in range(2):
                assert await controller.complete("plan", ASK, RunContext("hi"), schema=SCHEMA) == "[]"
                assert not controller.asks_schema
            sent = ["response_format" in request.body for request in server.requests]
        assert sent == [True, False, False]

    async def test_a_bad_request_that_is_not_the_schemas_fault_does_not_end_schemas(self) -> None:
        with OpenAIDouble([Failure(400), Failure(400), "[]"]) as server:
            controller = served(server, structured_output="always")
            with pytest.raises(LLMError, match="does not take this request"):
                await controller.complete("plan", ASK, RunContext("hi"), schema=SCHEMA)
            assert await controller.complete("plan", ASK, RunContext("hi"), schema=SCHEMA) == "[]"
            assert "response_format" in server.requests[-1].body

    def test_one_model_serves_several_event_loops(self) -> None:
        with OpenAIDouble("ok") as server:
            controller = served(server)

            async def ask_twice() -> list[str]:
                return await asyncio.gather(
                    *(controller.complete("plan", ASK, RunContext("hi")) for _ in range(2))
                )

            answers = [asyncio.run(ask_twice()) for _ in range(3)]
        assert answers == [["ok", "ok"]] * 3


class TestOptions:
    def test_auto_asks_for_a_schema_where_the_models_profile_says_so_or_says_nothing(self) -> None:
        able = ChatOpenAI(model="gpt-4o", api_key="k")
        unable = ChatOpenAI(model="gpt-3.5", api_key="k", profile={"structured_output": False})
        unknown = ChatOpenAI(model="some-local-model", api_key="k")
        form = options(able, Settings(), "plan", SCHEMA)["response_format"]
        assert form == {
            "type": "json_schema",
            "json_schema": {"name": "plan", "schema": SCHEMA, "strict": True},
        }
        assert options(unknown, Settings(), "plan", SCHEMA)["response_format"] == form
        assert options(unable, Settings(), "plan", SCHEMA) == {}
        assert options(ScriptedLLM("", profile={"structured_output": True}), Settings(), "plan", SCHEMA) == {}

    def test_the_user_may_always_or_never_ask_for_a_schema(self) -> None:
        able = ChatOpenAI(model="gpt-4o", api_key="k")
        unknown = ChatOpenAI(model="some-local-model", api_key="k")
        assert options(able, Settings(structured_output="never"), "plan", SCHEMA) == {}
        assert "response_format" in options(unknown, Settings(structured_output="always"), "plan", SCHEMA)

    def test_an_open_schema_is_not_strict(self) -> None:
        form = options(ChatOpenAI(model="gpt-4o", api_key="k"), Settings(), "plan", {"type": "object"})
        assert form["response_format"]["json_schema"]["strict"] is False

    def test_the_bias_is_put_on_the_tokens_of_the_words(self, byte_tokens: None) -> None:
        llm = ChatOpenAI(model="gpt-4o", api_key="k")
        asked = options(llm, Settings(logit_bias=0.2), "plan", bias=["ab", "b"])
        assert asked == {"logit_bias": {ord("a"): 0.2, ord("b"): 0.2}}

    def test_without_the_setting_there_is_no_bias(self, byte_tokens: None) -> None:
        assert options(ChatOpenAI(model="gpt-4o", api_key="k"), Settings(), "plan", bias=["ab"]) == {}

    def test_no_bias_where_the_tokens_are_not_known_or_would_be_downloaded(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
        settings = Settings(logit_bias=0.2)
        for llm in (ChatOpenAI(model="gpt-4o", api_key="k"), ChatOpenAI(model="my-own", api_key="k")):
            assert options(llm, settings, "plan", bias=["ab"]) == {}
        assert options(ScriptedLLM(""), settings, "plan", bias=["ab"]) == {}

    async def test_the_bias_reaches_the_server(self, byte_tokens: None) -> None:
        with OpenAIDouble("ok") as server:
            controller = served(server, model="gpt-4o", logit_bias=0.2)
            await controller.complete("plan", ASK, RunContext("hi"), bias=["a"])
            assert server.requests[0].body["logit_bias"] == {"97": 0.2}


@pytest.fixture
def byte_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """gpt-4o's encoding, as if it were cached, with one token a byte."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding(
        "o200k_base", pat_str=r"(?s).", mergeable_ranks=ranks, special_tokens={"<end>": 256}
    )
    monkeypatch.setitem(tiktoken.registry.ENCODINGS, "o200k_base", encoding)


class TestThinkingFilter:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("<think>hm</think>\n[1]", "[1]"),
            ("  <thinking>a <b> c</thinking> x", "x"),
            ("<thin ice>", "<thin ice>"),
            ("[<think>]", "[<think>]"),
            ("<think>never closed", ""),
            ("<th", "<th"),
            ("", ""),
            ("  plain", "  plain"),
        ],
    )
    @pytest.mark.parametrize("size", [1, 2, 5, 100])
    def test_only_leading_thinking_is_taken_away_however_it_is_cut(
        self, text: str, shown: str, size: int
    ) -> None:
        thoughts = ThinkingFilter()
        pieces = [thoughts.feed(text[i : i + size]) for i in range(0, len(text), size)]
        assert "".join(pieces) + thoughts.finish() == shown

    def test_it_holds_no_more_than_the_beginning_of_a_closing_tag(self) -> None:
        thoughts = ThinkingFilter()
        assert not any(thoughts.feed("<think>" if n == 0 else "so, ") for n in range(10_000))
        assert len(thoughts._held) < 100


@pytest.mark.parametrize("thinks", [False, True])
async def test_a_reply_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch, thinks: bool) -> None:
    monkeypatch.setattr("jarvis_agent.llm.client._LONGEST_REPLY", 1000)
    reply = ("<think>" if thinks else "") + 400 * "on and "
    controller = scripted(reply)
    with pytest.raises(LLMError, match="more than 1,000 letters"):
        await controller.complete("plan", ASK, RunContext("hi"))


async def test_a_reply_that_comes_without_a_pause_lets_deadlines_pass() -> None:
    controller = scripted(10_000 * "on and ")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await controller.complete("plan", ASK, RunContext("hi"))
