"""Bad input: the error says what is wrong and what to do, and finished work is kept and reported."""

import errno
import os
import re
import unicodedata
from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from small_agents import CAPTION, DESCRIBE, block, picture, plan, small_agent, small_run
from stages import FakeStage, saying

from jarvis_agent import JarvisAgent, Plan, Run, Settings, TaskSpec
from jarvis_agent.core.errors import InputError, MissingExtraError, install_command
from jarvis_agent.core.types import Candidate
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

pytestmark = pytest.mark.usefixtures("home")


def look(call: Any) -> str:
    """An expert that opens the image."""
    call.inputs["image"].to_pil()
    return CAPTION


def run_of(plan: Any, request: Any = "Describe a.jpg", **options: Any) -> Run:
    """A run whose experts open their images and whose answer is the report."""
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
    "text": (lambda path: path.write_text("hello"), "is a text file, and an image file is needed"),
    "directory": (lambda path: path.mkdir(), "is a directory; name a file in it"),
    "truncated": (truncated, "is damaged"),
}
"""Further ones are in `tests/media/test_store.py`."""


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_fails_only_its_task_and_in_files_the_request(case: str) -> None:
    make, message = BAD_FILES[case]
    make(Path("bad.jpg"))
    run = run_of(TWO, "Describe bad.jpg and a.jpg")
    bad, good = run.results
    assert (bad.status, good.status) == ("failed", "ok")
    assert "bad.jpg" in str(bad.error)
    assert message in str(bad.error)
    assert str(bad.error) in run.answer
    assert CAPTION in run.answer
    if case in ("missing", "directory"):
        with pytest.raises(InputError, match=r"bad\.jpg") as caught:
            run_of(TWO, {"input": "Describe it", "files": ["bad.jpg"]})
        assert message in str(caught.value)


@pytest.mark.parametrize("case", ["missing", "directory"])
def test_the_language_model_is_told_why_a_file_cannot_be_read(case: str) -> None:
    make, message = BAD_FILES[case]
    make(Path("bad.jpg"))
    agent, llm, _ = small_agent("[]")
    with agent:
        agent.invoke("Describe bad.jpg and a.jpg")
    for call in llm.calls:
        lines = [line for line in call.prompt.splitlines() if line.startswith('- image: "')]
        assert len(lines) == 2
        assert message in lines[0]
        assert lines[1] == '- image: "a.jpg"'


def test_a_file_without_read_permission_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def refuse(path: Path, *args: Any, **kwargs: Any) -> Any:  # root may read everything
        if path.name == "bad.jpg":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *args, **kwargs)

    picture(Path("bad.jpg"))
    monkeypatch.setattr(Path, "open", refuse)
    error = run_of(TWO, "Describe bad.jpg").results[0].error
    assert "bad.jpg cannot be read: Permission denied" in str(error)


def described(content: dict[str, Any], name: str = "input") -> Run:
    """A run on a message with an attachment, which the plan calls `name`."""
    message = {"role": "user", "content": [{"type": "text", "text": "Describe it"}, content]}
    return run_of(plan(("image-to-text", [], {"image": name})), {"messages": [message]})


def test_a_bad_attachment_is_refused_or_fails_its_task() -> None:
    refused: dict[str, dict[str, Any]] = {
        "not valid base64": {"base64": "%%%", "mime_type": "image/png"},
        "'file-123' of the message holds no file; attach its bytes": {"file_id": "file-123"},
        "does not exist": {"url": "ftp://example.org/a.jpg"},
        "^my cat.jpg is empty": {"base64": "", "filename": "my cat.jpg"},
        "^my cat.jpg is damaged": {"base64": "/9j/4GJyb2tlbgAB", "filename": "my cat.jpg"},
    }
    for message, content in refused.items():
        with pytest.raises(InputError, match=message):
            described({"type": "image", **content})
    run = described({"type": "image", "base64": "aGVsbG8="}, f"input-{sha256(b'hello').hexdigest()[:12]}.txt")
    assert "is a text file, and an image file is needed" in str(run.results[0].error)


