"""CSV files as columns: the dialects that are read, and the errors of files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.core.types import Resource
from jarvis_agent.media import tables
from jarvis_agent.media.tables import read_table, write_table


def read(folder: Path, content: str | bytes) -> tables.Columns:
    path = folder / "table.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_table(Resource(kind="table", path=path))


def test_cells_are_numbers_texts_or_missing(tmp_path: Path) -> None:
    columns = read(tmp_path, "city,people,share\nOslo,700000,0.5\nRome,-3,2e3\n")
    assert columns == {"city": ["Oslo", "Rome"], "people": [700000, -3], "share": [0.5, 2000.0]}
    assert list(columns) == ["city", "people", "share"]
    assert all(type(cell) is int for cell in columns["people"])
    assert read(tmp_path, "a,b,c\n1,,NA\n,x,2.5\nnull,NA,3\n") == {
        "a": [1, None, None],
        "b": [None, "x", "NA"],
        "c": [None, 2.5, 3.0],
    }
    for text in ("1_000", "1e999", "inf", "0x10", "१"):  # numbers to Python alone, or infinite
        assert read(tmp_path, f"a\n{text}\n") == {"a": [text]}


def test_delimiters_and_encodings_are_detected(tmp_path: Path) -> None:
    for delimiter in (",", ";", "\t", "|"):
        lines = [["name", "n"], ['"Doe, Jane; x"', "1"], ["Bob", "2"]]
        content = "\r\n".join(delimiter.join(line) for line in lines)
        assert read(tmp_path, content) == {"name": ["Doe, Jane; x", "Bob"], "n": [1, 2]}, delimiter
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        assert read(tmp_path, "Größe,n\nüber,1\n".encode(encoding)) == {"Größe": ["über"], "n": [1]}, encoding
    assert read(tmp_path, "a;b\n1,5;2,25\n2;3\n") == {"a": [1.5, 2.0], "b": [2.25, 3.0]}  # decimal commas
    assert read(tmp_path, "sales\n3\n4\n") == {"sales": [3, 4]}
    assert read(tmp_path, 'a,b\n"two\nlines",1\n\n') == {"a": ["two\nlines"], "b": [1]}


def test_the_error_of_a_file_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    cases: dict[str | bytes, str] = {
        "": "is empty",
        "\n\n": "is empty",
        "a,b\n": "no rows after its first line",
        "a,b\n1,2\n3,4\n5\n": "line 4 of table.csv has 1 cells, but its first line names 2 columns",
        "a,b,a\n1,2,3\n": "names a column twice: 'a'",
        b"PK\x03\x04\0\0\0": "is not text",
        "a,b\n1," + "x" * 200_000 + "\n": "line 2 of table.csv cannot be read: field larger",
    }
    for content, message in cases.items():
        with pytest.raises(BadInputError, match=message):
            read(tmp_path, content)
    with pytest.raises(BadInputError, match="must be a file"):
        read_table(Resource(kind="table"))
    with pytest.raises(BadInputError, match=r"gone\.csv cannot be read"):
        read_table(Resource(kind="table", path=tmp_path / "gone.csv"))


def test_a_written_table_is_read_back(tmp_path: Path) -> None:
    columns: tables.Columns = {"": [0, 1], "na, me": ['ü "q"', "x\ny"], "n": [1.5, None]}
    write_table(tmp_path / "made.csv", columns)
    assert read_table(Resource(kind="table", path=tmp_path / "made.csv")) == columns
    with pytest.raises(ValueError, match="shorter"):
        write_table(tmp_path / "made.csv", {"a": [1, 2], "b": [1]})
