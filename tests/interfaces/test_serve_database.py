"""The database of a server: what survives a restart, and what several processes share."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from killed_runs import SHAPE, executed, started
from langgraph.store.sqlite.aio import AsyncSqliteStore
from postgres import Postgres
from served import BASE, Served, agent_of, endless_expert, plan_for, serving
from served_runs import make_agent, served_runs
from starlette.testclient import TestClient
from test_runs_api import REQUEST, ended, events_of, start
from waiting import wait_until

from jarvis_agent import Run
from jarvis_agent.core.errors import ConfigError, MissingExtraError
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.execution.run import Event
from jarvis_agent.interfaces.common import locks
from jarvis_agent.interfaces.server import create_app, database, runs
from jarvis_agent.interfaces.server.database import open_database
from jarvis_agent.interfaces.server.runs import RunRecords

BEFORE_THE_GATE = [0, 1, 2, 4, 7]
"""The tasks that end before task 3, which waits."""


def start_and_wait(client: httpx.Client, folder: Path) -> dict[str, Any]:
    """A run that has stored the results of all tasks that can end before the gate is opened."""
    run, left = start(client, input="work", thread="one"), set(BEFORE_THE_GATE)
    with client.stream("GET", f"/runs/{run['id']}/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("data: ") and (event := json.loads(line[6:]))["kind"] == "finished":
                left.discard(event["task"]["id"])
            if not left:
                break
    wait_until(lambda: 3 in executed(folder))
    return run


def check_resumed(client: httpx.Client, run: dict[str, Any], folder: Path) -> None:
    """The run goes on by itself, and repeats no task that had ended."""
    (folder / "gate").touch()
    info = ended(client, run)
    assert (info["status"], info["resumptions"]) == ("done", 1)
    assert Run.model_validate(info["run"]).ok
    assert sorted(executed(folder)) == sorted([*SHAPE, 3])
    events = events_of(client.get(f"/runs/{run['id']}/events"))
    assert [int(number) for number, _, _ in events[:-1]] == list(range(1, len(events)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "workers"), [(signal.SIGTERM, 1), (signal.SIGKILL, 1), (signal.SIGKILL, 2)]
)
def test_a_server_that_is_ended_during_a_run_loses_no_finished_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: signal.Signals, workers: int
) -> None:
    """The workers of a killed server end too, or they would hold the run and the port."""
    monkeypatch.setattr(runs, "BEAT_S", 0.2)
    with served_runs(tmp_path, workers=workers) as (client, process):
        run = start_and_wait(client, tmp_path)
        process.send_signal(ending)
        assert process.wait(60) == (0 if ending == signal.SIGTERM else -ending)
    app = create_app(make_agent(tmp_path), ServerSettings(runs_per_minute=10_000))
    with TestClient(app, base_url=BASE) as here:
        check_resumed(here, run, tmp_path)


@pytest.mark.slow
def test_a_worker_that_is_killed_leaves_its_runs_to_the_others(tmp_path: Path, postgres: str) -> None:
    with served_runs(tmp_path, workers=2, url=postgres) as (client, _):
        run = start_and_wait(client, tmp_path)
        for _ in range(20):
            with httpx.Client(base_url=client.base_url, timeout=60) as other:  # A connection is one worker's.
                assert other.get(f"/runs/{run['id']}").json()["status"] == "running"
                assert other.post("/runs", json=REQUEST | {"thread": "one"}).status_code == 409
        worker = started(tmp_path)[-1][1]
        os.kill(worker, signal.SIGSTOP)
        time.sleep(1)  # The server waits for a sign of life of the worker when that dies.
        os.kill(worker, signal.SIGKILL)
        killed = time.monotonic()
        wait_until(lambda: not Path(f"/proc/{worker}").exists())  # The server has noticed it.
        assert time.monotonic() - killed < 30
        with httpx.Client(base_url=client.base_url, timeout=60) as other:
            check_resumed(other, run, tmp_path)


@contextmanager
def two_servers(tmp_path: Path, url: str, experts: Any = None) -> Iterator[list[Served]]:
    """Two servers with one database and one directory of files."""
    with ExitStack() as servers:
        yield [servers.enter_context(serving(agent_of(tmp_path, experts), checkpoints=url)) for _ in range(2)]


def test_any_server_answers_for_a_run_and_a_thread(tmp_path: Path, postgres: str) -> None:
    never, entered, stopped = endless_expert()
    with two_servers(tmp_path, postgres, {"image-to-text": never, "canny-control": never}) as (one, other):
        name = one.uploaded_cat()
        run = start(one.client, files=[name], thread="one")
        assert entered.wait(120)
        assert other.get(f"/runs/{run['id']}").json()["status"] == "running"
        assert [info["id"] for info in other.client.get("/runs").json()] == [run["id"]]
        assert other.client.post(f"/runs/{run['id']}/resume").status_code == 409
        for answer in (
            other.client.post("/runs", json=REQUEST | {"thread": "one"}),
            other.client.post("/agent/invoke", json={"input": "Hello"}, headers={"X-Thread-Id": "one"}),
        ):
            assert answer.status_code == 409
        assert other.client.post(f"/runs/{run['id']}/cancel").status_code == 202
        events = events_of(other.get(f"/runs/{run['id']}/events"))
        assert {"planned", "started"} <= {kind for _, kind, _ in events}
        assert events[-1][2]["status"] == "cancelled"
        assert stopped.wait(120)

        one.script["plan"] = other.script["plan"] = "[]"
        answers: list[httpx.Response] = []

        def is_accepted() -> bool:
            """The database frees the thread a moment after the end of its run was recorded."""
            asked = REQUEST | {"input": "Good morning!", "thread": "one"}
            answers.append(one.client.post("/runs", json=asked))
            return answers[-1].status_code == 202

        wait_until(is_accepted)
        ended(one.client, answers[-1].json())
        other.remote("one").invoke("And again?")
        assert "Good morning!" in other.llm.calls[-1].prompt


def test_a_database_that_goes_away_is_answered_with_503_until_it_is_back(
    tmp_path: Path, postgres: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT_S", 0.5)
    monkeypatch.setattr(runs, "BEAT_S", 0.2)
    monkeypatch.setattr(runs, "MAX_RESUMPTIONS", 0)
    never, entered, _ = endless_expert()
    agent = agent_of(tmp_path, {"image-to-text": "a cat", "canny-control": never})
    with serving(agent, checkpoints=postgres) as served:
        run = start(served.client, files=[served.uploaded_cat()])
        assert entered.wait(120)
        postgres_server.stop()
        try:
            in_a_thread = {"X-Thread-Id": "two"}
            for answer in (
                served.get("/runs"),
                served.client.post("/runs", json=REQUEST),
                served.client.post("/agent/invoke", json={"input": "Hello"}, headers=in_a_thread),
            ):
                assert answer.status_code == 503
                assert "the database of this server does not answer" in answer.json()["detail"]
                assert answer.headers["retry-after"]
            assert served.get("/healthz").json()["parts"] == {"files": "ok", "database": "failing"}
            served.script["plan"] = "[]"
            assert served.client.post("/agent/invoke", json={"input": "Hello"}).status_code == 200
        finally:
            postgres_server.start()
        wait_until(lambda: served.get("/healthz").status_code == 200)
        wait_until(lambda: served.get(f"/runs/{run['id']}").json()["status"] == "interrupted")
        assert served.client.post(f"/runs/{run['id']}/cancel").json()["status"] == "cancelled"
        assert ended(served.client, start(served.client))["status"] == "done"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_database_whose_file_is_deleted_is_not_used_any_more(tmp_path: Path, replaced: bool) -> None:
    never, entered, _ = endless_expert()
    agent = agent_of(tmp_path, {"image-to-text": "a cat", "canny-control": never})
    with serving(agent) as served:
        run = start(served.client, files=[served.uploaded_cat()])
        assert entered.wait(120)
        file = tmp_path / database.FILE
        file.rename(tmp_path / "moved")
        if replaced:
            file.touch()
        in_a_thread = {"X-Thread-Id": "two"}
        for answer in (
            served.get("/runs"),
            served.get(f"/runs/{run['id']}"),
            served.client.post("/runs", json=REQUEST),
            served.client.post(f"/runs/{run['id']}/cancel"),
            served.client.post("/agent/invoke", json={"input": "Hello"}, headers=in_a_thread),
        ):
            assert (answer.status_code, "is gone" in answer.json()["detail"]) == (503, True)
            assert "retry-after" not in answer.headers
        health = served.get("/healthz")
        assert (health.status_code, health.json()["parts"]["database"]) == (503, "failing")
        served.script["plan"] = "[]"
        assert served.client.post("/agent/invoke", json={"input": "Hello"}).status_code == 200


async def test_a_database_file_that_is_deleted_ends_a_write(tmp_path: Path) -> None:
    async with open_database(None, tmp_path, retention=60) as opened:
        (tmp_path / database.FILE).unlink()
        with pytest.raises(database.DatabaseFileError):
            await opened.put(("a",), "1", {})


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    """The address of a new database of each kind."""
    return request.getfixturevalue("postgres") if request.param == "postgres" else None


async def test_processes_may_open_a_new_database_at_the_same_time(tmp_path: Path, url: str | None) -> None:
    async def use(number: int) -> None:
        async with open_database(url, tmp_path, retention=60) as opened:
            await opened.put(("rows",), str(number), {"number": number})

    await asyncio.gather(*map(use, range(4)))
    async with open_database(url, tmp_path, retention=60) as opened:
        rows = await opened.search(("rows",))
        assert sorted(row.value["number"] for row in rows) == [0, 1, 2, 3]
        assert len(await opened.search(("rows",), limit=2)) == 2


async def test_a_thread_is_opened_as_soon_as_it_is_free(tmp_path: Path, url: str | None) -> None:
    """A run is told to be over a moment before its thread is free."""
    async with open_database(url, tmp_path, 60) as one, open_database(url, tmp_path, 60) as other:

        async def open_it() -> None:
            async with other.threads.open("a"):
                pass

        async with one.threads.open("a"):
            with pytest.raises(locks.BusyError):
                await open_it()
            opening = asyncio.create_task(open_it())
            await asyncio.sleep(0.1)
        await opening


@pytest.mark.slow
def test_threads_and_runs_expire_with_the_files(
    tmp_path: Path, url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "SWEEP_S", 0.1)
    agent = agent_of(tmp_path, budget={"seconds": 6})
    thread: Any = {"configurable": {"thread_id": "local/one", "checkpoint_ns": ""}}

    async def is_stored() -> bool:
        async with open_database(url, tmp_path, 60) as opened, opened.threads.open("local/one") as saver:
            return await saver.aget_tuple(thread) is not None

    with serving(agent, checkpoints=url, retention=6) as served:
        run = ended(served.client, start(served.client, input="Good morning!", thread="one"))
        assert asyncio.run(is_stored())
        wait_until(lambda: served.get(f"/runs/{run['id']}").status_code == 404)
        wait_until(lambda: not asyncio.run(is_stored()))
        served.remote("one").invoke("And again?")
        assert "Good morning!" not in served.llm.calls[-1].prompt


async def test_rows_expire_unless_they_are_to_stay(tmp_path: Path) -> None:
    async with open_database(None, tmp_path, retention=0.1) as database:
        for key, expires in (("kept", False), ("old", True)):
            await database.put(("rows",), key, {}, expires=expires)
        await asyncio.sleep(1.2)
        await database.delete_expired()
        assert [row.key for row in await database.search(("rows",))] == ["kept"]


async def test_a_cancelled_write_is_not_overtaken_by_the_next(tmp_path: Path) -> None:
    async with open_database(None, tmp_path, 60) as one, open_database(None, tmp_path, 60) as other:
        for turns in range(1, 8):
            writing = asyncio.ensure_future(one.put(("rows",), "one", {}))
            for _ in range(turns):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait([writing])
            await other.put(("rows",), "other", {"turns": turns})
            await one.put(("rows",), "one", {"turns": turns})
            assert {row.value["turns"] for row in await other.search(("rows",))} == {turns}


async def test_a_database_that_is_closed_twice_during_a_read_leaves_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction of a cancelled read fails with an error of SQLite, which hides the cancellation."""
    reading = asyncio.Event()

    async def read(*_: Any) -> list[Any]:
        reading.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            raise sqlite3.OperationalError("cannot commit - no transaction is active")

    async def use() -> None:
        async with open_database(None, tmp_path, 60) as opened:
            monkeypatch.setattr(AsyncSqliteStore, "abatch", read)
            await opened.get(("a",), "b")

    before, using = asyncio.all_tasks(), asyncio.create_task(use())
    await reading.wait()
    for _ in range(2):
        using.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([using])
    left = asyncio.all_tasks() - before
    assert not left or not (await asyncio.wait(left, timeout=10))[1]


