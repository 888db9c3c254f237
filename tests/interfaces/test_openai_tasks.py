"""OpenAI's routes for recordings, speech, vectors and pictures, with the official client and LangChain's."""

import base64
import io
import re
import struct
import wave
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from langchain_openai import OpenAIEmbeddings
from PIL import Image
from served import Live, agent_of, live_server

from jarvis_agent import JarvisAgent, Settings
from jarvis_agent.backends.base import Call
from jarvis_agent.core.errors import BadInputError, ExpertError, MissingExtraError
from jarvis_agent.interfaces.server import openai_tasks
from jarvis_agent.media.recordings import probe_audio
from jarvis_agent.testing import FakeBackend, FakeSource, ScriptedLLM, fake_candidate

SPOKEN = {
    "text": "Good morning. 2 < 3",
    "chunks": [
        {"text": " 2 < 3", "timestamp": [1.5, None]},
        {"text": " Good\nmorning.", "timestamp": [0.0, 1.25]},
    ],
}
SAMPLES = np.sin(np.arange(22_050) / 20) / 2
RESULTS: dict[str, Any] = {
    "automatic-speech-recognition": SPOKEN,
    "text-to-speech": {"audio": SAMPLES, "sampling_rate": 22_050},
    "feature-extraction": lambda call: [[[float(len(call.inputs["text"])), 0.5, -0.25]]],
    "text-to-image": Image.new("RGB", (8, 8), "red"),
}


def recording(seconds: float = 2.0) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 16_000, 0, "NONE", ""))
        # With the brackets of many JSON values, as long recordings have by chance.
        sound.writeframes((b"[{,\0" * 8_000 * int(seconds + 1))[: int(32_000 * seconds)])
    return file.getvalue()


def stored(live: Live) -> list[Path]:
    """The files of the server but its database."""
    files = live.agent.settings.output_dir.rglob("*")
    return [file for file in files if file.is_file() and "sqlite" not in file.name]


def transcribed(live: Live, content: bytes, **options: Any) -> Any:
    options = {"model": "whisper-1"} | options
    return live.client.audio.transcriptions.create(file=("memo.wav", content), **options)


def live_with(output_dir: Path, results: dict[str, Any], **server: Any) -> AbstractContextManager[Live]:
    return live_server(agent_of(output_dir, results, max_file_bytes=1_000_000), **server)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_with(tmp_path_factory.mktemp("live"), RESULTS) as live:
        yield live


@pytest.fixture
def live(running: Live) -> Live:
    running.backend.calls.clear()
    return running


SRT = """1
00:00:00,000 --> 00:00:01,250
Good morning.

2
00:00:01,500 --> 00:00:02,000
2 < 3

"""
VTT = """WEBVTT

00:00:00.000 --> 00:00:01.250
Good morning.

00:00:01.500 --> 00:00:02.000
2 &lt; 3

"""


def test_a_recording_is_written_down_in_each_form(live: Live) -> None:
    before = stored(live)
    plain = transcribed(live, recording(), response_format="json", prompt="Ada", temperature=0.5)
    assert (plain.text, plain.model) == (SPOKEN["text"], "fake/automatic-speech-recognition")
    assert transcribed(live, recording(), response_format="text") == f"{SPOKEN['text']}\n"
    assert transcribed(live, recording(), response_format="srt") == SRT
    assert transcribed(live, recording(), response_format="vtt") == VTT
    verbose = transcribed(live, recording(), response_format="verbose_json", language="en")
    assert (verbose.text, verbose.duration, verbose.language) == (SPOKEN["text"], 2.0, "en")
    assert [(part.id, part.start, part.end, part.text) for part in verbose.segments] == [
        (0, 0.0, 1.25, "Good morning."),
        (1, 1.5, 2.0, "2 < 3"),
    ]
    events = list(transcribed(live, recording(), stream=True))
    assert "".join(event.delta for event in events[:-1]) == events[-1].text == SPOKEN["text"]
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    assert all(call.inputs["audio"].kind == "audio" for call in live.backend.calls)
    assert stored(live) == before  # a recording is deleted when it has been written down


def test_a_transcript_without_times_is_one_subtitle(tmp_path: Path) -> None:
    with live_with(tmp_path, {"automatic-speech-recognition": {"text": "good morning"}}) as live:
        subtitle = transcribed(live, recording(3661.5 / 1000), response_format="srt")
    assert subtitle == "1\n00:00:00,000 --> 00:00:03,662\ngood morning\n\n"


