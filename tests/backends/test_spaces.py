"""Gradio Spaces as experts, against a double of Gradio's protocol."""

import asyncio
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from doubles.gradio_space import SpaceDouble
from libraries import needs
from PIL import Image
from waiting import until

from jarvis_agent import Settings
from jarvis_agent.backends.base import Backend, Call
from jarvis_agent.backends.hosted.gradio_spaces import SpacesBackend
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.core.errors import LLMError, TransientError, UnsupportedError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.llm.client import LLMClient
from jarvis_agent.media.recordings import write_audio
from jarvis_agent.testing import HubDouble, ScriptedLLM

needs("gradio_client")

SETTINGS = Settings(offline=False, task_timeout=25, max_file_bytes=1_000_000)


@pytest.fixture
def space() -> Iterator[SpaceDouble]:
    with SpaceDouble() as double:
        yield double


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "cat.png"
    Image.new("RGB", (8, 6), "red").save(path)
    return path


def call_of(task: str, space: str, tmp_path: Path, given: dict[str, Any], **metadata: Any) -> Call:
    candidate = Candidate(
        id="org/space", task=task, backend="spaces", local=True, metadata={"space": space, **metadata}
    )
    return Call(TASKS[task], candidate, given, lambda suffix: tmp_path / f"made{suffix}", SETTINGS)


def hello(space: str, tmp_path: Path) -> Call:
    """A call that generates text."""
    return call_of("text-generation", space, tmp_path, {"text": "hi"})


async def run(call: Call) -> Any:
    return await SpacesBackend(SETTINGS).run(call)


async def test_components_become_what_the_adapters_take(
    space: SpaceDouble, tmp_path: Path, picture: Path
) -> None:
    """An image and a number, a text about a file, labels, sound and a video."""
    image = Resource(kind="image", path=picture)
    sent = await asyncio.to_thread(picture.read_bytes)
    label = {"label": "cat", "confidences": [{"label": "cat", "confidence": 0.75}]}
    write_audio(tmp_path / "said.wav", [0.0] * 800, 8_000)
    (tmp_path / "v.mp4").write_bytes(b"mp4 data")
    text = {"text": "Textbox"}
    space.add("/draw", {"prompt": "Textbox", "seed": "Slider"}, ["Image", "Number"], lambda **_: (picture, 7))
    space.add("/see", {"input_img": "Image", "q": "Textbox"}, ["Textbox"], lambda **_: "a cat")
    space.add("/sort", text, ["Label"], lambda text: label)
    space.add("/speak", text, ["Audio"], lambda text: tmp_path / "said.wav")
    space.add("/film", text, ["Video"], lambda text: tmp_path / "v.mp4")

    async def result(task: str, endpoint: str, given: dict[str, Any], **metadata: Any) -> Any:
        return await run(call_of(task, space.url, tmp_path, given, api_name=endpoint, **metadata))

    prompt = {"inputs": {"prompt": "text"}, "options": {"seed": 7}}
    drawn = await result("text-to-image", "/draw", {"text": "a cat"}, **prompt)
    assert (drawn.size, drawn.getpixel((0, 0))) == ((8, 6), (255, 0, 0))
    given, named = {"text": "What?", "image": image}, {"input_img": "image", "q": "text"}
    seen = await result("visual-question-answering", "/see", given, inputs=named)
    assert seen == "a cat"
    sorted_ = await result("text-classification", "/sort", {"text": "meow"})
    assert sorted_ == [{"label": "cat", "score": 0.75}]
    spoken = await result("text-to-speech", "/speak", {"text": "hi"})
    assert spoken == str(tmp_path / "made.wav")
    film = await result("text-to-video", "/film", {"text": "waves"})
    assert film == str(tmp_path / "made.mp4")
    assert (tmp_path / "made.mp4").read_bytes() == b"mp4 data"
    assert space.calls[:2] == [
        ("/draw", {"prompt": "a cat", "seed": 7}),
        ("/see", {"input_img": sent, "q": "What?"}),
    ]


