"""Hard filters, placement and ranking: which candidates are allowed, where they run, in which order."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends import devices
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Task
from jarvis_agent.selection.filters import SelectionQuery, Shortlist, make_shortlist, merge_candidates
from jarvis_agent.selection.placement import Placement, place
from jarvis_agent.testing import FakeBackend

DETECTION, SPEECH, ASR = "object-detection", "text-to-speech", "automatic-speech-recognition"


class Reasoned(FakeBackend):
    """A backend whose answer a function gives."""

    def __init__(self, name: str, reason: Callable[[Candidate], str | None], local: bool) -> None:
        super().__init__({}, name, local=local)
        self._reason = reason

    def unsupported_reason(self, spec: Any, candidate: Candidate) -> str | None:
        return self._reason(candidate)


LOCAL = FakeBackend(dict.fromkeys(TASKS, "x"), "here")
HOSTED = Reasoned("there", lambda one: None if one.providers else "no provider serves it", local=False)


def model(id: str = "a/b", task: str = DETECTION, **fields: Any) -> Candidate:  # noqa: A002
    return Candidate(id=id, task=task, **{"source": "hub", **fields})


def listed(*models: Candidate, args: Any = None, purpose: str = "", **given: Any) -> Shortlist:
    settings = Settings(**{"offline": False, **given})
    task = Task(task=models[0].task, id=0, args=args or {}, purpose=purpose)
    query = SelectionQuery(task, TASKS[task.task], settings)
    return make_shortlist(models, query, [LOCAL, HOSTED])


def ids(found: Shortlist) -> list[str]:
    return [candidate.id for candidate in found.candidates]


FEW, MANY, HERE = model("few", downloads=1), model("many", downloads=9), model("here", local=True)
SERVED = model("served", providers=("fal-ai",))
LARGE = model(size=5_000)
LARGE_SERVED = model(size=5_000, providers=("fal-ai",))
CANNY = model("canny", "canny-control", local=True)
SPACE = model("space", "canny-control", providers=("space",), backend="there")
ENGLISH = model("english", ASR, local=True, languages=("en",))
VOICE, ANY_VOICE = model("english", SPEECH, languages=("en",)), model("any", SPEECH)
EN_FR, FR_EN = (
    model(f"{a}-{b}", "translation", traits=(f"from:{a}", f"to:{b}"), languages=("en", "fr"))
    for a, b in (("en", "fr"), ("fr", "en"))
)
READER = model("reader", "image-to-text", traits=("ocr",), local=True)
BOTH = model("both", "image-to-text", traits=("ocr", "caption"))
CAPTIONER = model("captioner", "image-to-text", traits=("caption",))
SENTIMENT = model("sentiment", "text-classification", traits=("generalist",))
FRENCH: dict[str, Any] = {"args": {"text": "Hi", "src_lang": "en", "tgt_lang": "French"}}

ORDERS: list[tuple[tuple[Candidate, ...], dict[str, Any], list[str]]] = [
    ((FEW, MANY, HERE), {}, ["here", "many", "few"]),
    ((HERE, SERVED), {"policy": "hosted-first"}, ["served", "here"]),
    ((CANNY,), {"policy": "hosted-only"}, ["canny"]),
    ((SPACE,), {}, ["space"]),
    ((ENGLISH, model("every", ASR)), {"purpose": "Chinese"}, ["every", "english"]),
    ((CAPTIONER,), {"args": {"text": "read"}}, ["captioner"]),
    ((SENTIMENT,), {}, ["sentiment"]),
    ((LARGE,), {"memory_budget": 9_000, "device": "cpu"}, ["a/b"]),
    ((LARGE,), {"memory_budget": 5_000, "device": "cpu"}, ["a/b"]),
    ((LARGE,), {"memory_budget": 0, "device": "cpu"}, ["a/b"]),
    ((model(license="MIT"),), {"licenses": ["mit"]}, ["a/b"]),
    ((model(gated=True, local=True),), {}, ["a/b"]),
    ((model(gated=True),), {"hf_token": "hf_x"}, ["a/b"]),
]


def test_allowed_candidates_are_ranked() -> None:
    for models, given, expected in ORDERS:
        assert ids(listed(*models, **given)) == expected, (models, given)


REJECTIONS: list[tuple[tuple[Candidate, ...], dict[str, Any], list[str], str]] = [
    ((HERE,), {"policy": "hosted-only"}, [], "the policy is hosted-only"),
    ((SPACE,), {"policy": "local-only"}, [], "the policy is local-only"),
    ((HERE, model("there")), {"offline": True}, ["here"], "offline mode is on"),
    ((LARGE,), {"max_download": 4_000}, [], "5,000 bytes are more than may be downloaded"),
    ((LARGE,), {"max_download": 0}, [], "JARVIS_MAX_DOWNLOAD sets"),
    ((LARGE,), {"memory_budget": 4_000, "device": "cpu"}, [], "5,000 bytes are more than the 4,000"),
    ((model(license="gpl-3.0"),), {"licenses": ["MIT"]}, [], "its licence is gpl-3.0"),
    ((model(),), {"licenses": ["MIT"]}, [], "it names no licence"),
    ((model(gated=True),), {}, [], "accept its terms at https://huggingface.co/a/b"),
    ((VOICE, ANY_VOICE), {"args": {"text": "你好"}}, ["any"], "zh"),
    ((EN_FR, FR_EN), FRENCH, ["en-fr"], "it translates from fr, and not from en"),
    ((CAPTIONER, READER, BOTH), {"args": {"text": " Read it"}}, ["reader", "both"], "it describes images"),
    (
        (READER, CAPTIONER, BOTH),
        {"args": {"text": "What reads he?"}},
        ["captioner", "both"],
        "it only reads text",
    ),
    ((READER,), {}, [], "it only reads text"),
    ((SENTIMENT,), {"purpose": "spam or not"}, [], "it tells the sentiment alone"),
]


def test_other_candidates_are_rejected_with_a_reason() -> None:
    for models, given, expected, reason in REJECTIONS:
        found = listed(*models, **given)
        assert ids(found) == expected, reason
        assert set(found.rejected) == {candidate.id for candidate in models} - set(expected)
        assert all(reason in said for said in found.rejected.values()), found.rejected


def test_policy_and_limits_decide_where_a_model_runs() -> None:
    cases: list[tuple[Candidate, dict[str, Any], str]] = [
        (SERVED, {"policy": "local-first"}, "here"),
        (SERVED, {"policy": "hosted-first"}, "there"),
        (SERVED, {"policy": "local-only"}, "here"),
        (SERVED, {"policy": "hosted-only"}, "there"),
        (LARGE_SERVED, {"max_download": 4_000}, "there"),
        (LARGE_SERVED.model_copy(update={"local": True}), {"max_download": 4_000}, "here"),
        (LARGE_SERVED, {"memory_budget": 4_000, "device": "cpu"}, "there"),
    ]
    for candidate, given, backend in cases:
        assert [one.backend for one in listed(candidate, **given).candidates] == [backend], given


def test_a_model_too_large_for_the_ram_may_fit_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda name: True)
    monkeypatch.setattr(devices, "_DRIVERS", (__file__,))
    local = LARGE.model_copy(update={"local": True})
    with monkeypatch.context() as unloaded:
        unloaded.delitem(sys.modules, "torch", raising=False)
        assert ids(listed(local, memory_budget=4_000)) == ["a/b"], "GPUs are unknown until torch is imported"
        assert "torch" not in sys.modules
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setattr(devices, "gpu_limits", lambda settings: {"cuda:0": 3_000, "cuda:1": 6_000})
    assert ids(listed(local, memory_budget=4_000)) == ["a/b"]
    assert ids(listed(local, memory_budget=4_000, device="cpu")) == []
    assert ids(listed(model(size=7_000, local=True), memory_budget=4_000)) == []


def placed(candidate: Candidate, *backends: Any, **given: Any) -> Placement | str:
    return place(candidate, TASKS[candidate.task], backends, Settings(**{"offline": False, **given}))


UNSAFE: list[tuple[dict[str, Any], bool]] = [
    ({"tags": ("pytorch",)}, False),
    ({"tags": ("pytorch", "safetensors")}, True),
    ({"tags": ("pytorch",), "size": 7}, True),
    ({"tags": ("pytorch",), "local": True}, True),
    ({"tags": ("pytorch",), "source": "registered"}, True),
    ({"tags": ()}, True),
]


def test_a_hub_model_without_safetensors_does_not_run_here() -> None:
    here = FakeBackend({DETECTION: "x"}, "transformers")
    for fields, runs in UNSAFE:
        found = placed(model(**fields), here)
        assert isinstance(found, Placement) if runs else "JARVIS_ALLOW_PICKLE" in str(found), fields
        assert isinstance(placed(model(**fields), here, allow_pickle=True), Placement)
        served = placed(model(**fields, providers=("fal-ai",)), here, HOSTED)
        assert isinstance(served, Placement)
        assert (served.alternate or served.primary).backend == "there"


NARROW = FakeBackend({}, "narrow")
LACKING = Reasoned("lacking", lambda one: 'it needs the extra "local"', local=True)
BUGGY = Reasoned("buggy", lambda one: one.metadata["missing"], local=True)
PLACEMENTS: list[tuple[Candidate, tuple[Any, ...], str]] = [
    (model(backend="there"), (LOCAL, HOSTED), "no provider serves it"),
    (model(backend="gone"), (LOCAL, HOSTED), "the backend 'gone' is not installed"),
    (model(), (NARROW, HOSTED), "no provider serves it"),
    (model(), (NARROW,), "the backend narrow has no result for object-detection"),
    (model(), (LACKING, HOSTED), 'it needs the extra "local"'),
    (model(), (Reasoned("a", lambda _: "no", True), Reasoned("b", lambda _: "no", True)), "no"),
    (model(), (BUGGY,), "the backend buggy failed to check the model: KeyError: 'missing'"),
]


def test_a_model_that_cannot_run_has_one_clear_reason() -> None:
    for candidate, backends, reason in PLACEMENTS:
        assert placed(candidate, *backends) == reason
    too_large = "its 5,000 bytes are more than may be downloaded"
    assert str(placed(LARGE, NARROW, LOCAL, HOSTED, max_download=4_000)).startswith(too_large)
    assert placed(model(), LOCAL, HOSTED, policy="hosted-only") == "the policy is hosted-only"


def test_a_model_of_several_sources_is_one_candidate() -> None:
    cached = model(source="cache", local=True, path=Path("/c"), revision="abc", size=7, traits=("caption",))
    on_hub = model(downloads=9, likes=3, license="mit", gated=True, revision="def", providers=("fal-ai",),
                   metadata={"providers": {"fal-ai": "y"}})  # fmt: skip
    own = model(source="registered", description="Mine.", traits=("ocr",), backend="mine")
    starter = model(source="starter", local=True, path=Path("/w"), backend="starter")
    local, hosted = Settings(), Settings(policy="hosted-first")
    [one] = merge_candidates([[cached], [on_hub]], local)
    assert (one.local, one.path, one.revision, one.size) == (True, Path("/c"), "abc", 7)
    assert (one.downloads, one.likes, one.license, one.providers) == (9, 3, "mit", ("fal-ai",))
    assert one.metadata == on_hub.metadata
    [one] = merge_candidates([[own], [cached]], local)
    assert (one.description, one.traits, one.backend, one.path) == ("Mine.", ("ocr",), "mine", Path("/c"))
    [here] = merge_candidates([[starter], [on_hub]], local)
    [there] = merge_candidates([[starter], [on_hub]], hosted)
    assert (here.backend, here.local) == ("starter", True)
    assert (there.backend, there.local, there.path) == (None, False, None)
    part, card = ({"base_model": name} for name in ("my/base", "their/base"))
    [one] = merge_candidates([[model(metadata=part)], [model(local=True, metadata=card)]], local)
    assert (one.local, one.metadata) == (True, part), "what the user says of it has precedence"
    both = merge_candidates([[model("x")], [model("y"), model("x")]], local)
    assert [candidate.id for candidate in both] == ["x", "y"]


def test_models_for_tests_of_libraries_are_no_candidates_unless_they_are_asked_for() -> None:
    names = ("hf-internal-testing/tiny-random-detr", "peft-internal-testing/opt", "me/Tiny-Random-vit")
    found = listed(*(model(name, local=True) for name in names), model("me/random-tiny", local=True))
    assert ids(found) == ["me/random-tiny"]
    assert all("has learned nothing" in found.rejected[name] for name in names)
    assert ids(listed(model(names[0], local=True, source="registered"))) == [names[0]]
    task = Task(task=DETECTION, id=0)
    pinned = SelectionQuery(task, TASKS[DETECTION], Settings(), pinned=True)
    assert ids(make_shortlist([model(names[0], local=True)], pinned, [LOCAL])) == [names[0]]


def test_the_users_language_model_is_described_by_its_own_source_alone() -> None:
    own = model("qwen3:8b", source="language-model")
    there = model("qwen3:8b", source="registered", local=True, metadata={"base_url": "http://localhost:1/v1"})
    assert merge_candidates([[own], [there]], Settings()) == [own]
    assert merge_candidates([[there], [own]], Settings()) == [own]


LANGUAGES: list[tuple[list[str], str, dict[str, Any], str | None]] = [
    (["en"], SPEECH, {"text": "你好，世界"}, "zh"),
    (["en", "zh"], SPEECH, {"text": "你好，世界"}, None),
    (["zh"], SPEECH, {"text": "Hello"}, "it knows only zh"),
    (["zh"], SPEECH, {"text": "<resource>-0"}, None),
    ([], SPEECH, {"text": "你好"}, None),
    (["en"], SPEECH, {}, None),
    (["en", "de"], "translation", {"text": "Hello", "tgt_lang": "French"}, "fr"),
    (["en", "fr"], "translation", {"text": "Hello", "src_lang": "en", "tgt_lang": "fr"}, None),
    (["en", "fr"], "translation", {"text": "你好", "tgt_lang": "fr"}, "zh"),
    (["en"], "image-classification", {"image": "你好.png"}, None),
    (["en"], "visual-question-answering", {"image": "a.png", "text": "这是什么？"}, "zh"),
]


@pytest.mark.parametrize(("known", "task", "args", "missing"), LANGUAGES)
def test_a_model_must_know_the_languages_of_its_texts(
    known: list[str], task: str, args: dict[str, Any], missing: str | None
) -> None:
    found = listed(model(task=task, languages=tuple(known)), args=args)
    assert bool(found.candidates) == (missing is None)
    assert missing is None or found.rejected["a/b"].endswith(missing)


def test_a_purpose_names_the_language_of_a_voice() -> None:
    found = listed(VOICE, model("german", SPEECH, languages=("de",)), purpose="a German voice")
    assert ids(found) == ["german"]
    assert found.rejected["english"].endswith("de")
