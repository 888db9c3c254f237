"""Who may use the web page, and what its server refuses."""

import asyncio
import gc
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import jarvis
from libraries import needs
from served import CAT, agent_of, listening
from starlette.testclient import TestClient

from jarvis_agent import JarvisAgent
from jarvis_agent.core.errors import ConfigError, InputError, MissingExtraError
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.ui import create_ui, run_ui
from jarvis_agent.interfaces.ui.visitor import CHAT_FILE, Visitor

gr, ui_page = needs("gradio"), needs("jarvis_agent.interfaces.ui.page")

pytestmark = pytest.mark.slow

KEY = "k" * 32


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[JarvisAgent]:
    with agent_of(tmp_path) as agent:
        yield agent


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with agent_of(tmp_path_factory.mktemp("page")) as agent:
        yield ui_page.Page([agent], ServerSettings())


def test_a_login_with_an_api_key_is_needed_where_there_are_keys(agent: JarvisAgent) -> None:
    with TestClient(ui_page.make_app([agent], ServerSettings(api_keys=[KEY]))) as client:
        assert client.get("/config").status_code == 401
        assert client.post("/gradio_api/upload", files={"files": b"x"}).status_code == 401
        for path in ("heartbeat/a", "queue/status", "stream/a/1/1/playlist-file", "file=a.png"):
            assert client.get(f"/gradio_api/{path}").status_code == 401
        assert client.post("/gradio_api/cancel", json={}).status_code == 401
        for key, status in (("wrong", 400), (KEY, 200)):
            reply = client.post("/login", data={"username": "ada", "password": key})
            assert reply.status_code == status
        config = client.get("/config")
        assert config.status_code == 200
        assert KEY not in config.text
        assert client.get("/gradio_api/queue/status").status_code == 200


def test_the_page_names_no_path(agent: JarvisAgent) -> None:
    with TestClient(ui_page.make_app([agent], ServerSettings())) as client:
        page = client.get("/")
        assert str(Path.cwd()) not in page.text
        assert str(agent.settings.output_dir) not in page.text


def test_other_hosts_and_pages_of_other_sites_are_refused(agent: JarvisAgent) -> None:
    app = ui_page.make_app([agent], ServerSettings(allowed_hosts=("127.0.0.1",)))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/").status_code == 200
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 400
        assert client.get("/", headers={"Origin": "http://evil.example"}).status_code == 403


def login(name: str | None = None) -> Any:
    return gr.Request(username=name, headers={}, cookies={})


def fields_of(page: Any) -> dict[Any, Any]:
    """What the page sends of a visitor whose session has ended."""
    choices = dict(zip(page._choices, (0, None, False), strict=True))
    return choices | {page._visitor: None, page._key: "k", page._name: "0" * 32}


def test_a_chat_is_opened_again_with_its_key_and_login_alone(page: Any) -> None:
    ada, eve = map(login, ("ada", "eve"))
    visitor, key, name, *_ = page._open(ada, None)
    assert page._open(ada, key, name)[0] is visitor
    others = ((key, name, eve), (None, name, ada), ("", name, ada), ("guessed", name, ada), (key, None, ada))
    for other_key, other_name, other in others:
        assert page._open(other, other_key, other_name)[0] is not visitor
    outside = page._open(ada, key, f"../{visitor.directory.name}")[0]
    assert outside.directory.parent == visitor.directory.parent


def test_a_chat_that_no_session_has_is_read_from_its_files(page: Any) -> None:
    visitor, key, name, *_ = page._open(login(), None)
    _answered(visitor, "What is this?")
    del visitor
    gc.collect()
    assert [turn.request for turn in page._open(login(), key, name)[0].turns] == ["What is this?"]


def test_the_chats_of_a_visitor_are_listed_and_deleted(page: Any) -> None:
    first, key, name, *_ = page._open(login(), None)
    _answered(first, "What is this?")
    second = page._open(login(), key)[0]
    _answered(second, "Read it aloud")
    os.utime(first.directory / CHAT_FILE, (0, 0))
    waiting = page._open(login(), key)[0]
    waiting.directory.mkdir()
    (waiting.directory / CHAT_FILE).touch()  # no turn of it is over
    stranger = page._open(login(), None)[0]
    _answered(stranger, "A secret")
    listed, stored = page._listed(first)
    assert [title for title, _ in listed.choices] == ["Read it aloud", "What is this?"]
    assert (listed.value, stored.visible) == (name, True)
    page._forget(login(), key, name)
    assert not first.directory.exists()
    listed, stored = page._listed(page._open(login(), key)[0])
    assert [title for title, _ in listed.choices] == ["Read it aloud"]
    assert (listed.value, stored.visible) == (None, False)


@pytest.mark.parametrize("line", [b"{}", b"[]", b"\xff", b'{"request": 1}', b'{"request": "a\xe2\x80\xa8b"}'])
def test_a_chat_whose_first_turn_cannot_be_read_is_listed_and_deleted(page: Any, line: bytes) -> None:
    spoilt, key, name, *_ = page._open(login(), None)
    spoilt.directory.mkdir(parents=True)
    (spoilt.directory / CHAT_FILE).write_bytes(line)
    del spoilt
    gc.collect()
    visitor = page._open(login(), key, name)[0]
    assert page._listed(visitor)[0].value == name
    page._forget(login(), key, name)
    assert not visitor.directory.exists()


