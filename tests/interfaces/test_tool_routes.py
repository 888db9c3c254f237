"""Every task as a tool over HTTP, with LangServe's client."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langserve import RemoteRunnable
from served import BASE, Served, _InProcess
from starlette.testclient import TestClient

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.interfaces.server import create_app
from jarvis_agent.testing import ScriptedLLM


def remote_tool(client: TestClient, task: str) -> RemoteRunnable:
    return RemoteRunnable(f"{BASE}/tools/{task}", client_kwargs={"transport": _InProcess(client)})


def test_a_call_reads_an_upload_and_its_result_can_be_fetched_and_used(served: Served) -> None:
    name = served.upload().json()["name"]
    drawn = remote_tool(served.client, "canny-control").invoke({"image": name})
    assert isinstance(drawn, ToolMessage)
    assert drawn.status == "success"
    assert drawn.artifact["model"] == "fake/canny-control"
    path = drawn.artifact["resources"][0]["path"]
    assert path.startswith("/outputs/")
    assert path in drawn.text
    assert served.get(path).content.startswith(b"\x89PNG")
    assert str(served.outputs) not in drawn.model_dump_json()
    told = remote_tool(served.client, "image-to-text").invoke({"image": path})
    assert told.content == "a tabby cat"
    (outline,) = served.runs.rglob(Path(path).name)
    assert served.backend.calls[-1].inputs["image"].path == outline


def test_batches_and_streams_report_a_failure_as_a_message(served: Served) -> None:
    name = served.upload().json()["name"]
    client = remote_tool(served.client, "image-to-text")
    done, failed = client.batch([{"image": name}, {"image": "/etc/passwd"}])
    assert (done.content, failed.status) == ("a tabby cat", "error")
    assert "may not read 'passwd'; give an http(s) URL, a data URI, an upload or" in failed.content
    assert [chunk.content for chunk in client.stream({"image": name})] == ["a tabby cat"]


def test_a_refusal_does_not_tell_whether_a_path_was_guessed_right(served: Served) -> None:
    client, place = remote_tool(served.client, "image-to-text"), served.outputs.absolute()
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
    client = remote_tool(served.client, "image-to-text")
    events = [event async for event in client.astream_events({"image": name}, version="v2")]
    await client.async_client.aclose()
    assert "fake/image-to-text" in [e["name"] for e in events if e["event"] == "on_chain_start"]
    assert "image-to-text" in [e["name"] for e in events if e["event"] == "on_tool_end"]
    assert str(served.outputs) not in str(events)


def test_an_unknown_task_is_answered_with_similar_names(served: Served) -> None:
    answer = served.client.post("/tools/image-to-test/invoke", json={"input": {}})
    assert answer.status_code == 404
    assert "did you mean image-to-text" in answer.text
    assert "GET /tools" in served.get("/tools/nothing-like-it/input_schema").text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "Field required"),
        ({"image": {"path": "a"}}, "valid string"),
        ({"image": "a", "x": "y"}, "Extra inputs are not permitted"),
    ],
)
def test_wrong_arguments_are_named(served: Served, args: Any, said: str) -> None:
    answer = served.client.post("/tools/image-to-text/invoke", json={"input": args})
    assert answer.status_code == 422
    assert said in answer.text


def test_the_tasks_are_listed_with_their_schemas_and_playgrounds(served: Served) -> None:
    assert [tool["name"] for tool in served.get("/tools").json()] == ["image-to-text", "canny-control"]
    assert served.get("/tools/canny-control/input_schema").json()["required"] == ["image"]
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
        assert remote_tool(client, "weather").invoke({"place": "Bonn"}).content == "1 days of rain in Bonn"
