"""Every task of the transformers backend, on tiny models that the real code loads from a directory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.core.errors import BadInputError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource

np = pytest.importorskip("numpy")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from tiny_models import build  # noqa: E402

from jarvis_agent.backends.transformers.backend import TransformersBackend  # noqa: E402

TEXT = "Ada wrote the first program. The cat is in Paris."
LONG = " ".join([TEXT] * 8)

Made = tuple[Any, list[Resource]]
Tiny = Callable[[str], Path]
Run = Callable[..., Made]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The folder of a tiny model, which is built at its first use."""
    built: dict[str, Path] = {}

    def tiny(name: str) -> Path:
        if name not in built:
            built[name] = build(name, tmp_path_factory.mktemp(name))
        return built[name]

    return tiny


@pytest.fixture(scope="module")
def backend() -> Iterator[TransformersBackend]:
    pool = ModelPool(limit_bytes=10**9)
    yield TransformersBackend(pool, Settings(device="cpu"))
    asyncio.run(pool.close())


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Resource]:
    """An image of noise, a page with words, and two seconds of sound."""
    from jarvis_agent.media.files import write_audio

    folder = tmp_path_factory.mktemp("media")
    noise = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)
    Image.fromarray(noise).save(folder / "noise.png")
    page = Image.new("RGB", (640, 160), "white")
    ImageDraw.Draw(page).text((20, 50), "Invoice total 42", fill="black", font=ImageFont.load_default(48))
    page.save(folder / "page.png")
    write_audio(folder / "tone.wav", np.sin(np.arange(16_000) / 9), 8_000)
    return {
        "image": Resource(kind="image", path=folder / "noise.png", mime="image/png"),
        "page": Resource(kind="image", path=folder / "page.png", mime="image/png"),
        "audio": Resource(kind="audio", path=folder / "tone.wav", mime="audio/wav"),
    }


@pytest.fixture
def call(tiny: Tiny, tmp_path: Path) -> Callable[..., Call]:
    """A call of a tiny model."""
    made = iter(range(1000))

    def call(
        task: str,
        model: str,
        *,
        settings: Settings | None = None,
        hints: dict[str, Any] | None = None,
        **inputs: Any,
    ) -> Call:
        folder = tiny(model)
        voice = {"voice": str(folder / "voice.npy"), "vocoder": str(folder / "vocoder")}
        candidate = Candidate(
            id=f"tiny/{model}",
            task=task,
            path=folder,
            local=True,
            metadata=voice if model == "speecht5" else {},
        )
        return Call(
            spec=TASKS[task],
            candidate=candidate,
            inputs=inputs,
            new_path=lambda suffix: tmp_path / f"{next(made)}{suffix}",
            settings=settings or Settings(device="cpu"),
            hints=hints or {},
        )

    return call


@pytest.fixture
def run(backend: TransformersBackend, call: Callable[..., Call]) -> Run:
    """Load and run a tiny model, and adapt what it returns."""

    def run(task: str, model: str, **inputs: Any) -> Made:
        made = call(task, model, **inputs)
        assert backend.unsupported_reason(made.spec, made.candidate) is None
        output, resources = adapt(made.spec, asyncio.run(backend.run(made)), made)
        assert json.loads(json.dumps(output, allow_nan=False)) == output
        assert {resource.kind for resource in resources} == set(made.spec.outputs)
        return output, resources

    return run


def test_text_classification(run: Run) -> None:
    output, _ = run("text-classification", "bert_classifier", text=LONG)
    assert {row["label"] for row in output} == {"first", "second", "third"}
    assert sum(row["score"] for row in output) == pytest.approx(1, abs=0.001)


def test_token_classification_finds_names_in_the_text_itself(run: Run) -> None:
    output, _ = run("token-classification", "bert_tagger", text=LONG)
    assert output
    assert all(LONG[row["start"] : row["end"]] == row["word"] for row in output)
    assert output[-1]["end"] > 300, "the end of a long text is read too"


def test_question_answering_quotes_the_context(run: Run) -> None:
    output, _ = run("question-answering", "bert_reader", text="who wrote the program?", context=LONG)
    assert 1 <= len(output) <= 3
    assert all(LONG[row["start"] : row["end"]] == row["answer"] for row in output)
    assert all(0 < row["score"] <= 1 or row["score"] == 0 for row in output)


