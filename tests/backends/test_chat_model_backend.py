"""Chat models as experts: on a server, which is a double that speaks OpenAI's API, and the agent's own."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from doubles.openai_server import HANG, Failure, OpenAIDouble
from langchain_core.messages import AIMessageChunk
from PIL import Image

from jarvis_agent import JarvisAgent, Plan, RegisteredSource, Settings, Task, hf_tools
from jarvis_agent.backends.base import Backend, Call, split_text
from jarvis_agent.backends.chat_model import PROMPTS, ChatModelBackend
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import LLMError, UnsupportedError, policy_for
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.llm import chat_model
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.llm.tokens import count_tokens
from jarvis_agent.testing import ScriptedLLM

SETTINGS = Settings(offline=False, task_timeout=25)


def candidate(task: str, base_url: str, **metadata: Any) -> Candidate:
    return Candidate(
        id="qwen3:8b",
        task=task,
        backend="chat-model",
        local=True,
        metadata={"base_url": base_url, **metadata},
    )


async def ask_model(model: Candidate, settings: Settings = SETTINGS, **inputs: Any) -> Any:
    call = Call(TASKS[model.task], model, inputs, Path, settings)
    return adapt(call.spec, await ChatModelBackend(settings, ModelPool(1)).run(call), call)[0]


async def ask(server: OpenAIDouble, task: str, **inputs: Any) -> Any:
    return await ask_model(candidate(task, server.base_url), **inputs)


@pytest.fixture
def image(tmp_path: Path) -> Resource:
    path = tmp_path / "cat.png"
    Image.new("RGB", (2, 2), "red").save(path)
    return Resource(kind="image", path=path, mime="image/png")


async def test_each_text_task_has_its_prompt(subtests: pytest.Subtests) -> None:
    languages = {"text": "Es.", "src_lang": "de", "tgt_lang": "en"}
    asked = {"text": "What?", "context": "It was it."}
    context = "Context:\nIt was it.\n\nQuestion: What?"
    rows: list[tuple[str, dict[str, Any], str, Any]] = [
        ("text-generation", {"text": "Say it."}, "Say it.", {"generated_text": "It."}),
        ("summarization", {"text": "Long."}, "Summarize", {"summary_text": "It."}),
        ("translation", languages, "from German into English", {"translation_text": "It."}),
        ("question-answering", asked, context, [{"answer": "It.", "score": None}]),
    ]
    with OpenAIDouble({"": "<think>hm</think>\nIt."}) as server:
        for task, inputs, prompt, output in rows:
            with subtests.test(task):
                assert await ask(server, task, **inputs) == output
                request = server.requests[-1]
                assert prompt in request.prompt
                assert request.body["model"] == "qwen3:8b"
                assert "tools" not in request.body


async def test_media_are_content_blocks(image: Resource, tmp_path: Path, subtests: pytest.Subtests) -> None:
    sound = tmp_path / "a.wav"
    sound.write_bytes(b"wav data")
    audio = Resource(kind="audio", path=sound, mime="audio/wav")
    video = Resource(kind="video", path=tmp_path / "a.mp4", mime="video/mp4")
    with OpenAIDouble({"": "a cat"}) as server:
        for task in ("image-to-text", "visual-question-answering", "image-text-to-text"):
            with subtests.test(task):
                await ask(server, task, text="What is it?", image=image)
                text, picture = server.requests[-1].body["messages"][0]["content"]
                assert (text["type"], picture["type"]) == ("text", "image_url")
                assert "What is it?" in text["text"]
                assert picture["image_url"]["url"].startswith("data:image/png;base64,")
        await ask(server, "audio-text-to-text", text="What is it?", audio=audio)
        assert server.requests[-1].body["messages"][0]["content"][1]["input_audio"]["format"] == "wav"
        with pytest.raises(UnsupportedError, match="cannot contain video/mp4"):
            await ask(server, "any-to-any", text="What is it?", video=video)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Failure(429), "has had too many requests"),
        (("<think>and nothing more",), "empty reply"),
        ((HANG,), "was silent for too long"),
    ],
)
async def test_each_failure_leads_to_the_next_candidate(
    reply: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_model, "_RETRIES", 0)
    settings = SETTINGS.model_copy(update={"llm_timeout": 0.3}) if reply == (HANG,) else SETTINGS
    with OpenAIDouble({"": reply}) as server:
        model = candidate("text-generation", server.base_url)
        with pytest.raises(LLMError, match=re.escape(message)) as caught:
            await ask_model(model, settings, text="hi")
    assert policy_for(caught.value).fallback == "all"


async def test_the_key_and_the_options_are_those_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "mine")
    monkeypatch.setenv("OPENAI_API_KEY", "of another server")
    monkeypatch.setenv("OPENAI_ORG_ID", "of another server")
    with OpenAIDouble({"": ["one", "two"]}) as server:
        for metadata in ({"api_key_env": "MY_KEY"}, {"options": {"temperature": 0.5}}):
            await ask_model(candidate("text-generation", server.base_url, **metadata), text="hi")
    assert [request.key for request in server.requests] == ["mine", "none"]
    assert (server.requests[1].body["temperature"], server.requests[1].body["seed"]) == (0.5, 0)


def test_why_a_model_is_not_supported() -> None:
    here = candidate("text-generation", "http://localhost:1/v1")
    away = here.model_copy(update={"local": False})
    bare = here.model_copy(update={"metadata": {}})
    keyed = candidate("x", "http://a", api_key_env="NO_KEY")
    rows: list[tuple[Settings, Candidate, str, str | None]] = [
        (Settings(offline=False), away, "text-generation", None),
        (Settings(offline=True), away, "text-generation", "offline mode is on"),
        (Settings(offline=True), here, "text-generation", None),
        (Settings(), here, "depth-estimation", "does not do depth-estimation"),
        (Settings(), bare, "text-generation", "neither the base_url"),
        (Settings(), keyed, "text-generation", "variable NO_KEY"),
    ]
    for settings, model, task, part in rows:
        reason = ChatModelBackend(settings, ModelPool(1)).unsupported_reason(TASKS[task], model)
        assert reason is None if part is None else part in str(reason)
    assert set(PROMPTS) <= set(TASKS)
    assert isinstance(ChatModelBackend(SETTINGS, ModelPool(1)), Backend)


def test_a_model_on_a_server_of_this_machine_is_an_expert_even_offline(tmp_path: Path) -> None:
    settings = Settings(output_dir=tmp_path, offline=True, policy="local-only")
    with OpenAIDouble({"": "Bonjour."}) as server:
        mine = RegisteredSource({"id": "qwen3:8b", "tasks": ["translation"], "base_url": server.base_url})
        tool: Any
        [tool] = hf_tools(tasks=["translation"], sources=[mine], settings=settings)
        args = {"text": "Hello.", "tgt_lang": "fr"}
        with tool:
            message = tool.invoke({"type": "tool_call", "id": "1", "name": "translation", "args": args})
    assert message.status == "success", message.content
    assert message.artifact["output"] == {"translation_text": "Bonjour."}
    assert message.artifact["attempts"][0]["backend"] == "chat-model"
    assert json.dumps(message.artifact)


def test_a_summary_has_the_length_that_the_plan_names(tmp_path: Path) -> None:
    asked = {"Short": {"length": "one sentence"}, "Sum up": {}}
    settings = Settings(offline=True, output_dir=tmp_path)
    with OpenAIDouble({"": "Short."}) as server:
        mine = RegisteredSource({"id": "qwen3:8b", "task": "summarization", "base_url": server.base_url})
        with JarvisAgent(
            planner=lambda request: Plan(
                tasks=[Task(task="summarization", id=0, args={"text": "Long.", **asked[request["input"]]})]
            ),
            responder=lambda _: "",
            sources=[mine],
            settings=settings,
        ) as agent:
            for request, length in zip(asked, ("one sentence", "a few sentences"), strict=True):
                assert agent.invoke(request).results[0].output == {"summary_text": "Short."}
                assert f"Length: {length}." in server.requests[-1].prompt


def own_call(llm: ScriptedLLM, task: str, purpose: str = "", **inputs: Any) -> Call:
    """A call of the agent's own model, whose window is small."""
    settings = Settings(context_window=1024)
    model = Candidate(id=llm.model_name, task=task, backend="chat-model")
    return Call(TASKS[task], model, inputs, Path, settings, purpose=purpose)


