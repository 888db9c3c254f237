"""Tables as people have them: dialects, lines around a table, numbers, workbooks, and what is refused."""

import csv
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from jarvis_agent.core.errors import BadInputError
from jarvis_agent.media import tables
from jarvis_agent.media.documents import load_text
from jarvis_agent.media.tables import Table, read_table, table_shape, write_table


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(folder: Path, content: str | bytes) -> Table:
    """The table in a file; its shape must be the same."""
    path = written(folder, content)
    table = read_table(path)
    rows, names, _ = table_shape(path)
    assert {len(cells) for cells in [*table.columns.values(), *table.cells.values()]} == {rows}
    assert list(table.columns) == list(table.cells) == names
    return table


def read_all(folder: Path, cases: Mapping[str, tables.Columns]) -> list[list[str]]:
    """The notes of tables that must have these columns."""
    found = {content: read(folder, content) for content in cases}
    assert {content: table.columns for content, table in found.items()} == cases
    return [table.notes for table in found.values()]


def test_cells_are_numbers_texts_or_missing(tmp_path: Path) -> None:
    columns = read(tmp_path, "city,people,share\nOslo,700000,0.5\nRome,-3,2e+3\n").columns
    assert columns == {"city": ["Oslo", "Rome"], "people": [700000, -3], "share": [0.5, 2000.0]}
    assert list(columns) == ["city", "people", "share"]
    assert all(type(cell) is int for cell in columns["people"])
    cases: dict[str, tables.Columns] = {
        "a,b,c\n1,,NA\n,x,2.5\nnull,NA,3\n": {
            "a": [1, None, None],
            "b": [None, "x", "NA"],
            "c": [None, 2.5, 3.0],
        },
        "a,b\n#N/A,1\n#WERT!,2\n5,#DIV/0!\n": {"a": [None, None, 5], "b": [1, 2, None]},
        'a\n""\n5\n-\n': {"a": [None, 5, None]},
        "a,b\n%,1\n5,2\n": {"a": ["%", "5"], "b": [1, 2]},
        "a,b\n..,1\n5,?\n6,--\n.,4\n": {"a": [None, 5, 6, None], "b": [1, None, None, 4]},
        "a,b\n1,﹣5\n-,\n﹣,–2\n": {"a": [1, None, None], "b": [-5, None, -2]},
    }
    # Numbers to Python alone, or infinite.
    for text in ("1_000", "1e999", "inf", "0x10", "१", "1" + " 000" * 1500):
        cases[f"a\n{text}\n"] = {"a": [text]}
    assert not any(read_all(tmp_path, cases))


def test_separators_and_encodings_are_detected(tmp_path: Path) -> None:
    for delimiter in (",", ";", "\t", "|"):
        lines = [["name", "n"], ['"Doe, Jane; x"', "1"], ["Bob", "2"]]
        content = "\r\n".join(delimiter.join(line) for line in lines)
        assert read(tmp_path, content).columns == {"name": ["Doe, Jane; x", "Bob"], "n": [1, 2]}, delimiter
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        table = read(tmp_path, "Größe,n\nüber,1\n".encode(encoding))
        assert table.columns == {"Größe": ["über"], "n": [1]}, encoding
        assert len(table.notes) == (encoding == "cp1252")
    cases: dict[str, tables.Columns] = {
        "a;b\n1,5;2,25\n2;3\n": {"a": [1.5, 2.0], "b": [2.25, 3.0]},
        "2026-01-01 10:00;21,5\n2026-01-01 11:00;21,7\n": {
            "column 1": ["2026-01-01 10:00", "2026-01-01 11:00"],
            "column 2": [21.5, 21.7],
        },
        "sep=|\r\na|b\r\nx, y|2\r\n": {"a": ["x, y"], "b": [2]},
        "note\nx\ty\nz\n1;2\nw\n": {"note": ["x\ty", "z", "1;2", "w"]},
        "sales\n3\n4\n": {"sales": [3, 4]},
        "DEPT  TVD GR  \n  1.5  20 0.1\n 11.5   3 -99.25\n": {
            "DEPT": [1.5, 11.5],
            "TVD": [20, 3],
            "GR": [0.1, -99.25],
        },
        "two words\nsee you\nroom 5\n": {"two words": ["see you", "room 5"]},
        'a,b\n"two\nlines",1\n\n': {"a": ["two\nlines"], "b": [1]},
        'a, b\n1, "Doe, J."\n2, "Roe, K."\n': {"a": [1, 2], "b": ["Doe, J.", "Roe, K."]},
        'a,b\n"say \\"hi\\", Ann",1\n': {"a": ['say "hi", Ann'], "b": [1]},
        'a,b\n"C:\\dir\\",1\n': {"a": ["C:\\dir\\"], "b": [1]},
        "| a | b |\n|---|---|\n| 1 | x |\n": {"a": [1], "b": ["x"]},
    }
    read_all(tmp_path, cases)


SALES: tables.Columns = {"month": ["2026-01", "2026-02", "2026-03"], "sales": [5, 6, 7]}
ROWS = "2026-01,5\n2026-02,6\n2026-03,7\n"