def test_only_recordings_within_the_limits_are_written_down(live: Live) -> None:
    assert transcribed(live, recording(30)).text  # it is no JSON, whatever its bytes look like
    for content, status, said in [
        (recording(32), 400, "memo.wav has 1,024,044 bytes, more than 1,000,000"),
        (recording(36), 413, "more than 1,065,536"),
        (b"good morning", 400, r"(?<!/)memo\.wav is a text file, and an audio file is needed"),
        (b"", 400, "is empty"),
        (b"RIFF\0\0\0\0WAVEfmt ", 400, "memo.wav"),
    ]:
        for stream in (False, True):
            with pytest.raises(openai.APIStatusError, match=said) as caught:
                transcribed(live, content, stream=stream)
            assert caught.value.status_code == status
            assert str(live.agent.settings.output_dir) not in caught.value.response.text
    boundary = "x" * 20
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'.encode()
    parts = (part for part in (head, *[bytes(100_000)] * 20))  # without a Content-Length
    kind = {"content-type": f"multipart/form-data; boundary={boundary}"}
    answer = httpx.post(f"{live.url}/v1/audio/transcriptions", content=parts, headers=kind)
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "invalid_request_error")


@pytest.mark.parametrize("form", ["mp3", "opus", "aac", "flac", "wav", "pcm"])
def test_speech_comes_in_the_format_that_is_asked_for(live: Live, tmp_path: Path, form: Any) -> None:
    before = stored(live)
    speech = live.client.audio.speech.create(
        model="gpt-4o-mini-tts", voice="alloy", input="Good morning.", response_format=form, speed=1.5
    )
    assert speech.response.headers["openai-model"] == "fake/text-to-speech"
    media_type = {"mp3": "audio/mpeg", "opus": "audio/ogg"}.get(form, f"audio/{form}")
    assert speech.response.headers["content-type"] == media_type
    content, file = speech.content, tmp_path / "speech"
    if form == "pcm":
        assert len(content) == pytest.approx(2 * 24_000, rel=0.02)
    else:
        file.write_bytes(content)
        assert probe_audio(file).duration == pytest.approx(1.0, abs=0.1)
    assert stored(live) == before


def test_speech_is_mp3_unless_another_format_is_named(live: Live, tmp_path: Path) -> None:
    create = live.client.audio.speech.with_streaming_response.create
    with create(model="tts-1", voice="alloy", input="Good morning.") as speech:
        speech.stream_to_file(tmp_path / "speech.mp3")
    assert probe_audio(tmp_path / "speech.mp3").sampling_rate == 22_050
    wma: Any = "wma"
    with pytest.raises(openai.BadRequestError, match="response_format: Input should be 'mp3'"):
        live.client.audio.speech.create(
            model="tts-1", voice="alloy", input="Good morning.", response_format=wma
        )


