"""The files of a server: uploads, outputs of runs, and how long both are kept."""

import base64
import errno
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from blocking import guarded
from hosting import wav
from pydantic import BaseModel, ValidationError
from served import CAT, Served, agent_of, serving
from waiting import wait_until

from jarvis_agent import Run
from jarvis_agent.interfaces.common import limits, uploads_and_outputs
from jarvis_agent.interfaces.common.uploads_and_outputs import delete_expired, stored_bytes
from jarvis_agent.interfaces.server.errors import http_error_of
from jarvis_agent.interfaces.server.openai_api import ChatCompletionRequest
from jarvis_agent.interfaces.server.runs import RunRequest

NOW = 1_000_000.0


def test_uploads_get_unique_names_below_the_upload_directory(served: Served) -> None:
    answers = [served.upload(name="../../evil/my cat.jpg").json() for _ in range(2)]
    tokens, files = zip(*(answer["name"].split("/") for answer in answers), strict=True)
    assert files == ("my-cat.jpg", "my-cat.jpg")
    assert len(set(tokens)) == 2
    assert all(len(token) == 32 for token in tokens)
    kept = [path for path in served.outputs.parent.rglob("*") if path.is_file()]
    stored = sorted(path for path in kept if "sqlite" not in path.name)
    assert stored == sorted(served.uploads / answer["name"] for answer in answers)


def test_an_upload_is_known_by_its_content(served: Served) -> None:
    answer = served.upload(name="song.mp3")
    assert answer.status_code == 201
    described = {"kind": "image", "mime": "image/jpeg", "size": CAT.stat().st_size}
    assert answer.json() | {"name": ""} == {"name": ""} | described


@pytest.mark.parametrize(
    ("content", "status", "complaint"),
    [
        (b"", 422, "a.jpg is empty"),
        (b"\0\1\2\3", 422, "a.jpg is damaged, or not a supported file type"),
        (b"x" * 100_001, 422, "100,001 bytes, more than 100,000"),
        (b"x" * 300_000, 413, "more than 165,536"),
    ],
    ids=["empty", "unknown", "too large", "much too large"],
)
def test_an_unusable_upload_is_refused(served: Served, content: bytes, status: int, complaint: str) -> None:
    answer = served.upload(content, "a.jpg")
    assert answer.status_code == status
    assert complaint in answer.text
    assert not served.uploads.exists()


def test_json_has_a_limit_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_JSON_BYTES", 1_000)
    monkeypatch.setattr(limits, "FORM_BYTES", 0)
    with serving(agent_of(tmp_path)) as served:
        answer = served.client.post("/agent/invoke", content=b" " * 1_001)
        assert (answer.status_code, "more than 1,000" in answer.text) == (413, True)
        assert served.upload().status_code == 201


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def test_a_request_may_not_have_very_much_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.core.request.MAX_TEXT_BYTES", 1_000)
    long = "é" * 501
    earlier = {"input": "Hello", "chat_history": [{"role": "user", "content": long}]}
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/agent/invoke", {"input": long}),
        ("/agent/invoke", {"input": earlier}),
        ("/agent/batch", {"inputs": [said(long), long]}),
        ("/runs", {"input": long}),
        ("/v1/chat/completions", {"model": "jarvis", **said(long)}),
        ("/v1/chat/completions", {"model": "jarvis", "stream": True, **said(long)}),
    ]
    with serving(agent_of(tmp_path)) as served:
        for path, body in bodies:
            for headers in ({}, {"X-Thread-Id": "one"}):
                answer = served.client.post(path, json=body, headers=headers)
                assert (path, answer.status_code) == (path, 413)
        for path in ("/agent/stream", "/agent/stream_events"):
            assert '"status_code": 413' in served.client.post(path, json={"input": long}).text
        assert served.client.get("/runs").json() == []
        assert not served.llm.calls
        assert served.client.post("/agent/invoke", json={"input": "é" * 500}).status_code == 200


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (RunRequest, {"input": "Hello", "files": [0, 0]}),
        (ChatCompletionRequest, {"model": "jarvis", "messages": [0, 0]}),
    ],
)
def test_checks_end_at_the_first_wrong_value_of_a_list(body: type[BaseModel], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        body.model_validate(fields)
    assert caught.value.error_count() == 1


def test_uploads_at_the_same_time_share_the_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size, copy = CAT.stat().st_size, shutil.copyfileobj
    second: list[Any] = []

    def overtaken(*given: Any) -> None:
        """The second upload comes before the first is written."""
        monkeypatch.setattr(shutil, "copyfileobj", copy)
        with CAT.open("rb") as file, pytest.raises(OSError, match="your uploads have all of") as refused:
            uploads_and_outputs.save_upload(tmp_path, "b.jpg", file, size, size, 2 * size - 1)
        second.append(refused)
        copy(*given)

    monkeypatch.setattr(shutil, "copyfileobj", overtaken)
    with CAT.open("rb") as file:
        upload = uploads_and_outputs.save_upload(tmp_path, "a.jpg", file, size, size, 2 * size - 1)
    assert second
    assert [path.name for path in tmp_path.rglob("*.jpg")] == ["a.jpg"]
    assert (tmp_path / upload.name).read_bytes() == CAT.read_bytes()


FULL = OSError(errno.ENOSPC, "No space left on device")


def full(*_: Any, **__: Any) -> None:
    raise FULL


@pytest.mark.parametrize(
    "write",
    [
        "starlette.datastructures.UploadFile.write",
        "jarvis_agent.interfaces.common.uploads_and_outputs.Path.mkdir",
        "jarvis_agent.interfaces.common.uploads_and_outputs.shutil.copyfileobj",
    ],
)
def test_an_upload_to_a_full_disk_is_reported_and_leaves_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(write, full)
        answer = served.upload()
    assert answer.status_code == 507
    assert answer.json()["detail"] == "the disk of the server is full; try again later"
    assert [path for path in served.outputs.rglob("*") if path.name == "cat.jpg"] == []
    assert served.upload().status_code == 201


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "uploads").touch()
    with serving(agent_of(tmp_path)) as served:
        answer = served.upload()
    assert answer.status_code == 507
    assert "could not be stored" in answer.json()["detail"]
    assert str(tmp_path) not in answer.text


