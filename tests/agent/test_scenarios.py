"""The case studies of the HuggingGPT paper through JarvisAgent: plans are scripted, experts are doubles.

Each runs with the intended plan and with the one that the paper printed. Each answer is written once by a
language model and once, as if that one failed, by the report.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from scenarios import EXPERTS, SCENARIOS, Of, Scenario, graph, make_experts, make_files
from small_agents import plan as plan_text

from jarvis_agent import JarvisAgent, Plan, Run, Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.testing import FakeBackend, ScriptedLLM, first_candidate

DEAD = ConnectionError("a dead line")
PAPER_PROMPT = "#1 Task Planning Stage - The AI assistant performs task parsing"
ZOO: RunnableConfig = {"configurable": {"thread_id": "zoo"}}
INTENDED_AND_PRINTED = [
    pytest.param(scenario, text, id=f"{name}-{form}")
    for name, scenario in SCENARIOS.items()
    for form, text in (("intended", scenario.written), ("printed", scenario.printed))
    if text
]
GIRL = SCENARIOS["girl-in-the-boys-pose"]


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tells_all(messages: Any) -> str:
    """An answer that repeats the results in the prompt, as a good language model would."""
    prompt = "\n".join(str(message.text) for message in messages)
    parts = re.findall(r"<(results|totals)>\n(.*?)\n</\1>", prompt, re.DOTALL)
    return "I did it. " + " ".join(f"{name}: {text}" for name, text in parts)


def play(
    scenario: Scenario, plan: str, respond: Any = tells_all, prompts: str = "default", **changed: Any
) -> tuple[Run, FakeBackend]:
    make_files(Path(), *scenario.files)
    source, backend = make_experts(**changed)
    llm = ScriptedLLM({"plan": plan, "select": first_candidate, "respond": respond})
    settings = Settings(prompts=prompts)
    with JarvisAgent(model=llm, sources=[source], backends=[backend], settings=settings) as agent:
        run = agent.invoke(scenario.request)
    assert (PAPER_PROMPT in llm.calls[0].prompt) == (prompts == "paper")
    return run, backend


def expected_graph(scenario: Scenario, plan: str) -> list[str]:
    intended = scenario.plan if plan == scenario.written or scenario.graph is None else scenario.graph
    return graph(Plan.parse(plan_text(*intended)))


@pytest.mark.parametrize(
    ("prompts", "respond"), [("default", tells_all), ("paper", DEAD)], ids=["answered", "reported"]
)
@pytest.mark.parametrize(("scenario", "plan"), INTENDED_AND_PRINTED)
def test_a_case_study_is_run_and_answered(scenario: Scenario, plan: str, prompts: str, respond: Any) -> None:
    """The graph is the intended one, experts receive what references mean, the answer has all results."""
    run, backend = play(scenario, plan, respond, prompts)
    assert [result.status for result in run.results] == ["ok"] * len(run.plan.tasks)
    assert graph(run.plan) == expected_graph(scenario, plan)
    check_inputs(scenario, run, backend)
    for result in run.results:
        assert result.model is not None
        assert respond is not tells_all or result.model in run.answer
        for path in result.paths():
            assert path.is_file()
            assert str(path) in run.answer
        for row in result.output if isinstance(result.output, list) else []:
            assert str(row.get("label", row.get("answer"))) in run.answer
    assert "(no such file)" not in run.answer
    assert respond is tells_all or "a dead line" in run.answer


def check_inputs(scenario: Scenario, run: Run, backend: FakeBackend) -> None:
    """Every expert received what the references in its arguments stand for."""
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


# The chat of figure 8.

TURNS = (
    "generate the canny image of example.jpg",
    'then, from the canny image above and the prompt "a photo of a zoo", generate a new image',
    "detect the objects in the picture above",
)


def one_task(task: str, **args: str) -> str:
    return plan_text((task, [], args))


CANNY = one_task("canny-control", image="example.jpg")


def last_image(messages: Any) -> str:
    """The path of the last image in the chat log of a prompt."""
    log = re.search(r"<chat-log>\n(.*)\n</chat-log>", str(messages[-1].text), re.DOTALL)
    assert log
    return re.findall(r'(/[^\s"]+\.png)', log[1])[-1]


def new_image(messages: Any) -> str:
    return one_task("canny-text-to-image", text="a photo of a zoo", image=last_image(messages))


def detect(messages: Any) -> str:
    return one_task("object-detection", image=last_image(messages))


def chatting_agent(
    first: Any = CANNY, second: Any = new_image, third: Any = detect, prompts: str = "default"
) -> tuple[JarvisAgent, FakeBackend]:
    make_files(Path(), "example.jpg")
    source, backend = make_experts()
    llm = ScriptedLLM({"plan": [first, second, third], "select": first_candidate, "respond": DEAD})
    settings = Settings(prompts=prompts)
    return JarvisAgent(model=llm, sources=[source], backends=[backend], settings=settings), backend


def image_of(run: Run) -> Path | None:
    return run.results[-1].resources[0].path


@pytest.mark.parametrize("memory", ["thread", "chat_history"])
def test_a_chat_of_three_turns_uses_its_earlier_results(memory: str) -> None:
    agent, backend = chatting_agent()
    history: list[AnyMessage] = []
    runs: list[Run] = []
    with agent:
        for turn in TURNS:
            if memory == "thread":
                runs.append(agent.invoke(turn, ZOO))
            else:
                runs.append(agent.invoke({"input": turn, "chat_history": history}))
                history += [HumanMessage(turn), AIMessage(runs[-1].answer)]
    tasks = [[task.task for task in run.plan.tasks] for run in runs]
    assert tasks == [["canny-control"], ["canny-text-to-image"], ["object-detection"]]
    assert all(run.ok for run in runs)
    given = [call.inputs["image"].path for call in backend.calls]
    assert given == [Path("example.jpg").absolute(), image_of(runs[0]), image_of(runs[1])]
    assert backend.calls[1].inputs["text"] == "a photo of a zoo"


@pytest.mark.parametrize("prompts", ["default", "paper"])
def test_the_printed_chat_with_its_errors_is_run(prompts: str) -> None:
    """An id is used twice, a key is unquoted, the original is named again, and with another extension."""
    first = """[{"task": "image-to-text", "id": 0, dep: [-1], "args": {"image": "example.jpg"}},
        {"task": "canny-control", "id": 0, dep: [-1], "args": {"image": "example.jpg"}}]"""
    second = one_task("canny-text-to-image", text="a photo of a zoo", image="example.jpg")
    third = one_task("object-detection", image="example.png")
    agent, backend = chatting_agent(first, second, third, prompts)
    with agent:
        runs = [agent.invoke(turn, ZOO) for turn in TURNS]
    assert [task.task for task in runs[0].plan.tasks] == ["image-to-text", "canny-control"]
    assert len({task.id for task in runs[0].plan.tasks}) == 2
    assert all(run.ok for run in runs)
    assert {call.inputs["image"].path for call in backend.calls} == {Path("example.jpg").absolute()}
    note = 'task 0 (object-detection): "example.png" was taken as its image "example.jpg"'
    assert runs[2].plan.notes == [note]


# Chinese.


def test_a_chinese_request_is_answered_and_reported_in_chinese() -> None:
    plan: Any = (
        ("image-to-text", [], {"image": "example.jpg"}),
        ("text-to-speech", [0], {"text": "<resource>-0"}),
    )
    chinese = Scenario(request="请描述 example.jpg 这张图片，并把描述读出来。", plan=plan)

    def answer(messages: Any) -> str:
        assert chinese.request in messages[-1].text
        return "图片里有一个女孩在看书。语音是1-text-to-speech.wav。"

    run, _ = play(chinese, chinese.written, answer)
    (voice,) = [str(resource.path) for resource in run.resources if resource.kind == "audio"]
    assert run.ok
    assert run.results[0].model == "org/captioner"
    assert run.answer.startswith("图片里有一个女孩在看书。")
    assert f"语音是{voice}。" in run.answer
    run, _ = play(chinese, chinese.written, ConnectionError("断了"))
    for text in ("可以看到：", str(image_of(run))):
        assert text in run.answer
    assert "Here is" not in run.answer


def test_the_three_tasks_on_the_new_image_run_at_the_same_time() -> None:
    """Each of them ends only when all of them have begun."""
    barrier = asyncio.Barrier(3)

    async def wait(call: Call) -> Any:
        await barrier.wait()
        result = EXPERTS[call.spec.name]
        return result(call) if callable(result) else result

    tasks = ("image_classification", "object_detection", "image_to_text")
    run, _ = play(GIRL, GIRL.written, **dict.fromkeys(tasks, wait))
    assert run.ok


def test_without_a_task_that_joins_them_the_video_and_the_speech_are_two_files() -> None:
    run, _ = play(SCENARIOS["dubbed-video"], SCENARIOS["dubbed-video"].printed)
    assert [(r.kind, r.mime, str(r.path) in run.answer) for r in run.resources] == [
        ("video", "video/mp4", True),
        ("audio", "audio/wav", True),
    ]


def test_another_thread_may_not_read_the_files_of_this_one() -> None:
    made: list[str] = []
    agent, backend = chatting_agent(second=lambda messages: one_task("object-detection", image=made[0]))
    with agent:
        made.append(str(image_of(agent.invoke(TURNS[0], ZOO))))
        run = agent.invoke(TURNS[1], {"configurable": {"thread_id": "stranger"}})
    assert run.results == []
    assert "there is no file" in str(run.plan.notes)
    assert len(backend.calls) == 1
