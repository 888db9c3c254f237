"""What goes wrong is said: what it is, and what to do; and what was finished is kept and reported.

Through JarvisAgent, and where a user sees the exit code, through the command `jarvis`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from small_agents import CAPTION, DESCRIBE, block, picture, plan, small_agent
from stages import FakeStage, saying
from typer.testing import CliRunner, Result

from jarvis_agent import JarvisAgent, Plan, Run, Settings
from jarvis_agent.core.errors import InputError
from jarvis_agent.interfaces.cli import app as cli
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


@pytest.mark.parametrize("case", [name for name in BAD_FILES if name != "broken"])
def test_a_bad_file_that_is_handed_over_stops_the_run_before_it_begins(case: str) -> None:
    make, told = BAD_FILES[case]
    make(Path("bad.jpg"))
    if case.endswith("by another name"):
        run = run_of(TWO, {"input": "Describe it", "files": ["bad.jpg"]})
        assert told in str(run.results[0].error)
        return
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


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"type": "image", "base64": "%%%", "mime_type": "image/png"}, "not valid base64"),
        ({"type": "image", "file_id": "file-123"}, "'file-123' holds no data; attach its bytes"),
        ({"type": "image", "url": "ftp://example.org/a.jpg"}, "does not exist"),
    ],
    ids=["no base64", "a file id", "no web address"],
)
def test_an_attachment_without_data_is_refused(content: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        described(content)


def test_an_attachment_of_another_kind_fails_its_task() -> None:
    run = described({"type": "image", "base64": "aGVsbG8="}, f"input-{sha256(b'hello').hexdigest()[:12]}")
    assert "is a text file, and an image file is needed" in str(run.results[0].error)


# Requests and plans.


@pytest.mark.parametrize("request_", ["", "  \n", {"input": ""}, {"messages": []}, {}])
def test_an_empty_request_is_refused(request_: Any) -> None:
    with pytest.raises(InputError, match="the request is empty; write what is to be done"):
        run_of(DESCRIBE, request_)


@pytest.mark.parametrize("request_", [None, 7, {"text": "Describe a.jpg"}, {"input": ["a", "b"]}, [1, 2]])
def test_a_request_in_another_form_is_refused_with_an_example(request_: Any) -> None:
    with pytest.raises(InputError, match=r'a request is a text, or a dict such as \{"input"'):
        run_of(DESCRIBE, request_)


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


def test_a_full_disk_is_told_when_a_result_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.media.audio.wave.open", no_space)
    assert full_disk_told(run_of(SPEECH_AND_CAPTION))


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


# The command line.


@pytest.fixture
def jarvis(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, with a scripted language model and doubles for experts."""

    def run(*args: str, plan: Any = DESCRIBE, **options: Any) -> Result:
        options.setdefault("respond", RuntimeError("no line"))

        def make(model: str | None, settings: Settings) -> JarvisAgent:
            return small_agent(plan, {"image-to-text": look}, settings=settings, **options)[0]

        monkeypatch.setattr(cli, "_agent", make)
        return CliRunner().invoke(cli.app, list(args))

    return run


def test_the_command_says_0_when_something_was_done_and_tells_what_was_not(jarvis: Any) -> None:
    result = jarvis("Describe bad.jpg and a.jpg", plan=TWO)
    assert result.exit_code == 0
    assert CAPTION in result.stdout
    assert "bad.jpg does not exist; check its name" in result.stdout


def test_the_command_says_1_when_nothing_could_be_done(jarvis: Any) -> None:
    missing = plan(("image-to-text", [], {"image": "bad.jpg"}))
    result = jarvis("Describe bad.jpg", plan=missing)
    assert result.exit_code == 1
    assert "I could not do this." in result.stdout
    assert "bad.jpg does not exist; check its name" in result.stdout


def test_the_command_tells_it_as_json_too(jarvis: Any) -> None:
    result = jarvis("Describe bad.jpg and a.jpg", "--json", plan=TWO)
    run = Run.model_validate_json(result.stdout)
    assert [entry.status for entry in run.results] == ["failed", "ok"]
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([""], "the request is empty"),
        (["Describe it", "--file", "bad.jpg"], "--file bad.jpg cannot be read: No such file or directory"),
        (["Describe it", "--file", "empty.jpg"], "empty.jpg is empty"),
        (["Describe a.jpg", "--out", "a.jpg/outputs"], "choose another one with --out"),
        (["Describe a.jpg", "--policy", "sometimes"], "policy: Input should be 'local-first'"),
    ],
    ids=["empty", "missing file", "empty file", "no place", "policy"],
)
def test_the_command_says_2_when_it_is_used_wrongly(jarvis: Any, args: list[str], told: str) -> None:
    Path("empty.jpg").touch()
    result = jarvis(*args)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("name", "value"), [("JARVIS_MAX_PARALLEL", "many"), ("JARVIS_LICENSES", "[oops")])
def test_the_command_names_the_variable_that_is_wrong(
    jarvis: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    result = jarvis("Describe a.jpg")
    assert result.exit_code == 2
    assert name in result.stderr


def test_a_run_that_can_not_be_written_down_keeps_what_was_said(jarvis: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(Image.Image, "save", no_space)
    both = plan(("object-detection", [], {"image": "a.jpg"}), ("image-to-text", [], {"image": "a.jpg"}))
    result = jarvis("Describe a.jpg", "--json", plan=both)
    run = json.loads(result.stdout)
    assert [entry["status"] for entry in run["results"]] == ["failed", "ok"]
    assert "No space left on device" in run["results"][0]["error"]
    assert result.exit_code == 0
