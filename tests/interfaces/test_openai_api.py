"""OpenAI's chat completions of a server on loopback, with the official client and LangChain's."""

import asyncio
import base64
import hashlib
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hosting import wav
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from PIL import Image
from pydantic import SecretStr
from served import ANSWER, CAT, Live, agent_of, listening, live_server, plan_for
from sse_starlette import EventSourceResponse
from starlette.testclient import TestClient

from jarvis_agent import JarvisAgent, Plan, Settings, Task
from jarvis_agent.core.context import ChatTurn, turns_of
from jarvis_agent.core.errors import DeadlineError
from jarvis_agent.core.settings import ServerSettings
from jarvis_agent.interfaces.server import create_app, openai_api
from jarvis_agent.testing import FakeBackend, FakeSource, fake_candidate
from jarvis_agent.testing.hub import Reply, ReplyServer

QUESTION = "What animal is this?"


def encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def name_of(file: Path) -> str:
    """The name that the agent gives to this file when it is attached."""
    return f"input-{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}{file.suffix}"


def image_part(url: str | None = None) -> dict[str, Any]:
    url = url or f"data:image/jpeg;base64,{encoded(CAT)}"
    return {"type": "image_url", "image_url": {"url": url}}


def about_cat(text: str = QUESTION) -> list[Any]:
    return [{"role": "user", "content": [{"type": "text", "text": text}, image_part()]}]


