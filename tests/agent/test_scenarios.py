"""The case studies of the HuggingGPT paper through JarvisAgent: plans are scripted, experts are doubles.

Each is tried with the plan that is meant and with the one that the paper printed. Each answer is written once
by a language model and once, since that one is down, by the report.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from scenarios import (
    EXPERTS,
    SCENARIOS,
    ZEBRAS,
    Of,
    Scenario,
    graph,
    make_experts,
    make_files,
    written,
)

from jarvis_agent import JarvisAgent, Plan, Run, Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.testing import FakeBackend, ScriptedLLM, first_candidate

MEANT_AND_PRINTED = [
    pytest.param(scenario, text, id=f"{name}-{form}")
    for name, scenario in SCENARIOS.items()
    for form, text in (("meant", scenario.written), ("printed", scenario.printed))
    if text
]


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tells_all(messages: Any) -> str:
    """An answer that repeats all that the prompt told about the results, as a good language model would."""
    prompt = "\n".join(str(message.text) for message in messages)
    parts = {
        name: re.search(rf"<{name}>\n(.*?)\n</{name}>", prompt, re.DOTALL)[1]  # type: ignore[index]
        for name in ("results", "models", "totals")
    }
    return "I did it. " + " ".join(f"{name}: {text}" for name, text in parts.items())


def play(scenario: Scenario, plan: str, respond: Any = tells_all, **changed: Any) -> tuple[Run, FakeBackend]:
    make_files(Path(), *scenario.files)
    source, backend = make_experts(**changed)
    llm = ScriptedLLM({"plan": plan, "select": first_candidate, "respond": respond})
    with JarvisAgent(model=llm, sources=[source], backends=[backend]) as agent:
        return agent.invoke(scenario.request), backend


def expected_graph(scenario: Scenario, plan: str) -> list[str]:
    meant = scenario.plan if plan == scenario.written or scenario.graph is None else scenario.graph
    return graph(Plan.parse(written(meant)))


@pytest.mark.parametrize("respond", [tells_all, ConnectionError("a dead line")], ids=["told", "reported"])
@pytest.mark.parametrize(("scenario", "plan"), MEANT_AND_PRINTED)
def test_a_case_study_is_planned_run_and_answered(scenario: Scenario, plan: str, respond: Any) -> None:
    """The graph is the one that is meant; experts get what references mean; the answer has all results."""
    run, backend = play(scenario, plan, respond)
    assert [result.status for result in run.results] == ["ok"] * len(run.plan.tasks)
    assert graph(run.plan) == expected_graph(scenario, plan)
    check_inputs(scenario, run, backend)
    for result in run.results:
        assert result.model is not None
        assert result.model in run.answer
        for path in result.paths():
            assert path.is_file()
            assert str(path) in run.answer
        for row in result.output if isinstance(result.output, list) else []:
            assert str(row.get("label", row.get("answer"))) in run.answer
            if row.get("box"):
                assert is_told(row["score"], run.answer)
    assert "(no such file)" not in run.answer
    assert respond is tells_all or "a dead line" in run.answer


def check_inputs(scenario: Scenario, run: Run, backend: FakeBackend) -> None:
    """Every expert got what the references in its arguments stand for."""
    made = {result.task.task: result.resources[0] for result in run.results}
    calls = {call.spec.name: call for call in backend.calls}
    for task in scenario.received.keys() & {planned.task for planned in run.plan.tasks}:
        got = calls[task].inputs
        assert set(got) == set(scenario.received[task])
        for name, meant in scenario.received[task].items():
            if isinstance(meant, Of):
                assert got[name].path == made[meant.task].path
            elif meant in scenario.files:
                assert got[name].path == Path(meant).absolute()
            else:
                assert got[name] == meant


def is_told(score: float, answer: str) -> bool:
    return str(score) in answer or f"{100 * score:.0f} %" in answer


def test_the_three_looks_at_the_new_image_are_taken_at_the_same_time() -> None:
    """Each of them ends only when all of them have begun."""
    looks = asyncio.Barrier(3)

    async def look(call: Call) -> Any:
        await looks.wait()
        result = EXPERTS[call.spec.name]
        return result(call) if callable(result) else result

    scenario = SCENARIOS["girl-in-the-boys-pose"]
    run, _ = play(
        scenario, scenario.written, image_classification=look, object_detection=look, image_to_text=look
    )
    assert run.ok


@pytest.mark.parametrize("respond", [tells_all, ConnectionError()], ids=["told", "reported"])
def test_zebras_are_summed_over_the_pictures(respond: Any) -> None:
    run, _ = play(SCENARIOS["zebras"], SCENARIOS["zebras"].written, respond)
    by_file = ", ".join(f"{file}: {count}" for file, count in ZEBRAS.items())
    assert f"zebra 6 ({by_file})" in run.answer or '"labels": {"zebra": 6}' in run.answer


def test_without_a_task_that_joins_them_the_video_and_the_speech_are_two_files() -> None:
    scenario = SCENARIOS["dubbed-video"]
    run, _ = play(scenario, scenario.printed)
    assert [(r.kind, r.mime, str(r.path) in run.answer) for r in run.resources] == [
        ("video", "video/mp4", True),
        ("audio", "audio/wav", True),
    ]


def test_paths_that_the_language_model_makes_up_are_put_right() -> None:
    run, _ = play(
        SCENARIOS["girl-in-the-boys-pose"],
        SCENARIOS["girl-in-the-boys-pose"].written,
        respond="My voice is in /tmp/voice.wav (or [audio path]); nobody saw /tmp/secret.pdf.",
    )
    (voice,) = [str(resource.path) for resource in run.resources if resource.kind == "audio"]
    assert run.answer == f"My voice is in {voice} (or {voice}); nobody saw /tmp/secret.pdf (no such file)."


def test_the_prompts_of_the_paper_lead_to_the_same_run(tmp_path: Path) -> None:
    scenario = SCENARIOS["girl-in-the-boys-pose"]
    make_files(tmp_path, *scenario.files)
    source, backend = make_experts()
    llm = ScriptedLLM({"plan": scenario.printed, "select": first_candidate, "respond": "Done."})
    settings = Settings(prompts="paper")
    with JarvisAgent(model=llm, sources=[source], backends=[backend], settings=settings) as agent:
        run = agent.invoke(scenario.request)
    assert graph(run.plan) == expected_graph(scenario, scenario.printed)
    assert run.answer == "Done."
    assert llm.calls[0].prompt.startswith("#1 Task Planning Stage - The AI assistant performs task parsing")


# The chat of figure 8.

TURNS = (
    "generate the canny image of example.jpg",
    'then, from the canny image above and the prompt "a photo of a zoo", generate a new image',
    "detect the objects in the picture above",
)
CANNY = '[{"task": "canny-control", "id": 0, "dep": [-1], "args": {"image": "example.jpg"}}]'


def last_image(messages: Any) -> str:
    """The path of the last picture that the chat log in a prompt names, which is all that a planner has."""
    log = re.search(r"<chat-log>\n(.*)\n</chat-log>", str(messages[-1].text), re.DOTALL)
    assert log
    return re.findall(r'(/[^\s"]+\.png)', log[1])[-1]


def second_plan(messages: Any) -> str:
    args = {"text": "a photo of a zoo", "image": last_image(messages)}
    return json.dumps([{"task": "canny-text-to-image", "id": 0, "dep": [-1], "args": args}])


def third_plan(messages: Any) -> str:
    return detection_of(last_image(messages))


def detection_of(image: str) -> str:
    return json.dumps([{"task": "object-detection", "id": 0, "dep": [-1], "args": {"image": image}}])


def chatting_agent(first: str = CANNY, second: Any = second_plan) -> tuple[JarvisAgent, FakeBackend]:
    source, backend = make_experts()
    plans = [first, second, third_plan]
    llm = ScriptedLLM({"plan": plans, "select": first_candidate, "respond": tells_all})
    return JarvisAgent(model=llm, sources=[source], backends=[backend]), backend


def principal_path(run: Run) -> Path | None:
    return run.results[-1].resources[0].path


def test_a_chat_of_three_turns_goes_on_with_what_it_has_made() -> None:
    make_files(Path(), "example.jpg")
    agent, backend = chatting_agent()
    config = {"configurable": {"thread_id": "zoo"}}
    with agent:
        runs = [agent.invoke(turn, config) for turn in TURNS]
    assert [[task.task for task in run.plan.tasks] for run in runs] == [
        ["canny-control"],
        ["canny-text-to-image"],
        ["object-detection"],
    ]
    assert all(run.ok for run in runs)
    given = [call.inputs["image"].path for call in backend.calls]
    assert given == [Path("example.jpg").absolute(), principal_path(runs[0]), principal_path(runs[1])]
    assert backend.calls[1].inputs["text"] == "a photo of a zoo"


def test_another_thread_may_not_read_what_this_one_has_made() -> None:
    make_files(Path(), "example.jpg")
    agent, backend = chatting_agent(second=lambda messages: detection_of(made))
    with agent:
        run = agent.invoke(TURNS[0], {"configurable": {"thread_id": "zoo"}})
        made = str(principal_path(run))
        stranger = agent.invoke(TURNS[1], {"configurable": {"thread_id": "stranger"}})
    assert [result.status for result in stranger.results] == ["failed"]
    assert "neither the request nor the settings allow" in str(stranger.results[0].error)
    assert len(backend.calls) == 1


def test_the_same_chat_works_when_its_history_is_handed_over() -> None:
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

    make_files(Path(), "example.jpg")
    agent, backend = chatting_agent()
    history: list[AnyMessage] = []
    runs: list[Run] = []
    with agent:
        for turn in TURNS:
            runs.append(agent.invoke({"input": turn, "chat_history": history}))
            history += [HumanMessage(turn), AIMessage(runs[-1].answer)]
    assert [result.error for run in runs for result in run.results] == [None] * 3
    given = [call.inputs["image"].path for call in backend.calls]
    assert given == [Path("example.jpg").absolute(), principal_path(runs[0]), principal_path(runs[1])]


def test_the_chat_as_printed_has_two_tasks_of_one_id_and_an_unquoted_slot() -> None:
    make_files(Path(), "example.jpg")
    printed = """[{"task": "image-to-text", "id": 0, dep: [-1], "args": {"image": "example.jpg"}},
        {"task": "canny-control", "id": 0, dep: [-1], "args": {"image": "example.jpg"}}]"""
    again = """[{"task": "canny-text-to-image", "id": 0, "dep": [-1],
        "args": {"text": "a photo of a zoo", "image": "example.jpg"}}]"""
    agent, backend = chatting_agent(printed, again)
    config = {"configurable": {"thread_id": "zoo"}}
    with agent:
        runs = [agent.invoke(turn, config) for turn in TURNS]
    assert [task.task for task in runs[0].plan.tasks] == ["image-to-text", "canny-control"]
    assert len({task.id for task in runs[0].plan.tasks}) == 2
    assert all(run.ok for run in runs)
    images = [call.inputs["image"].path for call in backend.calls if call.spec.name != "image-to-text"]
    original = Path("example.jpg").absolute()
    assert images == [original, original, principal_path(runs[1])]


# What language models write instead of the format.

READ_ALOUD = SCENARIOS["read-aloud"].written
MALFORMED = {
    "generated": READ_ALOUD.replace("<resource>-0", "<GENERATED>-0"),
    "in the brackets": READ_ALOUD.replace("<resource>-0", "<resource-0>"),
    "refers to itself": READ_ALOUD.replace("<resource>-0", "<resource-1>"),
    "string ids": READ_ALOUD.replace('"id": 0', '"id": "0"')
    .replace('"id": 1', '"id": "1"')
    .replace("[0]", '["0"]'),
    "no deps": READ_ALOUD.replace('"dep": [0]', '"dep": [-1]'),
    "an unquoted slot": READ_ALOUD.replace('"dep"', "dep"),
    "one id for both": READ_ALOUD.replace('"id": 1', '"id": 0'),
    "fenced": f"Sure! Here is the plan:\n```json\n{READ_ALOUD}\n```\nI hope that this helps.",
    "single quotes and a comma": READ_ALOUD.replace('"', "'").replace("}]", "},]"),
    "cut off": READ_ALOUD[:-1],
    "backwards": json.dumps(list(reversed(json.loads(READ_ALOUD)))),
    "aliases": READ_ALOUD.replace("image-to-text", "OCR").replace("text-to-speech", "TTS"),
    "misspelt": READ_ALOUD.replace("text-to-speech", "text_to_speach"),
    "a list of one": READ_ALOUD.replace('"<resource>-0"', '["<resource>-0"]'),
    "one object a line": "\n".join(json.dumps(task) for task in json.loads(READ_ALOUD)),
}


def test_however_it_is_written_the_text_is_read_and_spoken() -> None:
    meant = graph(Plan.parse(READ_ALOUD))
    for name, text in MALFORMED.items():
        run, backend = play(SCENARIOS["read-aloud"], text)
        spoken = [call.inputs["text"] for call in backend.calls if call.spec.name == "text-to-speech"]
        assert (graph(run.plan), spoken) == (meant, ["NO SWIMMING. The water is deep."]), name


def test_a_reference_inside_a_longer_text_is_put_there() -> None:
    _, backend = play(SCENARIOS["read-aloud"], READ_ALOUD.replace("<resource>-0", "It says: <resource>-0!"))
    assert backend.calls[-1].inputs["text"] == "It says: NO SWIMMING. The water is deep.!"


# Chinese.

IN_CHINESE = Scenario(
    request="请描述 example.jpg 这张图片，并把描述读出来。",
    plan=(
        ("image-to-text", [], {"image": "example.jpg"}),
        ("text-to-speech", [0], {"text": "<resource>-0"}),
    ),
)


def test_a_chinese_request_is_answered_in_chinese() -> None:
    def answer(messages: Any) -> str:
        assert IN_CHINESE.request in messages[-1].text
        return "图片里有一个女孩在看书。语音在“/tmp/语音.wav”，也就是/tmp/voice.wav。"

    run, _ = play(IN_CHINESE, IN_CHINESE.written, answer)
    (voice,) = [str(resource.path) for resource in run.resources if resource.kind == "audio"]
    assert run.ok
    assert run.results[0].model == "org/captioner"
    assert run.answer.startswith("图片里有一个女孩在看书。")
    assert f"也就是{voice}。" in run.answer


def test_a_chinese_request_has_a_chinese_report() -> None:
    run, _ = play(IN_CHINESE, IN_CHINESE.written, ConnectionError("断了"))
    assert "结果如下：" in run.answer
    assert "处理过程：" in run.answer
    assert str(principal_path(run)) in run.answer
    assert "Here is" not in run.answer
