"""The agent and every task over HTTP: LangServe's routes, threads, and errors."""

import asyncio
import re
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langserve import RemoteRunnable
from PIL import Image
from served import (
    ANSWER,
    BASE,
    CAT,
    Served,
    agent_of,
    async_remote,
    endless_expert,
    listening,
    plan_for,
    remote,
    serving,
)
from starlette.testclient import TestClient

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.agent.stages import PipelineStages
from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import CLONE, ConfigError, MissingExtraError
from jarvis_agent.interfaces.server import create_app, run_server
from jarvis_agent.testing import ScriptedLLM

HTTPError = httpx.HTTPStatusError


def untimed(run: Run) -> dict[str, Any]:
    """A run without what differs from one time to the next: times and the run's directory."""
    dumped = run.model_dump(exclude={"timings": True})
    dumped["answer"] = re.sub(r"/outputs/[^/]+", "/outputs", run.answer)
    for result in dumped["results"]:
        result["started"] = result["ended"] = 0.0
        for attempt in result["attempts"]:
            attempt["started"] = attempt["ended"] = 0.0
        for resource in result["resources"]:
            resource["path"] = resource["path"] and Path(resource["path"]).name
        if "path" in result["output"]:
            result["output"]["path"] = Path(result["output"]["path"]).name
    return dumped


def test_an_upload_is_processed_and_the_result_fetched(served: Served) -> None:
    name = served.uploaded_cat()
    run = Run.model_validate(served.remote().invoke({"input": "What animal is this?", "files": [name]}))
    assert run.answer.startswith(ANSWER)
    assert [result.status for result in run.results] == ["ok", "ok"]
    assert served.backend.calls[0].inputs["image"].path.read_bytes() == CAT.read_bytes()
    (outline,) = run.results[1].paths()
    got = served.get(str(outline))
    (made,) = served.runs.rglob(outline.name)
    assert got.content == made.read_bytes()
    assert got.headers["content-type"] == "image/png"


def test_requests_may_be_text_messages_or_name_an_upload_by_its_original_name(served: Served) -> None:
    messages = [HumanMessage("Good morning!")]
    plain = [{"role": "user", "content": "Good morning!"}]
    for asked in ({"messages": messages}, messages, plain, {"messages": plain}):
        assert Run.model_validate(served.remote().invoke(asked)).answer == "Good morning."
    name = served.upload().json()["name"]
    served.script["plan"] = plan_for("cat.jpg")
    request = {"input": "What is in cat.jpg?", "files": [name]}
    runs = [Run.model_validate(run) for run in served.remote().batch([request, "What animal is that?"])]
    assert [[result.status for result in run.results] for run in runs] == [["ok", "ok"], []]


async def test_the_client_works_asynchronously_and_receives_events(served: Served) -> None:
    request = {"input": "What animal is this?", "files": [served.uploaded_cat()]}
    async with served.async_remote() as client:
        whole = Run.model_validate(await client.ainvoke(request))
        chunks = [Run.model_validate(chunk) async for chunk in client.astream(request)]
        events = [event async for event in client.astream_events(request, version="v2")]
    assert whole.answer.startswith(ANSWER)
    assert len([chunk for chunk in chunks if chunk.answer]) > 1
    assert [len(chunk.results) for chunk in chunks if chunk.results] == [1, 1, 2], (
        "the last chunk is the whole"
    )
    assert untimed(sum(chunks, Run())) == untimed(whole)
    started = [e["metadata"]["jarvis_stage"] for e in events if e["event"] == "on_chat_model_start"]
    assert {"plan", "respond"} <= set(started)
    assert events[-1]["data"]["output"]["answer"].startswith(ANSWER)


def test_a_chain_of_the_client_streams_the_whole_answer(served: Served) -> None:
    chain = served.remote() | (lambda run: run["answer"])
    assert "".join(chain.stream("Good morning!")) == chain.invoke("Good morning!") == "Good morning."


async def test_the_log_of_a_stream_can_be_read_and_ends_with_the_run(served: Served) -> None:
    request = {"input": "What animal is this?", "files": [served.uploaded_cat()]}
    async with served.async_remote() as client:
        patches = [patch async for patch in client.astream_log(request)]
    final = Run.model_validate(sum(patches[1:], patches[0]).state["final_output"])
    assert final.answer.startswith(ANSWER)
    assert final.answer.count(ANSWER) == 1
    assert len(final.results) == 2


def test_a_bad_request_of_a_batch_fails_alone(served: Served) -> None:
    good, bad = map(Run.model_validate, served.remote().batch(["Good morning!", ""]))
    assert good.answer == "Good morning."
    assert "the request is empty" in bad.answer
    assert not bad.ok


