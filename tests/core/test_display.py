"""Resources in notebooks: each kind has its HTML element, and content is escaped."""

import wave
from pathlib import Path

import pytest
from PIL import Image

from jarvis_agent.core.display import MAX_EMBEDDED_BYTES, ROWS
from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.types import Resource


def table_of(path: Path, content: str, mime: str = "text/csv") -> Resource:
    path.write_text(content, encoding="utf-8")
    return Resource(kind="table", path=path, mime=mime)


def test_an_unreadable_image_is_an_error_with_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.png"
    Image.new("RGB", (2, 2)).save(path)

    def decode(image: object) -> None:
        raise MemoryError

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", decode)
    with pytest.raises(BadInputError, match="cannot be read as an image: MemoryError"):
        Resource(kind="image", path=path).to_pil()


def test_each_kind_of_file_has_its_html_element_unless_it_is_large(tmp_path: Path) -> None:
    path = tmp_path / "made.bin"
    tags = {
        ("image", "image/png"): '<img src="data:image/png;base64,Ynl0ZXM=" alt="a label"',
        ("audio", "audio/wav"): '<audio controls src="data:audio/wav;base64,Ynl0ZXM="',
        ("video", "video/mp4"): '<video controls src="data:video/mp4;base64,Ynl0ZXM="',
        ("3d", "model/stl"): '<a download="made.bin" href="data:model/stl;base64,Ynl0ZXM="',
    }
    for (kind, mime), tag in tags.items():
        path.write_bytes(b"bytes")
        resource = Resource.model_validate({"kind": kind, "path": path, "mime": mime, "name": "a label"})
        assert tag in resource._repr_html_()
        with path.open("wb") as file:
            file.truncate(MAX_EMBEDDED_BYTES + 1)
        assert len(resource._repr_html_()) < 1000
        assert f"<code>{path}</code>" in resource._repr_html_()


def test_a_recording_shows_its_waveform(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as sound:
        sound.setparams((1, 2, 16_000, 0, "NONE", ""))
        sound.writeframes(b"\0\0" * 800 + b"\0\x80" * 800)
    shown = Resource(kind="audio", path=tmp_path / "a.wav", mime="audio/wav")._repr_html_()
    assert "M79 24V24M80 0V48" in shown
    (tmp_path / "a.wav").write_bytes((tmp_path / "a.wav").read_bytes()[:-1])
    assert "M80 0V48" in Resource(kind="audio", path=tmp_path / "a.wav", mime="audio/wav")._repr_html_()


def test_a_table_shows_its_header_and_first_rows(tmp_path: Path) -> None:
    rows = "".join(f"{n},row {n}\n" for n in range(ROWS + 5))
    shown = table_of(tmp_path / "t.csv", f"n,name\n{rows}")._repr_html_()
    assert "<tr><th>n</th><th>name</th></tr><tr><td>0</td><td>row 0</td></tr>" in shown
    assert shown.count("<tr>") == 1 + ROWS + 1
    assert f"row {ROWS - 1}" in shown
    assert f"row {ROWS}<" not in shown


def test_tables_may_use_tabs_and_their_content_is_escaped(tmp_path: Path) -> None:
    shown = table_of(tmp_path / "t.tsv", "a\tb\n1,5\t2\n", "text/tab-separated-values")._repr_html_()
    assert "<td>1,5</td><td>2</td>" in shown
    (tmp_path / "u.csv").write_bytes("größe;n\n1,5;2\n".encode("utf-16"))
    shown = Resource(kind="table", path=tmp_path / "u.csv")._repr_html_()
    assert "<th>größe</th><th>n</th></tr><tr><td>1,5</td><td>2</td>" in shown
    shown = table_of(tmp_path / "t.csv", "<script>a</script>,b\n<img src=x onerror=y>,2\n")._repr_html_()
    assert "<script>" not in shown
    assert "<img" not in shown
    assert "&lt;script&gt;" in shown
    for content in ("", "\0\0"):
        assert "t.csv" in table_of(tmp_path / "t.csv", content)._repr_html_()


def test_resources_without_a_file_are_shown_as_text(tmp_path: Path) -> None:
    data = Resource(kind="data", data={"a": "<b>"})
    assert data._repr_html_() == "<pre>{&quot;a&quot;: &quot;&lt;b&gt;&quot;}</pre>"
    gone = Resource(kind="image", path=tmp_path / "gone.png", mime="image/png")
    assert gone._repr_html_() == f"<pre>{gone.path}</pre>"
