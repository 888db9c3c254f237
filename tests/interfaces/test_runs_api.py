"""Runs that outlive their request: start, status, events, cancellation, approval."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import ANSWER, BASE, CAT, Served, agent_of, endless_expert, plan_for, script_of, serving
from starlette.testclient import TestClient
from waiting import wait_until

from jarvis_agent import Run
from jarvis_agent.core.concurrency import cancellation
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.server import create_app, runs
from jarvis_agent.interfaces.server.database import open_database
from jarvis_agent.interfaces.server.runs import AtWork, RunInfo, RunRecords
from jarvis_agent.selection.store import open_store

REQUEST = {"input": "What animal is this?"}


def start(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    """A new run, by default of REQUEST."""
    answer = client.post("/runs", json=REQUEST | fields)
    assert answer.status_code == 202, answer.text
    run: dict[str, Any] = answer.json()
    return run


def events_of(answer: httpx.Response) -> list[tuple[str, str, Any]]:
    """The ids, kinds and data of server-sent events."""
    texts = filter(None, answer.text.split("\n\n"))
    blocks = [dict(line.split(": ", 1) for line in text.split("\n")) for text in texts]
    return [(block["id"], block["event"], json.loads(block["data"])) for block in blocks]


def ended(client: httpx.Client, run: dict[str, Any]) -> dict[str, Any]:
    """The run when it has stopped."""
    _, kind, info = events_of(client.get(f"/runs/{run['id']}/events"))[-1]
    assert kind == "status"
    found: dict[str, Any] = info
    return found


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[tuple[Served, Any, Any]]:
    """A server whose expert never ends, and the events that it was entered and stopped."""
    never, entered, stopped = endless_expert()
    experts = {"image-to-text": never, "canny-control": never}
    with serving(agent_of(tmp_path, experts), max_concurrent_runs=2) as served:
        yield served, entered, stopped


def test_a_run_is_started_followed_and_fetched(served: Served) -> None:
    answer = served.client.post("/runs", json=REQUEST | {"files": [served.uploaded_cat()], "thread": "one"})
    run = answer.json()
    assert answer.status_code == 202
    assert (run["thread"], run["status"], run["input"]) == ("one", "queued", REQUEST["input"])
    address = httpx.URL(f"{BASE}/runs").join(answer.headers["location"]).path

    events = events_of(served.get(f"{address}/events"))
    kinds = [kind for _, kind, _ in events]
    assert kinds[0] == "planned"
    assert {"task", "selected", "started", "finished", "token"} <= set(kinds)
    chosen = [event for _, kind, event in events if kind == "selected"]
    assert all(event["selection"]["model"] and event["result"] is None for event in chosen)
    assert [int(number) for number, _, _ in events[:-1]] == list(range(1, len(events)))
    info = served.get(address).json()
    assert info == events[-1][2]
    assert "".join(event["text"] for _, kind, event in events if kind == "token") == info["run"]["answer"]
    assert (info["status"], info["thread"], info["error"]) == ("done", "one", None)
    made = Run.model_validate(info["run"])
    assert made.answer.startswith(ANSWER)
    (outline,) = made.results[1].paths()
    assert served.get(str(outline)).headers["content-type"] == "image/png"


def test_below_a_prefix_the_server_stands_beside_another_with_runs_of_its_own(tmp_path: Path) -> None:
    """As `http.app` of langgraph.json: the routes of the platform come after those of the application."""
    key, agent = "k-0123456789abcdef", agent_of(tmp_path)
    app = create_app(agent, ServerSettings(api_keys=[key]), prefix="/jarvis")
    app.add_api_route("/runs", lambda: "the platform's", methods=["GET", "POST"])
    with TestClient(app, headers={"Authorization": f"Bearer {key}"}) as client:
        for answer in (client.get("/runs"), client.post("/runs", json=REQUEST)):
            assert answer.json() == "the platform's"
        client.base_url = client.base_url.join("/jarvis/")
        file = client.post("files", files={"file": ("cat.jpg", CAT.read_bytes())}).json()["name"]
        script_of(agent)["plan"] = plan_for(file)
        started = client.post("runs", json=REQUEST | {"files": [file]}).json()
        _, _, info = events_of(client.get(f"runs/{started['id']}/events"))[-1]
        made = Run.model_validate(info["run"]).results[1].resources[0].path
        assert client.get(str(made).lstrip("/")).status_code == 200
        client.headers.pop("Authorization")
        assert client.get("healthz").json()["status"] == "ok"
        assert client.get("runs/none").status_code == 401


def test_a_client_that_reconnects_gets_the_events_it_has_not_seen(served: Served) -> None:
    run = start(served.client, files=[served.uploaded_cat()])
    address = f"/runs/{run['id']}/events"
    events = events_of(served.get(address))
    for seen in (0, 1, 4, len(events) - 1):
        last = events[seen - 1][0] if seen else "nonsense"
        assert events_of(served.client.get(address, headers={"Last-Event-ID": last})) == events[seen:]
    assert served.client.get(address, headers={"Last-Event-ID": events[-1][0]}).status_code == 204


def test_a_client_that_reads_nothing_or_goes_does_not_stop_a_run(served: Served) -> None:
    run = start(served.client, files=[served.uploaded_cat()])
    with served.client.stream("GET", f"/runs/{run['id']}/events"):
        assert ended(served.client, run)["status"] == "done"


def test_runs_of_a_thread_and_requests_that_name_it_are_one_chat(served: Served) -> None:
    name = served.uploaded_cat()
    first = ended(served.client, start(served.client, files=[name], thread="chat"))
    outline = first["run"]["results"][1]["resources"][0]["path"]
    served.script["plan"] = plan_for(str(served.runs / Path(outline).relative_to("/outputs")))
    second = ended(served.client, start(served.client, input="And in the outline?", thread="chat"))
    assert Run.model_validate(second["run"]).ok
    assert "What animal is this?" in served.llm.calls[-1].prompt
    third = Run.model_validate(served.remote("chat").invoke("And once more?"))
    assert third.ok, "the second run made a file of the same name"
    assert "And in the outline?" in served.llm.calls[-1].prompt


def test_a_busy_thread_is_answered_with_409_and_a_cancelled_run_frees_it(endless: Any) -> None:
    served, entered, stopped = endless
    run = start(served.client, files=[served.uploaded_cat()], thread="one")
    assert entered.wait(120)
    assert served.get(f"/runs/{run['id']}").json()["status"] == "running"
    for answer in (
        served.client.post("/runs", json=REQUEST | {"thread": "one"}),
        served.client.post("/agent/invoke", json={"input": "Hello"}, headers={"X-Thread-Id": "one"}),
    ):
        assert answer.status_code == 409
        assert "use another thread" in answer.json()["detail"]
    assert served.client.post(f"/runs/{run['id']}/resume").status_code == 409

    assert served.client.post(f"/runs/{run['id']}/cancel").status_code == 202
    assert stopped.wait(120)
    assert ended(served.client, run)["status"] == "cancelled"
    assert served.client.post(f"/runs/{run['id']}/cancel").json()["status"] == "cancelled"
    served.script["plan"] = "[]"
    assert ended(served.client, start(served.client, thread="one"))["run"]["answer"] == "Good morning."


def test_a_run_that_goes_on_counts_for_the_limit_of_runs_at_once(endless: Any) -> None:
    served, _, _ = endless
    name = served.uploaded_cat()
    started = [start(served.client, files=[name]) for _ in range(2)]
    answer = served.client.post("/runs", json=REQUEST)
    assert (answer.status_code, answer.json()["detail"][:22]) == (429, "at most 2 runs at once")
    served.client.post(f"/runs/{started[0]['id']}/cancel")
    assert ended(served.client, started[0])["status"] == "cancelled"
    start(served.client)


def test_a_plan_waits_for_approval_and_may_be_edited(served: Served) -> None:
    name = served.uploaded_cat()
    run = start(served.client, files=[name], approve=True, thread="one")
    info = ended(served.client, run)
    assert (info["status"], info["run"]) == ("waiting for approval", None)
    assert [task["task"] for task in info["plan"]["plan"]] == ["image-to-text", "canny-control"]
    assert not served.backend.calls
    busy = served.client.post("/runs", json=REQUEST | {"thread": "one"})
    assert (busy.status_code, run["id"] in busy.text) == (409, True)

    def decide(decision: Any) -> httpx.Response:
        return served.client.post(f"/runs/{run['id']}/approval", json={"decision": decision})

    assert [step["name"] for step in info["plan"]["action_requests"]] == ["image-to-text", "canny-control"]
    for wrong in (None, "perhaps", "", 1, 0.5, {"task": "image-to-text"}, ["image-to-text"], '["yes"]'):
        assert decide(wrong).status_code == 422, wrong
    unknown = [{"task": "unknown"}]
    for edited in (unknown, {"plan": unknown}, json.dumps(unknown), {"decisions": [{"type": "approve"}]}):
        assert decide(edited).status_code == 202
        assert ended(served.client, run)["plan"]["problem"]
    assert decide(info["plan"]["plan"][1:]).status_code == 202
    done = ended(served.client, run)
    assert (done["status"], done["plan"]) == ("done", None)
    assert [result["task"]["task"] for result in done["run"]["results"]] == ["canny-control"]
    assert decide(True).status_code == 409


@pytest.mark.parametrize(
    ("decision", "status", "calls"),
    [({"decisions": [{"type": "approve"}] * 2}, "done", 2), (False, "done", 0), (None, "cancelled", 0)],
    ids=["approved", "rejected", "cancelled"],
)
def test_a_plan_is_run_if_it_is_approved(served: Served, decision: Any, status: str, calls: int) -> None:
    run = start(served.client, files=[served.uploaded_cat()], approve=True)
    ended(served.client, run)
    step = "cancel" if decision is None else "approval"
    served.client.post(f"/runs/{run['id']}/{step}", json={"decision": decision})
    assert ended(served.client, run)["status"] == status
    assert len(served.backend.calls) == calls


def test_why_a_run_failed_is_told(served: Served) -> None:
    info = ended(served.client, start(served.client, input=" "))
    assert info["status"] == "failed"
    assert "the request is empty" in info["error"]


def test_bad_requests_are_answered_with_422(served: Served) -> None:
    body: Any
    for body in ({}, {"input": ""}, {"input": "x", "thread": "a\nb"}, {"input": "x", "files": "a"}, [], "x"):
        assert served.client.post("/runs", json=body).status_code == 422
    listed = served.get("/runs").json()
    for name in ("cat.jpg", "/root/a.jpg", "../../the-b.jpg", "a\0b", "x" * 5_000):
        answer = served.client.post("/runs", json=REQUEST | {"files": [name]})
        assert (answer.status_code, name[-5:] in answer.text or "\0" in name) == (422, True)
    assert served.get("/runs").json() == listed


def test_runs_are_rated_for_their_owners_and_count_together(tmp_path: Path, selection_file: Path) -> None:
    agent = agent_of(tmp_path)
    with serving(agent, api_keys=("key-of-ada", "key-of-bob")) as served:

        def rate(run: str, name: str = "ada", **body: Any) -> tuple[int, str]:
            own = {"Authorization": f"Bearer key-of-{name}"}
            answer = served.client.post(f"/runs/{run}/feedback", json=body, headers=own)
            return answer.status_code, answer.text

        runs = {}
        for name in ("ada", "bob"):
            own = {"Authorization": f"Bearer key-of-{name}"}
            file = served.client.post("/files", files={"file": ("cat.jpg", CAT.read_bytes())}, headers=own)
            served.script["plan"] = plan_for(file.json()["name"])
            body = REQUEST | {"files": [file.json()["name"]]}
            runs[name] = served.client.post("/runs", json=body, headers=own).json()["id"]
            served.client.get(f"/runs/{runs[name]}/events", headers=own)
        assert rate(runs["ada"], good=True) == (204, "")
        assert rate(runs["ada"], task=0, good=False)[0] == 204
        assert rate(runs["bob"], "bob", task=0, good=False)[0] == 204
        refused = rate(runs["ada"], task=7, good=True)
        assert (refused[0], "task 7" in refused[1]) == (422, True)
        assert rate(runs["bob"], good=True)[0] == 404
        wrong: Any
        for wrong in ({}, {"good": 1}, {"good": True, "task": "x"}):
            assert rate(runs["ada"], **wrong)[0] == 422
        store = open_store()
        known = store.experience("image-to-text")["fake/image-to-text"]
        assert (known.good, known.bad) == (0, 2)  # a second rating replaces the first
        assert store.experience("canny-control")["fake/canny-control"].good == 1
        rows = [*sqlite3.connect(store.path or "").execute("SELECT DISTINCT owner FROM rated_results")]
        assert len({owner for (owner,) in rows} - {""}) == 2
        assert not [row for row in rows if "key-of" in str(row) or "cat" in str(row)]


def test_a_run_that_is_not_done_is_not_rated(endless: Any) -> None:
    served, *_ = endless
    served.uploaded_cat()
    run = start(served.client)
    refused = served.client.post(f"/runs/{run['id']}/feedback", json={"good": True})
    assert refused.status_code == 409
    served.client.post(f"/runs/{run['id']}/cancel")
    assert ended(served.client, run)["status"] == "cancelled"


def test_a_run_whose_expert_does_not_stop_ends_before_the_database_of_its_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entered = threading.Event()

    async def stubborn(_: Any) -> None:
        entered.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(2 * cancellation.GRACE_S)

    with serving(agent_of(tmp_path, {"image-to-text": stubborn})) as served:
        name = served.uploaded_cat()
        served.script["plan"] = json.dumps(json.loads(plan_for(name))[:1])
        run = start(served.client, files=[name])
        assert entered.wait(120)
    abandoned = {str(record.args) for record in caplog.records if "it is abandoned" in record.msg}
    assert abandoned == {"('task 0',)", "('image-to-text',)", "('fake/image-to-text',)"}
    with serving(agent_of(tmp_path)) as served:
        assert served.get(f"/runs/{run['id']}").json()["status"] != "failed"


@pytest.fixture
def interrupted(tmp_path: Path) -> dict[str, Any]:
    """A run whose server has stopped when its first task had ended: its row."""
    never, entered, _ = endless_expert()
    experts = {"image-to-text": "a cat", "canny-control": never}
    with serving(agent_of(tmp_path, experts)) as served:
        name = served.uploaded_cat()
        describe, draw = json.loads(plan_for(name))
        served.script["plan"] = json.dumps([describe, draw | {"dep": [0]}])
        run = start(served.client, files=[name], thread="one")
        assert entered.wait(120)
    return run


def test_a_run_of_a_server_that_stopped_goes_on_by_itself_where_it_was(
    tmp_path: Path, interrupted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "BEAT_S", 0.05)
    with serving(agent_of(tmp_path)) as served:
        status = served.get(f"/runs/{interrupted['id']}").json()["status"]
        assert status in ("interrupted", "queued", "running")
        info = ended(served.client, interrupted)
        assert Run.model_validate(info["run"]).ok
        assert info["resumptions"] == 1
        assert [call.spec.name for call in served.backend.calls] == ["canny-control"], "captioning had ended"
        assert served.llm.stages() == ["respond"]


def test_a_run_that_does_not_go_on_by_itself_any_more_waits_to_be_resumed(
    tmp_path: Path, interrupted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "BEAT_S", 0.05)
    monkeypatch.setattr(runs, "MAX_RESUMPTIONS", 0)
    with serving(agent_of(tmp_path)) as served:
        assert ended(served.client, interrupted)["status"] == "interrupted"
        wait_until(lambda: not asyncio.run(at_work(tmp_path)))
        busy = served.client.post("/runs", json=REQUEST | {"thread": "one"})
        assert (busy.status_code, "is not over" in busy.text) == (409, True)
        assert served.client.post(f"/runs/{interrupted['id']}/resume").status_code == 202
        info = ended(served.client, interrupted)
        assert (info["status"], info["resumptions"]) == ("done", 0)
        assert served.client.post("/runs", json=REQUEST | {"thread": "one"}).status_code == 202


async def at_work(folder: Path) -> dict[str, AtWork]:
    async with open_database(None, folder, retention=60) as opened:
        return await RunRecords(opened).at_work()


def test_a_run_that_ends_its_process_is_begun_three_times_at_most(
    tmp_path: Path, interrupted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "BEAT_S", 0.05)
    run, begun = interrupted, []
    while run["resumptions"] < runs.MAX_RESUMPTIONS:
        never, entered, _ = endless_expert()
        with serving(agent_of(tmp_path, {"canny-control": never})) as served:
            assert entered.wait(120)
            run = served.get(f"/runs/{run['id']}").json()
            begun.append(run["resumptions"])
    assert begun == [1, 2]
    with serving(agent_of(tmp_path)) as served:
        assert ended(served.client, run)["status"] == "interrupted"
        assert served.backend.calls == []


@pytest.mark.parametrize("wished", ["before its process ended", "afterwards"])
def test_a_run_without_a_process_is_cancelled(
    tmp_path: Path, interrupted: Any, monkeypatch: pytest.MonkeyPatch, wished: str
) -> None:

    async def wish() -> None:
        async with open_database(None, tmp_path, retention=60) as opened:
            await RunRecords(opened).begin("local", RunInfo.model_validate(interrupted), cancel=True)

    if wished == "before its process ended":
        monkeypatch.setattr(runs, "BEAT_S", 0.05)
        asyncio.run(wish())
    with serving(agent_of(tmp_path)) as served:
        if wished == "afterwards":
            assert served.client.post(f"/runs/{interrupted['id']}/cancel").json()["status"] == "cancelled"
        assert ended(served.client, interrupted)["status"] == "cancelled"
        assert served.backend.calls == []
        assert asyncio.run(at_work(tmp_path)) == {}


def seen_running(monkeypatch: pytest.MonkeyPatch, times: int) -> Iterator[str]:
    """Let a run that is over be read as running so often; what is left of that."""
    rows, find = iter(["running"] * times), RunRecords.find

    async def late(records: RunRecords, owner: str, name: str) -> RunInfo | None:
        info = await find(records, owner, name)
        return info.altered("running") if info and next(rows, None) else info

    monkeypatch.setattr(RunRecords, "find", late)
    return rows


def test_a_run_that_ends_while_it_is_looked_at_is_not_called_interrupted(
    endless: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may end it between the look at its row and that at its lock."""
    served, entered, _ = endless
    run = start(served.client, files=[served.uploaded_cat()])
    assert entered.wait(120)
    served.client.post(f"/runs/{run['id']}/cancel")
    over = ended(served.client, run)
    rows = seen_running(monkeypatch, 1)
    assert served.get(f"/runs/{run['id']}").json() == over
    assert next(rows, "read") == "read"


def test_a_run_that_ends_before_its_cancel_is_done(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.script["plan"] = "[]"
    run = start(served.client)
    over = ended(served.client, run)
    rows = seen_running(monkeypatch, 2)
    assert served.client.post(f"/runs/{run['id']}/cancel").json()["status"] == over["status"] == "done"
    assert served.get(f"/runs/{run['id']}").json() == over
    assert next(rows, "read") == "read"


def test_runs_are_listed_up_to_a_limit(served: Served) -> None:
    served.script["plan"] = "[]"
    for _ in range(3):
        ended(served.client, start(served.client))
    listed = served.client.get("/runs?limit=2").json()
    assert len(listed) == 2
    assert [info["created"] for info in listed] == sorted((i["created"] for i in listed), reverse=True)
    assert len(served.get("/runs").json()) >= 3
    assert served.client.get("/runs?limit=0").status_code == 422
