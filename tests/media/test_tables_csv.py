"""CSV files as columns: whatever program wrote them, and what is wrong with those that cannot be read."""

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


def test_columns_come_by_name_with_numbers_as_numbers(tmp_path: Path) -> None:
    columns = read(tmp_path, "city,people,share\nOslo,700000,0.5\nRome,-3,2e3\n")
    assert columns == {"city": ["Oslo", "Rome"], "people": [700000, -3], "share": [0.5, 2000.0]}
    assert list(columns) == ["city", "people", "share"]
    assert all(type(cell) is int for cell in columns["people"])


def test_cells_without_a_value_are_none_and_do_not_make_numbers_text(tmp_path: Path) -> None:
    assert read(tmp_path, "a,b,c\n1,,NA\n,x,2.5\nnull,NA,3\n") == {
        "a": [1, None, None],
        "b": [None, "x", "NA"],
        "c": [None, 2.5, 3.0],
    }


@pytest.mark.parametrize("text", ["1_000", "1e999", "inf", "0x10", "१"])
def test_what_only_python_reads_as_a_number_stays_text(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, f"a\n{text}\n") == {"a": [text]}


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_told_by_the_content(tmp_path: Path, delimiter: str) -> None:
    lines = [["name", "n"], ['"Doe, Jane; x"', "1"], ["Bob", "2"]]
    content = "\r\n".join(delimiter.join(line) for line in lines)
    assert read(tmp_path, content) == {"name": ["Doe, Jane; x", "Bob"], "n": [1, 2]}


def test_decimal_commas_are_read_where_semicolons_part_the_cells(tmp_path: Path) -> None:
    assert read(tmp_path, "a;b\n1,5;2,25\n2;3\n") == {"a": [1.5, 2.0], "b": [2.25, 3.0]}


def test_a_table_of_one_column_is_a_table(tmp_path: Path) -> None:
    assert read(tmp_path, "sales\n3\n4\n") == {"sales": [3, 4]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_encoding_is_told_by_the_content(tmp_path: Path, encoding: str) -> None:
    assert read(tmp_path, "Größe,n\nüber,1\n".encode(encoding)) == {"Größe": ["über"], "n": [1]}


def test_quoted_cells_keep_their_line_breaks(tmp_path: Path) -> None:
    assert read(tmp_path, 'a,b\n"two\nlines",1\n\n') == {"a": ["two\nlines"], "b": [1]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b\n", "no rows after its first line"),
        ("a,b\n1,2\n3,4\n5\n", "line 4 of table.csv has 1 cells, but its first line names 2 columns"),
        ("a,b,a\n1,2,3\n", "names a column twice: 'a'"),
        (b"PK\x03\x04\0\0\0", "is not text"),
        ("a,b\n1," + "x" * 200_000 + "\n", "line 2 of table.csv cannot be read: field larger"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        read(tmp_path, content)


def test_a_file_beyond_the_limits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_ROWS", 1)
    assert read(tmp_path, "a\n1\n") == {"a": [1]}
    with pytest.raises(BadInputError, match="more than 1 rows"):
        read(tmp_path, "a\n1\n2\n")


def test_a_table_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="must be a file"):
        read_table(Resource(kind="table"))
    with pytest.raises(BadInputError, match=r"gone\.csv cannot be read"):
        read_table(Resource(kind="table", path=tmp_path / "gone.csv"))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    columns: tables.Columns = {"": [0, 1], "na, me": ['ü "q"', "x\ny"], "n": [1.5, None]}
    write_table(tmp_path / "made.csv", columns)
    assert read_table(Resource(kind="table", path=tmp_path / "made.csv")) == columns


def test_columns_of_different_lengths_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shorter"):
        write_table(tmp_path / "made.csv", {"a": [1, 2], "b": [1]})
