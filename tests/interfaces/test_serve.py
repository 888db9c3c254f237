"""The agent over HTTP: a real server on this machine, and LangServe's client."""

from __future__ import annotations

import asyncio
import io
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langserve import RemoteRunnable
from PIL import Image
from served import ANSWER, CAT, Served, agent_of, listening, plan_for, serving
from starlette.testclient import TestClient

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import MissingExtraError
from jarvis_agent.interfaces.server import create_app, output_url, run_server
from jarvis_agent.testing import ScriptedLLM


def untimed(run: Run) -> dict[str, Any]:
    """A run without what differs from one time to the next: times and the run's directory."""
    dumped = run.model_dump(exclude={"timings": True})
    for result in dumped["results"]:
        result["started"] = result["ended"] = 0.0
        for attempt in result["attempts"]:
            attempt["started"] = attempt["ended"] = 0.0
        for resource in result["resources"]:
            resource["path"] = resource["path"] and Path(resource["path"]).name
        if "path" in result["output"]:
            result["output"]["path"] = Path(result["output"]["path"]).name
    return dumped


def test_an_upload_is_worked_on_and_the_result_fetched(served: Served) -> None:
    name = served.uploaded_cat()
    run = Run.model_validate(served.remote().invoke({"input": "What animal is this?", "files": [name]}))
    assert run.answer == ANSWER
    assert [result.status for result in run.results] == ["ok", "ok"]
    assert served.backend.calls[0].inputs["image"].path.read_bytes() == CAT.read_bytes()
    (outline,) = run.results[1].paths()
    got = served.get(output_url(outline))
    assert got.content == outline.read_bytes()
    assert got.headers["content-type"] == "image/png"


def test_the_words_of_a_request_may_call_an_upload_by_its_old_name(served: Served) -> None:
    name = served.upload().json()["name"]
    served.script["plan"] = plan_for("cat.jpg")
    run = Run.model_validate(served.remote().invoke({"input": "What is in cat.jpg?", "files": [name]}))
    assert run.ok
    assert len(run.results) == 2


def test_a_stream_adds_up_to_what_invoke_gives(served: Served) -> None:
    request = {"input": "What animal is this?", "files": [served.uploaded_cat()]}
    chunks = [Run.model_validate(chunk) for chunk in served.remote().stream(request)]
    assert len([chunk for chunk in chunks if chunk.answer]) > 1
    assert len([chunk for chunk in chunks if chunk.results]) == 2
    whole = Run.model_validate(served.remote().invoke(request))
    assert untimed(sum(chunks, Run())) == untimed(whole)


def test_a_batch_gives_a_run_for_each_request(served: Served) -> None:
    request = {"input": "What animal is this?", "files": [served.uploaded_cat()]}
    runs = [Run.model_validate(run) for run in served.remote().batch([request, "What animal is that?"])]
    assert [run.results[0].status for run in runs] == ["ok", "failed"]


async def test_the_client_works_asynchronously(served: Served) -> None:
    request = {"input": "What animal is this?", "files": [served.uploaded_cat()]}
    async with served.async_remote() as remote:
        whole = Run.model_validate(await remote.ainvoke(request))
        chunks = [Run.model_validate(chunk) async for chunk in remote.astream(request)]
    assert whole.answer == ANSWER
    assert untimed(sum(chunks, Run())) == untimed(whole)


async def test_the_events_of_a_run_can_be_watched(served: Served) -> None:
    request = {"input": "What animal is this?", "files": [served.uploaded_cat()]}
    async with served.async_remote() as remote:
        events = [event async for event in remote.astream_events(request, version="v2")]
    started = [event["name"] for event in events if event["event"] == "on_chat_model_start"]
    assert started == ["plan", "respond"]
    assert events[-1]["data"]["output"]["answer"] == ANSWER


