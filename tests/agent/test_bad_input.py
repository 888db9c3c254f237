"""Bad input: the message says what is wrong and what to do, and what was finished is kept and reported."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from small_agents import CAPTION, DESCRIBE, block, picture, plan, small_agent
from stages import FakeStage, saying

from jarvis_agent import JarvisAgent, Plan, Run, Settings
from jarvis_agent.core.errors import InputError
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

pytestmark = pytest.mark.usefixtures("home")


def look(call: Any) -> str:
    """An expert that really opens the picture."""
    call.inputs["image"].to_pil()
    return CAPTION


def run_of(plan: Any, request: Any = "Describe a.jpg", **options: Any) -> Run:
    """A run whose experts look at their pictures, and whose language model can not write the answer."""
    options.setdefault("experts", {"image-to-text": look})
    agent, _, _ = small_agent(plan, respond=RuntimeError("no line"), **options)
    with agent:
        return agent.invoke(request)


# Files.

TWO = plan(("image-to-text", [], {"image": "bad.jpg"}), ("image-to-text", [], {"image": "a.jpg"}))


def truncated(path: Path) -> None:
    picture(path)
    path.write_bytes(path.read_bytes()[:200])


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "does not exist; check its name"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "text by another name": (
        lambda path: path.write_text("hello"),
        "is a text file, and an image file is needed",
    ),
    "sound by another name": (
        lambda path: path.write_bytes(b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(32)),
        "is an audio file, and an image file is needed",
    ),
    "nothing known": (
        lambda path: path.write_bytes(bytes(range(256)) * 4),
        "is not a supported file type",
    ),
    "a directory": (lambda path: path.mkdir(), "is a directory; name a file in it"),
    "broken": (truncated, "cannot be read as an image"),
}


@pytest.mark.parametrize(("make", "told"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_in_the_words_of_a_request_fails_its_task_and_no_other(make: Any, told: str) -> None:
    make(Path("bad.jpg"))
    run = run_of(TWO, "Describe bad.jpg and a.jpg")
    bad, good = run.results
    assert (bad.status, good.status) == ("failed", "ok")
    assert told in str(bad.error)
    assert "bad.jpg" in str(bad.error)
    assert str(bad.error) in run.answer
    assert CAPTION in run.answer


@pytest.mark.parametrize("case", ["missing", "empty", "nothing known", "a directory"])
def test_a_bad_file_in_files_stops_the_run_before_it_begins(case: str) -> None:
    make, told = BAD_FILES[case]
    make(Path("bad.jpg"))
    with pytest.raises(InputError, match=r"bad\.jpg") as caught:
        run_of(TWO, {"input": "Describe it", "files": ["bad.jpg"]})
    assert told in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named() -> None:
    picture(Path("bad.jpg")).chmod(0)
    assert "bad.jpg cannot be read: Permission denied" in str(run_of(TWO).results[0].error)


def described(content: dict[str, Any], name: str = "input") -> Run:
    """A run on a message with an attachment, whose plan calls it by a name."""
    message = {"role": "user", "content": [{"type": "text", "text": "Describe it"}, content]}
    return run_of(plan(("image-to-text", [], {"image": name})), {"messages": [message]})


def test_a_bad_attachment_is_refused_or_fails_its_task() -> None:
    refused: dict[str, dict[str, Any]] = {
        "not valid base64": {"base64": "%%%", "mime_type": "image/png"},
        "'file-123' has no data; attach its bytes": {"file_id": "file-123"},
        "does not exist": {"url": "ftp://example.org/a.jpg"},
    }
    for told, content in refused.items():
        with pytest.raises(InputError, match=told):
            described({"type": "image", **content})
    run = described({"type": "image", "base64": "aGVsbG8="}, f"input-{sha256(b'hello').hexdigest()[:12]}")
    assert "is a text file, and an image file is needed" in str(run.results[0].error)


# Requests and plans.


def test_an_unusable_request_is_refused_with_an_example() -> None:
    empty: list[Any] = ["", "  \n", {"input": ""}, {"messages": []}, {}]
    malformed: list[Any] = [None, 7, {"text": "Describe a.jpg"}, {"input": ["a", "b"]}, [1, 2]]
    agent, _, _ = small_agent()
    with agent:
        for error in agent.batch(empty, return_exceptions=True):
            assert "the request is empty; write what is to be done" in str(error)
        for error in agent.batch(malformed, return_exceptions=True):
            assert isinstance(error, InputError)
            assert 'a request is a text, or a dict such as {"input"' in str(error)
        with pytest.raises(InputError, match="empty"):
            list(agent.stream("  "))


def test_an_unknown_task_is_written_again_or_left_out_and_the_rest_is_done() -> None:
    written = plan(("make-coffee", [], {"text": "black"}), ("image-to-text", [], {"image": "a.jpg"}))
    llm = ScriptedLLM({"plan": written, "repair": written, "respond": "Done."})
    source = FakeSource([fake_candidate("image-to-text")])
    with JarvisAgent(llm, sources=[source], backends=[FakeBackend({"image-to-text": CAPTION})]) as agent:
        run = agent.invoke("Make coffee and describe a.jpg")
    assert [result.task.task for result in run.results] == ["image-to-text"]
    assert run.ok
    assert llm.stages() == ["plan", "repair", "respond"]
    assert 'make-coffee\\" is not an available task' in llm.calls[1].prompt
    assert any("make-coffee" in note and "left out" in note for note in run.plan.notes)


def test_a_mended_task_is_done() -> None:
    llm = ScriptedLLM(
        {
            "plan": DESCRIBE.replace("image-to-text", "look-at-it"),
            "repair": DESCRIBE,
            "respond": "Done.",
        }
    )
    source = FakeSource([fake_candidate("image-to-text")])
    with JarvisAgent(llm, sources=[source], backends=[FakeBackend({"image-to-text": CAPTION})]) as agent:
        run = agent.invoke("Describe a.jpg")
    assert run.ok
    assert run.results[0].output == {"generated_text": CAPTION}
    assert run.usage["repair"].calls == 1


def test_a_request_that_nobody_can_plan_is_answered_in_words() -> None:
    agent, llm, backend = small_agent("[]")
    with agent:
        run = agent.invoke("How are you?")
    assert (run.answer, run.results, backend.calls) == ("Hello!", [], [])
    assert llm.stages() == ["plan", "chat"]


def test_without_a_language_model_what_is_not_understood_is_said_with_examples() -> None:
    puzzled = FakeStage(saying(Plan(notes=["no task fits: colourless green ideas"])))
    agent, _, _ = small_agent()
    with agent, JarvisAgent(planner=puzzled, sources=[], backends=[]) as keyless:
        run = keyless.invoke("colourless green ideas")
    assert "I did not understand what is to be done" in run.answer
    assert "no task fits: colourless green ideas" in run.answer
    assert "Describe the image photo.jpg" in run.answer
    assert "OPENAI_API_KEY" in run.answer


def test_a_pinned_model_that_is_not_there_is_named_with_the_reason() -> None:
    """With the real sources and backends, offline."""
    llm = ScriptedLLM({"plan": DESCRIBE, "respond": RuntimeError("no line")})
    pins = {"image-to-text": "nobody/nothing"}
    with JarvisAgent(llm, models=pins, settings=Settings(offline=True)) as agent:
        run = agent.invoke("Describe a.jpg")
    assert run.results[0].status == "failed"
    assert "the model nobody/nothing, which is pinned for image-to-text, cannot be used" in run.answer
    assert "not on this machine, and JARVIS_OFFLINE forbids to download it" in run.answer
    assert "starter" not in run.answer


def test_where_no_expert_is_left_the_reasons_and_a_remedy_are_told() -> None:
    gated = fake_candidate("image-to-text", "big/model", gated=True, local=False)
    run = run_of(DESCRIBE, sources=[FakeSource([gated])])
    assert run.results[0].status == "failed"
    assert "big/model: it is gated: accept its terms at https://huggingface.co/big/model" in run.answer
    assert "jarvis models image-to-text" in run.answer


# Disks.


def no_space(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/outputs/x")


SPEECH_AND_CAPTION = plan(
    ("text-to-speech", [], {"text": "hello"}), ("image-to-text", [], {"image": "a.jpg"})
)


def full_disk_told(run: Run) -> bool:
    speech, caption = run.results
    assert (speech.status, caption.status) == ("failed", "ok")
    assert CAPTION in run.answer
    return "No space left on device" in run.answer and "JARVIS_OUTPUT_DIR" in run.answer


def test_a_full_disk_is_told_when_an_expert_writes_a_file_itself() -> None:
    run = run_of(SPEECH_AND_CAPTION, experts={"text-to-speech": no_space})
    assert full_disk_told(run)


def test_a_full_disk_is_told_when_a_tool_returns_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_core.tools import StructuredTool

    def draw(text: str) -> Any:
        return [block("a.jpg")]

    monkeypatch.setattr(Path, "write_bytes", no_space)
    tools = [StructuredTool.from_function(draw, name="draw", description="Draw a text.")]
    llm = ScriptedLLM({"plan": plan(("draw", [], {"text": "a cat"})), "respond": RuntimeError("no line")})
    with JarvisAgent(llm, tools=tools) as agent:
        run = agent.invoke("Draw a cat")
    assert "No space left on device" in run.answer
    assert "JARVIS_OUTPUT_DIR" in run.answer


def test_a_full_disk_is_told_when_an_attachment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    attached = block("a.jpg")
    monkeypatch.setattr(Path, "write_bytes", no_space)
    message = {"role": "user", "content": [{"type": "text", "text": "Describe it"}, attached]}
    with pytest.raises(InputError, match=r"No space left on device.*JARVIS_OUTPUT_DIR"):
        run_of(DESCRIBE, {"messages": [message]})


def test_an_output_directory_that_can_not_be_made_is_told_before_any_work() -> None:
    Path("taken").write_text("a file")
    agent, llm, backend = small_agent(settings=Settings(output_dir=Path("taken/outputs")))
    with (
        agent,
        pytest.raises(InputError, match=r"taken/outputs.* cannot be created.*--out or JARVIS_OUTPUT_DIR"),
    ):
        agent.invoke("Describe a.jpg")
    assert (llm.calls, backend.calls) == ([], [])
