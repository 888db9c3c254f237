"""Chat models that see and hear, and models that read pages: what they are shown, and what they refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource

np = pytest.importorskip("numpy")
pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import tiny_multimodal  # noqa: E402
import tiny_vision  # noqa: E402

from jarvis_agent.backends.transformers import generation as chat  # noqa: E402
from jarvis_agent.backends.transformers.backend import TransformersBackend, TransformersExpert  # noqa: E402
from jarvis_agent.backends.transformers.loading import NoVideoProcessor, check_packages, load_processor  # noqa: E402

Build = Callable[[Path], None]
Opened = Callable[..., tuple[TransformersExpert, Call]]


@pytest.fixture(scope="module")
def experts(built: Callable[[Build], Path]) -> Iterator[Callable[[str, Build], TransformersExpert]]:
    """A tiny model, loaded for a task; each is built and loaded once."""
    loaded: dict[tuple[str, Build], Any] = {}
    backend = TransformersBackend(ModelPool(10**9), Settings(device="cpu"))

    def load(task: str, build: Build) -> TransformersExpert:
        if (task, build) not in loaded:
            candidate = Candidate(id=f"tiny/{build.__name__}", task=task, path=built(build), local=True)
            loaded[task, build] = backend.load(TASKS[task], candidate, Settings(device="cpu"))
        return loaded[task, build]  # type: ignore[no-any-return]

    yield load
    asyncio.run(backend.pool.close())


@pytest.fixture
def opened(
    experts: Callable[[str, Build], TransformersExpert], media: dict[str, Path], tmp_path: Path
) -> Opened:
    """A tiny model and a call of it; `image="photo"` gives a file of `make_media`."""

    def opened(
        task: str, build: Build, options: dict[str, Any] | None = None, **inputs: Any
    ) -> tuple[TransformersExpert, Call]:
        kinds = {arg.name: arg.kind for arg in TASKS[task].inputs}

        def given(name: str, value: Any) -> Any:
            if isinstance(value, list):
                return [given(name, item) for item in value]
            return value if kinds[name] == "text" else Resource(kind=kinds[name], path=media[value])

        call = Call(
            spec=TASKS[task],
            candidate=Candidate(id="tiny", task=task, metadata={"options": options} if options else {}),
            inputs={name: given(name, value) for name, value in inputs.items()},
            new_path=lambda suffix: tmp_path / f"made{suffix}",
            settings=Settings(device="cpu"),
        )
        return experts(task, build), call

    return opened


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was given to `generate`; it writes nothing."""
    seen: list[dict[str, Any]] = []

    def generate(loaded: Any, batch: Any, **options: Any) -> list[int]:
        seen.append({**batch, "options": options})
        return []

    monkeypatch.setattr(chat, "generate", generate)
    return seen


def shown_text(expert: TransformersExpert, batch: dict[str, Any]) -> str:
    return str(expert.loaded.processor.tokenizer.decode(batch["input_ids"][0]))


def test_a_video_is_shown_as_frames_with_their_times(opened: Opened, seen: list[dict[str, Any]]) -> None:
    expert, call = opened("video-text-to-text", tiny_vision.llava_chat, text="What moves?", video="clip")
    expert(call)
    frames = seen[0]["pixel_values"]
    brightness = [float(frame.mean()) for frame in frames]
    assert len(frames) == 8
    assert brightness == sorted(brightness), "the clip grows brighter, and so do its frames in their order"
    assert brightness[0] < brightness[-1]
    text = shown_text(expert, seen[0])
    assert text.startswith("8 frames of a video, in their order:")
    assert [f"{second}.1 s: " in text for second in (0, 1)] == [True, True]
    assert text.endswith("What moves?:")