async def test_a_cancelled_run_has_ended_when_its_recording_ends(tmp_path: Path) -> None:
    """Otherwise the next run of its thread could begin before."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def run() -> AsyncGenerator[Event, None]:
        try:
            begun.set()
            await asyncio.Event().wait()
            yield Event(kind="done")
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            ended.set()

    async with open_database(None, tmp_path, retention=60) as opened:
        recording = asyncio.create_task(RunRecords(opened).record("1", run(), lambda: None))
        await begun.wait()
        recording.cancel()
        await asyncio.wait([recording])
        assert (recording.cancelled(), ended.is_set()) == (True, True)


def test_a_file_of_sqlite_that_was_locked_for_long_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a backup or a shell: meanwhile the server says that it cannot work."""
    monkeypatch.setattr(database, "WAIT_S", 0.2)
    monkeypatch.setattr(locks, "WAIT_S", 0.2)
    monkeypatch.setattr(runs, "BEAT_S", 0.1)
    entered, go = threading.Event(), threading.Event()

    async def describe(call: Any) -> str:
        entered.set()
        await asyncio.to_thread(go.wait, 120)
        return "a cat"

    with serving(agent_of(tmp_path, {"image-to-text": describe})) as served:
        name = served.uploaded_cat()
        served.script["plan"] = json.dumps(json.loads(plan_for(name))[:1])
        run = start(served.client, files=[name])
        assert entered.wait(120)
        with ExitStack() as blocked:
            for file in (tmp_path / database.FILE, *tmp_path.glob("server-threads/*.sqlite")):
                connection = blocked.enter_context(closing(sqlite3.connect(file, isolation_level=None)))
                connection.execute("BEGIN EXCLUSIVE")
            go.set()
            wait_until(lambda: served.get("/healthz").json()["parts"]["database"] == "failing")
            assert served.client.post("/runs", json=REQUEST).status_code == 503
        assert served.get("/healthz").status_code == 200
        assert ended(served.client, run)["status"] == "done"
        assert ended(served.client, start(served.client, files=[name]))["status"] == "done"


@pytest.mark.parametrize("place", ["postgresql://ada:secret@127.0.0.1:1/runs", "/dev/null/server.sqlite"])
async def test_a_database_that_cannot_be_opened_is_named_without_password(tmp_path: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="JARVIS_CHECKPOINTS") as caught:
        async with open_database(place, tmp_path, retention=60):
            pass
    assert "secret" not in str(caught.value)


async def test_postgresql_needs_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg_pool", None)
    with pytest.raises(MissingExtraError, match=r"\[postgres\]"):
        async with open_database("postgresql://127.0.0.1/runs", tmp_path, retention=60):
            pass
