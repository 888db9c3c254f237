"""A plan's preference: the models of its tasks are chosen by it, and the answer says so."""

import json
from typing import Any

import pytest
from small_agents import plan

from jarvis_agent import JarvisAgent, Run
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

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
