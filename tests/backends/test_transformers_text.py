"""Text, tables and sound with transformers: long inputs, languages, batches, and what is refused."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from libraries import needs
from model_bench import Bench, roughly, surest_at_the_end

from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import Job, activities, running
from jarvis_agent.backends.outputs.adapters import adapt
from jarvis_agent.backends.transformers import loading, multimodal
from jarvis_agent.backends.transformers import text as text_tasks
from jarvis_agent.backends.transformers.backend import TransformersBackend
from jarvis_agent.core.errors import BadInputError, ExpertError, MissingExtraError, UnsupportedError
from jarvis_agent.media.recordings import write_audio

np = pytest.importorskip("numpy")
torch = needs("torch")
needs("pandas")

pytestmark = pytest.mark.slow

BACKEND = TransformersBackend
TEXT = "Ada wrote the first program. The cat is in Paris."
LONG = " ".join([TEXT] * 8)


def adapted(bench: Bench, call: Call) -> Any:
    """The output as the task's tool returns it."""
    return adapt(call.spec, bench.load(call)(call), call)[0]


def test_options_of_a_model_cannot_name_code_that_writes_its_text(bench: Bench, tmp_path: Path) -> None:
    (code := tmp_path / "custom_generate").mkdir()
    (code / "generate.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef generate(model, **_): ...")
    options = {"custom_generate": str(tmp_path), "trust_remote_code": True}
    call = bench.call("text-generation", "llama", {"options": options}, text="Ada")
    with pytest.raises(UnsupportedError, match="no option 'custom_generate'"):
        bench.load(call)(call)
    assert not (tmp_path / "ran").exists()


def test_the_whole_of_a_long_text_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    found = adapted(bench, bench.call("token-classification", "bert_tagger", text=LONG))
    assert all(LONG[row["start"] : row["end"]] == row["word"] for row in found)
    assert found[-1]["end"] > 300
    call = bench.call("question-answering", "bert_reader", text="who?", context=LONG)
    expert = bench.load(call)
    windows = surest_at_the_end(expert.loaded.model, monkeypatch, 4, 3)
    best = expert(call)[0]
    assert len(windows) > 1
    assert best["start"] > len(LONG) * 0.8
    assert best["answer"] == LONG[best["start"] : best["end"]]


