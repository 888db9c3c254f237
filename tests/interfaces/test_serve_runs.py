"""What runs of a server write is kept for a time, and what others wrote for ever."""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import CAT, agent_of, serving

from jarvis_agent.interfaces.server.retention import sweep

NOW = 1_000_000.0


def a_run(folder: Path, name: str, age: float, size: int = 5) -> Path:
    """A directory of a run that last wrote `age` seconds before NOW."""
    run = folder / name
    run.mkdir(parents=True)
    (run / "file.txt").write_bytes(b"x" * size)
    for path in (run / "file.txt", run):
        os.utime(path, (NOW - age, NOW - age))
    return run


def left(folder: Path, **limits: Any) -> list[str]:
    sweep(folder, now=NOW, **{"seconds": 100.0, "total": 1000, "busy": 10.0} | limits)
    return sorted(path.name for path in folder.iterdir())


def test_a_run_is_deleted_when_its_time_is_over(tmp_path: Path) -> None:
    for age in (99, 100, 5000):
        a_run(tmp_path, f"{age}", age)
    assert left(tmp_path) == ["99"]


def test_the_oldest_runs_go_first_where_all_are_too_large(tmp_path: Path) -> None:
    for age in (20, 30, 40):
        a_run(tmp_path, f"{age}", age, size=400)
    assert left(tmp_path) == ["20", "30"]
    assert left(tmp_path, total=800) == ["20", "30"]
    assert left(tmp_path, total=799) == ["20"]


def test_a_run_that_may_still_be_at_work_keeps_its_files(tmp_path: Path) -> None:
    a_run(tmp_path, "begun long ago", 5000)
    a_run(tmp_path, "busy", 9)
    new = a_run(tmp_path, "wrote just now", 5000) / "file.txt"
    os.utime(new, (NOW - 1, NOW - 1))
    assert left(tmp_path, seconds=1, total=0) == ["busy", "wrote just now"]


def test_what_is_no_directory_of_a_run_stays(tmp_path: Path) -> None:
    elsewhere = a_run(tmp_path, "elsewhere", 5000)
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "link").symlink_to(elsewhere)
    (runs / "file").touch()
    assert left(runs) == ["file", "link"]
    assert (elsewhere / "file.txt").exists()
    sweep(tmp_path / "none", seconds=1, total=1, busy=1)


def test_what_strangers_send_with_a_request_is_kept_apart(tmp_path: Path) -> None:
    cat = base64.b64encode(CAT.read_bytes()).decode()
    body = {"input": {"input": "What is this?", "files": [f"data:image/jpeg;base64,{cat}"]}}
    script = {"plan": "[]"}
    with serving(agent_of(tmp_path, script), script) as served:
        assert httpx.post(f"{served.url}/agent/invoke", json=body).status_code == 200
        sent = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert [path.read_bytes() for path in sent] == [CAT.read_bytes()]
        assert sent[0].is_relative_to(served.runs)


def test_a_server_deletes_old_runs_of_its_own_by_itself(tmp_path: Path) -> None:
    mine, theirs = a_run(tmp_path, "mine", 0), a_run(tmp_path / "served", "theirs", 0)
    script = {"plan": "[]"}
    with serving(agent_of(tmp_path, script), script):
        deadline = time.monotonic() + 20
        while theirs.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not theirs.exists()
    assert mine.exists()


def test_small_runs_are_never_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.interfaces.server.retention.MOST", 2)
    for age in (5, 20, 30, 40):
        a_run(tmp_path, f"{age}", age)
    assert left(tmp_path) == ["20", "5"]