@pytest.mark.parametrize(
    ("content", "left_out"),
    [
        (f"Report 2026\n\nmonth,sales\n{ROWS}", "Report 2026"),
        (f"Report 2026,\n,\nmonth,sales\n{ROWS}", "Report 2026"),
        (f"Sales, by month\nmonth,sales\n{ROWS}", "Sales, by month"),
        (f"# a tool, v1\n# Monday\nmonth,sales\n{ROWS}", "# a tool, v1; # Monday"),
        ("month,sales\n2026-01,5\n# restarted, see log\n2026-02,6\n2026-03,7\n", "# restarted, see log"),
        (f"month,sales\n{ROWS}Total,18\n", "Total, 18"),
        (f"month,sales\n{ROWS}Average,6\n\nSource: till,\n,\n", "Average, 6; Source: till"),
        (f"month,sales\n{ROWS}\n(3 rows affected)\n", "(3 rows affected)"),
        ("month,sales\n2026-01,5\nmonth,sales\n2026-02,6\n2026-03,7\n", "month, sales"),
    ],
)
def test_lines_outside_the_table_are_left_out_and_named(tmp_path: Path, content: str, left_out: str) -> None:
    table = read(tmp_path, content)
    assert table.columns == SALES
    assert table.notes == [f"left out of the table: {left_out}"]


def test_the_number_of_many_lines_left_out_is_said(tmp_path: Path) -> None:
    titles = "Report 2026,\nSales,\nby month,\nall shops,\n"
    table = read(tmp_path, f"{titles},\nmonth,sales\n{ROWS}")
    said = "4 lines were left out of the table, such as: Report 2026; Sales; by month"
    assert (table.columns, table.notes) == (SALES, [said])


def test_a_few_words_in_a_column_of_numbers_are_said(tmp_path: Path) -> None:
    rows = [f"{n},{n},{n},{n or 'none given'},{n}%,-{n:03}\n" for n in range(20)]
    table = read(tmp_path, f"a,,c,d,e,f\n{''.join(rows)}bad,?,R2,5,$7,8\nx,y,7,5,3,8\n")
    assert table.columns["f"] == [*range(0, -20, -1), 8, 8]
    assert table.notes == [
        "columns were read as text because of a few cells: a (2: bad); column 2 (1: y); c (1: R2); …"
    ]
    assert table.columns["e"][-2] == "$7"
    rows = [f"{n}.5,{n},{n or ' * '},{n or '2e3'}\n" for n in range(20)]
    assert read(tmp_path, f"a,b,c,d\n{''.join(rows)}8.7     0.1,008,4,3\n").notes == [
        "columns were read as text because of a few cells: a (1: 8.7 0.1); b (1: 008); c (1: *); …"
    ]
    assert not read(tmp_path, "zip\n" + "10115\n" * 20 + "01234\n").notes
    assert read(tmp_path, "n\n" + "5%\n" * 20 + "6\n$12\n").notes == [
        "columns were read as text because of a few cells: n (1: $12)"
    ]
    assert read(tmp_path, "zip,,n\n01234,1.5%,7\n10115,2%,8\n").notes == ["1.5% in column 2 was read as 1.5"]


def test_a_second_table_below_the_first_is_named(tmp_path: Path) -> None:
    rows = "Oslo,5,0.5\nRome,7,0.6\nParis,8,0.4\n"
    second = f",,\nJuly,,\ncity,sold,share (%)\n{rows}"
    assert read(tmp_path, f"city,sales,share\n{rows}{second}").notes == [
        "another table seems to begin with the line: city, sold, share (%)"
    ]
    begins = "another table seems to begin with the line: {}"
    other = "city,a,b,c,d\nOslo,5,2,1,2\nRome,7,3,2,3\n,,,,\nmean,,,,4\nmost,,,,5\n"
    assert read(tmp_path, other).notes == [begins.format("mean, 4")]
    wider = "city,n,,\nOslo,5,,\nRome,7,,\n,,,\nname,born,city,job\nAnn,1990,Oslo,cook\n"
    assert read(tmp_path, wider).notes == [begins.format("name, born, city, job")]
    weeks = "day,early,noon,late\nMon,Ann,Bob,Cy\nTue,Ann,Bob,Cy\n\nMon,,Bob,\nTue,,Cy,\n"
    assert not read(tmp_path, weeks).notes
    assert read(tmp_path, f"city,sales,share\n{rows}{rows}Bern,closed,\n,,\n{rows}").notes == [
        "columns were read as text because of a few cells: sales (1: closed)"
    ]