async def test_a_failing_tool_does_not_end_the_events_and_shows_no_secret(tmp_path: Path) -> None:
    @tool
    def weather(text: str) -> str:
        """Tell the weather."""
        raise OSError("the key sk-live-12345 was refused")

    llm = ScriptedLLM({"plan": '[{"task": "weather", "id": 0, "args": {"text": "x"}}]', "respond": ANSWER})
    agent = JarvisAgent(model=llm, tools=[weather], settings=Settings(output_dir=tmp_path))
    async with async_remote(create_app(agent)) as client:
        events = [event async for event in client.astream_events("What is the weather?", version="v2")]
    (failure,) = [event for event in events if event["event"] == "on_tool_error"]
    assert failure["data"]["error"] == "<OSError>"
    assert events[-1]["data"]["output"]["answer"].startswith(ANSWER)
    await agent.aclose()


def test_a_thread_has_a_memory_that_others_cannot_read(served: Served) -> None:
    request = {"input": "What animal is this?", "files": [served.uploaded_cat()]}
    first = Run.model_validate(served.remote("one").invoke(request))
    (outline,) = first.results[1].paths()
    served.script["plan"] = plan_for(str(served.runs / outline.relative_to("/outputs")))

    second = Run.model_validate(served.remote("one").invoke("And in the outline?"))
    assert second.ok
    assert "What animal is this?" in served.llm.calls[-1].prompt

    body = {"input": "And in the outline?", "config": {"configurable": {"thread_id": "one"}}}
    for headers in ({"X-Thread-Id": "two"}, {}):
        answer = served.client.post("/agent/invoke", json=body, headers=headers)
        run = Run.model_validate(answer.json()["output"])
        assert run.results == []
        assert "there is no file" in str(run.plan.notes)
        assert "What animal is this?" not in served.llm.calls[-1].prompt


def test_clients_cannot_continue_the_chats_of_the_agents_owner(tmp_path: Path) -> None:
    plan = plan_for(str(CAT))
    agent = agent_of(tmp_path, plan=plan)
    assert agent.invoke(f"What is in {CAT}?", {"configurable": {"thread_id": "one"}}).ok
    with serving(agent) as served:
        run = Run.model_validate(served.remote("one").invoke("And in the picture above?"))
    assert run.results == []
    with agent_of(tmp_path, plan=plan) as agent:
        create_app(agent)
        assert agent.invoke(f"What is in {CAT}?").ok, "serving an agent leaves it as it was"


CALLS: dict[str, Callable[[RemoteRunnable, Any], Any]] = {
    "invoke": lambda client, request: client.invoke(request),
    "stream": lambda client, request: list(client.stream(request)),
    "batch": lambda client, request: client.batch([request]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ("", "empty"),
        ({"input": "Read it", "files": ["/etc/passwd"]}, "passwd: files of this machine"),
        ({"input": "Read it", "files": ["../../../../../../etc/passwd"]}, "files of this machine"),
        ({"input": "Read it", "files": [f"{'0' * 32}/cat.jpg"]}, "upload the file"),
        ({"messages": [HumanMessage([{"type": "image", "url": "file:///etc/passwd"}])]}, "of this machine"),
        ({"question": "What animal is this?"}, "422"),
        ([7], "422"),
        ({"messages": [7]}, "422"),
        ([{"role": "pirate", "content": "Ahoy"}], "422"),
    ],
)
def test_a_bad_request_is_answered_with_422_and_the_reason(
    served: Served, call: Callable[..., Any], request_: Any, complaint: str
) -> None:
    with pytest.raises(HTTPError, match=complaint) as caught:
        call(served.remote(), request_)
    assert caught.value.response.status_code == 422


@pytest.mark.parametrize("call", [CALLS["invoke"], CALLS["stream"]], ids=["invoke", "stream"])
def test_a_run_that_takes_too_long_is_answered_with_504(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]
) -> None:
    monkeypatch.setattr(PipelineStages, "find_runners", lambda _: asyncio.sleep(60))
    with (
        serving(agent_of(tmp_path, budget={"seconds": 0.05})) as served,
        pytest.raises(HTTPError, match="files, perhaps too many") as caught,
    ):
        call(served.remote(), "What animal is this?")
    assert caught.value.response.status_code == 504


