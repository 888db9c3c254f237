"""Inference endpoints with handlers of their own: what is read in their replies, and what they are sent."""

import base64
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hosting import B64_IMAGE, LABELS, call_of, png, run, wav
from PIL import Image

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.hosted import inference_providers
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.tasks.spec import TaskSpec
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.media.recordings import write_video
from jarvis_agent.testing import HubDouble

B64_SOUND = base64.b64encode(wav()).decode()
CAPTION, SUMMARY, SAID = {"generated_text": "a cat"}, {"summary_text": "a cat"}, {"text": "a cat"}
MESSAGE = {"role": "assistant", "content": "a cat"}
VECTOR = [0.5, 0.25]
TEXT, LISTEN, ASK = "summarization", "automatic-speech-recognition", "visual-question-answering"


def written(folder: Path) -> set[Path]:
    """The files that calls have left in a folder."""
    return {*folder.glob("out-*")}


def ask(hub: HubDouble, tmp_path: Path, task: str, reply: Any, **inputs: Any) -> Any:
    hub.answer("/mine", body=reply, times=1)
    model = Candidate(id="mine", task=task, metadata={"url": f"{hub.url}/mine"})
    return call_of(task, tmp_path, model, **(inputs or {"text": "hi"}))


@pytest.mark.parametrize(
    ("task", "reply", "output"),
    [
        *(
            (TEXT, reply, SUMMARY)
            for reply in (CAPTION, [CAPTION], [[CAPTION]], "a cat", ["a cat"], b"a cat")
        ),
        (TEXT, {"result": "a cat", "seconds": 0.5}, SUMMARY),
        (TEXT, {"summary_text": None, "generated_text": "a cat"}, SUMMARY),
        *(
            (TEXT, reply, SUMMARY)
            for reply in (
                {"generated_text": "a cat", "error": None},
                {"success": True, "data": {"caption": "a cat"}},
                {"predictions": ["a cat"]},
                {"content": "a cat", "model": "m.gguf", "stop": True},  # llama.cpp
                {"model": "m", "message": MESSAGE, "done": True},  # Ollama
                {"object": "chat.completion", "choices": [{"index": 0, "message": MESSAGE}]},
                [{"generated_text": [{"role": "user", "content": "hi"}, MESSAGE]}],
                b'\xef\xbb\xbf[{"summary_text": "a cat"}]',
            )
        ),
        (TEXT, {"message": {"content": '["x"]'}}, {"summary_text": '["x"]'}),
        (TEXT, b"Data: five rows", {"summary_text": "Data: five rows"}),
        (TEXT, [CAPTION, {"generated_text": "a dog"}], SUMMARY),
        ("token-classification", [], []),
        ("token-classification", {"entities": []}, []),
        *(
            ("feature-extraction", reply, VECTOR)
            for reply in (
                [VECTOR],
                {"embeddings": [VECTOR]},
                {"data": [{"embedding": VECTOR, "index": 0}], "usage": {"total_tokens": 2}},  # OpenAI
                [{"index": 0, "embedding": [VECTOR]}],  # llama.cpp
            )
        ),
        ("text-classification", {"predictions": LABELS}, LABELS),
        (
            "text-classification",
            [{"sequence": "hi", "labels": ["cat", "dog"], "scores": [0.75, 0.25]}],
            LABELS,
        ),
        ("text-generation", CAPTION, CAPTION),
        ("text-classification", [[LABELS]], LABELS),
        ("text-classification", LABELS[0], LABELS[:1]),
    ],
)
async def test_texts_and_labels_are_read_in_any_wrapping(
    hub: HubDouble, tmp_path: Path, task: str, reply: Any, output: Any
) -> None:
    if task == "text-generation":  # no chat API
        hub.answer("/mine/v1/chat/completions", status=404)
    call = ask(hub, tmp_path, task, reply)
    assert adapt(call.spec, await run(call), call)[0] == output


@pytest.mark.parametrize(
    "reply",
    [
        {"image": B64_IMAGE},
        [{"image": f"data:image/png;base64,{B64_IMAGE}"}],
        {"data": [{"b64_json": B64_IMAGE}], "created": 7},
        B64_IMAGE.rstrip("="),
        B64_IMAGE.encode(),
        png(),
    ],
)
async def test_pictures_are_read_in_base64_too(hub: HubDouble, tmp_path: Path, reply: Any) -> None:
    assert (await run(ask(hub, tmp_path, "text-to-image", reply))).size == (4, 3)


async def test_the_first_of_several_pictures_is_taken_with_a_note(hub: HubDouble, tmp_path: Path) -> None:
    other = base64.b64encode(png((9, 9))).decode()
    call = ask(hub, tmp_path, "text-to-image", {"images": [B64_IMAGE, other]})
    assert (await run(call)).size == (4, 3)
    assert call.notes == ["the first of 2 results of mine was taken"]