async def test_a_tool_that_fails_does_not_end_the_events(tmp_path: Path) -> None:
    @tool
    def weather(text: str) -> str:
        """Tell the weather."""
        raise OSError("the key sk-live-12345 was refused")

    llm = ScriptedLLM({"plan": '[{"task": "weather", "id": 0, "args": {"text": "x"}}]', "respond": ANSWER})
    agent = JarvisAgent(model=llm, tools=[weather], settings=Settings(output_dir=tmp_path))
    with listening(create_app(agent)) as url:
        remote = RemoteRunnable(f"{url}/agent")
        events = [event async for event in remote.astream_events("What is the weather?", version="v2")]
        await remote.async_client.aclose()
    (failure,) = [event for event in events if event["event"] == "on_tool_error"]
    assert failure["data"]["error"] == "<OSError>"
    assert events[-1]["data"]["output"]["answer"].startswith(f"{ANSWER}\n\nWhat did not work:")


def test_messages_are_a_request_too(served: Served) -> None:
    run = Run.model_validate(served.remote().invoke({"messages": [HumanMessage("Good morning!")]}))
    assert run.answer == "Good morning."


def test_a_thread_remembers_and_others_do_not_hear_of_it(served: Served) -> None:
    request = {"input": "What animal is this?", "files": [served.uploaded_cat()]}
    first = Run.model_validate(served.remote("one").invoke(request))
    (outline,) = first.results[1].paths()
    served.script["plan"] = plan_for(str(outline))

    second = Run.model_validate(served.remote("one").invoke("And in the outline?"))
    assert second.ok
    assert "What animal is this?" in served.llm.calls[-1].prompt

    for stranger in (served.remote("two"), served.remote()):
        run = Run.model_validate(stranger.invoke("And in the outline?"))
        assert "neither the request nor the settings allow" in (run.results[0].error or "")
        assert "What animal is this?" not in served.llm.calls[-1].prompt


def test_the_chats_of_the_agents_owner_are_not_for_clients(tmp_path: Path) -> None:
    script = {"plan": plan_for(str(CAT))}
    agent = agent_of(tmp_path, script)
    assert agent.invoke(f"What is in {CAT}?", {"configurable": {"thread_id": "one"}}).ok
    with serving(agent, script) as served:
        run = Run.model_validate(served.remote("one").invoke("And in the picture above?"))
    assert [result.status for result in run.results] == ["failed", "failed"]


def test_a_thread_id_in_the_body_counts_for_nothing(served: Served) -> None:
    in_body = {"configurable": {"thread_id": "one"}}
    for _ in range(2):
        served.remote().invoke("What animal is this?", in_body)
    assert all(call.prompt.count("What animal is this?") == 1 for call in served.llm.calls)


ASKING: dict[str, Callable[[RemoteRunnable, Any], Any]] = {
    "invoke": lambda remote, request: remote.invoke(request),
    "stream": lambda remote, request: list(remote.stream(request)),
    "batch": lambda remote, request: remote.batch([request]),
}


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ("", "the request is empty"),
        ({"input": "Read it", "files": ["/etc/passwd"]}, "/etc/passwd: files of this machine are not read"),
        ({"input": "Read it", "files": ["../../../../../../etc/passwd"]}, "files of this machine are not"),
        ({"input": "Read it", "files": [f"{'0' * 32}/cat.jpg"]}, "upload the file"),
        (
            {"messages": [HumanMessage([{"type": "image", "url": "file:///etc/passwd"}])]},
            "files of this machine are not read",
        ),
    ],
    ids=["empty", "absolute path", "path upwards", "no such upload", "file URL"],
)
def test_a_request_at_fault_is_told_why(
    served: Served, asking: Callable[..., Any], request_: Any, complaint: str
) -> None:
    with pytest.raises(httpx.HTTPStatusError, match=complaint) as caught:
        asking(served.remote(), request_)
    assert caught.value.response.status_code == 422


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_input_of_another_form_is_the_clients_fault(served: Served, asking: Callable[..., Any]) -> None:
    with pytest.raises(httpx.HTTPStatusError) as caught:
        asking(served.remote(), {"question": "What animal is this?"})
    assert caught.value.response.status_code == 422


