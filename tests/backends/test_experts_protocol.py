"""What goes to an expert server and comes back, as bytes."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.experts import protocol
from jarvis_agent.backends.experts.wire import read_message, write_line, write_message
from jarvis_agent.core.errors import (
    BadInputError,
    ConfigError,
    ExpertError,
    InputError,
    JarvisError,
    MissingExtraError,
    RateLimitedError,
    TransientError,
    UnsupportedError,
)
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource


def sent(value: Any, folder: Path) -> Any:
    """A value after its way through bytes; files are written to the folder."""
    number = count()
    return read_message(write_message(value), lambda suffix: folder / f"{next(number)}{suffix}")


def call(path: Path | None = None, **inputs: Any) -> Call:
    return Call(
        spec=TASKS["image-classification"],
        candidate=Candidate(
            id="org/model", task="image-classification", path=path, size=10, metadata={"revisions": "local"}
        ),
        inputs=inputs,
        new_path=Path,
        settings=Settings(seed=7, hf_token="hf_secret", api_key="of-the-llm"),
        hints={"ocr": True},
    )


def test_plain_values_stay_the_same(tmp_path: Path) -> None:
    value = {"text": "ä\x00", "rows": [{"score": 0.25, "none": None}], "$array": 3, "n": True}
    assert sent(value, tmp_path) == value


def test_scalars_of_numpy_become_numbers_and_tuples_lists(tmp_path: Path) -> None:
    assert sent({"score": np.float32(0.5), "box": (1, np.int64(2))}, tmp_path) == {
        "score": 0.5,
        "box": [1, 2],
    }


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32"])
def test_arrays_keep_their_values_and_dtype(dtype: str, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    found = sent([array], tmp_path)[0]
    assert found.dtype == array.dtype
    assert (found == array).all()


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "RGBA", "I;16"])
def test_images_keep_their_pixels_and_mode(mode: str, tmp_path: Path) -> None:
    image = Image.effect_noise((5, 4), 50).convert(mode) if mode != "I;16" else Image.new(mode, (5, 4), 999)
    found = sent(image, tmp_path)
    assert (found.mode, found.tobytes()) == (mode, image.tobytes())


def test_files_are_written_where_the_receiver_says(tmp_path: Path) -> None:
    (given := tmp_path / "given.png").write_bytes(b"pixels")
    (here := tmp_path / "here").mkdir()
    image = Resource(kind="image", path=given, mime="image/png", name="a cat")
    found = sent({"image": image, "path": given}, here)
    assert found["image"] == image.model_copy(update={"path": here / "0.png"})
    assert found["path"].read_bytes() == b"pixels"


def test_an_object_that_could_run_code_is_not_sent() -> None:
    for value in (object(), np.array([object()])):
        with pytest.raises(UnsupportedError, match="cannot be sent"):
            write_message(value)


def test_a_message_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "given.png").write_bytes(b"pixels")
    body = write_message(tmp_path / "given.png")
    for broken in (body[:-1], body + b"x"):
        with pytest.raises(BadInputError, match="its length"):
            read_message(broken, Path)


@pytest.mark.parametrize(
    "value",
    [
        {"mark": "resource", "fields": {"kind": "image"}, "file": "/etc/hostname"},
        {"mark": "array", "part": 0},
    ],
)
def test_a_message_has_no_files_and_arrays_but_those_sent(value: Any) -> None:
    np.save(text := io.BytesIO(), np.array(["/etc/hostname"]))
    header = write_line(mark="mark", bytes=[len(text.getvalue())])
    with pytest.raises(UnsupportedError, match="cannot be sent"):
        read_message(header + write_line(**value) + text.getvalue(), Path)


def test_a_call_arrives_without_the_place_of_its_weights(tmp_path: Path) -> None:
    body = protocol.write_call(call(tmp_path, text="hello"), depth=3)
    assert str(tmp_path).encode() not in body
    assert b"of-the-llm" not in body
    found, depth = protocol.read_call(body, Path, Settings())
    assert (found.spec, found.inputs, found.hints, depth) == (
        call().spec,
        {"text": "hello"},
        {"ocr": True},
        3,
    )
    assert (found.candidate.path, found.candidate.local, found.candidate.metadata) == (None, False, {})
    assert (found.settings.seed, found.settings.token) == (7, "hf_secret")
    assert protocol.read_model(body)["size"] == 10


def test_a_model_in_the_cache_of_the_server_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from jarvis_agent.backends.hub import snapshot

    monkeypatch.setattr(snapshot, "_cached_folder", lambda candidate: tmp_path)
    body = protocol.write_call(call())
    (tmp_path / "config.json").write_text("{}")
    assert protocol.read_call(body, Path, Settings())[0].candidate.path is None  # only a part of it is here
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    found = protocol.read_call(body, Path, Settings())[0].candidate
    assert (found.path, found.local) == (tmp_path, True)


def test_a_file_beyond_a_limit_of_the_server_is_refused(tmp_path: Path) -> None:
    Image.new("1", (1, 2_000)).save(tmp_path / "tall.png")
    body = protocol.write_call(call(image=Resource(kind="image", path=tmp_path / "tall.png")))
    with pytest.raises(InputError, match="1 x 2000 pixels, more than 1,000"):
        protocol.read_call(body, lambda suffix: tmp_path / f"0{suffix}", Settings(max_pixels=1_000))


def test_a_task_that_the_server_does_not_know_is_named() -> None:
    body = protocol.write_call(replace(call(), spec=replace(call().spec, name="my-task")))
    with pytest.raises(UnsupportedError, match="does not know the task 'my-task'"):
        protocol.read_call(body, Path, Settings())


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadInputError("no"), BadInputError),
        (RateLimitedError("no"), RateLimitedError),
        (MissingExtraError("no", "local"), ConfigError),
        (UnsupportedError("no"), UnsupportedError),
        (KeyError("no"), ExpertError),
    ],
)
def test_an_error_arrives_with_its_policy_its_message_and_its_server(
    error: Exception, kind: type[JarvisError]
) -> None:
    asked = call()
    with pytest.raises(kind, match="no") as caught:
        protocol.read_reply(protocol.write_error("10.0.0.7", error), asked, "http://head")
    assert type(caught.value) is kind
    assert asked.trace == {"endpoint": "http://head (10.0.0.7)"}


def test_a_remark_on_a_result_arrives_with_it() -> None:
    asked = call()
    reply = protocol.write_reply("", raw="Once", notes=["the text was cut"])
    assert protocol.read_reply(reply, asked, "http://head") == "Once"
    assert asked.notes == ["the text was cut"]


def test_an_answer_that_was_cut_off_is_asked_for_again() -> None:
    for cut in (b"", protocol.write_reply("", raw="Once")[:-9]):
        with pytest.raises(TransientError, match="http://head did not end its answer"):
            protocol.read_reply(cut, call(), "http://head")


@pytest.mark.parametrize("raw", ["{}", {"path": "{}"}, [{"mask": "{}"}]])
def test_a_file_that_a_server_names_and_does_not_send_is_not_read(raw: Any, tmp_path: Path) -> None:
    (secret := tmp_path / "secret.png").write_bytes(b"pixels")
    raw = json.loads(json.dumps(raw).replace("{}", str(secret)))
    asked = replace(call(), spec=TASKS["image-segmentation"])
    with pytest.raises(UnsupportedError, match="names a file that it did not send"):
        protocol.read_reply(protocol.write_reply("", raw=raw), asked, "http://head")
