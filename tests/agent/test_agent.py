"""JarvisAgent from outside: what may be given to it, what comes back, and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from small_agents import (
    CAPTION,
    DESCRIBE,
    DESCRIBE_ALOUD,
    block,
    hub_tools,
    picture,
    plan,
    small_agent,
)

from jarvis_agent import JarvisAgent, Plan, Request, Run, Settings, Task
from jarvis_agent.core.errors import ConfigError, InputError
from jarvis_agent.media.audio import write_audio
from jarvis_agent.selection import model_registry as experts
from jarvis_agent.testing import ScriptedLLM, first_candidate

pytestmark = pytest.mark.usefixtures("home")


# What comes back.


def test_a_run_has_the_answer_the_plan_and_a_result_for_each_task() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    with agent:
        run = agent.invoke("Describe a.jpg and say it")
    assert run.answer == "It is done."
    assert run.plan.tasks == [
        Task(task="image-to-text", id=0, dep=[-1], args={"image": "a.jpg"}),
        Task(task="text-to-speech", id=1, dep=[0], args={"text": "<resource>-0"}),
    ]
    assert [result.task for result in run.results] == run.plan.tasks
    caption, speech = run.results
    assert (caption.status, caption.error, caption.output) == ("ok", None, {"generated_text": CAPTION})
    assert caption.selection is not None
    assert caption.selection.model == "image-to-text/only"
    assert [(attempt.model, attempt.ok) for attempt in caption.attempts] == [("image-to-text/only", True)]
    assert 0 <= caption.started <= caption.ended <= speech.started <= speech.ended
    assert speech.resources[0].kind == "audio"
    assert run.timings.keys() == {"plan", "execute", "respond", "total"}
    assert run.ok


def test_the_json_of_a_run_has_the_promised_form() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    with agent:
        run = agent.invoke("Describe a.jpg and say it")
    assert Run.model_validate_json(run.model_dump_json()) == run
    dumped = json.loads(run.model_dump_json())
    assert list(dumped) == ["answer", "plan", "results", "usage", "timings"]
    assert dumped["plan"] == {"tasks": json.loads(DESCRIBE_ALOUD), "notes": []}
    assert [result["task"] for result in dumped["results"]] == dumped["plan"]["tasks"]
    promised = {"task", "status", "selection", "attempts", "resources", "output", "error", "started", "ended"}
    assert all(promised <= result.keys() for result in dumped["results"])
    assert Path(dumped["results"][1]["resources"][0]["path"]).is_file()
    assert dumped["usage"]["plan"] == {
        "calls": 1,
        "input_tokens": pytest.approx(600, abs=500),
        "output_tokens": 18,
        "cached": 0,
    }


def test_the_plan_shows_itself_in_the_papers_format_and_as_a_diagram() -> None:
    agent, _, backend = small_agent(DESCRIBE_ALOUD)
    with agent:
        planned = agent.plan("Describe a.jpg and say it")
    assert isinstance(planned, Plan)
    assert json.loads(planned.to_json()) == json.loads(DESCRIBE_ALOUD)
    assert "t0 --> t1" in planned.to_mermaid()
    assert backend.calls == []
    assert [path.name for path in Path().iterdir()] == ["a.jpg"]  # planning makes no file


def test_usage_is_counted_by_stage() -> None:
    agent, llm, _ = small_agent(DESCRIBE_ALOUD, models=["a", "b"], select=first_candidate)
    with agent:
        run = agent.invoke("Describe a.jpg and say it")
    assert {stage: usage.calls for stage, usage in run.usage.items()} == {
        "plan": 1,
        "select": 2,
        "respond": 1,
    }
    assert all(usage.input_tokens > 0 and usage.output_tokens > 0 for usage in run.usage.values())
    assert run.usage["respond"].output_tokens == len(["It", "is", "done."])
    assert sorted(llm.stages()) == ["plan", "respond", "select", "select"]


def test_each_run_writes_into_a_directory_of_its_own(tmp_path: Path) -> None:
    """A run that makes no file leaves no directory."""
    for written, count in ((DESCRIBE_ALOUD, 2), (DESCRIBE, 0)):
        made = tmp_path / f"made {count}"
        agent, _, _ = small_agent(written, settings=Settings(output_dir=made))
        with agent:
            runs = [agent.invoke("Describe a.jpg and say it") for _ in range(2)]
        folders = {path.parent for run in runs for result in run.results for path in result.paths()}
        assert folders == set(made.iterdir())
        assert len(folders) == count


# What may be given to it.


def test_a_request_has_many_forms() -> None:
    requests: list[Any] = [
        "Describe a.jpg",
        {"input": "Describe it", "files": ["a.jpg"]},
        {"input": "Describe it", "files": [Path("a.jpg")]},
        Request(input="Describe it", files=["a.jpg"]),
        {"messages": [HumanMessage("Describe a.jpg")]},
        {"messages": [("user", "Describe a.jpg")]},
        {"messages": [{"role": "user", "content": "Describe a.jpg"}]},
        [HumanMessage("Describe a.jpg")],
        HumanMessage("Describe a.jpg"),
    ]
    agent, _, backend = small_agent()
    with agent:
        runs = agent.batch(requests)
    assert [run.ok for run in runs] == [True] * len(requests)
    assert {call.inputs["image"].path for call in backend.calls} == {Path("a.jpg").absolute()}


def attached_name(messages: Any) -> str:
    """A plan for the one file that the prompt lists."""
    name = messages[-1].text.split("<files>\n- ")[1].split("\n")[0].partition(": ")[2]
    kind = "audio" if name.endswith('.wav"') else "image"
    task = {"image": "image-to-text", "audio": "automatic-speech-recognition"}[kind]
    return plan((task, [], {kind: json.loads(name)}))


def test_a_message_brings_its_images_and_sounds_along() -> None:
    image, speech = block("a.jpg"), block(write_speech(), "audio", "audio/wav")
    contents: list[dict[str, Any]] = [
        image,
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{image['base64']}"}},
        speech,
        {"type": "input_audio", "input_audio": {"data": speech["base64"], "format": "wav"}},
    ]
    for content in contents:
        for words in ([{"type": "text", "text": "What is this?"}], []):
            agent, _, backend = small_agent(attached_name)
            with agent:
                run = agent.invoke({"messages": [HumanMessage([*words, content])]})
            assert [result.error for result in run.results] == [None]
            (given,) = backend.calls[0].inputs.values()
            name = "speech.wav" if given.kind == "audio" else "a.jpg"
            assert given.path.read_bytes() == Path(name).read_bytes()


def write_speech() -> Path:
    write_audio(Path("speech.wav"), [0.0] * 1600, 16_000)
    return Path("speech.wav")


def test_an_image_of_an_earlier_message_can_still_be_looked_at() -> None:
    def later_plan(messages: Any) -> str:
        log = messages[-1].text.split("<chat-log>")[1].split("</chat-log>")[0]
        path = log.split('image "')[1].split('"')[0]
        return plan(("image-to-text", [], {"image": path}))

    agent, _, backend = small_agent(later_plan)
    history = [
        HumanMessage([{"type": "text", "text": "This is my cat."}, block("a.jpg")]),
        AIMessage("How nice!"),
        HumanMessage("Describe it"),
    ]
    with agent:
        run = agent.invoke({"messages": history})
    assert [result.error for result in run.results] == [None]
    assert backend.calls[0].inputs["image"].path.read_bytes() == Path("a.jpg").read_bytes()


def test_the_planner_and_the_answer_know_the_chat_history() -> None:
    agent, llm, _ = small_agent("[]")
    history = [HumanMessage("My name is Ada."), AIMessage("Hello Ada!")]
    with agent:
        run = agent.invoke({"input": "What is my name?", "chat_history": history})
    assert run.answer == "Hello!"
    assert llm.stages() == ["plan", "chat"]
    assert all("My name is Ada." in call.prompt and "Hello Ada!" in call.prompt for call in llm.calls)


def test_a_thread_remembers_its_turns_and_no_other_thread_does() -> None:
    agent, llm, _ = small_agent("[]")
    with agent:
        agent.invoke("My name is Ada.", {"configurable": {"thread_id": "ada"}})
        agent.invoke("What is my name?", {"configurable": {"thread_id": "ada"}})
        agent.invoke("What is my name?", {"configurable": {"thread_id": "bob"}})
        agent.invoke("What is my name?")
    knows = ["My name is Ada." in call.prompt for call in llm.calls if call.stage == "plan"]
    assert knows == [True, True, False, False]


# As a Runnable.


def test_the_agent_is_a_link_of_a_chain() -> None:
    agent, _, _ = small_agent()
    prompt = ChatPromptTemplate.from_messages([("user", "Describe {file}")])
    with agent:
        chain = prompt | (lambda value: value.to_messages()) | agent | (lambda run: run.answer)
        assert chain.invoke({"file": "a.jpg"}) == "It is done."
        assert chain.batch([{"file": "a.jpg"}] * 2) == ["It is done."] * 2
        assert asyncio.run(chain.ainvoke({"file": "a.jpg"})) == "It is done."


def test_a_batch_gives_a_run_for_each_request_in_their_order() -> None:
    def as_asked(messages: Any) -> str:
        file = "b.jpg" if "b.jpg" in messages[-1].text else "a.jpg"
        return plan(("image-to-text", [], {"image": file}))

    picture(Path("b.jpg"))
    agent, _, _ = small_agent(as_asked)
    with agent:
        runs = agent.batch(["Describe a.jpg", "Describe b.jpg", ""], return_exceptions=True)
        again = asyncio.run(agent.abatch(["Describe b.jpg", "Describe a.jpg"], {"max_concurrency": 1}))
    assert [run.plan.tasks[0].args["image"] for run in runs[:2]] == ["a.jpg", "b.jpg"]
    assert isinstance(runs[2], InputError)
    assert [run.plan.tasks[0].args["image"] for run in again] == ["b.jpg", "a.jpg"]


async def test_sync_calls_work_inside_a_running_loop() -> None:
    agent, _, _ = small_agent()
    with agent:
        assert agent.invoke("Describe a.jpg").ok
        assert agent.plan("Describe a.jpg").tasks
        assert sum_of(agent.stream("Describe a.jpg")).answer == "It is done."
        assert [run.answer for run in agent.batch(["Describe a.jpg"])] == ["It is done."]


def sum_of(chunks: Any) -> Run:
    total = Run()
    for chunk in chunks:
        total += chunk
    return total


async def test_one_agent_serves_several_loops_and_requests_at_once() -> None:
    agent, _, _ = small_agent(DESCRIBE_ALOUD)
    async with agent:
        here = asyncio.gather(*(agent.ainvoke("Describe a.jpg") for _ in range(3)))
        there = asyncio.to_thread(agent.invoke, "Describe a.jpg")
        elsewhere = asyncio.to_thread(lambda: asyncio.run(agent.ainvoke("Describe a.jpg")))
        runs = [*await here, await there, await elsewhere]
    assert all(run.ok for run in runs)
    assert len({str(run.resources[1].path) for run in runs}) == 5


# Settings from the environment.


def test_the_environment_sets_what_the_code_leaves_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JARVIS_OUTPUT_DIR", str(tmp_path / "there"))
    monkeypatch.setenv("JARVIS_MAX_PARALLEL", "1")
    monkeypatch.setenv("JARVIS_TOP_K", "1")
    three = plan(*(("text-to-speech", [], {"text": str(n)}) for n in range(3)))
    agent, llm, backend = small_agent(three, models=["a", "b"])
    backend.delay = 0.001
    with agent:
        run = agent.invoke("Speak")
    assert backend.peak == 1
    assert llm.stages() == ["plan", "respond"]
    assert {path.parent.parent for result in run.results for path in result.paths()} == {tmp_path / "there"}


def test_directories_that_may_be_read_are_listed_like_a_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "album").mkdir()
    picture(tmp_path / "album" / "b.jpg")
    monkeypatch.setenv(
        "JARVIS_ALLOWED_DIRS", os.pathsep.join([str(tmp_path / "other"), str(tmp_path / "album")])
    )
    agent, _, _ = small_agent(plan(("image-to-text", [], {"image": str(tmp_path / "album" / "b.jpg")})))
    with agent:
        assert agent.invoke("Describe the picture in my album").ok


def test_a_setting_that_can_not_be_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_POLICY", "sometimes")
    with pytest.raises(ConfigError, match=r"JARVIS_POLICY.*local-first"):
        JarvisAgent()


# What is left behind.


def threads() -> set[threading.Thread]:
    """All threads but those that a process keeps: the portal, and the workers of loops and of planning."""
    for thread in threading.enumerate():
        if thread.name == "jarvis-daemon":
            thread.join(1.0)  # its work is done, and it is about to end
    kept = ("asyncio_", "jarvis-sync", "AnyIO")
    return {thread for thread in threading.enumerate() if not thread.name.startswith(kept)}


def test_closing_frees_the_backends_and_leaves_no_thread() -> None:
    before = threads()
    agent, _, backend = small_agent(DESCRIBE_ALOUD)
    with agent:
        agent.invoke("Describe a.jpg")
        assert not backend.closed
    assert backend.closed
    assert threads() == before


def test_models_of_this_machine_are_gone_after_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real OpenCV backend works in the threads of the pool, which its last user closes."""
    monkeypatch.setattr(experts, "_pool", None)
    monkeypatch.setattr(experts, "_users", 0)
    before = threads()
    llm = ScriptedLLM({"plan": plan(("canny-control", [], {"image": "a.jpg"})), "respond": "Done."})
    with JarvisAgent(llm, settings=Settings(offline=True)) as agent:
        run = agent.invoke("Make a canny image of a.jpg")
        assert run.ok
        assert threads() > before
    assert threads() == before


def test_the_toolkit_of_an_agent_closes_with_it() -> None:
    llm = ScriptedLLM({"plan": DESCRIBE, "respond": "Done."})
    tools = hub_tools(llm, "image-to-text")
    with JarvisAgent(llm, tools=tools) as agent:
        assert agent.invoke("Describe a.jpg").ok
    (backend,) = tools[0].registry.backends.values()
    assert backend.closed
