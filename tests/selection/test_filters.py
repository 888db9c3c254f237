"""Which candidates stay, and in which order."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends import devices
from jarvis_agent.backends.base import Backend
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Task
from jarvis_agent.selection.filters import SelectionQuery, Shortlist, merge_candidates, shortlist
from jarvis_agent.selection.placement import place
from jarvis_agent.testing import FakeBackend

LOCAL = FakeBackend(dict.fromkeys(TASKS, "x"), "here", local=True)


class Elsewhere(FakeBackend):
    """Runs what providers serve."""

    def unsupported_reason(self, spec: Any, candidate: Candidate) -> str | None:
        return None if candidate.providers else "no provider serves it"


HOSTED = Elsewhere({}, "there", local=False)
DETECTION = TASKS["object-detection"]
BACKENDS: list[Backend] = [LOCAL, HOSTED]


def settings(**fields: Any) -> Settings:
    return Settings(**{"offline": False, **fields})


def model(id: str = "a/b", task: str = "object-detection", **fields: Any) -> Candidate:  # noqa: A002
    return Candidate(id=id, task=task, **{"source": "hub", **fields})


def listed(
    *models: Candidate,
    task: str = "object-detection",
    args: dict[str, Any] | None = None,
    wanted: Any = None,
    language: str | None = None,
    **given: Any,
) -> Shortlist:
    case = SelectionQuery(
        Task(task=task, id=0, args=args or {}), TASKS[task], settings(**given), wanted or {}, language
    )
    return shortlist(models, case, BACKENDS)


def order(found: Shortlist) -> list[str]:
    return [candidate.id for candidate in found.candidates]


def test_what_is_here_comes_first_then_downloads_decide() -> None:
    models = (model("few", downloads=1), model("many", downloads=9), model("here", local=True))
    assert order(listed(*models)) == ["here", "many", "few"]


def test_hosted_first_turns_the_order_round() -> None:
    models = (model("here", local=True, downloads=99), model("served", providers=("fal-ai",)))
    found = listed(*models, policy="hosted-first")
    assert order(found) == ["served", "here"]
    assert [candidate.backend for candidate in found.candidates] == ["there", "here"]


@pytest.mark.parametrize(
    ("policy", "backend"),
    [("local-first", "here"), ("hosted-first", "there"), ("local-only", "here"), ("hosted-only", "there")],
)
def test_the_policy_decides_where_a_model_runs(policy: str, backend: str) -> None:
    [candidate] = listed(model(providers=("fal-ai",)), policy=policy).candidates
    assert candidate.backend == backend


def test_a_policy_shuts_the_other_places_out() -> None:
    found = listed(model(local=True), policy="hosted-only")
    assert found.candidates == []
    assert "the policy is hosted-only" in found.rejected["a/b"]


def test_algorithms_run_whatever_the_policy() -> None:
    canny = model("opencv/canny", "canny-control", local=True)
    assert order(listed(canny, task="canny-control", policy="hosted-only")) == ["opencv/canny"]


def test_what_is_too_large_to_download_is_asked_for_elsewhere() -> None:
    large = {"size": 5_000, "providers": ("fal-ai",)}
    assert listed(model(**large), max_download=4_000).candidates[0].backend == "there"
    assert listed(model(**large, local=True), max_download=4_000).candidates[0].backend == "here"
    assert "5,000 bytes" in listed(model(size=5_000), max_download=4_000).rejected["a/b"]
    assert "JARVIS_MAX_DOWNLOAD=0" in listed(model(), max_download=0).rejected["a/b"]


def test_what_is_too_large_for_memory_is_asked_for_elsewhere() -> None:
    small = {"device": "cpu", "memory_budget": 4_000}
    large = model(size=5_000, local=True, providers=("fal-ai",))
    found = listed(large, **small)
    assert found.candidates[0].backend == "there"
    assert "5,000 bytes are more than the 4,000" in found.placements["a/b"]
    assert "JARVIS_MEMORY_BUDGET" in listed(model(size=5_000, local=True), **small).rejected["a/b"]
    assert listed(model(size=4_000, local=True), **small).candidates[0].backend == "here"


def test_a_budget_of_nothing_keeps_no_model_and_refuses_none() -> None:
    assert order(listed(model(size=5_000, local=True), device="cpu", memory_budget=0)) == ["a/b"]


def test_a_gpu_may_hold_what_ram_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setattr(devices, "find_spec", lambda name: True)
    monkeypatch.setattr(devices, "gpu_limits", lambda settings: {"cuda:0": 3_000, "cuda:1": 6_000})
    large = model(size=5_000, local=True)
    assert order(listed(large, memory_budget=4_000)) == ["a/b"]
    assert order(listed(large, memory_budget=4_000, device="cpu")) == []
    assert order(listed(model(size=7_000, local=True), memory_budget=4_000)) == []


def test_nothing_is_too_large_where_gpus_are_not_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(devices, "find_spec", lambda name: True)
    monkeypatch.setattr(devices, "_DRIVERS", (__file__,))
    assert order(listed(model(size=5_000, local=True), memory_budget=4_000)) == ["a/b"]
    assert "torch" not in sys.modules


@pytest.mark.parametrize(
    ("fields", "runs"),
    [
        ({"tags": ("pytorch",)}, False),
        ({"tags": ("pytorch", "safetensors")}, True),
        ({"tags": ("pytorch",), "size": 7}, True),
        ({"tags": ("pytorch",), "local": True}, True),
        ({"tags": ("pytorch",), "source": "registered"}, True),
        ({"tags": ()}, True),
    ],
)
def test_a_model_of_the_hub_without_safetensors_is_not_run_here(fields: dict[str, Any], runs: bool) -> None:
    here = FakeBackend({DETECTION.name: "x"}, "transformers", local=True)
    found = place(model(**fields), DETECTION, [here], settings())
    assert bool(found.backends) is runs
    assert runs or "JARVIS_ALLOW_PICKLE" in found.rejection
    assert place(model(**fields), DETECTION, [here], settings(allow_pickle=True)).backends


def test_a_model_without_safetensors_may_run_where_it_is_hosted() -> None:
    here = FakeBackend({DETECTION.name: "x"}, "transformers", local=True)
    served = model(tags=("pytorch",), providers=("fal-ai",))
    assert [one.name for one in place(served, DETECTION, [here, HOSTED], settings()).backends] == ["there"]


def test_what_needs_no_model_leaves_the_machine_only_where_it_may() -> None:
    space = model("org/space", "canny-control", providers=("space",), backend="there")
    assert order(listed(space, task="canny-control")) == ["org/space"]
    found = listed(space, task="canny-control", policy="local-only")
    assert found.rejected == {"org/space": "the policy is local-only"}


def test_offline_only_what_is_here_stays() -> None:
    found = listed(model("here", local=True), model("there"), offline=True)
    assert order(found) == ["here"]
    assert "offline" in found.rejected["there"]


@pytest.mark.parametrize(
    ("license_", "reason"),
    [("mit", None), ("MIT", None), ("gpl-3.0", "its licence is gpl-3.0"), (None, "it names no licence")],
)
def test_only_allowed_licences_stay(license_: str | None, reason: str | None) -> None:
    told = listed(model(license=license_), licenses=["MIT"]).rejected.get("a/b")
    assert told is None if reason is None else reason in (told or "")


def test_a_gated_model_needs_a_token_or_to_be_here() -> None:
    assert "accept its terms at https://huggingface.co/a/b" in listed(model(gated=True)).rejected["a/b"]
    assert order(listed(model(gated=True, local=True))) == ["a/b"]
    assert order(listed(model(gated=True), hf_token="hf_x")) == ["a/b"]


def test_a_model_of_another_language_goes() -> None:
    voices = (model("english", "text-to-speech", languages=("en",)), model("any", "text-to-speech"))
    found = listed(*voices, task="text-to-speech", args={"text": "你好"})
    assert order(found) == ["any"]
    assert "zh" in found.rejected["english"]


def test_a_translator_of_another_direction_goes() -> None:
    ways = [
        model(
            f"opus-{one}-{other}",
            "translation",
            traits=(f"from:{one}", f"to:{other}"),
            languages=("en", "fr"),
        )
        for one, other in (("en", "fr"), ("fr", "en"))
    ]
    found = listed(*ways, task="translation", args={"text": "Hi", "src_lang": "en", "tgt_lang": "French"})
    assert order(found) == ["opus-en-fr"]
    assert found.rejected["opus-fr-en"] == "it translates from fr, and not from en"


def test_recordings_prefer_models_that_know_the_requests_language() -> None:
    english = model("english", "automatic-speech-recognition", local=True, languages=("en",))
    every = model("every", "automatic-speech-recognition")
    spoken = {"task": "automatic-speech-recognition", "language": "zh"}
    assert order(listed(english, every, **spoken)) == ["every", "english"]
    assert order(listed(english, **spoken)) == ["english"]


READER = model("reader", "image-to-text", traits=("ocr",), local=True)
BOTH = model("both", "image-to-text", traits=("ocr", "caption"))
TELLER = model("teller", "image-to-text", traits=("caption",))


@pytest.mark.parametrize(
    ("wanted", "models", "kept"),
    [
        ({"ocr": True}, (TELLER, READER, BOTH), ["reader", "both"]),
        ({"ocr": True}, (TELLER,), ["teller"]),
        ({"ocr": False}, (READER, TELLER, BOTH), ["teller", "both"]),
        ({"ocr": False}, (READER,), []),
        ({}, (READER, TELLER), ["teller", "reader"]),
        ({}, (READER,), ["reader"]),
    ],
)
def test_readers_read_and_tellers_tell(
    wanted: dict[str, bool], models: tuple[Candidate, ...], kept: list[str]
) -> None:
    found = listed(*models, task="image-to-text", wanted=wanted)
    assert order(found) == kept
    assert set(found.rejected) == {candidate.id for candidate in models} - set(kept)


def test_a_candidate_that_names_its_backend_has_no_other() -> None:
    at = place(model(backend="there"), DETECTION, BACKENDS, settings())
    assert (at.primary, at.rejection) == (None, "no provider serves it")
    at = place(model(backend="gone"), DETECTION, BACKENDS, settings())
    assert (at.primary, at.rejection) == (None, "the backend 'gone' is not installed")


def test_that_a_backend_never_does_the_task_is_told_only_if_none_does() -> None:
    narrow = FakeBackend({}, "narrow")
    at = place(model(), DETECTION, [narrow, HOSTED], settings())
    assert at.rejection == "no provider serves it"
    at = place(model(), DETECTION, [narrow], settings())
    assert at.rejection == "the backend narrow has no result for object-detection"


def test_that_an_extra_is_missing_is_always_told() -> None:
    lacking = FakeBackend({}, "lacking", local=True)
    lacking.unsupported_reason = lambda spec, candidate: 'it needs the extra "local"'  # type: ignore[method-assign]
    at = place(model(), DETECTION, [lacking, HOSTED], settings())
    assert at.rejection == 'lacking: it needs the extra "local"; there: no provider serves it'


def test_equal_reasons_are_told_once() -> None:
    others = [FakeBackend({}, name, local=True) for name in ("one", "two")]
    for backend in others:
        backend.unsupported_reason = lambda spec, candidate: "no such library"  # type: ignore[method-assign]
    assert place(model(), DETECTION, others, settings()).rejection == "no such library"


def test_where_the_settings_forbid_a_place_only_they_are_told_of_it() -> None:
    narrow = FakeBackend({}, "narrow", local=True)
    at = place(model(size=5_000), DETECTION, [narrow, LOCAL, HOSTED], settings(max_download=4_000))
    assert set(at.rejections) == {"here", "there"}


def test_a_model_of_several_sources_is_one_candidate() -> None:
    cached = model(
        source="cache", local=True, path=Path("/cache/b"), revision="abc", size=7, library="transformers"
    )
    on_hub = model(downloads=9, likes=3, license="mit", gated=True, revision="def", providers=("fal-ai",),
                   metadata={"providers": {"fal-ai": {"id": "x", "task": "y"}}})  # fmt: skip
    [one] = merge_candidates([[cached], [on_hub]], settings())
    assert (one.local, one.path, one.revision, one.size) == (True, Path("/cache/b"), "abc", 7)
    assert (one.downloads, one.likes, one.license, one.providers) == (9, 3, "mit", ("fal-ai",))
    assert one.metadata == on_hub.metadata
    assert [c.id for c in merge_candidates([[model("x")], [model("y"), model("x")]], settings())] == [
        "x",
        "y",
    ]


def test_where_models_are_hosted_first_the_served_one_gives_the_place() -> None:
    starter = model(source="starter", local=True, path=Path("/w"), backend="starter")
    on_hub = model(providers=("fal-ai",), revision="def")
    [here] = merge_candidates([[starter], [on_hub]], settings())
    [there] = merge_candidates([[starter], [on_hub]], settings(policy="hosted-first"))
    assert (here.backend, here.local) == ("starter", True)
    assert (there.backend, there.local, there.path) == (None, False, None)


def test_the_users_words_on_a_model_count_most() -> None:
    own = model(source="registered", description="Mine.", traits=("ocr",), backend="mine")
    cached = model(source="cache", local=True, path=Path("/c"), description="Theirs.", traits=("caption",))
    [one] = merge_candidates([[own], [cached]], settings())
    assert (one.description, one.traits, one.backend) == ("Mine.", ("ocr",), "mine")
    assert (one.local, one.path) == (True, Path("/c"))
