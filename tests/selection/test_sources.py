"""The user's own models, recommended models, and sources and backends of installed packages."""

import re
from contextlib import aclosing
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent import default_sources
from jarvis_agent.backends import registry as backend_registry
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import ConfigError, NoCandidateError
from jarvis_agent.core.notes import Note
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Task
from jarvis_agent.interfaces.cli.listing import list_models
from jarvis_agent.selection import sources as source_package
from jarvis_agent.selection.advice import recommended, recommended_models
from jarvis_agent.selection.model_registry import ModelRegistry
from jarvis_agent.selection.sources.registered import RegisteredSource
from jarvis_agent.testing import FakeBackend, FakeSource

DETECTION = "object-detection"
DETR = {"id": "my-org/my-detr", "task": DETECTION, "description": "Finds zebras."}


async def only(source: RegisteredSource, task: str = DETECTION) -> Candidate:
    [candidate] = await source.candidates(TASKS[task], 5)
    return candidate


async def test_a_description_becomes_a_candidate() -> None:
    described = {**DETR, "license": "mit", "revision": "v1", "languages": ["en"], "local": True}
    assert await only(RegisteredSource(described)) == Candidate(
        **{**described, "languages": ("en",)}, source="registered"
    )
    source = RegisteredSource(DETR, [{"id": "b", "task": "Object Det"}], [{"id": "c", "task": "translation"}])
    assert [one.id for one in await source.candidates(TASKS[DETECTION], 5)] == ["my-org/my-detr", "b"]
    assert len(await source.candidates(TASKS[DETECTION], 1)) == 1
    several = RegisteredSource({"id": "a", "task": "ASR", "tasks": ["translation", "asr"]})
    assert (await only(several, "automatic-speech-recognition")).id == (await only(several, "translation")).id


async def test_files_of_a_local_model_fill_in_what_is_not_described(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    found = await only(RegisteredSource({**DETR, "path": str(tmp_path)}))
    assert (found.local, found.path, found.size, found.library) == (True, tmp_path, 4, "transformers")
    found = await only(RegisteredSource({**DETR, "path": tmp_path, "library": "mine", "size": 9}))
    assert (found.library, found.size) == ("mine", 9)


async def test_the_address_of_a_model_decides_its_backend() -> None:
    cases: list[tuple[dict[str, str], str, bool]] = [
        ({"url": "https://e.example"}, "hf-inference", False),
        ({"base_url": "http://localhost:11434/v1"}, "chat-model", True),
        ({"base_url": "http://127.0.0.1:8000/v1"}, "chat-model", True),
        ({"base_url": "https://localhost.example.org/v1"}, "chat-model", False),
        ({"space": "http://127.0.0.1:7860"}, "spaces", True),
        ({"space": "org/space"}, "spaces", False),
    ]
    for address, backend, local in cases:
        found = await only(RegisteredSource({**DETR, **address}))
        assert (found.backend, found.local, found.metadata) == (backend, local, address)


WRONG: list[tuple[Any, str]] = [
    (
        {**DETR, "descripton": "x"},
        "descripton: Extra inputs are not permitted; the fields are id, ",
    ),
    ({"task": DETECTION}, "id: Field required"),
    ({"id": "a"}, "task: Field required"),
    ({**DETR, "size": -1}, "size: Input should be greater than or equal to 0"),
    ({**DETR, "url": "file:///etc"}, "url: "),
    ({**DETR, "base_url": "localhost:8000"}, "base_url: "),
    ({**DETR, "task": "object-detektion"}, "there is no task 'object-detektion'; close to it: object-detec"),
    ({**DETR, "task": "qqqq"}, "`jarvis tasks` lists them all"),
    ({**DETR, "path": "/no/such/place"}, "path /no/such/place does not exist"),
    ("my-org/my-detr", "is not a description"),
    ({**DETR, "api_key_env": "sk-secret"}, "api_key_env: "),
]


def test_an_invalid_description_is_explained() -> None:
    for model, message in WRONG:
        with pytest.raises(ConfigError) as caught:
            RegisteredSource([DETR, model])
        assert message in str(caught.value)
        assert str(caught.value).startswith("model 2")
        assert "sk-secret" not in str(caught.value)


async def test_paths_in_yaml_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "detr").mkdir()
    file = tmp_path / "models.yaml"
    parts = "{detector: detr, base_model: org/base, scale: 2}"
    model = f"{{id: mine, task: object-detection, path: detr, metadata: {parts}}}"
    for text in (f"- {model}\n", f"models:\n  - {model}\n"):
        file.write_text(text)
        found = await only(RegisteredSource.from_yaml(file))
        assert found.path == tmp_path / "detr"
        assert found.metadata == {"detector": str(tmp_path / "detr"), "base_model": "org/base", "scale": 2}


