"""Multimodal and document models: the inputs that they get, and the inputs that they refuse."""

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
from libraries import needs
from model_bench import Bench

from jarvis_agent.backends.transformers import multimodal, text
from jarvis_agent.backends.transformers.backend import TransformersBackend
from jarvis_agent.backends.transformers.loading import NoVideoProcessor, check_packages, load_processor
from jarvis_agent.backends.transformers.multimodal import words_of
from jarvis_agent.core.errors import BadInputError, UnsupportedError

np = pytest.importorskip("numpy")
needs("torch")
transformers = needs("transformers")

pytestmark = pytest.mark.slow

BACKEND = TransformersBackend


@pytest.fixture
def shown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """What a model would be given for a call; its text is under "shown"."""
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(multimodal, "generate", lambda loaded, batch, **_: given.append(dict(batch)) or [])

    def shown(task: str, model: str, **inputs: Any) -> dict[str, Any]:
        call = bench.call(task, model, **inputs)
        expert = bench.load(call)
        expert(call)
        text = expert.loaded.processor.tokenizer.decode(given[-1]["input_ids"][0])
        return {**given[-1], "shown": str(text)}

    return shown


def test_a_video_is_shown_as_frames_with_their_times(shown: Any) -> None:
    given = shown("video-text-to-text", "llava_chat", text="What moves?", video="clip")
    brightness = [float(frame.mean()) for frame in given["pixel_values"]]
    assert len(brightness) == 8
    assert brightness == sorted(brightness), "the clip grows brighter, and so do its frames in their order"
    assert brightness[0] < brightness[-1]
    assert given["shown"].startswith("8 frames of a video, in their order:")
    assert "0.1 s: " in given["shown"]
    assert "1.1 s: " in given["shown"]
    assert given["shown"].endswith("What moves?:")


def test_images_are_cut_into_tiles_and_frames_are_not(
    bench: Bench, shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    eye = bench.load(bench.call("any-to-any", "smolvlm")).loaded.processor.image_processor
    monkeypatch.setattr(eye, "do_image_splitting", True)
    monkeypatch.setattr(eye, "size", {"longest_edge": 64})
    image = shown("any-to-any", "smolvlm", text="?", image="photo")
    video = shown("any-to-any", "smolvlm", text="?", video="clip")
    assert image["pixel_values"].shape[1] > 1
    assert video["pixel_values"].shape[1] == 8


def test_any_to_any_shows_all_that_is_given(shown: Any) -> None:
    given = shown("any-to-any", "qwen2_vl", text="What is this?", image="photo", video="clip")
    assert len(given["image_grid_thw"]) == 9
    given = shown("audio-text-to-text", "qwen2_audio", text="What is said?", audio="tone")
    assert len(given["input_features"]) == 2, "two seconds, of which the model hears one at a time"


def test_special_tokens_in_a_text_are_removed(shown: Any) -> None:
    for model, mark in (("qwen2_vl", "<|image_pad|>"), ("smolvlm", "<image>")):
        plain, marked = (
            shown("image-text-to-text", model, text=text, image="photo")["input_ids"][0].tolist()
            for text in ("one  two", f"one{mark}</s>two")
        )
        assert marked == plain


def test_a_captioner_is_asked_to_read_where_text_is_wanted(bench: Bench, shown: Any) -> None:
    described = shown("image-to-text", "llava_chat", image="photo")
    read = shown("image-to-text", "llava_chat", image="photo", text="read")
    asked = shown("image-to-text", "llava_chat", image="photo", text="Who is it?")
    assert "Who is it?" in asked["shown"]
    assert "Describe this image" in described["shown"]
    assert "Write out all the text" in read["shown"]


def test_what_a_model_cannot_take_is_refused(bench: Bench) -> None:
    for model, task, inputs, error in (
        ("qwen2_vl", "any-to-any", {"text": "?", "audio": "tone"}, "cannot hear"),
        ("qwen2_audio", "any-to-any", {"text": "?", "image": "photo"}, "cannot see"),
        ("blip_caption", "video-text-to-text", {"text": "?", "video": "clip"}, "not a chat model"),
        ("qwen2_vl", "image-text-to-text", {"text": " ", "image": "photo"}, "is empty"),
        ("colpali", "visual-document-retrieval", {"text": "total", "image": []}, "is empty"),
    ):
        with pytest.raises((UnsupportedError, BadInputError), match=error):
            bench.ask(task, model, **inputs)


def test_a_reply_ends_at_its_limit_and_if_cancelled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def length(limit: int) -> int:
        options = {"options": {"max_new_tokens": limit}}
        call = bench.call("image-text-to-text", "qwen2_vl", options, text="Write.", image="photo")
        expert = bench.load(call)
        return len(expert.loaded.processor.tokenizer(expert(call), add_special_tokens=False).input_ids)

    assert length(3) < 10 < length(40)
    monkeypatch.setattr(text, "is_cancelled", lambda: True)
    assert length(40) < 10


def test_the_score_of_a_page_is_its_own(bench: Bench) -> None:
    pages = ["photo", "page", "photo"]
    first, second, third = bench.ask("visual-document-retrieval", "colpali", text="total", image=pages)
    assert first == pytest.approx(third, abs=1e-4)
    assert first != pytest.approx(second, abs=1e-4)
    alone = bench.ask("visual-document-retrieval", "colpali", text="total", image=["page"])
    assert alone == [pytest.approx(second, abs=1e-3)]


def test_a_page_without_words_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    call = bench.call("document-question-answering", "layoutlm", text="total", image="page")
    expert = bench.load(call)
    monkeypatch.setitem(expert.loaded.extras, "reader", lambda call: {"lines": []})
    with pytest.raises(UnsupportedError, match="there are none on this one"):
        expert(call)
    with pytest.raises(UnsupportedError, match="reads questions of at most 32 tokens"):
        expert(replace(call, inputs={**call.inputs, "text": "total " * 99}))


def test_words_of_a_line_share_its_box_by_their_letters() -> None:
    line = {"text": "ab cd ", "box": {"xmin": 0, "ymin": 10, "xmax": 60, "ymax": 20}}
    assert words_of([line], (100, 100)) == [("ab", [0, 100, 200, 200]), ("cd", [300, 100, 500, 200])]


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="with torchvision nothing is missing")
def test_a_processor_for_videos_is_loaded_without_torchvision(bench: Bench) -> None:
    for model in ("qwen2_vl", "smolvlm"):
        with pytest.raises(ImportError):
            transformers.AutoProcessor.from_pretrained(bench.built(model))
        processor = load_processor(bench.built(model))
        assert processor.chat_template
        assert processor.image_processor is not None
    with pytest.raises(UnsupportedError, match="torchvision"):
        NoVideoProcessor()(["clip.mp4"])


def test_what_a_processor_needs_is_named_before_a_download() -> None:
    check_packages(transformers.Qwen2VLConfig())
    if find_spec("torchvision") is None:
        with pytest.raises(ImportError, match="torchvision"):
            check_packages(transformers.Llama4Config())
