"""The Hub's lists of models: one request a task, kept, given stale rather than not at all."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clock import Clock

from jarvis_agent.core.errors import ConfigError, TransientError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.selection.sources.hub import HubSource
from jarvis_agent.testing import HubDouble

DETECTION = TASKS["object-detection"]
Make = Callable[..., HubSource]


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000_000.0)


@pytest.fixture
def hub() -> Iterator[HubDouble]:
    with HubDouble() as double, double.redirected():
        double.add_model(
            "facebook/detr",
            pipeline_tag="object-detection",
            downloads=1000,
            likes=50,
            library_name="transformers",
            tags=["vision", "license:apache-2.0"],
            card={"datasets": ["coco"], "language": "en"},
            safetensors={"parameters": {"F32": 100, "F16": 10}, "total": 110},
            providers={"hf-inference": {}, "fal-ai": {"providerId": "fal/detr", "status": "staging"}},
        )
        yield double


@pytest.fixture
def make(clock: Clock) -> Make:
    """A source whose lists are kept in one folder."""

    def made(settings: Settings | None = None, **options: Any) -> HubSource:
        given = {"clock": clock, "timeout": 5.0, **options}
        return HubSource(settings or Settings(offline=False), **given)

    return made


async def test_one_request_lists_the_candidates_of_a_task(hub: HubDouble, make: Make) -> None:
    [candidate] = await make().candidates(DETECTION, 20)
    assert candidate.id == "facebook/detr"
    assert (candidate.task, candidate.source, candidate.library) == (
        "object-detection",
        "hub",
        "transformers",
    )
    assert (candidate.downloads, candidate.likes, candidate.size) == (1000, 50, 420)
    assert (candidate.license, candidate.languages) == ("apache-2.0", ("en",))
    assert candidate.description == "Trained on coco. Languages: en."
    assert candidate.revision == hub.models["facebook/detr"].info["sha"]
    assert candidate.providers == ("hf-inference",)
    assert candidate.metadata == {
        "providers": {"hf-inference": {"id": "facebook/detr", "task": "object-detection"}}
    }
    assert not candidate.local
    [request] = hub.requests
    assert request.query["limit"] == ["20"]
    assert request.query["sort"] == ["downloads"]
    assert "inferenceProviderMapping" in request.query["expand"]


async def test_a_chat_model_is_served_for_text_generation(hub: HubDouble, make: Make) -> None:
    hub.add_model(
        "org/chat", pipeline_tag="text-generation", providers={"novita": {"task": "conversational"}}
    )
    [candidate] = await make().candidates(TASKS["text-generation"], 20)
    assert candidate.metadata["providers"]["novita"]["task"] == "conversational"


async def test_rows_of_another_form_do_no_harm(hub: HubDouble, make: Make) -> None:
    row = {
        "id": "org/odd",
        "cardData": "none",
        "tags": None,
        "safetensors": [],
        "inferenceProviderMapping": "x",
    }
    hub.answer(
        "/api/models", body=[row, "text", {"no": "id"}, {"id": "b", "inferenceProviderMapping": ["x"]}]
    )
    assert [candidate.id for candidate in await make().candidates(DETECTION, 20)] == ["org/odd", "b"]


async def test_a_list_is_asked_for_once_an_hour(hub: HubDouble, make: Make, clock: Clock) -> None:
    source = make()
    await source.candidates(DETECTION, 20)
    clock.now += 3599
    await source.candidates(DETECTION, 20)
    assert len(hub.requests) == 1
    clock.now += 2
    await source.candidates(DETECTION, 20)
    assert len(hub.requests) == 2


async def test_lists_of_different_tokens_are_kept_apart(hub: HubDouble, make: Make) -> None:
    await make().candidates(DETECTION, 20)
    await make(Settings(offline=False, hf_token="hf_secret")).candidates(DETECTION, 20)
    assert [request.headers.get("authorization") for request in hub.requests] == [None, "Bearer hf_secret"]


async def test_equal_requests_at_one_time_are_one(hub: HubDouble, make: Make) -> None:
    source = make()
    lists = await asyncio.gather(*(source.candidates(DETECTION, 20) for _ in range(8)))
    assert len(hub.requests) == 1
    assert all(listed == lists[0] for listed in lists)


def test_event_loops_in_several_threads_share_a_source(hub: HubDouble, make: Make) -> None:
    source = make()

    async def both() -> list[Any]:
        one = asyncio.to_thread(lambda: asyncio.run(source.candidates(DETECTION, 20)))
        return await asyncio.gather(one, source.candidates(DETECTION, 20))

    first, second = asyncio.run(both())
    assert first == second
    assert len(hub.requests) == 1


async def test_who_stops_waiting_does_not_stop_the_others(hub: HubDouble, make: Make) -> None:
    source = make()
    impatient = asyncio.create_task(source.candidates(DETECTION, 20))
    patient = asyncio.create_task(source.candidates(DETECTION, 20))
    await asyncio.sleep(0)
    impatient.cancel()
    assert len(await patient) == 1
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_trouble_is_remembered_for_a_minute(hub: HubDouble, make: Make, clock: Clock) -> None:
    source = make()
    hub.answer("/api/models", status=500, times=1)
    for task in ("object-detection", "translation"):
        with pytest.raises(TransientError, match="it answered 500"):
            await source.candidates(TASKS[task], 20)
    assert len(hub.requests) == 1
    clock.now += 61
    assert len(await source.candidates(DETECTION, 20)) == 1


async def test_an_unreachable_hub_is_named_with_what_to_do(make: Make) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with HubDouble() as elsewhere, elsewhere.redirected(), pytest.raises(TransientError) as caught:
        await make(endpoint=endpoint).candidates(DETECTION, 20)
    assert endpoint in str(caught.value)
    assert "HF_HUB_OFFLINE" in str(caught.value)


async def test_a_silent_hub_is_not_waited_for(hub: HubDouble, make: Make) -> None:
    hub.stall("/api/models")
    source = make(timeout=0.2)
    with pytest.raises(TransientError, match="cannot be used"):
        await source.candidates(DETECTION, 20)
    with pytest.raises(TransientError):
        await source.candidates(TASKS["translation"], 20)
    assert len(hub.requests) < 2


async def test_a_refused_token_is_named_and_not_the_hub(hub: HubDouble, make: Make) -> None:
    hub.answer("/api/models", status=401)
    with pytest.raises(ConfigError, match=r"rejects the token \(401\); check HF_TOKEN"):
        await make(Settings(offline=False, hf_token="hf_wrong")).candidates(DETECTION, 20)


async def test_a_server_that_is_no_hub_is_named(hub: HubDouble, make: Make) -> None:
    hub.answer("/api/models", status=404)
    with pytest.raises(ConfigError, match="answered 404") as caught:
        await make().candidates(DETECTION, 20)
    assert "Check HF_ENDPOINT" in str(caught.value)


async def test_an_answer_that_is_no_json_is_trouble(hub: HubDouble, make: Make) -> None:
    hub.answer("/api/models", body=b"<html>sign in to the hotel's network</html>")
    with pytest.raises(TransientError, match="not JSON"):
        await make().candidates(DETECTION, 20)


async def test_offline_nothing_is_asked(hub: HubDouble, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await make(Settings(offline=True)).candidates(DETECTION, 20) == []
    assert await make(Settings(offline=True)).find(DETECTION, "facebook/detr") is None
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert await make().candidates(DETECTION, 20) == []
    assert hub.requests == []


async def test_tasks_that_the_hub_does_not_know_are_not_asked_for(hub: HubDouble, make: Make) -> None:
    assert await make().candidates(TASKS["canny-control"], 20) == []
    assert hub.requests == []


async def test_a_model_outside_of_the_list_is_found_by_its_id(hub: HubDouble, make: Make) -> None:
    source = make()
    sha = hub.models["facebook/detr"].info["sha"]
    found = await source.find(DETECTION, "facebook/detr", sha)
    assert found is not None
    assert (found.id, found.revision) == ("facebook/detr", sha)
    assert hub.requests[0].path == f"/api/models/facebook/detr/revision/{sha}"
    assert await source.find(DETECTION, "no/such") is None
    assert await source.find(DETECTION, "facebook/detr", "v9") is None


async def test_controlnets_are_listed_by_their_tag_and_their_name(hub: HubDouble, make: Make) -> None:
    spec = TASKS["canny-text-to-image"]
    hub.add_model(
        "org/sd-controlnet-canny",
        tags=["controlnet"],
        pipeline_tag="image-to-image",
        card={"base_model": "org/sd"},
    )
    hub.add_model("org/sd-controlnet-depth", tags=["controlnet"], pipeline_tag="image-to-image")
    source = make()
    [candidate] = await source.candidates(spec, 5)
    assert (candidate.id, candidate.task) == ("org/sd-controlnet-canny", "canny-text-to-image")
    assert candidate.metadata["base_model"] == ["org/sd"]
    [asked] = [request.query for request in hub.requests if request.path == "/api/models"]
    assert (asked["filter"], asked["search"], "pipeline_tag" in asked) == (["controlnet"], ["canny"], False)
    assert source.estimate(spec) != []


async def test_a_task_that_is_ours_alone_is_not_asked_for(hub: HubDouble, make: Make) -> None:
    source = make()
    for name in ("canny-control", "resize-image"):
        assert await source.candidates(TASKS[name], 5) == []
        assert source.estimate(TASKS[name]) == []
    assert hub.requests == []


CARD = "---\nlicense: mit\n---\n# DETR\n\nIt finds the objects of COCO in pictures of streets and rooms.\n"


async def test_a_model_is_described_by_its_card(hub: HubDouble, make: Make) -> None:
    hub.add_model("facebook/detr", pipeline_tag="object-detection", files={"README.md": CARD})
    [candidate] = await make().candidates(DETECTION, 20)
    told = await make().describe(candidate)
    assert told == "It finds the objects of COCO in pictures of streets and rooms."


async def test_a_card_that_can_not_be_had_describes_nothing(hub: HubDouble, make: Make) -> None:
    [candidate] = await make().candidates(DETECTION, 20)
    assert await make().describe(candidate) == ""
    hub.stall("README.md")
    assert await make(timeout=0.2).describe(candidate) == ""


async def test_a_card_that_could_not_be_had_is_asked_for_again_after_a_minute(
    hub: HubDouble, make: Make, clock: Clock
) -> None:
    hub.add_model("facebook/detr", pipeline_tag="object-detection", files={"README.md": CARD})
    source = make()
    [candidate] = await source.candidates(DETECTION, 20)
    hub.answer("README.md", status=503, times=1)
    assert await source.describe(candidate) == ""
    asked = len(hub.requests)
    assert await source.describe(candidate) == ""
    assert len(hub.requests) == asked
    clock.now += 61
    assert (await source.describe(candidate)).startswith("It finds the objects of COCO")


async def test_a_hub_that_is_down_keeps_nothing_of_those_who_ask(hub: HubDouble, make: Make) -> None:
    hub.answer("/api/models", status=503)
    source, depths = make(), []
    for _ in range(4):
        with pytest.raises(TransientError) as caught:
            await source.candidates(DETECTION, 20)
        depths.append(len(caught.traceback))
    assert len(hub.requests) == 1
    assert depths[1] == depths[3]