def test_frames_are_not_cut_into_tiles_and_images_are(
    opened: Opened, seen: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    expert, image = opened("any-to-any", tiny_multimodal.smolvlm, text="?", image="photo")
    eye = expert.loaded.processor.image_processor
    monkeypatch.setattr(eye, "do_image_splitting", True)
    monkeypatch.setattr(eye, "size", {"longest_edge": 64})
    expert(image)
    expert, video = opened("any-to-any", tiny_multimodal.smolvlm, text="?", video="clip")
    expert(video)
    tiles, frames = (batch["pixel_values"].shape[1] for batch in seen)
    assert tiles > 1
    assert frames == 8


def test_any_to_any_shows_all_that_is_given(opened: Opened, seen: list[dict[str, Any]]) -> None:
    for inputs, images in (({}, 0), ({"image": "photo"}, 1), ({"image": "photo", "video": "clip"}, 9)):
        expert, call = opened("any-to-any", tiny_multimodal.qwen2_vl, text="What is this?", **inputs)
        expert(call)
        assert len(seen[-1].get("image_grid_thw", [])) == images


def test_a_long_recording_is_heard_in_pieces(opened: Opened, seen: list[dict[str, Any]]) -> None:
    expert, call = opened(
        "audio-text-to-text", tiny_multimodal.qwen2_audio, text="What is said?", audio="tone"
    )
    expert(call)
    assert expert.loaded.processor.feature_extractor.chunk_length == 1
    assert len(seen[0]["input_features"]) == 2, "two seconds, of which the model hears one at a time"


def test_a_model_that_can_not_hear_says_so(opened: Opened) -> None:
    expert, call = opened("any-to-any", tiny_multimodal.qwen2_vl, text="What is said?", audio="tone")
    with pytest.raises(UnsupportedError, match="cannot hear"):
        expert(call)


def test_a_model_that_can_not_see_says_so(opened: Opened) -> None:
    expert, call = opened("any-to-any", tiny_multimodal.qwen2_audio, text="What is this?", image="photo")
    with pytest.raises(UnsupportedError, match="cannot see"):
        expert(call)


def test_a_model_that_is_no_chat_model_goes_on_from_the_text(opened: Opened) -> None:
    expert, call = opened("image-text-to-text", tiny_vision.blip_caption, text="a cat", image="photo")
    assert expert(call).startswith("a cat")
    expert, call = opened("video-text-to-text", tiny_vision.blip_caption, text="a cat", video="clip")
    with pytest.raises(UnsupportedError, match="not a chat model"):
        expert(call)


def test_what_the_description_says_about_writing_is_obeyed(opened: Opened) -> None:
    def length(options: dict[str, Any]) -> int:
        expert, call = opened(
            "image-text-to-text", tiny_multimodal.qwen2_vl, options, text="Write.", image="photo"
        )
        written = expert(call)
        return len(expert.loaded.processor.tokenizer(written, add_special_tokens=False).input_ids)

    short, long = length({"max_new_tokens": 3}), length({"max_new_tokens": 40})
    assert short < 10 < long


def test_an_answer_ends_when_nobody_waits_for_it(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    from jarvis_agent.backends.transformers import generation

    monkeypatch.setattr(generation, "is_cancelled", lambda: True)
    expert, call = opened("image-text-to-text", tiny_multimodal.qwen2_vl, text="Write.", image="photo")
    assert len(expert(call)) < 10


@pytest.mark.parametrize(
    ("build", "mark"), [(tiny_multimodal.qwen2_vl, "<|image_pad|>"), (tiny_multimodal.smolvlm, "<image>")]
)
def test_marks_of_the_template_in_a_text_count_for_nothing(
    opened: Opened, seen: list[dict[str, Any]], build: Build, mark: str
) -> None:
    for text in ("one  two", f"one{mark}</s>two"):
        expert, call = opened("image-text-to-text", build, text=text, image="photo")
        expert(call)
    plain, marked = (batch["input_ids"][0].tolist() for batch in seen)
    assert marked == plain


def test_an_empty_question_is_refused(opened: Opened) -> None:
    expert, call = opened("image-text-to-text", tiny_multimodal.qwen2_vl, text=" ", image="photo")
    with pytest.raises(BadInputError, match="empty"):
        expert(call)


@pytest.mark.parametrize("build", [tiny_multimodal.colpali, tiny_multimodal.clip])
def test_the_score_of_a_page_is_its_own(opened: Opened, build: Build) -> None:
    task = "visual-document-retrieval"
    expert, call = opened(task, build, text="total", image=["photo", "page", "photo"])
    first, second, third = expert(call)
    assert first == pytest.approx(third, abs=1e-4)
    assert first != pytest.approx(second, abs=1e-4)
    expert, call = opened(task, build, text="total", image=["page"])
    assert expert(call) == [pytest.approx(second, abs=1e-3)]


def test_no_pages_can_not_be_searched(opened: Opened) -> None:
    expert, call = opened("visual-document-retrieval", tiny_multimodal.colpali, text="total", image=[])
    with pytest.raises(BadInputError, match="empty"):
        expert(call)


def test_layoutlmv3_reads_a_long_page_in_windows(opened: Opened) -> None:
    expert, call = opened(
        "document-question-answering", tiny_multimodal.layoutlmv3, text="total", image="page"
    )
    words = [
        {"text": " ".join(["Invoice", "total"] * 20), "box": {"xmin": 0, "ymin": 0, "xmax": 600, "ymax": 50}}
    ]
    expert.loaded.extras["reader"] = lambda call: {"lines": words}
    windows: list[Any] = []
    forward = expert.loaded.model.forward

    def surer_of_each_window(**inputs: Any) -> Any:
        output = forward(**inputs)
        windows.append(inputs)
        last = int(inputs["attention_mask"][0].sum())
        output.start_logits[:] = output.end_logits[:] = 0.0
        output.start_logits[0, last - 2] = output.end_logits[0, last - 2] = 4.0 + len(windows)
        return output

    expert.loaded.model.forward = surer_of_each_window
    best = expert(call)[0]
    assert len(windows) > 1
    assert best["start"] == best["end"] == 39
    assert best["answer"] == "total"


@pytest.mark.parametrize("build", [tiny_multimodal.qwen2_vl, tiny_multimodal.smolvlm])
@pytest.mark.skipif(find_spec("torchvision") is not None, reason="with torchvision nothing is lacking")
def test_a_processor_for_videos_is_loaded_without_torchvision(build: Build, tmp_path: Path) -> None:
    build(tmp_path)
    with pytest.raises(ImportError):
        transformers.AutoProcessor.from_pretrained(tmp_path)
    processor = load_processor(tmp_path)
    assert processor.chat_template
    assert processor.image_processor is not None


def test_smolvlm_is_shown_images_as_its_own_processor_would(tmp_path: Path) -> None:
    from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

    tiny_multimodal.smolvlm(tmp_path)
    processor = load_processor(tmp_path)
    marks = (processor.image_seq_len, "<fake_token_around_image>", "<image>", "<global-img>")
    for rows, columns in ((0, 0), (2, 3)):
        shown = processor.replace_image_token({"rows": [[rows]], "cols": [[columns]]}, 0)
        assert shown == get_image_prompt_string(rows, columns, *marks)


@pytest.mark.parametrize(
    ("config", "package"), [("Llama4Config", "torchvision"), ("VoxtralConfig", "mistral-common")]
)
def test_what_a_processor_needs_is_told_before_a_download(config: str, package: str) -> None:
    if find_spec(package.replace("-", "_")) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(ImportError, match=package):
        check_packages(getattr(transformers, config)())
    check_packages(transformers.Qwen2VLConfig())


def test_the_part_for_videos_is_missing_aloud() -> None:
    with pytest.raises(UnsupportedError, match="torchvision"):
        NoVideoProcessor()(["clip.mp4"])
