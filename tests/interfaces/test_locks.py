"""Locks that the kernel, or PostgreSQL, frees when a process ends."""

import asyncio
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from jarvis_agent.interfaces.common.locks import LOOK_S, BusyError, FileThreads
from jarvis_agent.interfaces.server.database import KEEPALIVE, Threads, open_database

Opened = Callable[[], AbstractAsyncContextManager[Threads]]
CONFIG: Any = {"configurable": {"thread_id": "talk", "checkpoint_ns": "", "checkpoint_id": "1"}}


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """What a process opens."""
    url = request.getfixturevalue("postgres") if request.param == "postgres" else None

    @asynccontextmanager
    async def threads() -> AsyncIterator[Threads]:
        async with open_database(url, tmp_path, 60) as database:
            yield database.threads

    return threads


async def test_of_several_that_open_a_thread_at_once_one_does(opened: Opened) -> None:
    async with opened() as one, opened() as other:
        for number in range(5):
            begun, end = 0, asyncio.Event()

            async def work(threads: Threads, name: str, end: asyncio.Event) -> bool:
                nonlocal begun
                try:
                    async with threads.open(name):
                        begun += 1
                        await end.wait()
                except BusyError:
                    return False
                return True

            name = f"thread {number}"
            working = [asyncio.create_task(work(threads, name, end)) for threads in (one, other, one, other)]
            await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            assert await one.is_held(name)
            for _ in range(50):
                await asyncio.sleep(0.02)
                if sum(task.done() for task in working) == 3:
                    break
            end.set()
            assert sorted(await asyncio.gather(*working)) == [False, False, False, True]
            assert not await other.is_held(name)


async def test_a_look_at_a_thread_keeps_no_one_from_it(opened: Opened) -> None:
    async with opened() as one, opened() as other:

        async def look() -> None:
            while True:
                await other.is_held("talk")
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        for _ in range(20):
            async with one.open("talk"):
                pass
        looking.cancel()


@pytest.mark.slow
async def test_a_process_that_stands_still_keeps_its_thread_and_a_killed_one_does_not(opened: Opened) -> None:
    fork = multiprocessing.get_context("fork")
    held = fork.Event()

    async def hold() -> None:
        async with opened() as threads, threads.open("talk"):
            held.set()
            await asyncio.sleep(600)

    process = fork.Process(target=lambda: asyncio.run(hold()))
    process.start()
    assert await asyncio.to_thread(held.wait, 60)
    async with opened() as other:
        os.kill(process.pid or 0, signal.SIGSTOP)
        assert await other.is_held("talk")
        with pytest.raises(BusyError):
            async with other.open("talk"):
                pass
        process.kill()
        process.join()
        while await other.is_held("talk"):  # noqa: ASYNC110 - PostgreSQL notices within milliseconds
            await asyncio.sleep(0.01)
        async with other.open("talk"):
            pass


async def test_a_deleted_thread_is_empty_and_one_at_work_is_not_deleted(
    opened: Opened, tmp_path: Path
) -> None:
    checkpoint: Any = {"id": "1", "ts": "", "v": 1, "channel_values": {}, "channel_versions": {}}
    async with opened() as threads:
        async with threads.open("talk") as saver:
            await saver.aput(CONFIG, checkpoint | {"versions_seen": {}}, {}, {})
            with pytest.raises(BusyError):
                await threads.delete("talk")
        await threads.delete("talk")
        if isinstance(threads, FileThreads):
            assert not list(threads.folder.iterdir())
        async with threads.open("talk") as saver:
            assert await saver.aget_tuple(CONFIG) is None


async def test_a_child_that_is_forked_does_not_keep_the_lock(tmp_path: Path) -> None:
    threads = FileThreads(tmp_path)
    async with threads.open("talk"):
        child = multiprocessing.get_context("fork").Process(target=signal.pause)
        child.start()
    try:
        assert not await threads.is_held("talk")
    finally:
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()


async def test_a_cancelled_write_leaves_the_file_of_its_thread_usable(tmp_path: Path) -> None:
    threads, kept = FileThreads(tmp_path), []
    for turns in range(1, 12):
        async with threads.open("talk") as saver:
            await saver.aget_tuple(CONFIG)
            writing = asyncio.ensure_future(saver.aput_writes(CONFIG, [("channel", turns)], str(turns)))
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            writing.cancel()
            kept.append(saver)  # as a traceback does
        async with threads.open("talk") as saver:
            await saver.aput_writes(CONFIG, [("channel", turns)], f"next {turns}")


async def test_a_folder_that_cannot_be_made_is_an_error_of_the_database(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(sqlite3.OperationalError, match="cannot be written"):
        async with FileThreads(tmp_path / "file" / "threads").open("talk"):
            pass


async def test_who_loses_the_connection_to_postgresql_writes_no_more(tmp_path: Path, postgres: str) -> None:
    async with open_database(postgres, tmp_path, 60) as database, database.threads.open("talk") as saver:
        await saver.aput_writes(CONFIG, [("channel", 1)], "task")
        async with await psycopg.AsyncConnection.connect(postgres) as admin:
            ended = "SELECT pg_terminate_backend(pid, 60000) FROM pg_locks WHERE locktype = 'advisory'"
            await admin.execute(ended)
        assert not await database.threads.is_held("talk")
        async with database.threads.open("talk"):
            with pytest.raises(psycopg.OperationalError):
                await saver.aput_writes(CONFIG, [("channel", 2)], "task")


async def test_a_checkpoint_waits_for_work_on_its_table(tmp_path: Path, postgres: str) -> None:
    async with open_database(postgres, tmp_path, 60) as database, database.threads.open("talk") as saver:
        async with await psycopg.AsyncConnection.connect(postgres) as admin:
            await admin.execute("LOCK TABLE checkpoint_writes IN SHARE MODE")
            writing = asyncio.create_task(saver.aput_writes(CONFIG, [("channel", 1)], "task"))
            await asyncio.sleep(2 * LOOK_S)
            assert not writing.done()
        await writing


@pytest.mark.slow
def test_a_connection_with_a_lock_has_keepalives(tmp_path: Path) -> None:
    from postgres import INSTALLED, Postgres

    async def check(url: str) -> None:
        async with open_database(url, tmp_path, 60) as database, database.threads.open("talk") as saver:
            connection: Any = saver.conn  # type: ignore[attr-defined]
            for name, value in KEEPALIVE.items():
                cursor = await connection.execute("SELECT setting FROM pg_settings WHERE name = %s", [name])
                assert (await cursor.fetchone())["setting"] == str(value)

    if INSTALLED is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    with Postgres(tcp="127.0.0.1") as server:
        asyncio.run(check(server.new_database()))