PHOTO = {"input": "What animal is this?", "files": ["cat.jpg"]}
PART = {"type": "image_url", "image_url": {"url": "cat.jpg"}}
CHAT = {"model": "jarvis", "messages": [{"role": "user", "content": [PART]}]}


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/agent/stream", {"input": PHOTO}),
        ("/agent/invoke", {"input": PHOTO}),
        ("/agent/batch", {"inputs": [PHOTO]}),
        ("/tools/image-to-text/invoke", {"input": {"image": "cat.jpg"}}),
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", {**CHAT, "stream": True}),
    ],
)
async def test_a_client_that_leaves_cancels_its_run(tmp_path: Path, path: str, given: dict[str, Any]) -> None:
    never, entered, stopped = endless_expert()
    cat = tmp_path / "uploads" / "local" / "cat.jpg"
    cat.parent.mkdir(parents=True)
    cat.write_bytes(CAT.read_bytes())
    experts = {"image-to-text": never, "canny-control": never}
    agent = agent_of(tmp_path, experts, plan_for("cat.jpg"))
    with listening(create_app(agent)) as url:
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            asking = asyncio.create_task(client.post(path, json=given))
            assert await asyncio.to_thread(entered.wait, 120)
            assert not stopped.is_set()
            asking.cancel()
            assert await asyncio.to_thread(stopped.wait, 120)


def test_the_application_describes_itself_and_leads_to_the_playground(served: Served) -> None:
    assert served.get("/healthz").json()["status"] == "ok"
    assert served.get("/openapi.json").status_code == 200
    assert "files" in served.get("/agent/input_schema").text
    assert "results" in served.get("/agent/output_schema").json()["properties"]
    page = served.client.get("/", follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/agent/playground/")
    assert "text/html" in page.headers["content-type"]


def test_shutting_the_server_down_closes_the_agent(tmp_path: Path) -> None:
    with serving(agent_of(tmp_path)) as served:
        served.remote().invoke("Good morning!")
        assert not served.backend.closed
    assert served.backend.closed


@pytest.mark.parametrize(
    ("package", "library", "extra"), [("server", "langserve", "serve"), ("experts", "fastapi", "serve")]
)
def test_a_missing_extra_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, package: str, library: str, extra: str
) -> None:
    name = f"jarvis_agent.interfaces.{package}"
    for module in [module for module in sys.modules if f"{module}.".startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=re.escape(f'"{CLONE}[{extra}]"')):
        import_module(name)


