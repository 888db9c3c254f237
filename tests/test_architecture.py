"""The structure of the package: layers, cycles and names."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAYERS = (
    "core",
    "media",
    "llm",
    "backends",
    "planning",
    "selection",
    "execution",
    "response",
    "tools",
    "agent",
    "testing",
    "evaluation",
    "interfaces",
)
"""Lowest first: a module imports its own layer and those before it."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the package and its file; links are not followed."""
    found = {}
    for folder, package in (("jarvis_agent", "jarvis_agent"), ("tools", "jarvis_agent.tools")):
        for file in sorted((ROOT / folder).rglob("*.py")):
            inner = file.relative_to(ROOT / folder)
            if not any((ROOT / folder / parent).is_symlink() for parent in inner.parents):
                name = ".".join([package, *inner.with_suffix("").parts])
                found[name.removesuffix(".__init__")] = file
    return found


@cache
def trees() -> dict[str, ast.Module]:
    """What each module says."""
    return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in modules().items()}


def _imports(tree: ast.AST) -> Iterator[str]:
    """Our modules that a module imports anywhere: at its top, in a function, for its types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in modules():
                    yield inner
                elif node.module in modules():
                    yield node.module


@cache
def graph() -> dict[str, set[str]]:
    """What each module imports. The root package exports lazily: it is no layer and no part of a cycle."""
    return {
        name: set(_imports(tree)) - {name, "jarvis_agent"}
        for name, tree in trees().items()
        if name != "jarvis_agent"
    }


def _cycles() -> list[list[str]]:
    left, found = {name: set(needed) for name, needed in graph().items()}, []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            loop = error.args[1]
            found.append(loop)
            left[loop[1]].discard(loop[0])
            left[loop[0]].discard(loop[1])
        else:
            return found


def _layer(module: str) -> int:
    return LAYERS.index(module.split(".")[1])


def test_the_package_has_a_folder_for_each_layer_and_no_loose_module() -> None:
    inside = {path.name for path in (ROOT / "jarvis_agent").iterdir()} - {"__pycache__"}
    assert inside == {*LAYERS, "prompts", "__init__.py", "__main__.py", "py.typed"}


def test_no_module_imports_from_a_higher_layer() -> None:
    upward = {
        (name, needed)
        for name, imported in graph().items()
        if name != "jarvis_agent.__main__"
        for needed in imported
        if _layer(needed) > _layer(name)
    }
    assert not upward


def test_planning_with_a_language_model_imports_no_offline_planner() -> None:
    offline = "jarvis_agent.planning.offline"
    outside = [name for name in graph() if name.startswith("jarvis_agent.planning") and offline not in name]
    assert outside
    assert not [(name, each) for name in outside for each in graph()[name] if each.startswith(offline)]


def test_only_the_planner_looks_for_files_in_a_request() -> None:
    after = [name for name in graph() if name.split(".")[1] in ("backends", "selection", "execution")]
    assert not [name for name in after if "jarvis_agent.core.file_mentions" in graph()[name]]


def test_imports_make_no_cycle() -> None:
    assert _cycles() == []


def test_no_public_class_name_is_used_twice() -> None:
    names = Counter(
        node.name
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    twice = sorted(name for name, count in names.items() if count > 1)
    assert twice == []
