"""Media types, detected from the first bytes of a file."""

import io
import os
import socket
import zipfile
from pathlib import Path

import pytest

from jarvis_agent.core.errors import InputError
from jarvis_agent.media.detect import ODS, ODT, XLS, XLSX, detect_media_type, kind_by_name


def archive(members: dict[str, str]) -> bytes:
    """A ZIP archive whose members are compressed."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in members.items():
            file.writestr(name, text)
    return content.getvalue()


def test_the_content_decides_the_type(tmp_path: Path) -> None:
    cases = [
        ("a.glb", b"glTF\2\0\0\0" + bytes(20), "3d", "model/gltf-binary"),
        ("text.ply", b"ply\nformat ascii 1.0\n", "3d", "model/ply"),
        ("binary.ply", b"ply\r\nformat binary_little_endian 1.0\r\n\0\xff", "3d", "model/ply"),
        ("text.stl", b"solid cube\n", "3d", "model/stl"),
        ("binary.stl", bytes(80) + b"\4\0\0\0" + bytes(200), "3d", "model/stl"),
        ("a.obj", b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n", "3d", "model/obj"),
        ("a.csv", b"a,b\n1,2\n", "table", "text/csv"),
        ("a.mp4", b"no video at all", "text", "text/plain"),
        ("a.txt", b"glTF is a format", "text", "text/plain"),
        ("a.txt", b"ply\nwood is wood", "text", "text/plain"),
        ("a.txt", b"WEBVTT is a format\nwhich we use", "text", "text/plain"),
        ("a.csv", b"BMI,Age\n33.6,50\n", "table", "text/csv"),
        ("a.csv", b"MZ,Age\n33.6,50\n", "table", "text/csv"),
        ("utf16.txt", "The weather is fine, 今天很好 🙂.\n".encode("utf-16"), "text", "text/plain"),
        ("odd.txt", "A control\1 character\n".encode("utf-16"), "text", "text/plain"),
        ("layer1.mp3", (b"\xff\xfe\xc0\xc0" + bytes(412)) * 100, "audio", "audio/mpeg"),
        ("koi8.csv", "имя;город\nАнна;Москва\nИван;Казань\n".encode("koi8-r"), "table", "text/csv"),
        ("padded.csv", b"a,b\n1,2\n" + bytes(200), "table", "text/csv"),
        ("a.txt", b"\n{\\rtf1\\ansi Hello}", "text", "application/rtf"),
        ("a.txt", b"<!-- x -->" * 400 + b"<b>no page", "text", "text/plain"),
        ("a.xls", b"\xd0\xcf\x11\xe0" + bytes(508) + "Book".encode("utf-16-le") + bytes(56), "table", XLS),
        ("a.bin", archive({"xl\\workbook.xml": ""}), "table", XLSX),
        ("a.bin", archive({"content.xml": "", "mimetype": ODS}), "table", ODS),
        ("a.bin", archive({"META-INF/manifest.xml": "", "content.xml": ""}), "text", ODT),
    ]
    for name, head, kind, mime in cases:
        path = tmp_path / name
        path.write_bytes(head)
        assert detect_media_type(path) == (kind, mime), head


def test_subtitles_are_no_body_in_three_dimensions(tmp_path: Path) -> None:
    (tmp_path / "subtitles.stl").write_bytes(b"850STL25.0110009" + b"\0\1\xff\x8f" * 500)
    with pytest.raises(InputError, match="not a supported file type"):
        detect_media_type(tmp_path / "subtitles.stl")


def test_the_kind_of_a_missing_file_is_guessed_from_its_name() -> None:
    kinds = {"a.JPG": "image", "b.csv": "table", "c.zip": "file", "d": "file", "e.svg": "file"}
    kinds |= dict.fromkeys(("f.pdf", "g.docx", "h.epub", "http://x.org/i.html?a=b.png"), "text")
    kinds["http://[abc/x.png"] = "file"
    assert {name: kind_by_name(name) for name in kinds} == kinds


def test_a_name_may_hold_what_separates_the_parts_of_a_url(tmp_path: Path) -> None:
    for name, mime in {
        "q#1.csv": "text/csv",
        "what?.md": "text/markdown",
        "a;b#2.eml": "message/rfc822",
    }.items():
        (tmp_path / name).write_text("a,b\n1,2\n", "utf-8")
        assert detect_media_type(tmp_path / name)[1] == mime
    names = {"a#1.jpg": "image", "report.pdf#page=2": "text", "https://x.org/a.jpg?size=2#top": "image"}
    assert {name: kind_by_name(name) for name in names} == names


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files")
def test_special_files_and_unknown_types_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a pipe without a writer would block forever."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("a.png")
    Path("link.png").symlink_to("a.png")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("a.sock")
        for path in ("a.png", "link.png", "a.sock", "/dev/zero"):
            with pytest.raises(InputError, match=f"{Path(path).name} is a pipe, a socket or a device"):
                detect_media_type(Path(path))
    for folder, name in ((tmp_path, tmp_path.name), (Path(), ".")):
        with pytest.raises(InputError, match=f"{name} is a directory; name a file in it"):
            detect_media_type(folder)
    unknown = tmp_path / "x.bin"
    unknown.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(InputError, match="is damaged, or not a supported file type"):
        detect_media_type(unknown)