def test_on_a_full_disk_the_run_alone_fails(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"input": {"input": "What animal is this?", "files": [served.uploaded_cat()]}}
    with monkeypatch.context() as patch:
        patch.setattr("jarvis_agent.media.run_directory.Path.mkdir", full)
        refused = served.client.post("/agent/invoke", json=body)
        streamed = served.client.post("/agent/stream", json=body)
    assert refused.status_code == 507
    assert refused.json()["detail"] == "the disk of the server is full; try again later"
    assert '"status_code": 507' in streamed.text
    with monkeypatch.context() as patch:
        patch.setattr("PIL.Image.Image.save", full)
        run = Run.model_validate(served.client.post("/agent/invoke", json=body).json()["output"])
    assert [result.status for result in run.results] == ["ok", "failed"]
    assert "No space left on device" in (run.results[1].error or "")
    run = Run.model_validate(served.client.post("/agent/invoke", json=body).json()["output"])
    assert [result.status for result in run.results] == ["ok", "ok"]


def _full_sqlite() -> Exception:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA max_page_count = 2")
        database.execute("CREATE TABLE files (content)")
        with pytest.raises(sqlite3.OperationalError) as caught:
            database.execute("INSERT INTO files VALUES (zeroblob(100000))")
        return caught.value


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (_full_sqlite(), 507),
        (psycopg.errors.DiskFull("could not extend file"), 507),
        (sqlite3.OperationalError("unable to open database file"), 503),
        (psycopg.OperationalError("connection refused"), 503),
    ],
    ids=["full SQLite", "full PostgreSQL", "lost SQLite", "lost PostgreSQL"],
)
def test_a_full_database_is_told_from_one_that_does_not_answer(error: Exception, status: int) -> None:
    assert http_error_of(error).status_code == status


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("..", "file"),
        (".htaccess", "htaccess"),
        ("-rf.jpg", "rf.jpg"),
        ("a\0\tb.jpg", "a-b.jpg"),
        ("<script>$(reboot);'.jpg", "script-reboot-.jpg"),
        ("\u202egpj.exe", "gpj.exe"),
        ("кот.jpg", "кот.jpg"),
        ("x" * 500 + ".jpg", "x" * 56 + ".jpg"),
    ],
)
def test_a_hostile_file_name_becomes_a_plain_one(served: Served, name: str, plain: str) -> None:
    head = f'--end\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    form = {"Content-Type": "multipart/form-data; boundary=end"}
    body = head.encode() + CAT.read_bytes() + b"\r\n--end--\r\n"
    answer = served.client.post("/files", content=body, headers=form)
    assert answer.status_code == 201
    token, _, stored_name = answer.json()["name"].partition("/")
    assert stored_name == plain
    assert (served.uploads / token / plain).read_bytes() == CAT.read_bytes()


