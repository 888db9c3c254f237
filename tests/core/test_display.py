"""Resources in notebooks: each kind has its HTML element, and content is escaped."""

from __future__ import annotations

from pathlib import Path

import pytest

from jarvis_agent.core.display import MAX_EMBEDDED_BYTES, ROWS
from jarvis_agent.core.types import Resource


def table_of(path: Path, content: str, mime: str = "text/csv") -> Resource:
    path.write_text(content, encoding="utf-8")
    return Resource(kind="table", path=path, mime=mime)


@pytest.mark.parametrize(
    ("kind", "mime", "tag"),
    [
        ("image", "image/png", '<img src="data:image/png;base64,Ynl0ZXM=" alt="a label"'),
        ("audio", "audio/wav", '<audio controls src="data:audio/wav;base64,Ynl0ZXM="'),
        ("video", "video/mp4", '<video controls src="data:video/mp4;base64,Ynl0ZXM="'),
        ("3d", "model/gltf-binary", '<a download="made.bin" href="data:model/gltf-binary;base64,Ynl0ZXM="'),
    ],
)
def test_each_kind_of_file_has_its_html_element(tmp_path: Path, kind: str, mime: str, tag: str) -> None:
    path = tmp_path / "made.bin"
    path.write_bytes(b"bytes")
    shown = Resource(kind=kind, path=path, mime=mime, name="a label")._repr_html_()
    assert tag in shown
    assert f"<code>{path}</code>" in shown


def test_a_large_file_is_not_embedded(tmp_path: Path) -> None:
    path = tmp_path / "made.mp4"
    with path.open("wb") as file:
        file.truncate(MAX_EMBEDDED_BYTES + 1)
    shown = Resource(kind="video", path=path, mime="video/mp4")._repr_html_()
    assert f"<code>{path}</code>" in shown
    assert len(shown) < 1000


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