def test_totals_titles_and_units_are_told_by_their_form(tmp_path: Path) -> None:
    bank = "Tag;Zweck;Betrag\n02.01.2026;Miete;-850,00\n03.01.2026;Lohn;2.500,00\n"
    cases: dict[str, tables.Columns] = {
        f"Konto;DE12 3456\nZeitraum;Januar\n\n{bank}": {
            "Tag": ["02.01.2026", "03.01.2026"],
            "Zweck": ["Miete", "Lohn"],
            "Betrag": [-850.0, 2500.0],
        },
        "year,n\n2020,5\n2021,6\n2022,9\nSumme,20\n": {"year": [2020, 2021, 2022], "n": [5, 6, 9]},
        "city,n,m\nOslo,5,1\nRom,6,2\nBonn,9,3\nAlle,20,6\n": {
            "city": ["Oslo", "Rom", "Bonn"],
            "n": [5, 6, 9],
            "m": [1, 2, 3],
        },
        "month,n\nQ1 2026,5\nQ2 2026,6\nQ3 2026,9\nSum,20\n": {
            "month": ["Q1 2026", "Q2 2026", "Q3 2026"],
            "n": [5, 6, 9],
        },
        "city,n\nOslo,5\nRom,7\nBonn,9\nBern,1\nTotal,22\nSource: me,\n": {
            "city": ["Oslo", "Rom", "Bonn", "Bern"],
            "n": [5, 7, 9, 1],
        },
        "group,city,n,m\nA,Oslo,5,1\nA,Rom,6,2\nB,Bonn,9,3\n,Total,20,6\n": {
            "group": ["A", "A", "B"],
            "city": ["Oslo", "Rom", "Bonn"],
            "n": [5, 6, 9],
            "m": [1, 2, 3],
        },
        "月份,销售额\n2026年1月,5\n2026年2月,6\n合计,11\n": {
            "月份": ["2026年1月", "2026年2月"],
            "销售额": [5, 6],
        },
        "t,temp\ns,°C\n0,20.5\n1,21\n2,22\n3,23\n": {"t": [0, 1, 2, 3], "temp": [20.5, 21.0, 22.0, 23.0]},
        "Report 2026\n\nn,y 2020,m\n5,A0,1\n7,A1,3\n8,A2,2\n": {
            "n": [5, 7, 8],
            "y 2020": ["A0", "A1", "A2"],
            "m": [1, 3, 2],
        },
        "Rate,,\n,,(%)\nland,0-14,65+\nOslo,5,6.5\nRom,7,8.5\n": {
            "land": ["Oslo", "Rom"],
            "0-14": [5, 7],
            "65+": [6.5, 8.5],
        },
        "land,people,\n,men,women\nOslo,5,6\nRom,7,8\n": {
            "land": ["Oslo", "Rom"],
            "men": [5, 7],
            "women": [6, 8],
        },
        "People\n,2020,2021\nOslo,5,6\nRom,7,8\n": {
            "": ["Oslo", "Rom"],
            "2020": [5, 7],
            "2021": [6, 8],
        },
        "Source\n\nland,1,2,3\nOslo,5,6,0\nRom,7,8,0\n": {
            "land": ["Oslo", "Rom"],
            "1": [5, 7],
            "2": [6, 8],
            "3": [0, 0],
        },
        "month,in,out\nJan,1000,5\nFeb,1200,7\n\nTotal,2200,12\n": {
            "month": ["Jan", "Feb"],
            "in": [1000, 1200],
            "out": [5, 7],
        },
        "Report:,May,,\nname,city,email,fax\nAnn,Oslo,,\nBob,Rome,,\nCy,Bern,c@x,none given\n": {
            "name": ["Ann", "Bob", "Cy"],
            "city": ["Oslo", "Rome", "Bern"],
            "email": [None, None, "c@x"],
            "fax": [None, None, "none given"],
        },
        "Total population,,,\n,all ages,,\nland,1990,1991,1992\nOslo,1500,6,0\nRom,7,8,9\n": {
            "land": ["Oslo", "Rom"],
            "1990": [1500, 7],
            "1991": [6, 8],
            "1992": [0, 9],
        },
        ",Group,\ncity,sold,kept\nOslo,5,6\nRome,7,8\n": {
            "city": ["Oslo", "Rome"],
            "sold": [5, 7],
            "kept": [6, 8],
        },
        "AMONG 5,Sex,,Where,\n,men,women,,\n,,,,\n,,,north,south\nAge,1,2,3,4\nPay,5,6,7,8\n": {
            "AMONG 5": ["Age", "Pay"],
            "men": [1, 5],
            "women": [2, 6],
            "north": [3, 7],
            "south": [4, 8],
        },
        "Total 5,,,,\nname,job,a,b,\nAnn,cook,5,7,\nBob,,6,8,\nname,job,a,b,\nCy,,4,9,x\n": {
            "name": ["Ann", "Bob", "Cy"],
            "job": ["cook", None, None],
            "a": [5, 6, 4],
            "b": [7, 8, 9],
            "": [None, None, "x"],
        },
        "Item,Sales,Price,Units\n,%,€,‰\nNorth,666,854,315\nSouth,7,8,9\nEast,5,6,7\nWest,1,2,3\n": {
            "Item": ["North", "South", "East", "West"],
            "Sales": [666, 7, 5, 1],
            "Price": [854, 8, 6, 2],
            "Units": [315, 9, 7, 3],
        },
        "Report of 2024,,,\nID,1,2,3\n1,29.14,,19.05\n2,17.94,22.16,17.08\n": {
            "ID": [1, 2],
            "1": [29.14, 17.94],
            "2": [None, 22.16],
            "3": [19.05, 17.08],
        },
        "Monthly overview,,\nProbe,1990,1991\nP1,36.16,17.21\nP2,30.01,12.5\n": {
            "Probe": ["P1", "P2"],
            "1990": [36.16, 30.01],
            "1991": [17.21, 12.5],
        },
        "Report of the year 2024\nTime;1990\n8:00;36.16\n9:00;17.21\n": {
            "Time": ["8:00", "9:00"],
            "1990": [36.16, 17.21],
        },
        "city,n\nOslo,5\n,\nRome,7\n,\nSource: till,\n": {"city": ["Oslo", "Rome"], "n": [5, 7]},
        "People,,\nname,city,job\nAnn,Oslo,cook\nBob,Rome,poet\n": {
            "name": ["Ann", "Bob"],
            "city": ["Oslo", "Rome"],
            "job": ["cook", "poet"],
        },
    }
    assert all(any("left out" in note for note in notes) for notes in read_all(tmp_path, cases))


