"""The user's own models, and sources that packages bring."""

import asyncio
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent import default_sources
from jarvis_agent.backends import registry as table
from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate
from jarvis_agent.interfaces.cli.listing import survey_models
from jarvis_agent.selection import sources as catalog
from jarvis_agent.selection.sources import load_plugin_sources
from jarvis_agent.selection.sources.base import ModelLookup, ModelSource
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.selection.sources.registered import RegisteredSource
from jarvis_agent.testing import FakeBackend

DETECTION = TASKS["object-detection"]
DETR = {"id": "my-org/my-detr", "task": "object-detection", "description": "Finds zebras."}


async def only(source: RegisteredSource, task: str = "object-detection") -> Candidate:
    [candidate] = await source.candidates(TASKS[task], 5)
    return candidate


async def test_a_model_is_registered_by_its_description() -> None:
    candidate = await only(
        RegisteredSource({**DETR, "license": "mit", "revision": "v1", "languages": ["en"]})
    )
    assert candidate == Candidate(
        id="my-org/my-detr",
        task="object-detection",
        source="registered",
        description="Finds zebras.",
        license="mit",
        revision="v1",
        languages=("en",),
    )


async def test_models_come_one_by_one_or_in_lists() -> None:
    other = {"id": "b", "task": "object-detection"}
    source = RegisteredSource(DETR, [other], [{"id": "c", "task": "translation"}])
    assert [c.id for c in await source.candidates(DETECTION, 5)] == ["my-org/my-detr", "b"]
    assert [c.id for c in await source.candidates(DETECTION, 1)] == ["my-org/my-detr"]


async def test_a_local_model_is_told_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    candidate = await only(RegisteredSource({**DETR, "path": str(tmp_path)}))
    assert (candidate.local, candidate.path, candidate.size) == (True, tmp_path, 4)
    assert candidate.library == "transformers"


async def test_what_the_user_says_of_a_local_model_counts_more_than_its_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    candidate = await only(RegisteredSource({**DETR, "path": tmp_path, "library": "mine", "size": 9}))
    assert (candidate.library, candidate.size) == ("mine", 9)


async def test_a_model_of_a_backend_of_ones_own_may_be_said_to_be_here() -> None:
    described = {**DETR, "backend": "mine"}
    assert (await only(RegisteredSource(described | {"local": True}))).local
    assert not (await only(RegisteredSource(described))).local


async def test_an_endpoint_and_traits_are_kept() -> None:
    model = {"id": "mine", "task": "image-to-text", "url": "https://e.example", "traits": ["ocr", "caption"]}
    candidate = await only(RegisteredSource(model), "image-to-text")
    assert candidate.metadata == {"url": "https://e.example"}
    assert candidate.traits == ("ocr", "caption")


@pytest.mark.parametrize(
    ("at", "backend", "here"),
    [
        ({"url": "https://e.example"}, "hf-inference", False),
        ({"base_url": "http://localhost:11434/v1"}, "openai", True),
        ({"base_url": "http://127.0.0.1:8000/v1"}, "openai", True),
        ({"base_url": "https://localhost.example.org/v1"}, "openai", False),
        ({"space": "http://127.0.0.1:7860"}, "spaces", True),
        ({"space": "org/space"}, "spaces", False),
    ],
)
async def test_where_a_model_is_says_what_runs_it(at: dict[str, str], backend: str, here: bool) -> None:
    candidate = await only(RegisteredSource({**DETR, **at}))
    assert (candidate.backend, candidate.local) == (backend, here)
    assert candidate.metadata == at


async def test_one_model_may_do_several_tasks() -> None:
    source = RegisteredSource({"id": "a", "task": "ASR", "tasks": ["translation", "asr"]})
    assert (await only(source, "automatic-speech-recognition")).id == "a"
    assert (await only(source, "translation")).task == "translation"


def test_a_key_that_stands_where_its_variable_should_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        RegisteredSource({**DETR, "api_key_env": "sk-secret"})
    assert "secret" not in str(caught.value)


