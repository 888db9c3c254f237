"""HubSource: one request per task, cached in memory, with clear errors."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from clock import Clock

from jarvis_agent.backends.hub import api
from jarvis_agent.core.errors import ConfigError, TransientError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Task
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.testing import HubDouble

DETECTION = TASKS["object-detection"]
Make = Callable[..., HubSource]
CARD = "---\nlicense: mit\n---\n# DETR\n\nIt finds the objects of COCO in pictures of streets and rooms.\n"


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


@pytest.fixture
def hub(hub: HubDouble) -> HubDouble:
    hub.add_model(
        "facebook/detr",
        pipeline_tag="object-detection",
        downloads=1000,
        likes=50,
        library_name="transformers",
        tags=["vision", "license:apache-2.0"],
        card={"datasets": ["coco"], "language": "en"},
        safetensors={"parameters": {"F32": 100, "F16": 10}, "total": 110},
        providers={"hf-inference": {}, "fal-ai": {"providerId": "fal/detr", "status": "staging"}},
        files={"README.md": CARD},
    )
    return hub


@pytest.fixture
def make(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Make:
    def made(token: str | None = None, offline: bool = False, timeout: float = 5.0) -> HubSource:
        monkeypatch.setattr(api, "TIMEOUT_S", timeout)
        return HubSource(Settings(offline=offline, hf_token=token))

    monkeypatch.setattr(api, "monotonic", clock)
    return made


async def test_one_request_lists_the_candidates_of_a_task(hub: HubDouble, make: Make) -> None:
    [found] = await make().candidates(DETECTION, 20)
    assert (found.id, found.task, found.source) == ("facebook/detr", "object-detection", "hub")
    assert (found.downloads, found.likes, found.size, found.library) == (1000, 50, 420, "transformers")
    assert (found.license, found.languages, found.local) == ("apache-2.0", ("en",), False)
    assert found.description == "Trained on coco. Languages: en."
    assert found.revision == hub.models["facebook/detr"].info["sha"]
    assert found.providers == ("hf-inference",)
    assert found.metadata == {"providers": {"hf-inference": "object-detection"}}
    [request] = hub.requests
    assert (request.query["limit"], request.query["sort"]) == (["20"], ["downloads"])
    assert "inferenceProviderMapping" in request.query["expand"]


async def test_chat_models_generate_text_and_malformed_rows_are_tolerated(hub: HubDouble, make: Make) -> None:
    served = {"novita": {"task": "conversational"}}
    hub.add_model("org/chat", pipeline_tag="text-generation", providers=served)
    [candidate] = await make().candidates(TASKS["text-generation"], 20)
    assert candidate.metadata["providers"] == {"novita": "conversational"}
    odd: dict[str, Any] = {"id": "a", "cardData": "x", "tags": None, "safetensors": []}
    odd["inferenceProviderMapping"] = "x"
    hub.answer(
        "/api/models", body=[odd, "text", {"no": "id"}, {"id": "b", "inferenceProviderMapping": ["x"]}]
    )
    assert [candidate.id for candidate in await make().candidates(DETECTION, 20)] == ["a", "b"]


async def test_a_list_is_reused_for_an_hour(hub: HubDouble, make: Make, clock: Clock) -> None:
    source = make()
    for seconds, requests in ((0, 1), (3599, 1), (2, 2)):
        clock.now += seconds
        await source.candidates(DETECTION, 20)
        assert len(hub.requests) == requests
    await make("hf_secret").candidates(DETECTION, 20)
    assert hub.requests[-1].headers["authorization"] == "Bearer hf_secret"


def test_equal_requests_at_one_time_are_sent_once_also_from_several_loops(hub: HubDouble, make: Make) -> None:
    source = make()

    async def ask() -> list[Any]:
        impatient = asyncio.create_task(source.candidates(DETECTION, 20))
        others = [asyncio.create_task(source.candidates(DETECTION, 20)) for _ in range(4)]
        elsewhere = asyncio.to_thread(lambda: asyncio.run(source.candidates(DETECTION, 20)))
        await asyncio.sleep(0)
        impatient.cancel()
        return await asyncio.gather(elsewhere, *others)

    lists = asyncio.run(ask())
    assert all(len(listed) == 1 and listed == lists[0] for listed in lists)
    assert len(hub.requests) == 1


async def test_a_failure_is_repeated_for_a_minute_unasked(hub: HubDouble, make: Make, clock: Clock) -> None:
    source, depths = make(), []
    hub.answer("/api/models", status=503, times=1)
    for task in ("object-detection", "translation", "object-detection", "translation"):
        with pytest.raises(TransientError, match="it answered 503") as caught:
            await source.candidates(TASKS[task], 20)
        depths.append(len(caught.traceback))
    assert len(hub.requests) == 1
    assert depths[1] == depths[3], "a repeated error holds no frames of earlier callers"
    clock.now += 61
    assert len(await source.candidates(DETECTION, 20)) == 1


async def test_a_hub_that_cannot_be_reached_is_named_with_advice(make: Make) -> None:
    with HubDouble() as closed:
        pass
    with closed.redirected(), pytest.raises(TransientError) as caught:
        await make().candidates(DETECTION, 20)
    assert closed.url in str(caught.value)
    assert "cannot be reached (no network?)" in str(caught.value)
    assert "JARVIS_OFFLINE=1" in str(caught.value)
    assert "Errno" not in str(caught.value)


async def test_a_silent_hub_fails_after_the_timeout(hub: HubDouble, make: Make) -> None:
    hub.stall("/api/models")
    source = make(timeout=0.1)
    for task in ("object-detection", "translation"):
        with pytest.raises(TransientError, match="cannot be used"):
            await source.candidates(TASKS[task], 20)
    assert len(hub.requests) < 2


async def test_a_wrong_answer_is_explained(make: Make) -> None:
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"status": 401}, ConfigError, r"rejects the token \(401\).*check HF_TOKEN"),
        ({"status": 404}, ConfigError, "answered 404.*check HF_ENDPOINT"),
        ({"status": 429}, TransientError, "answered 429"),
        ({"status": 500}, TransientError, "answered 500"),
        ({"body": b"<html>sign in to the network</html>"}, TransientError, "not JSON"),
    ]
    for answer, error, message in cases:
        with HubDouble() as hub, hub.redirected():
            hub.answer("/api/models", **answer)
            with pytest.raises(error, match=message):
                await make("hf_wrong").candidates(DETECTION, 20)


async def test_offline_and_for_our_own_tasks_nothing_is_requested(
    hub: HubDouble, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("canny-control", "resize-image"):
        assert await make().candidates(TASKS[name], 20) == make().estimate(TASKS[name]) == []
    offline = make(offline=True)
    assert await offline.candidates(DETECTION, 20) == offline.estimate(DETECTION) == []
    assert await offline.find(DETECTION, "facebook/detr") is None
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert await make().candidates(DETECTION, 20) == []
    assert hub.requests == []


async def test_a_model_outside_the_list_is_found_by_its_id(hub: HubDouble, make: Make) -> None:
    source, sha = make(), hub.models["facebook/detr"].info["sha"]
    found = await source.find(DETECTION, "facebook/detr", sha)
    assert found is not None
    assert (found.id, found.revision) == ("facebook/detr", sha)
    assert hub.requests[0].path == f"/api/models/facebook/detr/revision/{sha}"
    assert await source.find(DETECTION, "no/such") is None
    assert await source.find(DETECTION, "facebook/detr", "v9") is None


async def test_controlnets_are_listed_by_tag_and_name(hub: HubDouble, make: Make) -> None:
    spec, tag = TASKS["canny-text-to-image"], {"tags": ["controlnet"], "pipeline_tag": "image-to-image"}
    hub.add_model("org/sd-controlnet-canny", card={"base_model": "org/sd"}, **tag)
    hub.add_model("org/sd-controlnet-depth", **tag)
    source = make()
    [candidate] = await source.candidates(spec, 5)
    assert (candidate.id, candidate.task) == ("org/sd-controlnet-canny", "canny-text-to-image")
    assert candidate.metadata["base_model"] == ["org/sd"]
    [asked] = [request.query for request in hub.requests if request.path == "/api/models"]
    assert (asked["filter"], asked["search"], "pipeline_tag" in asked) == (["controlnet"], ["canny"], False)
    assert source.estimate(spec) != []


async def test_a_model_is_described_by_its_card(hub: HubDouble, make: Make, clock: Clock) -> None:
    source, text = make(), "It finds the objects of COCO in pictures of streets and rooms."
    [candidate] = await source.candidates(DETECTION, 20)
    hub.answer("README.md", status=503, times=1)
    for seconds, expected, requests in ((0, "", 2), (59, "", 2), (2, text, 3), (0, text, 3)):
        clock.now += seconds
        assert await source.describe(candidate) == expected
        assert len(hub.requests) == requests
    assert await source.describe(candidate.model_copy(update={"id": "no/such"})) == ""
    assert len(await source.candidates(DETECTION, 20)) == 1, "a missing card is no failure of the API"
    hub.stall("README.md")
    assert await make(timeout=0.1).describe(candidate) == ""


def queries(hub: HubDouble) -> list[dict[str, list[str]]]:
    kept = ("search", "filter")
    return [{name: each.query[name] for name in kept if name in each.query} for each in hub.requests]


HUNGARIAN = Task(task="object-detection", id=0, purpose="Hungarian street sign of")


async def test_a_purpose_is_searched_by_its_language_and_longest_words_in_names_and_tags(
    hub: HubDouble, make: Make
) -> None:
    hub.add_model("org/SIGN-finder", pipeline_tag="object-detection", downloads=3)
    hub.add_model("org/magyar", pipeline_tag="object-detection", tags=["hu"])
    hub.add_model("org/sign-reader", pipeline_tag="image-to-text")
    hub.add_model("org/cars", pipeline_tag="object-detection", tags=["street"])
    hub.add_model("org/hungary", pipeline_tag="object-detection")
    found = await make().search(DETECTION, HUNGARIAN, 10)
    assert sorted(one.id for one in found) == ["org/SIGN-finder", "org/cars", "org/hungary", "org/magyar"]
    asked = sorted(queries(hub), key=str)
    assert asked == [
        {"filter": ["hu"]},
        {"filter": ["hungarian"]},
        {"filter": ["street"]},
        {"search": ["hungar"]},
        {"search": ["sign"]},
        {"search": ["street"]},
    ]
    many = " ".join(letter * 5 for letter in "abcdefgh")
    await make().search(DETECTION, HUNGARIAN.model_copy(update={"purpose": f"{many} in Hungarian"}), 10)
    assert len(hub.requests) == 12


async def test_words_of_a_purpose_stay_here_where_the_policy_says_so(hub: HubDouble) -> None:
    for settings in (Settings(policy="local-only", offline=False), Settings(offline=True)):
        assert await HubSource(settings).search(DETECTION, HUNGARIAN, 10) == []
    assert await HubSource(Settings(offline=False)).search(TASKS["canny-text-to-image"], HUNGARIAN, 10) == []
    assert hub.requests == []


async def test_a_search_that_fails_or_stalls_gives_nothing(
    hub: HubDouble, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.answer("/api/models", status=503, times=1)
    assert await make().search(DETECTION, HUNGARIAN.model_copy(update={"purpose": "of"}), 10) == []
    monkeypatch.setattr("jarvis_agent.selection.sources.hub._SEARCH_S", 0.05)
    hub.stall("/api/models")
    assert await make().search(DETECTION, HUNGARIAN, 10) == []


async def test_a_slow_search_leaves_the_results_of_the_others(
    hub: HubDouble, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = ["hu", "hungarian", "street"]
    hub.add_model("org/hungarian-street-sign", pipeline_tag="object-detection", tags=tags)
    monkeypatch.setattr("jarvis_agent.selection.sources.hub._SEARCH_S", 1.0)
    hub.stall("/api/models", times=1)
    found = await make().search(DETECTION, HUNGARIAN, 10)
    assert {one.id for one in found} == {"org/hungarian-street-sign"}


async def test_published_results_and_example_inputs_are_known(hub: HubDouble, make: Make) -> None:
    result = {"task": {"type": "object-detection"}, "dataset": {"name": "COCO"}, "metrics": []}
    other = {"task": {"type": "image-classification"}, "dataset": {"name": "ImageNet"}}
    shown = [{"text": "a zebra", "src": "https://x/y"}, 7]
    rows = [
        {"id": "a", "model-index": [{"results": [result, other, result, "odd"]}]},
        {"id": "b", "evalResults": [{"value": 1}], "widgetData": shown},
        {"id": "c", "model-index": "odd", "widgetData": "odd", "evalResults": 3},
    ]
    hub.answer("/api/models", body=rows)
    found = [one.metadata for one in await make().candidates(DETECTION, 20)]
    assert found == [{"results": ["COCO"]}, {"results": ["the Hub's benchmarks"], "examples": "a zebra"}, {}]
