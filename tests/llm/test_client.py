"""LLMClient: streaming, time limits, errors, schemas, thinking; UsageMeter: what calls may still spend."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from doubles.openai_server import DROP, GARBAGE, HANG, REFUSE, Failure, OpenAIDouble, ToolUse
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult
from langchain_core.prompts import ChatPromptTemplate

from jarvis_agent.core.errors import BudgetError, LLMError
from jarvis_agent.core.settings import Budget, Settings
from jarvis_agent.core.types import Usage
from jarvis_agent.llm.chat_model import resolve_model, schema_options, transport_options
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.llm.replies import ThinkingFilter
from jarvis_agent.llm.tokens import DEFAULT_WINDOW, count_tokens
from jarvis_agent.llm.usage import STAGE_KEY, UsageMeter
from jarvis_agent.testing import ScriptedLLM

ASK = "hello there"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


def scripted(replies: Any, **settings: Any) -> LLMClient:
    return LLMClient(ScriptedLLM(replies), Settings(**settings))


def served(server: OpenAIDouble, **settings: Any) -> LLMClient:
    chosen = Settings(base_url=server.base_url, **settings)
    model = resolve_model(None, chosen)
    assert model is not None
    return LLMClient(model, chosen)


async def text_of(client: Any, config: Any = None, **kwargs: Any) -> str:
    return str((await client.ainvoke(ASK, config, **kwargs)).text)


class TestReplies:
    async def test_a_reply_streams_and_is_counted_once_under_its_stage(self) -> None:
        meter = UsageMeter()
        client = scripted("one two three four").for_stage("plan")
        chunks = [chunk.text async for chunk in client.astream(ASK, {"callbacks": [meter]})]
        assert "".join(chunks) == "one two three four"
        assert len([chunk for chunk in chunks if chunk]) > 1
        assert meter.usage == {"plan": Usage(calls=1, input_tokens=2, output_tokens=4)}

    async def test_a_meter_measures_blocks_that_run_at_the_same_time(self) -> None:
        meter, client = UsageMeter(), scripted("one")

        async def block(*stages: str) -> dict[str, int]:
            with meter.measure() as part:
                replies = (text_of(client.for_stage(stage), {"callbacks": [meter]}) for stage in stages)
                await asyncio.gather(*replies)
            return {stage: usage.calls for stage, usage in part.usage.items()}

        blocks = await asyncio.gather(block("select", "select"), block("select", "repair"))
        assert [*blocks] == [{"select": 2}, {"select": 1, "repair": 1}]
        assert meter.total.calls == 4

    async def test_calls_at_the_same_time_share_a_budget(self) -> None:
        budget, client = Budget(tokens=2 * count_tokens(ASK) - 1), scripted("one").for_stage("select")
        meter = UsageMeter(budget)
        calls = (text_of(client, {"callbacks": [meter]}) for _ in range(2))
        replies = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(reply) for reply in replies} == {str, BudgetError}

    def test_it_works_in_a_sync_chain(self) -> None:
        chain = ChatPromptTemplate.from_template("{x}") | scripted("one two three") | StrOutputParser()
        assert chain.invoke({"x": "?"}) == "one two three"
        assert "".join(chain.stream({"x": "?"})) == "one two three"
        assert chain.batch([{"x": "1"}, {"x": "2"}]) == ["one two three"] * 2

    async def test_reasoning_blocks_are_removed(self) -> None:
        blocks = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "[]"}]
        assert await text_of(LLMClient(_Blocks(replies="", blocks=blocks), Settings())) == "[]"
        assert await text_of(scripted("<think>[1, 2]</think>\n\n[]")) == "[]"

    async def test_an_empty_reply_is_an_error(self) -> None:
        for reply in ("", "   ", "<think>never closed"):
            with pytest.raises(LLMError, match="scripted returned an empty reply"):
                await text_of(scripted(reply))

    @pytest.mark.usefixtures("loop_time")
    async def test_silence_is_limited_but_not_the_whole_time(self) -> None:
        with pytest.raises(LLMError, match=r"silent for too long \(100 s\).*JARVIS_LLM_TIMEOUT"):
            await text_of(scripted((200.0, "late"), llm_timeout=100))
        pauses = tuple(part for word in "abcdefgh" for part in (60.0, word))
        assert await text_of(scripted(pauses, llm_timeout=100)) == "abcdefgh"

    async def test_text_before_a_failure_is_delivered_and_the_call_counted(self) -> None:
        stream: Any = scripted(("first", 30.0, "never")).astream(ASK)
        assert (await anext(stream)).text == "first"
        await stream.aclose()
        meter = UsageMeter()
        client = scripted(("some text", ConnectionError("gone"))).for_stage("plan")
        stream = client.astream(ASK, {"callbacks": [meter]})
        assert str((await anext(stream)).text) + str((await anext(stream)).text) == "some text"
        with pytest.raises(LLMError, match="dropped the connection: gone"):
            await anext(stream)
        assert meter.usage["plan"].calls == 1

    async def test_a_reply_that_never_waits_lets_others_run(self) -> None:
        async def turns() -> None:
            for _ in range(50):
                await asyncio.sleep(0)

        beside = asyncio.create_task(turns())
        assert await text_of(LLMClient(_Ready(replies=""), Settings()))
        assert beside.done()

    async def test_json_before_a_failure_is_delivered(self) -> None:
        reply = ('[{"a": 1}', ', {"b"', ConnectionError("gone"))
        stream = LLMClient(ScriptedLLM([reply], chunk=0), Settings()).astream(ASK, schema=SCHEMA)
        assert [str((await anext(stream)).text) for _ in range(2)] == ['[{"a": 1}', ', {"b"']
        with pytest.raises(LLMError, match="gone"):
            await anext(stream)

    async def test_keys_are_removed_from_messages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
        own = {"api_key": "mine-of-the-server", "hf_token": "token-of-the-hub"}
        keys = ["sk-proj-abcDEF123_456-xyz", "sk-ant-api03-abcDEF123", "sk-proj-********************wxyz"]
        keys += ["hf_abcDEF123456", "gsk_abcDEF123456", "xai-abcDEF123456", "from-the-environment"]
        texts = {f"the key {key} is wrong": "the key (key) is wrong" for key in [*keys, *own.values()]}
        texts["the task-force, risk-free and hf hub"] = "the task-force, risk-free and hf hub"
        for text, shown in texts.items():
            with pytest.raises(LLMError) as caught:
                await text_of(scripted(ValueError(text), **own))
            assert shown in str(caught.value)

    async def test_the_length_of_a_reply_is_limited(self, monkeypatch: Any) -> None:
        monkeypatch.setattr("jarvis_agent.llm.client.MAX_REPLY_CHARS", 1000)
        for start in ("", "<think>"):
            with pytest.raises(LLMError, match="more than 1,000 characters"):
                await text_of(scripted(start + " ".join(map(str, range(400)))))

    async def test_a_reply_that_repeats_a_block_is_stopped(self) -> None:
        step = "Then I looked at the picture once more, and I saw a cat on a sofa. "
        blocks = {"on and ": 1000, step: 50, "".join(step.replace("cat", str(n)) for n in range(20)): 9}
        for block, times in blocks.items():
            for chunk in (1, 8, 0):  # 0: the whole reply in one piece
                llm = ScriptedLLM("It is a cat. " + times * block, chunk=chunk)
                reply = await LLMClient(llm, Settings()).ainvoke(ASK)
                shown = str(reply.text)
                assert shown.startswith("It is a cat. " + 2 * block)
                assert len(shown) < max(400, 4 * len(block)), (block, chunk)
                assert reply.response_metadata["finish_reason"] == "length"
        table = "\n".join(f"| {n} | yes | yes | no | no |" for n in range(100))
        for text in (table, 200 * "-", 3 * step, "ha " * 60, 2 * list(blocks)[-1]):
            assert await text_of(scripted(f"Look: {text} The end.")) == f"Look: {text} The end."
        assert await text_of(scripted("ha " * 60)) == "ha " * 60
        with pytest.raises(LLMError, match=r"empty reply \(finish reason: length"):
            await text_of(scripted("<think>" + 1000 * "on and "))

    async def test_a_reply_without_pauses_can_be_cancelled(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await text_of(scripted(10_000 * "on and "))

    async def test_with_a_cache_an_identical_call_is_not_made_again(self) -> None:
        meter, client = UsageMeter(), scripted("one two three")
        stage = client.for_stage("plan")
        set_llm_cache(InMemoryCache())
        try:
            for _ in range(2):
                assert await text_of(stage, {"callbacks": [meter]}) == "one two three"
        finally:
            set_llm_cache(None)
        assert isinstance(client.model, ScriptedLLM)
        assert len(client.model.calls) == 1
        assert meter.usage == {"plan": Usage(calls=1, cached=1, input_tokens=2, output_tokens=3)}


class _Blocks(ScriptedLLM):
    """Streams one message of content blocks."""

    blocks: list[dict[str, Any]]

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        yield ChatGenerationChunk(message=AIMessageChunk(content=self.blocks))


class _Ready(ScriptedLLM):
    """Streams a hundred numbers, without waiting."""

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        for number in range(100):
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{number} "))


class TestWithServer:
    """A real ChatOpenAI against a server on this machine."""

    async def test_each_failure_says_what_happened_and_what_to_do(self) -> None:
        failures = [
            (Failure(400), "does not take this request"),
            (Failure(401, "no such key"), "refused the key.*no such key.*JARVIS_API_KEY"),
            (Failure(403), "does not allow this"),
            (Failure(404, "no such model"), "was not found there.*JARVIS_MODEL"),
            (Failure(429, retry_after=0.001), "too many requests"),
            (Failure(500, retry_after=0.001), "failed on its side"),
            (("some", DROP), "dropped the connection"),
            ((GARBAGE,), "cannot be read"),
            (("some", REFUSE), "refused"),
            ("", "returned an empty reply"),
            ((ToolUse("rm", {"path": "/"}),), "returned an empty reply"),
            (("some", HANG), "silent for too long"),
        ]
        for reply, message in failures:
            hangs = isinstance(reply, tuple) and HANG in reply
            with OpenAIDouble(reply) as server:
                client = served(server, llm_timeout=0.5 if hangs else 60)
                with pytest.raises(LLMError, match=rf"default at {server.base_url} .*{message}"):
                    await text_of(client, schema=SCHEMA)

    async def test_a_model_with_bound_options_gets_those_of_the_client_too(self) -> None:
        with OpenAIDouble("[]") as server:
            chosen = Settings(base_url=server.base_url)
            model: Any = resolve_model(None, chosen)
            client = LLMClient(model.bind(extra_headers={"x-own": "1"}, stop=["."]), chosen)
            assert await text_of(client, schema=SCHEMA) == "[]"
            assert {"response_format", "stop", "max_completion_tokens"} <= server.requests[0].body.keys()
        assert schema_options(client.model.bind(response_format={"type": "text"}), "plan", SCHEMA) == {}
        headers = transport_options(client.model)["extra_headers"]
        assert headers == {"x-own": "1", "Connection": "close"}

    async def test_a_transient_failure_is_retried_and_tokens_are_counted_once(self) -> None:
        busy = [Failure(429, retry_after=0.001), Failure(503, retry_after=0.001)]
        meter = UsageMeter()
        with OpenAIDouble([*busy, "a reply of five words"]) as server:
            client = served(server).for_stage("plan")
            chunks = [str(chunk.text) async for chunk in client.astream(ASK, {"callbacks": [meter]})]
        assert "".join(chunks) == "a reply of five words"
        assert len(chunks) > 2
        assert meter.usage == {"plan": Usage(calls=1, input_tokens=2, output_tokens=5)}

    async def test_a_rejected_schema_is_left_out_from_then_on(self) -> None:
        with OpenAIDouble("[]", rejects=("response_format",)) as server:
            client = served(server)
            for _ in range(2):
                assert await text_of(client, schema=SCHEMA) == "[]"
            assert ["response_format" in request.body for request in server.requests] == [True, False, False]

    async def test_the_tokens_of_a_reply_are_limited_to_half_of_the_context(self) -> None:
        async def sent(server: OpenAIDouble, **model: Any) -> list[int | None]:
            chosen = Settings(base_url=server.base_url, context_window=model.pop("window", 0) or None)
            resolved = resolve_model(None, chosen)
            assert resolved is not None
            client = LLMClient(resolved.model_copy(update=model), chosen)
            server.requests.clear()
            for stage in ("plan", "respond"):
                assert await text_of(client.for_stage(stage, schema=SCHEMA)) == "[]"
            return [request.body.get("max_completion_tokens") for request in server.requests]

        with OpenAIDouble("[]") as server:
            assert await sent(server) == [16_384, 16_384]
            assert await sent(server, window=2000) == [1000, 1000]
            limited = {"max_input_tokens": 128_000, "max_output_tokens": 9000}
            assert await sent(server, profile=limited) == [9000, 9000]
            assert await sent(server, max_tokens=77) == [77, 77]
        with OpenAIDouble("[]", rejects=("max_completion_tokens",)) as server:
            assert await sent(server) == [16_384, None, None]
            assert "response_format" in server.requests[-1].body

    @pytest.mark.parametrize(
        ("answers", "window"),
        [
            ({}, DEFAULT_WINDOW),
            ({"/v1/models": {"data": [{"id": "x"}, {"id": "default", "max_model_len": 9000}]}}, 9000),
            ({"/v1/models": {"data": [{"id": "only", "context_length": 7000}]}}, 7000),
            ({"/v1/models": {"data": [{"id": "x", "max_model_len": 1}, {"id": "y"}]}}, DEFAULT_WINDOW),
            ({"/v1/models": {"data": [{"id": "default", "meta": {"n_ctx": 5000, "n_ctx_train": 1}}]}}, 5000),
            ({"/props": {"default_generation_settings": {"n_ctx": 6000}}}, 6000),
            ({"/v1/models": [7], "/props": "no"}, DEFAULT_WINDOW),
            ({"/v1/models": {"data": 7}, "/props": {"data": True}}, DEFAULT_WINDOW),
        ],
    )
    async def test_the_window_of_a_model_with_an_unknown_name_is_what_its_server_says(
        self, answers: dict[str, Any], window: int
    ) -> None:
        with OpenAIDouble("[]", answers=answers) as server:
            client = served(server)
            assert await client.window() == window
            assert await client.window() == window
            assert len(server.asked) <= 2, "it is asked once"
            assert await served(server, context_window=2048).window() == 2048
        assert await served(server).window() == DEFAULT_WINDOW, "the server is gone"
        known = ScriptedLLM([], profile={"max_input_tokens": 32_000})
        assert await LLMClient(known, Settings()).window() == 32_000

    async def test_a_bad_request_for_another_reason_does_not_disable_schemas(self) -> None:
        with OpenAIDouble([Failure(400), Failure(400), "[]"]) as server:
            client = served(server)
            with pytest.raises(LLMError, match="does not take this request"):
                await text_of(client, schema=SCHEMA)
            assert await text_of(client, schema=SCHEMA) == "[]"
            assert "response_format" in server.requests[-1].body


def test_only_leading_thinking_is_removed_and_chunking_makes_no_difference() -> None:
    replies = {
        "<think>hm</think>\n[1]": "[1]",
        "  <thinking>a <b> c</thinking> x": "x",
        "<thin ice>": "<thin ice>",
        "[<think>]": "[<think>]",
        "<think>never closed": "",
        "<th": "<th",
        "": "",
        "  plain": "plain",
    }
    for text, shown in replies.items():
        for size in (1, 2, 5, 100):
            thinking = ThinkingFilter()
            pieces = [thinking.feed(text[i : i + size]) for i in range(0, len(text), size)]
            assert "".join(pieces) + thinking.finish() == shown, (text, size)


PROMPT = [HumanMessage("word " * 60)]


def test_a_prompt_that_is_on_its_way_counts_for_the_budget_of_the_next() -> None:
    meter, first = UsageMeter(Budget(tokens=100)), uuid4()
    with meter.reserve(first, "plan", "m", PROMPT):
        with pytest.raises(BudgetError, match="tokens=100"), meter.reserve(uuid4(), "plan", "m", PROMPT):
            pass
        meter.on_chat_model_start({}, [PROMPT], run_id=first, metadata={STAGE_KEY: "plan"})
        with pytest.raises(BudgetError, match="tokens=100"), meter.reserve(uuid4(), "plan", "m", PROMPT):
            pass
        meter.on_llm_error(ValueError(), run_id=first)
        with meter.reserve(uuid4(), "plan", "m", PROMPT):
            pass


def test_a_limit_that_is_spent_holds_up_no_call_that_needs_none_of_it() -> None:
    meter = UsageMeter(Budget(tokens=100, hosted_calls=1))
    for _ in range(2):  # those of an earlier process, which had a larger budget
        meter.add("execute", Usage(hosted_calls=1))
    with meter.reserve(uuid4(), "respond", "m", PROMPT):
        pass
    meter.add("plan", Usage(input_tokens=200))
    with pytest.raises(BudgetError, match="hosted_calls=1"):
        meter.reserve_hosted("image-to-text", "m")


def test_what_a_provider_reports_or_a_cache_answers_is_not_priced_again() -> None:
    meter = UsageMeter(price=lambda model, stage, usage: 5.0)
    assert meter.priced("m", "plan", Usage(calls=1)).cost == 5.0
    assert meter.priced("m", "plan", Usage(calls=1, cost=2.0)).cost == 2.0
    assert meter.priced("m", "plan", Usage(cached=1)).cost == 0.0
    assert UsageMeter(price=lambda *_: None).priced("m", "plan", Usage(calls=1)).cost == 0.0


def test_a_call_without_a_stage_is_not_counted() -> None:
    meter, call = UsageMeter(), uuid4()
    meter.on_chat_model_start({}, [PROMPT], run_id=call, metadata={})
    meter.on_llm_end(LLMResult(generations=[[ChatGeneration(message=AIMessage("x"))]]), run_id=call)
    assert meter.usage == {}