async def test_the_value_of_the_tasks_kind_is_taken(
    space: SpaceDouble, tmp_path: Path, picture: Path, subtests: pytest.Subtests
) -> None:
    """Others stand before it: a seed, an update of the page, nothing."""
    hidden, chat = {"__type__": "update", "visible": False}, {"role": "assistant", "content": "the reply"}
    draw, write = "text-to-image", "text-generation"
    named = [{"token": "Ada", "class_or_confidence": "PER"}, {"token": " did", "class_or_confidence": None}]
    entity = {"word": "Ada", "entity_group": "PER", "score": None, "start": 0, "end": 3}
    box = {"label": "cat", "score": 0.5, "box": {"xmin": 0, "ymin": 0, "xmax": 3, "ymax": 3}}
    rows: list[tuple[str, list[str], Any, Any]] = [
        (draw, ["Number", "Image"], (7, picture), None),
        (draw, ["Textbox", "Image"], (hidden, picture), None),
        (draw, ["Textbox", "Image"], (None, picture), None),
        (write, ["Number", "Textbox"], (None, "hello"), "hello"),
        (write, ["JSON"], {"__type__": "update", "value": "hello"}, "hello"),
        (write, ["JSON"], {"caption": "hello", "score": 0.9}, "hello"),
        (write, ["JSON"], [{"role": "user", "content": "hi"}, chat], "the reply"),
        (write, ["JSON"], [chat | {"content": [{"type": "text", "text": "the reply"}]}], "the reply"),
        (write, ["Number"], 7, "7"),
        (draw, ["Number", "Gallery"], (7, [{"image": picture, "caption": "red"}] * 2), None),
        (draw, ["JSON", "Gallery"], (None, {"__type__": "update", "value": [{"image": picture}]}), None),
        ("object-detection", ["Image", "JSON"], (picture, [box]), [box]),
        ("token-classification", ["JSON"], named, [entity]),
    ]
    for number, (task, kinds, returned, expected) in enumerate(rows):
        space.add(f"/f{number}", {"text": "Textbox"}, kinds, lambda text, value=returned: value)
        with subtests.test(task, returned=returned):
            raw = await run(call_of(task, space.url, tmp_path, {"text": "hi"}, api_name=f"/f{number}"))
            if kinds[-1] == "Gallery":
                raw = raw[0]["image"]
            assert getattr(raw, "size", raw) == (expected or (8, 6))
    space.add("/none", {"text": "Textbox"}, ["Image"], lambda text: None)
    with pytest.raises(UnsupportedError, match="returned nothing"):
        await run(call_of(draw, space.url, tmp_path, {"text": "hi"}, api_name="/none"))


async def test_all_pictures_of_a_gallery_are_kept_and_other_values_are_named(
    space: SpaceDouble, tmp_path: Path, picture: Path
) -> None:
    pictures = [{"image": picture, "caption": None}] * 3
    space.add("/f", {"text": "Textbox"}, ["Gallery", "Number", "File"], lambda text: (pictures, 7, picture))
    call = call_of("text-to-image", space.url, tmp_path, {"text": "hi"})
    names = iter("abc")
    call = replace(call, new_path=lambda suffix: tmp_path / f"{next(names)}{suffix}")
    output, resources = adapt(call.spec, await run(call), call)
    assert [one.path.name for one in resources if one.path] == ["a.png", "b.png", "c.png"]
    assert output == {"path": str(tmp_path / "a.png"), "width": 8, "height": 6}
    assert call.notes == ["the Space returned besides: Number: 7; File: a file"]


async def test_a_space_gets_the_seed_of_the_task(space: SpaceDouble, tmp_path: Path, picture: Path) -> None:
    takes = {"text": "Textbox", "seed": "Slider", "randomize_seed": "Checkbox"}
    space.add("/draw", takes, ["Image"], lambda **_: picture)
    call = call_of("text-to-image", space.url, tmp_path, {"text": "a cat"})
    for seed in (3, 4):
        await run(replace(call, settings=SETTINGS.model_copy(update={"seed": seed})))
    sent = [(values["seed"], values["randomize_seed"]) for _, values in space.calls]
    assert sent == [(3, False), (4, False)]