def test_names_with_values_above_a_short_table_are_left_out(tmp_path: Path) -> None:
    account = (
        '"Konto:";"DE99 / Giro";\n"Von:";"01.01.2024";\n"Bis:";"31.01.2024";\n"Stand:";"1.234,56 EUR";\n'
    )
    cases: dict[str, tables.Columns] = {
        f'{account}"Tag";"Zweck";"Art";"Betrag";\n"05.01.2024";"Kauf";"A";"-23,10";\n'
        '"07.01.2024";"Lohn";"B";"2.500,00";\n': {
            "Tag": ["05.01.2024", "07.01.2024"],
            "Zweck": ["Kauf", "Lohn"],
            "Art": ["A", "B"],
            "Betrag": [-23.1, 2500.0],
        },
        "Account:,DE99,\nOwner:,Ann Lee,\nFrom:,01.01.2024,\nTo:,31.01.2024,\n"
        "Region,Jan,Feb\nWest,25,\nFun,117,n/a\nSouth,282,85\nRome,n/a,50\n": {
            "Region": ["West", "Fun", "South", "Rome"],
            "Jan": [25, 117, 282, None],
            "Feb": [None, None, 85, 50],
        },
        "Survey,Staff 2024\nSent,120\nAnswered,88\nRate,73%\n\nQuestion,Yes,No,Unsure\nHappy?,60,20,8\n": {
            "Question": ["Happy?"],
            "Yes": [60],
            "No": [20],
            "Unsure": [8],
        },
        "By,Al,\nSite,Dock 4,\nDay,Monday,\n,,\nCheck,OK,Remark\nLights,yes,\nDoors,no,stuck\nAlarm,yes,\n": {
            "Check": ["Lights", "Doors", "Alarm"],
            "OK": ["yes", "no", "yes"],
            "Remark": [None, "stuck", None],
        },
        "Company,Acme\nUnit,EUR\nAudited,no\nPage,7\nLine,2022,2023,2024\nSales,50,60,70\nCosts,40,45,50\n": {
            "Line": ["Sales", "Costs"],
            "2022": [50, 40],
            "2023": [60, 45],
            "2024": [70, 50],
        },
    }
    for notes in read_all(tmp_path, cases):
        assert len(notes) == 1
        assert "left out" in notes[0]
    project = [["Customer", "Acme"], ["Project", "Bridge"], ["Manager", "Ann"], ["Status", "open"], []]
    rows = [["Task", "Owner", "Hours", "Cost"], ["Draft", "Bob", 12, 600], ["Check", "Cy", 3, 150]]
    assert read_table(workbook(tmp_path / "book.xlsx", [*project, *rows])).columns == {
        "Task": ["Draft", "Check"],
        "Owner": ["Bob", "Cy"],
        "Hours": [12, 3],
        "Cost": [600, 150],
    }
    tree = "All,,,\n,North,,\n,,Oslo,\n,,,Ann\n,,,Bob\n,,Bergen,\n,,,Cy\n"
    assert table_shape(written(tmp_path, tree))[0] == 7


def test_rows_that_look_like_others_stay(tmp_path: Path) -> None:
    cases: dict[str, tables.Columns] = {
        "name,n\nAnn,5\nBob,6\nChristopher,\n": {"name": ["Ann", "Bob", "Christopher"], "n": [5, 6, None]},
        "id,n\nA1,5\nA2,6\nB,11\n": {"id": ["A1", "A2", "B"], "n": [5, 6, 11]},
        "x,y\na,0\nb,0\nc,1\nd,1\n": {"x": ["a", "b", "c", "d"], "y": [0, 0, 1, 1]},
        "code\n12\n9\nA\n": {"code": ["12", "9", "A"]},
        "code\n12\n9\nAB123\nA\nB\n": {"code": ["12", "9", "AB123", "A", "B"]},
        "name,n\nA,2\nB,1\n\nC,3\n": {"name": ["A", "B", "C"], "n": [2, 1, 3]},
        "name,n\n\nA,1\n\nB,2\n\nC,3\n\nD,6\n": {"name": ["A", "B", "C", "D"], "n": [1, 2, 3, 6]},
        "tag,n\n#sun,5\n#sea,7\n": {"tag": ["#sun", "#sea"], "n": [5, 7]},
        "rating\n***\n****\n*\n": {"rating": ["***", "****", "*"]},
        "sales eur in total\n1 234 567 890\n5 678 901 234\n": {
            "sales eur in total": [1234567890, 5678901234]
        },
        "phone number\n555 1234\n555 5678\n555 9999\n": {
            "phone number": ["555 1234", "555 5678", "555 9999"]
        },
        "plant,2020,2021,2022\nX,1950,1960,1970\nY,800,900,950\n": {
            "plant": ["X", "Y"],
            "2020": [1950, 800],
            "2021": [1960, 900],
            "2022": [1970, 950],
        },
        "#,name\n1,Ann\n2,Bob\n": {"#": [1, 2], "name": ["Ann", "Bob"]},
        "name,a,b\nAnn,5,1\nBob,6,2\nChristopher,,\nDo,,\n": {
            "name": ["Ann", "Bob", "Christopher", "Do"],
            "a": [5, 6, None, None],
            "b": [1, 2, None, None],
        },
        "name,a,b\nAnn,5,1\nBob,6,2\nCy,,\n": {
            "name": ["Ann", "Bob", "Cy"],
            "a": [5, 6, None],
            "b": [1, 2, None],
        },
    }
    assert not any(read_all(tmp_path, cases))


