"""The pages under docs/ agree with the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

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
    assert "jarvis_agent.agent" in above
    assert not circumvented


def _is_adapter(name: str) -> bool:
    return name.split(".")[1:2] in [["cli"], ["console"], ["serve"]]


@pytest.mark.parametrize("page", ["settings.md", "tasks.md"])
def test_the_written_pages_are_those_of_the_code(page: str) -> None:
    spec = spec_from_file_location("write_pages", DOCS / "write_pages.py")
    assert spec is not None
    assert spec.loader is not None
    writer = module_from_spec(spec)
    spec.loader.exec_module(writer)
    assert (DOCS / page).read_text(encoding="utf-8") == writer.PAGES[page](), "run python docs/write_pages.py"


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`([\w/]+\.py)\b", ARCHITECTURE))))
def test_the_files_that_the_architecture_names_are_there(named: str) -> None:
    assert any((folder / named).is_file() for folder in (ROOT, ROOT / "jarvis_agent"))