async def test_a_list_stays_a_list_unless_a_text_is_wanted(space: SpaceDouble, tmp_path: Path) -> None:
    label = {"label": "cat", "confidences": []}
    takes = {"text": "Textbox", "labels": "CheckboxGroup"}
    space.add("/list", takes, ["Label"], lambda **_: label)
    space.add("/text", takes | {"labels": "Textbox"}, ["Label"], lambda **_: label)
    given = {"text": "meow", "labels": ["cat", "dog"]}
    for name in ("/list", "/text"):
        await run(call_of("zero-shot-classification", space.url, tmp_path, given, api_name=name))
    assert [values["labels"] for _, values in space.calls] == [["cat", "dog"], "cat, dog"]


FILLED = {"prompt": "<text>, in ink", "pic": "<image>", "tags": ["new", "<text>"], "steps": 4, "mask": None}


def own_model(*replies: Any) -> tuple[SpacesBackend, ScriptedLLM]:
    """A backend with a language model that fills parameters."""
    backend, llm = SpacesBackend(SETTINGS), ScriptedLLM({"expert": [json.dumps(one) for one in replies]})
    backend.own = LLMClient(llm, SETTINGS)
    return backend, llm


async def test_the_language_model_fills_parameters_of_other_names(
    space: SpaceDouble, tmp_path: Path, picture: Path
) -> None:
    """A reply with an unknown parameter, a wrong file or a lost input goes back to it with the reason."""
    takes = {"prompt": "Textbox", "pic": "Image", "tags": "CheckboxGroup", "steps": "Number", "mask": "Image"}
    space.add("/edit", takes, ["Image"], lambda **_: picture)
    given = {"text": "a cat", "image": Resource(kind="image", path=picture)}
    call = call_of("image-text-to-image", space.url, tmp_path, given, options={"steps": 9})
    filled = {name: value for name, value in FILLED.items() if name != "steps"}
    for wrong, problem in [
        (FILLED, "'steps' was unexpected"),
        (filled | {"pic": "/etc/passwd"}, "'/etc/passwd' is not valid"),
        (filled | {"pic": None}, '"<image>" is missing'),
        ([], "is not of type 'object'"),
    ]:
        backend, llm = own_model(wrong, filled)
        assert (await backend.run(call)).size == (8, 6)
        assert problem in llm.calls[1].prompt
        sent = await asyncio.to_thread(picture.read_bytes)
        values = {"prompt": "a cat, in ink", "pic": sent, "tags": ["new", "a cat"], "mask": None, "steps": 9}
        assert space.calls[-1] == ("/edit", values)
    assert '"<image>": "image: cat.png"' in llm.calls[0].prompt
    backend, _ = own_model([], [])
    with pytest.raises(LLMError, match="no JSON that fits"):
        await backend.run(call)
    assert len(space.calls) == 4


async def test_a_seed_that_the_language_model_fills_in_stays(
    space: SpaceDouble, tmp_path: Path, picture: Path
) -> None:
    takes = {"prompt": "Textbox", "pic": "Image", "seed": "Number", "randomize_seed": "Checkbox"}
    space.add("/edit", takes, ["Image"], lambda **_: picture)
    given = {"text": "a cat with seed 42", "image": Resource(kind="image", path=picture)}
    backend, _ = own_model({"prompt": "<text>", "pic": "<image>", "seed": 42, "randomize_seed": False})
    await backend.run(call_of("image-text-to-image", space.url, tmp_path, given))
    assert [(values["seed"], values["randomize_seed"]) for _, values in space.calls] == [(42, False)]


