"""Runs models of the Hub with transformers, from a directory, the Hub's cache, or a download.

    backend = TransformersBackend(pool, settings)
    backend.why_not(spec, candidate)       # None, or why it can not run this candidate
    raw = await backend.run(call)

What it can do is the table in transformers_tasks.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from jarvis_agent.backends.base import Call, Expert, LocalBackend
from jarvis_agent.backends.model_files import config_file, model_folder, refusal
from jarvis_agent.backends.pool import ModelPool
from jarvis_agent.backends.transformers_loading import Loaded, Way, choose_way, load_model, try_out
from jarvis_agent.backends.transformers_tasks import TASK_WAYS
from jarvis_agent.backends.weights import is_out_of_memory, weight_bytes
from jarvis_agent.errors import JarvisError, MissingExtraError, UnsupportedError
from jarvis_agent.settings import Settings
from jarvis_agent.sources.cards import brief_text
from jarvis_agent.tools.spec import TaskSpec
from jarvis_agent.types import Candidate


@dataclass(frozen=True, slots=True)
class TransformersExpert:
    """A loaded model that does one task."""

    way: Way
    loaded: Loaded
    nbytes: int

    def __call__(self, call: Call) -> Any:
        return self.way.run(self.loaded, call)


class TransformersBackend(LocalBackend):
    """Runs the tasks of TASK_WAYS."""

    name = "transformers"

    def __init__(self, pool: ModelPool, settings: Settings | None = None) -> None:
        """`settings` are those that `why_not` goes by; a call brings its own."""
        super().__init__(pool)
        self.settings = settings or Settings()

    def why_not(self, spec: TaskSpec, candidate: Candidate) -> str | None:
        """None if transformers is there, has a way to do the task, and may load the candidate."""
        if spec.name not in TASK_WAYS:
            return f"transformers has no way here to do {spec.name}"
        if candidate.library not in (None, "transformers"):
            return f"it is made for {candidate.library}, not for transformers"
        if find_spec("torch") is None or find_spec("transformers") is None:
            return str(MissingExtraError(f"{candidate.id} on this machine", "local"))
        return refusal(candidate, self.settings)

    async def run(self, call: Call) -> Any:
        """Load once for each device and dtype, then run in a worker thread."""
        key = (*self.key(call.spec, call.candidate), call.settings.device, call.settings.dtype)
        return await self.pool.run(key, lambda: self.load(call.spec, call.candidate, call.settings), call)

    def load(self, spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
        """Find the files, choose the way by the model's config, and load it.

        Raises:
            UnsupportedError: it is not there, not allowed, damaged, or of a kind that can not do the task.
            TransientError: it could not be downloaded.
            ConfigError: the device or the dtype is not there.
        """
        if find_spec("torch") is None or find_spec("transformers") is None:
            raise MissingExtraError(f"{candidate.id} on this machine", "local")
        with _named(spec, candidate):
            return _load(spec, candidate, settings)


def _load(spec: TaskSpec, candidate: Candidate, settings: Settings) -> Expert:
    from transformers import AutoConfig

    _hush()
    remote = settings.trust_remote_code
    folder = model_folder(candidate, settings) if remote else config_file(candidate, settings).parent
    config = AutoConfig.from_pretrained(str(folder), trust_remote_code=remote)
    way = choose_way(TASK_WAYS[spec.name], config)
    if way is None:
        raise UnsupportedError(f"{candidate.id} is a {config.model_type} model, which can not do {spec.name}")
    if not remote and not candidate.local and candidate.path is None:
        try_out(way, config)
    loaded = load_model(way, model_folder(candidate, settings), candidate, settings)
    return TransformersExpert(way, loaded, weight_bytes(loaded.model, *loaded.extras.values()))


def _hush() -> None:
    """Take away transformers' progress bars and, unless somebody set its level, its advice to developers."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    if logging.get_verbosity() == logging.WARNING:
        logging.set_verbosity_error()


@contextmanager
def _named(spec: TaskSpec, candidate: Candidate) -> Iterator[None]:
    """What goes wrong inside, as an error that names the model; want of memory is left to the pool."""
    try:
        yield
    except JarvisError:
        raise
    except ImportError as error:
        raise UnsupportedError(
            f"{candidate.id} needs a package that is not installed: {brief_text(str(error))}"
        ) from error
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise UnsupportedError(
            f"{candidate.id} can not be loaded for {spec.name}: {brief_text(str(error))}"
        ) from error
