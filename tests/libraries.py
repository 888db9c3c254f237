"""Libraries of extras that tests need, and that are imported no earlier than the tests run.

torch = needs("torch")      # the module is skipped without torch; torch.ones imports it
needs("diffusers")          # the code under test imports it
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest


class _Library:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # for which pytest asks all that a module names
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


def needs(name: str) -> Any:
    """A library that the tests of a module use; without it, the module is skipped.

    Each process of the tests collects all of them: to import torch, diffusers and gradio for the tests
    that another process runs takes longer than most tests.
    """
    if find_spec(name) is None:
        pytest.skip(f"needs {name}", allow_module_level=True)
    return _Library(name)
