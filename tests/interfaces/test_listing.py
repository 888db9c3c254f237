"""What can be done here: every task type is listed, and the models for one as the selection sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from jarvis_agent.core.errors import ConfigError, MissingExtraError, TransientError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate
from jarvis_agent.interfaces.cli.listing import Inventory, list_models, list_tasks
from jarvis_agent.selection.registry import ModelRegistry
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate


class UnreachableSource:
    """A source that can not be asked."""

    name = "unreachable"

    async def candidates(self, spec: TaskSpec, limit: int) -> list[Candidate]:
        raise TransientError("no answer")


@asynccontextmanager
async def inventory_of(
    candidates: Sequence[Candidate], able: Sequence[str] | FakeBackend, *, offline: bool = True
) -> AsyncIterator[Inventory]:
    """What is there with these models and a backend, or one that runs those of the named tasks and ids."""
    experts = ModelRegistry(
        Settings(offline=offline),
        sources=[FakeSource(candidates)],
        backends=[able if isinstance(able, FakeBackend) else FakeBackend(dict.fromkeys(able, "x"))],
    )
    try:
        yield Inventory(experts)
    finally:
        await experts.aclose()


async def test_every_task_type_is_listed_with_what_it_takes_and_makes() -> None:
    async with inventory_of([], []) as inventory:
        listing = await inventory.tasks()
    assert [line.name for line in listing.tasks] == list(TASKS)
    translation = next(line for line in listing.tasks if line.name == "translation")
    assert translation.takes == ["text", "[src_lang]", "[tgt_lang]"]
    assert translation.makes == ["text"]
    assert not translation.available
    assert translation.how == "no model is installed, and the Hub is not used"


async def test_a_task_with_a_model_here_names_it() -> None:
    async with inventory_of([fake_candidate("translation", "org/mt")], ["translation"]) as inventory:
        lines = {line.name: line for line in (await inventory.tasks()).tasks}
    assert lines["translation"].available
    assert lines["translation"].how == "org/mt (fake)"
    assert not lines["summarization"].available


async def test_a_task_whose_model_can_not_run_says_why() -> None:
    async with inventory_of([fake_candidate("translation", "org/mt")], []) as inventory:
        lines = {line.name: line for line in (await inventory.tasks()).tasks}
    assert not lines["translation"].available
    assert "translation" in lines["translation"].how


async def test_where_no_backend_would_run_a_model_of_the_hub_that_is_said() -> None:
    async with inventory_of([], [], offline=False) as inventory:
        lines = {line.name: line for line in (await inventory.tasks()).tasks}
    assert lines["translation"].how == "no backend here runs it"


async def test_where_an_extra_would_help_its_command_is_given() -> None:
    class Bare(FakeBackend):
        def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
            return str(MissingExtraError(candidate.id, "local"))

    async with inventory_of([], Bare({}), offline=False) as inventory:
        lines = {line.name: line for line in (await inventory.tasks()).tasks}
    assert 'pip install "langchain-hugginggpt[local]"' in lines["translation"].how


async def test_models_are_listed_in_the_order_of_the_selection_and_the_rejected_with_their_reason() -> None:
    few = fake_candidate("translation", "org/few", downloads=1, size=10, license="mit")
    many = fake_candidate("translation", "org/many", downloads=9)
    unable = fake_candidate("translation", "org/unable", backend="elsewhere")
    async with inventory_of([few, many, unable], ["org/few", "org/many"]) as inventory:
        listing = await inventory.models(TASKS["translation"])
    assert [line.id for line in listing.models] == ["org/many", "org/few"]
    line = listing.models[1]
    assert (line.size, line.license, line.source, line.runs_on) == (10, "mit", few.source, "fake")
    assert set(listing.rejected) == {"org/unable"}


async def test_a_task_without_any_model_says_what_to_do() -> None:
    async with inventory_of([], []) as inventory:
        listing = await inventory.models(TASKS["translation"])
    assert listing.models == []
    assert listing.notes


async def test_a_source_that_does_not_answer_hides_nothing_of_the_others() -> None:
    experts = ModelRegistry(
        Settings(offline=True),
        sources=[UnreachableSource(), FakeSource([fake_candidate("translation", "org/mt")])],
        backends=[FakeBackend({"translation": "x"})],
    )
    assert [c.id for c in await Inventory(experts)._local_candidates(TASKS["translation"])] == ["org/mt"]
    await experts.aclose()


def test_an_unknown_task_is_refused_with_those_that_are_close() -> None:
    with pytest.raises(ConfigError, match="object-detection"):
        list_models("objekt-detection", Settings(offline=True))


def test_the_starter_models_are_found_without_a_network() -> None:
    settings = Settings(offline=True)
    lines = {line.name: line for line in list_tasks(settings).tasks}
    assert lines["automatic-speech-recognition"].how == "Systran/faster-whisper-tiny.en (starter)"
    assert lines["canny-control"].available
    (model,) = list_models("ASR", settings).models
    assert (model.id, model.source, model.local) == ("Systran/faster-whisper-tiny.en", "starter", True)