@pytest.mark.parametrize("endpoint", ["invoke", "batch", "stream", "stream_events"])
@pytest.mark.parametrize(
    "body",
    [b"{", b'{"input": "\xff"}', b'{"input": ' + b"9" * 5_000 + b"}", b"[" * 5_000 + b"]" * 5_000],
    ids=["cut off", "not UTF-8", "a long number", "deep"],
)
def test_a_body_that_is_no_json_is_the_clients_fault(served: Served, endpoint: str, body: bytes) -> None:
    answer = httpx.post(f"{served.url}/agent/{endpoint}", content=body)
    assert answer.status_code == 422
    assert "no JSON that can be read" in answer.text


def test_a_body_that_is_nested_too_deep_is_the_clients_fault(served: Served) -> None:
    deep = b'{"a": ' * 600 + b"1" + b"}" * 600
    answer = httpx.post(f"{served.url}/agent/invoke", content=b'{"input": ' + deep + b"}")
    assert answer.status_code == 422


@pytest.mark.parametrize("words", ["Read {path} to me", "Show me '{path}'"])
def test_a_file_of_the_server_that_the_words_name_is_not_read(
    served: Served, tmp_path: Path, words: str
) -> None:
    secret = tmp_path / "secret.png"
    Image.new("RGB", (8, 8)).save(secret)
    served.script["plan"] = plan_for(str(secret))
    run = Run.model_validate(served.remote().invoke(words.format(path=secret)))
    assert [result.status for result in run.results] == ["failed", "failed"]
    assert "files of this machine are not read" in (run.results[0].error or "")
    assert not served.backend.calls


def test_an_upload_can_not_be_read_without_its_name(served: Served) -> None:
    served.upload()
    served.script["plan"] = plan_for("cat.jpg", str(served.outputs / "uploads"))
    run = Run.model_validate(served.remote().invoke("What is in the picture that somebody sent?"))
    assert [result.status for result in run.results] == ["failed", "failed"]
    assert not served.backend.calls


@pytest.mark.parametrize("asking", [ASKING["invoke"], ASKING["stream"]], ids=["invoke", "stream"])
def test_a_run_that_is_late_before_it_has_begun_says_so(
    tmp_path: Path, asking: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(self: JarvisAgent) -> Any:
        await asyncio.sleep(60)

    monkeypatch.setattr(JarvisAgent, "_workers", slow)
    agent = JarvisAgent(
        model=ScriptedLLM([]), settings=Settings(output_dir=tmp_path, run_timeout=0.2, offline=True)
    )
    late = pytest.raises(httpx.HTTPStatusError, match="JARVIS_RUN_TIMEOUT")
    with listening(create_app(agent)) as url, late as caught:
        asking(RemoteRunnable(f"{url}/agent"), "What animal is this?")
    assert caught.value.response.status_code == 504


@pytest.mark.parametrize("asking", [ASKING["invoke"], ASKING["stream"]], ids=["invoke", "stream"])
def test_a_fault_of_the_server_tells_nothing(
    tmp_path: Path, asking: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: JarvisAgent) -> Any:
        raise RuntimeError("the key sk-live-12345 was refused")

    monkeypatch.setattr(JarvisAgent, "_workers", broken)
    agent = JarvisAgent(model=ScriptedLLM([]), settings=Settings(output_dir=tmp_path))
    error = pytest.raises(httpx.HTTPStatusError, match="Internal Server Error")
    with listening(create_app(agent)) as url, error as caught:
        asking(RemoteRunnable(f"{url}/agent"), "What animal is this?")
    assert caught.value.response.status_code == 500
    assert "sk-live" not in str(caught.value) + caught.value.response.text
    assert "Traceback" not in str(caught.value) + caught.value.response.text


@pytest.mark.parametrize("asking", [ASKING["invoke"], ASKING["stream"]], ids=["invoke", "stream"])
def test_a_fault_of_a_planner_is_answered_without_its_words(
    tmp_path: Path, asking: Callable[..., Any]
) -> None:
    class Broken:
        async def plan(self, brief: Any, on_task: Any) -> Any:
            raise RuntimeError("the key sk-live-12345 was refused")

    llm = ScriptedLLM({"chat": "I could not do it."})
    agent = JarvisAgent(model=llm, planner=Broken(), settings=Settings(output_dir=tmp_path))
    with listening(create_app(agent)) as url:
        told = str(asking(RemoteRunnable(f"{url}/agent"), "What animal is this?"))
    assert "RuntimeError" in told
    assert "sk-live" not in told


def test_a_client_that_leaves_ends_its_run(tmp_path: Path) -> None:
    entered, stopped = threading.Event(), threading.Event()

    async def never(call: Call) -> Any:
        entered.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    script = {"plan": "[]"}
    agent = agent_of(tmp_path, script, {"image-to-text": never, "canny-control": Image.new("L", (8, 8))})
    with serving(agent, script) as served:
        chunks = served.remote().stream({"input": "What animal is this?", "files": [served.uploaded_cat()]})
        next(chunks)
        assert entered.wait(timeout=30)
        chunks.close()
        assert stopped.wait(timeout=30)


def test_the_server_says_that_it_is_up_and_what_it_takes(served: Served) -> None:
    assert served.get("/health").json()["status"] == "ok"
    assert served.get("/openapi.json").status_code == 200
    assert "files" in served.get("/agent/input_schema").text
    assert "results" in served.get("/agent/output_schema").json()["properties"]
    assert served.get("/agent/playground/").status_code == 200


def test_the_end_of_the_server_closes_the_agent(tmp_path: Path) -> None:
    script = {"plan": "[]"}
    with serving(agent_of(tmp_path, script), script) as served:
        served.remote().invoke("Good morning!")
        assert not served.backend.closed
    assert served.backend.closed


def test_serving_an_agent_leaves_it_as_it_was(tmp_path: Path) -> None:
    script = {"plan": plan_for(str(CAT))}
    with agent_of(tmp_path, script) as agent:
        create_app(agent)
        assert agent.invoke(f"What is in {CAT}?").ok


def test_without_the_extra_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "langserve", None)
    with (
        agent_of(tmp_path, {}) as agent,
        pytest.raises(MissingExtraError, match=r"langchain-hugginggpt\[serve\]"),
    ):
        create_app(agent)


