"""The budget of a run, whose spending is counted and limited, and the preference of a plan for models."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from durable_agents import THREAD
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from small_agents import CAPTION, DESCRIBE_ALOUD, EXPERTS, plan, small_agent

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Budget
from jarvis_agent.core.types import Usage
from jarvis_agent.llm.tokens import count_tokens
from jarvis_agent.selection.store import Outcome, SelectionStore
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

pytestmark = pytest.mark.usefixtures("home")


def agent_with(budget: Any, *, here: bool = False, **options: Any) -> tuple[JarvisAgent, Any, FakeBackend]:
    """An agent whose experts are hosted; with `here`, there is a second captioner on this machine."""
    far = FakeBackend(EXPERTS, "far", local=False)
    hosted: dict[str, Any] = {"backend": "far", "local": False, "providers": ("far",)}
    models = [fake_candidate(task, f"org/{task}", downloads=9, **hosted) for task in EXPERTS]
    models += [fake_candidate("text-to-speech", "me/here")] if here else []
    settings = {"offline": False, "budget": budget, "selection": "rank", "policy": "hosted-first"}
    parts: Any = {"sources": [FakeSource(models)], "backends": [FakeBackend(EXPERTS), far]}
    agent, llm, _ = small_agent(DESCRIBE_ALOUD, settings=settings, **parts, **options)
    return agent, llm, far


def price(model: str, stage: str, usage: Usage) -> float | None:
    if usage.hosted_calls:
        return 0.25
    return usage.input_tokens * 0.001 if model == "scripted" else None


def test_what_a_run_spends_is_counted() -> None:
    agent, _, _ = agent_with({}, price=price)
    run = agent.invoke("Describe a.jpg aloud")
    assert run.usage["execute"] == Usage(hosted_calls=2, cost=0.5)
    assert run.usage["plan"].hosted_calls == 0
    assert Run.model_validate_json(run.model_dump_json()) == run
    dumped = agent_with({})[0].invoke("Describe a.jpg aloud").model_dump(mode="json")["usage"]
    assert dumped["plan"].keys() == {"calls", "input_tokens", "output_tokens", "cached"}


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"hosted_calls": 1}, "hosted_calls=1, and this call would make it 2"),
        ({"money": 0.4}, "money=0.4, and this call would make it 0.5"),
    ],
)
def test_a_hosted_call_that_would_exceed_the_budget_is_not_made(budget: Any, said: str) -> None:
    agent, _, far = agent_with(budget, price=price, respond=RuntimeError("down"))
    run = agent.invoke("Describe a.jpg aloud")
    assert [result.status for result in run.results] == ["ok", "failed"]
    assert said in str(run.results[1].error)
    assert len(far.calls) == 1
    assert CAPTION in run.answer
    assert run.answer.count(said) == 1


def test_a_model_on_this_machine_takes_the_place_of_a_hosted_one_that_is_too_dear() -> None:
    agent, _, far = agent_with({"hosted_calls": 1}, here=True)
    run = agent.invoke("Describe a.jpg aloud")
    models = [(result.status, result.model) for result in run.results]
    assert models == [("ok", "org/image-to-text"), ("ok", "me/here")]
    assert len(far.calls) == 1


def test_without_tokens_the_run_ends_with_a_report(caplog: pytest.LogCaptureFixture) -> None:
    request = f"Describe a.jpg aloud. {' '.join(f'Word{number}.' for number in range(500))}"
    agent, llm, _ = agent_with({"tokens": 10**6})
    spent = agent.invoke(request).usage["plan"]
    prompts = [sum(count_tokens(str(message.text)) for message in call.messages) for call in llm.calls]
    limit = spent.input_tokens + spent.output_tokens + prompts[1] - 1
    assert prompts[0] <= limit
    agent, llm, _ = agent_with({"tokens": limit})
    run = agent.invoke(request)
    assert llm.stages() == ["plan"]
    assert [result.status for result in run.results] == ["ok", "ok"]
    assert f"the run's budget is tokens={limit:,}, and" in run.answer
    assert CAPTION in run.answer
    assert run.usage.keys() == {"plan", "execute"}
    assert caplog.messages == []
    agent, llm, _ = agent_with({"tokens": 10})
    run = agent.invoke("Describe a.jpg aloud")
    assert (llm.calls, run.results[0].status) == ([], "ok"), "the offline planner planned it"


def test_a_resumed_run_keeps_what_it_has_spent_and_approval_shows_the_price() -> None:
    agent, _, far = agent_with({"hosted_calls": 1}, price=price)
    asking = agent.copy(checkpointer=InMemorySaver(), approve=True)
    (interrupt,) = asking.graph.invoke({"input": "Describe a.jpg aloud"}, THREAD)["__interrupt__"]
    described = [action["description"] for action in interrupt.value["action_requests"]]
    assert described[0] == "image-to-text with org/image-to-text, hosted, for 0.25"
    run = asking.invoke(Command(resume=True), THREAD)
    assert [result.status for result in run.results] == ["ok", "failed"]
    assert len(far.calls) == 1


def test_approval_shows_the_seconds_that_a_model_has_needed(selection_file: Path) -> None:
    kept = SelectionStore(selection_file)
    model, task = "image-to-text/only", "image-to-text"
    for seconds, error in ((2.0, None), (3.0, None), (50.0, "ExpertError")):
        kept.record([Outcome(model, task, error, seconds)])
    agent, _, _ = small_agent(DESCRIBE_ALOUD, checkpointer=InMemorySaver(), approve=True)
    (interrupt,) = agent.graph.invoke({"input": "Describe a.jpg aloud"}, THREAD)["__interrupt__"]
    described = [action["description"] for action in interrupt.value["action_requests"]]
    speech = "text-to-speech with text-to-speech/only, here"
    assert described == [f"{task} with {model}, here, about 2.5 s", speech]


def test_a_caller_of_the_graph_can_only_lower_the_budget() -> None:
    agent, _, _ = agent_with({"hosted_calls": 1})
    for given, expected in ((0, ["failed", "skipped"]), (5, ["ok", "failed"])):
        budget: Any = {"budget": {"hosted_calls": given}}
        state: Any = agent.graph.invoke({"input": "Describe a.jpg aloud"}, context=budget)
        assert [result["status"] for result in state["run"]["results"]] == expected


@pytest.mark.usefixtures("loop_time")
async def test_after_the_seconds_of_its_budget_a_run_ends_with_what_was_done() -> None:
    async def forever(call: Any) -> Any:
        await asyncio.Event().wait()

    agent, _, _ = small_agent(DESCRIBE_ALOUD, {"text-to-speech": forever}, respond=RuntimeError("not asked"))
    context: Any = {"budget": {"seconds": 200}}
    state: Any = await agent.graph.ainvoke({"input": "Describe a.jpg aloud"}, context=context)
    assert [result["status"] for result in state["run"]["results"]] == ["ok", "failed"]
    assert "the run's time was over (200 s). What helps: JARVIS_BUDGET" in state["run"]["results"][1]["error"]
    assert CAPTION in state["messages"][-1].text


def test_a_budget_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_BUDGET", "money=0.5, tokens=20000, seconds=9")
    assert Settings().budget == Budget(money=0.5, tokens=20_000, seconds=9)
    monkeypatch.setenv("JARVIS_BUDGET", "euros=3")
    with pytest.raises(ConfigError, match="JARVIS_BUDGET"):
        Settings()


TASK = "image-to-text"
MODELS = {
    "small": {"local": True, "size": 300_000_000, "downloads": 10},
    "large": {"local": True, "size": 9_000_000_000, "downloads": 1_000},
    "hosted": {"backend": "provider", "local": False, "downloads": 10_000_000},
}


def run_with(preference: str | None, request: str = "Describe a.jpg", **options: Any) -> tuple[Run, Any]:
    rows = json.loads(plan((TASK, [], {"image": "a.jpg"})))
    written = json.dumps({"preference": preference, "tasks": rows})
    llm = ScriptedLLM({"plan": written, "select": '{"id": "hosted", "reason": "liked"}', "respond": "A cat."})
    provider = FakeBackend({TASK: "a cat"}, name="provider", local=False)
    source = FakeSource([fake_candidate(TASK, name, **fields) for name, fields in MODELS.items()])
    agent = JarvisAgent(llm, sources=[source], backends=[FakeBackend({TASK: "a cat"}), provider], **options)
    return agent.invoke(request), llm


@pytest.mark.usefixtures("home")
class TestPreference:
    @pytest.mark.parametrize(
        ("preference", "model"), [("cheapest", "small"), ("fastest", "small"), ("best", "large")]
    )
    def test_it_decides_in_place_of_the_language_model(self, preference: str, model: str) -> None:
        run, llm = run_with(preference, price=lambda name, task, usage: 0.01 * (name == "hosted"))
        assert run.results[0].model == model
        assert {call.stage for call in llm.calls} == {"plan", "respond"}
        assert run.plan.preference == preference
        assert run.answer.splitlines()[-1].startswith("As asked, ")

    def test_local_leaves_out_what_runs_elsewhere(self) -> None:
        run, _ = run_with("local")
        selection = run.results[0].selection
        assert selection is not None
        assert [candidate.id for candidate in selection.candidates] == ["small", "large"]
        assert "hosted" in selection.rejected
        assert run.answer == "A cat.\n\nAs asked, only models on this machine were used."

    def test_without_one_the_language_model_chooses_and_the_answer_has_no_such_line(self) -> None:
        run, _ = run_with(None)
        assert (run.results[0].model, run.answer) == ("hosted", "A cat.")

    def test_the_line_is_in_the_language_of_the_request(self) -> None:
        run, _ = run_with("local", "描述 a.jpg")
        assert run.answer.splitlines()[-1] == "按要求只使用了本机的模型。"