def test_only_files_of_runs_are_given_out(served: Served) -> None:
    name = served.uploaded_cat()
    token = name.split("/")[0]
    run = served.runs / "run"
    run.mkdir(parents=True)
    secret = served.runs.with_name("secret.txt")
    secret.write_text("secret")
    (run / "link.txt").symlink_to(secret)
    for path in (
        "/outputs/run/link.txt",
        "/outputs/run/none.txt",
        "/outputs/%2e%2e/secret.txt",
        "/outputs/run/%2e%2e",
        "/outputs/run/..%2f..%2fsecret.txt",
        "/outputs/run/%00",
        f"/outputs/run/{'a' * 300}",
        f"/outputs/uploads/{token}",
        f"/outputs/uploads%2f{token}/cat.jpg",
    ):
        assert served.get(path).status_code == 404, path


SCRIPT = b"<script>alert(1)</script>"


@pytest.mark.parametrize(
    ("name", "content", "mime", "disposition"),
    [
        ("0-text-to-3d.glb", b"glTF\x02\0\0\0", "model/gltf-binary", "attachment"),
        ("0-forecast.csv", b"step,sales\n1,2\n", "text/csv", "attachment"),
        ("0-text-to-speech.wav", wav(), "audio/wav", "inline"),
        ("page.html", SCRIPT, "application/octet-stream", "attachment"),
        ("picture.svg", b"<svg>" + SCRIPT + b"</svg>", "application/octet-stream", "attachment"),
        ("cat.jpg", SCRIPT, "application/octet-stream", "attachment"),
        ("bytes.bin", SCRIPT + b"\0", "application/octet-stream", "attachment"),
    ],
)
def test_outputs_have_the_media_type_of_their_content_and_active_content_is_only_downloaded(
    served: Served, name: str, content: bytes, mime: str, disposition: str
) -> None:
    (served.runs / "made").mkdir(parents=True)
    (served.runs / "made" / name).write_bytes(content)
    got = served.get(f"/outputs/made/{name}")
    assert got.content == content
    assert got.headers["content-type"].partition(";")[0] == mime
    assert got.headers["content-disposition"].startswith(disposition)
    assert got.headers["x-content-type-options"] == "nosniff"


def stored(folder: Path, age: float) -> Path:
    """A folder with a file to which nothing was written for `age` seconds before NOW."""
    folder.mkdir(parents=True)
    (folder / "file.txt").write_bytes(b"x")
    for path in (folder / "file.txt", folder):
        os.utime(path, (NOW - age, NOW - age))
    return folder


def test_folders_expire_by_their_last_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age in (99, 100, 5000):
        stored(tmp_path / f"{age}", age)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(stored(tmp_path / "changed", 5000))
    os.utime(tmp_path / "changed" / "file.txt", (NOW - 1, NOW - 1))
    monkeypatch.setattr(time, "time", lambda: NOW)
    delete_expired(tmp_path, seconds=100)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["99", "changed", "file", "link"]
    delete_expired(tmp_path / "none", seconds=1)


def test_an_upload_that_expires_while_uploads_are_counted_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kept", "expired"):
        stored(tmp_path / name, 0)
    real = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        if path.parent.name == "expired":
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(Path, "lstat", lstat)
    assert stored_bytes(tmp_path) == 1


def test_a_server_deletes_expired_uploads_and_runs_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "glob", guarded(Path.glob, "glob", []))  # a slow disk stops no request
    mine, run = stored(tmp_path / "mine", 0), stored(tmp_path / "served" / "revoked" / "theirs", 0)
    upload = stored(tmp_path / "uploads" / "local" / ("0" * 32), 0)
    with serving(agent_of(tmp_path), retention=1e-9):
        wait_until(lambda: not run.exists() and not upload.exists())
    assert mine.exists()


def test_files_in_a_request_are_stored_with_its_run(tmp_path: Path) -> None:
    cat = base64.b64encode(CAT.read_bytes()).decode()
    body = {"input": {"input": "What is this?", "files": [f"data:image/jpeg;base64,{cat}"]}}
    with serving(agent_of(tmp_path)) as served:
        assert served.client.post("/agent/invoke", json=body).status_code == 200
        (sent,) = [path for path in tmp_path.rglob("*") if path.is_file() and "sqlite" not in path.name]
        assert sent.read_bytes() == CAT.read_bytes()
        assert sent.is_relative_to(served.runs)