def test_on_loopback_other_hosts_and_their_pages_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On other addresses the server needs an API key, or logs that it has none."""
    apps: list[Any] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: apps.append(server.config.app))
    make_agent = partial(agent_of, tmp_path)
    with pytest.raises(ConfigError, match=r"JARVIS_API_KEYS, or .* --insecure"):
        run_server(make_agent, host="0.0.0.0")
    for host in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1"):
        run_server(make_agent, host=host, insecure=host == "0.0.0.0")
        assert ("there is no API key" in capfd.readouterr().err) == (host == "0.0.0.0")
    hosts = ("localhost:8000", "127.0.0.1:8000", "[::1]:8000", "evil.example")
    statuses = [
        TestClient(app, base_url=f"http://{host}").get("/healthz").status_code
        for app in apps
        for host in hosts
    ]
    assert statuses == [200, 200, 200, 400] * 2 + [200] * 4 + [200, 200, 200, 400]
    client = TestClient(apps[3], base_url="http://[::1]:8000")
    origins = ["http://[::1]:8000", "http://localhost:3000", "http://evil.example", "null", "http://[bad"]
    statuses = [
        client.post("/agent/invoke", json={"input": "Hello"}, headers={"Origin": origin}).status_code
        for origin in origins
    ]
    assert statuses == [200, 200, 403, 403, 403]


def test_a_call_reads_an_upload_and_its_result_can_be_fetched_and_used(served: Served) -> None:
    name = served.upload().json()["name"]
    drawn = served.tool("canny-control").invoke({"image": name})
    assert isinstance(drawn, ToolMessage)
    assert drawn.status == "success"
    assert drawn.artifact["model"] == "fake/canny-control"
    path = drawn.artifact["resources"][0]["path"]
    assert path.startswith("/outputs/")
    assert path in drawn.text
    assert served.get(path).content.startswith(b"\x89PNG")
    assert str(served.outputs) not in drawn.model_dump_json()
    told = served.tool("image-to-text").invoke({"image": path})
    assert told.content == "a tabby cat"
    (outline,) = served.runs.rglob(Path(path).name)
    assert served.backend.calls[-1].inputs["image"].path == outline


def test_batches_and_streams_report_a_failure_as_a_message(served: Served) -> None:
    name = served.upload().json()["name"]
    client = served.tool("image-to-text")
    done, failed = client.batch([{"image": name}, {"image": "/etc/passwd"}])
    assert (done.content, failed.status) == ("a tabby cat", "error")
    assert "may not read 'passwd'; give an http(s) URL, a data URI, an upload or" in failed.content
    assert [chunk.content for chunk in client.stream({"image": name})] == ["a tabby cat"]


def test_a_refusal_does_not_tell_whether_a_path_was_guessed_right(served: Served) -> None:
    client, place = served.tool("image-to-text"), served.outputs.absolute()
    for right, wrong in (
        (place / "server.sqlite", place / "wrong" / "server.sqlite"),
        (place / "server.sqlite", Path("/wrong/server.sqlite")),
        (f"file://{place}/server.sqlite", "file:///wrong/server.sqlite"),
        (place / ("x" * 300), Path("/wrong") / ("x" * 300)),
        (place / "server.sqlite" / "x", Path("/wrong/x")),
        ("~root/x", "~nobody-of-this-name/x"),
        (f"{place}/", f"/wrong/{place.name}/"),
    ):
        told = [client.invoke({"image": str(name)}).content for name in (right, wrong)]
        assert told[0] == told[1]
        asked = [
            served.client.post("/agent/invoke", json={"input": {"input": "Hi", "files": [str(name)]}})
            for name in (right, wrong)
        ]
        assert asked[0].status_code == 422
        assert asked[0].json() == asked[1].json()


async def test_events_show_the_models_that_are_tried(served: Served) -> None:
    name = served.upload().json()["name"]
    client = served.tool("image-to-text")
    events = [event async for event in client.astream_events({"image": name}, version="v2")]
    await client.async_client.aclose()
    assert "fake/image-to-text" in [e["name"] for e in events if e["event"] == "on_chain_start"]
    assert "image-to-text" in [e["name"] for e in events if e["event"] == "on_tool_end"]
    assert events[0]["name"] == "/tools/image-to-text"
    assert str(served.outputs) not in str(events)


def test_an_unknown_task_is_answered_with_similar_names(served: Served) -> None:
    answer = served.client.post("/tools/image-to-test/invoke", json={"input": {}})
    assert answer.status_code == 404
    assert "did you mean image-to-text" in answer.text
    for path in ("input_schema", "output_schema", "config_schema"):
        assert "GET /tools" in (unknown := served.get(f"/tools/nothing-like-it/{path}")).text
        assert unknown.status_code == 404


async def test_a_task_that_is_called_again_has_another_seed(tmp_path: Path) -> None:
    seeds = list[int]()

    def paint(call: Call) -> Image.Image:
        seeds.append(call.settings.seed)
        return Image.new("RGB", (8, 8))

    with listening(create_app(agent_of(tmp_path, {"text-to-image": paint}))) as url:
        async with httpx.AsyncClient(base_url=url, timeout=120) as client:
            for _ in range(2):
                one = await client.post("/tools/text-to-image/invoke", json={"input": {"text": "a cat"}})
                assert one.status_code == 200, one.text
            both = {"inputs": [{"text": "a cat"}] * 2}
            assert (await client.post("/tools/text-to-image/batch", json=both)).status_code == 200
    assert len(set(seeds)) == len(seeds) == 4


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "Field required"),
        ({"image": {"path": "a"}}, "valid string"),
        ({"image": "a", "x": "y"}, "Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_are_named(served: Served, args: Any, said: str) -> None:
    assert served.client.post("/tools/image-to-text/stream", json={"input": args}).status_code == 422
    answer = served.client.post("/tools/image-to-text/invoke", json={"input": args})
    assert answer.status_code == 422
    assert said in answer.text


def test_the_tasks_are_listed_with_their_schemas_and_playgrounds(served: Served) -> None:
    assert [tool["name"] for tool in served.get("/tools").json()] == ["image-to-text", "canny-control"]
    schema = served.get("/tools/canny-control/input_schema").json()
    assert (schema["required"], schema["additionalProperties"]) == (["image"], False)
    assert served.get("/tools/canny-control/output_schema").json()["title"] == "ToolMessage"
    assert served.get("/tools/canny-control/config_schema").json()["properties"] == {}
    assert "/tools/canny-control/playground/" in served.get("/tools/canny-control/playground/").text
    documented = served.get("/openapi.json").json()["paths"]
    assert "/tools/{task}/invoke" in documented


def test_tools_of_the_user_are_served_too(tmp_path: Path) -> None:
    @tool
    def weather(place: str, days: int = 1) -> str:
        """Tell the weather."""
        return f"{days} days of rain in {place}"

    agent = JarvisAgent(ScriptedLLM({}), tools=[weather], settings=Settings(output_dir=tmp_path))
    with TestClient(create_app(agent), base_url=BASE) as client:
        told = remote(client, path="/tools/weather").invoke({"place": "Bonn"})
        assert told.content == "1 days of rain in Bonn"