async def test_a_task_may_be_given_by_an_alias() -> None:
    assert (await only(RegisteredSource({"id": "a", "task": "Object Det"}))).task == "object-detection"


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({**DETR, "descripton": "x"}, 'field "descripton" is unknown; did you mean "description"?'),
        ({**DETR, "zzz": "x"}, "the fields are id, task, tasks, description"),
        ({"task": "object-detection"}, 'field "id" is missing'),
        ({"id": "a"}, 'field "task" is missing'),
        ({**DETR, "size": -1}, 'field "size": Input should be greater than or equal to 0 (it is -1)'),
        ({**DETR, "url": "file:///etc"}, 'field "url"'),
        (
            {**DETR, "task": "object-detektion"},
            "there is no task 'object-detektion'; close to it: object-detection",
        ),
        ({**DETR, "task": "qqqq"}, "`jarvis tasks` lists them all"),
        ({**DETR, "path": "/no/such/place"}, "path /no/such/place does not exist"),
        ("my-org/my-detr", "is not a description"),
        ({**DETR, "api_key_env": "sk-secret"}, "the name of an environment variable"),
        ({**DETR, "base_url": "localhost:8000"}, 'field "base_url"'),
    ],
)
def test_a_wrong_description_is_explained(model: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RegisteredSource([DETR, model])
    assert told in str(caught.value)
    assert str(caught.value).startswith("model 2")


@pytest.mark.parametrize("form", ["- {model}\n", "models:\n  - {model}\n"])
async def test_models_are_read_from_yaml_with_paths_relative_to_it(tmp_path: Path, form: str) -> None:
    (tmp_path / "detr").mkdir()
    file = tmp_path / "models.yaml"
    file.write_text(form.replace("{model}", "{id: mine, task: object-detection, path: detr}"))
    assert (await only(RegisteredSource.from_yaml(file))).path == tmp_path / "detr"


async def test_parts_are_relative_to_the_yaml_file_too_unless_they_are_ids(tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    file = tmp_path / "models.yaml"
    file.write_text(
        "- {id: mine, task: object-detection, metadata: {detector: people, base_model: org/base}}"
    )
    metadata = (await only(RegisteredSource.from_yaml(file))).metadata
    assert metadata == {"detector": str(tmp_path / "people"), "base_model": "org/base"}


async def test_what_is_left_empty_is_not_said(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text("- {id: mine, task: object-detection, metadata: {options: null, scale: 2}}")
    assert (await only(RegisteredSource.from_yaml(file))).metadata == {"scale": 2}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models: [", "cannot be read"),
        ("just: a dict", "lists no models"),
        ("- {id: a, task: nonsense-task}", "models.yaml: model 1 (a): there is no task 'nonsense-task'"),
    ],
)
def test_a_wrong_yaml_file_is_named(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        RegisteredSource.from_yaml(file)
    assert told in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_yaml_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        RegisteredSource.from_yaml(tmp_path / "none.yaml")


class PluginSource:
    name = "plugin"

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    async def candidates(self, spec: Any, limit: int) -> list[Candidate]:
        return []


def broken(settings: Settings) -> None:
    raise RuntimeError("no licence key")


def no_source(settings: Settings) -> object:
    return object()


def plug_in(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    entry = EntryPoint("mine", f"{__name__}:{target}", catalog.ENTRY_POINTS)
    monkeypatch.setattr(
        catalog, "entry_points", lambda group: [entry] if group == catalog.ENTRY_POINTS else []
    )


def test_a_package_brings_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, "PluginSource")
    settings = Settings()
    [source] = load_plugin_sources(settings)
    assert isinstance(source, PluginSource)
    assert source.settings is settings


@pytest.mark.parametrize(
    ("target", "told"),
    [("broken", "no licence key"), ("no_source", "lacks"), ("missing", "can not be loaded")],
)
def test_a_source_that_can_not_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, target: str, told: str
) -> None:
    plug_in(monkeypatch, target)
    with pytest.raises(ConfigError, match="the model source 'mine'") as caught:
        load_plugin_sources(Settings())
    assert told in str(caught.value)


class PluginBackend(FakeBackend):
    def __init__(self, settings: Settings, pool: ModelPool) -> None:
        super().__init__({}, "plugin")


def broken_backend(settings: Settings, pool: ModelPool) -> None:
    raise RuntimeError("no licence key")


def no_backend(settings: Settings, pool: ModelPool) -> object:
    return object()


def backends_with(monkeypatch: pytest.MonkeyPatch, target: str) -> list[Backend]:
    entry = EntryPoint("mine", f"{__name__}:{target}", "jarvis_agent.backends")
    monkeypatch.setattr(table, "entry_points", lambda group: [entry])
    return table.make_backends(Settings(), ModelPool(1))


def test_a_package_brings_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    assert backends_with(monkeypatch, "PluginBackend")[-1].name == "plugin"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("broken_backend", "no licence key"),
        ("no_backend", "lacks `name`, `local`, `unsupported_reason`"),
        ("gone", "can not be loaded"),
    ],
)
def test_a_backend_that_can_not_be_loaded_is_named(
    monkeypatch: pytest.MonkeyPatch, target: str, told: str
) -> None:
    with pytest.raises(ConfigError, match="the backend 'mine'") as caught:
        backends_with(monkeypatch, target)
    assert told in str(caught.value)


async def test_the_models_file_is_added_to_the_other_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models.yaml"
    file.write_text("- {id: mine, task: object-detection, local: true}")
    monkeypatch.setenv("JARVIS_MODELS_FILE", str(file))
    own, *others = default_sources()
    assert [model.id for model in await own.candidates(TASKS["object-detection"], 5)] == ["mine"]
    monkeypatch.delenv("JARVIS_MODELS_FILE")
    assert [source.name for source in default_sources()] == [source.name for source in others]
    listed = await asyncio.to_thread(survey_models, "object-detection", Settings(models_file=file))
    assert "mine" in {*listed.rejected, *(model.id for model in listed.models)}


def test_sources_keep_to_their_protocols() -> None:
    assert isinstance(RegisteredSource(), ModelSource)
    assert not isinstance(RegisteredSource(), ModelLookup)
    assert isinstance(HubSource(Settings()), ModelSource)
    assert isinstance(HubSource(Settings()), ModelLookup)
