"""Who may use a server: keys, owners, pages of other origins, and limits; each route by itself."""

import asyncio
import hmac
import json
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI
from langgraph.checkpoint.memory import InMemorySaver
from served import (
    BASE,
    CAT,
    Served,
    agent_of,
    body_of,
    endless_expert,
    listening,
    plan_for,
    remote,
    routes,
    serving,
)
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import Mount
from starlette.testclient import TestClient

from jarvis_agent import JarvisAgent, Run, Settings
from jarvis_agent.agent.stages import PipelineStages
from jarvis_agent.core.errors import ConfigError
from jarvis_agent.core.settings import ServerSettings, misspelt_variables
from jarvis_agent.execution.fallback import HFTaskRunner
from jarvis_agent.interfaces.common import limits
from jarvis_agent.interfaces.common.access import ApiKey, KeyAuthentication
from jarvis_agent.interfaces.common.listen import accepted_hosts
from jarvis_agent.interfaces.server import create_app, run_server
from jarvis_agent.interfaces.server.app import router
from jarvis_agent.interfaces.server.workspaces import make_workspaces

ADA, BOB = "key-of-ada-1234567890", "key-of-bob-1234567890"
ROUTES = routes()
HIDDEN = [("get", path) for path in ("/agent/playground/", "/metrics", "/healthz/../v1/models", "/nowhere")]
ASKING = [path for method, path in ROUTES if method == "post" and not re.match("/files|/runs/", path)]
"""The routes that start a run or call a task."""
FORM = "/v1/audio/transcriptions"
"""The one that takes a form, as an upload does."""
NAMING = [path for path in ASKING if not re.match("/v1/(audio|embeddings|images)", path)]
"""Those in which a request may name a file."""


class Guarded(Served):
    """A server with the keys of Ada and Bob."""

    def by(self, key: str | None = None, **headers: str) -> TestClient:
        """The client of the holder of a key, or of anyone."""
        if key:
            headers["Authorization"] = f"Bearer {key}"
        client = TestClient(self.client.app, BASE, headers=headers, raise_server_exceptions=False)
        client.portal = self.client.portal  # the event loop in which the database was opened
        return client

    def ask(self, key: str, path: str, file: str | None = None, **headers: str) -> httpx.Response:
        """What a route answers to a request, perhaps about a file; a run is awaited."""
        client = self.by(key, **headers)
        if path == FORM:
            sound = ("a.wav", (CAT.parent / "speech.wav").read_bytes()[:50_000])
            return client.post(path, files={"file": sound}, data={"model": "jarvis"})
        answer = client.post(path.replace("{task}", "image-to-text"), json=body_of(path, file))
        while path == "/runs" and answer.is_success and answer.json()["status"] in ("queued", "running"):
            time.sleep(0.01)
            answer = client.get(f"/runs/{answer.json()['id']}")
        return answer

    def cat_of(self, key: str) -> str:
        """The name of an uploaded cat, which the language model plans with from now on."""
        answer = self.by(key).post("/files", files={"file": ("cat.jpg", CAT.read_bytes())})
        name: str = answer.json()["name"]
        self.script["plan"] = plan_for(name)
        return name


@contextmanager
def guarding(outputs: Path, keys: tuple[str, ...] = (ADA, BOB), **settings: Any) -> Iterator[Guarded]:
    with serving(agent_of(outputs), api_keys=keys, **settings) as served:
        yield Guarded(**vars(served))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarding(tmp_path_factory.mktemp("guarded")) as found:
        yield found


@pytest.fixture
def guarded(running: Guarded) -> Guarded:
    running.script["plan"] = "[]"
    return running


def statuses(*answers: httpx.Response) -> list[int]:
    return [answer.status_code for answer in answers]


@pytest.mark.parametrize(("method", "path"), [*ROUTES, *HIDDEN])
def test_a_route_needs_a_key_and_no_page_of_another_origin(guarded: Guarded, method: str, path: str) -> None:
    for header in (None, "Bearer wrong", f"Bearer {ADA}x", "Bearer", "Bearer ключ", f"Basic {ADA}"):
        sent = {"Authorization": header.encode()} if header else {}
        answer = guarded.by().request(method, path, headers=sent)
        assert answer.status_code == (200 if path == "/healthz" else 401)
        if answer.status_code == 401:
            challenge = 'Bearer error="invalid_token"' if header else "Bearer"
            assert answer.headers["www-authenticate"] == challenge
            assert answer.json()["error"]["code"] == "invalid_api_key"
    answer = guarded.by(ADA).request(method, path, headers={"Origin": "https://evil.example"})
    assert answer.status_code == 403