def test_a_missing_package_is_named(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_av(*_: Any) -> None:
        raise MissingExtraError("this format of audio", "local")

    monkeypatch.setattr(openai_tasks, "write_sound", without_av)
    with pytest.raises(openai.NotFoundError, match='needs the extra "local"'):
        live.client.audio.speech.create(model="tts-1", voice="alloy", input="Good morning.")


@pytest.mark.parametrize(
    "text", ["http://127.0.0.1:9/a.txt", "note.txt", "data:text/plain,x", "<resource>-0"]
)
def test_a_text_is_taken_as_it_is_written(live: Live, text: str) -> None:
    name = httpx.post(f"{live.url}/files", files={"file": ("note.txt", b"secret")}).json()["name"]
    for written in (text, name):
        live.client.embeddings.create(model="auto", input=written)
        live.client.audio.speech.create(model="tts-1", voice="alloy", input=written)
        assert [call.inputs["text"] for call in live.backend.calls[-2:]] == [written] * 2


def test_texts_become_vectors_in_both_encodings(live: Live) -> None:
    texts = ["one", "three"]
    reply = live.client.embeddings.create(model="text-embedding-3-small", input=texts)
    assert [one.embedding for one in reply.data] == [[3.0, 0.5, -0.25], [5.0, 0.5, -0.25]]
    assert [one.index for one in reply.data] == [0, 1]
    assert reply.model == "fake/feature-extraction"
    floats = live.client.embeddings.create(model="auto", input="one", encoding_format="float", dimensions=3)
    assert floats.data[0].embedding == [3.0, 0.5, -0.25]
    asked = {"model": "auto", "input": "one"}  # as Open WebUI sends it
    raw, packed = (
        httpx.post(f"{live.url}/v1/embeddings", json=asked | form).json()["data"][0]["embedding"]
        for form in ({}, {"encoding_format": "base64"})
    )
    assert raw == [3.0, 0.5, -0.25] == [*struct.unpack("<3f", base64.b64decode(packed))]
    options: dict[str, Any] = {"base_url": f"{live.url}/v1", "api_key": "any"}
    langchain = OpenAIEmbeddings(**options, check_embedding_ctx_length=False)
    assert langchain.embed_documents(texts) == [[3.0, 0.5, -0.25], [5.0, 0.5, -0.25]]


def test_vectors_of_one_reply_are_all_of_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jarvis_agent.core.concurrency.MAX_PARALLEL", 1)
    agent = JarvisAgent(
        ScriptedLLM({}),
        sources=[FakeSource([fake_candidate("feature-extraction", id=f"a/{name}") for name in "bc"])],
        backends=[FakeBackend({"a/b": ([[[1.0]]], RuntimeError("lost")), "a/c": [[[2.0]]]})],
        settings=Settings(output_dir=tmp_path, selection="rank"),
    )
    with live_server(agent) as live:
        client = live.client
        with pytest.raises(openai.InternalServerError, match=re.escape("['a/b', 'a/c']")):
            client.embeddings.create(model="auto", input=["one", "two"])
        pinned = client.embeddings.create(model="a/c", input=["one", "two"])
    assert (pinned.model, pinned.data[1].embedding) == ("a/c", [2.0])


def test_pictures_come_as_bytes_or_urls(live: Live) -> None:
    reply = live.client.images.generate(model="gpt-image-1", prompt="a red square", n=3, size="512x512")
    assert reply.model == "fake/text-to-image"  # type: ignore[attr-defined]
    for one in reply.data or []:
        picture = Image.open(io.BytesIO(base64.b64decode(one.b64_json or "")))
        assert picture.size == (8, 8)
    for options in ({"model": "dall-e-3"}, {"model": "auto", "response_format": "url"}):
        (one,) = live.client.images.generate(prompt="a red square", **options).data or []
        assert httpx.get(one.url or "").headers["content-type"] == "image/png"
        assert str(live.agent.settings.output_dir) not in (one.url or "")
    assert len({call.settings.seed for call in live.backend.calls}) == 5


def embed(model: str) -> Callable[[openai.OpenAI], Any]:
    return lambda client: client.embeddings.create(model=model, input="one")


NO_MODEL = {
    "a path": (embed("/etc"), "no id of a model on the Hub"),
    "up": (embed("../secret"), "no id of a model on the Hub"),
    "a space": (embed("space:http://127.0.0.1/x"), "no id of a model on the Hub"),
    "a folder": (embed("models/secret"), "the model models/secret, which is pinned"),
    "a revision": (embed("org/name@main"), "there is no model 'org/name@main'; use 'auto', or 'org/name'"),
    "another name": (embed("llama3"), "there is no model 'llama3'"),
    "an unknown id": (embed("org/name"), "the model org/name, which is pinned"),
    "retrieve": (lambda client: client.models.retrieve("org/name"), "there is no model 'org/name'"),
}


@pytest.mark.parametrize("case", NO_MODEL)
def test_a_client_names_models_of_the_hub_alone(
    live: Live, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: str
) -> None:
    (tmp_path / "models" / "secret").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(live.agent.stages.registry.selector, "_sources", [FakeSource([])])
    call, said = NO_MODEL[case]
    with pytest.raises(openai.NotFoundError, match=re.escape(said)) as caught:
        call(live.client)
    assert caught.value.code == "model_not_found"
    assert not live.backend.calls


def test_a_missing_model_is_named(tmp_path: Path) -> None:
    with live_with(tmp_path, {"canny-control": Image.new("L", (8, 8))}) as live:
        for call in (
            embed("auto"),
            lambda client: transcribed(live, recording()),
            lambda client: client.audio.speech.create(model="tts-1", voice="alloy", input="Hello"),
            lambda client: client.images.generate(prompt="a cat"),
        ):
            with pytest.raises(openai.NotFoundError, match=r"no model can do .* here") as caught:
                call(live.client)
            assert caught.value.code == "model_not_found"


BAD: dict[str, tuple[str, dict[str, Any], int, str]] = {
    "tokens": ("embeddings", {"model": "auto", "input": [[1, 2]]}, 400, "input: these are tokens"),
    "no texts": ("embeddings", {"model": "auto", "input": []}, 400, "input: List should have at least 1"),
    "an empty text": ("embeddings", {"model": "auto", "input": "bad"}, 400, "the text is bad"),
    "fewer numbers": ("embeddings", {"model": "auto", "input": "a", "dimensions": 2}, 400, "have 3"),
    "no model": ("embeddings", {"input": "a"}, 400, "model: Field required"),
    "no input": ("audio/speech", {"model": "tts-1", "input": ""}, 400, "input: String should have at least"),
    "a broken model": ("audio/speech", {"model": "tts-1", "input": "broken"}, 500, "it broke"),
    "eleven pictures": ("images/generations", {"prompt": "a", "n": 11}, 400, "n: Input should be less"),
    "a stream": ("images/generations", {"prompt": "a", "stream": True}, 400, "stream: Input should be"),
    "no file": ("audio/transcriptions", {"model": "auto"}, 400, "file: Field required"),
    "edits": ("images/edits", {}, 404, "POST /v1/images/edits"),
    "responses": ("responses", {}, 404, "POST /v1/responses"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_have_openais_form(live: Live, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    def result(call: Call) -> Any:
        problems = {"bad": BadInputError("the text is bad"), "broken": ExpertError("it broke")}
        return problems.get(call.inputs["text"]) or RESULTS["feature-extraction"](call)

    backend = live.agent.stages.registry.backends["fake"]
    assert isinstance(backend, FakeBackend)
    for task in ("feature-extraction", "text-to-speech"):
        monkeypatch.setitem(backend.results, task, result)
    path, body, status, said = BAD[case]
    answer = httpx.post(f"{live.url}/v1/{path}", json=body)
    error = answer.json()["error"]
    assert answer.status_code == status
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    assert said in error["message"]


def test_each_picture_counts_as_a_run(tmp_path: Path) -> None:
    with live_with(tmp_path, RESULTS, runs_per_minute=4) as live:
        live.client.images.generate(prompt="a cat", n=3)
        with pytest.raises(openai.RateLimitError, match="at most 4 runs a minute") as caught:
            live.client.images.generate(prompt="a cat", n=2)
        assert int(caught.value.response.headers["retry-after"]) > 0
        live.client.embeddings.create(model="auto", input=["one", "two"])


def test_the_only_model_says_what_it_takes(live: Live) -> None:
    model: Any = live.client.models.retrieve("jarvis")
    assert ([model], model.object) == (live.client.models.list().data, "model")
    assert set(model.architecture["input_modalities"]) >= {"text", "image", "audio", "file"}


def test_tools_of_the_user_are_the_only_ones(tmp_path: Path) -> None:
    agent = JarvisAgent(ScriptedLLM({}), tools=[], settings=Settings(output_dir=tmp_path))
    with (
        live_server(agent) as live,
        pytest.raises(openai.NotFoundError, match="the agent of this server has no tool for"),
    ):
        embed("auto")(live.client)


def test_open_webui_can_speak_hear_and_draw(live: Live) -> None:
    """Its requests, as its sources send them."""
    voice = {"model": "tts-1", "input": "Good morning.", "voice": "alloy"}
    assert httpx.post(f"{live.url}/v1/audio/speech", json=voice).headers["content-type"] == "audio/mpeg"
    sent = {"files": {"file": ("5a.wav", recording())}, "data": {"model": "whisper-1", "language": "en"}}
    heard = httpx.post(f"{live.url}/v1/audio/transcriptions", **sent)
    assert heard.json()["text"] == SPOKEN["text"]
    asked = {"model": "dall-e-2", "prompt": "a cat", "n": 1, "size": "512x512", "response_format": "b64_json"}
    drawn = httpx.post(f"{live.url}/v1/images/generations", json=asked).json()["data"]
    assert base64.b64decode(drawn[0]["b64_json"]).startswith(b"\x89PNG")


@pytest.mark.starter
def test_starter_models_speak_and_write_down_what_they_said(tmp_path: Path) -> None:
    agent = JarvisAgent(None, settings=Settings(output_dir=tmp_path, model="none", offline=True))
    with live_server(agent) as live:
        said = live.client.audio.speech.create(model="tts-1", voice="alloy", input="Good morning.").content
        assert transcribed(live, said, model="Systran/faster-whisper-tiny.en").text == "Good morning."
        assert len(live.client.embeddings.create(model="auto", input="Hello").data[0].embedding) == 384