def test_question_answering_reads_the_whole_of_a_long_context(
    backend: TransformersBackend, call: Any
) -> None:
    made = call("question-answering", "bert_reader", text="who?", context=LONG)
    expert = backend.load(made.spec, made.candidate, made.settings)
    windows: list[Any] = []
    forward = expert.loaded.model.forward

    def surer_of_each_window(**inputs: Any) -> Any:
        output = forward(**inputs)
        last = int(inputs["attention_mask"][0].sum())
        output.start_logits[:] = output.end_logits[:] = 0.0
        output.start_logits[0, last - 4] = output.end_logits[0, last - 3] = 4.0 + len(windows)
        windows.append(inputs)
        return output

    expert.loaded.model.forward = surer_of_each_window
    best = expert(made)[0]
    assert len(windows) > 1
    assert best["start"] > len(LONG) * 0.8
    assert best["answer"] in LONG


def test_zero_shot_classification_scores_the_labels_given(run: Run) -> None:
    for labels in (["a good film", "sports"], "a good film, sports"):
        output, _ = run("zero-shot-classification", "bert_nli", text=TEXT, labels=labels)
        assert {row["label"] for row in output} == {"a good film", "sports"}


def test_feature_extraction_gives_one_vector(run: Run) -> None:
    output, _ = run("feature-extraction", "bert_base", text=TEXT)
    assert len(output) == 16
    assert output != run("feature-extraction", "bert_base", text="the dog")[0]


@pytest.mark.parametrize("model", ["bart", "t5"])
def test_summarization(run: Run, model: str) -> None:
    output, _ = run("summarization", model, text=LONG)
    assert output.keys() == {"summary_text"}


@pytest.mark.parametrize("model", ["marian", "t5", "m2m100", "nllb", "mbart"])
def test_translation(run: Run, model: str) -> None:
    output, _ = run("translation", model, text=TEXT, src_lang="English", tgt_lang="fr")
    assert output.keys() == {"translation_text"}
    assert "__" not in output["translation_text"]


def test_translation_keeps_paragraphs(run: Run) -> None:
    output, _ = run("translation", "marian", text=f"{TEXT}\n\n{TEXT}", tgt_lang="French")
    assert output["translation_text"].count("\n") == 2


@pytest.mark.parametrize(
    ("model", "spelling", "token"),
    [("m2m100", "en", "__fr__"), ("nllb", "eng_Latn", "fra_Latn"), ("mbart", "en_XX", "fr_XX")],
)
def test_multilingual_models_are_told_both_languages(
    backend: TransformersBackend,
    call: Any,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    spelling: str,
    token: str,
) -> None:
    made = call("translation", model, text=TEXT, src_lang="en", tgt_lang="French")
    expert = backend.load(made.spec, made.candidate, made.settings)
    told: dict[str, Any] = {}
    generate = expert.loaded.model.generate
    monkeypatch.setattr(
        expert.loaded.model, "generate", lambda **given: told.update(given) or generate(**given)
    )
    expert(made)
    assert expert.loaded.tokenizer.src_lang == spelling
    assert told["forced_bos_token_id"] == expert.loaded.tokenizer.convert_tokens_to_ids(token)


def test_a_model_for_another_language_is_refused(run: Run) -> None:
    with pytest.raises(UnsupportedError, match="tiny/marian does not translate into German"):
        run("translation", "marian", text=TEXT, tgt_lang="de")
    with pytest.raises(UnsupportedError, match="needs the target language"):
        run("translation", "m2m100", text=TEXT)
    with pytest.raises(UnsupportedError, match="needs the language of the text"):
        run("translation", "m2m100", text="Le chat est ici.", tgt_lang="en")
    with pytest.raises(UnsupportedError, match="tiny/m2m100 does not know Esperanto"):
        run("translation", "m2m100", text=TEXT, tgt_lang="Esperanto")
    with pytest.raises(BadInputError, match="'Klingon' is not a known language"):
        run("translation", "m2m100", text=TEXT, tgt_lang="Klingon")


@pytest.mark.parametrize("model", ["llama", "llama_chat", "t5"])
def test_text_generation_gives_the_new_text_alone(run: Run, model: str) -> None:
    output, _ = run("text-generation", model, text=TEXT)
    assert TEXT not in output["generated_text"]