def test_on_loopback_other_host_names_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apps: list[Any] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: apps.append(server.config.app))
    with agent_of(tmp_path, {}) as agent:
        run_server(agent)
        run_server(agent, host="127.0.0.2")
        run_server(agent, host="0.0.0.0")
    statuses = [
        TestClient(app, base_url=f"http://{host}").get("/health").status_code
        for app in apps
        for host in ("localhost:8000", "127.0.0.1:8000", "evil.example")
    ]
    assert statuses == [200, 200, 400] * 2 + [200] * 3


def test_on_loopback_pages_of_other_hosts_start_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apps: list[Any] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server: apps.append(server.config.app))
    with agent_of(tmp_path, {"plan": "[]", "chat": "Hello!"}) as agent:
        run_server(agent, host="::1")
        client = TestClient(apps[0], base_url="http://[::1]:8000")
        origins = ["http://[::1]:8000", "http://localhost:3000", "http://evil.example", "null", "http://[bad"]
        statuses = [
            client.post("/agent/invoke", json={"input": "Hello"}, headers={"Origin": origin}).status_code
            for origin in origins
        ]
    assert statuses == [200, 200, 403, 403, 403]


def test_the_address_of_the_server_leads_to_the_playground(served: Served) -> None:
    page = httpx.get(f"{served.url}/", follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/agent/playground/")
    assert "text/html" in page.headers["content-type"]


@pytest.mark.parametrize("path", ["", "/my/agent"])
def test_the_playground_is_found_wherever_the_agent_is(tmp_path: Path, path: str) -> None:
    with agent_of(tmp_path, {}) as agent:
        page = TestClient(create_app(agent, path=path)).get("/")
    assert (page.status_code, page.url.path) == (200, f"{path}/playground/")


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jarvis = [sys.executable, "-c", "from jarvis_agent.interfaces.cli.app import main; main()"]
    command = [*jarvis, "serve", "--port", str(port), "--out", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        told = io.StringIO()
        for line in process.stderr:
            told.write(line)
            if "running on" in line:
                break
        assert httpx.get(f"http://127.0.0.1:{port}/health").json()["status"] == "ok", told.getvalue()
        process.send_signal(signal.SIGINT)
        process.stderr.read()
    assert process.returncode == 130
