"""JarvisAgent from outside: accepted input, the returned run, and what remains after closing."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from PIL import Image, ImageChops
from small_agents import (
    CAPTION,
    DESCRIBE,
    DESCRIBE_ALOUD,
    Row,
    block,
    hub_tools,
    picture,
    plan,
    small_agent,
    small_run,
)
from threads import running_threads

from jarvis_agent import JarvisAgent, Plan, Run, Settings, Task
from jarvis_agent.core.errors import BadInputError, ConfigError, ExpertError, InputError
from jarvis_agent.media.recordings import write_audio
from jarvis_agent.selection import model_registry as experts
from jarvis_agent.testing import ScriptedLLM, first_candidate

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.starter
def test_a_request_that_no_model_can_do_is_answered_with_what_helps() -> None:
    with JarvisAgent(settings=Settings(offline=True, model="none")) as agent:
        answer = agent.invoke("Make a video of a cat").answer
    assert answer.startswith("I understood what is to be done")
    assert "What helps: " in answer
    assert "without JARVIS_OFFLINE" in answer


def test_a_run_has_the_answer_the_plan_and_a_result_for_each_task_and_is_json() -> None:
    given: dict[str, Any] = {"models": ["a", "b"], "select": first_candidate}
    run, llm, _ = small_run("Describe a.jpg and say it", DESCRIBE_ALOUD, **given)
    assert run.ok
    assert run.answer.startswith("A cat on a mat.")
    assert run.plan.tasks == [
        Task(task="image-to-text", id=0, dep=[-1], args={"image": "a.jpg"}),
        Task(task="text-to-speech", id=1, dep=[0], args={"text": "<resource>-0"}),
    ]
    caption, speech = run.results
    assert [caption.task, speech.task] == run.plan.tasks
    assert (caption.status, caption.error, caption.output) == ("ok", None, {"generated_text": CAPTION})
    assert caption.selection is not None
    assert caption.selection.model == "image-to-text/a"
    assert [(attempt.model, attempt.ok) for attempt in caption.attempts] == [("image-to-text/a", True)]
    assert 0 <= caption.started <= caption.ended <= speech.started <= speech.ended
    assert speech.resources[0].kind == "audio"
    assert run.timings.keys() == {"plan", "execute", "respond", "total"}

    assert Run.model_validate_json(run.model_dump_json()) == run
    dumped = json.loads(run.model_dump_json())
    assert list(dumped) == ["answer", "plan", "results", "usage", "timings"]
    assert dumped["plan"] == {"tasks": json.loads(DESCRIBE_ALOUD), "notes": []}
    fields = {"task", "status", "selection", "attempts", "resources", "output", "error", "started", "ended"}
    assert all(fields <= result.keys() for result in dumped["results"])
    assert Path(dumped["results"][1]["resources"][0]["path"]).is_file()

    calls = {stage: usage.calls for stage, usage in run.usage.items()}
    assert calls == {"plan": 1, "select": 2, "respond": 1}
    assert sorted(llm.stages()) == ["plan", "respond", "select", "select"]
    assert all(usage.input_tokens > 0 for usage in run.usage.values())
    assert (run.usage["plan"].output_tokens, run.usage["respond"].output_tokens) == (18, 5)


def test_a_plan_is_returned_in_the_papers_format_and_as_a_diagram() -> None:
    agent, _, backend = small_agent(DESCRIBE_ALOUD)
    with agent:
        planned = agent.plan("Describe a.jpg and say it")
    assert isinstance(planned, Plan)
    assert json.loads(planned.to_json()) == json.loads(DESCRIBE_ALOUD)
    assert "t0 --> t1" in planned.to_mermaid()
    assert backend.calls == []
    assert [path.name for path in Path().iterdir()] == ["a.jpg"]  # planning writes no file


def test_each_run_writes_into_its_own_directory(tmp_path: Path) -> None:
    """A run without files leaves no directory."""
    requests = ("Describe a.jpg and say it", DESCRIBE_ALOUD, 2), ("Describe a.jpg", DESCRIBE, 0)
    for request, written, count in requests:
        output_dir = tmp_path / f"outputs {count}"
        agent, _, _ = small_agent(written, settings=Settings(output_dir=output_dir))
        with agent:
            runs = [agent.invoke(request) for _ in range(2)]
        folders = {path.parent for run in runs for result in run.results for path in result.paths()}
        assert folders == set(output_dir.iterdir())
        assert len(folders) == count


# Input.


def test_a_bare_name_in_the_text_means_the_attached_file() -> None:
    Path("photos").mkdir()
    photo = picture(Path("photos/b.jpg"))
    agent, _, backend = small_agent(plan(("image-to-text", [], {"image": "b.jpg"})))
    with agent:
        assert agent.invoke({"input": "What is in b.jpg?", "files": [str(photo)]}).ok
    assert backend.calls[0].inputs["image"].path == photo.absolute()


def plan_for_attachment(messages: Any) -> str:
    """A plan for the one file that the prompt lists."""
    name = messages[-1].text.split("<files>\n- ")[1].split("\n")[0].partition(": ")[2]
    kind = "audio" if name.endswith('.wav"') else "image"
    task = {"image": "image-to-text", "audio": "automatic-speech-recognition"}[kind]
    return plan((task, [], {kind: json.loads(name)}))


def test_images_and_audio_of_a_message_are_files_of_the_request() -> None:
    write_audio(Path("speech.wav"), [0.0] * 1600, 16_000)
    image, speech = block("a.jpg"), block("speech.wav", "audio", "audio/wav")
    contents: list[dict[str, Any]] = [
        image,
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{image['base64']}"}},
        speech,
        {"type": "input_audio", "input_audio": {"data": speech["base64"], "format": "wav"}},
    ]
    for content in contents:
        for words in ([{"type": "text", "text": "What is this?"}], []):
            run, _, backend = small_run({"messages": [HumanMessage([*words, content])]}, plan_for_attachment)
            assert [result.error for result in run.results] == [None]
            (given,) = backend.calls[0].inputs.values()
            name = "speech.wav" if given.kind == "audio" else "a.jpg"
            assert given.path.read_bytes() == Path(name).read_bytes()


def test_files_may_be_bytes_or_pil_images() -> None:
    original = Image.open("a.jpg")
    for file in (Path("a.jpg").read_bytes(), original, original.convert("CMYK")):
        run, _, backend = small_run({"input": "What is this?", "files": [file]}, plan_for_attachment)
        assert [result.error for result in run.results] == [None]
        given = Image.open(backend.calls[0].inputs["image"].path)
        assert ImageChops.difference(given, original).getextrema() == ((0, 0),) * 3


def test_an_image_of_an_earlier_message_can_be_used() -> None:
    def plan_for_earlier_image(messages: Any) -> str:
        log = messages[-1].text.split("<chat-log>")[1].split("</chat-log>")[0]
        return plan(("image-to-text", [], {"image": log.split('image "')[1].split('"')[0]}))

    agent, _, backend = small_agent(plan_for_earlier_image)
    history = [
        HumanMessage([{"type": "text", "text": "This is my cat."}, block("a.jpg")]),
        AIMessage("How nice!"),
        HumanMessage("Describe it"),
    ]
    with agent:
        run = agent.invoke({"messages": history})
    assert [result.error for result in run.results] == [None]
    assert backend.calls[0].inputs["image"].path.read_bytes() == Path("a.jpg").read_bytes()


def test_every_stage_sees_the_chat_history_of_the_request_or_of_its_thread_only() -> None:
    agent, llm, _ = small_agent("[]")
    history = [HumanMessage("My name is Ada."), AIMessage("Hello Ada!")]
    with agent:
        run = agent.invoke({"input": "What is my name?", "chat_history": history})
        assert (run.answer, llm.stages()) == ("Hello!", ["plan", "chat"])
        assert all("My name is Ada." in call.prompt and "Hello Ada!" in call.prompt for call in llm.calls)
        llm.calls.clear()
        agent.invoke("My name is Ada.", {"configurable": {"thread_id": "ada"}})
        agent.invoke("What is my name?", {"configurable": {"thread_id": "ada"}})
        agent.invoke("What is my name?", {"configurable": {"thread_id": "bob"}})
        agent.invoke("What is my name?")
    found = ["My name is Ada." in call.prompt for call in llm.calls if call.stage == "plan"]
    assert found == [True, True, False, False]


@pytest.mark.parametrize("stored", [False, True])
def test_a_copy_of_the_agent_begins_its_chats_with_a_history(stored: bool) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    agent, llm, _ = small_agent("[]", checkpointer=InMemorySaver() if stored else None)
    thread: Any = {"configurable": {"thread_id": "ada"}}
    with agent:
        twin = agent.copy(history=[HumanMessage("My name is Ada."), AIMessage("Hello Ada!")])
        for _ in range(2):
            twin.invoke("What is my name?", thread)
        turns = asyncio.run(twin.aget_state(thread)).turns
        assert [turn.request for turn in turns] == ["My name is Ada.", *["What is my name?"] * 2]
        assert [call.prompt.count("My name is Ada.") for call in llm.calls if call.stage == "plan"] == [1, 1]
        llm.calls.clear()
        agent.invoke("What is my name?", {"configurable": {"thread_id": "bob"}})
    assert not any("My name is Ada." in call.prompt for call in llm.calls)


def test_the_caller_says_after_which_errors_the_next_model_is_tried() -> None:
    experts = {"image-to-text/first": BadInputError("a broken image"), "image-to-text/second": CAPTION}
    names = {"models": ("first", "second"), "select": first_candidate}
    for fallback_on, models in ((None, 1), (BadInputError, 2)):
        agent, _, backend = small_agent(experts=experts, **names, fallback_on=fallback_on)
        with agent:
            agent.invoke("Describe a.jpg")
        assert backend.models() == [*experts][:models]
    with pytest.raises(ConfigError, match="error classes or a function, not 'ValueError'"):
        JarvisAgent(ScriptedLLM("[]"), fallback_on="ValueError")


def test_a_small_model_is_not_asked_for_what_is_done_without_it() -> None:
    given: dict[str, Any] = {"models": ["a", "b"], "experts": {"text-to-speech": ExpertError("no voice")}}
    given |= {"plan": DESCRIBE_ALOUD, "select": first_candidate}
    for name, stages in (("qwen-8b", {"plan", "select", "respond"}), ("qwen-0.5b", set())):
        run, llm, _ = small_run("Describe a.jpg and read the caption aloud", llm_name=name, **given)
        assert [result.status for result in run.results] == ["ok", "failed"]
        assert set(llm.stages()) == stages


# Runnable.


def test_a_chain_has_a_prompt_before_the_agent_and_takes_the_answer_with_str() -> None:
    agent, _, _ = small_agent()
    chat = ChatPromptTemplate.from_messages([("user", "Describe {file}")])
    with agent:
        for prompt in (chat, PromptTemplate.from_template("Describe {file}")):
            chain = prompt | agent | str
            assert chain.invoke({"file": "a.jpg"}) == "A cat on a mat."
            assert chain.batch([{"file": "a.jpg"}] * 2) == ["A cat on a mat."] * 2
            assert asyncio.run(chain.ainvoke({"file": "a.jpg"})) == "A cat on a mat."
        parsed = agent | str | StrOutputParser()
        assert parsed.invoke("Describe a.jpg") == "A cat on a mat."
        assert "".join(map(str, agent.stream("Describe a.jpg"))) == "A cat on a mat."


def test_a_batch_returns_runs_in_the_order_of_the_requests() -> None:
    def as_requested(messages: Any) -> str:
        file = "b.jpg" if "b.jpg" in messages[-1].text else "a.jpg"
        return plan(("image-to-text", [], {"image": file}))

    picture(Path("b.jpg"))
    agent, _, _ = small_agent(as_requested)
    with agent:
        runs = agent.batch(["Describe a.jpg", "Describe b.jpg", ""], return_exceptions=True)
        again = asyncio.run(agent.abatch(["Describe b.jpg", "Describe a.jpg"], {"max_concurrency": 1}))
    images = [run.plan.tasks[0].args["image"] for run in [*runs[:2], *again]]
    assert images == ["a.jpg", "b.jpg", "b.jpg", "a.jpg"]
    assert isinstance(runs[2], InputError)


async def test_sync_methods_work_in_a_running_event_loop() -> None:
    agent, _, _ = small_agent()
    with agent:
        assert agent.invoke("Describe a.jpg").ok
        assert agent.plan("Describe a.jpg").tasks
        assert sum(agent.stream("Describe a.jpg"), Run()).answer == "A cat on a mat."
        assert [run.answer for run in agent.batch(["Describe a.jpg"])] == ["A cat on a mat."]


def test_the_environment_sets_what_code_leaves_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    album = tmp_path / "album"
    album.mkdir()
    variables = {
        "OUTPUT_DIR": str(tmp_path / "there"),
        "SELECTION": "rank",
        "ALLOWED_DIRS": os.pathsep.join([str(tmp_path / "other"), str(album)]),
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"JARVIS_{name}", value)
    speak: list[Row] = [("text-to-speech", [], {"text": str(n)}) for n in range(3)]
    describe: Row = ("image-to-text", [], {"image": str(picture(album / "b.jpg"))})
    run, llm, _ = small_run("Speak, and describe my picture", plan(*speak, describe), models=["a", "b"])
    assert run.ok
    assert llm.stages() == ["plan", "respond"]
    assert {path.parent.parent for result in run.results for path in result.paths()} == {tmp_path / "there"}
    monkeypatch.setenv("JARVIS_POLICY", "sometimes")
    with pytest.raises(ConfigError, match=r"JARVIS_POLICY.*local-first"):
        JarvisAgent()


# Closing.


def test_closing_closes_the_backends_also_of_its_tools_and_leaves_no_thread() -> None:
    before = running_threads()
    agent, _, backend = small_agent(DESCRIBE_ALOUD)
    with agent:
        agent.invoke("Describe a.jpg")
        assert not backend.closed
    assert backend.closed
    llm = ScriptedLLM({"plan": DESCRIBE, "respond": "Done."})
    tools = hub_tools("image-to-text", model=llm)
    with JarvisAgent(llm, tools=tools) as agent:
        assert agent.invoke("Describe a.jpg").ok
    (backend,) = tools[0].registry.backends.values()
    assert backend.closed
    assert running_threads() == before


@pytest.mark.slow
def test_the_last_agent_closes_the_model_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real OpenCV backend works in threads of the pool."""
    monkeypatch.setattr(experts, "_pool", None)
    monkeypatch.setattr(experts, "_users", 0)
    before = running_threads()
    llm = ScriptedLLM({"plan": plan(("canny-control", [], {"image": "a.jpg"})), "respond": "Done."})
    with JarvisAgent(llm, settings=Settings(offline=True)) as agent:
        assert agent.invoke("Make a canny image of a.jpg").ok
        assert running_threads() > before
    assert running_threads() == before
