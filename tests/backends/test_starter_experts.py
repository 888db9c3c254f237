"""Each starter model on a real input: its source, its backend, the pool, and a checked result."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest
from processes import run_python

from jarvis_agent import JarvisAgent, hf_tools
from jarvis_agent.backends.base import Call
from jarvis_agent.backends.jobs import Job, running
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.starter import speech
from jarvis_agent.backends.starter.backend import STARTERS, StarterBackend, load_expert
from jarvis_agent.backends.starter.images import running_text
from jarvis_agent.core.errors import BadInputError, ExpertError, UnsupportedError
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.types import Candidate, Resource
from jarvis_agent.media.recordings import read_audio, write_audio
from jarvis_agent.selection.sources.starter import StarterSource

EXAMPLES = Path(__file__).parents[2] / "examples"
CAT, PAGE, SPEECH = EXAMPLES / "cat.jpg", EXAMPLES / "page.png", EXAMPLES / "speech.wav"
SETTINGS = Settings(offline=True)
SAID = (
    "And Mr. John Dashwood had then leisure to consider how much there might be prudently in his power "
    "to do for them."
)
PRINTED = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
    "foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of Light, "
    "it was the season of Darkness, it was the spring of hope, it was the winter of despair, we had "
    "everything before us, we had nothing before us."
)

Run = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="module")
def pool() -> Iterator[ModelPool]:
    """The models stay loaded from test to test."""
    made = ModelPool(limit_bytes=2_000_000_000)
    yield made
    asyncio.run(made.close())


@pytest.fixture
def run(pool: ModelPool) -> Run:
    """Runs the starter model of a task. Paths among the inputs become resources."""

    async def call(task: str, **inputs: Any) -> Any:
        (candidate,) = await StarterSource(SETTINGS).candidates(TASKS[task], limit=1)
        backend = StarterBackend(SETTINGS, pool)
        assert backend.unsupported_reason(TASKS[task], candidate) is None
        given = {name: _resource(name, value) for name, value in inputs.items()}
        return await backend.run(Call(TASKS[task], candidate, given, Path, SETTINGS))

    return call


def _resource(name: str, value: Any) -> Any:
    return Resource(kind=name, path=value) if isinstance(value, Path) else value


def similarity(wanted: str, got: str) -> float:
    """The share of words that two texts have in common, in order."""
    said, heard = (re.findall(r"[a-z0-9']+", text.lower()) for text in (wanted, got))
    return SequenceMatcher(None, said, heard).ratio()


@pytest.mark.starter
async def test_a_photo_is_classified(run: Run) -> None:
    found = await run("image-classification", image=CAT)
    cats = [row for row in found if row["label"] in {"tabby", "tiger cat", "Egyptian cat"}]
    assert (found[0], len(found)) == (cats[0], 5)
    assert sum(row["score"] for row in cats) > 0.8
    assert "jarvis_agent_weights" not in sys.modules  # its data is read, not its code


@pytest.mark.starter
async def test_a_photo_that_nothing_here_can_describe_is_classified(tmp_path: Path) -> None:
    async with JarvisAgent(settings=Settings(offline=True, output_dir=tmp_path)) as agent:
        (result,) = (await agent.ainvoke(f"Describe {CAT}")).results
    assert (result.task.task, result.error) == ("image-to-text", None)
    assert result.output[0]["label"] in {"tabby", "tiger cat", "Egyptian cat"}
    assert "classified instead" in result.all_notes[0]


@pytest.mark.starter
async def test_a_page_is_read_and_a_blank_one_has_no_text(run: Run, tmp_path: Path) -> None:
    from PIL import Image

    read = await run("image-to-text", image=PAGE)
    assert read["generated_text"] == PRINTED
    assert len(read["lines"]) == 8
    first = read["lines"][0]
    assert first["text"] == "It was the best of times, it was the worst"
    assert first["score"] > 0.9
    assert 40 < first["box"]["xmin"] < 80 < 600 < first["box"]["xmax"] < 800
    Image.new("RGB", (320, 200), "white").save(tmp_path / "blank.png")
    assert await run("image-to-text", image=tmp_path / "blank.png") == {"generated_text": "", "lines": []}
    with Image.open(PAGE) as page:
        page.rotate(180).save(tmp_path / "upside down.png")
        turned = await run("image-to-text", image=tmp_path / "upside down.png")
        assert similarity(turned["generated_text"], PRINTED) > 0.98
        for line, upright in zip(turned["lines"], read["lines"], strict=True):
            assert abs(line["box"]["ymin"] - (page.height - upright["box"]["ymax"])) < 10


@pytest.mark.starter
@pytest.mark.parametrize("form", ["transparent.png", "deep.png", "pages.tif", "long.png", "wide.png"])
async def test_pages_are_read_in_all_forms(form: str, run: Run, tmp_path: Path) -> None:
    import numpy as np
    from PIL import Image, ImageOps

    page, count = Image.open(PAGE).convert("L"), 1
    path, first = tmp_path / form, "It was the best of times"
    line = page.crop((0, 40, page.width, 96))
    if form == "transparent.png":
        image = Image.new("RGBA", page.size)
        image.putalpha(ImageOps.invert(page))
        image.save(path)
    elif form == "deep.png":
        Image.fromarray(np.asarray(page).astype(np.uint16) * 257).save(path)
    elif form == "pages.tif":
        count = 2
        page.save(path, save_all=True, append_images=[page])
    elif form == "long.png":
        count = 5
        image = Image.new("L", (page.width, count * page.height), "white")
        for number in range(count):  # the reader cuts in the last quarter of 2,000 pixels
            image.paste(page if number == 3 else line, (0, number * page.height + 40 * (number != 3)))
        image.save(path)
    else:
        count = 3
        image = Image.new("L", (count * line.width, line.height))
        for number in range(count):
            image.paste(line, (number * line.width, 0))
        image.save(path)
    read = await run("image-to-text", image=path)
    assert read["generated_text"].count(first) == count
    if form == "long.png":
        tops = [line["box"]["ymin"] for line in read["lines"] if line["text"].startswith(first)]
        assert tops == [pytest.approx(tops[0] + number * page.height, abs=8) for number in range(count)]


@pytest.mark.starter
async def test_two_callers_are_both_transcribed(run: Run, tmp_path: Path) -> None:
    import numpy as np
    import soundfile

    speech = read_audio(SPEECH, 16_000)[0]
    other = np.roll(speech, 40_000)
    soundfile.write(tmp_path / "call.wav", np.stack([speech, 0.9 * other], axis=1), 16_000)
    heard = await run("automatic-speech-recognition", audio=tmp_path / "call.wav")
    first, _ = heard["text"].split("\n")
    assert similarity(SAID, first) >= 0.9


@pytest.mark.starter
async def test_an_uncertain_reading_is_noted(tmp_path: Path) -> None:
    async with JarvisAgent(settings=Settings(offline=True, output_dir=tmp_path)) as agent:
        photo, page = (await agent.ainvoke(f"Read the text in {CAT} and in {PAGE}")).results
    assert "the reading is uncertain" in photo.notes[0]
    assert page.notes == []


@pytest.mark.starter
async def test_of_an_animation_the_first_frame_is_read_and_said(tmp_path: Path) -> None:
    from PIL import Image

    with Image.open(PAGE) as page:
        page.save(tmp_path / "slides.webp", save_all=True, append_images=[Image.new("RGB", page.size)])
    async with JarvisAgent(settings=Settings(offline=True, output_dir=tmp_path)) as agent:
        (result,) = (await agent.ainvoke(f"Read the text in {tmp_path / 'slides.webp'}")).results
    assert result.notes == ["the first of 2 frames or pages was used"]


@pytest.mark.starter
async def test_a_cancelled_reading_stops_between_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    read = load_expert(STARTERS["PP-OCRv6-small"], SETTINGS)
    job = Job(
        Call(
            TASKS["image-to-text"],
            Candidate(id="a", task=""),
            {"image": _resource("image", PAGE)},
            Path,
            SETTINGS,
        )
    )
    job.cancelled = True
    with running((job,)), pytest.raises(ExpertError, match="stopped"):
        read(job.call)


def test_a_long_recording_is_cut_where_it_is_quiet() -> None:
    import numpy as np

    sound = np.ones(speech.MAX_SAMPLES * 2 + 5, np.float32)
    quiet = speech.MAX_SAMPLES - 5 * speech.SPEECH_RATE  # a second of silence, in the middle of the last ten
    sound[quiet : quiet + speech.SPEECH_RATE] = 0
    parts = list(speech.recording_parts(sound))
    assert sum(len(part) for _, part in parts) == len(sound)
    assert max(len(part) for _, part in parts) <= speech.MAX_SAMPLES
    assert [start for start, _ in parts[:2]] == [0, pytest.approx(quiet / speech.SPEECH_RATE, abs=1.0)]
    assert quiet <= len(parts[0][1]) <= quiet + speech.SPEECH_RATE
    ((start, whole),) = speech.recording_parts(sound[: speech.MAX_SAMPLES])
    assert (start, len(whole)) == (0, speech.MAX_SAMPLES)


@pytest.mark.starter
async def test_speech_is_transcribed_with_times_and_found_between_silences(run: Run, tmp_path: Path) -> None:
    import numpy as np

    heard = await run("automatic-speech-recognition", audio=SPEECH)
    assert similarity(SAID, heard["text"]) >= 0.95
    assert " ".join(chunk["text"] for chunk in heard["chunks"]) == heard["text"]
    times = [at for chunk in heard["chunks"] for at in chunk["timestamp"]]
    assert times == sorted(times)
    assert 5 < times[-1] <= 7.2
    silence = tmp_path / "silence.wav"
    write_audio(silence, [0.0] * 32_000, 16_000)
    assert await run("automatic-speech-recognition", audio=silence) == {"text": "", "chunks": []}
    assert await run("voice-activity-detection", audio=silence) == []
    speech, pause = read_audio(SPEECH, 16_000)[0], np.zeros(2 * 16_000, np.float32)
    write_audio(tmp_path / "a.wav", np.concatenate([pause, speech, pause, speech, pause]), 16_000)
    first, second = await run("voice-activity-detection", audio=tmp_path / "a.wav")
    assert 2.0 <= first["start"] < 2.6 < 8.5 < first["end"] <= 9.2
    assert 11.1 <= second["start"] < 11.7 < 17.6 < second["end"] <= 18.3


@pytest.mark.starter
async def test_noise_is_removed(run: Run, tmp_path: Path) -> None:
    import numpy as np

    clean, _ = read_audio(SPEECH, 16_000)
    noise = np.random.default_rng(0).normal(0, 0.5 * clean.std(), len(clean)).astype(np.float32)
    write_audio(tmp_path / "noisy.wav", clean + noise, 16_000)
    made = await run("audio-to-audio", audio=tmp_path / "noisy.wav")

    def ratio(heard: Any) -> float:
        """Signal to noise in dB."""
        return float(10 * np.log10((clean**2).sum() / ((heard - clean) ** 2).sum()))

    assert (made["sampling_rate"], made["audio"].shape) == (16_000, clean.shape)
    assert ratio(clean + noise) < 7
    assert ratio(made["audio"]) > ratio(clean + noise) + 6


@pytest.mark.starter
async def test_synthetic_speech_is_transcribed(run: Run, tmp_path: Path) -> None:
    text = PRINTED.partition(", it was the epoch")[0]
    spoken = await run("text-to-speech", text=text)
    seconds = write_audio(tmp_path / "spoken.wav", spoken["audio"], spoken["sampling_rate"])
    heard = await run("automatic-speech-recognition", audio=tmp_path / "spoken.wav")
    assert 4 < seconds < 12
    assert abs(spoken["audio"]).max() <= 1.0
    assert similarity(text, heard["text"]) >= 0.9


@pytest.mark.starter
async def test_what_is_hard_to_understand_is_transcribed_with_a_note(pool: ModelPool, tmp_path: Path) -> None:
    import numpy as np

    spec = TASKS["automatic-speech-recognition"]
    (model,) = await StarterSource(SETTINGS).candidates(spec, limit=1)
    backwards = read_audio(SPEECH, 16_000)[0][::-1]
    noise = np.random.default_rng(0).normal(0, 0.05, len(backwards))
    write_audio(tmp_path / "backwards.wav", backwards + noise, 16_000)
    for path, is_noted in ((SPEECH, False), (tmp_path / "backwards.wav", True)):
        call = Call(spec, model, {"audio": Resource(kind="audio", path=path)}, Path, SETTINGS)
        assert (await StarterBackend(SETTINGS, pool).run(call))["text"]
        assert ("this model knows English alone" in str(call.notes)) == is_noted


@pytest.mark.starter
async def test_the_voice_says_that_it_speaks_english_alone(pool: ModelPool) -> None:
    spec = TASKS["text-to-speech"]
    (voice,) = await StarterSource(SETTINGS).candidates(spec, limit=1)
    backend = StarterBackend(SETTINGS, pool)
    english, german, chinese = (
        Call(spec, voice, {"text": text}, Path, SETTINGS)
        for text in ("Hello — “you”.", "Schöne Grüße", "你好，世界")
    )
    for text in ("1" * 60, "https://example.org/" * 5, "[a](/b/)"):
        await backend.run(Call(spec, voice, {"text": text}, Path, SETTINGS))
    await backend.run(english)
    await backend.run(german)
    assert (english.notes, len(german.notes)) == ([], 1)
    with pytest.raises(UnsupportedError, match="English alone"):
        await backend.run(chinese)


@pytest.mark.starter
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is read from /proc")
def test_speech_of_a_text_without_full_stops_needs_little_memory() -> None:
    code = """if True:
        import contextlib, itertools, pathlib, re
        from jarvis_agent.backends import jobs
        from jarvis_agent.backends.base import Call
        from jarvis_agent.backends.starter import speech
        from jarvis_agent.backends.starter.backend import STARTERS, find_weights
        from jarvis_agent.core.errors import ExpertError
        from jarvis_agent.core.settings import Settings
        from jarvis_agent.core.tasks.registry import TASKS
        from jarvis_agent.core.types import Candidate
        model = STARTERS["maureesewilliams/hibari"]
        speak = speech.load_voice(find_weights(model), Settings())
        chunks = itertools.count()
        jobs.is_cancelled = lambda: next(chunks) == 2  # the others need no more memory, but time
        text = "word and other " * 140
        call = Call(TASKS["text-to-speech"], Candidate(id="a", task=""), {"text": text}, pathlib.Path, None)
        with contextlib.suppress(ExpertError):
            speak(call)
        # Unlike the peak of getrusage, this one does not include that of the process that started this one.
        print(re.search(r"VmHWM:\\s+(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[1])
    """
    assert int(run_python(code)) < 1_000_000  # as one sentence it needs nearly 2 GB


@pytest.mark.starter
async def test_labels_keep_their_order_and_vectors_have_length_one(run: Run) -> None:
    """Labels get similarities, which do not look like probabilities; there are none if none clearly fits."""
    for labels in (["politics", "sport", "cooking"], "politics, sport, cooking"):
        text = "Simmer the onions until they are golden."
        found = await run("zero-shot-classification", text=text, labels=labels)
        assert [row["label"] for row in found] == ["politics", "sport", "cooking"]
        similarities = [row["similarity"] for row in found]
        assert max(similarities) == similarities[2]
        assert sum(similarities) != pytest.approx(1, abs=0.05)
        assert all(row.keys() == {"label", "similarity"} for row in found)
    for labels in (["question", "order", "thank-you"], ["sport"]):
        text = "The parcel arrived broken. I want my money back."
        assert await run("zero-shot-classification", text=text, labels=labels) == []
    ((vector,),) = await run("feature-extraction", text="hello")
    assert sum(number**2 for number in vector) == pytest.approx(1, abs=1e-4)


@pytest.mark.starter
async def test_a_question_gets_the_lines_that_fit_it_or_an_error_with_the_text(
    run: Run, tmp_path: Path
) -> None:
    from PIL import Image, ImageDraw, ImageFont

    lines = ["Corner Shop", "Milk 2.50", "Bread 3.20", "Total 5.70 EUR", "Paid by card"]
    page, text = tmp_path / "bill.png", "\n".join(lines)
    image = Image.new("RGB", (800, 500), "white")
    for place, line in enumerate(lines):
        ImageDraw.Draw(image).text((40, 40 + 80 * place), line, "black", ImageFont.load_default(36))
    image.save(page)
    for question, answer in (
        ("How much was the total?", ["Total 5.70 EUR"]),
        ("How was it paid?", ["Paid by card"]),
    ):
        for found in (
            await run("document-question-answering", text=question, image=page),
            await run("question-answering", text=question, context=text),
        ):
            assert [row["answer"] for row in found] == answer
    context = "Who is the landlord?\nThe landlord is Mr. A. Reid, till the 24. December. He lives nearby."
    found = await run("question-answering", text="Who is the landlord?", context=context)
    assert [row["answer"] for row in found] == ["The landlord is Mr. A. Reid, till the 24. December."]
    for task, inputs in (
        ("document-question-answering", {"image": page}),
        ("question-answering", {"context": text}),
    ):
        with pytest.raises(UnsupportedError, match="Corner Shop Milk 2"):
            await run(task, text="Who is the president?", **inputs)
    Image.new("RGB", (320, 200), "white").save(page)
    with pytest.raises(UnsupportedError, match="no text was found"):
        await run("document-question-answering", text="Who?", image=page)


@pytest.mark.starter
async def test_empty_inputs_are_refused(run: Run, tmp_path: Path, subtests: pytest.Subtests) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    brackets = "[" * 9_000 + "]" * 9_000  # Piper would speak what double brackets contain as phonemes
    rows: list[tuple[str, dict[str, Any], str]] = [
        *(("text-to-speech", {"text": text}, "nothing to speak") for text in ("", "  \n", "...", brackets)),
        ("feature-extraction", {"text": " "}, "feature-extraction"),
        ("text-ranking", {"text": "a", "sentences": []}, "text-ranking"),
        ("zero-shot-classification", {"text": "a", "labels": " , "}, "zero-shot-classification"),
        ("automatic-speech-recognition", {"audio": empty}, "empty"),
        ("image-classification", {"image": empty}, "empty"),
    ]
    for task, inputs, message in rows:
        with subtests.test(task, inputs=str(inputs)), pytest.raises(BadInputError, match=message):
            await run(task, **inputs)


def test_lines_are_joined_to_running_text() -> None:
    for page, text in (
        ("", ""),
        ("one two\nthree", "one two three"),
        ("Milk\nBread and butter", "Milk\nBread and butter"),
        ("the end\n\nA new start", "the end\n\nA new start"),
        ("a hyphen-\nated word", "a hyphenated word"),
        ("Jean-\nPaul", "Jean- Paul"),
        ("机器\n学习", "机器学习"),
    ):
        assert running_text(page) == text


@pytest.mark.starter
async def test_texts_that_are_longer_than_what_the_model_reads_are_counted(tmp_path: Path) -> None:
    sentences = ["The weather is nice. " * 200, "The weather is nice."]
    (tool,) = hf_tools(tasks=["sentence-similarity"], settings=Settings(offline=True, output_dir=tmp_path))
    for compared in (sentences, sentences[1:]):
        answer = await tool.ainvoke({"text": "cancel my order", "sentences": compared})
        assert ("only the first 256 tokens" in answer) == (compared is sentences)
