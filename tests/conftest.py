"""What every test stands on: no network, no keys, no settings of the machine, and an empty Hub cache.

The environment is prepared while this file is imported, since huggingface_hub reads it once, at import.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator

import pytest

_HF_HOME = tempfile.TemporaryDirectory(prefix="jarvis-hf-home-")
_FOREIGN = ("JARVIS_", "OPENAI_", "HF_", "HUGGINGFACE_", "HUGGING_FACE_", "LANGSMITH_", "LANGCHAIN_")
_LOGGERS = ("", "jarvis_agent", "huggingface_hub", "transformers")

for _name in [name for name in os.environ if name.startswith(_FOREIGN)]:
    del os.environ[_name]
os.environ.update(
    HF_HOME=_HF_HOME.name,
    HF_HUB_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_DISABLE_XET="1",
    TOKENIZERS_PARALLELISM="false",
    NO_COLOR="1",
    COLUMNS="120",
)


def pytest_unconfigure() -> None:
    _HF_HOME.cleanup()


@pytest.fixture(autouse=True)
def _no_network() -> Iterator[None]:
    """A test that reaches for anything but this machine fails."""
    from jarvis_agent.testing import forbid_network

    with forbid_network():
        yield


@pytest.fixture(autouse=True)
def _no_grudges() -> Iterator[None]:
    """What failed in one test is asked in the next one."""
    from jarvis_agent import breaker

    yield
    breaker.shared.reset()


@pytest.fixture(autouse=True)
def _restored_environment() -> Iterator[None]:
    """Environment variables that a test, or a library in it, sets are gone after it."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        if name != "PYTEST_CURRENT_TEST":
            del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if name != "PYTEST_CURRENT_TEST"})


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    """Levels and propagation that a test sets are undone after it."""
    before = {name: (log.level, log.propagate) for name in _LOGGERS if (log := logging.getLogger(name))}
    threshold = logging.root.manager.disable
    yield
    logging.disable(threshold)
    for name, (level, propagate) in before.items():
        logger = logging.getLogger(name)
        logger.setLevel(level)
        logger.propagate = propagate
