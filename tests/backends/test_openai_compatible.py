"""Models on a server of the user's own, against a double that speaks OpenAI's API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from doubles.openai_server import DROP, HANG, REFUSE, Failure, OpenAIDouble, ToolUse

from jarvis_agent import RegisteredSource, Settings, hf_tools
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.hosted.openai_compatible import PROMPTS, OpenAIBackend
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import RateLimitedError, TransientError, UnsupportedError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource

SETTINGS = Settings(offline=False, task_timeout=25, retries=0)
GENERATION = TASKS["text-generation"]


def candidate(task: str, base_url: str, **metadata: Any) -> Candidate:
    return Candidate(
        id="qwen3:8b", task=task, backend="openai", local=True, metadata={"base_url": base_url, **metadata}
    )


async def ask(server: OpenAIDouble, task: str, settings: Settings = SETTINGS, **inputs: Any) -> Any:
    call = Call(TASKS[task], candidate(task, server.base_url), inputs, Path, settings)
    return adapt(call.spec, await OpenAIBackend(settings).run(call), call)[0]


@pytest.fixture
def image(tmp_path: Path) -> Resource:
    path = tmp_path / "cat.png"
    path.write_bytes(b"png of sorts")
    return Resource(kind="image", path=path, mime="image/png")


@pytest.mark.parametrize(
    ("task", "inputs", "told", "output"),
    [
        ("text-generation", {"text": "Say it."}, "Say it.", {"generated_text": "It."}),
        ("summarization", {"text": "Long."}, "Summarize", {"summary_text": "It."}),
        (
            "translation",
            {"text": "Es.", "src_lang": "de", "tgt_lang": "en"},
            "from German into English",
            {"translation_text": "It."},
        ),
        (
            "question-answering",
            {"text": "What?", "context": "It was it."},
            "Context:\nIt was it.\n\nQuestion: What?",
            [{"answer": "It.", "score": None}],
        ),
    ],
)
async def test_a_text_task_is_told_in_words(
    task: str, inputs: dict[str, Any], told: str, output: Any
) -> None:
    with OpenAIDouble({"": "<think>hm</think>\nIt."}) as server:
        assert await ask(server, task, **inputs) == output
    [request] = server.requests
    assert told in request.prompt
    assert request.body["model"] == "qwen3:8b"
    assert "tools" not in request.body


@pytest.mark.parametrize("task", ["image-to-text", "visual-question-answering", "image-text-to-text"])
async def test_an_image_is_sent_with_the_words(task: str, image: Resource) -> None:
    with OpenAIDouble({"": "a cat"}) as server:
        await ask(server, task, text="What is it?", image=image)
    [message] = server.requests[0].body["messages"]
    assert [part["type"] for part in message["content"]] == ["text", "image_url"]
    assert message["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")


async def test_a_recording_is_sent_with_the_words(tmp_path: Path) -> None:
    sound = tmp_path / "a.wav"
    sound.write_bytes(b"wav of sorts")
    audio = Resource(kind="audio", path=sound, mime="audio/wav")
    with OpenAIDouble({"": "a bell"}) as server:
        await ask(server, "audio-text-to-text", text="What is it?", audio=audio)
    [message] = server.requests[0].body["messages"]
    assert message["content"][1]["input_audio"]["format"] == "wav"


async def test_what_can_not_be_put_into_a_message_is_told(tmp_path: Path) -> None:
    video = Resource(kind="video", path=tmp_path / "a.mp4", mime="video/mp4")
    with OpenAIDouble({}) as server, pytest.raises(UnsupportedError, match="cannot contain video/mp4"):
        await ask(server, "any-to-any", text="What is it?", video=video)


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        (Failure(429, retry_after=7), RateLimitedError, "answered 429"),
        (Failure(503), TransientError, "answered 503"),
        (Failure(500), TransientError, "answered 500"),
        (Failure(401), UnsupportedError, "set api_key_env to the key's variable"),
        (Failure(404), UnsupportedError, "has no model qwen3:8b (404)"),
        (Failure(400), UnsupportedError, "answered 400"),
        (DROP, TransientError, "cannot be reached: Connection error; check that it runs"),
        (REFUSE, UnsupportedError, "I can not help with that"),
        ("<think>and nothing more", UnsupportedError, "answered nothing"),
        (ToolUse("rm", {"path": "/"}), UnsupportedError, "answered nothing"),
    ],
)
async def test_what_goes_wrong_is_what_the_ladder_understands(
    reply: Any, kind: type[Exception], told: str
) -> None:
    with (
        OpenAIDouble({"": reply if isinstance(reply, Failure) else (reply,)}) as server,
        pytest.raises(kind) as caught,
    ):
        await ask(server, "text-generation", text="hi")
    assert type(caught.value) is kind
    assert told in str(caught.value)
    if isinstance(caught.value, RateLimitedError):
        assert caught.value.retry_after == 7.0


async def test_a_server_that_falls_silent_is_left() -> None:
    with OpenAIDouble({"": (HANG,)}) as server, pytest.raises(TransientError, match="did not answer within"):
        await ask(server, "text-generation", Settings(task_timeout=0.375), text="hi")


async def test_a_server_that_is_not_there_is_told() -> None:
    with OpenAIDouble({}) as server:
        gone = candidate("text-generation", server.base_url)
    call = Call(GENERATION, gone, {"text": "hi"}, Path, SETTINGS)
    with pytest.raises(TransientError, match="check that it runs"):
        await OpenAIBackend(SETTINGS).run(call)


async def test_the_key_is_that_of_the_variable_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "mine")
    monkeypatch.setenv("OPENAI_API_KEY", "of another server")
    monkeypatch.setenv("OPENAI_ORG_ID", "of another server")
    with OpenAIDouble({"": ["one", "two"]}) as server:
        for metadata in ({"api_key_env": "MY_KEY"}, {}):
            model = candidate("text-generation", server.base_url, **metadata)
            await OpenAIBackend(SETTINGS).run(Call(GENERATION, model, {"text": "hi"}, Path, SETTINGS))
    assert [request.key for request in server.requests] == ["mine", "none"]


async def test_the_models_own_options_are_sent() -> None:
    with OpenAIDouble({"": "It."}) as server:
        model = candidate("text-generation", server.base_url, options={"temperature": 0.5})
        await OpenAIBackend(SETTINGS).run(Call(GENERATION, model, {"text": "hi"}, Path, SETTINGS))
    assert (server.requests[0].body["temperature"], server.requests[0].body["seed"]) == (0.5, 0)


HERE = candidate("text-generation", "http://localhost:1/v1")
AWAY = HERE.model_copy(update={"local": False})


@pytest.mark.parametrize(
    ("settings", "model", "task", "reason"),
    [
        (Settings(offline=False), AWAY, "text-generation", None),
        (Settings(offline=True), AWAY, "text-generation", "offline mode is on"),
        (Settings(offline=True), HERE, "text-generation", None),
        (Settings(), HERE, "depth-estimation", "no chat prompt for depth-estimation"),
        (Settings(), HERE.model_copy(update={"metadata": {}}), "text-generation", "no base_url"),
        (Settings(), candidate("x", "http://a", api_key_env="NO_KEY"), "text-generation", "variable NO_KEY"),
    ],
)
def test_why_a_model_can_not_be_asked(
    settings: Settings, model: Candidate, task: str, reason: str | None
) -> None:
    told = OpenAIBackend(settings).unsupported_reason(TASKS[task], model)
    assert told is None if reason is None else reason in (told or "")


def test_every_order_is_for_a_task_that_exists() -> None:
    assert set(PROMPTS) <= set(TASKS)
    assert isinstance(OpenAIBackend(SETTINGS), Backend)


def test_a_model_on_a_server_of_this_machine_is_an_expert_even_offline(tmp_path: Path) -> None:
    settings = Settings(output_dir=tmp_path, offline=True, policy="local-only")
    with OpenAIDouble({"": "Bonjour."}) as server:
        mine = RegisteredSource({"id": "qwen3:8b", "tasks": ["translation"], "base_url": server.base_url})
        [tool] = hf_tools(tasks=["translation"], sources=[mine], settings=settings)
        args = {"text": "Hello.", "tgt_lang": "fr"}
        with tool:
            message = tool.invoke({"type": "tool_call", "id": "1", "name": "translation", "args": args})
    assert message.status == "success", message.content
    assert message.artifact["output"] == {"translation_text": "Bonjour."}
    assert message.artifact["attempts"][0]["backend"] == "openai"
    assert json.dumps(message.artifact)