def test_rows_of_other_lengths_are_read(tmp_path: Path) -> None:
    clean: dict[str, tables.Columns] = {
        "a,b,,\n1,2,,\n3,4,,\n": {"a": [1, 3], "b": [2, 4]},
        "a;b\n1;2;\n3;4;\n": {"a": [1, 3], "b": [2, 4]},
        "|a|b|\n|1|2|\n|3|4|\n": {"a": [1, 3], "b": [2, 4]},
        "a,b\n1,2\n\n,\n3,4\n,\n": {"a": [1, 3], "b": [2, 4]},
        "a,b,\n1,2,x\n3,4,y\n": {"a": [1, 3], "b": [2, 4], "": ["x", "y"]},
    }
    assert not any(read_all(tmp_path, clean))
    cases: dict[str, tables.Columns] = {
        "a,b,c\n1,2,3\n4,5\n6\n": {"a": [1, 4, 6], "b": [2, 5, None], "c": [3, None, None]},
        "a,b\n1,2\n3,4,5\n": {"a": [1, 3], "b": [2, 4], "column 3": [None, 5]},
        '"x","y"\n"r1",5,6\n"r2",7,8\n': {"": ["r1", "r2"], "x": [5, 7], "y": [6, 8]},
        "a,a,b\n1,2,3\n": {"a": [1], "a 2": [2], "b": [3]},
        "column 3,a\n1,2\n3,4,5\n": {"column 3": [1, 3], "a": [2, 4], "column 3 2": [None, 5]},
    }
    assert read_all(tmp_path, cases) == [
        ["rows with fewer cells than the header, which were filled: 2"],
        ["rows with more cells than the header: 1"],
        ["the header has one cell fewer than the rows; the first column has no name"],
        ["the column a occurs twice; the second is called a 2"],
        ["rows with more cells than the header: 1"],
    ]
    many = read(tmp_path, "a," * 2000 + "a\n" + "1," * 2000 + "1\n")
    assert [*many.columns][::1000] == ["a", "a 1001", "a 2001"]
    assert many.notes == ["the column a occurs twice; the second is called a 2"]


def test_a_table_without_a_header_keeps_its_first_row(tmp_path: Path) -> None:
    cases: dict[str, tables.Columns] = {
        "1,2\n3,4\n": {"column 1": [1, 3], "column 2": [2, 4]},
        "5.1,setosa\n4.9,setosa\n": {"column 1": [5.1, 4.9], "column 2": ["setosa", "setosa"]},
        "Ann,31\nBob,28\n": {"column 1": ["Ann", "Bob"], "column 2": [31, 28]},
        "Ann,555-1234\nBob,555-9876\n": {"column 1": ["Ann", "Bob"], "column 2": ["555-1234", "555-9876"]},
        "Rent,1200\nFood,300\n": {"column 1": ["Rent", "Food"], "column 2": [1200, 300]},
        "test,1\nx,7\n": {"column 1": ["test", "x"], "column 2": [1, 7]},
        "1,2\n2,9\n3,1\n": {"column 1": [1, 2, 3], "column 2": [2, 9, 1]},
        "1,2\n": {"column 1": [1], "column 2": [2]},
        "a,1.5\nb,2\nc,3\nd,px\n": {"column 1": ["a", "b", "c", "d"], "column 2": ["1.5", "2", "3", "px"]},
    }
    note = "no line names the columns; they are called column 1, column 2"
    assert read_all(tmp_path, cases) == [[note]] * 9
    wider: dict[str, tables.Columns] = {
        "A,1000,1500,2000\nB,1200,1800,2400\n": {
            "column 1": ["A", "B"],
            "column 2": [1000, 1200],
            "column 3": [1500, 1800],
            "column 4": [2000, 2400],
        },
        "1990,1995,2000\n1991,1996,2001\n": {
            "column 1": [1990, 1991],
            "column 2": [1995, 1996],
            "column 3": [2000, 2001],
        },
        "1,,\n2,3,\n4,5,6\n7,8,9\n": {
            "column 1": [1, 2, 4, 7],
            "column 2": [None, 3, 5, 8],
            "column 3": [None, None, 6, 9],
        },
    }
    assert read_all(tmp_path, wider) == [[f"{note}, column 3"]] * 3
    titled: dict[str, tables.Columns] = {
        "Summary,\nSpring,\nRent,$5\nFood,$3\n": {"column 1": ["Rent", "Food"], "column 2": [5, 3]},
        "Summary,,\n1,Rent,A\nPlans,,\n2,Food,B\n": {
            "column 1": ["1", "Plans", "2"],
            "column 2": ["Rent", None, "Food"],
            "column 3": ["A", None, "B"],
        },
    }
    assert read_all(tmp_path, titled) == [
        [note, "left out of the table: Summary; Spring"],
        [f"{note}, column 3", "left out of the table: Summary"],
    ]
    named: dict[str, tables.Columns] = {
        "land,2020,2021\nOslo,5,6\nRom,7,8\n": {"land": ["Oslo", "Rom"], "2020": [5, 7], "2021": [6, 8]},
        "land,1/22/20\nOslo,5\nRom,7\n": {"land": ["Oslo", "Rom"], "1/22/20": [5, 7]},
        "age,<15,15–64,65+\nOslo,5,9,6\n": {"age": ["Oslo"], "<15": [5], "15–64": [9], "65+": [6]},
        "stop,8:00,2019/2020\nOslo,5,6\nRom,7,8\n": {
            "stop": ["Oslo", "Rom"],
            "8:00": [5, 7],
            "2019/2020": [6, 8],
        },
        "name,begin,middle,end\n\nAnn,1990,1995,2000\n": {
            "name": ["Ann"],
            "begin": [1990],
            "middle": [1995],
            "end": [2000],
        },
        ",city\n0,Oslo\n1,Rome\n": {"": [0, 1], "city": ["Oslo", "Rome"]},
        ",0\n0,5\n1,6\n": {"": [0, 1], "0": [5, 6]},
        "name,\nAnn,5\nBob,6\n": {"name": ["Ann", "Bob"], "": [5, 6]},
        ",0,1\n0,5,6\n1,7,8\n": {"": [0, 1], "0": [5, 7], "1": [6, 8]},
        "0,1\n5,6\n7,8\n": {"0": [5, 7], "1": [6, 8]},
        "land,2020\nOslo,5\nRom,7\n": {"land": ["Oslo", "Rom"], "2020": [5, 7]},
        "Product,1,2\nApples,2,2\n": {"Product": ["Apples"], "1": [2], "2": [2]},
        "name,city\nAnn,Oslo\n": {"name": ["Ann"], "city": ["Oslo"]},
    }
    assert not any(read_all(tmp_path, named))