async def test_only_inputs_are_sent_as_files(space: SpaceDouble, tmp_path: Path, picture: Path) -> None:
    """What a language model or a plan writes might describe any file of this machine."""
    space.add("/f", {"prompt": "Textbox", "more": "JSON"}, ["Textbox"], lambda **_: "hello")
    hidden = {"path": str(picture), "meta": {"_type": "gradio.FileData"}}
    backend, _ = own_model({"prompt": "<text>", "more": {"deep": [hidden]}})
    with pytest.raises(UnsupportedError, match="no input of the task"):
        await backend.run(hello(space.url, tmp_path))
    given, inputs = {"text": "hi", "more": hidden}, {"prompt": "text", "more": "more"}
    with pytest.raises(UnsupportedError, match="no input of the task"):
        await backend.run(call_of("text-generation", space.url, tmp_path, given, inputs=inputs))
    space.add(
        "/f",
        {"prompt": "Textbox", "more": "JSON"},
        ["Textbox"],
        lambda **_: "hello",
        more={**hidden, "url": "/x"},
    )
    backend, _ = own_model({"prompt": "<text>"})
    with pytest.raises(UnsupportedError, match="a default of the Space"):
        await backend.run(hello(space.url, tmp_path))
    assert space.files == {}


async def test_a_message_has_a_text_and_files(space: SpaceDouble, tmp_path: Path, picture: Path) -> None:
    """Its form is that of Gradio's MultimodalTextbox; `options` are sent as they are."""
    space.add("/chat", {"message": "Multimodaltextbox"}, ["Textbox"], lambda **_: "a cat")
    image = Resource(kind="image", path=picture)
    sent = await asyncio.to_thread(picture.read_bytes)
    given = {"text": "What?", "image": image}
    hello = {"text": "hello", "files": []}
    rows: list[tuple[dict[str, Any], dict[str, Any], Any]] = [
        (given, {"inputs": {"message": ["text", "image"]}}, {"text": "What?", "files": [sent]}),
        ({"image": [image, image]}, {"inputs": {"message": "image"}}, {"text": "", "files": [sent, sent]}),
        ({"text": "What?"}, {"inputs": {"message": "text"}}, {"text": "What?", "files": []}),
        ({}, {"options": {"message": hello}}, hello),
    ]
    for given, metadata, expected in rows:
        await run(call_of("visual-question-answering", space.url, tmp_path, given, **metadata))
        assert space.calls[-1] == ("/chat", {"message": expected})


async def test_the_language_model_writes_a_message_with_files(
    space: SpaceDouble, tmp_path: Path, picture: Path
) -> None:
    space.add(
        "/chat",
        {"message": "Multimodaltextbox", "more": "Multimodaltextbox"},
        ["Textbox"],
        lambda **_: "a cat",
    )
    given = {"text": "What?", "image": Resource(kind="image", path=picture)}
    written = {"message": {"text": "<text>", "files": ["<image>"]}, "more": None}
    backend, _ = own_model(written)
    await backend.run(call_of("visual-question-answering", space.url, tmp_path, given))
    sent = await asyncio.to_thread(picture.read_bytes)
    assert space.calls == [("/chat", {"message": {"text": "What?", "files": [sent]}, "more": None})]


async def test_inputs_stand_in_objects_too(space: SpaceDouble, tmp_path: Path) -> None:
    space.add("/f", {"message": "JSON"}, ["Textbox"], lambda **_: "hello")
    backend, _ = own_model({"message": {"text": "<text>"}})
    await backend.run(hello(space.url, tmp_path))
    assert space.calls == [("/f", {"message": {"text": "hi"}})]


async def test_an_input_is_not_read_as_another(space: SpaceDouble, tmp_path: Path) -> None:
    space.add("/f", {"prompt": "Textbox"}, ["Textbox"], lambda **_: "hello")
    backend, _ = own_model({"prompt": "<text> in <tgt_lang>"})
    given = {"text": "Say <tgt_lang>", "tgt_lang": "<text>"}
    await backend.run(call_of("translation", space.url, tmp_path, given))
    assert space.calls == [("/f", {"prompt": "Say <tgt_lang> in <text>"})]


