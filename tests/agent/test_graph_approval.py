"""Approval of plans: nothing runs before a valid decision, and a decision is stored."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("langgraph")

from durable_agents import ONE_BY_ONE, THREAD, counting_agent, stop_when
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolCallLimitMiddleware
from langchain.agents.middleware.human_in_the_loop import HITLRequest, HITLResponse
from langchain_core.decisions import NoulAnswer
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from pydantic import TypeAdapter
from small_agents import EXPERTS, Judge, call_of, hub_tools, plan, small_agent

from jarvis_agent import JarvisAgent, Plan, Run, Settings, Task
from jarvis_agent.agent.approval import downloads_over, hosted, named, writes
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

TWO = {"task": "count", "id": 0, "dep": [-1], "args": {"text": "two"}}
UNKNOWN = {"task": "sing", "id": 1, "dep": [-1], "args": {"text": "la"}}


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
async def waiting(tmp_path: Path, calls: list[str]) -> JarvisAgent:
    """An agent with a plan that waits."""
    durable = counting_agent(tmp_path, calls).copy(checkpointer=InMemorySaver(), approve=True)
    assert [event.kind async for event in durable.aevents("count", THREAD)] == []
    return durable


async def decide(durable: JarvisAgent, decision: Any) -> Any:
    return await durable.ainvoke(Command(resume=decision), THREAD)


def test_a_stream_that_stops_for_approval_yields_the_plan(tmp_path: Path, calls: list[str]) -> None:
    durable = counting_agent(tmp_path, calls).copy(checkpointer=InMemorySaver(), approve=True)
    (chunk,) = durable.stream("count", THREAD)
    assert [task.task for task in chunk.plan.tasks] == ["count"]
    run = sum(durable.stream(Command(resume=True), THREAD), Run())
    assert [result.status for result in run.results] == ["ok"]


async def test_a_plan_waits_for_approval(waiting: JarvisAgent, calls: list[str]) -> None:
    shown = (await waiting.aget_state(THREAD)).waiting
    assert shown is not None
    assert (shown["request"], shown["plan"][0]["args"]) == ("count", {"text": "one"})
    with pytest.raises(ConfigError, match="True, False, or another plan"):
        await decide(waiting, None)
    with pytest.raises(ConfigError, match="waits for approval"):
        await waiting.copy(checkpointer=waiting.checkpointer).ainvoke(None, THREAD)  # without approve=True
    assert calls == []
    run = await decide(waiting, True)
    assert run.results[0].output == "one!"
    assert (await waiting.aget_state(THREAD)).waiting is None
    with pytest.raises(ConfigError, match="no plan waits"):
        await decide(waiting, True)
    assert calls == ["one"]


async def test_a_decision_has_many_forms(tmp_path: Path) -> None:
    """True and words approve, False and words reject, and a plan in any form replaces the one shown."""
    edited: list[Any] = [
        [TWO],
        json.dumps([TWO]),
        {"plan": [TWO]},
        [Task.model_validate(TWO)],
        Plan(tasks=[Task.model_validate(TWO)]),
        {"plan": {"tasks": [TWO], "notes": []}},
    ]
    yes: list[Any] = [True, "yes", "y", "Approve", " TRUE ", "ok."]
    no: list[Any] = [False, "reject", "No", "n", []]
    cases = [(word, ["one"]) for word in yes] + [(word, []) for word in no]
    cases += [(plan, ["two"]) for plan in edited]
    for decision, expected in cases:
        calls: list[str] = []
        durable = counting_agent(tmp_path, calls).copy(checkpointer=InMemorySaver(), approve=True)
        await durable.ainvoke("count", THREAD)
        run = await decide(durable, decision)
        assert (calls, [task.args["text"] for task in run.plan.tasks]) == (expected, expected), decision
        assert run.answer == ("Done: one, two." if expected else "The plan was rejected, so nothing was run.")


def test_approval_needs_a_checkpointer() -> None:
    with pytest.raises(ConfigError, match=r"^approve=True needs a checkpointer.*InMemorySaver\(\), approve"):
        JarvisAgent(tools=[], approve=True)


async def test_after_a_wrong_decision_the_plan_is_shown_again(waiting: JarvisAgent, calls: list[str]) -> None:
    """A valid task of an edited plan is kept, and shown before it runs."""
    edit = {"type": "edit", "edited_action": {"name": "sing", "args": {"text": "la"}}}
    cases: list[tuple[Any, str, str]] = [
        (7, "approved with True", "one"),
        ("perhaps later", "contains no plan", "one"),
        ({"verdict": 1}, "verdict", "one"),
        ({"decisions": []}, "each action needs one decision; 0 came for 1", "one"),
        ({"decisions": [{"type": "maybe"}]}, "none of them: {'type': 'maybe'}", "one"),
        ({"decisions": [{"type": "respond"}]}, "a message", "one"),
        ({"decisions": [edit]}, "sing", "one"),
        ([UNKNOWN], "sing", "one"),
        ([TWO, UNKNOWN], "sing", "two"),
    ]
    for decision, problem, text in cases:
        with pytest.raises(ConfigError, match=problem):
            await decide(waiting, decision)
        shown = (await waiting.aget_state(THREAD)).waiting
        assert shown is not None
        assert problem in shown["problem"]
        assert [task["args"] for task in shown["plan"]] == [{"text": text}]
    assert calls == []
    run = await decide(waiting, {"decisions": [APPROVE]})
    assert (calls, run.plan.notes) == (["two"], []), "what was wrong with an edit is no note of the plan"


async def test_a_decision_holds_whether_or_not_the_resuming_agent_asks(tmp_path: Path) -> None:
    """So does a run that was started without approval."""
    for asks, resumes_asking in ((True, True), (True, False), (False, True)):
        calls: list[str] = []
        saver, stuck = InMemorySaver(), asyncio.Event()
        agent = counting_agent(tmp_path, calls, *([] if asks else ONE_BY_ONE), stuck=stuck)
        first = agent.copy(checkpointer=saver, approve=asks)
        request: Any = "count"
        if asks:
            waiting = await first.ainvoke("count", THREAD)
            assert ([task.id for task in waiting.plan.tasks], waiting.results) == ([0], [])
            request = Command(resume=plan(*ONE_BY_ONE))
        await stop_when(stuck, first, request)
        second = agent.copy(checkpointer=saver, approve=resumes_asking)
        assert (await second.aget_state(THREAD)).waiting is None
        run = await second.ainvoke(None, THREAD)
        assert [result.output for result in run.results] == ["one!", "one!!"]
        assert calls == ["one", "one!", "one!"]


ROWS = [
    ("image-to-text", [], {"image": "a.jpg"}),
    ("text-to-speech", [0], {"text": "<resource>-0"}),
    ("object-detection", [], {"image": "a.jpg"}),
    ("translation", [0], {"text": "<resource>-0", "tgt_lang": "fr"}),
]
LOOK = "Look at a.jpg"
APPROVE, REJECT = {"type": "approve"}, {"type": "reject", "message": "too loud"}


def asking_agent(*rows: Any, approve: Any = True, **options: Any) -> tuple[JarvisAgent, Any, Any]:
    agent, llm, backend = small_agent(plan(*rows), **options)
    return agent.copy(checkpointer=InMemorySaver(), approve=approve), llm, backend


@pytest.mark.usefixtures("home")
def test_the_interrupt_is_a_request_of_langchain_and_takes_its_decisions() -> None:
    agent, llm, backend = asking_agent(*ROWS, models=["a", "b"], select='{"id": "2"}')
    (interrupt,) = agent.graph.invoke({"input": LOOK}, THREAD)["__interrupt__"]
    request: Any = {key: interrupt.value[key] for key in HITLRequest.__annotations__}
    TypeAdapter(HITLRequest).validate_python(request)
    assert [(action["name"], action["args"]) for action in request["action_requests"]] == [
        (name, args) for name, _, args in ROWS
    ]
    assert request["action_requests"][0]["description"] == "image-to-text with image-to-text/a, here"
    selections = llm.stages().count("select")
    edit = {"type": "edit", "edited_action": {"name": "image-to-text", "args": {"image": "a.jpg"}}}
    response: HITLResponse = {"decisions": [{"type": "respond", "message": "a dog"}, REJECT, edit, APPROVE]}
    state = agent.graph.invoke(Command(resume=response), THREAD)
    run = Run.model_validate(state["run"])
    done = [(result.task.task, result.status) for result in run.results]
    assert done == [*[("image-to-text", "ok")] * 2, ("translation", "ok")]
    assert run.results[0].output == "a dog"
    inputs = {call.spec.name: call.inputs for call in backend.calls}
    assert inputs.keys() == {"image-to-text", "translation"}
    assert inputs["translation"]["text"] == "a dog"
    note = "task 1 (text-to-speech) was left out: it was rejected: too loud"
    assert (run.plan.notes, run.plan.removed, run.ok) == ([note], [note], False)
    assert note in run.answer
    assert llm.stages().count("select") == selections + 1, "only the edited task needs another model"


@pytest.mark.usefixtures("home")
def test_a_task_that_a_person_does_needs_no_other() -> None:
    agent, _, _ = asking_agent(*ROWS)
    agent.invoke(LOOK, THREAD)
    sung = {"type": "respond", "message": "la"}
    run = agent.invoke(Command(resume={"decisions": [REJECT, sung, REJECT, REJECT]}), THREAD)
    assert [(result.task.task, result.output) for result in run.results] == [("text-to-speech", "la")]


ODD = {"large": 10**40, "larger": -(10**400), "64 bits": 2**63, "half": "a \ud800", "nan": float("nan")}
ODD["inside"] = {"a": [2**64]}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("place", ["id", "dep", "args", "edited_action", "message"])
async def test_a_decision_that_cannot_be_stored_as_it_is_does_not_end_the_run(
    tmp_path: Path, calls: list[str], odd: Any, place: str
) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "runs.sqlite")) as saver:
        durable = counting_agent(tmp_path, calls).copy(checkpointer=saver, approve=True)
        await durable.ainvoke("count", THREAD)
        decision: Any = [TWO | {place: {"text": odd} if place == "args" else odd}]
        if place == "edited_action":
            decision = {"decisions": [{"type": "edit", place: {"name": "count", "args": {"text": odd}}}]}
        if place == "message":
            decision = {"decisions": [{"type": "reject", place: odd}]}
        with suppress(ConfigError):  # It may need to be shown again.
            await decide(durable, decision)
        if (await durable.aget_state(THREAD)).waiting:
            await decide(durable, True)
        assert (await durable.aget_state(THREAD)).waiting is None
        assert (await durable.ainvoke("count", THREAD)).plan.tasks, "the thread goes on"


@pytest.mark.usefixtures("home")
def test_a_policy_that_returns_nothing_has_approved_nothing() -> None:
    for answer, is_asked in ((None, True), (True, True), (1, True), (False, False), (0, False), ("", False)):
        agent, _, backend = asking_agent(ROWS[0], approve=lambda step, answer=answer: answer)
        agent.invoke(LOOK, THREAD)
        assert (not backend.calls) == is_asked, answer


@pytest.mark.usefixtures("home")
def test_a_policy_of_another_form_is_refused() -> None:
    agent, _, _ = small_agent()
    for policy in ("always", ["image-to-text"], 1):
        with pytest.raises(ConfigError, match="approve is True, False, or a function"):
            agent.copy(checkpointer=False, approve=cast("Any", policy))


def doubt(state: Any, question: Any) -> NoulAnswer:
    """A judgement that what runs at a provider needs approval."""
    return NoulAnswer(type="noul", noul=0.9 if "hosted" in state["task"] else 0.1)


@pytest.mark.parametrize(
    ("metadata", "is_asked"),
    [
        (None, True),
        ({"mcp": {"tool": {"annotations": {"read_only_hint": False}}}}, True),
        ({"mcp": "studio"}, True),
        ({"mcp": {"tool": {"annotations": {"read_only_hint": True}}}}, False),
    ],
)
def test_tools_are_approved_unasked_if_their_server_says_that_they_are_read_only(
    metadata: dict[str, Any] | None, is_asked: bool, tmp_path: Path
) -> None:
    look_up = StructuredTool.from_function(
        lambda text: text, name="look_up", description="Look a text up.", metadata=metadata
    )
    llm = ScriptedLLM({"plan": plan(("look_up", [], {"text": "a"})), "respond": "Done."})
    settings = Settings(output_dir=tmp_path)
    with JarvisAgent(
        llm, tools=[look_up], checkpointer=InMemorySaver(), approve=writes, settings=settings
    ) as agent:
        assert bool(agent.invoke("Look it up", THREAD).results) != is_asked


@pytest.mark.usefixtures("home")
def test_a_policy_says_which_tasks_need_approval() -> None:
    far = FakeBackend(EXPERTS, "far", local=False)
    models = [
        fake_candidate("image-to-text", backend="far", local=False, providers=("far",)),
        fake_candidate("object-detection", local=False, size=1_500_000_000),
        fake_candidate("text-to-speech"),
    ]
    everything = ["image-to-text", "text-to-speech", "object-detection"]
    cases: list[tuple[Any, list[str]]] = [
        (True, everything),
        (hosted, ["image-to-text"]),
        (downloads_over(1_000_000_000), ["object-detection"]),
        (downloads_over(2_000_000_000), []),
        (named("text-to-speech"), ["text-to-speech"]),
        (lambda step: step.task.task == "text-to-speech", ["text-to-speech"]),
        (writes, []),
        (Judge(model="careful", answer=doubt), ["image-to-text"]),
        (Judge(model="broken", answer=lambda *_: 1 / 0), everything),
        (Judge(model="silent", answer=lambda *_: None), everything),
    ]
    with pytest.raises(ConfigError, match="text-to-speech"):
        named("text-to-speach")
    for policy, expected in cases:
        agent, _, _ = asking_agent(
            *ROWS[:3],
            approve=policy,
            sources=[FakeSource(models)],
            backends=[FakeBackend(EXPERTS), far],
            settings={"offline": False},
        )
        run = agent.invoke(LOOK, THREAD)
        shown = agent.graph.get_state(THREAD).interrupts
        asked = [action["name"] for one in shown for action in one.value["action_requests"]]
        assert asked == expected
        assert bool(run.results) == (not expected)
        if expected:
            run = agent.invoke(Command(resume={"decisions": [APPROVE] * len(expected)}), THREAD)
        assert [result.error for result in run.results] == [None] * 3


def translator(*replies: Any, **options: Any) -> tuple[Any, FakeBackend]:
    """LangChain's agent with a tool of the Hub, and the backend of the tool."""
    backend = FakeBackend(EXPERTS)
    tools = hub_tools("translation", experts=[backend])
    return create_agent(ScriptedLLM([*replies, "Done."]), tools, **options), backend