def test_a_prompt_that_does_not_fit_is_refused(run: Run) -> None:
    with pytest.raises(UnsupportedError, match=r"tiny/llama cannot read \d{4} tokens at once"):
        run("text-generation", "llama", text=LONG * 5)


def test_image_classification(run: Run, media: dict[str, Resource]) -> None:
    output, _ = run("image-classification", "vit", image=media["image"])
    assert {row["label"] for row in output} == {"first", "second", "third"}


def test_object_detection(run: Run, media: dict[str, Resource]) -> None:
    output, resources = run("object-detection", "detr", image=media["image"])
    assert [row["label"] for row in output] == ["first"] * 3
    assert all(0 <= row["box"]["xmin"] < row["box"]["xmax"] <= 64 for row in output)
    assert resources[0].to_pil().size == (64, 48)


@pytest.mark.parametrize(("model", "scored"), [("segformer", False), ("detr_panoptic", True)])
def test_image_segmentation(run: Run, media: dict[str, Resource], model: str, scored: bool) -> None:
    output, resources = run("image-segmentation", model, image=media["image"])
    assert output
    assert all((row["score"] is not None) == scored for row in output)
    assert len([resource for resource in resources if resource.kind == "image"]) == len(output) + 1
    with Image.open(output[0]["mask"]) as mask:
        assert (mask.mode, mask.size) == ("L", (64, 48))


def test_depth_estimation(run: Run, media: dict[str, Resource]) -> None:
    output, _ = run("depth-estimation", "glpn", image=media["image"])
    assert (output["width"], output["height"]) == (64, 48)


@pytest.mark.parametrize("model", ["vit_gpt2", "blip_caption", "llava_chat"])
def test_image_to_text(run: Run, media: dict[str, Resource], model: str) -> None:
    output, _ = run("image-to-text", model, image=media["image"])
    assert output["generated_text"]


def test_a_model_that_sees_is_asked_to_read_where_text_is_wanted(
    backend: TransformersBackend, call: Any, media: dict[str, Resource]
) -> None:
    asked = []
    for hints in ({}, {"ocr": True}):
        made = call("image-to-text", "llava_chat", image=media["image"], hints=hints)
        expert = backend.load(made.spec, made.candidate, made.settings)
        apply = expert.loaded.processor.apply_chat_template
        expert.loaded.processor.apply_chat_template = lambda chat, apply=apply, **given: (
            asked.append(chat[0]["content"][1]["text"]) or apply(chat, **given)
        )
        expert(made)
    assert "Describe" in asked[0]
    assert "text" in asked[1]


@pytest.mark.parametrize(("model", "answers"), [("vilt", 3), ("blip_vqa", 1), ("llava_chat", 1)])
def test_visual_question_answering(run: Run, media: dict[str, Resource], model: str, answers: int) -> None:
    output, _ = run("visual-question-answering", model, image=media["image"], text="what is on the cat?")
    assert len(output) == answers
    assert (output[0]["score"] is None) == (answers == 1)


def test_document_question_answering_by_reading(run: Run, media: dict[str, Resource]) -> None:
    output, _ = run("document-question-answering", "donut", image=media["page"], text="what is the total?")
    assert output[0]["answer"]
    assert "<" not in output[0]["answer"]


@pytest.mark.starter
def test_document_question_answering_from_words(run: Run, media: dict[str, Resource]) -> None:
    pytest.importorskip("rapidocr")
    output, _ = run("document-question-answering", "layoutlm", image=media["page"], text="what is the total?")
    assert output[0]["answer"] in "Invoice total 42"
    with pytest.raises(UnsupportedError, match="there are none on this one"):
        run("document-question-answering", "layoutlm", image=media["image"], text="what is the total?")


def test_words_of_a_line_share_its_box_by_their_letters() -> None:
    from jarvis_agent.backends.transformers.documents import words_of

    line = {"text": "ab cd ", "box": {"xmin": 0, "ymin": 10, "xmax": 60, "ymax": 20}}
    assert words_of([line], (100, 100)) == [("ab", [0, 100, 200, 200]), ("cd", [300, 100, 500, 200])]