def test_unusable_names_and_earlier_attachments_do_not_stop_a_run() -> None:
    blocks = [
        {"type": "image", "url": "http://127.0.0.1:9/gone.png"},
        {"type": "image", "url": "/no/such/file.png"},
        {"type": "image", "file_id": "file-1"},
    ]
    earlier = [{"role": "user", "content": blocks}, {"role": "assistant", "content": "A cat."}]
    for name in ("~nouser/x.png", f"{'a' * 300}.png", "http://[abc/x.png"):
        assert run_of(DESCRIBE, {"input": f"Describe a.jpg, {name}", "chat_history": earlier}).ok


# Requests and plans.

CATEGORIES = sorted({unicodedata.category(chr(number)) for number in range(0x10000)})
"""All of Unicode. "①" and "²" are "No": digits of which `float` makes no number."""

WORDS = st.tuples(*(st.text(st.characters(categories=[one]), min_size=1, max_size=3) for one in CATEGORIES))


@given(words=WORDS)
@examples(
    max_examples=5,
    deadline=None,
    phases=[Phase.reuse, Phase.generate],  # shrinking thirty words takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_characters_may_be_in_a_request_a_plan_a_result_an_error_and_an_answer(
    caplog: pytest.LogCaptureFixture, words: tuple[str, ...]
) -> None:
    text, files = " ".join(words), " ".join(f"{word}.jpg" for word in words)
    calls = plan(
        ("image-to-text", [], {"image": "a.jpg"}),
        ("translation", [0], {"text": f"{text} <resource>-0", "tgt_lang": "fr"}),
    )
    experts = {"image-to-text": {"generated_text": text}, "translation": ValueError(text)}
    for respond in (f"I see {text}.", (f"I see {words[0]}", RuntimeError(text)), RuntimeError(text)):
        run, _, _ = small_run(f"Describe a.jpg, {files} {text}", calls, experts, respond=respond)
        assert [result.status for result in run.results] == ["ok", "failed"]
        assert "- translation" in run.answer or "Not done: translation: " in run.answer
        assert Run.model_validate_json(run.model_dump_json()).answer == run.answer
    assert caplog.text.encode("utf-8")


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


def test_a_request_with_very_much_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.core.request.MAX_TEXT_BYTES", 10)
    agent, _, _ = small_agent("[]")
    with agent:
        assert agent.invoke("0123456789").answer
        durable = agent.copy(checkpointer=InMemorySaver())
        thread: Any = {"configurable": {"thread_id": "1"}}
        calls: list[Callable[[str], Any]] = [
            agent.invoke,
            agent.plan,
            lambda text: durable.invoke(text, thread),
            lambda text: agent.graph.invoke({"input": text}),
        ]
        for call in calls:
            with pytest.raises(InputError, match=r"11 bytes of text .*more than 10"):
                call("0123456789!")
        assert durable.graph.get_state(thread).values == {}


def test_an_empty_plan_is_answered_by_the_language_model_or_with_examples() -> None:
    run, llm, backend = small_run("How are you?", "[]")
    assert (run.answer, run.results, backend.calls) == ("Hello!", [], [])
    assert llm.stages() == ["plan", "chat"]
    unknown = FakeStage(saying(Plan(notes=["no task fits: colourless green ideas"])))
    with JarvisAgent(planner=unknown, sources=[], backends=[]) as without_llm:
        answer = without_llm.invoke("colourless green ideas").answer
    reason = "no task fits: colourless green ideas"
    for text in ("I could not do this.", reason, "Describe the image photo.jpg", "OPENAI_API_KEY"):
        assert text in answer
    with JarvisAgent("none", planner=unknown, sources=[], backends=[]) as without_llm:
        assert "OPENAI_API_KEY" not in without_llm.invoke("colourless green ideas").answer


