"""From a task to a Selection: sources, filters, the choice of the chain, pins, and advice without a model."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.decisions import ChoiceAnswer
from langchain_core.runnables import RunnableLambda
from small_agents import Judge

from jarvis_agent.core.context import RunContext
from jarvis_agent.core.errors import (
    ConfigError,
    LLMError,
    MissingExtraError,
    NoCandidateError,
    TransientError,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Selection, Task
from jarvis_agent.selection.chain import ModelChoice, selection_chain
from jarvis_agent.selection.selector import ModelSelector, at_revision, read_pins
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.selection.sources.registered import RegisteredSource
from jarvis_agent.testing import FakeBackend, FakeSource, HubDouble, ScriptedLLM

DETECTION, SPEECH, CAPTION = "object-detection", "text-to-speech", "image-to-text"
LOCAL = FakeBackend(dict.fromkeys(TASKS, "x"), "here")
HOSTED = FakeBackend(dict.fromkeys(TASKS, "x"), "there", local=False)
REQUEST = "Find the zebras in z.jpg"


def model(id: str, task: str = DETECTION, **fields: Any) -> Candidate:  # noqa: A002
    return Candidate(id=id, task=task, **{"source": "fake", **fields})


THREE = [model("org/a", downloads=5), model("org/b", downloads=50), model("org/c", downloads=500)]


def selector(
    models: Any, *, llm: ScriptedLLM | None = None, chain: Any = None, backends: Any = None, pins: Any = None,
    **given: Any,
) -> ModelSelector:  # fmt: skip
    """A selector over a list of models, or a list of sources."""
    settings = Settings(**{"offline": False, **given})
    sources = [FakeSource(models)] if all(isinstance(one, Candidate) for one in models) else models
    chain = selection_chain(llm, settings=settings) if llm else chain
    return ModelSelector(sources, backends or [LOCAL], settings, chain, pins=pins)


async def select(
    by: ModelSelector,
    task: str = DETECTION,
    request: str = REQUEST,
    context: Any = None,
    purpose: str = "",
    **args: Any,
) -> Selection:
    asked = Task(task=task, id=0, args={"image": "z.jpg", **args}, purpose=purpose)
    return await by.select(asked, TASKS[task], context or RunContext(request=request))


def says(reply: Any) -> ScriptedLLM:
    return ScriptedLLM({"select": reply})


def order(selection: Selection) -> list[tuple[str, str | None]]:
    return [(candidate.id, candidate.backend) for candidate in selection.candidates]


async def test_the_llm_chooses_one_of_those_shown_the_rest_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.selection.selector.SHOWN", 2)
    fits = "org/zebra-finder"
    llm, context = says(f'{{"id": "{fits}", "reason": "it knows zebras"}}'), RunContext(request=REQUEST)
    models = [*THREE, model(fits, downloads=1)]
    selection = await select(selector(models, llm=llm), context=context, purpose="zebras")
    assert (selection.model, selection.reason, selection.chosen_by) == (fits, "it knows zebras", "llm")
    assert selection.candidates[0].id == fits
    assert len(selection.candidates) == 2
    assert selection.task == DETECTION
    [call] = llm.calls
    assert call.stage == "select"
    shown = [name in call.prompt for name in (fits, "org/a", "org/b", "org/c")]
    assert (REQUEST in call.prompt, shown[0], sum(shown)) == (True, True, 2)


async def test_without_a_valid_choice_the_ranking_decides_and_says_why() -> None:
    unasked = says(AssertionError("the LLM was asked"))
    local = model("h", local=True)
    cases: list[tuple[list[Candidate], dict[str, Any], str, str, str]] = [
        (THREE[:1], {"llm": unasked}, "org/a", "only", "the only model"),
        (THREE, {"llm": unasked, "selection": "rank"}, "org/c", "rank", "largest lead: popularity"),
        (THREE, {}, "org/c", "rank", "it is the first of 3 candidates (largest lead: popularity)"),
        ([*THREE, local], {}, "h", "rank", "it is the first of 4 candidates (largest lead: machine)"),
        (THREE, {"llm": says('{"id": "made/up"}')}, "org/c", "rank", "'made/up', which is not in the list"),
        (THREE, {"llm": says("I cannot decide.")}, "org/c", "rank", "not in the list"),
        (THREE, {"llm": says(LLMError("no answer"))}, "org/c", "rank", "the selector could not choose: "),
    ]
    for models, given, chosen, by, reason in cases:
        selection = await select(selector(models, **given))
        assert (selection.model, selection.chosen_by) == (chosen, by), reason
        assert reason in selection.reason
        assert len(selection.candidates) == len(models)


def pick_a(inputs: dict[str, Any]) -> Any:
    assert set(inputs) == {"input", "task", "candidates", "files", "chat_history"}
    return {"id": inputs["candidates"][-1].id, "reason": "mine"}


async def test_a_custom_selector_replaces_the_chain_and_the_ranking_follows_its_failure() -> None:
    async def hang(inputs: Any) -> str:
        return str(await asyncio.Event().wait())

    chain: Any
    for chain in (pick_a, *map(RunnableLambda, (lambda _: "org/a", lambda _: ModelChoice(id="org/a")))):
        selection = await select(selector(THREE, chain=chain))
        assert (selection.model, selection.chosen_by) == ("org/a", "selector")
    for chain, reason in ((lambda _: 7, "no model"), (lambda _: 1 / 0, "ZeroDivisionError")):
        failed = await select(selector(THREE, chain=chain))
        assert reason in failed.reason
        assert reason in failed.note, "the run says that the user's selector failed"
    late = await select(selector(THREE, chain=hang, llm_timeout=0.05))
    assert (late.model, "did not finish within" in late.reason) == ("org/c", True)
    with pytest.raises(ConfigError, match="give a LangChain Runnable or a function"):
        selector(THREE, chain=object())


def judge(confidence: float) -> Judge:
    """A decision model that finds "org/b" the best."""

    def answer(state: Any, question: Any) -> ChoiceAnswer:
        assert state["request"] == REQUEST
        shares = dict.fromkeys(question.criteria, (1 - confidence) / 2) | {"org/b": confidence}
        return ChoiceAnswer(type="choice", choice="org/b", probabilities=shares, confidence=confidence)

    return Judge(model="judge", answer=answer)


async def test_a_decision_model_chooses_and_where_it_is_unsure_the_ranking_does() -> None:
    sure = await select(selector(THREE, chain=judge(0.8)))
    assert (sure.model, sure.chosen_by, sure.note) == ("org/b", "selector", "")
    assert "judge is sure by 80%" in sure.reason
    unsure = await select(selector(THREE, chain=judge(0.4)))
    assert (unsure.model, unsure.chosen_by) == ("org/c", "rank")
    assert "judge is not sure (40%)" in unsure.note


async def test_one_run_makes_a_limited_number_of_choices_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.selection.selector.MAX_PARALLEL", 3)
    running, peak = 0, 0

    async def choose(inputs: Any) -> str:
        nonlocal running, peak
        running, peak = running + 1, max(peak, running + 1)
        await asyncio.sleep(0.01)  # other choices, which pass through threads, begin meanwhile
        running -= 1
        return "org/a"

    by, context = selector(THREE, chain=choose), RunContext(request=REQUEST)
    found = await asyncio.gather(*(select(by, context=context) for _ in range(20)))
    assert ({one.chosen_by for one in found}, peak) == ({"selector"}, 3)


class OddSource(FakeSource):
    """Lists what it is given, or raises it."""

    def __init__(self, listed: Any, name: str) -> None:
        super().__init__([], name)
        self._listed = listed

    async def candidates(self, spec: Any, limit: int) -> Any:
        if isinstance(self._listed, BaseException):
            raise self._listed
        return self._listed


async def test_a_failing_source_is_recorded_and_the_others_are_used() -> None:
    class NoCards(FakeSource):
        def estimate(self, spec: Any) -> list[Candidate]:
            return []

        async def find(self, spec: Any, model_id: str, revision: str | None) -> None:
            return None

        async def describe(self, candidate: Candidate) -> str:
            raise KeyError("x")

    failing = [
        OddSource(TransientError("the Hub is away"), "hub"),
        OddSource(KeyError("id"), "plugin"),
        OddSource(asyncio.CancelledError(), "gone"),
        OddSource([{"id": "org/row"}], "rows"),
        NoCards(THREE),
    ]
    selection = await select(selector(failing, llm=says('{"id": "org/a"}')))
    assert (selection.model, "the selector could not choose: KeyError: 'x'" in selection.reason) == (
        "org/c",
        True,
    )
    assert selection.rejected == {
        "source hub": "the Hub is away",
        "source plugin": "KeyError: 'id'",
        "source gone": "the source gone was cancelled from within",
        "source rows": "TypeError: it lists something that is not a Candidate: {'id': 'org/row'}",
    }


class NeedsExtra(FakeBackend):
    def unsupported_reason(self, spec: Any, candidate: Candidate) -> str | None:
        return str(MissingExtraError("speech", "starter"))


async def test_without_a_model_the_error_says_why_and_what_helps() -> None:
    unable, failing = [FakeBackend({}, "local-models")], OddSource(TransientError("no route"), "hub")
    detections = {"models": THREE, "backends": unable}
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"models": []}, "no source lists any", "torch"),
        (detections, "org/a: the backend local-models has no result", "HTTPS_PROXY"),
        (detections, "`jarvis models object-detection`", "and 1 more"),
        ({"models": [model(f"m{n}") for n in range(9)], "backends": unable}, "and 5 more", "m8"),
        (detections, "with HF_TOKEN set", "with a network"),
        (detections, "Spaces (JARVIS_SPACES=search) need none", "with a network"),
        ({"models": [failing]}, "no route", "HF_TOKEN"),
        ({**detections, "offline": True}, "HF_HUB_OFFLINE", "HF_TOKEN"),
        ({"models": THREE, "backends": [NeedsExtra({})]}, "What helps: pip install", "pip install pip"),
    ]
    for given, said, not_said in cases:
        with pytest.raises(NoCandidateError, match="no model can do object-detection here") as caught:
            await select(selector(**given))
        assert said in str(caught.value)
        assert not_said not in str(caught.value)
        assert str(caught.value).count("starter]") <= 4


READER = model("reader", CAPTION, traits=("ocr",))
CAPTIONER = model("captioner", CAPTION, traits=("caption",))
CLASSIFIER = model("classifier", "image-classification")


async def test_the_text_argument_decides_between_caption_and_text() -> None:
    cases = [
        ([READER, CAPTIONER], {}, "captioner", ""),
        ([CAPTIONER, READER], {"text": "read"}, "reader", ""),
        ([CAPTIONER], {"text": "read"}, "captioner", "no model here is made for reading text"),
        ([READER, CLASSIFIER], {"text": "What is it?"}, "classifier", "classified instead"),
    ]
    for models, args, chosen, note in cases:
        selection = await select(selector(models), CAPTION, "Read z.jpg to me", **args)
        assert selection.model == chosen
        assert (note in selection.note) if note else not selection.note
        assert selection.task == (CLASSIFIER.task if chosen == "classifier" else CAPTION)
    with pytest.raises(NoCandidateError, match="no model can do image-to-text"):
        await select(selector([READER]), CAPTION, "Describe z.jpg")


async def test_a_selection_says_why_the_model_runs_where_it_does() -> None:
    large = "hosted by fal-ai; its 3,000,000,000 bytes are more than may be downloaded. What helps: "
    large += "JARVIS_MAX_DOWNLOAD sets this limit"
    served: dict[str, Any] = {"providers": ("fal-ai",)}
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"local": True}, "local-first", "it is on this machine"),
        ({"size": 1_500_000_000}, "local-first", "it is downloaded to this machine (1.5 GB)"),
        ({"size": 3_000_000_000, **served}, "local-first", large),
        (served, "hosted-first", "hosted by fal-ai, as the policy is hosted-first"),
    ]
    for fields, policy, placement in cases:
        by = selector([model("a/b", **fields)], backends=[LOCAL, HOSTED], policy=policy)
        assert (await select(by)).placement == placement
    algorithm = selector([model("opencv/canny", "canny-control", local=True)])
    assert (await select(algorithm, "canny-control")).placement == ""


async def test_the_other_side_of_each_model_is_the_last_fallback() -> None:
    both = [model(f"org/{name}", local=True, path=Path("/m"), providers=("fal-ai",)) for name in "ab"]
    given: dict[str, Any] = {"models": both, "backends": [LOCAL, HOSTED]}
    selection = await select(selector(**given))
    assert order(selection) == [("org/a", "here"), ("org/b", "here"), ("org/a", "there"), ("org/b", "there")]
    assert [one.local for one in selection.candidates] == [True, True, False, False]
    assert {name for _, name in order(await select(selector(**given, policy="local-only")))} == {"here"}
    assert order(await select(selector(**given, policy="hosted-first")))[0] == ("org/a", "there")


async def test_a_task_also_uses_the_models_of_the_task_it_shares_them_with() -> None:
    models = [model("org/depth", "depth-estimation", local=True), model("org/own", "depth-control")]
    found = await select(selector(models), "depth-control")
    assert [one.id for one in found.candidates] == ["org/depth", "org/own"]
    assert {one.task for one in found.candidates} == {"depth-control"}


async def test_a_pinned_model_is_used_without_a_choice(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    spaces = FakeBackend(dict.fromkeys(TASKS, "x"), "spaces", local=False)
    llm, used = says(AssertionError("the LLM was asked")), {}
    for pin in ("org/a@v2", "my/own@v1", str(tmp_path), "space:org/space"):
        selection = await select(selector(THREE, llm=llm, backends=[LOCAL, spaces], pins={"object-det": pin}))
        assert selection.chosen_by == "pinned"
        used[pin] = selection.candidates[0]
    listed, unlisted, folder, space = used.values()
    assert (listed.id, listed.revision, listed.downloads, listed.backend) == ("org/a", "v2", 5, "here")
    assert (unlisted.id, unlisted.revision, unlisted.source) == ("my/own", "v1", "pinned")
    assert (folder.path, folder.local, folder.library) == (tmp_path, True, "transformers")
    assert (space.id, space.backend) == ("org/space", "spaces")


async def test_a_pin_is_checked_against_the_settings_but_not_the_request() -> None:
    english = [model("org/english", SPEECH, languages=("en",), license="gpl")]
    pins = {SPEECH: "org/english"}
    assert (await select(selector(english, pins=pins), SPEECH, text="你好")).model == "org/english"
    with pytest.raises(NoCandidateError, match="text-to-speech, cannot be used: its licence is gpl"):
        await select(selector(english, pins=pins, licenses=["mit"]), SPEECH)


def test_pins_are_parsed_once_and_errors_are_immediate() -> None:
    assert read_pins({DETECTION: "facebook/detr@v1.0", "Image Cls": "google/vit"}) == {
        DETECTION: model("facebook/detr", source="pinned", revision="v1.0"),
        "image-classification": model("google/vit", "image-classification", source="pinned"),
    }
    for text in ("/no/such/model", "./nothing", "~/nothing-at-all", "", " "):
        with pytest.raises(ConfigError, match="neither an id of the Hub nor an existing path"):
            read_pins({DETECTION: text})
    with pytest.raises(ConfigError, match="close to it: object-detection"):
        read_pins({"object-detektion": "a/b"})


def test_a_pin_that_may_be_no_path_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert read_pins({DETECTION: "org/name"})[DETECTION].path == tmp_path / "org/name"
    assert read_pins({DETECTION: "org/name@v1"}, paths=False) == {
        DETECTION: model("org/name", source="pinned", revision="v1")
    }
    for text in (str(tmp_path), "./org", "org/name/", "org/../org", "~/x", "space:org/name", "", "a b/c"):
        with pytest.raises(ConfigError, match="no id of a model on the Hub"):
            read_pins({DETECTION: text}, paths=False)


def test_a_pinned_revision_is_local_only_if_it_is_downloaded() -> None:
    revisions = {"revisions": {"v1": "/v1"}}
    cached = model("a/b", local=True, path=Path("/main"), revision="abc", metadata=revisions)
    assert at_revision(cached, None) is cached
    downloaded, remote = at_revision(cached, "v1"), at_revision(cached, "v2")
    assert (downloaded.local, downloaded.path) == (True, Path("/v1"))
    assert (remote.local, remote.path, remote.revision) == (False, None, "v2")
    registered = model("a/b", local=True, path=Path("/mine"), revision="v3")
    assert at_revision(registered, "v3") is registered


async def test_models_of_the_hub_are_ranked_with_the_users_own(hub: HubDouble) -> None:
    hub.add_model("org/served", pipeline_tag=DETECTION, downloads=9, providers={"hf-inference": {}})
    hub.add_model("org/alone", pipeline_tag=DETECTION, downloads=99)
    own = RegisteredSource({"id": "mine", "task": DETECTION, "downloads": 10})
    mixed = await select(selector([own, HubSource(Settings(offline=False))]), request="What is in z.jpg?")
    assert [candidate.id for candidate in mixed.candidates] == ["org/alone", "mine", "org/served"]


async def test_a_pinned_model_outside_the_list_is_looked_up(hub: HubDouble) -> None:
    hub.add_model("my/own", providers={"hf-inference": {"task": DETECTION}})

    def pinned(model: str) -> ModelSelector:
        return selector([HubSource(Settings(offline=False))], pins={DETECTION: model})

    selection = await select(pinned("my/own"))
    assert selection.candidates[0].providers == ("hf-inference",)
    with pytest.raises(NoCandidateError, match="no source knows the model my/typo"):
        await select(pinned("my/typo"))
    hub.answer("/api", status=503)
    selection = await select(pinned("my/own"))
    assert (selection.model, "503" in selection.rejected["source hub"]) == ("my/own", True)


FORBIDDEN = {"gate", "library", "download", "place", "licence"}
"""Defects that filters know; the others, such as "domain" and "size", are up to the ranking."""

CASES = [
    json.loads(line) for line in (Path(__file__).parents[1] / "data/selection.jsonl").read_text().splitlines()
]


class LocalModels(FakeBackend):
    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        known = candidate.library in ("transformers", "diffusers")
        return None if known else f"no backend for models of {candidate.library}"


class HostedModels(FakeBackend):
    def unsupported_reason(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        return None if candidate.providers else "no provider serves it"


async def choose(case: dict[str, Any]) -> set[str] | None:
    """The defects of the model that is chosen, or None if all are refused."""
    models = [dict(one) for one in case["candidates"]]
    defects = {one["id"]: set(one.pop("wrong")) for one in models}
    selector = ModelSelector(
        [FakeSource(Candidate(task=case["task"], **one) for one in models)],
        [LocalModels({}, "local models"), HostedModels({}, "hosted models", local=False)],
        Settings(**{"offline": False, "max_download": 5_000_000_000, **case["settings"]}),
    )
    task = Task(task=case["task"], id=0, args=case["args"])
    try:
        found = await selector.select(task, TASKS[case["task"]], RunContext(case["request"], specs=TASKS))
    except NoCandidateError:
        return None
    return defects[found.model]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_no_model_is_chosen_that_cannot_run_or_is_not_allowed(case: dict[str, Any]) -> None:
    chosen = await choose(case)
    allowed = any(not one["wrong"] for one in case["candidates"])
    assert (chosen is not None) == allowed
    assert not (chosen or set()) & FORBIDDEN