def test_a_header_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr("uvicorn.Server.run", lambda server: started.append(server.config))
        run_server(partial(agent_of, tmp_path))
    with listening(started[0].app, http=started[0].http) as url:
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nX: ")
            sending = (connection.sendall(b"x" * 1_000_000) for _ in range(100))
            with pytest.raises(ConnectionError):
                any(sending)
        assert httpx.get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize("path", [path for path in ASKING if path != FORM])
def test_a_body_has_limits(guarded: Guarded, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """LangServe reads a body of any type and encoding as JSON."""
    monkeypatch.setattr(limits, "_MAX_JSON_VALUES", 150)
    ada, url = guarded.by(ADA), path.replace("{task}", "image-to-text")
    long = body_of(path) | {"more": [[0] * 80, {f'\\",[{number}': 0 for number in range(80)}]}
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    refused = [ada.post(url, content=content) for content in (b" " * 300_000, iter([b" " * 1_000] * 300))]
    for body in (long, {"more": deep}):
        for kind, encoding in (("application/json", "utf-16"), ("multipart/form-data; boundary=x", "utf-8")):
            headers = {"Content-Type": kind}
            refused.append(ada.post(url, content=json.dumps(body).encode(encoding), headers=headers))
    assert statuses(*refused) == [413] * 6
    assert {answer.json()["error"]["type"] for answer in refused} == {"invalid_request_error"}
    for more in ([0] * 80, '"[{,' * 200, "\\"):
        assert ada.post(url, json={**body_of(path), "more": more}).status_code != 413


@pytest.mark.parametrize("path", ASKING)
def test_a_body_of_the_wrong_form_is_refused_and_not_repeated(guarded: Guarded, path: str) -> None:
    """Python's JSON has numbers that JSON lacks, and halves of characters that UTF-8 lacks."""
    broken = [b"{", b'{"input": "\xff"}', b'{"input": ' + b"9" * 5_000 + b"}"]
    other = [b"NaN", b"[]", b'{"other": "\\ud800"}', b'{"\\ud800": "a secret"}']
    for content in broken + other:
        url, headers = path.replace("{task}", "image-to-text"), {"Content-Type": "application/json"}
        answer = guarded.by(ADA).post(url, content=content, headers=headers)
        assert answer.status_code in (400, 422), content
        assert "a secret" not in answer.text


@pytest.mark.parametrize("path", NAMING)
def test_a_request_reads_the_files_of_its_owner_and_no_other(guarded: Guarded, path: str) -> None:
    name, secret = guarded.cat_of(ADA), guarded.outputs.parent / "secret.jpg"
    shutil.copy(CAT, secret)
    draw = guarded.by(ADA).post("/tools/canny-control/invoke", json={"input": {"image": name}})
    outline = draw.json()["output"]["artifact"]["resources"][0]["path"]
    made = guarded.outputs / "served" / ApiKey(ADA).owner / outline.removeprefix("/outputs/")

    def is_read(key: str, file: str) -> bool:
        guarded.script["plan"] = plan_for(file)
        guarded.backend.calls.clear()
        answer = guarded.ask(key, path, file)
        assert str(guarded.outputs) not in answer.text
        return bool(guarded.backend.calls)

    assert is_read(ADA, name)
    for file in (str(secret), f"file://{secret}", "../../../secret.jpg", f"/outputs/../../{secret.name}"):
        assert not is_read(ADA, file), file
    for file in (name, outline, str(made)):
        assert not is_read(BOB, file), file


@pytest.mark.parametrize("path", ASKING)
def test_an_error_of_the_server_shows_no_details(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("the key sk-live-12345 was refused")

    monkeypatch.setattr(PipelineStages, "find_runners", broken)
    monkeypatch.setattr(PipelineStages, "callable_tools", broken)
    monkeypatch.setattr(HFTaskRunner, "select", broken)
    answer = guarded.ask(ADA, path)
    assert "Internal Server Error" in answer.text
    assert answer.headers.get("x-should-retry") == ("false" if path.startswith("/v1") else None)
    assert not re.search(f"sk-live|Traceback|{guarded.outputs}", answer.text)


def test_a_run_of_another_key_is_not_found(guarded: Guarded) -> None:
    asked = body_of("/runs") | {"thread": "shared"}
    run, other = (guarded.by(key).post("/runs", json=asked).json()["id"] for key in (ADA, BOB))
    listed = [[info["id"] for info in guarded.by(key).get("/runs").json()] for key in (ADA, BOB)]
    assert [(run in ids, other in ids) for ids in listed] == [(True, False), (False, True)]
    body = {"decision": True, "good": True}
    for method, path in [(method, path) for method, path in ROUTES if path.startswith("/runs/")]:
        for found in (path.replace("{run}", run), path.replace("{run}", "%00")):
            answer = guarded.by(BOB).request(method, found, json=body)
            assert answer.status_code == 404, found


def test_each_route_counts_for_the_limit_of_runs(tmp_path: Path) -> None:
    with guarding(tmp_path, runs_per_minute=1) as guarded:
        assert guarded.ask(ADA, "/agent/invoke").status_code == 200
        assert {path: guarded.ask(ADA, path).status_code for path in ASKING} == dict.fromkeys(ASKING, 429)
        ada = guarded.by(ADA)
        assert statuses(ada.get("/agent/input_schema"), ada.get("/v1/models")) == [200, 200]
    assert {"/agent/stream", "/tools/{task}/invoke", "/v1/chat/completions", "/runs"} <= {*ASKING}


def test_every_key_is_compared_in_constant_time(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[Any, Any]] = []

    def compare(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return one == other

    with monkeypatch.context() as patch:
        patch.setattr(hmac, "compare_digest", compare)
        answers = [guarded.by(key).get("/v1/models") for key in (ADA, BOB, "x")]
    assert statuses(*answers) == [200, 200, 401]
    assert len(compared) == 3 * 2
    assert {len(value) for pair in compared for value in pair} == {32}, "digests tell no length"


def test_threads_of_the_same_name_are_not_shared(guarded: Guarded) -> None:
    name = guarded.cat_of(ADA)
    ada, bob = (
        remote(guarded.by(), {"Authorization": f"Bearer {key}", "X-Thread-Id": "one"}) for key in (ADA, BOB)
    )
    run = Run.model_validate(ada.invoke({"input": "What animal is this?", "files": [name]}))
    (outline,) = run.results[1].paths()
    (made,) = guarded.outputs.rglob(f"{outline.parent.name}/{outline.name}")
    guarded.script["plan"] = plan_for(str(made))
    mine, theirs = (Run.model_validate(client.invoke("And in the outline?")) for client in (ada, bob))
    assert mine.ok
    assert theirs.results == []


@pytest.mark.parametrize("endpoint", ["invoke", "batch", "stream", "stream_events", "stream_log"])
def test_clients_configure_nothing(guarded: Guarded, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """The server sets the owner and the thread, whatever a request says."""
    seen: list[tuple[JarvisAgent, dict[str, Any]]] = []
    events = JarvisAgent.aevents

    def recorded(self: JarvisAgent, request: Any, config: Any = None) -> Any:
        seen.append((self, config["configurable"]))
        return events(self, request, config)

    monkeypatch.setattr(JarvisAgent, "aevents", recorded)
    wanted = {"owner": "local", "agent": "mine", "thread_id": "x/one", "model": "m"}
    wanted |= {"checkpoint_ns": "n", "checkpoint_id": "1"}
    config = {"configurable": wanted, "recursion_limit": 1, "tags": ["mine"]}
    body = {"input": "Hello", "inputs": ["Hello"], "config": config}
    answer = guarded.by(ADA, **{"X-Thread-Id": "one"}).post(f"/agent/{endpoint}", json=body)
    assert answer.status_code == 200
    ((agent, configurable),) = seen
    owner = configurable["owner"]
    assert owner not in ("local", ADA)
    assert configurable == {"owner": owner, "thread_id": f"{owner}/one", "agent": agent}


def reply_of(guarded: Guarded, key: str, question: str, *, stream: bool = False) -> str:
    """The answer of OpenAI's client, with this key."""
    client = openai.OpenAI(base_url=f"{BASE}/v1", api_key=key, http_client=guarded.by(), max_retries=0)
    ask = client.chat.completions.create
    messages: Any = [{"role": "user", "content": question}]
    if not stream:
        return ask(model="jarvis", messages=messages).choices[0].message.content or ""
    chunks = ask(model="jarvis", messages=messages, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def drawn(guarded: Guarded, key: str, *, stream: bool = False) -> str:
    """The URL of a picture that a run has made."""
    name = guarded.cat_of(key)
    reply = reply_of(guarded, key, f"What animal is in {name}?", stream=stream)
    (url,) = re.findall(r"\((http\S+)\)", reply)
    return str(url)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_signed_url_is_opened_without_a_key_and_opens_nothing_else(guarded: Guarded, stream: bool) -> None:
    url = drawn(guarded, ADA, stream=stream)
    path, _, signature = url.partition("?signature=")
    anyone, folder = guarded.by(), path.rpartition("/")[0]
    assert anyone.get(url).headers["content-type"] == "image/png"
    refused = [
        anyone.get(path),
        anyone.get(f"{url[:-1]}{'0' if url[-1] != '0' else '1'}"),
        anyone.get(f"{path}?signature=ключ"),
        anyone.get(f"{folder}/other.png?signature={signature}"),
        anyone.get(f"{path}/../x/../1-canny-control.png/?signature={signature}"),
        anyone.get(f"/v1/models?signature={signature}"),
        anyone.post(url),
    ]
    assert statuses(*refused) == [401] * len(refused)
    assert "revoked" in refused[1].json()["detail"]
    assert guarded.by(BOB).get(url).status_code == 404


def test_signed_urls_work_below_a_path(guarded: Guarded) -> None:
    mounted = TestClient(Starlette(routes=[Mount("/sub", guarded.client.app)]), BASE)
    mounted.portal = guarded.client.portal
    name, ada = guarded.cat_of(ADA), {"Authorization": f"Bearer {ADA}"}
    asked = {"model": "jarvis", "messages": [{"role": "user", "content": f"What animal is in {name}?"}]}
    reply = mounted.post("/sub/v1/chat/completions", json=asked, headers=ada).text
    (url,) = re.findall(r"\((http[^)]+)\)", reply)
    assert url.startswith(f"{BASE}/sub/outputs/")
    answers = [mounted.get(address) for address in (url, url.partition("?")[0], "/sub/healthz")]
    assert statuses(*answers) == [200, 401, 200]


def test_a_later_message_may_name_a_signed_url_of_the_same_key(guarded: Guarded) -> None:
    url = drawn(guarded, ADA)
    path = guarded.outputs / "served" / ApiKey(ADA).owner / url.partition("/outputs/")[2].partition("?")[0]
    guarded.script["plan"] = plan_for(str(path))
    assert "signature=" in reply_of(guarded, ADA, f"And in {url}?")
    assert "signature=" not in reply_of(guarded, BOB, f"And in {url}?")


def test_a_revoked_key_ends_with_its_urls(tmp_path: Path) -> None:
    with guarding(tmp_path) as guarded:
        mine, theirs = drawn(guarded, ADA), drawn(guarded, BOB)
    with guarding(tmp_path, keys=(BOB,)) as guarded:
        answers = [guarded.by().get(url) for url in (mine, theirs)]
        answers += [guarded.by(key).get("/v1/models") for key in (ADA, BOB)]
        assert statuses(*answers) == [401, 200, 401, 200]


def test_urls_do_not_lead_to_the_files_of_another_owner(guarded: Guarded) -> None:
    run, name = drawn(guarded, ADA).partition("?")[0].split("/")[-2:]
    owner = ApiKey(ADA).owner
    assert (guarded.outputs / "served" / owner / run / name).is_file()
    for path in (
        f"/outputs/{run}/{name}",
        f"/outputs/{owner}/{run}/{name}",
        f"/outputs/..%2f{owner}%2f{run}/{name}",
        f"/outputs/%2e%2e/{owner}/{run}/{name}",
        f"/outputs/../{owner}/{run}/{name}",
        f"/outputs/{run}%2f..%2f..%2f{owner}%2f{run}/{name}",
        f"//outputs/{run}/{name}",
    ):
        assert guarded.by(BOB).get(path).status_code == 404, path


SENT = ("authorization", "last-event-id", "x-stainless-lang", "x-thread-id")
PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": ", ".join(SENT)}


def test_a_page_may_use_the_server_if_its_origin_is_allowed(tmp_path: Path) -> None:
    chat, evil = "https://chat.example", "https://evil.example"
    with guarding(tmp_path, allowed_origins=[chat]) as guarded:
        allowed = guarded.by().options("/agent/invoke", headers=PREFLIGHT | {"Origin": chat})
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == chat
        assert set(SENT) <= set(allowed.headers["access-control-allow-headers"].lower().split(", "))
        for key, status in ((ADA, 200), (None, 401)):
            answer = guarded.by(key).get("/v1/models", headers={"Origin": chat})
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == chat
        exposed = answer.headers["access-control-expose-headers"].lower().split(", ")
        assert {"location", "retry-after", "x-should-retry"} <= set(exposed)

        for origin in (evil, f"{chat}.evil.example", "http://chat.example", "null"):
            refused = guarded.by().options("/agent/invoke", headers=PREFLIGHT | {"Origin": origin})
            answer = guarded.by(ADA).post("/agent/invoke", json={"input": "Hi"}, headers={"Origin": origin})
            assert statuses(refused, answer) == [403, 403]
            assert "access-control-allow-origin" not in {*refused.headers, *answer.headers}
        assert guarded.by(ADA).get("/v1/models", headers={"Origin": BASE}).status_code == 200


def test_only_named_hosts_are_served(tmp_path: Path) -> None:
    with guarding(tmp_path, allowed_hosts=["jarvis.example"]) as guarded:
        found = [
            guarded.by(ADA).get("/v1/models", headers={"Host": host})
            for host in ("jarvis.example", "jarvis.example:8000", "evil.example", "jarvis.example.evil.org")
        ]
    assert statuses(*found) == [200, 200, 400, 400]


def test_named_hosts_do_not_shut_this_machine_out() -> None:
    """A container's health check asks localhost."""
    assert accepted_hosts("0.0.0.0") == ("*",)
    assert {"localhost", "jarvis.example"} <= set(accepted_hosts("0.0.0.0", ["jarvis.example"]))
    assert {"localhost", "jarvis.example"} <= set(accepted_hosts("127.0.0.1", ["jarvis.example"]))


async def test_no_more_runs_are_at_work_at_once_than_allowed(tmp_path: Path) -> None:
    """A run ends when its client goes, and leaves its place to another."""
    never, entered, stopped = endless_expert()
    plans = iter([plan_for("cat.jpg")])
    experts = {"image-to-text": never, "canny-control": never}
    agent = agent_of(tmp_path, experts, lambda _: next(plans, "[]"))
    app = create_app(agent, ServerSettings(api_keys=(ADA, BOB), max_concurrent_runs=1))
    with listening(app) as url:
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {ADA}"}) as ada:
            sent = await ada.post("/files", files={"file": ("cat.jpg", CAT.read_bytes())})
            body = {"input": {"input": "What animal is this?", "files": [sent.json()["name"]]}}
            async with ada.stream("POST", "/agent/stream", json=body) as running:
                assert running.status_code == 200
                assert await asyncio.to_thread(entered.wait, 120)
                refused = await ada.post("/agent/invoke", json={"input": "Hello"})
                theirs = await ada.post(
                    "/agent/invoke", json={"input": "Hello"}, headers={"Authorization": f"Bearer {BOB}"}
                )
            assert statuses(refused, theirs) == [429, 200]
            assert "at most 1 runs at once" in refused.json()["detail"]
            assert int(refused.headers["retry-after"]) > 0
            assert await asyncio.to_thread(stopped.wait, 120)
            async with asyncio.timeout(60):
                while (await ada.post("/agent/invoke", json={"input": "Hello"})).status_code != 200:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


def test_openais_client_is_told_when_to_try_again(tmp_path: Path) -> None:
    with guarding(tmp_path, runs_per_minute=1) as guarded:
        assert reply_of(guarded, ADA, "Hello") == "Good morning."
        with pytest.raises(openai.RateLimitError, match="at most 1 runs a minute") as caught:
            reply_of(guarded, ADA, "Hello")
        assert caught.value.code == "rate_limit_exceeded"
        assert int(caught.value.response.headers["retry-after"]) >= 1
        assert caught.value.response.headers["x-should-retry"] == "true"
        assert reply_of(guarded, BOB, "Hello") == "Good morning."
        with pytest.raises(openai.AuthenticationError, match="the API key is not valid"):
            reply_of(guarded, "wrong", "Hello")


def test_the_health_tells_no_details_of_the_parts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outputs = tmp_path / "outputs"
    with guarding(outputs) as guarded:
        assert guarded.by().get("/healthz").status_code == 200
        shutil.rmtree(outputs)
        outputs.touch()
        answer = guarded.by().get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "failing"
    assert answer.json()["parts"]["files"] == "failing"
    assert str(tmp_path) not in answer.text
    assert str(outputs) in caplog.text


async def test_the_owner_of_a_request_is_not_in_the_state_that_requests_share() -> None:
    shared: dict[str, Any] = {"started": True}
    headers = [(b"authorization", f"Bearer {ADA}".encode())]
    scope = {"type": "http", "path": "/", "query_string": b"", "headers": headers, "state": shared}
    await KeyAuthentication([ADA]).authenticate(HTTPConnection(scope))
    request = HTTPConnection(scope)
    assert (request.state.owner, request.state.started) == (ApiKey(ADA).owner, True)
    assert shared == {"started": True}


def test_a_part_that_does_not_answer_is_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.interfaces.server.app._CHECK_S", 0.01)
    app = FastAPI()
    app.include_router(router)
    app.state.parts = {"database": asyncio.Event().wait}
    answer = TestClient(app).get("/healthz")
    assert (answer.status_code, answer.json()["parts"]) == (503, {"database": "failing"})


def test_a_browser_is_led_to_the_documentation_which_takes_a_key(guarded: Guarded) -> None:
    browser = guarded.by()
    page = browser.get("/", follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, "/docs")
    described = browser.get("/openapi.json").json()
    assert described["components"]["securitySchemes"] == {"HTTPBearer": {"type": "http", "scheme": "bearer"}}


def test_the_log_holds_no_signature_of_a_url(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    app = create_app(agent_of(tmp_path))
    with listening(app, log_level="info") as url:
        httpx.get(f"{url}/outputs/run/cat.png?signature=secret")
    logged = capfd.readouterr().out
    assert '"GET /outputs/run/cat.png HTTP/1.1" 404' in logged
    assert "secret" not in logged


def test_the_uploads_of_a_key_may_fill_their_part_of_the_disk(tmp_path: Path) -> None:
    with guarding(tmp_path, max_upload_bytes=2 * CAT.stat().st_size) as guarded:
        for key in (ADA, BOB):
            files = [("file", ("cat.jpg", CAT.read_bytes()))]
            answers = [guarded.by(key).post("/files", files=files) for _ in range(3)]
            assert statuses(*answers) == [201, 201, 507]
            assert "your uploads have all of" in answers[2].json()["detail"]


def test_a_batch_counts_each_of_its_inputs(tmp_path: Path) -> None:
    with guarding(tmp_path, max_concurrent_runs=2, runs_per_minute=3) as guarded:
        answers = [
            guarded.by(ADA).post("/agent/batch", json={"inputs": ["Hello"] * number})
            for number in (3, 2, 2, 1)
        ]
        assert statuses(*answers) == [429, 200, 429, 200]
        assert "at most 2 runs at once" in answers[0].json()["detail"]
        assert "at most 3 runs a minute" in answers[2].json()["detail"]


def test_the_settings_of_the_server_are_variables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JARVIS_API_KEYS", f"{ADA}, {BOB},")
    monkeypatch.setenv("JARVIS_ALLOWED_ORIGINS", "https://Chat.example/")
    settings = ServerSettings()
    assert [key.get_secret_value() for key in settings.api_keys] == [ADA, BOB]
    assert settings.allowed_origins == ("https://chat.example",)
    assert ADA not in repr(settings)
    with pytest.raises(ConfigError, match=r"runs_per_minute: .* not 0"):
        ServerSettings(runs_per_minute=0)


def test_variables_of_the_server_are_no_misspelt_settings() -> None:
    assert not set(ServerSettings.model_fields) & set(Settings.model_fields)
    names = [f"JARVIS_{name.upper()}" for name in ServerSettings.model_fields]
    assert misspelt_variables([*names, "JARVIS_API_KEYES"]) == {"JARVIS_API_KEYES": "JARVIS_API_KEYS"}


def test_an_owner_reads_uploads_in_a_chat_and_outputs_too_without_one(tmp_path: Path) -> None:
    """No thread is stored, and no plan waits, but in those that `StartedRuns` opens."""
    agent = agent_of(tmp_path).copy(checkpointer=InMemorySaver(), approve=True)
    ada = make_workspaces(agent, ["ada"], 1_000)["ada"]
    assert (ada.uploads, ada.runs) == (tmp_path / "uploads" / "ada", tmp_path / "served" / "ada")
    both = ada.uploads, ada.runs
    for made, approve, dirs in ((ada.agent, True, both[:1]), (ada.stateless, False, both)):
        assert (made.checkpointer, made.approve, made.settings.allowed_dirs) == (None, approve, dirs)
        assert (made.settings.output_dir, made.settings.allow_request_paths) == (ada.runs, False)
