"""Inference endpoints with handlers of their own: what is read in their replies, and what they are sent."""

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from hosting import B64_IMAGE, LABELS, call_of, png, run, wav
from PIL import Image

from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import UnsupportedError
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.testing import HubDouble

B64_SOUND = base64.b64encode(wav()).decode()
CAPTION, SUMMARY, SAID = {"generated_text": "a cat"}, {"summary_text": "a cat"}, {"text": "a cat"}
TEXT, LISTEN, ASK = "summarization", "automatic-speech-recognition", "visual-question-answering"


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