@pytest.mark.usefixtures("home")
def test_the_middleware_of_langchain_asks_about_tools_of_the_hub() -> None:
    middleware = [HumanInTheLoopMiddleware(interrupt_on={"translation": True})]
    call = call_of("translation", text="hello", tgt_lang="fr")
    agent, backend = translator(call, middleware=middleware, checkpointer=InMemorySaver())
    (interrupt,) = agent.invoke({"messages": "Translate hello"}, THREAD)["__interrupt__"]
    (action,) = interrupt.value["action_requests"]
    assert (action["name"], backend.calls) == ("translation", [])
    edited = {"name": "translation", "args": {"text": "good day", "tgt_lang": "fr"}}
    decisions = {"decisions": [{"type": "edit", "edited_action": edited}]}
    state = agent.invoke(Command(resume=decisions), THREAD)
    assert [call.inputs["text"] for call in backend.calls] == ["good day"]
    assert state["messages"][-2].text.endswith("une phrase")


@pytest.mark.usefixtures("home")
def test_a_limit_of_langchain_stops_tools_of_the_hub() -> None:
    call = {"name": "translation", "args": {"text": "hello", "tgt_lang": "fr"}}
    calls = [AIMessage("", tool_calls=[{**call, "id": str(i)}]) for i in (1, 2)]
    agent, backend = translator(*calls, middleware=[ToolCallLimitMiddleware(run_limit=1)])
    state = agent.invoke({"messages": "Translate hello twice"})
    assert len(backend.calls) == 1
    assert [one.status for one in state["messages"] if one.type == "tool"] == ["success", "error"]