def _answered(visitor: Visitor, request: str) -> None:
    async def run() -> None:
        visitor.ask(request, [])
        async for _ in visitor.run():
            pass

    asyncio.run(run())


def test_the_form_of_a_plan_does_not_keep_its_visitor(agent: JarvisAgent, tmp_path: Path) -> None:
    visitor = Visitor([agent], tmp_path)
    task = {"task": "image-to-text", "id": 0, "dep": [-1], "args": {"image": "cat.jpg"}}
    shown = {"language": "en", "plan": [task]}
    with gr.Blocks() as form:
        ui_page.show_proposal(visitor, shown, gr.State(), gr.State())
    left = weakref.ref(visitor)
    del visitor
    gc.collect()
    assert form.blocks
    assert left() is None


def test_the_files_of_unused_chats_are_deleted_when_another_one_starts(page: Any) -> None:
    used, left = (page._open(login(), None)[0] for _ in range(2))
    for visitor in (used, left):
        visitor.ask("Look", [CAT])
        for directory in (visitor.directory, visitor.directory / "uploads"):
            os.utime(directory, (0, 0))
    used.ask("Look again", [])
    page._open(login(), None)
    assert used.directory.exists()
    assert not left.directory.exists()


def test_a_forged_name_of_a_chat_reaches_no_other_directory(page: Any, tmp_path: Path) -> None:
    forged = f"{'0' * 32}/{'../' * 20}{tmp_path}"
    message = {"text": "Look", "files": [str(CAT)]}
    with pytest.raises(InputError, match="name of a chat"):
        page._ask({**fields_of(page), page._name: forged, page._box: message}, login())
    with pytest.raises(InputError, match="name of a chat"):
        page._forget(login(), "k", forged)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("is_uploaded", [True, False])
def test_only_uploaded_files_are_read(agent: JarvisAgent, tmp_path: Path, *, is_uploaded: bool) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret", "utf-8")
    with TestClient(ui_page.make_app([agent], ServerSettings())) as client:
        sent = client.post("/gradio_api/upload", files={"files": ("secret.txt", secret.read_bytes())}).json()
        file = {"path": sent[0] if is_uploaded else str(secret), "meta": {"_type": "gradio.FileData"}}
        config = client.get("/config").json()
        (ask,) = (event for event in config["dependencies"] if event["api_name"] == "_ask")
        parts = {part["id"]: part for part in config["components"]}
        values = {"multimodaltextbox": {"text": "Look", "files": [file]}, "textbox": "0" * 32}
        data = [values.get(parts[one]["type"], parts[one]["props"].get("value")) for one in ask["inputs"]]
        body = {"fn_index": ask["id"], "data": data, "session_hash": "s"}
        assert client.post("/gradio_api/queue/join", json=body).status_code == 200
        events = client.get("/gradio_api/queue/data", params={"session_hash": "s"}).text
    assert ('"success":true' in events) == is_uploaded
    assert any((agent.settings.output_dir / "ui").rglob("secret.txt")) == is_uploaded


def test_a_request_after_the_end_of_its_session_starts_a_chat(page: Any) -> None:
    visitor, *_ = page._ask({**fields_of(page), page._box: {"text": "Look", "files": []}}, login())
    assert [turn.request for turn in visitor.turns] == ["Look"]


def test_the_example_that_was_drawn_is_asked_whatever_can_run_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agent_of(tmp_path, {"automatic-speech-recognition": {"text": "Hello"}})
    page = ui_page.Page([agent], ServerSettings())
    (shown,) = [part for part in page._open(login(), None) if getattr(part, "examples", None)]
    monkeypatch.setattr(page, "_examples", dict)
    example = gr.SelectData(None, {"index": 0, "value": {**shown.examples[0], "files": ["/etc/passwd"]}})
    visitor, *_ = page._ask_example(fields_of(page), example, login())
    (turn,) = visitor.turns
    assert turn.request == shown.examples[0]["text"]
    assert [file.name for file in turn.files] == ["speech.wav"]


def test_other_machines_need_a_key(agent: JarvisAgent) -> None:
    with pytest.raises(ConfigError, match="JARVIS_API_KEYS"):
        run_ui(agent, host="0.0.0.0")
    result = jarvis("ui", "--host", "0.0.0.0", "--model", "none")
    assert result.exit_code == 2
    assert "--insecure" in result.stderr


def test_the_page_is_served_with_headers_that_let_it_load_nothing_from_elsewhere(
    agent: JarvisAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr("uvicorn.Server.run", lambda server: started.append(server.config))
        run_ui(agent)
    with listening(started[0].app, headers=started[0].headers) as url:
        headers = httpx.get(url).headers
    assert headers["content-security-policy"].startswith("default-src 'self' data: blob:;")
    assert (headers["referrer-policy"], headers["x-content-type-options"]) == ("no-referrer", "nosniff")


def test_a_missing_extra_is_named(agent: JarvisAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with pytest.raises(MissingExtraError, match=r"\[ui\]"):
        create_ui(agent)
