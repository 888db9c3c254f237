"""The quickstart notebook runs, and its committed outputs are those of a run."""

from __future__ import annotations

import base64
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from PIL import Image

ROOT = Path(__file__).parent.parent
QUICKSTART = ROOT / "notebooks" / "quickstart.ipynb"


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def outputs_of(notebook: Any) -> Iterator[Any]:
    return (output for cell in notebook.cells for output in cell.get("outputs", ()))


def pictures_in(notebook: Any) -> list[Image.Image]:
    """All pictures in the outputs, including those within HTML."""
    encoded: list[str] = []
    for output in outputs_of(notebook):
        data = output.get("data", {})
        encoded += [data[mime] for mime in ("image/png", "image/jpeg") if mime in data][:1]
        encoded += re.findall(r'src="data:image/\w+;base64,([^"]+)"', data.get("text/html", ""))
    return [Image.open(io.BytesIO(base64.b64decode(text))) for text in encoded]


def text_in(notebook: Any) -> str:
    """All text of cells and outputs."""
    shown = [cell.source for cell in notebook.cells]
    for output in outputs_of(notebook):
        data = output.get("data", {})
        shown += [output.get("text", ""), *(data[mime] for mime in data if mime.startswith("text/"))]
    return re.sub(r"base64,[^\"]+", "", "\n".join(shown))


@pytest.mark.starter
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_notebook_runs_with_the_committed_outputs(tmp_path: Path) -> None:
    for folder in ("notebooks", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("outputs"))
    notebook = read(tmp_path / "notebooks" / QUICKSTART.name)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    where = {"metadata": {"path": str(tmp_path / "notebooks")}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=where).execute()

    sizes = [picture.size for picture in pictures_in(notebook)]
    assert sizes == [(451, 300)] * 4
    assert sizes == [picture.size for picture in pictures_in(read(QUICKSTART))]
    for said in ("tiger cat", "It was the best of times", "Mr. John Dashwood"):
        assert said in text_in(notebook)
        assert said in text_in(read(QUICKSTART))


def test_the_committed_notebook_was_run_in_order_without_errors() -> None:
    cells = [cell for cell in read(QUICKSTART).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for output in outputs_of(read(QUICKSTART)) if output.output_type == "error"]


def test_the_committed_notebook_has_no_warnings_and_a_text_for_each_picture() -> None:
    notebook = read(QUICKSTART)
    assert not [output for output in outputs_of(notebook) if output.get("name") == "stderr"]
    for output in outputs_of(notebook):
        for mime in output.get("data", {}):
            assert not mime.startswith("image/") or output.metadata[mime].alt
        page = output.get("data", {}).get("text/html", "")
        assert len(re.findall("<(?:img|svg)", page)) == len(
            re.findall('alt="[^"]+"|aria-label="[^"]+"', page)
        )
    assert 'pip install -c constraints.txt -e ".[starter]"' in notebook.cells[0].source


def test_the_committed_notebook_is_small_and_contains_no_local_paths() -> None:
    assert QUICKSTART.stat().st_size < 600_000
    folders = set(re.findall(r"(?<![\w.:/])/[a-z][\w-]*/[\w-]+(?=/)", text_in(read(QUICKSTART))))
    assert folders == {"/tmp/langchain-hugginggpt"}