def test_identifiers_stay_text(tmp_path: Path) -> None:
    columns = {
        "zip": ["01234", "10115"],
        "order": ["12345678901234567890", "12345678901234567891"],
        "level": ["-01", "-007"],
        "phone": ["+49301234567", "+49 30 765"],
        "version": ["1.2.3", "1.10.0"],
    }
    lines = [",".join(row) for row in zip(*columns.values(), strict=True)]
    table = read(tmp_path, "\n".join([",".join(columns), *lines]))
    assert (table.columns, table.cells, table.notes) == (columns, columns, [])


@pytest.mark.parametrize(
    ("content", "value", "is_noted"),
    [
        ('a,b\n"1,234",x\n567,y\n', [1234, 567], True),
        ('a,b\n"1,234.50",x\n5,y\n', [1234.5, 5.0], False),
        ('a,b\n"12,34,567",x\n5,y\n', [1234567, 5], False),
        ("a,b\n1.234,x\n2.500,y\n", [1.234, 2.5], False),
        ("a;b\n1.234;x\n2.500;y\n", [1234, 2500], True),
        ("a;b\n1.234;0,5\n2.500;1,5\n", [1234, 2500], True),
        ("a;b\n1.234;0.5\n2.500;1.5\n", [1.234, 2.5], False),
        ("a;b\n1.5;x\n2.25;y\n", [1.5, 2.25], False),
        ("a;b\n1.234,50;x\n-2,5;y\n", [1234.5, -2.5], False),
        ("a;b\n5,00-;x\n1,5E+03;y\n", [-5.0, 1500.0], False),
        ("a,b\n1'234.5,x\n7,y\n", [1234.5, 7.0], False),
        ("a,b\n1 234,x\n1\u00a0234,y\n1\u202f234,z\n12\u2009345,w\n", [1234, 1234, 1234, 12345], False),
        ("a,b\n5 €,x\n-€3.50,y\n\u22122 €,z\n", [5.0, -3.5, -2.0], False),
        ("a,b\n$5,x\n€7,y\n8,z\n", ["$5", "€7", "8"], False),
        ("a,b\n$5,x\n40%,y\n8,z\n", ["$5", "40%", "8"], False),
        ("a,b\n-032,x\n-5,y\n8,z\n", [-32, -5, 8], False),
        ("a,b\n1E5,x\n2E3,y\n", ["1E5", "2E3"], False),
        ("a,b\n5-,x\n4-,y\n", ["5-", "4-"], False),
        ("a,b\n5 %,x\n12.5%,y\n", [5.0, 12.5], True),
        ('a,b\n(5),x\n"($1,234)",y\n', [-5, -1234], True),
        ('a,b\n"1,5",x\n2.5,y\n', ["1,5", "2.5"], False),
    ],
)
def test_numbers_are_read_as_people_write_them(
    tmp_path: Path, content: str, value: list[Any], is_noted: bool
) -> None:
    table = read(tmp_path, content)
    assert table.columns["a"] == value
    assert [type(cell) for cell in table.columns["a"]] == [type(cell) for cell in value]
    first = table.cells["a"][0]
    assert table.notes == [f"{first} in the column a was read as {value[0]}"] * is_noted


