"""The files of a server: uploads, outputs of runs, and how long both are kept."""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path
from typing import Any

import pytest
from served import CAT, Served, agent_of, serving

from jarvis_agent.interfaces.server.files import delete_expired

NOW = 1_000_000.0


def test_uploads_get_unique_names_below_the_upload_directory(served: Served) -> None:
    answers = [served.upload(name="../../evil/my cat.jpg").json() for _ in range(2)]
    tokens, files = zip(*(answer["name"].split("/") for answer in answers), strict=True)
    assert files == ("my-cat.jpg", "my-cat.jpg")
    assert len(set(tokens)) == 2
    assert all(len(token) == 32 for token in tokens)
    stored = sorted(path for path in served.outputs.parent.rglob("*") if path.is_file())
    assert stored == sorted(served.outputs / "uploads" / answer["name"] for answer in answers)


def test_an_upload_is_known_by_its_content(served: Served) -> None:
    answer = served.upload(name="song.mp3")
    assert answer.status_code == 201
    assert answer.json() | {"name": ""} == {
        "name": "",
        "kind": "image",
        "mime": "image/jpeg",
        "size": CAT.stat().st_size,
    }


@pytest.mark.parametrize(
    ("content", "status", "complaint"),
    [
        (b"", 422, "a.jpg is empty"),
        (b"\0\1\2\3", 422, "a.jpg is not a supported file type"),
        (b"x" * 100_001, 422, "100,001 bytes, more than 100,000"),
        (b"x" * 300_000, 413, "Too Large"),
    ],
    ids=["empty", "unknown", "too large", "much too large"],
)
def test_an_upload_that_cannot_be_used_is_refused(
    served: Served, content: bytes, status: int, complaint: str
) -> None:
    answer = served.upload(content, "a.jpg")
    assert answer.status_code == status
    assert complaint in answer.text
    assert not (served.outputs / "uploads").exists()


def test_a_request_of_unknown_length_is_cut_off_at_the_limit(served: Served) -> None:
    answer = served.client.post("/agent/invoke", content=(b"x" * 1000 for _ in range(300)))
    assert answer.status_code == 413


@pytest.mark.parametrize("failing", ["mkdir", "write"])
def test_a_full_disk_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    if failing == "mkdir":
        (tmp_path / "uploads").touch()
    else:
        monkeypatch.setattr("jarvis_agent.interfaces.server.files.shutil.copyfileobj", full)
    script = {"plan": "[]"}
    with serving(agent_of(tmp_path, script), script) as served:
        answer = served.upload()
    assert answer.status_code == 507
    assert "could not be stored" in answer.json()["detail"]
    assert [path for path in tmp_path.rglob("*") if path.name == "cat.jpg"] == []


def test_only_files_of_runs_are_given_out(served: Served) -> None:
    name = served.uploaded_cat()
    token = name.split("/")[0]
    secret = served.outputs.parent / "secret.txt"
    secret.write_text("secret")
    run = served.runs / "run"
    run.mkdir(parents=True)
    (run / "link.txt").symlink_to(secret)
    for path in (
        "/outputs/run/link.txt",
        "/outputs/run/none.txt",
        "/outputs/%2e%2e/secret.txt",
        "/outputs/run/%2e%2e",
        "/outputs/run/..%2f..%2fsecret.txt",
        "/outputs/run/%00",
        f"/outputs/uploads/{token}",
        f"/outputs/uploads%2f{token}/cat.jpg",
    ):
        assert served.get(path).status_code == 404, path


SCRIPT = b"<script>alert(1)</script>"
OUTPUTS = [
    ("0-text-to-3d.glb", b"glTF\x02\0\0\0", "model/gltf-binary", "attachment"),
    ("0-forecast.csv", b"step,sales\n1,2\n", "text/csv", "attachment"),
    ("0-text-to-video.mp4", b"\0\0\0\x18ftypisom\0\0\0\0isomiso2", "video/mp4", "inline"),
    ("page.html", SCRIPT, "application/octet-stream", "attachment"),
    ("picture.svg", b"<svg>" + SCRIPT + b"</svg>", "application/octet-stream", "attachment"),
    ("cat.jpg", SCRIPT, "application/octet-stream", "attachment"),
    ("bytes.bin", SCRIPT + b"\0", "application/octet-stream", "attachment"),
]


def test_outputs_have_the_media_type_of_their_content_and_active_content_is_only_downloaded(
    served: Served,
) -> None:
    (served.runs / "made").mkdir(parents=True)
    for name, content, mime, disposition in OUTPUTS:
        (served.runs / "made" / name).write_bytes(content)
        got = served.get(f"/outputs/made/{name}")
        assert got.content == content
        assert got.headers["content-type"].partition(";")[0] == mime, name
        assert got.headers["content-disposition"].startswith(disposition), name
        assert got.headers["x-content-type-options"] == "nosniff"


def stored(folder: Path, age: float) -> Path:
    """A folder with a file to which nothing was written for `age` seconds before NOW."""
    folder.mkdir(parents=True)
    (folder / "file.txt").write_bytes(b"x")
    for path in (folder / "file.txt", folder):
        os.utime(path, (NOW - age, NOW - age))
    return folder


def test_folders_expire_by_their_last_change(tmp_path: Path) -> None:
    for age in (99, 100, 5000):
        stored(tmp_path / f"{age}", age)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(stored(tmp_path / "changed", 5000))
    os.utime(tmp_path / "changed" / "file.txt", (NOW - 1, NOW - 1))
    delete_expired(tmp_path, seconds=100, now=NOW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["99", "changed", "file", "link"]
    delete_expired(tmp_path / "none", seconds=1)


def test_a_server_deletes_expired_uploads_and_runs_and_nothing_else(tmp_path: Path) -> None:
    mine, run = stored(tmp_path / "mine", 0), stored(tmp_path / "served" / "theirs", 0)
    upload = stored(tmp_path / "uploads" / ("0" * 32), 0)
    script = {"plan": "[]"}
    with serving(agent_of(tmp_path, script, retention=1e-9), script):
        deadline = time.monotonic() + 20
        while (run.exists() or upload.exists()) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not run.exists()
    assert not upload.exists()
    assert mine.exists()


def test_files_in_a_request_are_stored_with_its_run(tmp_path: Path) -> None:
    cat = base64.b64encode(CAT.read_bytes()).decode()
    body = {"input": {"input": "What is this?", "files": [f"data:image/jpeg;base64,{cat}"]}}
    script = {"plan": "[]"}
    with serving(agent_of(tmp_path, script), script) as served:
        assert served.client.post("/agent/invoke", json=body).status_code == 200
        (sent,) = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert sent.read_bytes() == CAT.read_bytes()
        assert sent.is_relative_to(served.runs)