async def test_sounds_are_read_in_base64_too(hub: HubDouble, tmp_path: Path) -> None:
    raw = await run(ask(hub, tmp_path, "text-to-speech", {"audio": B64_SOUND, "sampling_rate": 8000}))
    assert (raw["audio"].shape, raw["sampling_rate"]) == ((800,), 8000)


@pytest.mark.parametrize(
    ("task", "reply", "message"),
    [
        ("text-to-image", CAPTION, "generated_text"),
        ("text-to-image", b"<!DOCTYPE html><p>log in", "str '<!DOCTYPE html>"),
        ("text-to-image", b"", "str ''"),
        (TEXT, b"<html>log in</html>", "str '<html>"),
        (TEXT, png(), "bytes b'"),
        (TEXT, b"\x81\xacsummary_text\xa5hello", "bytes b'"),  # MessagePack
        (TEXT, b'[{"summary_text": "a c', "str '"),  # the connection broke off
        (TEXT, b'data: {"token": {"text": "a"}}', "str 'data:"),
        (TEXT, {"detail": "Not found"}, "Not found"),
        (TEXT, {"errors": ["too long"]}, "too long"),
        (TEXT, {"model": "m", "outputs": [{"name": "text", "data": ["a", "b"]}]}, "dict"),
        (TEXT, b"true", "bool True"),
        (TEXT, b"<?xml version='1.0'?><r>a cat</r>", "str"),
        ("feature-extraction", {"indices": [1, 5], "values": VECTOR}, "indices"),
        ("text-classification", b'[{"label": "cat", "score": 0.5}, {"label": "dog", "score": NaN}]', "nan"),
        ("token-classification", {"result": {"persons": ["Ada"]}, "warnings": []}, "persons"),
        ("token-classification", {"status": "loading", "warnings": []}, "loading"),
        (TEXT, {"error": "the model is broken"}, "the model is broken"),
        (TEXT, b"null", "NoneType None"),
        ("text-to-speech", {"audio": "none"}, "audio"),
    ],
)
async def test_a_reply_without_a_meaning_is_named_and_not_asked_for_again(
    hub: HubDouble, tmp_path: Path, task: str, reply: Any, message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        await run(ask(hub, tmp_path, task, reply))
    assert len(hub.requests) == 1


@pytest.mark.parametrize(
    "body",
    [text.encode("latin-1") for text in ("un café noir", '{"summary_text": "un café noir"}')]
    + [text.encode("utf-16") for text in ("un café noir", '[{"summary_text": "un café noir"}]')],
)
async def test_texts_in_other_encodings_are_read(hub: HubDouble, tmp_path: Path, body: bytes) -> None:
    call = ask(hub, tmp_path, TEXT, body)
    assert adapt(call.spec, await run(call), call)[0] == {"summary_text": "un café noir"}
    assert call.notes == ["the encoding Windows-1252 was assumed"] * (b"\xe9 " in body)


async def test_masks_may_be_data_urls_and_only_files_of_what_is_read_stay(
    hub: HubDouble, tmp_path: Path
) -> None:
    (tmp_path / "cat.png").write_bytes(png())
    segment = {"label": "cat", "score": 0.5, "mask": f"data:image/png;base64,{B64_IMAGE}"}
    image = Resource(kind="image", path=tmp_path / "cat.png", mime="image/png")
    for reply in ([segment], {"predictions": [segment]}, [{**segment, "mask": B64_IMAGE}]):
        call = ask(hub, tmp_path, "image-segmentation", reply, image=image)
        _, resources = adapt(call.spec, await run(call), call)
        paths = {resource.path for resource in resources if resource.path}
        assert paths == written(tmp_path)
        for path in paths:
            path.unlink()


async def test_the_files_of_further_videos_are_removed(hub: HubDouble, tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    write_video(film, [Image.new("RGB", (16, 16))] * 3, 5)
    content = base64.b64encode(film.read_bytes()).decode()
    call = ask(hub, tmp_path, "text-to-video", {"videos": [content, content]})
    assert {Path((await run(call))["path"])} == written(tmp_path)


async def test_pictures_are_sent_upright_and_files_with_their_type(hub: HubDouble, tmp_path: Path) -> None:
    exif = Image.Exif()
    for name, turn in (("turned.jpg", 6), ("upright.jpg", 1)):
        exif[0x0112] = turn
        Image.new("RGB", (8, 6), "red").save(tmp_path / name, exif=exif)
        image = Resource(kind="image", path=tmp_path / name, mime="image/jpeg")
        await run(ask(hub, tmp_path, "image-to-text", CAPTION, image=image))
    turned, upright = hub.requests
    assert Image.open(io.BytesIO(turned.body)).size == (6, 8)
    assert upright.body == (tmp_path / "upright.jpg").read_bytes()
    (tmp_path / "voice").write_bytes(wav())
    voice = Resource(kind="audio", path=tmp_path / "voice", mime="audio/wav")
    await run(ask(hub, tmp_path, LISTEN, SAID, audio=voice))
    assert [one.headers["content-type"] for one in hub.requests] == ["image/jpeg", "image/jpeg", "audio/wav"]


async def test_it_is_told_what_a_text_was_taken_from(hub: HubDouble, tmp_path: Path) -> None:
    call = ask(hub, tmp_path, TEXT, {"status": "loading"})
    assert await run(call) == "loading"
    assert call.notes == ["the text was taken from dict {'status': 'loading'}"]


async def test_all_parts_of_a_transcript_are_read(hub: HubDouble, tmp_path: Path) -> None:
    (tmp_path / "voice").write_bytes(wav())
    voice = Resource(kind="audio", path=tmp_path / "voice", mime="audio/wav")
    parts = [{"start": 0.0, "end": 1.0, "text": "a cat"}, {"start": 1.0, "end": 2.0, "text": " sat"}]
    call = ask(hub, tmp_path, LISTEN, parts, audio=voice)
    assert adapt(call.spec, await run(call), call)[0] == {"text": "a cat\nsat"}


async def test_what_a_thread_writes_after_the_attempt_is_removed(
    hub: HubDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[str]()

    def write_late(spec: TaskSpec, raw: Any, call: Call) -> None:
        call.new_path(".png").write_bytes(b"late")
        steps.append("written")

    monkeypatch.setattr(inference_providers, "adapt", write_late)
    await run(replace(ask(hub, tmp_path, TEXT, CAPTION), cleanup=lambda: steps.append("cleaned")))
    assert steps[-2:] == ["written", "cleaned"]


async def test_samples_are_read_as_numbers_too(hub: HubDouble, tmp_path: Path) -> None:
    """The form of transformers' pipelines."""
    call = ask(hub, tmp_path, "text-to-speech", [{"audio": [[0.0, 0.5] * 400], "sampling_rate": 8000}])
    assert adapt(call.spec, await run(call), call)[0]["duration"] == 0.1


@pytest.mark.parametrize("reply", [b"mp4", {"video": base64.b64encode(b"mp4").decode()}])
async def test_videos_are_read(hub: HubDouble, tmp_path: Path, reply: Any) -> None:
    film = tmp_path / "film.mp4"
    write_video(film, [Image.new("RGB", (16, 16))] * 3, 5)
    content = film.read_bytes()
    reply = content if reply == b"mp4" else {"video": base64.b64encode(content).decode()}
    call = ask(hub, tmp_path, "text-to-video", reply)
    assert adapt(call.spec, await run(call), call)[0]["frames"] == 3
    assert hub.requests[0].json["inputs"] == "hi"


@pytest.mark.parametrize(
    ("task", "kind", "reply"),
    [
        ("audio-to-audio", "audio", {"path": "PLACE"}),
        ("image-segmentation", "image", [{"label": "cat", "score": 0.5, "mask": "PLACE"}]),
    ],
)
async def test_a_reply_names_no_file_of_this_machine(
    hub: HubDouble, tmp_path: Path, task: str, kind: str, reply: Any
) -> None:
    path = tmp_path / "own"
    path.write_bytes(png() if kind == "image" else wav())
    reply = json.dumps(reply).replace("PLACE", str(path)).encode()
    file = Resource(kind=kind, path=path, mime="image/png")
    with pytest.raises(UnsupportedError, match="cannot be read from its answer"):
        await run(ask(hub, tmp_path, task, reply, **{kind: file}))


@pytest.mark.parametrize(
    "body",
    [
        {"error": "it is too long", "error_type": "validation"},
        {"error": {"message": "it is too long", "code": 400}},
        {"object": "error", "message": "it is too long", "code": 400},
        {"detail": "it is too long"},
        {"detail": [{"loc": ["body", "inputs"], "msg": "it is too long"}]},
    ],
)
async def test_the_words_of_a_refusal_are_told(hub: HubDouble, tmp_path: Path, body: Any) -> None:
    hub.answer("/mine", status=422, body=body)
    model = Candidate(id="mine", task=TEXT, metadata={"url": f"{hub.url}/mine"})
    with pytest.raises(UnsupportedError, match=r"answered 422: .*it is too long"):
        await run(call_of(TEXT, tmp_path, model, text="hi"))