def test_the_error_of_a_file_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    cases: dict[str | bytes, str] = {
        "": "is empty",
        "\n\n": "is empty",
        "a,b\n": "no rows after its first line",
        b"\x89\0\0\0\xff\xfe\0\xdc\0\0": "is not text",
        b"PK\x03\x04\0\0\0": "table.csv cannot be read as a workbook: it is damaged",
        b"\xd0\xcf\x11\xe0" + bytes(2000): "as a workbook: it is damaged, or protected by a password",
        "a,b\n1," + "x" * 200_000 + "\n": "line 2 of table.csv cannot be read: field larger",
        'a,b\n1,"x\n2,y\n3,z\n': "line 4 of table.csv cannot be read: a quotation mark .* never closed",
    }
    for content, message in cases.items():
        with pytest.raises(BadInputError, match=message):
            read_table(written(tmp_path, content))
    with pytest.raises(BadInputError, match=r"gone\.csv cannot be read"):
        read_table(tmp_path / "gone.csv")


def test_a_written_table_is_read_back(tmp_path: Path) -> None:
    columns: tables.Columns = {"": [0, 1], "na, me": ['ü "q"', "x\ny\rz"], "n": [1.5, None]}
    write_table(tmp_path / "made.csv", columns)
    assert read_table(tmp_path / "made.csv").columns == columns
    with pytest.raises(ValueError, match="shorter"):
        write_table(tmp_path / "made.csv", {"a": [1, 2], "b": [1]})


def test_a_long_table_is_counted_as_it_is_read(tmp_path: Path) -> None:
    rows = [[f"2026-01-{place % 28 + 1:02}", place, f"text {place}"] for place in range(5000)]
    with (tmp_path / "long.csv").open("w", newline="") as file:
        lines = [["A title"], [], ["day", "n", "text"], *rows, ["Total", 7, ""], ["Source"]]
        csv.writer(file).writerows(lines)
    table = read_table(tmp_path / "long.csv")
    assert table_shape(tmp_path / "long.csv")[:2] == (5000, ["day", "n", "text"])
    assert table.columns["n"] == list(range(5000))
    assert table.notes == ["left out of the table: A title; Total, 7; Source"]


# ---- Workbooks


def workbook(path: Path, *sheets: Sequence[Sequence[Any]], cell: str = "", merged: str = "") -> Path:
    """An XLSX file with these rows on its sheets; `cell` is the XML of one more cell on the first.

    `merged` are ranges of cells.
    """
    kinds = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    parts = "http://schemas.openxmlformats.org/package/2006"
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    names = "".join(f'<sheet name="S{n}" sheetId="{n}" r:id="r{n}"/>' for n, _ in enumerate(sheets, 1))
    links = "".join(
        f'<Relationship Id="r{n}" Type="{kinds}/worksheet" Target="worksheets/s{n}.xml"/>'
        for n, _ in enumerate(sheets, 1)
    )
    styles = f'<Relationship Id="s" Type="{kinds}/styles" Target="styles.xml"/>'
    files = {
        "_rels/.rels": f'<Relationships xmlns="{parts}/relationships"><Relationship Id="r" '
        f'Type="{kinds}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook {main} xmlns:r="{kinds}"><sheets>{names}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{parts}/relationships">{links}{styles}'
        "</Relationships>",
        "xl/styles.xml": f'<styleSheet {main}><numFmts><numFmt numFmtId="164" formatCode="00000"/>'
        '<numFmt numFmtId="165" formatCode="00000\\-0000"/><numFmt numFmtId="166" formatCode="0.00"/>'
        '<numFmt numFmtId="167" formatCode="[h]:mm:ss"/></numFmts>'
        '<cellXfs count="6"><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="165"/>'
        '<xf numFmtId="166"/><xf numFmtId="167"/></cellXfs></styleSheet>',
    }
    for number, rows in enumerate(sheets, 1):
        lines = [f"<row>{''.join(map(_cell, row))}</row>" for row in rows]
        lines += [cell] if number == 1 else []
        merges = "".join(f'<mergeCell ref="{cells}"/>' for cells in merged.split())
        files[f"xl/worksheets/s{number}.xml"] = (
            f"<worksheet {main}><sheetData>{''.join(lines)}</sheetData>"
            f"{f'<mergeCells>{merges}</mergeCells>' if merged else ''}</worksheet>"
        )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    if isinstance(value, tuple):  # a date, as its day since 1900
        return f'<c s="1"><v>{value[0]}</v></c>'
    return f"<c><v>{value}</v></c>" if value is not None else "<c/>"


def test_the_first_sheet_with_cells_is_read(tmp_path: Path) -> None:
    rows = [["Report"], [None], ["day", "zip", "n"], [(46023,), "01234", 5], [(46024,), "00501", 6.5]]
    path = workbook(tmp_path / "book.xlsx", [], rows, [["other"], [1]])
    table = read_table(path)
    days = ["2026-01-01", "2026-01-02"]
    assert table.columns == {"day": days, "zip": ["01234", "00501"], "n": [5.0, 6.5]}
    assert table.cells["n"] == ["5", "6.5"]
    assert table.notes == ["the sheet S2 was read, the first of 2", "left out of the table: Report"]
    assert table_shape(path)[:2] == (2, ["day", "zip", "n"])
    assert read_table(workbook(tmp_path / "one.xlsx", rows[2:], [])).notes == []
    with pytest.raises(BadInputError, match="is empty"):
        read_table(workbook(tmp_path / "none.xlsx", []))
    lines = '<row><c t="inlineStr"><is><t>two&#13;lines</t></is></c><c><v>5</v></c></row>'
    table = read_table(workbook(tmp_path / "lines.xlsx", [["a", "b"]], cell=lines))
    assert table.columns == {"a": ["two\nlines"], "b": [5]}


