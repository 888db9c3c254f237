"""docs/extending.md does what it says: its snippets run, and the package that it describes is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from readme_blocks import Block, blocks_of, is_kept, promises_of

from jarvis_agent import JarvisAgent

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "extending.md"
BLOCKS = blocks_of(PAGE)
PACKAGE = "As a package"
SNIPPETS = [block for block in BLOCKS if block.lang == "python" and block.section != PACKAGE]


def of_package(lang: str) -> str:
    (block,) = [block for block in BLOCKS if (block.section, block.lang) == (PACKAGE, lang)]
    return block.code


@pytest.mark.starter
@pytest.mark.timeout(120)
def test_the_snippets_run_one_after_the_other_and_print_what_they_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    promises = 0
    for block in SNIPPETS:
        _run(block, names)
        printed = capsys.readouterr().out
        promised = promises_of(block.code)
        assert not [promise for promise in promised if not is_kept(promise, printed)], printed
        promises += len(promised)
    assert promises == len(SNIPPETS) >= 4


def _run(block: Block, names: dict[str, Any]) -> None:
    exec(compile("\n" * (block.line - 1) + block.code, str(PAGE), "exec"), names)
    if isinstance(agent := names.pop("agent", None), JarvisAgent):
        agent.close()


def test_the_installed_package_is_known_to_the_command(tmp_path: Path) -> None:
    groups = tomllib.loads(of_package("toml"))["project"]["entry-points"]
    assert set(groups) == {"jarvis_agent.backends", "jarvis_agent.model_sources"}
    (tmp_path / "my_experts.py").write_text(of_package("python"), encoding="utf-8")
    installed = tmp_path / "my_experts-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: my-experts\nVersion: 1\n", encoding="utf-8"
    )
    lines = (
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in groups.items()
    )
    (installed / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "jarvis_agent", "models", "text-generation", "--json"],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    listed = {model["id"]: model["runs_on"] for model in json.loads(done.stdout)["models"]}
    assert listed["me/shout"] == "shouting"