async def test_the_language_model_is_not_asked_where_names_fit(space: SpaceDouble, tmp_path: Path) -> None:
    space.add("/say", {"text": "Textbox"}, ["Textbox"], lambda text: text)
    backend, llm = own_model()
    assert await backend.run(hello(space.url, tmp_path)) == "hi"
    with pytest.raises(UnsupportedError, match="takes text"):
        await backend.run(
            call_of("text-generation", space.url, tmp_path, {"text": "hi"}, inputs={"prompt": "text"})
        )
    assert llm.calls == []


async def test_a_space_gets_pictures_upright(space: SpaceDouble, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (8, 6)).save(tmp_path / "turned.jpg", exif=exif)
    space.add("/see", {"image": "Image"}, ["Textbox"], lambda image: "a cat")
    given = {"image": Resource(kind="image", path=tmp_path / "turned.jpg", mime="image/jpeg")}
    await run(call_of("image-to-text", space.url, tmp_path, given))
    assert Image.open(io.BytesIO(space.calls[0][1]["image"])).size == (6, 8)


async def test_an_answer_may_only_name_files_that_were_sent(
    space: SpaceDouble, tmp_path: Path, picture: Path
) -> None:
    found = [{"mask": str(picture), "label": "cat", "score": 1.0}]
    space.add("/find", {"image": "Image"}, ["JSON"], lambda image: found)
    given = {"image": Resource(kind="image", path=picture)}
    with pytest.raises(UnsupportedError, match="names a file that it did not send"):
        await run(call_of("image-segmentation", space.url, tmp_path, given))
    space.add("/cut", {"image": "Image"}, ["Gallery"], lambda image: picture)
    cut = await run(call_of("image-to-image", space.url, tmp_path, given, api_name="cut"))
    assert cut.size == (8, 6)


async def test_files_of_a_space_are_fetched_within_limits_and_from_no_private_address(
    space: SpaceDouble, tmp_path: Path, picture: Path, subtests: pytest.Subtests
) -> None:
    """The Space itself may be on this machine; the user named it."""
    meta = {"meta": {"_type": "gradio.FileData"}}
    with SpaceDouble() as other:
        stream = {"path": "x.png", "url": f"{other.url}/file=x.png", "is_stream": True}
        large = tmp_path / "large.png"
        large.write_bytes(b"x" * (SETTINGS.max_file_bytes + 1))
        rows = [
            (stream | meta, "private address"),
            ([{"image": stream, "caption": None}], "private address"),
            ({"path": "redirected"} | meta, "private address"),
            (large, "larger than"),
            ({"path": "missing.png"} | meta, "404"),
        ]
        space.redirects["redirected"] = other.url
        for number, (returned, message) in enumerate(rows):
            space.add(f"/f{number}", {"text": "Textbox"}, ["Image"], lambda text, value=returned: value)
            with subtests.test(message), pytest.raises(UnsupportedError, match=message):
                await run(
                    call_of("text-to-image", space.url, tmp_path, {"text": "hi"}, api_name=f"/f{number}")
                )
        own = {"path": space._stored("a.png", await asyncio.to_thread(picture.read_bytes)), "is_stream": True}
        own["url"] = f"/gradio_api/file={own['path']}"
        space.add("/own", {"text": "Textbox"}, ["Image"], lambda text: own | meta)
        drawn = await run(call_of("text-to-image", space.url, tmp_path, {"text": "hi"}, api_name="/own"))
        assert drawn.size == (8, 6)
        assert other.headers == []


async def test_a_space_cannot_have_inputs_sent_to_another_server(space: SpaceDouble, tmp_path: Path) -> None:
    space.add("/say", {"text": "Textbox"}, ["Textbox"], lambda text: "hello")
    with SpaceDouble() as other:
        space.prefix = f"{other.url}/gradio_api"
        with pytest.raises(UnsupportedError, match="another server"):
            await run(hello(space.url, tmp_path))
        assert other.headers == []