def test_without_any_model_a_plan_says_which_extras_are_missing() -> None:
    class Bare(FakeBackend):
        def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
            return MissingExtraError(candidate.id, "local").note

    source = FakeSource([fake_candidate("image-to-text", "org/m")])
    run, _, _ = small_run("Describe a.jpg", respond="It is a picture.", sources=[source], backends=[Bare({})])
    assert [result.status for result in run.results] == ["failed"]
    assert 'org/m needs the extra "local"' in run.answer
    assert f"What helps: {install_command('local')}" in run.answer
    assert "larger model" not in run.answer


@pytest.mark.skipif(find_spec("torch") is None, reason="torch runs the model")
def test_without_a_usable_model_the_answer_says_why_and_what_to_do() -> None:
    """A pinned model with the real sources and backends, offline, and a gated model."""
    llm = ScriptedLLM({"plan": DESCRIBE, "respond": RuntimeError("no line")})
    pins = {"image-to-text": "nobody/nothing"}
    with JarvisAgent(llm, models=pins, settings=Settings(offline=True)) as agent:
        pinned = agent.invoke("Describe a.jpg")
    big = fake_candidate("image-to-text", "big/model", gated=True, local=False)
    gated = run_of(DESCRIBE, sources=[FakeSource([big])])
    assert [run.results[0].status for run in (pinned, gated)] == ["failed", "failed"]
    for text in (
        "the model nobody/nothing, which is pinned for image-to-text, cannot be used",
        "it is not on this machine, and offline mode is on\nWhat helps: it can be downloaded without",
    ):
        assert text in pinned.answer
    assert "starter" not in pinned.answer
    terms = "accept its terms at https://huggingface.co/big/model"
    for text in ("big/model: it is gated", terms, "jarvis models image-to-text"):
        assert text in gated.answer


# Full and unwritable disks.

NO_SPACE = r"(?s)No space left on device.*JARVIS_OUTPUT_DIR"


def no_space(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/outputs/x")


def test_a_full_disk_is_reported_with_the_setting_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """While an expert, a tool's result or an attachment is written."""
    written = plan(("text-to-speech", [], {"text": "hello"}), ("image-to-text", [], {"image": "a.jpg"}))
    run = run_of(written, experts={"text-to-speech": no_space})
    assert [result.status for result in run.results] == ["failed", "ok"]
    assert CAPTION in run.answer
    assert re.search(NO_SPACE, run.answer)

    image = block("a.jpg")
    monkeypatch.setattr(Path, "write_bytes", no_space)
    draw = StructuredTool.from_function(lambda text: [image], name="draw", description="Draw a text.")
    llm = ScriptedLLM({"plan": plan(("draw", [], {"text": "a cat"})), "respond": RuntimeError("no line")})
    with JarvisAgent(llm, tools=[draw]) as agent:
        assert re.search(NO_SPACE, agent.invoke("Draw a cat").answer)
    with pytest.raises(InputError, match=NO_SPACE):
        described(image)


def test_an_output_directory_that_cannot_be_created_is_reported_before_any_work() -> None:
    Path("taken").write_text("a file")
    agent, llm, backend = small_agent(settings=Settings(output_dir=Path("taken/outputs")))
    message = r"cannot be written: .*taken/outputs.*--out or JARVIS_OUTPUT_DIR"
    with agent, pytest.raises(InputError, match=message):
        agent.invoke("Describe a.jpg")
    assert (llm.calls, backend.calls) == ([], [])


def test_a_file_that_is_not_used_or_missing_costs_no_further_call() -> None:
    picture(Path("page.png"))
    attached = "Describe a.jpg. I also attach page.png, you need not look at it."
    for request, written, answer, stage in (
        (attached, DESCRIBE, "A cat on a mat.", "respond"),
        ("Describe nothere.jpg", "[]", "Hello!", "chat"),
    ):
        run, llm, _ = small_run(request, written)
        assert (run.answer, llm.stages()) == (answer, ["plan", stage])
        assert not (run.plan.notes and written == DESCRIBE)