async def run_own(llm: ScriptedLLM, call: Call) -> Any:
    backend = ChatModelBackend(call.settings, ModelPool(1))
    backend.own = LLMClient(llm, call.settings)
    assert backend.unsupported_reason(call.spec, call.candidate) is None
    return adapt(call.spec, await backend.run(call), call)[0]


LABELS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("zero-shot-classification", {"labels": ["Sport", "news"]}, '{"label": "sport"}', "Sport", "Sport, news"),
    ("text-classification", {}, '{"label": "neutral"}', "neutral", "positive, negative, neutral"),
    ("text-classification", {"purpose": "spam or not"}, '{"label": "Spam"}', "Spam", "spam or not"),
]


@pytest.mark.parametrize(("task", "given", "reply", "label", "shown"), LABELS)
async def test_a_text_gets_one_label_and_no_score(
    task: str, given: dict[str, Any], reply: str, label: str, shown: str
) -> None:
    llm = ScriptedLLM({"expert": reply})
    call = own_call(llm, task, text="It is fine.", **given)
    assert await run_own(llm, call) == [{"label": label, "score": None}]
    assert shown in llm.calls[0].prompt
    assert not call.notes


async def test_a_label_that_was_not_given_is_refused() -> None:
    llm = ScriptedLLM({"expert": '{"label": "weather"}'})
    with pytest.raises(UnsupportedError, match="chose none of the labels"):
        await run_own(llm, own_call(llm, "zero-shot-classification", text="Hi.", labels=["sport", "news"]))