def test_a_text_shows_its_progress_and_if_it_was_cut(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(text_tasks, "is_cancelled", lambda: bool(shown.extend(map(str, activities.get()))))
    call = bench.call("text-generation", "llama", {"options": {"max_new_tokens": 3}}, text="Ada")
    expert = bench.load(call)
    monkeypatch.setattr(expert.loaded.model.generation_config, "eos_token_id", None)
    with running([Job(call)]):
        expert(call)
    assert call.notes == ["the text was cut at the limit of 3 tokens"]
    assert shown == [f"org/model: {n} of at most 3 tokens written" for n in range(3)]
    assert not activities.get()
    monkeypatch.setattr(text_tasks, "is_cancelled", lambda: True)
    call.notes.clear()
    with running([Job(call)]):
        expert(call)
    assert call.notes == []
    monkeypatch.undo()
    call = bench.call("text-generation", "llama", {"options": {"max_new_tokens": 1}}, text="Ada")
    model = (expert := bench.load(call)).loaded.model
    monkeypatch.setattr(model.generation_config, "eos_token_id", list(range(model.config.vocab_size)))
    with running([Job(call)]):
        expert(call)
    assert call.notes == []  # it ends of itself


def test_labels_are_a_list_or_a_text(bench: Bench) -> None:
    for labels in ("cat, good dog", "cat\ngood dog\n\ncat", ["cat", " good dog ", ""]):
        raw = bench.ask("zero-shot-classification", "bert_nli", text=TEXT, labels=labels)
        assert sorted(raw["labels"]) == ["cat", "good dog"]
    with pytest.raises(BadInputError, match="needs labels"):
        bench.ask("zero-shot-classification", "bert_nli", text=TEXT, labels=" , ")


def test_multilingual_models_are_given_both_languages(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def listen(generate: Any, **options: Any) -> Any:
        given.update(options)
        return generate(**options)

    for model, spelling, token in (
        ("m2m100", "en", "__fr__"),
        ("nllb", "eng_Latn", "fra_Latn"),
        ("mbart", "en_XX", "fr_XX"),
    ):
        call = bench.call("translation", model, text=TEXT, src_lang="English", tgt_lang="fr")
        loaded = bench.load(call).loaded
        monkeypatch.setattr(loaded.model, "generate", partial(listen, loaded.model.generate))
        assert "__" not in bench.load(call)(call)
        assert loaded.tokenizer.src_lang == spelling
        assert given["forced_bos_token_id"] == loaded.tokenizer.convert_tokens_to_ids(token)


def test_translation_keeps_paragraphs_and_needs_known_languages(bench: Bench) -> None:
    raw = bench.ask("translation", "marian", text=f"{TEXT}\n\n{TEXT}", tgt_lang="French")
    assert raw.count("\n") == 2
    for model, languages, error in (
        ("marian", {"tgt_lang": "de"}, "org/model does not translate into German"),
        ("m2m100", {}, "needs the target language"),
        ("m2m100", {"tgt_lang": "en"}, "needs the language of the text"),
        ("m2m100", {"tgt_lang": "Esperanto"}, "org/model does not know Esperanto"),
        ("m2m100", {"tgt_lang": "Klingon"}, "'Klingon' is not a known language"),
    ):
        with pytest.raises((UnsupportedError, BadInputError), match=error):
            bench.ask("translation", model, text=TEXT, **languages)


def test_a_prompt_is_not_repeated_and_must_fit(bench: Bench) -> None:
    assert TEXT not in bench.ask("text-generation", "llama_chat", text=TEXT)
    with pytest.raises(UnsupportedError, match=r"org/model cannot read \d{4} tokens at once"):
        bench.ask("text-generation", "llama", text=LONG * 5)


def test_a_gap_may_be_written_in_any_way_and_there_must_be_one(bench: Bench) -> None:
    for build, gap in (("bert_masked", "___"), ("bert_masked", "<mask>"), ("roberta_masked", "[mask]")):
        usual = bench.ask("fill-mask", build, text="the [MASK] is good")
        assert bench.ask("fill-mask", build, text=f"the {gap} is good") == usual
    for text, found in (("the cat is good", "none"), ("the [MASK] is ___", "2")):
        with pytest.raises(BadInputError, match=rf"a text with one \[MASK\], and this one has {found}"):
            bench.ask("fill-mask", "bert_masked", text=text)
    long = " ".join(["the cat is good"] * 40)
    assert len(bench.ask("fill-mask", "bert_masked", text=f"the [MASK] {long}")) == 5


def test_answers_from_cells_need_pandas(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_tasks, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'org/model.*needs the extra "tabular"'):
        bench.ask("table-question-answering", "tapas", table="table", text="how many?")


def test_of_a_long_table_the_rows_that_fit_are_read_and_counted(bench: Bench, tmp_path: Path) -> None:
    def asked(content: str) -> list[str]:
        path = tmp_path / "long.csv"
        path.write_text(content)
        call = bench.call("table-question-answering", "tapas", text="how many?", table=path)
        rows = len(content.splitlines()) - 1
        assert all(row < rows for row, _ in adapted(bench, call)["coordinates"])
        return call.notes

    (note,) = asked(
        "n\n" + "".join(f"{number}\n" for number in range(300))
    )  # more ranks than the model knows
    assert re.fullmatch(r"the first \d+ of 300 rows were read", note)
    assert asked("n,m\n1,2\n3,4\n") == []
    for content in (",".join(f"c{place}" for place in range(300)) + "\n" + "1," * 299 + "1\n",):
        with pytest.raises(UnsupportedError, match="cannot read"):
            asked(content)


def test_a_batch_gives_what_the_calls_give_one_by_one(bench: Bench) -> None:
    for task, model, inputs in (
        ("text-classification", "bert_classifier", [{"text": TEXT}, {"text": "Ada"}, {"text": LONG}]),
        ("image-classification", "vit", [{"image": "photo"}, {"image": "page"}]),
    ):
        calls = [bench.call(task, model, **given) for given in inputs]
        expert = bench.load(calls[0])
        assert expert.batch(calls) == roughly([expert(call) for call in calls])
    assert bench.load(bench.call("question-answering", "bert_reader")).batch is None


def test_a_long_recording_is_transcribed_to_its_end(bench: Bench, tmp_path: Path) -> None:
    from jarvis_agent.media.recordings import write_audio

    write_audio(tmp_path / "long.wav", np.sin(np.arange(35 * 8_000) / 9), 8_000)
    for model, is_timed in (("whisper", True), ("wav2vec2_ctc", False)):
        call = bench.call("automatic-speech-recognition", model, audio=tmp_path / "long.wav")
        output = adapted(bench, call)
        assert output["text"]
        assert ("chunks" in output) == is_timed
        assert not is_timed or output["chunks"][-1]["timestamp"][1] > 30


def test_the_whole_of_a_long_text_is_spoken_with_the_seed(bench: Bench) -> None:
    short, again, long = (
        bench.ask("text-to-speech", "vits", text=text)["audio"] for text in (TEXT, TEXT, LONG)
    )
    assert len(short) < len(long)
    assert (short == again).all()


def test_the_pieces_of_a_long_text_end_when_the_call_is_cancelled(bench: Bench) -> None:
    call = bench.call("summarization", "t5", text=LONG)
    job, pieces = Job(call), list[str]()

    def read(piece: str) -> None:
        pieces.append(piece)
        job.cancelled = len(pieces) == 2

    with running((job,)), pytest.raises(ExpertError, match="stopped"):
        list(map(read, text_tasks.split_by_tokens(LONG, bench.load(call).loaded, 20)))
    assert len(pieces) == 2


def test_a_model_too_large_for_the_gpu_has_the_numbers_of_the_cpu(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [torch.bfloat16, torch.float32]  # of the GPU that was expected, and of the CPU
    monkeypatch.setattr(loading, "pick_dtype", lambda device, exact: chosen.pop(0))
    model = bench.load(bench.call("summarization", "t5", text=TEXT)).loaded.model
    assert {weights.dtype for weights in model.parameters()} == {torch.float32}


def test_a_recording_shorter_than_a_window_is_read(bench: Bench, tmp_path: Path) -> None:
    write_audio(tmp_path / "short.wav", [0.5] * 80, 8_000)
    for task, model in (
        ("audio-classification", "wav2vec2_classifier"),
        ("automatic-speech-recognition", "wav2vec2_ctc"),
    ):
        call = bench.call(task, model, audio=tmp_path / "short.wav")
        assert bench.load(call)(call)


def test_the_beginning_of_a_recording_is_classified(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    call = bench.call("audio-classification", "wav2vec2_classifier", audio="tone")
    heard: list[int] = []
    loaded = bench.load(call).loaded
    listening = replace(loaded, pipe=lambda sound, **_: heard.append(len(sound["raw"])))
    monkeypatch.setattr(multimodal, "CLASSIFIED_SECONDS", 0.5)
    with running((Job(call),)):
        multimodal.classify_sound(listening, call)
    assert heard == [loaded.parts["feature_extractor"].sampling_rate // 2]
    assert "first" in call.notes[0]


def test_bad_input_is_refused_as_such(bench: Bench, tmp_path: Path) -> None:
    for task, model in (
        ("text-classification", "bert_classifier"),
        ("translation", "marian"),
        ("text-generation", "llama"),
        ("text-to-speech", "vits"),
    ):
        with pytest.raises(BadInputError, match=f"{task} needs a text, and this one is empty"):
            bench.ask(task, model, text="  ")
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    with pytest.raises(BadInputError, match="be read as an image"):
        bench.ask("image-classification", "vit", image=broken)
    with pytest.raises(BadInputError, match=r"be read as audio|has no sound|holds no sound"):
        bench.ask("audio-classification", "wav2vec2_classifier", audio=broken)


@pytest.mark.parametrize(
    ("task", "model", "more"),
    [
        ("text-classification", "bert_classifier", {}),
        ("zero-shot-classification", "bert_nli", {"labels": ["good", "bad"]}),
        ("fill-mask", "bert_masked", {}),
        ("visual-question-answering", "vilt", {"image": "photo"}),
    ],
)
def test_it_is_told_that_a_text_is_longer_than_what_the_model_reads(
    bench: Bench, task: str, model: str, more: dict[str, Any]
) -> None:
    for times, is_noted in ((1, False), (99, True)):
        call = bench.call(task, model, text="the [MASK] " + "cat is good " * times, **more)
        bench.load(call)(call)
        assert ["tokens of a text were read" in note for note in call.notes] == [True] * is_noted


def test_it_is_told_that_the_cells_of_a_table_are_longer_than_what_the_model_reads(
    bench: Bench, tmp_path: Path
) -> None:
    for cell, note in (
        ("good", []),
        ("good " * 99, ["only the first 240 tokens of a text were read; longer: 1"]),
    ):
        (tmp_path / "cells.csv").write_text(f"n,m\n{cell},2\n3,4\n")
        call = bench.call("table-question-answering", "tapas", text="how many?", table=tmp_path / "cells.csv")
        bench.load(call)(call)
        assert call.notes == note


@pytest.mark.parametrize(
    ("task", "model", "inputs", "room"),
    [
        (
            "zero-shot-classification",
            "bert_nli",
            {"text": "cat", "labels": ["cat", LONG]},
            "labels of at most 48",
        ),
        ("question-answering", "bert_reader", {"text": LONG, "context": "cat"}, "questions of at most 44"),
        ("fill-mask", "bert_masked", {"text": f"{LONG} [MASK]"}, "texts up to a gap of at most 63"),
        *(
            (f"zero-shot-{task}", model, {"image": "photo", "labels": ["cat", LONG]}, "labels of at most 48")
            for task, model in (
                ("image-classification", "clip"),
                ("image-classification", "siglip"),
                ("object-detection", "grounding_dino"),
            )
        ),
    ],
)
def test_what_must_be_read_whole_and_is_too_long_is_refused(
    bench: Bench, task: str, model: str, inputs: dict[str, Any], room: str
) -> None:
    with pytest.raises(UnsupportedError, match=rf"org/model reads {room} tokens, and one has \d+"):
        bench.ask(task, model, **inputs)
