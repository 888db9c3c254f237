"""The pages under docs/ agree with the code."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.registry import make_backends
from jarvis_agent.selection.sources.base import RegisteredSource, Registration
from jarvis_agent.core.settings import Settings
from jarvis_agent.core.tasks.registry import TASKS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ARCHITECTURE = (DOCS / "architecture.md").read_text(encoding="utf-8")
SOURCES = {"jarvis_agent": ROOT / "jarvis_agent", "jarvis_agent.tools": ROOT / "tools"}


def modules() -> dict[str, Path]:
    """Every module of the package and its file."""
    found = {}
    for package, folder in SOURCES.items():
        for file in folder.rglob("*.py"):
            parts = file.relative_to(folder).with_suffix("").parts
            if not any((folder / part).is_symlink() for part in parts):
                found[".".join([package, *parts]).removesuffix(".__init__")] = file
    return found


def imported(file: Path, known: set[str]) -> Iterator[str]:
    """Our modules that a file imports at its top, where each import is run."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module in known:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from inner & known or {str(node.module)}


MODULES = modules()
GRAPH = {name: set(imported(file, set(MODULES))) for name, file in MODULES.items()}


def test_imports_make_no_circle() -> None:
    assert len(list(TopologicalSorter(GRAPH).static_order())) == len(MODULES) > 80


def test_the_core_imports_nothing_that_stands_above_it() -> None:
    above = {name for name in GRAPH if name.split(".")[1:2] == ["agent"] or _is_adapter(name)}
    circumvented = {(name, needed) for name in GRAPH.keys() - above for needed in GRAPH[name] & above}
    assert "jarvis_agent.agent.agent" in above
    assert not circumvented


def _is_adapter(name: str) -> bool:
    return name.split(".")[1:2] in [["__main__"], ["cli"], ["console"], ["serve"], ["graph"]]


@pytest.mark.parametrize("page", ["settings.md", "tasks.md"])
def test_the_written_pages_are_those_of_the_code(page: str) -> None:
    spec = spec_from_file_location("write_pages", DOCS / "write_pages.py")
    assert spec is not None
    assert spec.loader is not None
    writer = module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert (DOCS / page).read_text(encoding="utf-8") == writer.PAGES[page](), "run python docs/write_pages.py"


def test_the_list_of_models_is_one_that_is_read(tmp_path: Path) -> None:
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "weights" / "detr").mkdir(parents=True)
    (tmp_path / "weights" / "detr" / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "models.yaml").write_text(written, encoding="utf-8")
    source = RegisteredSource.from_yaml(tmp_path / "models.yaml")
    listed = {
        task: asyncio.run(source.candidates(TASKS[task], 9)) for task in ("translation", "text-to-image")
    }
    assert [model.backend for model in listed["translation"]] == ["openai"]
    assert [model.backend for model in listed["text-to-image"]] == ["spaces", None]
    assert listed["text-to-image"][1].metadata["options"] == {"num_inference_steps": 2, "guidance_scale": 0.0}


def test_the_fields_of_a_description_are_those_that_there_are() -> None:
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.*?`) \|", page.partition("| field |")[2], re.MULTILINE)
    named = {name.partition(".")[0] for cell in cells for name in re.findall(r"`([\w.]+)`", cell)}
    assert len(named) > 10
    assert named <= Registration.model_fields.keys()


def test_the_backends_that_the_models_page_names_are_there() -> None:
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    rows = page.partition("| backend | models |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| ([\w-]+) \|", rows, re.MULTILINE))
    settings = Settings(offline=True)
    there = {backend.name for backend in make_backends(settings, ModelPool(1))}
    assert named <= there
    assert there - named == {"starter", "opencv", "media-tools"}


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`([\w/]+\.py)\b", ARCHITECTURE))))
def test_the_files_that_the_architecture_names_are_there(named: str) -> None:
    assert any((folder / named).is_file() for folder in (ROOT, ROOT / "jarvis_agent"))
