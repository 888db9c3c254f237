"""`jarvis tasks` and `jarvis models`: the task types and the models that can run them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from importlib.util import find_spec
from typing import Any

import httpx
import pytest
from command_line import jarvis
from fake_agent import drawn

from jarvis_agent.core.errors import ConfigError, MissingExtraError, TransientError, install_command
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.interfaces.cli.doctor import Report
from jarvis_agent.interfaces.cli.listing import (
    ModelLine,
    ModelList,
    TaskLine,
    TaskList,
    list_models,
    list_tasks,
    model_table,
    task_table,
)
from jarvis_agent.selection.model_registry import ModelRegistry
from jarvis_agent.selection.ranking import WEIGHTS
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate


class UnreachableSource:
    """A source that cannot be queried."""

    name = "unreachable"

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        raise TransientError("no answer")


class BrokenSource(FakeSource):
    """A plug-in with an error in it."""

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        raise KeyError("x")


class BrokenBackend(FakeBackend):
    """A plug-in with an error in it."""

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        raise KeyError("x")


class WithoutExtra(FakeBackend):
    """A backend whose extra is not installed."""

    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return str(MissingExtraError(candidate.id, "local"))


@asynccontextmanager
async def registry_of(
    candidates: Sequence[Candidate] = (), able: Sequence[str] | FakeBackend = (), *, offline: bool = True
) -> AsyncIterator[ModelRegistry]:
    """A registry of these models and a backend that runs those of the named tasks and ids."""
    backend = able if isinstance(able, FakeBackend) else FakeBackend(dict.fromkeys(able, "x"))
    sources = [UnreachableSource(), FakeSource(candidates)]
    registry = ModelRegistry(Settings(offline=offline), sources=sources, backends=[backend])
    yield registry
    await registry.aclose()


async def test_every_task_type_is_listed_with_its_inputs_and_outputs() -> None:
    async with registry_of() as registry:
        listing = await list_tasks(registry)
    assert [line.name for line in listing.tasks] == list(TASKS)
    translation = next(line for line in listing.tasks if line.name == "translation")
    assert (translation.takes, translation.makes) == (["text", "[src_lang]", "[tgt_lang]"], ["text"])


HUB = "https://huggingface.co"
TRANSLATOR = fake_candidate("translation", "org/mt")


@pytest.mark.parametrize(
    ("candidates", "able", "offline", "where", "how"),
    [
        ([], [], True, "", "no model installed, Hub not available"),
        ([TRANSLATOR], ["translation"], True, "fake", "org/mt"),
        ([TRANSLATOR], [], True, "", "translation"),
        ([], [], False, "", "no backend here runs it"),
        ([], WithoutExtra({}), False, "", install_command("local")),
    ],
)
async def test_a_task_names_what_runs_it_or_why_nothing_does(
    candidates: list[Candidate], able: Any, offline: bool, where: str, how: str
) -> None:
    async with registry_of(candidates, able, offline=offline) as registry:
        (line,) = (await list_tasks(registry, "Translation")).tasks
    assert (line.available, line.where) == (bool(where), where)
    assert how in line.how


async def test_a_broken_plug_in_leaves_what_others_run_and_shared_models_are_named() -> None:
    depth = fake_candidate("depth-estimation", "org/depth")
    backends = [BrokenBackend({}, "broken"), FakeBackend({"depth-control": "x"})]
    sources = [BrokenSource([]), FakeSource([depth.model_copy(update={"backend": None})])]
    async with aclosing(ModelRegistry(Settings(), sources=sources, backends=backends)) as registry:
        (control,) = (await list_tasks(registry, "depth-control")).tasks
        (estimation,) = (await list_tasks(registry, "depth-estimation")).tasks
    assert (control.where, control.how) == ("fake", "org/depth")
    assert (estimation.available, "the backend broken failed" in estimation.how) == (False, True)


async def test_models_are_listed_in_the_order_of_selection_with_the_rejected_ones() -> None:
    few = fake_candidate("translation", "org/few", downloads=1, size=10, license="mit")
    many = fake_candidate("translation", "org/many", downloads=9)
    unable = fake_candidate("translation", "org/unable", backend="elsewhere")
    async with registry_of([few, many, unable], ["org/few", "org/many"]) as registry:
        listing = await list_models("translation", registry)
        empty = await list_models("summarization", registry)
    assert [line.id for line in listing.models] == ["org/many", "org/few"]
    line = listing.models[1]
    assert (line.size, line.license, line.source, line.runs_on) == (10, "mit", few.source, "fake")
    assert set(listing.rejected) == {"org/unable", "source unreachable"}
    assert empty.models == []
    assert empty.notes


async def test_the_order_for_a_purpose_is_explained_on_one_screen() -> None:
    general = [
        fake_candidate("translation", f"org/general-{n}", downloads=10**6, local=False) for n in range(30)
    ]
    legal = fake_candidate("translation", "org/legal-contracts", downloads=50, local=False)
    async with registry_of([*general, legal], ["translation"], offline=False) as registry:
        asked = await list_models("translation", registry, "legal contracts")
        plain = await list_models("translation", registry)
    assert (asked.models[0].id, plain.reason) == ("org/legal-contracts", "")
    assert asked.models[0].factors.keys() == WEIGHTS.keys()
    lines = drawn(model_table(asked)).splitlines()
    assert len(lines) < 24
    assert "org/legal-contracts: it is the first of 8 candidates (largest lead: purpose)." in lines


@pytest.mark.parametrize("count", [0, 9])
async def test_a_task_without_models_gets_advice_other_than_the_same_command(count: int) -> None:
    unable = [fake_candidate("text-to-video", f"org/{n}", backend="elsewhere") for n in range(count)]
    async with registry_of(unable) as registry:
        (note,) = (await list_models("text-to-video", registry)).notes
    assert "What helps: " in note
    assert "a model to start with is Wan-AI/" in note
    assert "`jarvis models" not in note


async def test_an_unknown_task_is_refused_with_those_that_are_close() -> None:
    async with registry_of() as registry:
        with pytest.raises(ConfigError, match="object-detection"):
            await list_models("objekt-detection", registry)


def test_the_commands_find_the_starter_models_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_OFFLINE", "1")
    listing = TaskList.model_validate_json(jarvis("tasks", "--json").stdout)
    lines = {line.name: line for line in listing.tasks}
    speech = lines["automatic-speech-recognition"]
    assert (speech.where, speech.how) == ("starter", "Systran/faster-whisper-tiny.en")
    assert lines["canny-control"].available
    assert listing.notes == ["Hugging Face: not used: JARVIS_OFFLINE or HF_HUB_OFFLINE is set"]
    (model,) = ModelList.model_validate_json(jarvis("models", "ASR", "--json").stdout).models
    assert (model.id, model.source, model.local) == ("Systran/faster-whisper-tiny.en", "starter", True)


@pytest.mark.skipif(find_spec("torch") is None, reason="torch runs the model")
@pytest.mark.parametrize("answers", [True, False])
def test_models_of_the_hub_are_there_if_it_answers(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    def get(url: str, **_: Any) -> httpx.Response:
        if answers:
            return httpx.Response(200, request=httpx.Request("GET", url))
        raise httpx.ConnectError("no route")

    monkeypatch.setattr(httpx, "get", get)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    listing = TaskList.model_validate_json(jarvis("tasks", "--json").stdout)
    of_hub = [line.name for line in listing.tasks if line.where == "Hub"]
    assert ("translation" in of_hub) == bool(of_hub) == answers
    report = Report.model_validate_json(jarvis("doctor", "--json").stdout)
    (counted,) = (check.found for check in report.checks if check.name == "tasks")
    assert counted.startswith(f"{sum(line.available for line in listing.tasks)} of {len(TASKS)} task types")
    assert listing.notes == ([] if answers else [f"Hugging Face: {HUB} cannot be reached (ConnectError)"])


def test_one_task_is_shown_in_detail_and_output_to_a_pipe_is_not_wrapped() -> None:
    shown = jarvis("tasks", "asr").stdout
    asr = TASKS["automatic-speech-recognition"]
    for text in (asr.name, "Systran/faster-whisper-tiny.en (starter)", asr.description):
        assert f" {text}" in shown
    assert set(TASKS) <= set(jarvis("tasks").stdout.replace(",", " ").split())


# The tables

EVIL = "[red]x[/red]\x1b[2J\x07"


def shown(table: Any, *rows: tuple[str, ...]) -> None:
    """Each row has these words, and no text controls the terminal."""
    lines = drawn(table).splitlines()
    assert not [words for words in rows if not any(all(word in line for word in words) for line in lines)]
    assert not {"\x1b", "\x07"} & set(drawn(table))


def test_tasks_that_run_have_a_row_and_the_others_follow_by_reason() -> None:
    usual = {"category": EVIL, "takes": ["text"], "makes": ["text"], "description": "Do it."}
    ways = {
        "translation": ("cache", "org/mt"),
        "summarization": ("starter", EVIL),
        "text-to-video": ("", "no model"),
        "text-to-3d": ("", "no model"),
        "fill-mask": ("", str(MissingExtraError("a model", "local"))),
    }
    tasks = [
        TaskLine(name=name, available=bool(where), where=where, how=how, **usual)
        for name, (where, how) in ways.items()
    ]
    shown(
        task_table(TaskList(tasks=tasks, notes=["the Hub is down"])),
        ("translation", "cache", "org/mt"),
        ("summarization", "starter", "[red]x[/red]"),
        ("2 of 5 task types",),
        ("(no model): text-to-video, text-to-3d",),
        ('"local"',),
        ("the Hub is down",),
    )


def test_models_are_numbered_and_the_rejected_follow_with_their_reasons() -> None:
    usual = {"source": "hub", "downloads": 9, "license": "mit", "local": False, "runs_on": "transformers"}
    models = [
        ModelLine(id="org/first", size=1_500_000_000, **usual),
        ModelLine(id=EVIL, size=None, experience="12 calls, 92 % ok", **usual),
    ]
    shown(
        model_table(ModelList(task=EVIL, models=models, rejected={EVIL: "it is gated"}, notes=[EVIL])),
        ("1", "org/first", "1.5 GB"),
        ("2", "[red]x[/red]", "size unknown"),
        ("[red]x[/red]", "it is gated"),
        ("[red]x[/red]: 12 calls, 92 % ok",),
    )
