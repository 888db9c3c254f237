"""Models on a server of the user's own, against a double that speaks OpenAI's API."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from doubles.openai_server import DROP, HANG, REFUSE, Failure, OpenAIDouble, ToolUse

from jarvis_agent import JarvisAgent, Plan, RegisteredSource, Settings, Task, hf_tools
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.hosted.openai_compatible import PROMPTS, OpenAIBackend
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import RateLimitedError, TransientError, UnsupportedError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource

SETTINGS = Settings(offline=False, task_timeout=25, retries=0)


def candidate(task: str, base_url: str, **metadata: Any) -> Candidate:
    return Candidate(
        id="qwen3:8b", task=task, backend="openai", local=True, metadata={"base_url": base_url, **metadata}
    )


async def ask_model(model: Candidate, settings: Settings = SETTINGS, **inputs: Any) -> Any:
    call = Call(TASKS[model.task], model, inputs, Path, settings)
    return adapt(call.spec, await OpenAIBackend(settings).run(call), call)[0]


async def ask(server: OpenAIDouble, task: str, **inputs: Any) -> Any:
    return await ask_model(candidate(task, server.base_url), **inputs)


@pytest.fixture
def image(tmp_path: Path) -> Resource:
    path = tmp_path / "cat.png"
    path.write_bytes(b"png data")
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


async def test_media_are_sent_as_content_blocks(
    image: Resource, tmp_path: Path, subtests: pytest.Subtests
) -> None:
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


FAILURES: list[tuple[Any, type[Exception], str]] = [
    (Failure(429, retry_after=7), RateLimitedError, "answered 429"),
    (Failure(503), TransientError, "answered 503"),
    (Failure(500), TransientError, "answered 500"),
    (Failure(401), UnsupportedError, "set api_key_env to the key's variable"),
    (Failure(404), UnsupportedError, "has no model qwen3:8b (404)"),
    (Failure(400), UnsupportedError, "answered 400"),
    ((DROP,), TransientError, "cannot be reached: Connection error; check that it runs"),
    ((REFUSE,), UnsupportedError, "I cannot help with that"),
    (("<think>and nothing more",), UnsupportedError, "answered nothing"),
    ((ToolUse("rm", {"path": "/"}),), UnsupportedError, "answered nothing"),
    ((HANG,), TransientError, "did not answer within"),
]


@pytest.mark.parametrize(("reply", "kind", "message"), FAILURES)
async def test_each_failure_becomes_an_error_of_the_matching_kind(
    reply: Any, kind: type[Exception], message: str
) -> None:
    settings = Settings(task_timeout=0.375) if reply == (HANG,) else SETTINGS
    with OpenAIDouble({"": reply}) as server, pytest.raises(kind, match=re.escape(message)) as caught:
        await ask(server, "text-generation", settings=settings, text="hi")
    assert type(caught.value) is kind
    if isinstance(caught.value, RateLimitedError):
        assert caught.value.retry_after == 7.0


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
        (Settings(), here, "depth-estimation", "no chat prompt for depth-estimation"),
        (Settings(), bare, "text-generation", "no base_url"),
        (Settings(), keyed, "text-generation", "variable NO_KEY"),
    ]
    for settings, model, task, part in rows:
        reason = OpenAIBackend(settings).unsupported_reason(TASKS[task], model)
        assert reason is None if part is None else part in str(reason)
    assert set(PROMPTS) <= set(TASKS)
    assert isinstance(OpenAIBackend(SETTINGS), Backend)


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
    assert message.artifact["attempts"][0]["backend"] == "openai"
    assert json.dumps(message.artifact)


def test_a_summary_has_the_length_that_the_request_names(tmp_path: Path) -> None:
    plan = Plan(tasks=[Task(task="summarization", id=0, args={"text": "A long text."})])
    settings = Settings(offline=True, output_dir=tmp_path, selection_file="off")
    with OpenAIDouble({"": "Short."}) as server:
        mine = RegisteredSource({"id": "qwen3:8b", "task": "summarization", "base_url": server.base_url})
        with JarvisAgent(
            planner=lambda _: plan, responder=lambda _: "", sources=[mine], settings=settings
        ) as agent:
            for request, length in (
                ("Sum up in one sentence", "in one sentence"),
                ("Sum up", "a few sentences"),
            ):
                assert agent.invoke(request).results[0].output == {"summary_text": "Short."}
                assert length in server.requests[-1].prompt
