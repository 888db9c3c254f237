"""From a task to a ladder of candidates."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.base import Backend
from jarvis_agent.backends.hosted.inference_providers import HostedBackend
from jarvis_agent.core.errors import (
    ConfigError,
    LLMError,
    MissingExtraError,
    NoCandidateError,
    TransientError,
)
from jarvis_agent.core.request import RunContext
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Selection, Task
from jarvis_agent.selection.chain import selection_chain
from jarvis_agent.selection.selector import ModelSelector
from jarvis_agent.selection.sources.base import ModelSource
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.selection.sources.registered import RegisteredSource
from jarvis_agent.testing import FakeBackend, FakeSource, HubDouble, ScriptedLLM

DETECTION, SPEECH = "object-detection", "text-to-speech"
EVERYTHING = FakeBackend(dict.fromkeys(TASKS, "x"), "here")


def model(id: str, task: str = DETECTION, **fields: Any) -> Candidate:  # noqa: A002
    return Candidate(id=id, task=task, **{"source": "fake", **fields})


THREE = [model("org/a", downloads=5), model("org/b", downloads=50), model("org/c", downloads=500)]


def selector(
    *sources: ModelSource,
    llm: ScriptedLLM | None = None,
    backends: list[Backend] | None = None,
    pins: dict[str, str] | None = None,
    **given: Any,
) -> ModelSelector:
    settings = Settings(**{"offline": False, **given})
    chain = selection_chain(llm, settings=settings) if llm else None
    return ModelSelector(sources, backends or [EVERYTHING], settings, chain, pins=pins)


async def select(
    chosen_by: ModelSelector, task: str = DETECTION, request: str = "Find the zebras in z.jpg", **args: Any
) -> Selection:
    return await chosen_by.select(
        Task(task=task, id=0, args={"image": "z.jpg", **args}), TASKS[task], RunContext(request=request)
    )


def says(reply: Any) -> ScriptedLLM:
    return ScriptedLLM({"select": reply})


async def test_the_llm_chooses_and_the_rest_is_the_ladder() -> None:
    llm = says('{"id": "org/a", "reason": "it knows zebras"}')
    selection = await select(selector(FakeSource(THREE), llm=llm))
    assert (selection.model, selection.reason, selection.chosen_by) == ("org/a", "it knows zebras", "llm")
    assert [candidate.id for candidate in selection.candidates] == ["org/a", "org/c", "org/b"]
    assert {candidate.backend for candidate in selection.candidates} == {"here"}
    assert selection.task == DETECTION


async def test_the_llm_sees_the_request_the_task_and_the_top_k() -> None:
    llm = says('{"id": "org/c"}')
    await select(selector(FakeSource(THREE), llm=llm, top_k=2))
    [call] = llm.calls
    assert call.stage == "select"
    assert "Find the zebras in z.jpg" in call.prompt
    assert "org/c" in call.prompt
    assert "org/b" in call.prompt
    assert "org/a" not in call.prompt


async def test_the_tokens_of_the_choice_are_counted() -> None:
    brief = RunContext(request="Find zebras")
    chooser = selector(FakeSource(THREE), llm=says('{"id": "org/a"}'))
    await chooser.select(Task(task=DETECTION, id=0), TASKS[DETECTION], brief)
    assert brief.meter.usage["select"].calls == 1


async def test_one_candidate_needs_no_llm() -> None:
    llm = says(AssertionError("the LLM was asked"))
    selection = await select(selector(FakeSource(THREE[:1]), llm=llm))
    assert (selection.model, selection.chosen_by) == ("org/a", "only")
    assert llm.calls == []


async def test_without_an_llm_downloads_decide() -> None:
    selection = await select(selector(FakeSource(THREE)))
    assert (selection.model, selection.chosen_by) == ("org/c", "rank")
    assert selection.reason == "of 3 candidates it has the most downloads (500)"


async def test_without_an_llm_what_is_here_comes_first() -> None:
    selection = await select(selector(FakeSource([*THREE, model("org/here", local=True)])))
    assert selection.model == "org/here"
    assert selection.reason == "of 4 candidates it is on this machine already"


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ('{"id": "made/up", "reason": "r"}', "'made/up', which is not in the list"),
        ("I can not decide.", "not in the list"),
        (LLMError("no answer within 60 s"), "the LLM could not choose: "),
    ],
)
async def test_whatever_the_llm_does_there_is_a_ladder(reply: Any, told: str) -> None:
    selection = await select(selector(FakeSource(THREE), llm=says(reply)))
    assert (selection.model, selection.chosen_by) == ("org/c", "rank")
    assert told in selection.reason


async def test_a_source_that_fails_does_not_stop_the_others() -> None:
    class Failing(FakeSource):
        async def candidates(self, spec: Any, limit: int) -> list[Candidate]:
            raise TransientError("the Hub is away")

    class Buggy(FakeSource):
        async def candidates(self, spec: Any, limit: int) -> list[Candidate]:
            raise KeyError

    class Cancelled(FakeSource):
        async def candidates(self, spec: Any, limit: int) -> list[Candidate]:
            raise asyncio.CancelledError

    class Rows(FakeSource):
        async def candidates(self, spec: Any, limit: int) -> list[Any]:
            return [{"id": "org/row"}]

    sources = [Failing([], "hub"), Buggy([], "plugin"), Cancelled([], "gone"), Rows([], "rows")]
    selection = await select(selector(*sources, FakeSource(THREE)))
    assert selection.model == "org/c"
    assert selection.rejected == {
        "source hub": "the Hub is away",
        "source plugin": "KeyError",
        "source gone": "the source gone was cancelled from within",
        "source rows": "it lists something that is not a Candidate: {'id': 'org/row'}",
    }


async def test_a_backend_that_fails_when_it_is_asked_runs_nothing_and_stops_nobody() -> None:
    class Buggy(FakeBackend):
        def unsupported_reason(self, spec: Any, candidate: Candidate) -> str | None:
            raise KeyError("x")

    buggy = Buggy({}, "buggy")
    selection = await select(selector(FakeSource(THREE), backends=[buggy, EVERYTHING]))
    assert selection.candidates[0].backend == "here"
    with pytest.raises(NoCandidateError, match="the backend buggy failed to check the model: KeyError: 'x'"):
        await select(selector(FakeSource(THREE), backends=[buggy]))


async def test_a_source_that_can_not_describe_its_models_leaves_the_choice_to_the_rank() -> None:
    class Telling(FakeSource):
        async def describe(self, candidate: Candidate) -> str:
            raise KeyError("x")

    selection = await select(selector(Telling(THREE), llm=says('{"id": "org/a", "reason": "r"}')))
    assert (selection.model, selection.chosen_by) == ("org/c", "rank")
    assert "the LLM could not choose: KeyError: 'x'" in selection.reason


async def test_where_the_hub_is_away_the_advice_is_a_network_and_not_a_token() -> None:
    class Away(FakeSource):
        async def candidates(self, spec: Any, limit: int) -> list[Candidate]:
            raise TransientError("no route to host")

    with pytest.raises(NoCandidateError) as caught:
        await select(selector(Away([], "hub")))
    assert "with a network" in str(caught.value)
    assert "HF_TOKEN" not in str(caught.value)


async def test_where_an_extra_would_do_that_comes_first() -> None:
    class Bare(FakeBackend):
        def unsupported_reason(self, spec: Any, candidate: Candidate) -> str | None:
            return str(MissingExtraError("speech", "starter-tts"))

    with pytest.raises(NoCandidateError) as caught:
        await select(
            selector(FakeSource([model(f"org/{i}", SPEECH) for i in range(2)]), backends=[Bare({})]), SPEECH
        )
    advice = str(caught.value).partition("What helps: ")[2]
    assert advice.startswith('pip install "jarvis-agent[starter-tts]", ')
    assert advice.count("starter-tts") == 1


async def test_nothing_left_is_explained() -> None:
    backend = FakeBackend({}, "local-models")
    with pytest.raises(NoCandidateError) as caught:
        await select(selector(FakeSource(THREE), backends=[backend]))
    message = str(caught.value)
    assert "no model can do object-detection here" in message
    assert "org/a: the backend local-models has no result" in message
    assert "HF_TOKEN" in message
    assert "`jarvis models object-detection`" in message
    assert set(caught.value.rejected) == {"org/a", "org/b", "org/c"}


async def test_no_model_at_all_is_explained() -> None:
    with pytest.raises(NoCandidateError, match="no source lists any"):
        await select(selector(FakeSource([])))


async def test_a_long_list_of_reasons_is_cut() -> None:
    many = [model(f"org/m{number}") for number in range(9)]
    with pytest.raises(NoCandidateError, match="and 5 more"):
        await select(selector(FakeSource(many), backends=[FakeBackend({})]))


READER = model("reader", "image-to-text", traits=("ocr",))
TELLER = model("teller", "image-to-text", traits=("caption",))
CLASSIFIER = model("classifier", "image-classification")


async def test_a_description_comes_from_a_model_that_describes() -> None:
    selection = await select(selector(FakeSource([READER, TELLER])), "image-to-text", "Describe z.jpg")
    assert [candidate.id for candidate in selection.candidates] == ["teller"]
    assert "asks for a description" in selection.rejected["reader"]


async def test_text_comes_from_a_model_that_reads() -> None:
    selection = await select(selector(FakeSource([TELLER, READER])), "image-to-text", "Read z.jpg to me")
    assert [candidate.id for candidate in selection.candidates] == ["reader"]
    assert selection.note == ""


async def test_where_nothing_reads_the_user_is_told() -> None:
    selection = await select(selector(FakeSource([TELLER])), "image-to-text", "Read z.jpg to me")
    assert selection.model == "teller"
    assert "no model here is made for reading text" in selection.note


async def test_where_nothing_describes_the_image_is_classified() -> None:
    selection = await select(selector(FakeSource([READER, CLASSIFIER])), "image-to-text", "Describe z.jpg")
    assert (selection.model, selection.task) == ("classifier", "image-classification")
    assert "classified instead" in selection.note
    assert "reader" in selection.rejected


async def test_where_nothing_sees_images_at_all_that_is_said() -> None:
    with pytest.raises(NoCandidateError, match="no model can do image-to-text") as caught:
        await select(selector(FakeSource([READER])), "image-to-text", "Describe z.jpg")
    assert set(caught.value.rejected) == {"reader"}


async def test_a_pinned_model_is_not_chosen_but_taken() -> None:
    llm = says(AssertionError("the LLM was asked"))
    chooser = selector(FakeSource(THREE), llm=llm, pins={"object-det": "org/a@v2"})
    selection = await select(chooser)
    assert (selection.model, selection.chosen_by) == ("org/a", "pinned")
    assert [(c.id, c.revision, c.downloads, c.backend) for c in selection.candidates] == [
        ("org/a", "v2", 5, "here")
    ]


async def test_a_pinned_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    selection = await select(selector(FakeSource(THREE), pins={DETECTION: str(tmp_path)}))
    [candidate] = selection.candidates
    assert (candidate.path, candidate.local, candidate.library) == (tmp_path, True, "transformers")


async def test_a_pinned_model_that_no_source_lists_is_taken_by_its_id() -> None:
    selection = await select(selector(FakeSource(THREE), pins={DETECTION: "my/own@v1"}))
    [candidate] = selection.candidates
    assert (candidate.id, candidate.revision, candidate.source) == ("my/own", "v1", "pinned")


async def test_a_pinned_model_is_not_measured_by_words_but_by_settings() -> None:
    speaks = model("org/english", "text-to-speech", languages=("en",), license="gpl")
    pins = {"text-to-speech": "org/english"}
    selection = await select(selector(FakeSource([speaks]), pins=pins), "text-to-speech", text="你好")
    assert selection.model == "org/english"
    with pytest.raises(NoCandidateError, match="org/english, which is pinned for text-to-speech, cannot be used: its licence is gpl"):  # fmt: skip # noqa: E501
        await select(selector(FakeSource([speaks]), pins=pins, licenses=["mit"]), "text-to-speech")


async def test_a_pin_for_an_unknown_task_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="there is no task 'zebra-detection'"):
        selector(pins={"zebra-detection": "a/b"})


@pytest.fixture
def hub() -> Iterator[HubDouble]:
    with HubDouble() as double, double.redirected():
        double.add_model("org/served", pipeline_tag=DETECTION, downloads=9, providers={"hf-inference": {}})
        double.add_model("org/alone", pipeline_tag=DETECTION, downloads=99)
        yield double


def on_hub(hub: HubDouble, tmp_path: Path, **given: Any) -> ModelSelector:
    settings = Settings(**{"offline": False, "hf_token": "hf_x", **given.pop("settings", {})})
    source = HubSource(settings)
    return ModelSelector([source], given.pop("backends", [HostedBackend(settings)]), settings, **given)


async def test_list_select_and_ladder_with_the_hub(hub: HubDouble, tmp_path: Path) -> None:
    local = FakeBackend({DETECTION: "x"}, "here")
    settings = Settings(offline=False, hf_token="hf_x")
    llm = says(lambda messages: json.dumps({"id": "org/served", "reason": "it is served"}))
    source = HubSource(settings)
    chooser = ModelSelector(
        [source], [local, HostedBackend(settings)], settings, selection_chain(llm, settings=settings)
    )
    selection = await select(chooser)
    assert (selection.model, selection.chosen_by) == ("org/served", "llm")
    assert [(candidate.id, candidate.backend) for candidate in selection.candidates] == [
        ("org/served", "here"),
        ("org/alone", "here"),
        ("org/served", "hf-inference"),
    ]
    await select(chooser)
    assert [request.path for request in hub.requests].count("/api/models") == 1


async def test_what_nobody_serves_is_left_out_of_a_hosted_ladder(hub: HubDouble, tmp_path: Path) -> None:
    selection = await select(on_hub(hub, tmp_path))
    assert [candidate.id for candidate in selection.candidates] == ["org/served"]
    assert selection.rejected == {"org/alone": "no inference provider serves it"}


async def test_a_pinned_model_outside_of_the_list_is_asked_for(hub: HubDouble, tmp_path: Path) -> None:
    hub.add_model("my/own", providers={"hf-inference": {"task": DETECTION}})
    selection = await select(on_hub(hub, tmp_path, pins={DETECTION: "my/own"}))
    assert [(c.id, c.providers) for c in selection.candidates] == [("my/own", ("hf-inference",))]


async def test_a_pinned_model_that_does_not_exist_is_told(hub: HubDouble, tmp_path: Path) -> None:
    with pytest.raises(NoCandidateError, match="no source knows the model my/typo"):
        await select(on_hub(hub, tmp_path, pins={DETECTION: "my/typo"}))


async def test_a_pinned_model_is_used_while_the_hub_is_away(hub: HubDouble, tmp_path: Path) -> None:
    hub.answer("/api", status=503)
    selection = await select(on_hub(hub, tmp_path, pins={DETECTION: "my/own"}, backends=[EVERYTHING]))
    assert selection.model == "my/own"
    assert "503" in selection.rejected["source hub"]


async def test_the_users_own_models_stand_beside_the_hubs(hub: HubDouble, tmp_path: Path) -> None:
    settings = Settings(offline=False)
    own = RegisteredSource({"id": "mine", "task": DETECTION, "downloads": 10})
    chooser = ModelSelector([own, HubSource(settings)], [EVERYTHING], settings)
    assert [candidate.id for candidate in (await select(chooser)).candidates] == [
        "org/alone",
        "mine",
        "org/served",
    ]


async def test_models_of_another_task_type_do_a_task_that_borrows_them() -> None:
    depth = model("org/depth", "depth-estimation", local=True)
    source = FakeSource([depth, model("org/own", "depth-control")])
    selection = await select(selector(source), "depth-control")
    assert [(c.id, c.task) for c in selection.candidates] == [
        ("org/depth", "depth-control"),
        ("org/own", "depth-control"),
    ]
    assert source.asked == ["depth-control", "depth-estimation"]


async def test_a_task_has_a_policy_of_its_own() -> None:
    hosted = FakeBackend(dict.fromkeys(TASKS, "x"), "there", local=False)
    served = [model("a/b", providers=("fal-ai",)), model("c/d", SPEECH, providers=("fal-ai",))]
    chooser = selector(
        FakeSource(served), backends=[EVERYTHING, hosted], policies={"object-det": "hosted-first"}
    )
    assert [c.backend for c in (await select(chooser)).candidates] == ["there", "here"]
    assert [c.backend for c in (await select(chooser, SPEECH)).candidates] == ["here", "there"]


def test_a_policy_for_an_unknown_task_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="there is no task 'zebra-detection'"):
        selector(policies={"zebra-detection": "local-only"})


@pytest.mark.parametrize(
    ("fields", "policy", "place"),
    [
        ({"local": True}, "local-first", "it is on this machine"),
        ({"size": 1_500_000_000}, "local-first", "it is downloaded to this machine (1.5 GB)"),
        (
            {"size": 3_000_000_000, "providers": ("fal-ai",)},
            "local-first",
            "hosted by fal-ai; its 3,000,000,000 bytes are more than may be downloaded (JARVIS_MAX_DOWNLOAD)",
        ),
        ({"providers": ("fal-ai",)}, "hosted-first", "hosted by fal-ai, as the policy is hosted-first"),
    ],
)
async def test_a_choice_says_why_the_model_runs_where_it_does(
    fields: dict[str, Any], policy: str, place: str
) -> None:
    hosted = FakeBackend(dict.fromkeys(TASKS, "x"), "there", local=False)
    source = FakeSource([model("a/b", **fields)])
    selection = await select(selector(source, backends=[EVERYTHING, hosted], policy=policy))
    assert selection.placement == place


async def test_an_algorithm_has_no_place_to_explain() -> None:
    canny = FakeSource([model("opencv/canny", "canny-control", local=True)])
    assert (await select(selector(canny), "canny-control")).placement == ""


async def test_the_second_place_of_a_model_comes_after_every_model_in_its_first() -> None:
    hosted = FakeBackend(dict.fromkeys(TASKS, "x"), "there", local=False)
    both = [model(f"org/{name}", local=True, path=Path("/m"), providers=("fal-ai",)) for name in "ab"]
    selection = await select(selector(FakeSource(both), backends=[EVERYTHING, hosted]))
    assert [(c.id, c.backend, c.local) for c in selection.candidates] == [
        ("org/a", "here", True),
        ("org/b", "here", True),
        ("org/a", "there", False),
        ("org/b", "there", False),
    ]


async def test_a_model_has_one_place_where_the_policy_allows_one() -> None:
    hosted = FakeBackend(dict.fromkeys(TASKS, "x"), "there", local=False)
    source = FakeSource([model("a/b", local=True, providers=("fal-ai",))])
    selection = await select(selector(source, backends=[EVERYTHING, hosted], policy="local-only"))
    assert [c.backend for c in selection.candidates] == ["here"]


async def test_a_pinned_space_is_taken_without_asking_any_source() -> None:
    source = FakeSource(THREE)
    spaces = FakeBackend(dict.fromkeys(TASKS, "x"), "spaces", local=False)
    selection = await select(selector(source, backends=[spaces], pins={DETECTION: "space:org/space"}))
    assert [(c.id, c.backend) for c in selection.candidates] == [("org/space", "spaces")]
    assert source.asked == []
