"""Which of the optional packages are installed, by the extras of pyproject.toml. Nothing is imported.

missing_by_extra()      # {"local": [], "serve": ["langserve>=0.3.3,<0.4"], …}
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION = "langchain-hugginggpt"

_OF_EXTRAS = {"all", "dev"}
"""Extras that are made of others."""

_EXTRA = re.compile(r"""extra == ["']([\w-]+)["']""")


def missing_by_extra() -> dict[str, list[str]]:
    """For each extra that stands for itself, its requirements here that no installed version meets.

    Raises:
        PackageNotFoundError: langchain-hugginggpt is not installed, so nothing is known of its extras.
    """
    from packaging.requirements import Requirement

    missing: dict[str, list[str]] = {}
    for requirement in map(Requirement, requires(DISTRIBUTION) or []):
        named = _EXTRA.search(str(requirement.marker or ""))
        if requirement.marker is None or named is None or named[1] in _OF_EXTRAS:
            continue
        lacking = missing.setdefault(named[1], [])
        if requirement.marker.evaluate({"extra": named[1]}) and not _is_met(requirement):
            lacking.append(f"{requirement.name}{requirement.specifier}")
    return missing


def _is_met(requirement: Requirement) -> bool:
    installed = installed_version(requirement.name)
    return installed is not None and requirement.specifier.contains(installed, prereleases=True)


@cache
def installed_version(name: str) -> str | None:
    """The version of a distribution; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
