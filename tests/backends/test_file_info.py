"""Facts of files, without a model: dimensions, duration, and numbers of pages, words, frames and rows."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from PIL import Image
from result_bench import a_call

from jarvis_agent import JarvisAgent, Plan, Settings, hf_tools
from jarvis_agent.backends.algorithms import backend as algorithms
from jarvis_agent.core.errors import InputError
from jarvis_agent.core.tasks.registry import TASKS
from jarvis_agent.core.text import count_words
from jarvis_agent.core.types import Resource, Task
from jarvis_agent.media import tables
from jarvis_agent.media.detect import detect_media_type
from jarvis_agent.media.recordings import write_audio
from jarvis_agent.media.store import ResourceStore


def info_of(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The facts of a file without its name and size, and the notes."""
    kind, mime = detect_media_type(path)
    file = Resource(kind=kind, path=path, mime=mime)
    call = a_call(TASKS["media-info"], path.parent, file=file)
    info = algorithms.info(call)
    assert (info.pop("name"), info.pop("bytes")) == (path.name, path.stat().st_size)
    return info, call.notes


def test_words_are_counted_as_by_a_word_processor() -> None:
    for text, count in {
        "": 0,
        "Don't panic – it's a well-known test.": 6,
        "第一章 Hello 世界，3 遍": 8,
        "[" * 40_000: 0,
    }.items():
        assert (text[:40], count_words(text)) == (text[:40], count)


def test_an_image_has_a_size_as_it_is_shown_and_a_number_of_frames(tmp_path: Path) -> None:
    sideways = Image.Exif()
    sideways[0x0112] = 6
    frames = [Image.new("L", (6, 4), shade) for shade in (0, 90, 200)]
    frames[0].save(tmp_path / "a.jpg", exif=sideways)
    frames[0].save(tmp_path / "b.gif", save_all=True, append_images=frames[1:])
    assert info_of(tmp_path / "a.jpg") == ({"format": "JPEG", "width": 4, "height": 6}, [])
    assert info_of(tmp_path / "b.gif")[0] == {"format": "GIF", "width": 6, "height": 4, "frames": 3}
    (tmp_path / "c.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"garbage" * 9)
    with pytest.raises(InputError, match=r"c\.png is damaged"):
        info_of(tmp_path / "c.png")


def test_texts_tables_and_data_are_counted(tmp_path: Path) -> None:
    files = {
        "a.md": ("# Two words\n\nand 三个字\n", {"words": 6, "lines": 3, "characters": 20}, "Markdown"),
        "b.csv": ("city,people\nOslo,7\nBonn,3\n", {"rows": 2, "columns": ["city", "people"]}, "CSV"),
        "c.json": ('{"a": 1, "b": [2, 3]}', {"entries": 2}, "JSON"),
        "d.svg": ("<svg/>", {}, "SVG"),
        "f.vtt": (
            "WEBVTT\n\n00:01.000 --> 00:02.000\nHi there\n",
            {"words": 2, "lines": 1, "characters": 8},
            "VTT",
        ),
    }
    for name, (content, facts, form) in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        assert info_of(tmp_path / name) == ({"format": form, **facts}, [])
    (tmp_path / "e.json").write_text("[" * 100_000)
    info, (note,) = info_of(tmp_path / "e.json")
    assert info == {"format": "JSON"}
    assert "not valid JSON" in note


def test_rows_are_counted_in_a_table_that_is_too_large_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_ROWS", 50)
    path = tmp_path / "a.csv"
    names = ["stadt", "größe"]
    for encoding in ("cp1252", "utf-16", "utf-8"):
        path.write_bytes(("stadt;größe\n" + '"Köln\nam Rhein";1\n\n' * 60).encode(encoding))
        assert tables.table_shape(path)[:2] == (60, names)
    assert info_of(path) == ({"format": "CSV", "rows": 60, "columns": names}, [])
    path.write_text('a,b\n1,2\n3,"' + "4" * 200_000)
    info, (note,) = info_of(path)
    assert info == {"format": "CSV"}
    assert "line 3 of a.csv cannot be read" in note


def test_sound_alone_in_a_container_of_videos_is_a_recording(tmp_path: Path) -> None:
    av, np = pytest.importorskip("av"), pytest.importorskip("numpy")
    with av.open(tmp_path / "talk.webm", "w") as made:
        stream = made.add_stream("libopus", rate=48_000, layout="stereo")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 192_000), np.int16), format="s16", layout="stereo")
        frame.rate = 48_000
        made.mux(stream.encode(frame))
        made.mux(stream.encode(None))
    info, notes = info_of(tmp_path / "talk.webm")
    assert info.pop("duration") == pytest.approx(2.0, abs=0.1)
    assert (info, notes) == ({"format": "WEBM", "sampling_rate": 48_000, "channels": 2}, [])


def test_a_pdf_has_pages_and_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pypdfium2 import PdfDocument, PdfTextPage

    document = PdfDocument.new()
    for _ in range(3):
        document.new_page(100, 100)
    document.save(tmp_path / "scan.pdf")
    info, (note,) = info_of(tmp_path / "scan.pdf")
    assert info == {"format": "PDF", "pages": 3}
    assert "holds no text" in note
    texts = iter(["two words", "", ""])
    monkeypatch.setattr(PdfTextPage, "get_text_range", lambda page: next(texts))
    info, notes = info_of(tmp_path / "scan.pdf")
    assert info == {"format": "PDF", "pages": 3, "words": 2, "lines": 1, "characters": 9}
    assert notes == []


async def test_a_file_whose_facts_are_read_may_be_longer_than_what_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("soundfile")
    write_audio(tmp_path / "long.wav", [0.0] * 4000, 1000)
    monkeypatch.setattr("jarvis_agent.media.limits.MAX_SECONDS", 1)
    store = ResourceStore(Settings(output_dir=tmp_path / "made"))
    file = await store.resolve(await store.grant(str(tmp_path / "long.wav")), "file")
    assert algorithms.info(a_call(TASKS["media-info"], tmp_path, file=file))["duration"] == 4.0


def test_the_words_that_another_task_reads_are_counted(tmp_path: Path) -> None:
    """A text result becomes a file where a file is needed."""

    @tool
    def read_page() -> str:
        """Read the page."""
        return "five words on one page"

    tasks = [
        Task(task="read_page", id=0),
        Task(task="media-info", id=1, dep=[0], args={"file": "<resource>-0"}),
    ]
    written = Plan.parse(Plan(tasks=tasks).to_json(), tools=[read_page, "media-info"])
    assert (written.tasks, written.notes) == (tasks, [])
    settings = Settings(offline=True, output_dir=tmp_path)
    with JarvisAgent(
        planner=RunnableLambda(lambda _: written),
        tools=[read_page, *hf_tools(tasks=["media-info"], settings=settings)],
        settings=settings,
    ) as agent:
        result = agent.invoke("How many words are on the page?").results[1]
    assert result.status == "ok", result.error
    assert result.output["words"] == 5
    assert result.resources[-1].as_text() == "plain text, 5 words, 1 line, 22 characters, 22 bytes"