def test_a_label_merged_over_rows_is_that_of_each(tmp_path: Path) -> None:
    rows: list[Any] = [["Sales"], ["year", "city", "sales", "bonus"], [2024, "Oslo", 5, 90]]
    rows += [[None, "Rome", 7, None], [], [None, None, 8, None], [2025, "Oslo", 6, 40]]
    path = workbook(tmp_path / "book.xlsx", rows, merged="A1:D1 A3:A6 B4:B6 D3:D6 F8:F99999999999")
    assert read_table(path).columns == {
        "year": [2024, 2024, 2024, 2025],
        "city": ["Oslo", "Rome", "Rome", "Oslo"],
        "sales": [5, 7, 8, 6],
        "bonus": [90, None, None, 40],  # an amount of several rows is counted once
    }
    budget = [["unit", "budget", "who"], ["Sales", 900, "Ann"], [None, None, "Bob"], ["IT", 70, "Eve"]]
    path = workbook(tmp_path / "budget.xlsx", budget, merged="A2:A3 B2:B3")
    made = read_table(path).columns
    assert (made["unit"], made["budget"]) == (["Sales", "Sales", "IT"], [900, None, 70])
    path = workbook(tmp_path / "last.xlsx", budget[:3], merged="A2:A3")
    assert read_table(path).columns["unit"] == ["Sales", "Sales"]


def test_numbers_that_a_workbook_shows_with_leading_zeros_keep_them(tmp_path: Path) -> None:
    rows: list[Any] = [("zip", "plus", "price"), (501, 5010002, 3), (12345, 123456789, 4.5), (123456, 1, -7)]
    lines = list[str]()
    for number, row in enumerate(rows, 3):
        cells = (
            f'<c r="{column}{number}" t="str"><v>{value}</v></c>'
            if isinstance(value, str)
            else f'<c r="{column}{number}" s="{style}"><v>{value}</v></c>'
            for column, style, value in zip(("C", "D", "E"), (2, 3, 4), row, strict=True)
        )
        lines.append(f'<row r="{number}">{"".join(cells)}</row>')
    path = workbook(tmp_path / "codes.xlsx", [], cell="".join(lines))
    assert read_table(path).columns == {
        "zip": ["00501", "12345", "123456"],
        "plus": ["00501-0002", "12345-6789", "00000-0001"],
        "price": [3, 4.5, -7],
    }


def test_durations_are_hours_minutes_and_seconds(tmp_path: Path) -> None:
    days = (1, -1.2, 1.5)
    rows = "".join(f'<row><c s="5"><v>{number}</v></c></row>' for number in days)
    table = read_table(workbook(tmp_path / "book.xlsx", [["took"]], cell=rows))
    assert table.columns == {"took": ["24:00:00", "-28:48:00", "36:00:00"]}


def test_formulas_without_a_value_are_said(tmp_path: Path) -> None:
    cells = ["<c><f>B2*2</f><v/></c>", "<c><f>B2*2</f><v>8</v></c>", '<c><f t="shared" si="0"/></c>']
    cells += ['<c t="str"><f>IF(B2,"late","")</f><v></v></c>']  # its value is an empty text
    cells += ['<c t="e"><f>1/0</f><v>#DIV/0!</v></c>']
    rows = "".join(f"<row><c><v>{n}</v></c>{cell}</row>" for n, cell in enumerate(cells))
    table = read_table(workbook(tmp_path / "book.xlsx", [["n", "twice"]], cell=rows))
    assert table.cells == {"n": ["0", "1", "2", "3", "4"], "twice": ["", "8", "", "", ""]}
    assert table.notes == ["formulas with an error or without a stored value, which are empty: 3"]


def test_a_workbook_that_states_a_trillion_cells_is_refused(tmp_path: Path) -> None:
    cell = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    path = workbook(tmp_path / "bomb.xlsx", [["a"], [1]], cell=cell)
    for act in (read_table, table_shape):
        with pytest.raises(BadInputError, match=r"bomb\.xlsx cannot be read as a workbook: .*too large"):
            act(path)
    tall = '<row r="1048576"><c r="A1048576"><v>2</v></c></row>'
    before = os.times().children_user
    assert read_table(workbook(tmp_path / "tall.xlsx", [["a"], [1]], cell=tall)).columns == {"a": [1, 2]}
    assert os.times().children_user - before < 15, "seconds for a million rows"


def test_a_workbook_is_its_first_sheet_where_a_text_is_needed(tmp_path: Path) -> None:
    path = workbook(tmp_path / "book.xlsx", [["city", "n"], ["Oslo", 1], ["Rome", 2]])
    assert load_text(path) == ("city,n\nOslo,1\nRome,2", [])