def test_an_invalid_yaml_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    cases = {
        "": "cannot be read",
        "models: [": "cannot be read",
        "just: a dict": "lists no models",
        "- {id: a, task: nonsense-task}": "models.yaml: model 1 (a): there is no task 'nonsense-task'",
    }
    for text, message in cases.items():
        if text:
            file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            RegisteredSource.from_yaml(file)
        assert message in str(caught.value)
        assert str(file) in str(caught.value)


class PluginSource(FakeSource):
    def __init__(self, settings: Settings) -> None:
        super().__init__([], "plugin")


class PluginBackend(FakeBackend):
    def __init__(self, settings: Settings, pool: ModelPool) -> None:
        super().__init__({}, "plugin")


def broken(*given: Any) -> None:
    raise RuntimeError("no licence key")


def nothing(*given: Any) -> object:
    return object()


def plugins(monkeypatch: pytest.MonkeyPatch, kind: str, target: str) -> list[Any]:
    """Load an entry point of this module as a source or backend."""
    module = source_package if kind == "model source" else backend_registry
    group = source_package.ENTRY_POINTS if kind == "model source" else "jarvis_agent.backends"
    entry = EntryPoint("mine", f"{__name__}:{target}", group)
    monkeypatch.setattr(module, "plugin_entries", lambda group: [entry] if group == entry.group else [])
    if kind == "model source":
        return list(source_package.default_sources(Settings()))
    return backend_registry.make_backends(Settings(), ModelPool(1))


@pytest.mark.parametrize(("kind", "part"), [("model source", PluginSource), ("backend", PluginBackend)])
def test_packages_add_sources_and_backends(monkeypatch: pytest.MonkeyPatch, kind: str, part: type) -> None:
    found = plugins(monkeypatch, kind, part.__name__)[-1]
    assert (type(found), found.name) == (part, "plugin")
    for target, message in {"broken": "no licence key", "nothing": "`name`", "gone": "be loaded"}.items():
        with pytest.raises(ConfigError, match=f"the {kind} 'mine'") as caught:
            plugins(monkeypatch, kind, target)
        assert message in str(caught.value)


async def test_the_models_file_precedes_all_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "models.yaml"
    file.write_text("- {id: mine, task: object-detection, local: true}")
    monkeypatch.setenv("JARVIS_MODELS_FILE", str(file))
    own, *others = default_sources()
    assert [model.id for model in await own.candidates(TASKS[DETECTION], 5)] == ["mine"]
    monkeypatch.delenv("JARVIS_MODELS_FILE")
    assert [source.name for source in default_sources()] == [source.name for source in others]
    async with aclosing(ModelRegistry(Settings(models_file=file))) as registry:
        listed = await list_models(DETECTION, registry)
    assert "mine" in {*listed.rejected, *(model.id for model in listed.models)}


def test_recommended_models_are_for_tasks_with_models_and_have_ids_of_the_hub() -> None:
    for row in recommended_models():
        assert TASKS[row["task"]].needs_model, row
        assert not TASKS[row["task"]].models_of, row
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", row["model"]), row
        assert row["license"], row
    assert recommended(TASKS["openpose-control"]) == recommended(TASKS["keypoint-detection"]) is not None
    assert recommended(TASKS["crop-image"]) is None


@pytest.mark.parametrize(
    ("task", "args", "model"),
    [
        ("translation", {"text": "Hello", "tgt_lang": "German"}, "google-t5/t5-small"),
        ("translation", {"text": "你好", "tgt_lang": "English"}, "Helsinki-NLP/opus-mt-zh-en"),
        ("translation", {"text": "Hello", "src_lang": "en", "tgt_lang": "zh"}, "Helsinki-NLP/opus-mt-en-zh"),
        ("translation", {"text": "<resource>-0", "tgt_lang": "English"}, "Helsinki-NLP/opus-mt-mul-en"),
        ("text-to-speech", {"text": "Hello"}, "facebook/mms-tts-eng"),
        ("text-to-speech", {"text": "你好"}, None),
    ],
)
async def test_the_first_model_knows_the_language(task: str, args: dict[str, str], model: str | None) -> None:
    async with aclosing(ModelRegistry(Settings(), sources=[], backends=[])) as registry:
        with pytest.raises(NoCandidateError) as caught:
            await registry.selector.select(
                Task(task=task, id=0, args=args), TASKS[task], RunContext(request="")
            )
    notes = [Note.of(text) for text in caught.value.note.advice]
    proposed = [note.values["model"] for note in notes if "start with" in note]
    assert proposed == ([model] if model else [])
