"""The agent's language model as an expert: chosen for texts, unless that is forbidden or a niche is named."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from doubles.openai_server import OpenAIDouble
from langchain_core.callbacks import BaseCallbackHandler
from langchain_openai import ChatOpenAI

from jarvis_agent import JarvisAgent, Plan, Run, Settings, Task, hf_tools
from jarvis_agent.backends.chat_model import AUDIO_TASKS, IMAGE_TASKS, TEXT_TASKS
from jarvis_agent.core.errors import LLMError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Selection
from jarvis_agent.selection.ranking import OWN_MODEL
from jarvis_agent.selection.sources.language_model import LanguageModelSource
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, first_candidate

SUMMARIZE = Task(task="summarization", id=0, args={"text": "A bridge was built in 1901, and it is red."})


class Traced(BaseCallbackHandler):
    """The names of runs with those of their parents."""

    def __init__(self) -> None:
        self.names: dict[UUID, str] = {}
        self.parents: dict[str, list[str]] = {}

    def _start(self, name: str, run_id: UUID, parent_run_id: UUID | None) -> None:
        self.names[run_id] = name
        self.parents.setdefault(name, []).append(self.names.get(parent_run_id or run_id, ""))

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        self._start(kwargs.get("name") or "", kwargs["run_id"], kwargs["parent_run_id"])

    def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        self._start(kwargs.get("name") or "", kwargs["run_id"], kwargs["parent_run_id"])

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        if kwargs["metadata"].get("jarvis_stage") == "expert":
            self._start("the expert's call", kwargs["run_id"], kwargs["parent_run_id"])


def agent(model: Any, tmp_path: Path, task: Task = SUMMARIZE, **given: Any) -> JarvisAgent:
    fields = ("policy", "licenses", "budget", "offline")
    usual = {"offline": True, "output_dir": tmp_path}
    settings = Settings(**{**usual, **{name: given.pop(name) for name in fields if name in given}})
    return JarvisAgent(
        model=model,
        planner=lambda _: Plan(tasks=[task]),
        responder=lambda _: "Done.",
        settings=settings,
        **given,
    )


def selection_of(run: Run) -> Selection:
    selection = run.results[0].selection
    assert selection is not None, run.results[0].error
    return selection


def scripted(**replies: Any) -> ScriptedLLM:
    return ScriptedLLM({"expert": "It is a red bridge.", "select": first_candidate, **replies})


def test_a_request_with_a_model_at_an_address_never_reaches_the_small_starter_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.txt"
    report.write_text("The bridge was built in 1901. It is red.")
    plan = '[{"task": "summarization", "id": 0, "dep": [-1], "args": {"text": "report.txt"}}]'
    with OpenAIDouble({"plan": plan, "": "It is a red bridge.", "respond": "A red bridge."}) as server:
        monkeypatch.setenv("JARVIS_BASE_URL", server.base_url)
        monkeypatch.chdir(tmp_path)
        settings = Settings(offline=True, output_dir=tmp_path, policy="local-only")
        with JarvisAgent(settings=settings) as by:
            run = by.invoke("Summarise report.txt")
        assert "select" not in server.stages()
    (result,) = run.results
    assert (result.status, result.output) == ("ok", {"summary_text": "It is a red bridge."}), result.error
    assert [(one.model, one.backend) for one in result.attempts] == [("default", "chat-model")]
    assert (selection_of(run).chosen_by, selection_of(run).reason) == ("own", "it is your language model")
    assert run.usage["expert"].calls == 1
    assert run.usage["expert"].input_tokens > 0


def test_its_calls_are_nested_counted_and_within_the_budget(tmp_path: Path) -> None:
    traced, llm = Traced(), scripted()
    with agent(llm, tmp_path) as by:
        run = by.invoke("Sum it up", {"callbacks": [traced]})
    assert run.results[0].output == {"summary_text": "It is a red bridge."}
    assert traced.parents["the expert's call"] == ["scripted"]
    assert traced.parents["scripted"] == ["summarization"]
    assert (run.usage["expert"].calls, run.usage["execute"].hosted_calls) == (1, 1)
    for budget in ({"tokens": 5}, {"hosted_calls": 0}):
        llm = scripted()
        with agent(llm, tmp_path, budget=budget, sources=[LanguageModelSource(llm)]) as by:
            (result,) = by.invoke("Sum it up").results
        assert (result.failure, llm.calls) == ("BudgetError", [])


FORBIDDEN: list[dict[str, Any]] = [
    {"policy": "local-only"},
    {"models": {"summarization": "org/other"}},
    {"sources": [FakeSource([Candidate(id="org/other", task="summarization", backend="fake", local=True)])]},
]


@pytest.mark.parametrize("given", FORBIDDEN)
def test_it_is_not_asked_where_that_is_forbidden_or_one_pinned(given: dict[str, Any], tmp_path: Path) -> None:
    llm = scripted()
    with agent(llm, tmp_path, **given) as by:
        run = by.invoke("Sum it up")
    assert "expert" not in llm.stages()
    assert all(one.model != "scripted" for result in run.results for one in result.attempts)


def test_the_licences_of_models_are_not_asked_of_the_users_own(tmp_path: Path) -> None:
    with agent(scripted(), tmp_path, licenses=("mit",)) as by:
        (result,) = by.invoke("Sum it up").results
    assert result.model == "scripted"


def test_a_specialist_for_the_purpose_that_the_planner_names_makes_it_a_choice(tmp_path: Path) -> None:
    models = [
        Candidate(id=f"org/{name}", task="summarization", backend="fake", description=about, local=True)
        for name, about in (("law", "It summarises contracts of law."), ("news", "It summarises news."))
    ]
    for purpose, chosen in (("contracts of law", "org/law"), ("", "scripted")):
        llm = scripted(select='{"id": "org/law", "reason": "it knows contracts"}')
        backends = [FakeBackend({"org/law": "By law.", "org/news": "New."}), *by_default()]
        by = agent(
            llm,
            tmp_path,
            SUMMARIZE.model_copy(update={"purpose": purpose}),
            sources=[LanguageModelSource(llm), FakeSource(models)],
            backends=backends,
        )
        with by:
            selection = selection_of(by.invoke("Sum up the contract"))
        assert (selection.model, "select" in llm.stages()) == (chosen, bool(purpose))
        assert {one.id for one in selection.candidates} == {"org/law", "org/news", "scripted"}


def by_default() -> list[Any]:
    from jarvis_agent.backends.registry import default_backends

    return default_backends()


def test_a_selector_of_the_user_or_a_failure_gives_the_task_to_another_model(tmp_path: Path) -> None:
    other = Candidate(id="org/other", task="summarization", backend="fake", local=True)
    for llm, options, notes in (
        (scripted(), {"selector": lambda given: "org/other"}, []),
        (scripted(expert=LLMError("no")), {}, ["org/other did this, since scripted failed"]),
    ):
        sources = [LanguageModelSource(llm), FakeSource([other])]
        backends = [FakeBackend({"org/other": "By another."}), *by_default()]
        with agent(llm, tmp_path, sources=sources, backends=backends, **options) as by:
            (result,) = by.invoke("Sum it up").results
        assert (result.model, result.notes) == ("org/other", notes)


def test_tools_have_the_language_model_too(tmp_path: Path) -> None:
    llm = scripted()
    settings = Settings(offline=True, output_dir=tmp_path)
    tool: Any
    [tool] = hf_tools(model=llm, tasks=["summarization"], settings=settings)
    args = {"text": "A bridge was built in 1901.", "length": "one sentence"}
    with tool:
        message = tool.invoke({"type": "tool_call", "id": "1", "name": "summarization", "args": args})
    assert message.artifact["output"] == {"summary_text": "It is a red bridge."}
    assert llm.stages() == ["expert"]


async def listed(model: Any) -> dict[str, tuple[str, ...]]:
    source = LanguageModelSource(model)
    found = [one for spec in TASKS.values() for one in await source.candidates(spec, 9)]
    return {one.task: one.traits for one in found}


async def test_the_tasks_are_those_that_the_model_does() -> None:
    texts = dict.fromkeys(TEXT_TASKS, (OWN_MODEL,))
    assert await listed(scripted()) == texts
    sees = scripted()
    sees.profile = {"image_inputs": True, "audio_inputs": True}
    found = await listed(sees.bind(stop=["x"]))
    assert found.keys() == {*TEXT_TASKS, *IMAGE_TASKS, *AUDIO_TASKS}
    assert {"caption", "ocr"} <= set(found["image-to-text"])
    assert OWN_MODEL not in found["image-to-text"]
    small = await listed(ScriptedLLM([], model_name="llama3.2:1b"))
    assert small == {
        "text-generation": (OWN_MODEL,),
        "translation": (),
        "summarization": (),
        "question-answering": (),
    }


async def test_a_model_is_on_this_machine_if_its_address_is() -> None:
    for address, here in (("http://localhost:11434/v1", True), ("https://example.com/v1", False)):
        model = ChatOpenAI(model="qwen3:8b", base_url=address, api_key="any")
        (found,) = await LanguageModelSource(model).candidates(TASKS["translation"], 9)
        assert (found.id, found.local) == ("qwen3:8b", here)


def test_for_pictures_a_model_on_this_machine_is_preferred(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    task = Task(
        task="visual-question-answering", id=0, args={"text": "What?", "image": str(tmp_path / "a.png")}
    )
    llm = scripted(expert="A square.")
    llm.profile = {"image_inputs": True}
    here = Candidate(id="org/here", task=task.task, backend="fake", local=True)
    backends = [FakeBackend({"org/here": [{"answer": "a circle", "score": 1.0}]}), *by_default()]
    for others, chosen in (([here], "org/here"), ([], "scripted")):
        by = agent(
            llm, tmp_path, task, sources=[LanguageModelSource(llm), FakeSource(others)], backends=backends
        )
        with by:
            run = by.invoke(f"What is in {tmp_path / 'a.png'}?")
        assert run.results[0].model == chosen, run.results[0].error
