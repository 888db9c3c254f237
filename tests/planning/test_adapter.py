"""Plans in text, which a small language model writes: nothing but a plan of the request is possible."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import notation
import pytest
from langchain_core.language_models import FakeListChatModel
from small_llm import INSTALL, WEIGHTS

from jarvis_agent.agent.stages import make_stages
from jarvis_agent.core.context import ChatTurn
from jarvis_agent.core.errors import ExpertError, PlanError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Resource
from jarvis_agent.llm import chat_model
from jarvis_agent.llm.llama_cpp import LlamaCpp
from jarvis_agent.planning.inputs import PlanRequest
from jarvis_agent.planning.offline import OfflinePlanner, adapter
from jarvis_agent.planning.offline.adapter import AdaptedModel, base_path
from jarvis_agent.planning.offline.network import NetworkPlan, load_network
from jarvis_agent.planning.offline.plan_text import PlanText
from jarvis_agent.planning.offline.sequences import TokenizedRequest

pytestmark = pytest.mark.starter

VOICE = notation.FILES / "zh_documentation.txt"
MAIL = "Dear Eva, the bridge at the mill was closed on Monday, and no one knows when it opens. Yours, Jo"


def tokenize(request: Any) -> TokenizedRequest:
    vocabulary = load_network(Settings(offline=True)).vocabulary
    return TokenizedRequest(vocabulary, PlanRequest.of(request))


def read(request: Any, text: str, offered: Any = TASKS) -> list[dict[str, Any]]:
    """The tasks and their arguments of a plan in text."""
    tokens = tokenize(request)
    tasks, _ = tokens.plan_of(PlanText(tokens).read(text, offered))
    return [{"task": task.task, **task.args} for task in tasks]


def test_plans_of_people_are_the_same_after_writing_and_reading() -> None:
    count = 0
    for record in notation.read_records(VOICE):
        tokens = tokenize(record.as_request("zh").inputs)
        actions = tokens.actions_of(record.plans[0], record.left_out)
        if actions is not None:
            text = PlanText(tokens)
            assert tokens.plan_of(text.read(text.write(actions))) == tokens.plan_of(actions)
            count += 1
    assert count > 20


def test_files_answers_and_long_texts_are_short() -> None:
    turn = ChatTurn(
        "what is written on sign.png", "Closed on Mondays", (Resource(kind="image", name="sign.png"),)
    )
    request = {"input": f"Translate it into French. Then read this out: {MAIL}", "chat_history": [turn]}
    tokens = tokenize(request)
    text = PlanText(tokens)
    said = "translate a1 | tgt_lang=French\nspeak Dear Eva, … Yours, Jo"
    tasks, _ = tokens.plan_of(text.read(said))
    assert [task.args for task in tasks] == [
        {"text": "Closed on Mondays", "tgt_lang": "French"},
        {"text": MAIL},
    ]
    assert text.prompt.startswith(
        "@1 image sign -1\n< what is written on @1\na1 Closed on Mondays\n> Translate"
    )
    assert len(text.write(text.read(said))) < 100


@pytest.mark.parametrize(
    "text",
    [
        "paint @1",
        "detect @2",
        "detect #0",
        "detect @1\nspeak #1",
        "transcribe @1",
        "draw a house",
        "detect",
        "detect @1 | @1",
        "detect @1\n- a house",
        "caption @1\ncrop @1 | #0\nspeak #1",
        "",
    ],
)
def test_what_is_no_plan_of_the_request_is_refused(text: str) -> None:
    assert read("How many dogs are in a.jpg?", "detect @1")
    with pytest.raises(PlanError):
        read("How many dogs are in a.jpg?", text)


def test_only_offered_tasks_are_read() -> None:
    with pytest.raises(PlanError):
        read("How many dogs are in a.jpg?", "detect @1", ["image-to-text"])


class ModelDouble(LlamaCpp):
    """Writes one text, or fails."""

    def __init__(self, text: str | None, likely: float = 1.0) -> None:
        self._text, self._likely = text, likely

    def complete(self, prompt: str, grammar: str, most: int) -> list[tuple[bytes, float]]:
        if self._text is None:
            raise ExpertError("no memory")
        return [(self._text.encode(), math.log(self._likely))]


@pytest.mark.parametrize("text", [None, "paint @1", "detect @7"])
def test_the_network_plans_if_the_model_fails(text: str | None) -> None:
    network, request = load_network(Settings(offline=True)), PlanRequest.of("Describe a.jpg")
    assert AdaptedModel(network, ModelDouble(text)).write(request, TASKS) == network.write(request, TASKS)


def test_the_likelier_plan_is_taken_and_two_voices_are_surer_than_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, request = load_network(Settings(offline=True)), PlanRequest.of("Describe a.jpg")
    alone = replace(network.write(request, TASKS), probability=0.9)
    monkeypatch.setattr(network, "write", lambda request, offered: alone)

    def write(text: str, likely: float) -> NetworkPlan:
        return AdaptedModel(network, ModelDouble(text, likely)).write(request, TASKS)

    same, weak, strong = write("caption @1", 0.6), write("detect @1", 0.01), write("detect @1", 1.0)
    assert (same.tasks, same.probability > max(0.6, alone.probability)) == (alone.tasks, True)
    assert (weak.tasks, weak.probability < alone.probability) == (alone.tasks, True)
    assert [task.task for task in strong.tasks] == ["object-detection"]
    assert strong.probability < 0.5


def test_an_agent_whose_model_has_an_adapter_plans_with_it(tmp_path: Path) -> None:
    model = FakeListChatModel(responses=["a plan"])
    assert not isinstance(make_stages(model, Settings()).planner, OfflinePlanner)
    file = tmp_path / adapter.BASE.partition(":")[2]
    with file.open("wb") as empty:
        empty.truncate(adapter.BASE_SIZE)

    class WithPath(FakeListChatModel):
        path: Path = file

    planner = make_stages(WithPath(responses=["a plan"]), Settings()).planner
    assert isinstance(planner, OfflinePlanner)
    assert base_path(planner._settings) == (file if find_spec("xllamacpp") else None)


def test_the_model_is_used_where_it_is_installed_and_wanted(tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / adapter.BASE.partition(":")[2]
    with file.open("wb") as empty:
        empty.truncate(adapter.BASE_SIZE)
    (tmp_path / "adapter.gguf").touch()
    monkeypatch.setattr(adapter, "ADAPTER", tmp_path / "adapter.gguf")
    monkeypatch.setattr(chat_model, "find_spec", lambda name: name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(adapter, "BASE", adapter.BASE.replace("Qwen/", "nobody/"))
    assert base_path(Settings(model=f"gguf:{file}")) == file
    assert base_path(Settings()) is None
    assert base_path(Settings(model="gguf:/no/file.gguf")) is None
    (tmp_path / "jarvis_agent").mkdir()
    (tmp_path / "jarvis_agent" / "config.toml").write_text(f'model = "gguf:{file}"\n')
    assert base_path(Settings()) == file
    assert base_path(Settings(model="none")) is None
    with file.open("ab") as longer:
        longer.write(b"another model")
    assert base_path(Settings()) is None


@pytest.mark.skipif(WEIGHTS is None or find_spec("xllamacpp") is None, reason=INSTALL)
class TestGrammar:
    """What another model, which knows no plans, can write."""

    @pytest.mark.parametrize("prompt", ["Once upon a time", "{", "detect @2"])
    def test_nothing_but_a_plan_can_be_written(self, prompt: str) -> None:
        model = LlamaCpp.of(WEIGHTS, 512, 0)
        tokens = tokenize({"input": "", "files": [Resource(kind="image", name='a "b".jpg')]})
        text = PlanText(tokens)
        offered = ["object-detection", "image-to-text", "automatic-speech-recognition"]
        written = b"".join(part for part, _ in model.complete(prompt, text.grammar(offered), 200)).decode()
        assert text.read(written, offered)

    def test_an_unreadable_grammar_or_adapter_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ExpertError):
            LlamaCpp.of(WEIGHTS, 512, 0).complete("", "root ::= nothing", 9)
        with pytest.raises(ExpertError):
            LlamaCpp.of(WEIGHTS, 512, 0, tmp_path / "none.gguf").load()