async def test_endpoints_that_do_not_fit_are_explained(
    tmp_path: Path, picture: Path, subtests: pytest.Subtests
) -> None:
    def fail(text: str) -> Any:
        raise ValueError("no GPU is left")

    (tmp_path / "no.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    text = {"text": "Textbox"}
    rows: list[tuple[dict[str, str], Any, dict[str, Any], str]] = [
        ({"n": "Number", "m": "Number"}, None, {}, "/f takes n, m.*`text` is not a valid"),
        (text, None, {"api_name": "/g"}, "no endpoint /g; api_name may be /f"),
        (text, None, {"options": {"z": 1}}, "/f takes text.*`z` is not a valid"),
        (text, fail, {}, "no GPU is left"),
        (text, lambda text: tmp_path / "no.png", {}, "sent a file that cannot be read"),
    ]
    for takes, work, metadata, message in rows:
        with subtests.test(message), SpaceDouble() as space:
            space.add("/f", takes, ["Image"], work)
            with pytest.raises(UnsupportedError, match=message):
                await run(call_of("text-to-image", space.url, tmp_path, {"text": "a cat"}, **metadata))


@pytest.mark.parametrize(("stage", "kind"), [("BUILDING", TransientError), ("PAUSED", UnsupportedError)])
async def test_an_unavailable_space_is_explained(tmp_path: Path, stage: str, kind: type[Exception]) -> None:
    with HubDouble() as other, pytest.raises(TransientError, match="is not ready"):
        await run(hello(other.url, tmp_path))
    with HubDouble() as hub, hub.redirected():
        hub.answer("/api/spaces/", body={"id": "a/b", "host": hub.url, "runtime": {"stage": stage}})
        with pytest.raises(kind, match=stage):
            await run(hello("a/b", tmp_path))


async def test_a_space_that_does_not_answer_is_cancelled(space: SpaceDouble, tmp_path: Path) -> None:
    space.add("/f", {"text": "Textbox"}, ["Textbox"], lambda text: text)
    space.silent = True
    backend = SpacesBackend(SETTINGS.model_copy(update={"task_timeout": 1.0}))
    with pytest.raises(TransientError, match="did not answer within"):
        await backend.run(hello(space.url, tmp_path))
    await until(lambda: space.cancelled)
    assert space.cancelled == ["event-0"]


@pytest.mark.parametrize(("where", "sent"), [("own server", False), ("public", False), ("private", True)])
async def test_only_a_private_space_of_the_hub_is_sent_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, sent: bool
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    backend = SpacesBackend(Settings(hf_token="hf_secret", offline=False, task_timeout=25))
    with SpaceDouble() as space, HubDouble() as hub, hub.redirected():
        space.add("/f", {"text": "Textbox"}, ["Textbox"], lambda text: text)
        about = {"id": "org/space", "host": space.url, "private": where == "private", "sdk": "gradio"}
        hub.answer("/api/spaces/org/space", body={**about, "runtime": {"stage": "RUNNING"}})
        name = space.url if where == "own server" else "org/space"
        assert await backend.run(hello(name, tmp_path)) == "hi"
        assert ("hf_secret" in str(space.headers)) is sent


def test_why_a_model_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, online = TASKS["text-to-image"], SpacesBackend(Settings(offline=False))
    named = Candidate(id="a/b", task=spec.name, metadata={"space": "a/b"})
    other = named.model_copy(update={"metadata": {}})
    assert isinstance(online, Backend)
    assert online.unsupported_reason(spec, named) is None
    assert "not a Space" in str(online.unsupported_reason(spec, other))
    assert SpacesBackend(Settings(offline=True)).unsupported_reason(spec, named) == "offline mode is on"
    monkeypatch.setattr("jarvis_agent.backends.hosted.gradio_spaces.find_spec", lambda name: None)
    assert "[spaces]" in str(online.unsupported_reason(spec, named))