RESULTS = {
    "image-to-text": [{"generated_text": "a tabby cat"}],
    "canny-control": Image.new("L", (8, 8)),
    "automatic-speech-recognition": {"text": "good morning"},
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_server(agent_of(tmp_path_factory.mktemp("live"), RESULTS)) as live:
        yield live


@pytest.fixture
def live(running: Live) -> Live:
    running.script["plan"] = plan_for(name_of(CAT))
    running.llm.calls.clear()
    running.backend.calls.clear()
    return running


def test_an_image_is_processed_and_the_reply_links_what_was_made(live: Live) -> None:
    reply = live.ask(about_cat(), temperature=0.5, user="ada")
    (choice,) = reply.choices
    assert reply.model == "jarvis"
    assert (choice.message.role, choice.finish_reason) == ("assistant", "stop")
    assert choice.message.content.startswith(ANSWER)
    assert live.backend.calls[0].inputs["image"].path.read_bytes() == CAT.read_bytes()
    (url,) = re.findall(r"!\[1-canny-control\.png\]\((\S+)\)", choice.message.content)
    assert url.startswith(f"{live.url}/outputs/")
    assert httpx.get(url).headers["content-type"] == "image/png"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0
    assert str(live.agent.settings.output_dir) not in reply.model_dump_json()


def test_a_recording_is_transcribed(live: Live, tmp_path: Path) -> None:
    speech = tmp_path / "speech.wav"
    speech.write_bytes(wav())
    args = {"audio": name_of(speech)}
    live.script["plan"] = json.dumps([{"task": "automatic-speech-recognition", "id": 0, "args": args}])
    part = {"type": "input_audio", "input_audio": {"data": encoded(speech), "format": "wav"}}
    text = {"type": "text", "text": "Transcribe the recording"}
    live.ask([{"role": "user", "content": [text, part]}])
    (call,) = live.backend.calls
    assert call.inputs["audio"].path.read_bytes() == speech.read_bytes()


def test_earlier_messages_are_the_history_and_urls_in_them_are_files(live: Live) -> None:
    first = live.ask(about_cat()).choices[0].message.content
    (url,) = re.findall(r"\((http\S+)\)", first)
    run, name = url.split("/")[-2:]
    made = live.agent.settings.output_dir / "served" / "local" / run / name
    live.script["plan"] = plan_for(str(made))
    messages = [*about_cat(), {"role": "assistant", "content": first}]
    messages.insert(0, {"role": "system", "content": "Be brief."})
    live.ask([*messages, {"role": "user", "content": "And what is in the outline?"}])
    assert live.backend.calls[-1].inputs["image"].path == made
    prompt = live.llm.calls[-1].prompt
    assert QUESTION in prompt
    assert ANSWER in prompt
    live.ask([{"role": "user", "content": [{"type": "text", "text": "And this?"}, image_part(url)]}])
    assert live.backend.calls[-1].inputs["image"].path == made


def test_open_webui_lists_the_files_of_a_message_before_its_text(live: Live) -> None:
    tag = '<file type="file" id="7" url="7" content_type="image/jpeg" name="Our cat.jpg"/>'
    listed = {"type": "text", "text": f"<attached_files>\n{tag}\n</attached_files>\n\n"}
    [message] = about_cat()
    live.script["plan"] = plan_for("Our cat.jpg")
    live.ask([{"role": "user", "content": [listed, *message["content"]]}])
    assert live.backend.calls[0].inputs["image"].path.read_bytes() == CAT.read_bytes()
    assert "attached_files" not in live.llm.calls[0].prompt
    live.script["plan"] = "[]"
    live.ask([{"role": "user", "content": f"{listed['text']}Good morning"}])
    assert "<request>\nGood morning\n</request>" in live.llm.calls[-1].prompt


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_later_turn_refers_to_results_not_to_what_was_said_of_them(tmp_path: Path, stream: bool) -> None:
    histories: list[tuple[ChatTurn, ...]] = []
    tasks = [("image-to-text", 0), ("canny-control", 1)]

    def planner(given: Any) -> Plan:
        histories.append(turns_of(given["chat_history"]))
        args = {"image": given["files"][0].name} if given["files"] else {}
        return Plan(tasks=[Task(task=task, id=i, args=args) for task, i in tasks] if args else [])

    def ask(client: openai.OpenAI, *messages: Any) -> str:
        reply: Any = client.chat.completions.create(model="jarvis", messages=messages, stream=stream)
        if not stream:
            return str(reply.choices[0].message.content)
        return "".join(chunk.choices[0].delta.content or "" for chunk in reply)

    agent = JarvisAgent(
        planner=planner,
        sources=[FakeSource([fake_candidate(task) for task in RESULTS])],
        backends=[FakeBackend(RESULTS)],
        settings=Settings(output_dir=tmp_path, model="none", offline=True),
    )
    keys = [SecretStr("secret-key-1"), SecretStr("secret-key-2")]
    with listening(create_app(agent, ServerSettings(api_keys=keys))) as url:
        own, other = (
            openai.OpenAI(base_url=f"{url}/v1", api_key=key.get_secret_value(), max_retries=0) for key in keys
        )
        first = ask(own, *about_cat())
        answered = {"role": "assistant", "content": f" {first}\n\n"}  # programs change space
        later = {"role": "user", "content": "Make it smaller"}
        ask(own, *about_cat(), answered, later)
        ask(other, *about_cat(), answered, later)
        ask(own, *about_cat("And this?"), answered, later)
        for made in tmp_path.glob("served/*/*/*-canny-control.png"):
            made.unlink()
        ask(own, *about_cat(), answered, later)
    known, *unknown = [turns[0] for turns in histories[1:]]
    assert (known.request, known.text) == (QUESTION, "a tabby cat")
    assert "a tabby cat" in first != known.text
    assert [file.path.name for file in known.resources if file.path] == [name_of(CAT), "1-canny-control.png"]
    assert {turn.made for turn in unknown} == {None}
    assert all("a tabby cat" in turn.text for turn in unknown)


def test_a_stream_reports_the_tasks_and_then_the_answer(live: Live) -> None:
    whole = live.ask(about_cat()).choices[0].message.content
    chunks = list(live.ask(about_cat(), stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thought = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    for state in ("planned, image=", "running", "ok in .* by fake/image-to-text"):
        assert re.search(f"0 image-to-text.*{state}.*\n", thought)
    contents = [delta.content for delta in deltas if delta.content]
    assert len(contents) > 2
    assert re.sub(r"/outputs/[^/]+", "", "".join(contents)) == re.sub(r"/outputs/[^/]+", "", whole)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-2:] == [None, "stop"]
    assert chunks[-1].usage.total_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


async def test_langchains_client_works(live: Live) -> None:
    llm = ChatOpenAI(base_url=f"{live.url}/v1", model="jarvis", api_key=SecretStr("any"))
    asked = [HumanMessage(about_cat()[0]["content"])]
    assert llm.invoke(asked).text.startswith(ANSWER)
    assert "".join([chunk.text for chunk in llm.stream(asked)]).startswith(ANSWER)
    assert (await llm.ainvoke(asked)).text.startswith(ANSWER)
    assert len(live.backend.calls) == 6


def user(*parts: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": "Read it"}, *parts]
    return {"model": "jarvis", "messages": [{"role": "user", "content": content}]}


AUDIO = {"type": "input_audio", "input_audio": {"data": "/etc/passwd!", "format": "wav"}}
BAD: dict[str, tuple[Any, int, str]] = {
    "unknown model": (user() | {"model": "gpt-5"}, 404, "there is no model 'gpt-5'"),
    "no model": ({"messages": user()["messages"]}, 400, "model: Field required"),
    "no messages": (user() | {"messages": []}, 400, "messages: List should have at least 1 item"),
    "nothing from the user": (user() | {"messages": [{"role": "system", "content": "x"}]}, 400, "is empty"),
    "not JSON": (b"{", 400, "JSON decode error"),
    "not an object": ([], 400, "Input should be a valid dictionary"),
    "unknown role": (user() | {"messages": [{"role": "x", "content": "x"}]}, 400, "messages: this takes"),
    "unknown part": (user({"type": "video"}), 400, "the part 'video' of the message holds no file"),
    "a thought": (user({"type": "thinking", "thinking": "x"}), 400, "the part 'thinking' of the message"),
    "a stored file": (user({"type": "file", "file": {"file_id": "x"}}), 400, "attach its bytes (base64)"),
    "empty url": (user({"type": "image_url", "image_url": None}), 400, "the part 'image_url' of the message"),
    "no part": (user(None), 400, "messages: this takes"),
    "a path": (user(image_part("/etc/passwd")), 400, "files of this machine are not read here"),
    "a file URL": (user(image_part("file:///etc/passwd")), 400, "files of this machine are not read here"),
    "a private URL": (user(image_part("http://127.0.0.1:9/a.jpg")), 400, "127.0.0.1"),
    "no base64": (user(AUDIO), 400, "not valid base64"),
    "no image": (user(image_part("data:image/png;base64,AAEC")), 400, "not a supported file type"),
    "too large": (user(image_part(f"data:image/png;base64,{'A' * 170_000}")), 400, "more than 100,000 bytes"),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_reported_as_openai_does(live: Live, case: str, stream: bool) -> None:
    body, status, said = BAD[case]
    answer = live.post(body | {"stream": True} if stream and isinstance(body, dict) else body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (status, "invalid_request_error")
    assert said in error["message"]
    assert (error["code"] == "model_not_found") == (status == 404)
    assert "JARVIS_" not in answer.text
    assert not live.backend.calls


ODD_TURNS: list[dict[str, Any]] = [
    {"role": "assistant", "content": None, "refusal": "I cannot", "audio": {"id": "x"}},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"}]},
    {"role": "user", "content": [{"type": "input_image", "file_id": "f-1"}]},
    {"role": "user", "content": [image_part("/etc/passwd")]},
    {"role": "user", "content": [{"type": "hologram"}, None, 3, "x"]},
    {"role": "user", "name": "Ada Lovelace"},
    {"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {}}]},
    {"role": "tool", "content": {"a": 1}},
    {"role": "function", "name": "f", "content": None},
    {"role": "critic", "content": "x"},
]
"""More forms are those of `tests/core/test_request.py` and `test_content.py`."""


def test_odd_parts_of_earlier_turns_do_not_end_a_chat(live: Live) -> None:
    earlier = [{"role": "user", "content": "Hello"}, *ODD_TURNS]
    assert live.ask([*earlier, *about_cat()]).choices[0].message.content.startswith(ANSWER)


def test_the_last_turn_is_read_in_the_forms_of_other_clients(live: Live) -> None:
    part = {"type": "input_image", "image_url": image_part()["image_url"]["url"], "detail": "auto"}
    live.ask([{"role": "user", "content": [{"type": "input_text", "text": QUESTION}, part]}])
    assert live.backend.calls[0].inputs["image"].path.read_bytes() == CAT.read_bytes()
    assert QUESTION in live.llm.calls[0].prompt


def test_every_error_under_v1_has_openais_form(live: Live, tmp_path: Path) -> None:
    keyed = create_app(agent_of(tmp_path), ServerSettings(api_keys=["secret-key-1"]))
    with TestClient(keyed) as client, httpx.Client(base_url=live.url) as open_client:
        answers: dict[int, Any] = {
            404: open_client.post("/v1/responses", json={}),
            405: open_client.get("/v1/chat/completions"),
            413: open_client.post("/v1/chat/completions", content=b"x" * 1_000_000),
            400: open_client.post("/v1/chat/completions", content=b"{"),
            403: open_client.get("/v1/models", headers={"origin": "https://example.org"}),
            401: client.get("/v1/models"),
        }
    for status, answer in answers.items():
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (status, "invalid_request_error")
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["message"]
    assert "POST /v1/responses" in answers[404].json()["error"]["message"]
    for status in (404, 405):
        named = answers[status].json()["error"]["message"]
        assert "GET /v1/models" in named
        assert "POST /v1/chat/completions" in named
    below = create_app(agent_of(tmp_path), ServerSettings(), prefix="/jarvis")
    with TestClient(below) as client:
        assert "GET /jarvis/v1/models" in client.post("/jarvis/v1/responses").json()["error"]["message"]
        assert client.delete("/jarvis/runs/v1").json().keys() == {"detail"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_run_that_takes_long_times_out(live: Live, monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    async def late(self: JarvisAgent, *_: Any) -> AsyncIterator[Any]:
        raise DeadlineError("the run did not end within 3 s (JARVIS_BUDGET)")
        yield

    monkeypatch.setattr(JarvisAgent, "aevents", late)
    with pytest.raises(openai.InternalServerError, match="within 3 s") as caught:
        live.ask(about_cat(), stream=stream)
    assert caught.value.status_code == 504


def test_a_public_image_is_fetched(tmp_path: Path) -> None:
    agent = agent_of(tmp_path, RESULTS, allow_private_urls=True)  # loopback stands for the internet
    image = Reply(200, CAT.read_bytes(), {"Content-Type": "image/jpeg"})
    with ReplyServer(lambda request: image) as internet, live_server(agent) as live:
        url = f"{internet.url}/a.jpg"
        live.script["plan"] = plan_for(url)
        live.ask([{"role": "user", "content": [{"type": "text", "text": QUESTION}, image_part(url)]}])
        assert live.backend.calls[0].inputs["image"].path.read_bytes() == CAT.read_bytes()


def test_a_document_is_read(live: Live) -> None:
    table = b"city,people\nBonn,330000\n"
    data = f"data:text/csv;base64,{base64.b64encode(table).decode()}"
    part = {"type": "file", "file": {"filename": "cities.csv", "file_data": data}}
    live.script["plan"] = "[]"
    live.ask([{"role": "user", "content": [{"type": "text", "text": "How many people?"}, part]}])
    prompt = live.llm.calls[0].prompt
    assert '- table: "cities.csv"' in prompt


def test_a_stream_begins_before_the_first_event(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_api, "_STATUS_WAIT_S", 0.01)
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", 0.01)
    began, events = threading.Event(), JarvisAgent.aevents

    async def late(self: JarvisAgent, *args: Any) -> AsyncIterator[Any]:
        assert await asyncio.to_thread(began.wait, 120)
        async for event in events(self, *args):
            yield event

    monkeypatch.setattr(JarvisAgent, "aevents", late)
    body = {"model": "jarvis", "messages": about_cat(), "stream": True}
    with httpx.stream("POST", f"{live.url}/v1/chat/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        assert "assistant" in next(lines)
        assert any(line.startswith(": ping") for line in lines)
        began.set()
        assert [line for line in lines if line.startswith("data:")][-1] == "data: [DONE]"


def test_a_client_may_leave_before_the_first_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_api, "_STATUS_WAIT_S", 0.01)
    stopped = threading.Event()

    async def waiting(self: JarvisAgent, *_: Any) -> AsyncIterator[Any]:
        try:
            await asyncio.sleep(3600)
            yield
        finally:
            stopped.set()

    monkeypatch.setattr(JarvisAgent, "aevents", waiting)
    with listening(create_app(agent_of(tmp_path))) as url:
        body = {"model": "jarvis", "messages": about_cat(), "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
            assert "assistant" in next(answer.iter_lines())
        assert stopped.wait(120)


@pytest.mark.parametrize("place", ["/outputs/../../../../etc/passwd", "/outputs/../secret.png"])
def test_urls_of_files_lead_nowhere_else(live: Live, place: str) -> None:
    Image.new("RGB", (8, 8)).save(live.agent.settings.output_dir / "secret.png")
    answer = live.post(user(image_part(live.url + place)))
    assert answer.status_code == 400
    assert "leads to the private address" in answer.text
    assert str(live.agent.settings.output_dir) not in answer.text


def test_an_error_in_a_stream_ends_it(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    events = JarvisAgent.aevents

    async def broken(self: JarvisAgent, *args: Any) -> AsyncIterator[Any]:
        async with aclosing(events(self, *args)) as run:
            yield await anext(run)
            raise RuntimeError("the key sk-live-12345 was refused")

    monkeypatch.setattr(JarvisAgent, "aevents", broken)
    with pytest.raises(openai.APIError, match="Internal Server Error"):
        list(live.ask(about_cat(), stream=True))
    answer = live.post({"model": "jarvis", "messages": about_cat(), "stream": True})
    assert "sk-live" not in answer.text
    assert "[DONE]" not in answer.text


def test_an_agent_that_asks_for_approval_has_no_such_routes(tmp_path: Path) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    for approve, status in ((True, 404), (False, 200)):
        agent = agent_of(tmp_path).copy(checkpointer=InMemorySaver(), approve=approve)
        with TestClient(create_app(agent)) as client:
            body = {"model": "jarvis", "messages": [{"role": "user", "content": "Good morning!"}]}
            assert client.post("/v1/chat/completions", json=body).status_code == status
