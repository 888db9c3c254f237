"""Which optional packages are missing, by extra."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from jarvis_agent.interfaces.cli import extras

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_an_extra_lacks_what_is_not_installed_and_what_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [
        "core>=1",
        'torch>=2; extra == "local"',
        'av>=14; extra == "local"',
        "gone; extra == 'starter-tts'",
        "elsewhere; sys_platform == 'no-such-system' and extra == 'starter-tts'",
        'old>=2; python_version >= "3" and extra == "community"',
        'new>=2; extra == "community"',
        'langchain-hugginggpt[local]; extra == "all"',
    ]
    versions = {"torch": "2.9+cpu", "av": "14.1", "old": "1.0", "new": "3.0rc1"}
    monkeypatch.setattr(extras, "requires", lambda _: wanted)
    monkeypatch.setattr(extras, "installed_version", versions.get)
    assert extras.missing_by_extra() == {"local": [], "starter-tts": ["gone"], "community": ["old>=2"]}


def test_the_extras_are_those_of_the_project() -> None:
    assert set(extras.missing_by_extra()) == set(PROJECT["optional-dependencies"]) - {"all", "dev"}


def test_versions_are_found_without_importing() -> None:
    assert extras.installed_version("surely-no-such-distribution") is None
    assert extras.installed_version("pytest") == pytest.__version__