async def test_names_have_their_places_and_those_that_the_text_lacks_are_left_out() -> None:
    named = [("Ada", "PER"), ("Mars", "LOC"), ("Rome", "LOC"), ("Ada", "PER")]
    entities = [{"word": word, "entity_group": group} for word, group in named]
    llm = ScriptedLLM({"expert": json.dumps({"entities": entities})})
    text = "Ada saw Rome, and Ada left."
    found = await run_own(llm, own_call(llm, "token-classification", text=text))
    assert [(row["word"], row["entity_group"], row["start"], row["score"]) for row in found] == [
        ("Ada", "PER", 0, None),
        ("Rome", "LOC", 8, None),
        ("Ada", "PER", 18, None),
    ]
    with pytest.raises(UnsupportedError, match="no list of names"):
        await run_own(
            llm := ScriptedLLM({"expert": "none"}), own_call(llm, "token-classification", text=text)
        )


LONG = "\n\n".join(
    f"Part {part}. " + " ".join(f"Bridge {(part + 1) * number} is old." for number in range(60))
    for part in range(6)
)


async def test_a_long_text_is_summarised_and_translated_in_parts() -> None:
    llm = ScriptedLLM({"expert": lambda messages: f"[{count_tokens(messages[-1].text)}]"})
    assert "summary_text" in await run_own(llm, own_call(llm, "summarization", text=LONG, length="one line"))
    *parts, last = llm.calls
    assert len(parts) > 1
    assert all("one line" not in call.prompt and count_tokens(call.prompt) < 600 for call in parts)
    assert "one line" in last.prompt
    assert "[" in last.prompt
    echo = ScriptedLLM({"expert": lambda messages: messages[-1].text.partition("\n\n")[2]})
    translated = await run_own(echo, own_call(echo, "translation", text=LONG, tgt_lang="de"))
    assert translated == {"translation_text": LONG}
    assert len(echo.calls) > 2


def test_parts_are_the_whole_text_and_none_is_too_long() -> None:
    for text in (LONG, "好的。" * 900, "x" * 5000, "short"):
        parts = split_text(text, 300, count_tokens)
        assert "".join(parts) == text
        assert max(map(count_tokens, parts)) <= 300


def test_a_text_that_fits_is_whole_however_long_its_tokens_are() -> None:
    assert split_text("a" * 9000, 100, lambda text: len(text) // 100) == ["a" * 9000]


def test_a_text_is_cut_at_punctuation_then_at_spaces_then_anywhere() -> None:
    for text, parts in (
        ("short", ["short"]),
        ("", [""]),
        ("a b, c d e", ["a b, ", "c d e"]),
        ("abc def ghi", ["abc ", "def ", "ghi"]),
        ("abcdefghijklmno", ["abcdef", "ghijkl", "mno"]),
    ):
        assert split_text(text, 6, len) == parts


async def test_of_a_long_context_or_table_the_beginning_is_read_and_that_is_said(tmp_path: Path) -> None:
    llm = ScriptedLLM({"expert": "blue"})
    call = own_call(llm, "question-answering", text="Which colour?", context=LONG)
    assert await run_own(llm, call) == [{"answer": "blue", "score": None}]
    (note,) = call.notes
    assert re.fullmatch(rf"the first [\d,]+ of {len(LONG):,} characters were read", note)
    path = tmp_path / "sales.csv"
    for rows, is_cut in ((3, False), (400, True)):
        path.write_text("city,sales\n" + "".join(f'"Oslo, N",{number}\n' for number in range(rows)))
        table = Resource(kind="table", path=path, mime="text/csv")
        call = own_call(llm, "table-question-answering", text="How many?", table=table)
        output = await run_own(llm, call)
        assert (output["answer"], output["aggregator"]) == ("blue", "NONE")
        assert 'city,sales\n"Oslo, N",0\n' in llm.calls[-1].prompt
        assert bool(call.notes) == is_cut
        if is_cut:
            assert re.fullmatch(r"the first \d+ of 400 rows were read", call.notes[0])
            assert call.notes[0].removesuffix(" were read") in llm.calls[-1].prompt


async def test_a_reply_that_was_cut_is_noted() -> None:
    cut = AIMessageChunk(content="", response_metadata={"finish_reason": "length"})
    llm = ScriptedLLM({"expert": ("Once upon", cut)})
    call = own_call(llm, "text-generation", text="Tell a story")
    await run_own(llm, call)
    assert call.notes == ["the text was cut at the longest reply of the model"]


async def test_pictures_that_servers_do_not_take_are_sent_as_png(tmp_path: Path) -> None:
    path = tmp_path / "scan.tiff"
    Image.new("RGB", (4, 4)).save(path)
    llm = ScriptedLLM({"expert": "A square."})
    image = Resource(kind="image", path=path, mime="image/tiff")
    call = own_call(llm, "image-to-text", image=image, text="read")
    assert await run_own(llm, call) == {"generated_text": "A square."}
    content: Any = llm.calls[0].messages[0].content
    text, block = content
    assert text["text"].startswith("Write down the text in the image")
    assert (block["mime_type"], block["base64"][:6]) == ("image/png", "iVBORw")