@pytest.mark.parametrize(("model", "timed"), [("whisper", True), ("wav2vec2_ctc", False)])
def test_automatic_speech_recognition(run: Run, media: dict[str, Resource], model: str, timed: bool) -> None:
    output, _ = run("automatic-speech-recognition", model, audio=media["audio"])
    assert output["text"]
    assert ("chunks" in output) == timed


@pytest.mark.parametrize("model", ["whisper", "wav2vec2_ctc"])
def test_automatic_speech_recognition_hears_a_long_recording(run: Run, tmp_path: Path, model: str) -> None:
    from jarvis_agent.media.files import write_audio

    write_audio(tmp_path / "long.wav", np.sin(np.arange(35 * 8_000) / 9), 8_000)
    output, _ = run(
        "automatic-speech-recognition", model, audio=Resource(kind="audio", path=tmp_path / "long.wav")
    )
    assert output["text"]
    if model == "whisper":
        assert output["chunks"][-1]["timestamp"][1] > 30


def test_audio_classification(run: Run, media: dict[str, Resource]) -> None:
    output, _ = run("audio-classification", "wav2vec2_classifier", audio=media["audio"])
    assert {row["label"] for row in output} == {"first", "second", "third"}


@pytest.mark.parametrize("model", ["vits", "speecht5"])
def test_text_to_speech_speaks_the_whole_of_a_long_text(run: Run, model: str) -> None:
    short, resources = run("text-to-speech", model, text=TEXT)
    assert short["sampling_rate"] == 16_000
    assert resources[0].mime == "audio/wav"
    assert run("text-to-speech", model, text=LONG)[0]["duration"] > short["duration"]


def test_bark_speaks(run: Run) -> None:
    output, _ = run("text-to-speech", "bark", text="the cat")
    assert output["sampling_rate"] == 24_000
    assert output["duration"] > 0


def test_speech_is_the_same_for_the_same_seed(run: Run) -> None:
    made = [Path(run("text-to-speech", "vits", text="the cat")[0]["path"]).read_bytes() for _ in range(2)]
    assert made[0] == made[1]


def test_speecht5_without_a_voice_says_what_is_missing(backend: TransformersBackend, call: Any) -> None:
    made = call("text-to-speech", "speecht5", text=TEXT)
    candidate = made.candidate.model_copy(update={"metadata": {}})
    with pytest.raises(UnsupportedError, match=r'register it with metadata=\{"voice": "speaker.npy"\}'):
        backend.load(made.spec, candidate, made.settings)


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("image-classification", "vit"),
        ("depth-estimation", "glpn"),
        ("text-classification", "bert_classifier"),
    ],
)
def test_models_run_in_bfloat16(
    backend: TransformersBackend, call: Any, media: dict[str, Resource], task: str, model: str
) -> None:
    settings = Settings(device="cpu", dtype="bfloat16")
    made = call(task, model, settings=settings, text=TEXT, image=media["image"])
    output, _ = adapt(made.spec, asyncio.run(backend.run(made)), made)
    assert output


@pytest.mark.parametrize("task", ["text-classification", "translation", "text-generation", "text-to-speech"])
def test_an_empty_text_is_the_fault_of_the_input(run: Run, task: str) -> None:
    model = {"text-classification": "bert_classifier", "translation": "marian", "text-generation": "llama"}
    with pytest.raises(BadInputError, match=f"{task} needs a text, and this one is empty"):
        run(task, model.get(task, "vits"), text="  ")


def test_an_unreadable_file_is_the_fault_of_the_input(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    with pytest.raises(BadInputError, match="can not be read as an image"):
        run("image-classification", "vit", image=Resource(kind="image", path=broken))
    with pytest.raises(BadInputError, match=r"can not be read as audio|holds no sound"):
        run("audio-classification", "wav2vec2_classifier", audio=Resource(kind="audio", path=broken))


def test_a_model_without_a_trained_head_is_refused(run: Run) -> None:
    with pytest.raises(
        UnsupportedError, match=r"tiny/bert_base is not trained for text-classification: .*classifier"
    ):
        run("text-classification", "bert_base", text=TEXT)


def test_a_model_of_another_kind_is_refused(run: Run, media: dict[str, Resource]) -> None:
    with pytest.raises(UnsupportedError, match="tiny/vit is a vit model, which cannot do object-detection"):
        run("object-detection", "vit", image=media["image"])
